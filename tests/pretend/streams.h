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

// What was recorded of streams: work, and what comes before each.
struct Graph {
    struct Item {
        Work work;
        std::vector<size_t> before;
        // In place of work: each instance has values of its own.
        std::optional<MemoryOp> op;
    };
    std::vector<Item> items;
    // Those that were named.
    std::deque<GraphNode> nodes;
    // Of one that was instantiated: of which graph.
    Graph* origin = nullptr;
    // Of one that was instantiated: the end of its last launch, as it never runs twice at a time.
    Shared last;
};

struct Stream;

// A recording that goes on.
struct Capture {
    Graph* graph = nullptr;
    Stream* origin = nullptr;
    std::vector<Stream*> streams;
    // Whether a call was made meanwhile that could synchronise.
    bool invalid = false;
    bool ended = false;
    // What was last said to come before the next item.
    std::vector<GraphNode*> told;
};

struct Stream {
    Shared tail;
    uint64_t lane = 0;
    // Whether it waits for the stream that has no name, and that for it.
    bool blocking = false;
    Capture* capture = nullptr;
    // What of a recording comes last.
    std::vector<size_t> tails;
};

struct Event {
    Shared node;
    Capture* capture = nullptr;
    std::vector<size_t> items;
    bool timed = false;
};

// The stream of a handle, or null: 0 and 1 are the stream that has no name.
Stream* stream_of(void* handle);
// What a memory operation does; nothing for one that there is not.
std::optional<Work> work_of(const MemoryOp& op);
// Puts work into a stream, or into what is recorded of it. A status.
int submit(Stream* stream, Work work);

}  // namespace pretend
