// Draws the order of work. It prefers one lane for a while, then another: if every node were drawn evenly, a missing
// event would show in far fewer seeds.
#include "queue.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "driver.h"
#include "memory.h"

namespace pretend {

namespace {

struct Order {
    Random random;
    uint64_t epoch = 0;
    // One in this many nodes begins an epoch, in which lanes have another order.
    uint64_t epoch_length = 1;
    // One in this many calls lets work go on at once; 0: none does.
    uint64_t eager = 0;
};

Order& order() {
    static auto* only = [] {
        auto* made = new Order;
        return made;
    }();
    return *only;
}

std::vector<Shared>& ready() {
    static auto* all = new std::vector<Shared>;
    return *all;
}

double now() {
    using namespace std::chrono;
    return duration<double, std::milli>(steady_clock::now().time_since_epoch()).count();
}

// The node to do next, or none where all wait for a value.
Shared draw() {
    Order& by = order();
    if (by.random.one_in(by.epoch_length)) by.epoch = by.random.next();
    auto& all = ready();
    auto best = all.end();
    uint64_t best_rank = 0;
    for (auto at = all.begin(); at != all.end(); ++at) {
        if ((*at)->work.may_run && !driver().broken && !(*at)->work.may_run()) continue;
        uint64_t rank = mixed(by.epoch ^ mixed((*at)->lane));
        if (best == all.end() || rank > best_rank) best = at, best_rank = rank;
    }
    if (best == all.end()) return nullptr;
    Shared drawn = *best;
    all.erase(best);
    return drawn;
}

// Does a node. After an error, nodes end without being done.
void perform(const Shared& node) {
    if (node->work.run && !driver().broken) {
        int status = node->work.run();
        if (status) driver().broken = status;
    }
    node->work = {};
    node->done = true;
    node->when = now();
    for (auto& follower : node->followers)
        if (--follower->missing == 0) ready().push_back(follower);
    node->followers.clear();
}

bool one() {
    Shared node = draw();
    if (node) perform(node);
    return node != nullptr;
}

}  // namespace

Shared enqueue(Work work, const std::vector<Shared>& before, uint64_t lane) {
    auto node = std::make_shared<Node>();
    node->work = std::move(work);
    node->lane = lane;
    for (auto& other : before) {
        if (!other || other->done) continue;
        other->followers.push_back(node);
        node->missing++;
    }
    if (node->missing == 0) ready().push_back(node);
    if (order().eager && order().random.one_in(order().eager)) go_on();
    return node;
}

void finish(const Shared& last, std::unique_lock<std::mutex>& held) {
    if (!last || last->done) return;
    while (!last->done) {
        {
            Opened opened;
            while (!last->done && one()) {
            }
        }
        if (last->done) return;
        // Another thread or process writes the value that it waits for.
        held.unlock();
        std::this_thread::sleep_for(std::chrono::microseconds(50));
        held.lock();
    }
}

void go_on() {
    if (ready().empty()) return;
    Opened opened;
    for (uint64_t count = 1 + order().random.below(4); count > 0 && one(); count--) {
    }
}

void seed(uint64_t seed) {
    order() = {};
    order().random.state = mixed(seed);
    driver().random.state = mixed(~seed);
    static const uint64_t lengths[] = {4, 64, 1, 16}, eager[] = {0, 0, 16, 0, 2};
    order().epoch_length = lengths[seed % 4];
    order().eager = eager[seed % 5];
}

void work_in_background() {
    std::thread([] {
        for (uint64_t before = ~0ull;;) {
            std::this_thread::sleep_for(std::chrono::milliseconds(10));
            std::unique_lock<std::mutex> held(driver().lock);
            if (driver().calls == before) {
                for (int many = 0; many < 64 && driver().calls == before; many++) {
                    Opened opened;
                    if (!one()) break;
                }
            }
            before = driver().calls;
        }
    }).detach();
}

}  // namespace pretend
