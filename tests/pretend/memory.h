// Memory of the pretend device: mappings that are open only while work is done.
#pragma once
#include <cstddef>
#include <cstdint>

namespace pretend {

// Opens the device's memory for as long as work is done.
struct Opened {
    Opened();
    ~Opened();
};

// Whether these bytes are pinned memory of the host, which the device may read at any time.
bool is_pinned(const void* start, size_t bytes);

// Takes device memory for something other than an allocation, or gives it back.
void take(int64_t bytes);

// How many ranges of addresses are reserved, mapped, or pinned on the host.
int ranges_held();

}  // namespace pretend
