// Layer norm and RMS norm of rows, and of heads of rows that lie among others. THREADS of a block share a row: a part of a
// warp, a warp, or all of them.
#include "packs.cuh"

// Where rows are: `parts` beside one another, as wide as the norm, of each row of a matrix.
struct Parts {
    u64 stride;
    u32 count, width;
};

__device__ inline u64 start_of(Parts parts, u64 row) {
    if (parts.count == 1) return row * parts.stride;
    return row / parts.count * parts.stride + row % parts.count * parts.width;
}

// y := (x - mean) / sqrt(variance + epsilon) gain + bias; stats := mean, 1 / sqrt(variance + epsilon).
template <class E, int THREADS>
__global__ void layer_norm(const E* x, const E* gain, const E* bias, E* y, float* stats, u64 rows, u32 width, float epsilon) {
    u64 mine = row_of_thread<THREADS>(), row = min(mine, rows - 1);
    u32 first = threadIdx.x % THREADS * PACK;
    const E* from = x + row * width;
    bool aligned = is_aligned(x, width) && is_aligned(y, width) && is_aligned(gain, 0) && is_aligned(bias, 0);
    float values[PACK], gains[PACK], biases[PACK], sum = 0.0f;
    for (u32 column = first; column < width; column += THREADS * PACK) {
        load(values, from + column, rest(width, column), aligned);
#pragma unroll
        for (int i = 0; i < PACK; i++) sum += values[i];
    }
    float mean = row_sum<THREADS>(sum) / float(width);
    sum = 0.0f;
    for (u32 column = first; column < width; column += THREADS * PACK) {
        u32 here = rest(width, column);
        load(values, from + column, here, aligned);
#pragma unroll
        for (int i = 0; i < PACK; i++) sum += i < here ? (values[i] - mean) * (values[i] - mean) : 0.0f;
    }
    float scale = 1.0f / sqrtf(row_sum<THREADS>(sum) / float(width) + epsilon);
    // Beyond the last row threads only take part in sums.
    if (mine >= rows) return;
    for (u32 column = first; column < width; column += THREADS * PACK) {
        u32 here = rest(width, column);
        load(values, from + column, here, aligned);
        load(gains, gain + column, here, aligned);
        load(biases, bias + column, here, aligned);
#pragma unroll
        for (int i = 0; i < PACK; i++) values[i] = fmaf((values[i] - mean) * scale, gains[i], biases[i]);
        store(y + row * width + column, values, here, aligned);
    }
    if (first == 0) {
        stats[2 * row] = mean;
        stats[2 * row + 1] = scale;
    }
}

// y := x / sqrt(mean(x^2) + epsilon) gain; inverse := 1 / sqrt(mean(x^2) + epsilon).
template <class E, int THREADS>
__global__ void rms_norm(const E* x, const E* gain, E* y, float* inverse, u64 rows, Parts of_x, Parts of_y, float epsilon) {
    u64 mine = row_of_thread<THREADS>(), row = min(mine, rows - 1);
    u32 first = threadIdx.x % THREADS * PACK, width = of_x.width;
    const E* from = x + start_of(of_x, row);
    bool aligned = is_aligned(x, of_x.stride | width) && is_aligned(y, of_y.stride) && is_aligned(gain, 0);
    float values[PACK], gains[PACK], sum = 0.0f;
    for (u32 column = first; column < width; column += THREADS * PACK) {
        load(values, from + column, rest(width, column), aligned);
#pragma unroll
        for (int i = 0; i < PACK; i++) sum += values[i] * values[i];
    }
    float scale = 1.0f / sqrtf(row_sum<THREADS>(sum) / float(width) + epsilon);
    if (mine >= rows) return;
    E* to = y + start_of(of_y, row);
    for (u32 column = first; column < width; column += THREADS * PACK) {
        u32 here = rest(width, column);
        load(values, from + column, here, aligned);
        load(gains, gain + column, here, aligned);
#pragma unroll
        for (int i = 0; i < PACK; i++) values[i] = values[i] * scale * gains[i];
        store(to + column, values, here, aligned);
    }
    if (first == 0) inverse[row] = scale;
}

