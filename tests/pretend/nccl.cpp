// The pretend `libnccl.so.2`: sends, receives and gathers between ranks that are threads or processes, as work of streams of the
// pretend driver. The ranks of a communicator share a file without a name, which its id leads to. As with non-blocking
// communicators, a group is in its stream only once a poll has said so, and two ranks meet when they first exchange something.
// Transfers that do not match never arrive, and polls say so, as they do where the process of a rank has ended. In a graph, a
// group matches anew in each launch. Never sums.
#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <climits>
#include <cstdint>
#include <functional>
#include <memory>

#include "symbols.h"

#define API extern "C" __attribute__((visibility("default"))) int
extern "C" int pretend_enqueue_when(void* stream, void* (*make)(void*), int (*may_run)(void*), int (*run)(void*), void* data,
                                    void (*drop)(void*));
extern "C" int pretend_recording(void* stream, uintptr_t* of);

namespace {

enum Result { SUCCESS = 0, SYSTEM = 2, INTERNAL = 3, INVALID_ARGUMENT = 4, INVALID_USAGE = 5, REMOTE = 6, IN_PROGRESS = 7 };
const int RANKS_MAX = 16;
const uint64_t MAGIC = 0x6c63636e646e6574;
const off_t ROOM = off_t(1) << 32;

struct Id {
    uint64_t magic;
    int32_t process, descriptor;
    char rest[112];
};
static_assert(sizeof(Id) == 128, "as large as ncclUniqueId");

struct Config {
    size_t size;
    unsigned magic, version;
    int blocking;
};

// From one rank to another: how many messages were asked for, are there, and were taken; the length and type of the next.
struct Channel {
    std::atomic<uint64_t> posted, there, taken, kind;
    std::atomic<uint32_t> sends, receives;
};

struct Common {
    std::atomic<uint32_t> joined, mismatch;
    std::atomic<int32_t> processes[RANKS_MAX];
    Channel channels[RANKS_MAX][RANKS_MAX];
};

struct Transfer {
    bool sends;
    int peer;
    char* start;
    uint64_t kind, bytes, nth = 0;
};

struct Communicator;
using Held = std::shared_ptr<Communicator>;

// The transfers that one rank makes at once, in a stream.
struct Group {
    Held of;
    void* stream;
    // The recording that the stream was in when this was asked for; 0: none.
    uintptr_t recording;
    std::vector<Transfer> transfers;
};

struct Communicator {
    int file = -1, ranks = 0, rank = 0, polls = 0;
    Common* common = nullptr;
    std::atomic<bool> aborted{false};
    int failed = SUCCESS;
    uint64_t sent[RANKS_MAX] = {}, received[RANKS_MAX] = {};
    // The same for graphs, counted when they were recorded.
    uint64_t sent_in_graphs[RANKS_MAX] = {}, received_in_graphs[RANKS_MAX] = {};
    // Kernels that have not ended, and those in graphs.
    std::atomic<int> kernels{0};
    // Groups that no poll has put into their stream yet.
    std::vector<Group> pending;
    // The processes of all ranks, once all have joined.
    std::vector<pollfd> others;

    ~Communicator() {
        for (auto& other : others) close(other.fd);
        if (common) munmap(common, sizeof(Common));
        if (file >= 0) close(file);
    }
    Channel& from(int peer) { return common->channels[peer][rank]; }
    Channel& to(int peer) { return common->channels[rank][peer]; }
    // Whether the process of a rank that is still in the communicator has ended.
    bool has_lost() {
        for (int peer = int(others.size()); peer < ranks; peer++)
            others.push_back({int(syscall(SYS_pidfd_open, common->processes[peer].load(), 0)), POLLIN, 0});
        poll(others.data(), others.size(), 0);
        for (int peer = 0; peer < ranks; peer++)
            if (common->processes[peer] && (others[peer].fd < 0 || others[peer].revents)) return true;
        return false;
    }
    off_t room(int from, int to) { return ROOM * (1 + from * RANKS_MAX + to); }
};

thread_local int depth = 0;
thread_local std::vector<Group> open_groups;

// Handles are pointers to shared pointers to communicators.
Held& of(void* handle) { return *static_cast<Held*>(handle); }

bool all(Group& group, bool sends, const std::function<bool(Communicator&, Transfer&)>& is) {
    bool every = true;
    for (auto& transfer : group.transfers)
        if (transfer.sends == sends && !is(*group.of, transfer)) every = false;
    return every;
}

// The part of a group that a device does at a time: in a queue or, in a graph, the model for that of each launch.
struct Kernel {
    Group round;
    bool has_posted = false, has_sent = false;
    int status = SUCCESS;

