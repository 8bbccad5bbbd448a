// Streams, events and graphs of the pretend driver.
#pragma once
#include <vector>

#include "driver.h"
#include "queue.h"

namespace pretend {

// What was recorded of streams: work, and what comes before each.
struct Graph {
    struct Item {
        Work work;
        std::vector<size_t> before;
    };
    std::vector<Item> items;
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
// Puts work into a stream, or into what is recorded of it. A status.
int submit(Stream* stream, Work work);

}  // namespace pretend
