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

}  // namespace pretend
