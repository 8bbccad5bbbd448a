// Fibers: stacks that a thread runs on in turns, without asking the system. Know nothing of kernels.
#pragma once
#include <cstddef>

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

// Functions of AddressSanitizer, where it is loaded, as it must know which stack is in use.
extern "C" {
__attribute__((weak)) void __sanitizer_start_switch_fiber(void** fake_stack, const void* bottom, size_t size);
__attribute__((weak)) void __sanitizer_finish_switch_fiber(void* fake_stack, const void** bottom, size_t* size);
__attribute__((weak)) void __asan_unpoison_memory_region(const volatile void* start, size_t size);
}

namespace pretend {

struct Stack {
    char* bottom;
    size_t size;
};

// A place to continue at.
struct Fiber {
#if defined(__x86_64__)
    void* top = nullptr;
#else
    ucontext_t context;
#endif
    Stack stack{};
    void* fake_stack = nullptr;
};

// A stack with a page below it that nobody may touch.
Stack new_stack();
// Makes `fiber` begin `work`, which never returns, on its stack, whatever was there before.
void prepare(Fiber& fiber, void (*work)());
// Continues in `to`, until something continues in `from`.
void change(Fiber& from, Fiber& to);
// `work` calls this first, as it has just arrived from another fiber.
void arrived(Fiber& me);

}  // namespace pretend
