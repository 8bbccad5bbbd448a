// Copies and fills, as work of a stream. As CUDA's driver does, the call itself reads pageable memory; pinned memory is
// read when the copy's turn comes, with what the host has left there by then.
#include <sys/mman.h>

#include <vector>

#include "memory.h"
#include "streams.h"

namespace pretend {

namespace {

void* at(uint64_t address) { return reinterpret_cast<void*>(address); }

template <class F> int in_stream(const char* name, void* handle, F what) {
    return call(name, [&]() -> int {
        Stream* stream = stream_of(handle);
        return stream ? what(stream) : INVALID_HANDLE;
    });
}

int copy(Stream* stream, void* to, const void* from, size_t bytes) {
    return submit(stream, {[=]() -> int { return memmove(to, from, bytes), SUCCESS; }, nullptr});
}

int copy_in(Stream* stream, uint64_t to, const void* from, size_t bytes) {
    if (is_pinned(from, bytes)) return copy(stream, at(to), from, bytes);
    if (stream->capture) return STREAM_CAPTURE_UNSUPPORTED;
    auto* start = static_cast<const char*>(from);
    auto taken = std::make_shared<std::vector<char>>(start, start + bytes);
    return submit(stream, {[=]() -> int { return memcpy(at(to), taken->data(), bytes), SUCCESS; }, nullptr});
}

int copy_out(Stream* stream, void* to, uint64_t from, size_t bytes) {
    if (!is_pinned(to, bytes) && stream->capture) return STREAM_CAPTURE_UNSUPPORTED;
    return copy(stream, to, at(from), bytes);
}

// Writes zeros. Many whole pages of device memory are given back to the system instead, which makes new ones where
// somebody uses them.
void clear(char* start, size_t bytes) {
    const size_t page = 4096;
    size_t before = -reinterpret_cast<uint64_t>(start) % page, pages = bytes < before ? 0 : (bytes - before) / page * page;
    // Memory of the host cannot be given back like this.
    if (pages < 64 * page || madvise(start + before, pages, MADV_REMOVE) != 0) pages = before = 0;
    memset(start, 0, before);
    memset(start + before + pages, 0, bytes - before - pages);
}

template <class T> int fill(void* stream, uint64_t to, T value, size_t count, const char* name) {
    return in_stream(name, stream, [&](Stream* stream) -> int {
        auto run = [=]() -> int {
            auto* start = static_cast<T*>(at(to));
            if (value == 0) clear(reinterpret_cast<char*>(start), count * sizeof(T));
            else if (sizeof(T) == 1) memset(start, int(value), count);
            else for (size_t i = 0; i < count; i++) start[i] = value;
            return SUCCESS;
        };
        return submit(stream, {run, nullptr});
    });
}

// A call that copies before it returns: it waits for the default stream, and for what that waits for.
int copy_now(const char* name, void* to, const void* from, size_t bytes) {
    std::unique_lock<std::mutex> held(driver().lock);
    count(name);
    if (driver().broken) return driver().broken;
    if (!current_context) return INVALID_CONTEXT;
    if (is_refused_by_capture()) return STREAM_CAPTURE_UNSUPPORTED;
    if (fails(name)) return UNKNOWN;
    copy(stream_of(nullptr), to, from, bytes);
    finish(stream_of(nullptr)->tail, held);
    return driver().broken;
}

}  // namespace

}  // namespace pretend

using namespace pretend;

API cuMemcpyHtoDAsync_v2(uint64_t to, const void* from, size_t bytes, void* stream) {
    return in_stream(__func__, stream, [&](Stream* in) { return copy_in(in, to, from, bytes); });
}
API cuMemcpyDtoHAsync_v2(void* to, uint64_t from, size_t bytes, void* stream) {
    return in_stream(__func__, stream, [&](Stream* in) { return copy_out(in, to, from, bytes); });
}
API cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t bytes, void* stream) {
    return in_stream(__func__, stream, [&](Stream* in) { return copy(in, at(to), at(from), bytes); });
}
API cuMemcpyAsync(uint64_t to, uint64_t from, size_t bytes, void* stream) {
    return in_stream(__func__, stream, [&](Stream* in) { return copy(in, at(to), at(from), bytes); });
}
API cuMemcpyPeerAsync(uint64_t to, void*, uint64_t from, void*, size_t bytes, void* stream) {
    return in_stream(__func__, stream, [&](Stream* in) { return copy(in, at(to), at(from), bytes); });
}
API cuMemcpyHtoD_v2(uint64_t to, const void* from, size_t bytes) { return copy_now(__func__, at(to), from, bytes); }
API cuMemcpyDtoH_v2(void* to, uint64_t from, size_t bytes) { return copy_now(__func__, to, at(from), bytes); }
API cuMemcpyDtoD_v2(uint64_t to, uint64_t from, size_t bytes) { return copy_now(__func__, at(to), at(from), bytes); }

API cuMemsetD8Async(uint64_t to, unsigned char value, size_t count, void* stream) {
    return fill<unsigned char>(stream, to, value, count, __func__);
}
API cuMemsetD16Async(uint64_t to, unsigned short value, size_t count, void* stream) {
    return fill<unsigned short>(stream, to, value, count, __func__);
}
API cuMemsetD32Async(uint64_t to, unsigned value, size_t count, void* stream) {
    return fill<unsigned>(stream, to, value, count, __func__);
}
