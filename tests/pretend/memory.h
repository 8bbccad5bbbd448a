// Memory of the pretend device: mappings that the host may not touch but while work is done.
#pragma once
#include <cstddef>
#include <cstdint>

namespace pretend {

// Opens the device's memory for as long as work is done.
struct Opened {
    Opened();
    ~Opened();
};

// Whether these bytes are of the host, and the device may read them whenever it comes to that.
bool is_pinned(const void* start, size_t bytes);

// Takes memory for what is no allocation, or gives it back.
void take(int64_t bytes);

// Ranges of addresses that are reserved, mapped, or the host's and reached by the device.
int ranges_held();

}  // namespace pretend
