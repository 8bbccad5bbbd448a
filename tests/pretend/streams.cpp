// Streams and events: what comes before what. Never runs anything: the queue does.
#include "streams.h"

#include <atomic>

#include "memory.h"

namespace pretend {

namespace {

std::vector<Stream*>& streams() {
    static auto* all = new std::vector<Stream*>;
    return *all;
}

Stream* nameless() {
    static auto* only = new Stream;
    return only;
}

template <class F> int with_stream(const char* name, void* handle, F what) {
    return call(name, [&]() -> int {
        Stream* stream = stream_of(handle);
        return stream ? what(stream) : INVALID_HANDLE;
    });
}

int create_stream(Stream** stream, unsigned flags) {
    static uint64_t count = 0;
    if (flags > 1) return INVALID_VALUE;
    *stream = new Stream;
    (*stream)->blocking = flags == 0;
    (*stream)->lane = ++count;
    streams().push_back(*stream);
    driver().handles.insert(*stream);
    return SUCCESS;
}

// A call that waits on the host. It is refused in a capture, as recorded work is not there to wait for.
template <class F> int waiting_call(const char* name, F what) {
    std::unique_lock<std::mutex> held(driver().lock);
    count(name);
    if (!driver().initialized) return NOT_INITIALIZED;
    if (in_host_function) return NOT_PERMITTED;
    if (fails(name)) return UNKNOWN;
    if (driver().broken) return driver().broken;
    if (!current_context) return INVALID_CONTEXT;
    if (is_refused_by_capture()) return STREAM_CAPTURE_UNSUPPORTED;
    int status = what(held);
    return driver().broken ? driver().broken : status;
}

// A word that other processes, or other threads, may write meanwhile.
template <class T> T load(uint64_t at) { return __atomic_load_n(reinterpret_cast<T*>(at), __ATOMIC_ACQUIRE); }

template <class T> bool has_come(uint64_t at, T value, unsigned flags) {
    T found = load<T>(at);
    switch (flags & 3) {
        case 0: return std::make_signed_t<T>(found - value) >= 0;
        case 1: return found == value;
        case 2: return (found & value) != 0;
        default: return T(~(found | value)) != 0;
    }
}

template <class T> Work waiting(const MemoryOp& op) {
    // This may be called while the device's memory is closed.
    return {nullptr, [=] { return Opened(), has_come<T>(op.at, T(op.value), op.flags); }};
}

template <class T> Work writing(const MemoryOp& op) {
    auto run = [=]() -> int {
        __atomic_store_n(reinterpret_cast<T*>(op.at), T(op.value), __ATOMIC_RELEASE);
        return SUCCESS;
    };
    return {run, nullptr};
}

int memory_op(void* stream, const MemoryOp& op, const char* name) {
    return with_stream(name, stream, [&](Stream* stream) -> int {
        auto work = work_of(op);
        return work ? submit(stream, *work) : INVALID_VALUE;
    });
}

// The recording goes on in this stream too.
int join_capture(Stream* stream, Event* event) {
    if (event->capture->ended) return CAPTURED_EVENT;
    if (stream->capture && stream->capture != event->capture) return STREAM_CAPTURE_ISOLATION;
    if (!stream->capture) {
        stream->capture = event->capture;
        stream->capture->streams.push_back(stream);
        stream->tails.clear();
    }
    stream->tails.insert(stream->tails.end(), event->items.begin(), event->items.end());
    return SUCCESS;
}

}  // namespace

Stream* stream_of(void* handle) {
    if (reinterpret_cast<uintptr_t>(handle) <= 1) return nameless();
    auto* stream = static_cast<Stream*>(handle);
    return is_handle(stream) ? stream : nullptr;
}

std::optional<Work> work_of(const MemoryOp& op) {
    if (op.at == 0 || op.at % (op.kind > 3 ? 8 : 4)) return std::nullopt;
    switch (op.kind) {
        case 1: return waiting<uint32_t>(op);
        case 2: return writing<uint32_t>(op);
        case 4: return waiting<uint64_t>(op);
        case 5: return writing<uint64_t>(op);
        default: return std::nullopt;
    }
}

int submit(Stream* stream, Work work) {
    if (Capture* capture = stream->capture) {
        if (capture->invalid) return STREAM_CAPTURE_INVALIDATED;
        capture->graph->items.push_back({std::move(work), stream->tails, std::nullopt});
        stream->tails = {capture->graph->items.size() - 1};
        return SUCCESS;
    }
    std::vector<Shared> before = {stream->tail};
    if (stream == nameless())
        for (Stream* other : streams())
            if (other->blocking) before.push_back(other->tail);
    if (stream->blocking) before.push_back(nameless()->tail);
    stream->tail = enqueue(work.anew ? work.anew() : std::move(work), before, stream->lane);
    return SUCCESS;
}

}  // namespace pretend

using namespace pretend;

API cuStreamCreate(Stream** stream, unsigned flags) {
    return call(__func__, [&] { return create_stream(stream, flags); });
}
API cuStreamCreateWithPriority(Stream** stream, unsigned flags, int) {
    return call(__func__, [&] { return create_stream(stream, flags); });
}
API cuCtxGetStreamPriorityRange(int* least, int* greatest) {
    return call(__func__, [&]() -> int { return *least = 0, *greatest = -5, SUCCESS; });
}