// What backward reads of a row: with CENTRED a mean and a scale, otherwise a scale alone.
template <int CENTRED> __device__ inline float mean_of(const float* stats, u64 row) {
    return CENTRED ? stats[2 * row] : 0.0f;
}
template <int CENTRED> __device__ inline float scale_of(const float* stats, u64 row) {
    return CENTRED ? stats[2 * row + 1] : stats[row];
}

// dx := scale (g - mean(g) - n mean(g n)) with g = dy gain and n the row normalised, without mean(g) unless CENTRED; then
// `plus`, if it is there, is added to what is stored. `dx` may lie in the place of `dy`.
template <class E, int CENTRED, int THREADS>
__global__ void norm_dx(const E* x, const E* gain, const float* stats, const E* dy, E* dx, const E* plus, u64 rows, Parts of_x,
                        Parts of_dy) {
    u64 mine = row_of_thread<THREADS>(), row = min(mine, rows - 1);
    u32 first = threadIdx.x % THREADS * PACK, width = of_x.width;
    u64 x_start = start_of(of_x, row), dy_start = start_of(of_dy, row);
    bool aligned = is_aligned(x, of_x.stride | width) && is_aligned(dy, of_dy.stride) && is_aligned(dx, 0) &&
                   is_aligned(plus, 0) && is_aligned(gain, 0);
    float mean = mean_of<CENTRED>(stats, row), scale = scale_of<CENTRED>(stats, row);
    float values[PACK], gains[PACK], gradients[PACK], along_one = 0.0f, along_n = 0.0f;
    for (u32 column = first; column < width; column += THREADS * PACK) {
        u32 here = rest(width, column);
        load(values, x + x_start + column, here, aligned);
        load(gains, gain + column, here, aligned);
        load(gradients, dy + dy_start + column, here, aligned);
#pragma unroll
        for (int i = 0; i < PACK; i++) {
            float g = gains[i] * gradients[i];
            along_n += i < here ? (values[i] - mean) * scale * g : 0.0f;
            if (CENTRED) along_one += g;
        }
    }
    along_n = row_sum<THREADS>(along_n) / float(width);
    if (CENTRED) along_one = row_sum<THREADS>(along_one) / float(width);
    if (mine >= rows) return;
    for (u32 column = first; column < width; column += THREADS * PACK) {
        u32 here = rest(width, column);
        load(values, x + x_start + column, here, aligned);
        load(gains, gain + column, here, aligned);
        load(gradients, dy + dy_start + column, here, aligned);
#pragma unroll
        for (int i = 0; i < PACK; i++)
            values[i] = scale * fmaf((values[i] - mean) * scale, -along_n, gains[i] * gradients[i] - along_one);
        if (plus) {
            load(gains, plus + dy_start + column, here, aligned);
#pragma unroll
            for (int i = 0; i < PACK; i++) values[i] = widen(narrow<E>(values[i])) + gains[i];
        }
        store(dx + dy_start + column, values, here, aligned);
    }
}

