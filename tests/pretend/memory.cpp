// Memory of the device, as files in memory that other processes can map, and memory of the host that the device reaches.
// Fresh memory holds 0xff: NaN in every width, and an index beyond all tables. Never gives more than PRETEND_MEMORY.
#include "memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <map>

#include "driver.h"

namespace pretend {

namespace {

const uint64_t PAGE = 4096;

// An allocation of `cuMemCreate`: a file, which mappings hold open too.
struct Physical {
    int file;
    size_t bytes;
    bool shareable, imported;
    unsigned holders = 1;
    bool released = false;
};

struct Mapping {
    size_t bytes;
    Physical* physical;
    // How the device may access it.
    int access = PROT_NONE;
};

struct Memory {
    std::map<uint64_t, size_t> reserved, pinned;
    std::map<uint64_t, Mapping> mapped;
    uint64_t used = 0;
    // How many are doing work right now, and whether the memory is open, as it may stay after work.
    unsigned opened = 0;
    bool is_open = false;
    uint64_t times = 0;
};

Memory& memory() {
    static auto* only = new Memory;
    return *only;
}

uint64_t capacity() {
    static uint64_t bytes = number("PRETEND_MEMORY", 16ull << 30);
    return bytes;
}
uint64_t granularity() {
    static uint64_t bytes = number("PRETEND_GRANULARITY", 2 << 20);
    return bytes;
}

void* at(uint64_t address) { return reinterpret_cast<void*>(address); }

void protect_all(bool open) {
    if (memory().is_open == open) return;
    memory().is_open = open;
    for (auto& [start, mapping] : memory().mapped)
        if (mapping.access != PROT_NONE) mprotect(at(start), mapping.bytes, open ? mapping.access : PROT_NONE);
}

// Reserves `bytes` that nobody may touch yet, with a page behind them that nobody ever may.
uint64_t reserve(size_t bytes, uint64_t alignment) {
    uint64_t whole = bytes + alignment + PAGE;
    void* got = mmap(nullptr, whole, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (got == MAP_FAILED) return 0;
    uint64_t low = reinterpret_cast<uint64_t>(got), start = (low + alignment - 1) / alignment * alignment;
    if (start > low) munmap(got, start - low);
    uint64_t end = start + bytes + PAGE;
    if (low + whole > end) munmap(at(end), low + whole - end);
    return start;
}

bool in_some(const std::map<uint64_t, size_t>& ranges, uint64_t start, size_t bytes) {
    auto after = ranges.upper_bound(start);
    if (after == ranges.begin()) return false;
    auto range = std::prev(after);
    return start + bytes <= range->first + range->second;
}

// A file of fresh memory, or -1.
int fresh_file(size_t bytes) {
    int file = memfd_create("pretend device memory", MFD_CLOEXEC);
    if (file < 0 || ftruncate(file, bytes) != 0) return -1;
    if (number("PRETEND_POISON", 1) == 0) return file;
    void* all = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (all == MAP_FAILED) return -1;
    memset(all, 0xff, bytes);
    munmap(all, bytes);
    return file;
}

int create(Physical** handle, size_t bytes, bool shareable) {
    if (fails("memory") || memory().used + bytes > capacity()) return OUT_OF_MEMORY;
    int file = fresh_file(bytes);
    if (file < 0) return OUT_OF_MEMORY;
    memory().used += bytes;
    *handle = new Physical{file, bytes, shareable, false};
    driver().handles.insert(*handle);
    return SUCCESS;
}

void drop(Physical* physical) {
    if (--physical->holders > 0) return;
    if (!physical->imported) memory().used -= physical->bytes;
    close(physical->file);
    delete physical;
}

int map(uint64_t start, size_t bytes, Physical* physical) {
    auto after = memory().mapped.upper_bound(start);
    if (after != memory().mapped.end() && after->first < start + bytes) return ALREADY_MAPPED;
    if (after != memory().mapped.begin() && std::prev(after)->first + std::prev(after)->second.bytes > start)
        return ALREADY_MAPPED;
    if (mmap(at(start), bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, physical->file, 0) == MAP_FAILED) return OUT_OF_MEMORY;
    physical->holders++;
    memory().mapped[start] = {bytes, physical};
    return SUCCESS;
}

int unmap(uint64_t start, size_t bytes) {
    auto found = memory().mapped.find(start);
    if (found == memory().mapped.end() || found->second.bytes != bytes) return INVALID_VALUE;
    mmap(at(start), bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    drop(found->second.physical);
    memory().mapped.erase(found);
    return SUCCESS;
}

int set_access(uint64_t start, size_t bytes, int access) {
    for (uint64_t next = start; next < start + bytes;) {
        auto found = memory().mapped.find(next);
        if (found == memory().mapped.end()) return INVALID_VALUE;
        found->second.access = access;
        if (memory().is_open) mprotect(at(next), found->second.bytes, access);
        next += found->second.bytes;
    }
    return SUCCESS;
}

int release(Physical* physical) {
    if (!is_handle(physical)) return INVALID_VALUE;
    driver().handles.erase(physical);
    drop(physical);
    return SUCCESS;
}

}  // namespace

Opened::Opened() {
    if (memory().opened++ == 0) protect_all(true);
}
Opened::~Opened() {
    if (--memory().opened > 0) return;
    // Closing takes time for each page. A host that wrongly reads does so early and often, so later work closes it only
    // now and then.
    uint64_t times = memory().times++;
    if (times < 32 || times % 256 == 0) protect_all(false);
}

void take(int64_t bytes) { memory().used += bytes; }

int ranges_held() {
    return int(memory().reserved.size() + memory().pinned.size() + memory().mapped.size());
}

bool is_pinned(const void* start, size_t bytes) {
    return in_some(memory().pinned, reinterpret_cast<uint64_t>(start), bytes);
}

}  // namespace pretend

using namespace pretend;

// As the API declares them, as far as they are read.
struct Location { int type, id; };
struct Properties {
    int type, handles;
    Location location;
    void* windows;
    unsigned char flags[8];
};
struct Access {
    Location location;
    int flags;
};

static bool is_ours(const Properties* of) { return of && of->type == 1 && of->location.type == 1; }

API cuMemGetAllocationGranularity(size_t* bytes, const Properties* of, int) {
    return call(__func__, [&]() -> int {
        if (!is_ours(of)) return INVALID_VALUE;
        *bytes = granularity();
        return SUCCESS;
    });
}

API cuMemCreate(uint64_t* handle, size_t bytes, const Properties* of, unsigned long long flags) {
    return call_outside_capture(__func__, [&]() -> int {
        if (!is_ours(of) || flags || bytes == 0 || bytes % granularity()) return INVALID_VALUE;
        Physical* made = nullptr;
        int status = create(&made, bytes, of->handles & 1);
        *handle = reinterpret_cast<uint64_t>(made);
        return status;
    });
}

API cuMemRelease(uint64_t handle) {
    return call(__func__, [&] { return release(static_cast<Physical*>(at(handle))); });
}

API cuMemAddressReserve(uint64_t* start, size_t bytes, size_t alignment, uint64_t, unsigned long long flags) {
    return call(__func__, [&]() -> int {
        if (flags || bytes == 0 || bytes % granularity() || (alignment & (alignment - 1))) return INVALID_VALUE;
        *start = reserve(bytes, alignment > granularity() ? alignment : granularity());
        if (*start) memory().reserved[*start] = bytes;
        return *start ? SUCCESS : OUT_OF_MEMORY;
    });
}

API cuMemAddressFree(uint64_t start, size_t bytes) {
    return call(__func__, [&]() -> int {
        auto found = memory().reserved.find(start);
        if (found == memory().reserved.end() || found->second != bytes) return INVALID_VALUE;
        auto mapped = memory().mapped.lower_bound(start);
        if (mapped != memory().mapped.end() && mapped->first < start + bytes) return INVALID_VALUE;
        munmap(at(start), bytes + PAGE);
        memory().reserved.erase(found);
        return SUCCESS;
    });
}

API cuMemMap(uint64_t start, size_t bytes, size_t offset, uint64_t handle, unsigned long long flags) {
    return call(__func__, [&]() -> int {
        auto* physical = static_cast<Physical*>(at(handle));
        if (!is_handle(physical) || offset || flags || physical->bytes != bytes) return INVALID_VALUE;
        if (!in_some(memory().reserved, start, bytes) || start % granularity()) return INVALID_VALUE;
        return map(start, bytes, physical);
    });
}

API cuMemUnmap(uint64_t start, size_t bytes) {
    return call(__func__, [&] { return unmap(start, bytes); });
}

API cuMemSetAccess(uint64_t start, size_t bytes, const Access* access, size_t count) {
    return call(__func__, [&]() -> int {
        if (!access || count == 0 || access->location.type != 1) return INVALID_VALUE;
        return set_access(start, bytes, access->flags == 3 ? PROT_READ | PROT_WRITE : access->flags == 1 ? PROT_READ : 0);
    });
}

API cuMemExportToShareableHandle(void* to, uint64_t handle, int type, unsigned long long flags) {
    return call(__func__, [&]() -> int {
        auto* physical = static_cast<Physical*>(at(handle));
        if (!is_handle(physical) || type != 1 || flags || !physical->shareable) return INVALID_VALUE;
        int file = fcntl(physical->file, F_DUPFD_CLOEXEC, 0);
        *static_cast<int*>(to) = file;
        return file < 0 ? UNKNOWN : SUCCESS;
    });
}

// The file is passed as a pointer, as Windows has it.
API cuMemImportFromShareableHandle(uint64_t* handle, void* from, int type) {
    return call(__func__, [&]() -> int {
        int file = fcntl(int(reinterpret_cast<intptr_t>(from)), F_DUPFD_CLOEXEC, 0);
        struct stat about;
        if (type != 1 || file < 0 || fstat(file, &about) != 0) return INVALID_VALUE;
        auto* made = new Physical{file, size_t(about.st_size), true, true};
        driver().handles.insert(made);
        *handle = reinterpret_cast<uint64_t>(made);
        return SUCCESS;
    });
}

// ---- Memory that callers need not map.

API cuMemAlloc_v2(uint64_t* start, size_t bytes) {
    return call_outside_capture(__func__, [&]() -> int {
        if (bytes == 0) return INVALID_VALUE;
        size_t whole = (bytes + PAGE - 1) / PAGE * PAGE;
        Physical* physical = nullptr;
        if (int status = create(&physical, whole, false)) return status;
        *start = reserve(whole, PAGE);
        if (!*start || map(*start, whole, physical) != SUCCESS) return OUT_OF_MEMORY;
        release(physical);
        return set_access(*start, whole, PROT_READ | PROT_WRITE);
    });
}

API cuMemFree_v2(uint64_t start) {
    return call_outside_capture(__func__, [&]() -> int {
        auto found = memory().mapped.find(start);
        if (start == 0) return SUCCESS;
        if (found == memory().mapped.end() || memory().reserved.count(start)) return INVALID_VALUE;
        size_t whole = found->second.bytes;
        unmap(start, whole);
        munmap(at(start), whole + PAGE);
        return SUCCESS;
    });
}

API cuMemGetInfo_v2(size_t* free_bytes, size_t* total) {
    return call(__func__, [&]() -> int {
        *total = capacity();
        *free_bytes = capacity() - memory().used;
        return SUCCESS;
    });
}

API cuDeviceTotalMem_v2(size_t* total, int) {
    return call_anywhere(__func__, [&]() -> int { return *total = capacity(), SUCCESS; });
}

// ---- Memory of the host.

API cuMemHostAlloc(void** start, size_t bytes, unsigned) {
    return call_outside_capture(__func__, [&]() -> int {
        if (fails("host_memory")) return OUT_OF_MEMORY;
        *start = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (*start == MAP_FAILED) return OUT_OF_MEMORY;
        memset(*start, 0xff, bytes);
        memory().pinned[reinterpret_cast<uint64_t>(*start)] = bytes;
        return SUCCESS;
    });
}

API cuMemFreeHost(void* start) {
    return call_outside_capture(__func__, [&]() -> int {
        auto found = memory().pinned.find(reinterpret_cast<uint64_t>(start));
        if (found == memory().pinned.end()) return INVALID_VALUE;
        munmap(start, found->second);
        memory().pinned.erase(found);
        return SUCCESS;
    });
}

API cuMemHostRegister_v2(void* start, size_t bytes, unsigned) {
    return call_outside_capture(__func__, [&]() -> int {
        auto address = reinterpret_cast<uint64_t>(start);
        if (!start || bytes == 0) return INVALID_VALUE;
        if (in_some(memory().pinned, address, 1)) return HOST_MEMORY_ALREADY_REGISTERED;
        memory().pinned[address] = bytes;
        return SUCCESS;
    });
}

API cuMemHostUnregister(void* start) {
    return call_outside_capture(__func__, [&]() -> int {
        return memory().pinned.erase(reinterpret_cast<uint64_t>(start)) ? SUCCESS : HOST_MEMORY_NOT_REGISTERED;
    });
}

API cuMemHostGetDevicePointer_v2(uint64_t* device, void* host, unsigned) {
    return call(__func__, [&]() -> int {
        *device = reinterpret_cast<uint64_t>(host);
        return is_pinned(host, 1) ? SUCCESS : INVALID_VALUE;
    });
}
