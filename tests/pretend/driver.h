// The code that all parts of the pretend driver share: its lock, its errors, and how a call begins. Every call of the
// API is made under one lock, and the work of all streams is done under it too, by whoever waits for some of it.
#pragma once
#include <cstring>
#include <map>
#include <mutex>
#include <unordered_set>

#include "random.h"
#include "settings.h"

#define API extern "C" __attribute__((visibility("default"))) int

namespace pretend {

// Values of `CUresult`.
enum Status {
    SUCCESS = 0,
    INVALID_VALUE = 1,
    OUT_OF_MEMORY = 2,
    NOT_INITIALIZED = 3,
    NO_DEVICE = 100,
    INVALID_DEVICE = 101,
    INVALID_IMAGE = 200,
    INVALID_CONTEXT = 201,
    NOT_SUPPORTED = 801,
    ALREADY_MAPPED = 208,
    INVALID_HANDLE = 400,
    ILLEGAL_STATE = 401,
    NOT_FOUND = 500,
    NOT_READY = 600,
    ILLEGAL_ADDRESS = 700,
    LAUNCH_OUT_OF_RESOURCES = 701,
    HOST_MEMORY_ALREADY_REGISTERED = 712,
    HOST_MEMORY_NOT_REGISTERED = 713,
    LAUNCH_FAILED = 719,
    NOT_PERMITTED = 800,
    STREAM_CAPTURE_UNSUPPORTED = 900,
    STREAM_CAPTURE_INVALIDATED = 901,
    STREAM_CAPTURE_UNMATCHED = 903,
    STREAM_CAPTURE_UNJOINED = 904,
    STREAM_CAPTURE_ISOLATION = 905,
    CAPTURED_EVENT = 907,
    UNKNOWN = 999,
};

struct Driver {
    std::mutex lock;
    bool initialized = false;
    // An error of asynchronous work: from then on every call returns it.
    int broken = SUCCESS;
    Random random;
    // Pointers that were given out as handles and are not destroyed.
    std::unordered_set<const void*> handles;
    // How many times contexts are held.
    int contexts = 0;
    // How many calls have been made: work goes on in the background while nobody makes one.
    uint64_t calls = 0;
};

// Never destroyed, as work may go on while the process ends.
inline Driver& driver() {
    static auto* only = new Driver;
    return *only;
}

// Whether this thread has a current context, and whether it runs a function of the host for a stream.
inline thread_local void* current_context = nullptr;
inline thread_local bool in_host_function = false;
// For each capture that this thread began in a mode that forbids calls which may synchronise: whether one was made.
inline thread_local std::vector<bool*> captures;

// Whether a call that may synchronise is refused. If so, the captures become invalid.
inline bool is_refused_by_capture() {
    for (bool* spoilt : captures) *spoilt = true;
    return !captures.empty();
}

template <class T> bool is_handle(T* pointer) { return driver().handles.count(pointer) != 0; }

// How often this thread has made each call.
inline thread_local std::map<const char*, uint64_t> counts;

inline void count(const char* name) {
    driver().calls++;
    counts[name]++;
}

// A call that needs neither a context nor a device that works.
template <class F> int call_anywhere(const char* name, F what) {
    std::lock_guard<std::mutex> guard(driver().lock);
    count(name);
    if (!driver().initialized) return NOT_INITIALIZED;
    if (in_host_function) return NOT_PERMITTED;
    if (fails(name)) return UNKNOWN;
    return what();
}

// An ordinary call.
template <class F> int call(const char* name, F what) {
    return call_anywhere(name, [&]() -> int {
        if (driver().broken) return driver().broken;
        return current_context ? what() : INVALID_CONTEXT;
    });
}

// A call that a capture of this thread forbids, as it may synchronise.
template <class F> int call_outside_capture(const char* name, F what) {
    return call(name, [&]() -> int { return is_refused_by_capture() ? STREAM_CAPTURE_UNSUPPORTED : what(); });
}

}  // namespace pretend
