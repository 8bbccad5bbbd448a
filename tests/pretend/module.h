// The interface between a compiled kernel and the pretend driver. Has no code, and includes nothing, as every kernel
// that is compiled includes it.
#pragma once

struct Dim { unsigned x, y, z; };

// Does the work of a meeting for all lanes of a warp. `lanes` has what each lane brought, null for those outside of the
// mask.
typedef void (*PretendMeeting)(void* const* lanes);

// Where the running thread is, and how it waits. A module has one; the driver fills it in before each kernel.
struct PretendThreads {
    Dim thread, block, threads, blocks;
    // Waits until all threads of the block wait here.
    void (*block_barrier)();
    // Waits until all lanes of the mask bring something to the same meeting; the last of them does what is to be done.
    void (*meet)(unsigned mask, PretendMeeting meeting, void* brought);
    // Ends the kernel with an error.
    void (*fail)(const char* why);
};

// A kernel of a module. Its symbol is the lowered name.
struct PretendKernel {
    // The name expression.
    const char* name;
    // One thread's work; the arguments as `cuLaunchKernel` takes them.
    void (*run)(void** arguments);
    // How long each argument is, so that a launch can copy them.
    const unsigned* sizes;
    unsigned count;
    // The most threads that any device allows in a block, as `__launch_bounds__` has no effect on the host.
    unsigned threads_max;
};
