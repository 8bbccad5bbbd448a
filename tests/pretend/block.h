// Runs a kernel on the host: block after block, and the threads of a block in any order that its barriers allow.
#pragma once
#include <string>

#include "module.h"
#include "random.h"

namespace pretend {

// The shape of a launch.
struct Grid {
    Dim blocks, threads;
};

// Runs a whole grid, one at a time. Returns an empty text, or what went wrong. `threads` are those of the kernel's
// module.
std::string run_grid(const PretendKernel& kernel, PretendThreads& threads, const Grid& grid, void** arguments,
                     Random& random);

}  // namespace pretend
