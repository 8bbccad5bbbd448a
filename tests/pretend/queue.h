// The work of all streams and graphs: nodes that wait for others, done in a seeded random order. Knows neither streams
// nor handles.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

namespace pretend {

struct Node;
using Shared = std::shared_ptr<Node>;

// The work of a node, whose function is empty if it only joins others.
struct Work {
    // Returns a status.
    std::function<int()> run;
    // Whether it may run now, where that depends on more than other nodes.
    std::function<bool()> may_run;
    // Makes the work that is done in its place, if that differs each time that it is put into a queue.
    std::function<Work()> anew = nullptr;
};

struct Node {
    Work work;
    std::vector<Shared> followers;
    unsigned missing = 0;
    // Nodes of one lane are alike when an order is drawn: a stream is a lane, and so is each node of a graph.
    uint64_t lane = 0;
    bool done = false;
    // When it was done, in milliseconds.
    double when = 0;
};

// A node that is done after all of `before`, any of which may be null.
Shared enqueue(Work work, const std::vector<Shared>& before, uint64_t lane);
// Does work until `last` is done; null is done. The lock of the driver is held, but not while all that is left waits for
// a value in memory.
void finish(const Shared& last, std::unique_lock<std::mutex>& held);
// Does one or a few nodes that can be done, if any, so that a caller which asks again and again sees work go on.
void go_on();
// From now on, orders follow from this seed.
void seed(uint64_t seed);
// Starts to do work while nobody calls the driver, as a device would.
void work_in_background();

}  // namespace pretend
