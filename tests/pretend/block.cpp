// Threads of a block as fibers. Threads that never wait share a fiber: only a thread that waits keeps its own. A wait
// that cannot end is an error that names the threads, never a hang.
#include "block.h"

#include <algorithm>
#include <cstdio>
#include <vector>

#include "fibers.h"

namespace pretend {

namespace {

enum class State { Fresh, Ready, AtBarrier, AtMeeting, Done };

struct Thread {
    State state = State::Fresh;
    Fiber* fiber = nullptr;
    unsigned mask = 0;
    PretendMeeting meeting = nullptr;
    void* brought = nullptr;
};

// The running block, one at a time in a process, as the driver runs under one lock. Never destroyed, as it may run while the
// process ends.
struct Block {
    const PretendKernel* kernel = nullptr;
    PretendThreads* where = nullptr;
    void** arguments = nullptr;
    Random* random = nullptr;
    std::vector<Thread> threads;
    // The position of each thread in the block. Each change needs it, and a division would take longer than the change.
    std::vector<Dim> places;
    std::vector<unsigned> fresh;
    // Threads that are ready, from `first_ready` on.
    std::vector<unsigned> ready;
    size_t first_ready = 0;
    // The lanes of each warp that wait at a meeting.
    std::vector<unsigned> meeting;
    unsigned current = 0, at_barrier = 0, done = 0;
    std::string error;
    Fiber scheduler;
    std::vector<Fiber*> idle;
};
Block& block = *new Block;

std::string named(unsigned thread) {
    const Dim& in = block.where->block;
    Dim at = block.places[thread];
    char text[128];
    snprintf(text, sizeof text, "thread (%u, %u, %u) of block (%u, %u, %u)", at.x, at.y, at.z, in.x, in.y, in.z);
    return text;
}

void enter(unsigned thread) {
    block.current = thread;
    block.where->thread = block.places[thread];
}

// The work of a fiber: threads that have not begun, one after another. Once one has waited, the fiber belongs to that
// thread until it ends.
void work() {
    for (Fiber* mine = nullptr;;) {
        if (!mine) {
            mine = block.idle.back();
            block.idle.pop_back();
            arrived(*mine);
        }
        while (!block.fresh.empty() && block.error.empty()) {
            enter(block.fresh.back());
            block.fresh.pop_back();
            block.threads[block.current].fiber = mine;
            block.kernel->run(block.arguments);
            block.threads[block.current].state = State::Done;
            block.done++;
        }
        block.idle.push_back(mine);
        change(*mine, block.scheduler);
        // Threads begin on the fiber that has been idle for the shortest time.
        block.idle.pop_back();
    }
}

Fiber* next();

// The running thread waits in `state` until it is made ready. The next one goes on directly, as going through the scheduler would
// take two changes.
void wait(State state) {
    unsigned me = block.current;
    block.threads[me].state = state;
    Fiber* other = next();
    change(*block.threads[me].fiber, other ? *other : block.scheduler);
    enter(me);
}

void make_ready(unsigned thread) {
    block.threads[thread].state = State::Ready;
    block.ready.push_back(thread);
}

void fail(const char* why) {
    if (block.error.empty()) block.error = named(block.current) + ": " + why;
    wait(State::Done);
}

void block_barrier() {
    if (++block.at_barrier < block.threads.size()) return wait(State::AtBarrier);
    block.at_barrier = 0;
    for (unsigned thread = 0; thread < block.threads.size(); thread++)
        if (thread != block.current) make_ready(thread);
}

void meet(unsigned mask, PretendMeeting meeting, void* brought) {
    unsigned me = block.current, first = me / 32 * 32, size = block.threads.size();
    unsigned there = size - first < 32 ? (1u << (size - first)) - 1 : ~0u;
    if (!(mask >> (me - first) & 1)) return fail("takes part in what its mask leaves it out of");
    // A mask of all lanes means all lanes that the warp has.
    mask &= there;
    Thread& mine = block.threads[me];
    mine.mask = mask, mine.meeting = meeting, mine.brought = brought;
    unsigned& waiting = block.meeting[me / 32];
    waiting |= 1u << (me - first);
    if ((waiting & mask) != mask) return wait(State::AtMeeting);
    void* lanes[32] = {};
    for (unsigned lane = 0; lane < 32; lane++) {
        if (!(mask >> lane & 1)) continue;
        const Thread& other = block.threads[first + lane];
        if (other.mask != mask || other.meeting != meeting) return fail("lanes of its warp wait elsewhere, or by other masks");
        lanes[lane] = other.brought ? other.brought : const_cast<unsigned*>(&other.mask);
    }
    meeting(lanes);
    waiting &= ~mask;
    for (unsigned lane = 0; lane < 32; lane++)
        if ((mask >> lane & 1) && first + lane != me) make_ready(first + lane);
}

void forget_ready() {
    block.ready.clear();
    block.first_ready = 0;
}

// A thread from either end: the one that has been ready longest, or the last one.
unsigned next_ready() {
    unsigned thread = block.ready[block.first_ready];
    if (block.random->one_in(2)) {
        thread = block.ready.back();
        block.ready.pop_back();
    } else {
        block.first_ready++;
    }
    if (block.first_ready == block.ready.size()) forget_ready();
    return thread;
}

// The fiber to go on with: that of a ready thread, or one for threads that have not begun. None if all wait or have
// ended.
Fiber* next() {
    if (!block.error.empty()) return nullptr;
    if (block.first_ready < block.ready.size()) return block.threads[next_ready()].fiber;
    if (block.fresh.empty()) return nullptr;
    if (block.idle.empty()) {
        auto* fiber = new Fiber;
        fiber->stack = new_stack();
        prepare(*fiber, work);
        block.idle.push_back(fiber);
    }
    return block.idle.back();
}

// Says where the first waiting thread waits, and for whom.
std::string stuck() {
    for (unsigned thread = 0; thread < block.threads.size(); thread++) {
        State state = block.threads[thread].state;
        if (state != State::AtBarrier && state != State::AtMeeting) continue;
        const char* at = state == State::AtBarrier ? "__syncthreads" : "a shuffle, __syncwarp or product of its warp";
        for (unsigned other = 0; other < block.threads.size(); other++)
            if (block.threads[other].state == State::Done)
                return named(thread) + " waits at " + at + ", but " + named(other) + " has returned";
        return named(thread) + " waits at " + at + ", and others of its block wait elsewhere";
    }
    return "";
}

void run_block(const Dim& at, unsigned count) {
    block.where->block = at;
    block.threads.assign(count, Thread{});
    block.fresh.resize(count);
    bool forward = block.random->one_in(2);
    for (unsigned i = 0; i < count; i++) block.fresh[i] = forward ? count - 1 - i : i;
    block.meeting.assign((count + 31) / 32, 0);
    block.at_barrier = block.done = 0;
    while (Fiber* fiber = next()) change(block.scheduler, *fiber);
    if (block.error.empty() && block.done < count) block.error = stuck();
}

// Fibers whose threads never ended begin anew.
void abandon() {
    for (auto& thread : block.threads) {
        Fiber* fiber = thread.fiber;
        if (!fiber || std::find(block.idle.begin(), block.idle.end(), fiber) != block.idle.end()) continue;
        prepare(*fiber, work);
        block.idle.push_back(fiber);
    }
    forget_ready();
}

}  // namespace

std::string run_grid(const PretendKernel& kernel, PretendThreads& threads, const Grid& grid, void** arguments,
                     Random& random) {
    block.kernel = &kernel, block.where = &threads, block.arguments = arguments, block.random = &random;
    // Another thread of the process, with another stack, may have run the last kernel.
    block.scheduler = Fiber{};
    block.error.clear();
    threads = {{}, {}, grid.threads, grid.blocks, block_barrier, meet, fail};
    const Dim& of = grid.threads;
    unsigned count = of.x * of.y * of.z;
    block.places.resize(count);
    for (unsigned i = 0; i < count; i++) block.places[i] = {i % of.x, i / of.x % of.y, i / of.x / of.y};
    uint64_t blocks = uint64_t(grid.blocks.x) * grid.blocks.y * grid.blocks.z;
    uint64_t start = random.below(blocks);
    bool forward = random.one_in(2);
    for (uint64_t i = 0; i < blocks && block.error.empty(); i++) {
        uint64_t at = (start + (forward ? i : blocks - i)) % blocks, x = grid.blocks.x, y = grid.blocks.y;
        run_block({unsigned(at % x), unsigned(at / x % y), unsigned(at / x / y)}, count);
    }
    if (!block.error.empty()) abandon();
    return block.error;
}

}  // namespace pretend
