// Removes a function from a pretend library, as if its version lacked it: `PRETEND_FAIL=symbol:cuLaunchKernel`. One
// source of each library includes this. Never changes calls within the library, which are bound when it is linked.
#pragma once
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include "settings.h"

namespace pretend {

// Renames the function in the table of names that `dlsym` looks it up in.
inline void hide_symbol(const char* hidden) {
    char* names = nullptr;
    size_t size = 0;
    for (const ElfW(Dyn)* entry = _DYNAMIC; entry->d_tag != DT_NULL; entry++) {
        if (entry->d_tag == DT_STRTAB) names = reinterpret_cast<char*>(entry->d_un.d_ptr);
        if (entry->d_tag == DT_STRSZ) size = entry->d_un.d_val;
    }
    size_t page = sysconf(_SC_PAGESIZE), length = strlen(hidden) + 1;
    for (size_t at = 0; names && at + length <= size; at++) {
        if (memcmp(names + at, hidden, length) != 0) continue;
        char* start = reinterpret_cast<char*>(reinterpret_cast<uintptr_t>(names + at) & ~(page - 1));
        if (mprotect(start, names + at + 1 - start, PROT_READ | PROT_WRITE) == 0) names[at] = '-';
    }
}

__attribute__((constructor)) static void hide_symbols() {
    std::string hidden = word("symbol");
    if (!hidden.empty()) hide_symbol(hidden.c_str());
}

}  // namespace pretend