// Sums down columns, of rows `first` to `end`, by a block: `lanes` threads beside one another have a pack of columns each and
// take every so many rows; what they have is added in the order of their first rows. A tile is as wide as `lanes` packs.
template <int SUMS, class Terms>
__device__ inline void column_sums(Terms terms, float* to, u64 first, u64 end, u32 width, u32 tile, u32 lanes) {
    __shared__ float of_threads[SUMS][BLOCK * PACK];
    u32 slot = threadIdx.x / lanes, slots = BLOCK / lanes, lane = threadIdx.x % lanes;
    u32 column = (tile * lanes + lane) * PACK, here = rest(width, column);
    float sums[SUMS][PACK] = {};
    if (here > 0) {
#pragma unroll 4
        for (u64 row = first + slot; row < end; row += slots) terms(sums, row, column, here);
    }
#pragma unroll
    for (int sum = 0; sum < SUMS; sum++) {
#pragma unroll
        for (int i = 0; i < PACK; i++) of_threads[sum][threadIdx.x * PACK + i] = sums[sum][i];
    }
    __syncthreads();
    for (u32 i = threadIdx.x; i < lanes * PACK; i += BLOCK) {
        u32 column = tile * lanes * PACK + i;
        if (column >= width) break;
#pragma unroll
        for (int sum = 0; sum < SUMS; sum++) {
            float total = of_threads[sum][i];
            for (u32 slot = 1; slot < slots; slot++) total += of_threads[sum][slot * lanes * PACK + i];
            to[u64(sum) * width + column] = total;
        }
    }
}

// Of each chunk of rows, what the gain gathers, and with CENTRED the bias: `to` (chunks, 1 or 2, width).
template <class E, int CENTRED>
__global__ void norm_dparams(const E* x, const float* stats, const E* dy, float* to, u64 rows, u64 chunk, Parts of_x,
                             Parts of_dy, u32 tiles, u32 lanes) {
    u32 part = blockIdx.x / tiles, width = of_x.width;
    bool aligned = is_aligned(x, of_x.stride | width) && is_aligned(dy, of_dy.stride);
    auto terms = [&](float(&sums)[1 + CENTRED][PACK], u64 row, u32 column, u32 here) {
        float values[PACK], gradients[PACK];
        load(values, x + start_of(of_x, row) + column, here, aligned);
        load(gradients, dy + start_of(of_dy, row) + column, here, aligned);
        float mean = mean_of<CENTRED>(stats, row), scale = scale_of<CENTRED>(stats, row);
#pragma unroll
        for (int i = 0; i < PACK; i++) {
            sums[0][i] = fmaf(gradients[i], (values[i] - mean) * scale, sums[0][i]);
            if (CENTRED) sums[CENTRED][i] += gradients[i];
        }
    };
    u64 first = part * chunk;
    to += u64(part) * (1 + CENTRED) * width;
    column_sums<1 + CENTRED>(terms, to, first, min(rows, first + chunk), width, blockIdx.x % tiles, lanes);
}

// Of each chunk of rows, their sum: `to` (chunks, width).
template <class E>
__global__ void sum_chunks(const E* x, float* to, u64 rows, u64 chunk, u32 width, u32 tiles, u32 lanes) {
    u32 part = blockIdx.x / tiles;
    bool aligned = is_aligned(x, width);
    auto terms = [&](float(&sums)[1][PACK], u64 row, u32 column, u32 here) {
        float values[PACK];
        load(values, x + row * width + column, here, aligned);
#pragma unroll
        for (int i = 0; i < PACK; i++) sums[0][i] += values[i];
    };
    u64 first = part * chunk;
    column_sums<1>(terms, to + u64(part) * width, first, min(rows, first + chunk), width, blockIdx.x % tiles, lanes);
}

// `to` (width) := or += the sum of `from` (chunks, width), whose rows begin `stride` elements after one another. 32 columns
// and 8 threads for each are a block.
__global__ void add_chunks(const float* from, float* to, u32 chunks, u32 width, u64 stride, u32 add) {
    __shared__ float of_threads[8][32];
    u32 lane = threadIdx.x % 32, slot = threadIdx.x / 32, column = blockIdx.x * 32 + lane;
    float sum = 0.0f;
    if (column < width) {
#pragma unroll 4
        for (u32 chunk = slot; chunk < chunks; chunk += 8) sum += from[chunk * stride + column];
    }
    of_threads[slot][lane] = sum;
    __syncthreads();
    if (slot > 0 || column >= width) return;
#pragma unroll
    for (int other = 1; other < 8; other++) sum += of_threads[other][lane];
    to[column] = add ? to[column] + sum : sum;
}
