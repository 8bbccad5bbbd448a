// Graphs: streams that are recorded, and what was recorded as work. A launch makes a node of each item, so that items
// which do not wait for one another come in any order. Never changes a graph that was recorded.
#include <algorithm>

#include "memory.h"
#include "streams.h"

namespace pretend {

namespace {

// The device memory that an instance of a graph takes.
const int64_t GRAPH_BYTES = 64 << 10;

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

// Whether all recorded work comes before the last work of the stream that the recording began in.
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
    capture->ended = true;
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
        Work work = item.op ? *work_of(*item.op) : item.work.anew ? item.work.anew() : item.work;
        nodes.push_back(enqueue(std::move(work), before, mixed(driver().random.next())));
        all.push_back(nodes.back());
    }
    stream->tail = graph->last = enqueue({}, all, stream->lane);
    return SUCCESS;
}

// The active recording of a stream, or null.
Capture* capture_of(void* handle) {
    Stream* stream = stream_of(handle);
    return stream && stream->capture && !stream->capture->invalid ? stream->capture : nullptr;
}

// The name that other calls have for an item. It stays as long as the graph.
GraphNode* name_of(Graph* graph, size_t item) {
    graph->nodes.push_back({graph, item});
    return &graph->nodes.back();
}

// Whether nodes are those of a graph.
bool are_of(const Graph* graph, GraphNode* const* nodes, size_t count) {
    return std::all_of(nodes, nodes + count, [=](auto* node) { return node && node->graph == graph; });
}

std::vector<size_t> items_of(GraphNode* const* nodes, size_t count) {
    std::vector<size_t> items;
    for (size_t i = 0; i < count; i++) items.push_back(nodes[i]->item);
    return items;
}

// `CUDA_BATCH_MEM_OP_NODE_PARAMS`.
struct MemoryOpParams {
    void* context;
    unsigned count;
    const MemoryOp* ops;
    unsigned flags;
};

// The only operation of a node, or null if it is not valid.
const MemoryOp* op_of(const MemoryOpParams* params) {
    bool is_one = params->context == current_context && params->count == 1 && params->flags == 0;
    return is_one && work_of(*params->ops) ? params->ops : nullptr;
}

// Nobody has a graph yet while it is recorded, so it is not among the handles.
int add(GraphNode** node, Graph* graph, GraphNode* const* before, size_t count, const MemoryOpParams* params) {
    const MemoryOp* op = op_of(params);
    if (!op || !are_of(graph, before, count)) return INVALID_VALUE;
    graph->items.push_back({{}, items_of(before, count), *op});
    *node = name_of(graph, graph->items.size() - 1);
    return SUCCESS;
}

int set(Graph* instance, const GraphNode* node, const MemoryOpParams* params) {
    const MemoryOp* op = op_of(params);
    bool is_node = is_handle(instance) && instance->origin && is_handle(instance->origin);
    if (!is_node || !op || !are_of(instance->origin, const_cast<GraphNode**>(&node), 1)) return INVALID_VALUE;
    auto& known = instance->items[node->item].op;
    if (!known || known->kind != op->kind) return INVALID_VALUE;
    known = *op;
    return SUCCESS;
}

int destroy(Graph* graph) {
    if (!is_handle(graph)) return INVALID_HANDLE;
    driver().handles.erase(graph);
    if (graph->origin) take(-GRAPH_BYTES);
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

API cuStreamGetCaptureInfo_v3(void* stream, unsigned* status, uint64_t* id, Graph** graph, GraphNode* const** before,
                              const void** edges, size_t* count) {
    return call(__func__, [&]() -> int {
        Stream* of = stream_of(stream);
        if (!of) return INVALID_HANDLE;
        *status = !of->capture ? 0 : of->capture->invalid ? 2 : 1;
        Capture* capture = capture_of(stream);
        if (!capture) return SUCCESS;
        capture->told.clear();
        for (size_t item : of->tails) capture->told.push_back(name_of(capture->graph, item));
        if (id) *id = uint64_t(reinterpret_cast<uintptr_t>(capture));
        if (graph) *graph = capture->graph;
        if (before) *before = capture->told.data(), *count = capture->told.size();
        if (edges) *edges = nullptr;
        return SUCCESS;
    });
}

API cuStreamUpdateCaptureDependencies_v2(void* stream, GraphNode* const* nodes, const void*, size_t count, unsigned set) {
    return call(__func__, [&]() -> int {
        Capture* capture = capture_of(stream);
        if (!capture) return ILLEGAL_STATE;
        if (!are_of(capture->graph, nodes, count) || set > 1) return INVALID_VALUE;
        auto& tails = stream_of(stream)->tails;
        if (set) tails.clear();
        for (size_t item : items_of(nodes, count)) tails.push_back(item);
        return SUCCESS;
    });
}

API cuGraphAddBatchMemOpNode(GraphNode** node, Graph* graph, GraphNode* const* before, size_t count,
                             const MemoryOpParams* params) {
    return call(__func__, [&] { return add(node, graph, before, count, params); });
}

API cuGraphExecBatchMemOpNodeSetParams(Graph* instance, const GraphNode* node, const MemoryOpParams* params) {
    return call(__func__, [&] { return set(instance, node, params); });
}

API cuGraphInstantiateWithFlags(Graph** instance, Graph* graph, unsigned long long) {
    return call(__func__, [&]() -> int {
        if (!is_handle(graph)) return INVALID_HANDLE;
        if (graph->origin) return INVALID_VALUE;
        take(GRAPH_BYTES);
        *instance = new Graph;
        (*instance)->items = graph->items;
        (*instance)->origin = graph;
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
