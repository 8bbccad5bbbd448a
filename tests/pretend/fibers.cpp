// Fibers on x86-64 by a few instructions; elsewhere by ucontext, which asks the system for the signal mask and is slower.
#include "fibers.h"

#include <sys/mman.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>

namespace pretend {

// Deep enough for what a sanitizer adds to a frame.
static const size_t STACK_BYTES = 256 << 10, PAGE = 4096;

// Fibers take turns at the same point of their functions. Without a shift, their frames would all lie at the same offset of a
// page, and so in the same few lines of the processor's cache.
static size_t shift() {
    static size_t made = 0;
    return made++ % 61 * 64;
}

Stack new_stack() {
    void* at = mmap(nullptr, STACK_BYTES + PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED || mprotect(at, PAGE, PROT_NONE) != 0) {
        perror("pretend driver: no stack for a thread of a block");
        abort();
    }
    return {static_cast<char*>(at) + PAGE, STACK_BYTES - shift()};
}

static void leave(Fiber& from, Fiber& to) {
    if (__sanitizer_start_switch_fiber) __sanitizer_start_switch_fiber(&from.fake_stack, to.stack.bottom, to.stack.size);
}

// Also learns the bounds of the stack that it came from, as those of a thread's own stack are not known otherwise.
static Fiber* came_from;
void arrived(Fiber& me) {
    if (!__sanitizer_finish_switch_fiber) return;
    const void* bottom = nullptr;
    size_t size = 0;
    __sanitizer_finish_switch_fiber(me.fake_stack, &bottom, &size);
    if (came_from && !came_from->stack.bottom)
        came_from->stack = {static_cast<char*>(const_cast<void*>(bottom)), size};
}

#if defined(__x86_64__)

// Saves the registers that a call must keep, beside its return address, on the old stack; restores those of the new
// one.
extern "C" void pretend_change(void** save, void* top);
asm(R"(
.text
.hidden pretend_change
.globl pretend_change
.type pretend_change,@function
pretend_change:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
.size pretend_change,.-pretend_change
)");

void prepare(Fiber& fiber, void (*work)()) {
    if (__asan_unpoison_memory_region) __asan_unpoison_memory_region(fiber.stack.bottom, fiber.stack.size);
    fiber.fake_stack = nullptr;
    // As after a call: the return address, of which there is none, lies 8 below a multiple of 16.
    auto* top = reinterpret_cast<uint64_t*>(fiber.stack.bottom + fiber.stack.size) - 1;
    *top = 0;
    *--top = reinterpret_cast<uint64_t>(work);
    for (int i = 0; i < 6; i++) *--top = 0;
    fiber.top = top;
}

void change(Fiber& from, Fiber& to) {
    leave(from, to);
    came_from = &from;
    pretend_change(&from.top, to.top);
    arrived(from);
}

#else

void prepare(Fiber& fiber, void (*work)()) {
    if (__asan_unpoison_memory_region) __asan_unpoison_memory_region(fiber.stack.bottom, fiber.stack.size);
    fiber.fake_stack = nullptr;
    getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = fiber.stack.bottom;
    fiber.context.uc_stack.ss_size = fiber.stack.size;
    fiber.context.uc_link = nullptr;
    makecontext(&fiber.context, work, 0);
}

void change(Fiber& from, Fiber& to) {
    leave(from, to);
    came_from = &from;
    swapcontext(&from.context, &to.context);
    arrived(from);
}

#endif

}  // namespace pretend
