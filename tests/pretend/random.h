// Numbers that look random and follow from a seed. Never asks the system.
#pragma once
#include <cstdint>

namespace pretend {

inline uint64_t mixed(uint64_t x) {
    x += 0x9e3779b97f4a7c15;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    return x ^ (x >> 31);
}

struct Random {
    uint64_t state = 0;
    uint64_t next() { return mixed(state++); }
    // Below `limit`, which is not 0.
    uint64_t below(uint64_t limit) { return next() % limit; }
    bool one_in(uint64_t chance) { return below(chance) == 0; }
};

}  // namespace pretend
