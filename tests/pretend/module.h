// What a compiled kernel and the pretend driver know of each other. Has no code, and includes nothing, as every kernel
// that is compiled includes it.
#pragma once

struct Dim { unsigned x, y, z; };

// Does for all lanes of a warp what they meet for. `lanes` has what each lane brought, null for those outside of the mask.
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
    // What `__launch_bounds__` could not say on the host is taken as the most that any device allows.
    unsigned threads_max;
};
