// A matrix product in f32: every number of the result is one chain of fused products and sums in the order of k, so that
// it depends neither on blocks nor on other numbers. Knows nothing of cublasLt.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

namespace pretend {

// How a number is stored, as `cudaDataType` counts.
enum class Type : int { F32 = 0, BF16 = 14 };

inline size_t bytes_of(Type type) { return type == Type::F32 ? 4 : 2; }

inline float load(const void* from, Type type, size_t at) {
    if (type == Type::F32) return static_cast<const float*>(from)[at];
    uint32_t bits = uint32_t(static_cast<const uint16_t*>(from)[at]) << 16;
    float number;
    memcpy(&number, &bits, 4);
    return number;
}

inline void store(void* to, Type type, size_t at, float number) {
    if (type == Type::F32) {
        static_cast<float*>(to)[at] = number;
        return;
    }
    uint32_t bits;
    memcpy(&bits, &number, 4);
    bits = number != number ? bits | 0x400000 : bits + 0x7fff + (bits >> 16 & 1);
    static_cast<uint16_t*>(to)[at] = uint16_t(bits >> 16);
}

// A matrix whose element (row, column) lies at row * row_step + column * column_step.
struct Operand {
    const void* start;
    Type type;
    size_t row_step, column_step;
};

typedef float Lanes __attribute__((vector_size(32)));
const size_t TALL = 16, WIDE = 6;

// Rows of `of` in panels of `height`, each one k after another; zeros beyond the last row.
inline std::vector<float> packed(const Operand& of, size_t rows, size_t depth, size_t height) {
    std::vector<float> panels((rows + height - 1) / height * height * depth + height);
    for (size_t row = 0; row < rows; row++) {
        float* to = panels.data() + row / height * height * depth + row % height;
        for (size_t k = 0; k < depth; k++)
            to[k * height] = load(of.start, of.type, row * of.row_step + k * of.column_step);
    }
    return panels;
}

inline void block(const float* a, const float* b, size_t depth, float* to) {
    Lanes sums[WIDE][2] = {};
    for (size_t k = 0; k < depth; k++) {
        Lanes upper, lower;
        memcpy(&upper, a + k * TALL, sizeof upper);
        memcpy(&lower, a + k * TALL + TALL / 2, sizeof lower);
#pragma GCC unroll 6
        for (size_t column = 0; column < WIDE; column++) {
            float factor = b[k * WIDE + column];
            sums[column][0] += upper * factor;
            sums[column][1] += lower * factor;
        }
    }
    memcpy(to, sums, sizeof sums);
}

// Calls `give(row, column, sum)` for each number of a (rows, depth) times b (depth, columns), where b is given as its
// transpose.
template <class F> void product(size_t rows, size_t columns, size_t depth, const Operand& a, const Operand& b, F give) {
    std::vector<float> tall = packed(a, rows, depth, TALL), wide = packed(b, columns, depth, WIDE);
    for (size_t column = 0; column < columns; column += WIDE)
        for (size_t row = 0; row < rows; row += TALL) {
            float sums[WIDE][TALL];
            block(tall.data() + row * depth, wide.data() + column * depth, depth, &sums[0][0]);
            for (size_t j = 0; j < WIDE && column + j < columns; j++)
                for (size_t i = 0; i < TALL && row + i < rows; i++) give(row + i, column + j, sums[j][i]);
        }
}

}  // namespace pretend
