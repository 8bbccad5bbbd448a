// Runs a kernel on the host: block after block, and the threads of a block in any order that its barriers allow.
#pragma once
#include <string>

#include "module.h"
#include "random.h"

namespace pretend {

// What a launch asks for.
struct Grid {
    Dim blocks, threads;
};

// Runs all of it; an empty text, or what went wrong. `threads` are those of the kernel's module. One at a time.
std::string run_grid(const PretendKernel& kernel, PretendThreads& threads, const Grid& grid, void** arguments,
                     Random& random);

}  // namespace pretend