    explicit Kernel(const Group& of) : round(of) { round.of->kernels++; }
    ~Kernel() { round.of->kernels--; }
};

// Each launch matches those of other ranks anew, in the order of launches.
void* make(void* data) {
    auto* kernel = new Kernel(static_cast<Kernel*>(data)->round);
    for (auto& transfer : kernel->round.transfers)
        transfer.nth = ++(transfer.sends ? kernel->round.of->sent : kernel->round.of->received)[transfer.peer];
    return kernel;
}

// First a rank says what it waits for.
bool post(Group& group) {
    return all(group, false, [](Communicator& own, Transfer& transfer) {
        own.from(transfer.peer).kind = transfer.kind;
        return own.from(transfer.peer).posted = transfer.nth, true;
    });
}

// Several messages to one peer go one after another, each once the peer waits for it and has taken the one before.
bool can_send(Group& group) {
    return all(group, true, [](Communicator& own, Transfer& transfer) {
        Channel& to = own.to(transfer.peer);
        if (to.posted < transfer.nth || to.taken + 1 != transfer.nth) return false;
        if (to.kind != transfer.kind) own.common->mismatch = 1;
        return own.common->mismatch == 0;
    });
}

int send(Group& group) {
    bool done = all(group, true, [](Communicator& own, Transfer& transfer) {
        for (uint64_t at = 0; at < transfer.bytes;) {
            ssize_t some = pwrite(own.file, transfer.start + at, transfer.bytes - at, own.room(own.rank, transfer.peer) + at);
            if (some <= 0) return false;
            at += some;
        }
        return own.to(transfer.peer).there = transfer.nth, true;
    });
    return done ? SUCCESS : 700;
}

bool has_come(Group& group) {
    return all(group, false, [](Communicator& own, Transfer& transfer) {
        return own.from(transfer.peer).there >= transfer.nth;
    });
}

int receive(Group& group) {
    bool done = all(group, false, [](Communicator& own, Transfer& transfer) {
        for (uint64_t at = 0; at < transfer.bytes;) {
            ssize_t some = pread(own.file, transfer.start + at, transfer.bytes - at, own.room(transfer.peer, own.rank) + at);
            if (some <= 0) return false;
            at += some;
        }
        return own.from(transfer.peer).taken = transfer.nth, true;
    });
    return done ? SUCCESS : 700;
}

// Like a kernel, it goes on by itself until it has received everything.
int may_run(void* data) {
    auto& kernel = *static_cast<Kernel*>(data);
    Group& group = kernel.round;
    if (group.of->aborted) return true;
    if (!kernel.has_posted) kernel.has_posted = post(group);
    if (!kernel.has_sent && can_send(group)) kernel.status = send(group), kernel.has_sent = true;
    return kernel.status != SUCCESS || (kernel.has_sent && has_come(group));
}

int run(void* data) {
    auto& kernel = *static_cast<Kernel*>(data);
    if (kernel.round.of->aborted) return SUCCESS;
    return kernel.status != SUCCESS ? kernel.status : receive(kernel.round);
}

uintptr_t recording_of(void* stream) {
    uintptr_t recording = 0;
    return pretend_recording(stream, &recording) ? 0 : recording;
}

// Puts a group into its stream, in rounds of the next transfer of each pair of ranks in each direction.
int launch(Group& group) {
    // A group that was asked for in a capture can only be captured, and in the same one.
    if (recording_of(group.stream) != group.recording) return INVALID_USAGE;
    // The same must be captured on both sides, which then launch graphs of the same capture.
    for (auto& transfer : group.transfers)
        if (group.recording)
            transfer.kind |= ++(transfer.sends ? group.of->sent_in_graphs : group.of->received_in_graphs)[transfer.peer] << 40;
    std::vector<Transfer> left = group.transfers;
    while (!left.empty()) {
        Group round = {group.of, group.stream, group.recording, {}};
        std::vector<Transfer> later;
        for (auto& transfer : left) {
            bool first = true;
            for (auto& other : round.transfers) first &= other.sends != transfer.sends || other.peer != transfer.peer;
            (first ? round.transfers : later).push_back(transfer);
        }
        auto drop = [](void* data) { delete static_cast<Kernel*>(data); };
        if (pretend_enqueue_when(group.stream, make, may_run, run, new Kernel(round), drop)) return SYSTEM;
        left = later;
    }
    return SUCCESS;
}

// Communicators that this thread has left, and that still exist.
thread_local std::vector<Held> leaving;

// They go once their work has ended and no graph has any. If that never happens, NCCL would wait for ever; this aborts.
int leave() {
    for (auto& own : leaving)
        for (int slept = 0; own->kernels > 0; slept++) {
            if (slept == 20000) {
                fprintf(stderr, "pretend NCCL: a communicator never goes, as a graph or other work of it does not\n");
                abort();
            }
            usleep(1000);
        }
    return leaving.clear(), SUCCESS;
}

// Whether both sides of each transfer in a group have met once.
bool is_connected(Group& group) {
    bool met = true;
    for (auto& transfer : group.transfers) {
        if (transfer.sends) met &= group.of->to(transfer.peer).receives > 0;
        else met &= group.of->from(transfer.peer).sends > 0;
    }
    return met;
}

int end_group() {
    for (auto& group : open_groups) {
        for (auto& transfer : group.transfers) {
            if (transfer.sends) group.of->to(transfer.peer).sends = 1;
            else group.of->from(transfer.peer).receives = 1;
        }
        if (!group.of->pending.empty()) return open_groups.clear(), INVALID_USAGE;
        group.of->polls = 0;
        group.of->pending.push_back(group);
    }
    open_groups.clear();
    return IN_PROGRESS;
}

int transfer(bool sends, void* start, size_t count, int type, int peer, void* handle, void* stream) {
    Held& own = of(handle);
    static const int BYTES[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};
    if (type < 0 || type > 9 || peer < 0 || peer >= own->ranks || peer == own->rank || !start) return INVALID_ARGUMENT;
    if (own->failed) return own->failed;
    if (own->aborted) return INVALID_USAGE;
    Transfer made = {sends, peer, static_cast<char*>(start), uint64_t(count) << 8 | uint64_t(type), count * BYTES[type]};
    for (auto& group : open_groups)
        if (group.of == own) {
            if (group.stream != stream) return INVALID_USAGE;
            return group.transfers.push_back(made), SUCCESS;
        }
    open_groups.push_back({own, stream, recording_of(stream), {made}});
    return depth > 0 ? SUCCESS : end_group();
}

}  // namespace

