// The settings of a run for the pretend libraries: failures, seeds and sizes, from the environment or from a test. Each
// of the libraries counts its own calls. Never decides what a failure looks like.
//
// PRETEND_SEED=3           draws another order of work
// PRETEND_FAIL=memory:3    makes the third allocation fail. Several failures are separated by commas:
//     memory, host_memory, launch, compile, module, heuristic, product, or the name of any call of the driver and of most
//     of NCCL's: that call fails; `async`: an error that shows later; `look`: an error of a communicator that has
//     nothing to do
//     symbol:cuMemCreate   the library lacks this function
//     nccl:22703, driver:12000   the version of NCCL, and of CUDA that the driver supports
//     device:none          there is no device
//     way:1                another choice of matrix products
// PRETEND_RANK=1           makes failures happen only in the process of rank 1
// PRETEND_DEVICES, PRETEND_MEMORY, PRETEND_CAPABILITY, PRETEND_GRANULARITY
//                          number of devices, bytes of each, compute capability (90), unit in which memory is given
// PRETEND_POISON=0         fills fresh memory with zeros
// PRETEND_SANITIZE=1       compiles kernels for a sanitizer
// PRETEND_KEEP=FOLDER      keeps kernels there, as sources and compiled
// PRETEND_CXX              names a compiler other than g++
#pragma once
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>
#include <vector>

namespace pretend {

// `PRETEND_FAIL=memory:3,device:none`: a kind, and which one of its calls fails, or a word. With `PRETEND_RANK`, only in the
// process of that rank.
struct Failure {
    std::string kind, value;
    uint64_t calls = 0;
};

inline std::mutex& failures_lock() {
    static auto* lock = new std::mutex;
    return *lock;
}

inline std::vector<Failure>& failures() {
    static auto* all = new std::vector<Failure>;
    return *all;
}

inline void set_failures(const char* text) {
    std::lock_guard<std::mutex> guard(failures_lock());
    failures().clear();
    std::string rest = text ? text : "";
    while (!rest.empty()) {
        size_t end = rest.find(','), colon = rest.find(':');
        std::string one = rest.substr(0, end);
        if (colon == std::string::npos || colon >= one.size()) {
            fprintf(stderr, "PRETEND_FAIL: `%s` is not kind:value\n", one.c_str());
            abort();
        }
        failures().push_back({one.substr(0, colon), one.substr(colon + 1)});
        rest = end == std::string::npos ? "" : rest.substr(end + 1);
    }
}

inline void read_environment() {
    static std::once_flag once;
    std::call_once(once, [] {
        const char *only = getenv("PRETEND_RANK"), *rank = getenv("RANK");
        if (!only || (rank && strcmp(only, rank) == 0)) set_failures(getenv("PRETEND_FAIL"));
    });
}

// Whether this call of a kind is the one that is to fail.
inline bool fails(const char* kind) {
    read_environment();
    std::lock_guard<std::mutex> guard(failures_lock());
    bool now = false;
    for (auto& failure : failures())
        if (failure.kind == kind && ++failure.calls == strtoull(failure.value.c_str(), nullptr, 10)) now = true;
    return now;
}

// The word of a kind, or an empty one.
inline std::string word(const char* kind) {
    read_environment();
    std::lock_guard<std::mutex> guard(failures_lock());
    for (auto& failure : failures())
        if (failure.kind == kind) return failure.value;
    return "";
}

inline uint64_t number(const char* variable, uint64_t otherwise) {
    const char* text = getenv(variable);
    return text && *text ? strtoull(text, nullptr, 0) : otherwise;
}

}  // namespace pretend
