// Graphs: streams that are recorded, and what was recorded as work. A launch is a node for each item, so that items which
// wait for nothing of one another come in any order. Never changes a graph that was recorded.
#include <algorithm>

#include "streams.h"

namespace pretend {

namespace {

int begin(Stream* stream, int mode) {
    if (!stream || mode > 2) return INVALID_VALUE;
    if (stream->capture) return STREAM_CAPTURE_UNMATCHED;
    auto* capture = new Capture;
    capture->graph = new Graph;
    capture->origin = stream;
    capture->streams = {stream};
    stream->capture = capture;
    stream->tails.clear();
    if (mode != 2) captures.push_back(&capture->invalid);
    return SUCCESS;
}

// Whether all that was recorded comes before what comes last in the stream that it began in.
bool is_joined(const Capture& capture) {
    std::vector<bool> seen(capture.graph->items.size());
    std::vector<size_t> next = capture.origin->tails;
    size_t count = 0;
    while (!next.empty()) {
        size_t item = next.back();
        next.pop_back();
        if (seen[item]) continue;
        seen[item] = true;
        count++;
        auto& before = capture.graph->items[item].before;
        next.insert(next.end(), before.begin(), before.end());
    }
    return count == seen.size();
}

int end(Stream* stream, Graph** graph) {
    Capture* capture = stream->capture;
    if (!capture || capture->origin != stream) return STREAM_CAPTURE_UNMATCHED;
    int status = capture->invalid ? STREAM_CAPTURE_INVALIDATED : is_joined(*capture) ? SUCCESS : STREAM_CAPTURE_UNJOINED;
    for (Stream* other : capture->streams) {
        other->capture = nullptr;
        other->tails.clear();
    }
    captures.erase(std::remove(captures.begin(), captures.end(), &capture->invalid), captures.end());
    *graph = status ? nullptr : capture->graph;
    if (status) delete capture->graph;
    else driver().handles.insert(*graph);
    // Events may still name it, so it stays.
    return status;
}

int launch(Graph* graph, Stream* stream) {
    if (stream->capture) return NOT_SUPPORTED;
    std::vector<Shared> nodes, all = {stream->tail, graph->last};
    for (auto& item : graph->items) {
        std::vector<Shared> before;
        for (size_t i : item.before) before.push_back(nodes[i]);
        if (before.empty()) before = {stream->tail, graph->last};
        nodes.push_back(enqueue(item.work, before, mixed(driver().random.next())));
        all.push_back(nodes.back());
    }
    stream->tail = graph->last = enqueue({}, all, stream->lane);
    return SUCCESS;
}

int destroy(Graph* graph) {
    if (!is_handle(graph)) return INVALID_HANDLE;
    driver().handles.erase(graph);
    delete graph;
    return SUCCESS;
}

}  // namespace

}  // namespace pretend

using namespace pretend;

API cuStreamBeginCapture_v2(void* stream, int mode) {
    return call(__func__, [&] { return begin(stream_of(stream), mode); });
}

API cuStreamEndCapture(void* stream, Graph** graph) {
    return call(__func__, [&]() -> int {
        Stream* of = stream_of(stream);
        return of ? end(of, graph) : INVALID_HANDLE;
    });
}

API cuStreamIsCapturing(void* stream, int* status) {
    return call(__func__, [&]() -> int {
        Stream* of = stream_of(stream);
        if (!of) return INVALID_HANDLE;
        *status = !of->capture ? 0 : of->capture->invalid ? 2 : 1;
        return SUCCESS;
    });
}

API cuGraphInstantiateWithFlags(Graph** instance, Graph* graph, unsigned long long) {
    return call(__func__, [&]() -> int {
        if (!is_handle(graph)) return INVALID_HANDLE;
        *instance = new Graph{graph->items, nullptr};
        driver().handles.insert(*instance);
        return SUCCESS;
    });
}

API cuGraphLaunch(Graph* instance, void* stream) {
    return call(__func__, [&]() -> int {
        Stream* in = stream_of(stream);
        return in && is_handle(instance) ? launch(instance, in) : INVALID_HANDLE;
    });
}

API cuGraphUpload(Graph* instance, void* stream) {
    return call(__func__, [&]() -> int {
        return stream_of(stream) && is_handle(instance) ? SUCCESS : INVALID_HANDLE;
    });
}

API cuGraphGetNodes(Graph* graph, void**, size_t* count) {
    return call(__func__, [&]() -> int {
        if (!is_handle(graph)) return INVALID_HANDLE;
        *count = graph->items.size();
        return SUCCESS;
    });
}

API cuGraphDestroy(Graph* graph) {
    return call_anywhere(__func__, [&] { return destroy(graph); });
}
API cuGraphExecDestroy(Graph* instance) {
    return call_anywhere(__func__, [&] { return destroy(instance); });
}