API ncclGetVersion(int* version) {
    std::string old = pretend::word("nccl");
    return *version = old.empty() ? 22809 : atoi(old.c_str()), SUCCESS;
}

API ncclGetUniqueId(Id* id) {
    if (pretend::fails(__func__)) return SYSTEM;
    // It stays open until this process ends, by way of which others find it.
    int file = memfd_create("pretend-nccl", MFD_CLOEXEC);
    if (file < 0 || ftruncate(file, ROOM * (1 + RANKS_MAX * RANKS_MAX)) != 0) return SYSTEM;
    *id = {MAGIC, getpid(), file, {}};
    return SUCCESS;
}

API ncclCommInitRankConfig(void** handle, int ranks, Id id, int rank, Config* config) {
    if (pretend::fails(__func__)) return SYSTEM;
    if (id.magic != MAGIC || ranks < 1 || ranks > RANKS_MAX || rank < 0 || rank >= ranks) return INVALID_ARGUMENT;
    if (config->magic != 0xcafebeef || config->size < sizeof(Config) || config->blocking != 0) return INVALID_ARGUMENT;
    auto own = std::make_shared<Communicator>();
    std::string path = "/proc/" + std::to_string(id.process) + "/fd/" + std::to_string(id.descriptor);
    own->file = open(path.c_str(), O_RDWR | O_CLOEXEC);
    if (own->file < 0) return SYSTEM;
    void* mapped = mmap(nullptr, sizeof(Common), PROT_READ | PROT_WRITE, MAP_SHARED, own->file, 0);
    if (mapped == MAP_FAILED) return SYSTEM;
    own->common = static_cast<Common*>(mapped);
    own->ranks = ranks, own->rank = rank;
    own->common->processes[rank] = getpid();
    own->common->joined++;
    *handle = new Held(own);
    return IN_PROGRESS;
}

