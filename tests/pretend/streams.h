// Streams, events and graphs of the pretend driver.
#pragma once
#include <deque>
#include <optional>
#include <vector>

#include "driver.h"
#include "queue.h"

namespace pretend {

// `CUstreamBatchMemOpParams`: a wait for a value in memory, or a write of one.
struct MemoryOp {
    unsigned kind;
    uint64_t at, value;
    unsigned flags;
    uint64_t unused[2];
};
static_assert(sizeof(MemoryOp) == 48, "as long as CUDA's");

struct Graph;

// An item of a graph, as its users name it.
struct GraphNode {
    Graph* graph;
    size_t item;
};

// A recording of streams: work, and what comes before each item.
struct Graph {
    struct Item {
        Work work;
        std::vector<size_t> before;
        // In place of work: each instance has values of its own.
        std::optional<MemoryOp> op;
    };
    std::vector<Item> items;
    // Items that were named.
    std::deque<GraphNode> nodes;
    // For an instance: the graph that it was made of.
    Graph* origin = nullptr;
    // For an instance: the end of its last launch, as it never runs twice at a time.
    Shared last;
};

struct Stream;

// An active recording.
struct Capture {
    Graph* graph = nullptr;
    Stream* origin = nullptr;
    std::vector<Stream*> streams;
    // Whether a call that could synchronise was made meanwhile.
    bool invalid = false;
    bool ended = false;
    // The nodes that were last set to come before the next item.
    std::vector<GraphNode*> told;
};

struct Stream {
    Shared tail;
    uint64_t lane = 0;
    // Whether it and the default stream wait for each other.
    bool blocking = false;
    Capture* capture = nullptr;
    // The last items of its recording.
    std::vector<size_t> tails;
};

struct Event {
    Shared node;
    Capture* capture = nullptr;
    std::vector<size_t> items;
    bool timed = false;
};

// The stream of a handle, or null: 0 and 1 are the default stream.
Stream* stream_of(void* handle);
// The work of a memory operation; nothing if it is unknown.
std::optional<Work> work_of(const MemoryOp& op);
// Puts work into a stream, or into its recording. Returns a status.
int submit(Stream* stream, Work work);

}  // namespace pretend