// Its work is done all the same.
API cuStreamDestroy_v2(Stream* stream) {
    return call_anywhere(__func__, [&]() -> int {
        if (!is_handle(stream)) return INVALID_HANDLE;
        driver().handles.erase(stream);
        for (auto& known : streams())
            if (known == stream) {
                known = streams().back();
                streams().pop_back();
                break;
            }
        delete stream;
        return SUCCESS;
    });
}

API cuStreamSynchronize(void* handle) {
    return waiting_call(__func__, [&](std::unique_lock<std::mutex>& held) -> int {
        Stream* stream = stream_of(handle);
        if (!stream) return INVALID_HANDLE;
        if (stream->capture) return stream->capture->invalid = true, STREAM_CAPTURE_UNSUPPORTED;
        finish(stream->tail, held);
        return SUCCESS;
    });
}

API cuCtxSynchronize() {
    return waiting_call(__func__, [&](std::unique_lock<std::mutex>& held) -> int {
        std::vector<Shared> tails = {nameless()->tail};
        for (Stream* stream : streams()) tails.push_back(stream->tail);
        for (auto& tail : tails) finish(tail, held);
        return SUCCESS;
    });
}

API cuStreamQuery(void* handle) {
    return with_stream(__func__, handle, [&](Stream* stream) -> int {
        if (is_refused_by_capture()) return STREAM_CAPTURE_UNSUPPORTED;
        if (stream->tail && !stream->tail->done) go_on();
        if (driver().broken) return driver().broken;
        return stream->tail && !stream->tail->done ? NOT_READY : SUCCESS;
    });
}

API cuStreamWaitEvent(void* handle, Event* event, unsigned) {
    return with_stream(__func__, handle, [&](Stream* stream) -> int {
        if (!is_handle(event)) return INVALID_HANDLE;
        if (event->capture) return join_capture(stream, event);
        if (stream->capture) return event->node ? STREAM_CAPTURE_ISOLATION : SUCCESS;
        if (!event->node || event->node->done) return SUCCESS;
        stream->tail = enqueue({}, {stream->tail, event->node}, stream->lane);
        return SUCCESS;
    });
}

API cuStreamWaitValue32_v2(void* stream, uint64_t at, uint32_t value, unsigned flags) {
    return memory_op(stream, {1, at, value, flags, {}}, __func__);
}
API cuStreamWaitValue64_v2(void* stream, uint64_t at, uint64_t value, unsigned flags) {
    return memory_op(stream, {4, at, value, flags, {}}, __func__);
}
API cuStreamWriteValue32_v2(void* stream, uint64_t at, uint32_t value, unsigned) {
    return memory_op(stream, {2, at, value, 0, {}}, __func__);
}
API cuStreamWriteValue64_v2(void* stream, uint64_t at, uint64_t value, unsigned) {
    return memory_op(stream, {5, at, value, 0, {}}, __func__);
}

API cuLaunchHostFunc(void* handle, void (*function)(void*), void* data) {
    return with_stream(__func__, handle, [&](Stream* stream) -> int {
        auto run = [=]() -> int {
            in_host_function = true;
            function(data);
            in_host_function = false;
            return SUCCESS;
        };
        return submit(stream, {run, nullptr});
    });
}

// ---- Events.

API cuEventCreate(Event** event, unsigned flags) {
    return call(__func__, [&]() -> int {
        *event = new Event;
        (*event)->timed = !(flags & 2);
        driver().handles.insert(*event);
        return SUCCESS;
    });
}

API cuEventDestroy_v2(Event* event) {
    return call_anywhere(__func__, [&]() -> int {
        if (!is_handle(event)) return INVALID_HANDLE;
        driver().handles.erase(event);
        delete event;
        return SUCCESS;
    });
}

API cuEventRecord(Event* event, void* handle) {
    return with_stream(__func__, handle, [&](Stream* stream) -> int {
        if (!is_handle(event)) return INVALID_HANDLE;
        event->capture = stream->capture;
        event->items = stream->tails;
        if (stream->capture) return SUCCESS;
        // An event has a node of its own, as its time is asked for.
        if (int status = submit(stream, {})) return status;
        event->node = stream->tail;
        return SUCCESS;
    });
}

API cuEventSynchronize(Event* event) {
    return waiting_call(__func__, [&](std::unique_lock<std::mutex>& held) -> int {
        if (!is_handle(event)) return INVALID_HANDLE;
        if (event->capture) return CAPTURED_EVENT;
        finish(event->node, held);
        return SUCCESS;
    });
}

API cuEventQuery(Event* event) {
    return call_outside_capture(__func__, [&]() -> int {
        if (!is_handle(event)) return INVALID_HANDLE;
        if (event->capture) return CAPTURED_EVENT;
        if (event->node && !event->node->done) go_on();
        if (driver().broken) return driver().broken;
        return event->node && !event->node->done ? NOT_READY : SUCCESS;
    });
}

static int elapsed(float* milliseconds, Event* from, Event* to) {
    if (!is_handle(from) || !is_handle(to) || !from->timed || !to->timed) return INVALID_HANDLE;
    if (!from->node || !to->node) return INVALID_HANDLE;
    if (!from->node->done || !to->node->done) return NOT_READY;
    *milliseconds = float(to->node->when - from->node->when);
    return SUCCESS;
}
API cuEventElapsedTime(float* milliseconds, Event* from, Event* to) {
    return call(__func__, [&] { return elapsed(milliseconds, from, to); });
}
API cuEventElapsedTime_v2(float* milliseconds, Event* from, Event* to) {
    return call(__func__, [&] { return elapsed(milliseconds, from, to); });
}
