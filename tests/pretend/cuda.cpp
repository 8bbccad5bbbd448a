// The pretend `libcuda.so.1`: what it says of itself and of its devices, and what tests ask of it. Streams, memory and
// modules are in files of their own. Never looks for a GPU.
#include <unistd.h>

#include <cstdio>

#include "driver.h"
#include "memory.h"
#include "queue.h"
#include "streams.h"
#include "symbols.h"

namespace pretend {

namespace {

const int DEVICES_MAX = 64;
int devices() {
    int count = int(number("PRETEND_DEVICES", 8));
    return word("device") == "none" ? 0 : count < DEVICES_MAX ? count : DEVICES_MAX;
}
bool exists(int device) { return device >= 0 && device < devices(); }

// A context is a pointer into here, so that each device has one.
char contexts[DEVICES_MAX];

// Those of a Hopper GPU, as far as anybody asks.
int attribute(int which) {
    switch (which) {
        case 1: return 1024;         // threads of a block
        case 2: case 3: return 1024; // of one dimension
        case 4: return 64;
        case 5: return 0x7fffffff;   // blocks of one dimension
        case 6: case 7: return 65535;
        case 8: return 48 << 10;     // shared memory of a block
        case 10: return 32;          // threads of a warp
        case 12: case 82: return 65536; // registers
        case 13: return 1980000;     // kHz
        case 16: return 132;         // multiprocessors
        case 19: case 31: case 41: return 1; // mapped host memory, concurrent kernels, unified addresses
        case 36: return 3201000;     // kHz of the memory
        case 37: return 6144;        // bits of its bus
        case 38: return 60 << 20;    // second-level cache
        case 39: return 2048;        // threads of a multiprocessor
        case 40: return 3;           // copy engines
        case 75: return int(number("PRETEND_CAPABILITY", 90)) / 10;
        case 76: return int(number("PRETEND_CAPABILITY", 90)) % 10;
        case 78: return 1;           // priorities
        case 81: return 228 << 10;   // shared memory of a multiprocessor
        case 91: case 92: case 93: case 94: case 95: return 1; // host pointers, stream memory operations, cooperative launches
        case 97: return 227 << 10;   // shared memory of a block that asks for it
        case 99: case 102: case 103: return 1; // host registration, virtual memory, file descriptors
        default: return 0;
    }
}

// `exit` takes a driver down. If another thread than the first calls it, the first may be at work in the driver, and then
// crashes in some runs.
__attribute__((destructor)) void end() {
    if (gettid() == getpid()) return;
    fprintf(stderr, "libcuda.so.1 is taken down by a thread beside the one that uses it\n");
    abort();
}

struct Named { int status; const char *name, *meaning; };
const Named NAMES[] = {
    {0, "CUDA_SUCCESS", "no error"},
    {1, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {2, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {3, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {100, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {101, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {200, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"},
    {201, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {208, "CUDA_ERROR_ALREADY_MAPPED", "resource already mapped"},
    {400, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {401, "CUDA_ERROR_ILLEGAL_STATE", "the operation cannot be performed in the present state"},
    {500, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {600, "CUDA_ERROR_NOT_READY", "device not ready"},
    {700, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
    {701, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", "too many resources requested for launch"},
    {712, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED", "part or all of the requested memory range is already mapped"},
    {713, "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED", "pointer does not correspond to a registered memory region"},
    {719, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
    {800, "CUDA_ERROR_NOT_PERMITTED", "operation not permitted"},
    {801, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
    {900, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "operation not permitted when stream is capturing"},
    {901, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED", "operation failed due to a previous error during capture"},
    {903, "CUDA_ERROR_STREAM_CAPTURE_UNMATCHED", "capture was not ended in the same stream as it began"},
    {904, "CUDA_ERROR_STREAM_CAPTURE_UNJOINED", "capturing stream has unjoined work"},
    {905, "CUDA_ERROR_STREAM_CAPTURE_ISOLATION", "dependency created on uncaptured work in another stream"},
    {907, "CUDA_ERROR_CAPTURED_EVENT", "operation not permitted on an event last recorded in a capturing stream"},
    {999, "CUDA_ERROR_UNKNOWN", "unknown error"},
};

int text(int status, const char** to, const char* Named::*part) {
    for (auto& named : NAMES)
        if (named.status == status) return *to = named.*part, SUCCESS;
    return *to = nullptr, INVALID_VALUE;
}

}  // namespace

}  // namespace pretend

using namespace pretend;

API cuInit(unsigned) {
    std::lock_guard<std::mutex> guard(driver().lock);
    if (devices() == 0) return NO_DEVICE;
    if (!driver().initialized) {
        seed(number("PRETEND_SEED", 0));
        work_in_background();
    }
    driver().initialized = true;
    return SUCCESS;
}

API cuDriverGetVersion(int* version) {
    std::string old = word("driver");
    *version = old.empty() ? 13000 : atoi(old.c_str());
    return SUCCESS;
}

API cuGetErrorName(int status, const char** to) { return text(status, to, &Named::name); }
API cuGetErrorString(int status, const char** to) { return text(status, to, &Named::meaning); }

API cuDeviceGetCount(int* count) {
    return call_anywhere(__func__, [&]() -> int { return *count = devices(), SUCCESS; });
}
API cuDeviceGet(int* device, int ordinal) {
    return call_anywhere(__func__, [&]() -> int {
        *device = ordinal;
        return exists(ordinal) ? SUCCESS : INVALID_DEVICE;
    });
}
API cuDeviceGetName(char* name, int length, int device) {
    return call_anywhere(__func__, [&]() -> int {
        if (!exists(device) || length <= 0) return INVALID_VALUE;
        snprintf(name, length, "Pretend H200");
        return SUCCESS;
    });
}
API cuDeviceGetUuid_v2(unsigned char* to, int device) {
    return call_anywhere(__func__, [&]() -> int {
        memset(to, 0, 16);
        to[15] = (unsigned char)(device);
        return exists(device) ? SUCCESS : INVALID_DEVICE;
    });
}
API cuDeviceGetAttribute(int* value, int which, int device) {
    return call_anywhere(__func__, [&]() -> int {
        *value = attribute(which);
        return exists(device) ? SUCCESS : INVALID_DEVICE;
    });
}
API cuDeviceCanAccessPeer(int* can, int device, int peer) {
    return call_anywhere(__func__, [&]() -> int {
        *can = device != peer;
        return exists(device) && exists(peer) ? SUCCESS : INVALID_DEVICE;
    });
}

API cuDevicePrimaryCtxRetain(void** context, int device) {
    return call_anywhere(__func__, [&]() -> int {
        if (!exists(device)) return INVALID_DEVICE;
        *context = &contexts[device];
        driver().contexts++;
        return SUCCESS;
    });
}
API cuDevicePrimaryCtxRelease_v2(int device) {
    return call_anywhere(__func__, [&]() -> int {
        if (!exists(device) || driver().contexts == 0) return INVALID_DEVICE;
        driver().contexts--;
        return SUCCESS;
    });
}
API cuCtxCreate_v4(void** context, void* parameters, unsigned flags, int device) {
    return call_anywhere(__func__, [&]() -> int {
        if (!exists(device)) return INVALID_DEVICE;
        if (parameters || flags) return INVALID_VALUE;
        *context = &contexts[device];
        driver().contexts++;
        return SUCCESS;
    });
}
API cuCtxDestroy_v2(void* context) {
    return call_anywhere(__func__, [&]() -> int {
        if (context < contexts || context >= std::end(contexts) || driver().contexts == 0) return INVALID_VALUE;
        driver().contexts--;
        return SUCCESS;
    });
}
API cuCtxSetCurrent(void* context) {
    return call_anywhere(__func__, [&]() -> int { return current_context = context, SUCCESS; });
}
API cuCtxGetCurrent(void** context) {
    return call_anywhere(__func__, [&]() -> int { return *context = current_context, SUCCESS; });
}
API cuCtxGetDevice(int* device) {
    return call(__func__, [&]() -> int {
        *device = int(static_cast<char*>(current_context) - contexts);
        return SUCCESS;
    });
}

// ---- What tests ask of this library, cublasLt and NCCL.

// From now on, work is done in another order.
API pretend_seed(uint64_t of) {
    std::lock_guard<std::mutex> guard(driver().lock);
    seed(of);
    return SUCCESS;
}

// Sets other failures, written as in PRETEND_FAIL and counted from now on. A device that has failed works again.
API pretend_fail(const char* text) {
    std::lock_guard<std::mutex> guard(driver().lock);
    read_environment();
    set_failures(text);
    driver().broken = SUCCESS;
    return SUCCESS;
}

// How often this thread has made a call, by its name.
API pretend_count(const char* name, uint64_t* of) {
    *of = 0;
    for (auto& [known, calls] : counts)
        if (!strcmp(known, name)) *of += calls;
    return SUCCESS;
}

// How many things were made and not given back: contexts, handles and memory.
API pretend_held() {
    std::lock_guard<std::mutex> guard(driver().lock);
    return driver().contexts + int(driver().handles.size()) + ranges_held();
}

// Puts a function into a stream. `drop` gets its data once the function is never called again.
API pretend_enqueue(void* handle, int (*run)(void*), void* data, void (*drop)(void*)) {
    std::shared_ptr<void> held(data, drop);
    return call(__func__, [&]() -> int {
        Stream* stream = stream_of(handle);
        return stream ? submit(stream, {[=] { return run(held.get()); }, nullptr}) : INVALID_HANDLE;
    });
}

// The same for a function that is called once `may_run` allows it. `make` makes its data from what is given, whenever it is
// put into a queue: at once, or in each launch of the graph that it was recorded for.
API pretend_enqueue_when(void* handle, void* (*make)(void*), int (*may_run)(void*), int (*run)(void*), void* data, void (*drop)(void*)) {
    std::shared_ptr<void> given(data, drop);
    return call(__func__, [&]() -> int {
        auto anew = [=]() -> Work {
            std::shared_ptr<void> held(make(given.get()), drop);
            return {[=] { return run(held.get()); }, [=] { return may_run(held.get()) != 0; }};
        };
        Stream* stream = stream_of(handle);
        return stream ? submit(stream, {nullptr, nullptr, anew}) : INVALID_HANDLE;
    });
}

// The active recording of a stream; 0: none.
API pretend_recording(void* handle, uintptr_t* of) {
    return call(__func__, [&]() -> int {
        Stream* stream = stream_of(handle);
        *of = stream && stream->capture ? reinterpret_cast<uintptr_t>(stream->capture) : 0;
        return SUCCESS;
    });
}
