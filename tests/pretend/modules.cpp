// Modules: programs that the pretend NVRTC has compiled, loaded as libraries and launched. A launch copies its
// arguments, as the caller may reuse them at once. Never looks into a kernel.
#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

#include <elf.h>

#include <map>
#include <set>

#include "block.h"
#include "memory.h"
#include "streams.h"

namespace pretend {

namespace {

// The device memory that a module takes.
const int64_t MODULE_BYTES = 64 << 10;

struct Module {
    void* library;
    PretendThreads* threads;
    // The handles of its kernels.
    std::vector<const void*> functions;
};

struct Function {
    const PretendKernel* kernel;
    PretendThreads* threads;
    unsigned dynamic_bytes_max = 48 << 10;
};

// Name expressions of all kernels that were ever asked for, under the driver's lock. Never destroyed, as the process may end
// while they are used.
std::set<std::string>& kernels = *new std::set<std::string>;

// The length of a file that ends with its table of sections, as linkers write it.
size_t length(const void* image) {
    Elf64_Ehdr header;
    memcpy(&header, image, sizeof header);
    if (memcmp(header.e_ident, ELFMAG, SELFMAG) != 0) return 0;
    return header.e_shoff + size_t(header.e_shnum) * header.e_shentsize;
}

// All images that were ever loaded, as libraries, under the driver's lock: work that is not done yet may need one whose module
// is unloaded, and a process may not map as many as all its devices load.
std::map<std::string, void*>& libraries = *new std::map<std::string, void*>;

// The loader knows files by name, and takes two of the same name for one. So each has a descriptor of its own, which
// stays open.
void* open_library(const std::string& image) {
    int file = memfd_create("pretend module", MFD_CLOEXEC);
    if (file < 0 || write(file, image.data(), image.size()) != ssize_t(image.size())) return nullptr;
    return dlopen(("/proc/self/fd/" + std::to_string(file)).c_str(), RTLD_NOW | RTLD_LOCAL);
}

int load(Module** module, const void* image) {
    size_t bytes = length(image);
    if (!bytes) return INVALID_IMAGE;
    std::string file(static_cast<const char*>(image), bytes);
    void*& library = libraries[file];
    if (!library) library = open_library(file);
    void* threads = library ? dlsym(library, "pretend_threads") : nullptr;
    if (!threads) {
        fprintf(stderr, "pretend driver: %s\n", library ? "no module of the pretend NVRTC" : dlerror());
        return INVALID_IMAGE;
    }
    *module = new Module{library, static_cast<PretendThreads*>(threads), {}};
    driver().handles.insert(*module);
    take(MODULE_BYTES);
    return SUCCESS;
}

// The part of a launch that is the same each time that it is done.
struct Launch {
    const Function* function;
    Grid grid;
    std::vector<unsigned char> bytes;
    std::vector<size_t> offsets;
};

int run(Launch& launch) {
    const PretendKernel& kernel = *launch.function->kernel;
    if (fails("async")) return ILLEGAL_ADDRESS;
    std::vector<void*> arguments;
    for (size_t offset : launch.offsets) arguments.push_back(launch.bytes.data() + offset);
    std::string error = run_grid(kernel, *launch.function->threads, launch.grid, arguments.data(), driver().random);
    if (error.empty()) return SUCCESS;
    fprintf(stderr, "pretend driver: kernel `%s`: %s\n", kernel.name, error.c_str());
    return LAUNCH_FAILED;
}

bool is_possible(const Function* function, const Grid& grid, unsigned dynamic_bytes) {
    uint64_t count = uint64_t(grid.threads.x) * grid.threads.y * grid.threads.z;
    bool blocks = grid.blocks.x && grid.blocks.x <= 0x7fffffff && grid.blocks.y && grid.blocks.y <= 65535 &&
                  grid.blocks.z && grid.blocks.z <= 65535;
    return blocks && count > 0 && count <= function->kernel->threads_max && grid.threads.z <= 64 &&
           dynamic_bytes <= function->dynamic_bytes_max;
}

int launch(Function* function, const Grid& grid, unsigned dynamic_bytes, void* handle, void** arguments) {
    Stream* stream = stream_of(handle);
    if (!stream || !is_handle(function)) return INVALID_HANDLE;
    if (!is_possible(function, grid, dynamic_bytes)) return INVALID_VALUE;
    if (fails("launch")) return LAUNCH_OUT_OF_RESOURCES;
    auto copied = std::make_shared<Launch>();
    copied->function = function;
    copied->grid = grid;
    for (unsigned i = 0; i < function->kernel->count; i++) {
        size_t offset = (copied->bytes.size() + 15) / 16 * 16, size = function->kernel->sizes[i];
        copied->offsets.push_back(offset);
        copied->bytes.resize(offset + size);
        memcpy(copied->bytes.data() + offset, arguments[i], size);
    }
    return submit(stream, {[=] { return run(*copied); }, nullptr});
}

}  // namespace

}  // namespace pretend

using namespace pretend;

API cuModuleLoadData(Module** module, const void* image) {
    return call_outside_capture(__func__, [&] { return fails("module") ? INVALID_IMAGE : load(module, image); });
}

API cuModuleUnload(Module* module) {
    return call(__func__, [&]() -> int {
        if (!driver().handles.erase(module)) return INVALID_HANDLE;
        take(-MODULE_BYTES);
        for (const void* function : module->functions) driver().handles.erase(function);
        return SUCCESS;
    });
}

API cuModuleGetFunction(Function** function, Module* module, const char* name) {
    return call(__func__, [&]() -> int {
        if (!is_handle(module)) return INVALID_HANDLE;
        auto* kernel = static_cast<const PretendKernel*>(dlsym(module->library, name));
        if (!kernel) return NOT_FOUND;
        *function = new Function{kernel, module->threads};
        kernels.insert(kernel->name);
        driver().handles.insert(*function);
        module->functions.push_back(*function);
        return SUCCESS;
    });
}

API cuFuncSetAttribute(Function* function, int attribute, int value) {
    return call(__func__, [&]() -> int {
        if (!is_handle(function)) return INVALID_HANDLE;
        if (attribute == 8 && (value < 0 || value > 232448)) return INVALID_VALUE;
        if (attribute == 8) function->dynamic_bytes_max = value;
        return SUCCESS;
    });
}

API cuFuncGetAttribute(int* value, int attribute, Function* function) {
    return call(__func__, [&]() -> int {
        if (!is_handle(function)) return INVALID_HANDLE;
        *value = attribute == 0 ? int(function->kernel->threads_max) : attribute == 4 ? 32 : 0;
        return SUCCESS;
    });
}

API cuLaunchKernel(Function* function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                   unsigned dynamic_bytes, void* stream, void** arguments, void**) {
    return call(__func__, [&] {
        return launch(function, {{gx, gy, gz}, {bx, by, bz}}, dynamic_bytes, stream, arguments);
    });
}

// Calls a function with the name expression of each kernel that was ever asked for.
API pretend_kernels(void (*tell)(void*, const char*), void* data) {
    std::lock_guard<std::mutex> guard(driver().lock);
    for (const std::string& name : kernels) tell(data, name.c_str());
    return SUCCESS;
}