API ncclCommGetAsyncError(void* handle, int* state) {
    Held own = of(handle);
    if (own->common->mismatch) own->failed = INVALID_USAGE;
    *state = own->failed;
    if (own->failed) return SUCCESS;
    if (own->common->joined < uint32_t(own->ranks)) return *state = IN_PROGRESS, SUCCESS;
    if (own->has_lost()) return *state = own->failed = REMOTE, SUCCESS;
    // An error while nothing is asked for.
    if (own->pending.empty()) return *state = own->failed = pretend::fails("look") ? SYSTEM : SUCCESS, SUCCESS;
    if (own->polls++ == 0 || !is_connected(own->pending[0])) return *state = IN_PROGRESS, SUCCESS;
    Group group = own->pending[0];
    own->pending.clear();
    // Counted by groups, as nobody knows how many polls there are.
    if (pretend::fails(__func__)) return *state = own->failed = SYSTEM, SUCCESS;
    return *state = own->failed = launch(group), SUCCESS;
}

API ncclGroupStart() { return depth++, SUCCESS; }
API ncclGroupEnd() {
    if (--depth > 0) return SUCCESS;
    if (open_groups.empty()) return leave();
    if (pretend::fails(__func__)) return open_groups.clear(), INTERNAL;
    return end_group();
}

API ncclSend(void* start, size_t count, int type, int peer, void* handle, void* stream) {
    return pretend::fails(__func__) ? INTERNAL : transfer(true, start, count, type, peer, handle, stream);
}
API ncclRecv(void* start, size_t count, int type, int peer, void* handle, void* stream) {
    return pretend::fails(__func__) ? INTERNAL : transfer(false, start, count, type, peer, handle, stream);
}

// Each rank sends its part to all ranks, itself among them.
API ncclAllGather(const void* start, void* all, size_t count, int type, void* handle, void* stream) {
    if (pretend::fails(__func__)) return INTERNAL;
    Held& own = of(handle);
    if (type != 1 || !start || !all) return INVALID_ARGUMENT;
    if (own->failed) return own->failed;
    if (own->aborted) return INVALID_USAGE;
    if (open_groups.empty() || open_groups.back().of != own) open_groups.push_back({own, stream, recording_of(stream), {}});
    Group& group = open_groups.back();
    if (group.stream != stream) return INVALID_USAGE;
    for (int peer = 0; peer < own->ranks; peer++) {
        char* to = static_cast<char*>(all) + peer * count;
        char* from = static_cast<char*>(const_cast<void*>(start));
        group.transfers.push_back({true, peer, from, uint64_t(count) << 8 | uint64_t(type), count});
        group.transfers.push_back({false, peer, to, uint64_t(count) << 8 | uint64_t(type), count});
    }
    return depth > 0 ? SUCCESS : end_group();
}

// Once its handle is gone, nobody asks for anything more.
static int end(void* handle) {
    leaving.push_back(of(handle));
    delete static_cast<Held*>(handle);
    return depth > 0 ? SUCCESS : leave();
}

// Work in streams ends without its bytes.
API ncclCommAbort(void* handle) {
    of(handle)->aborted = true;
    of(handle)->pending.clear();
    return end(handle);
}
API ncclCommDestroy(void* handle) {
    of(handle)->common->processes[of(handle)->rank] = 0;
    return end(handle);
}

extern "C" __attribute__((visibility("default"))) const char* ncclGetLastError(void*) { return ""; }
extern "C" __attribute__((visibility("default"))) const char* ncclGetErrorString(int result) {
    switch (result) {
        case SUCCESS: return "no error";
        case SYSTEM: return "unhandled system error (run with NCCL_DEBUG=INFO for details)";
        case INTERNAL: return "internal error - please report this issue to the NCCL developers";
        case INVALID_ARGUMENT: return "invalid argument (run with NCCL_DEBUG=WARN for details)";
        case INVALID_USAGE: return "invalid usage (run with NCCL_DEBUG=WARN for details)";
        case IN_PROGRESS: return "NCCL operation in progress";
        default: return "unknown result code";
    }
}
