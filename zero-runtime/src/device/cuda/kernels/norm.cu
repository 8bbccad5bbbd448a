// Layer norm and RMS norm of rows, and of heads within wider rows: PARTS adjacent parts, as wide as the norm, of each
// row of a matrix. THREADS of a block share a row: a part of a warp, a warp, or the whole block.
#include "packs.cuh"

// The start of a row.
template <u32 WIDTH, u32 PARTS, u32 STRIDE> __device__ inline u64 start_of(u64 row) {
    return row / PARTS * STRIDE + row % PARTS * WIDTH;
}

// y := (x - mean) / sqrt(variance + epsilon) gain + bias; stats := mean, 1 / sqrt(variance + epsilon).
template <class E, int THREADS, u32 WIDTH, u32 EPSILON_BITS>
__global__ void layer_norm(const E* x, const E* gain, const E* bias, E* y, float* stats, u64 rows) {
    u64 mine = row_of_thread<THREADS>(), row = min(mine, rows - 1);
    u32 first = threadIdx.x % THREADS * PACK;
    const E* from = x + row * WIDTH;
    bool aligned = is_aligned(x, WIDTH) && is_aligned(y, WIDTH) && is_aligned(gain, 0) && is_aligned(bias, 0);
    float values[PACK], gains[PACK], biases[PACK], sum = 0.0f;
    for (u32 column = first; column < WIDTH; column += THREADS * PACK) {
        load(values, from + column, rest(WIDTH, column), aligned);
#pragma unroll
        for (int i = 0; i < PACK; i++) sum += values[i];
    }
    float mean = row_sum<THREADS>(sum) / float(WIDTH);
    sum = 0.0f;
    for (u32 column = first; column < WIDTH; column += THREADS * PACK) {
        u32 here = rest(WIDTH, column);
        load(values, from + column, here, aligned);
#pragma unroll
        for (int i = 0; i < PACK; i++) sum += i < here ? (values[i] - mean) * (values[i] - mean) : 0.0f;
    }
    float scale = 1.0f / sqrtf(row_sum<THREADS>(sum) / float(WIDTH) + __uint_as_float(EPSILON_BITS));
    // Threads beyond the last row only take part in sums.
    if (mine >= rows) return;
    for (u32 column = first; column < WIDTH; column += THREADS * PACK) {
        u32 here = rest(WIDTH, column);
        load(values, from + column, here, aligned);
        load(gains, gain + column, here, aligned);
        load(biases, bias + column, here, aligned);
#pragma unroll
        for (int i = 0; i < PACK; i++) values[i] = fmaf((values[i] - mean) * scale, gains[i], biases[i]);
        store(y + row * WIDTH + column, values, here, aligned);
    }
    if (first == 0) {
        stats[2 * row] = mean;
        stats[2 * row + 1] = scale;
    }
}

// y := x / sqrt(mean(x^2) + epsilon) gain; inverse := 1 / sqrt(mean(x^2) + epsilon).
template <class E, int THREADS, u32 WIDTH, u32 PARTS, u32 X_STRIDE, u32 Y_STRIDE, u32 EPSILON_BITS>
__global__ void rms_norm(const E* x, const E* gain, E* y, float* inverse, u64 rows) {
    u64 mine = row_of_thread<THREADS>(), row = min(mine, rows - 1);
    u32 first = threadIdx.x % THREADS * PACK;
    const E* from = x + start_of<WIDTH, PARTS, X_STRIDE>(row);
    bool aligned = is_aligned(x, X_STRIDE | WIDTH) && is_aligned(y, Y_STRIDE) && is_aligned(gain, 0);
    float values[PACK], gains[PACK], sum = 0.0f;
    for (u32 column = first; column < WIDTH; column += THREADS * PACK) {
        load(values, from + column, rest(WIDTH, column), aligned);
#pragma unroll
        for (int i = 0; i < PACK; i++) sum += values[i] * values[i];
    }
    float scale = 1.0f / sqrtf(row_sum<THREADS>(sum) / float(WIDTH) + __uint_as_float(EPSILON_BITS));
    if (mine >= rows) return;
    E* to = y + start_of<WIDTH, PARTS, Y_STRIDE>(row);
    for (u32 column = first; column < WIDTH; column += THREADS * PACK) {
        u32 here = rest(WIDTH, column);
        load(values, from + column, here, aligned);
        load(gains, gain + column, here, aligned);
#pragma unroll
        for (int i = 0; i < PACK; i++) values[i] = values[i] * scale * gains[i];
        store(to + column, values, here, aligned);
    }
    if (first == 0) inverse[row] = scale;
}

// The statistics of a row that backward reads: with CENTRED a mean and a scale, otherwise only a scale.
template <int CENTRED> __device__ inline float mean_of(const float* stats, u64 row) {
    return CENTRED ? stats[2 * row] : 0.0f;
}
template <int CENTRED> __device__ inline float scale_of(const float* stats, u64 row) {
    return CENTRED ? stats[2 * row + 1] : stats[row];
}

// dx := scale (g - mean(g) - n mean(g n)) with g = dy gain and n the normalised row, without mean(g) unless CENTRED;
// then `plus`, if there is one, is added to the stored result. `dx` may lie in the place of `dy`.
template <class E, int CENTRED, int THREADS, u32 WIDTH, u32 PARTS, u32 X_STRIDE, u32 DY_STRIDE>
__global__ void norm_dx(const E* x, const E* gain, const float* stats, const E* dy, E* dx, const E* plus, u64 rows) {
    u64 mine = row_of_thread<THREADS>(), row = min(mine, rows - 1);
    u32 first = threadIdx.x % THREADS * PACK;
    u64 x_start = start_of<WIDTH, PARTS, X_STRIDE>(row), dy_start = start_of<WIDTH, PARTS, DY_STRIDE>(row);
    bool aligned = is_aligned(x, X_STRIDE | WIDTH) && is_aligned(dy, DY_STRIDE) && is_aligned(dx, 0) &&
                   is_aligned(plus, 0) && is_aligned(gain, 0);
    float mean = mean_of<CENTRED>(stats, row), scale = scale_of<CENTRED>(stats, row);
    float values[PACK], gains[PACK], gradients[PACK], along_one = 0.0f, along_n = 0.0f;
    for (u32 column = first; column < WIDTH; column += THREADS * PACK) {
        u32 here = rest(WIDTH, column);
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
    along_n = row_sum<THREADS>(along_n) / float(WIDTH);
    if (CENTRED) along_one = row_sum<THREADS>(along_one) / float(WIDTH);
    if (mine >= rows) return;
    for (u32 column = first; column < WIDTH; column += THREADS * PACK) {
        u32 here = rest(WIDTH, column);
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

// Sums of columns over the rows `first` to `end`, by a block: LANES adjacent threads have a pack of columns each. The
// BLOCK / LANES groups of such threads take rows in turn, and their sums are added in the order of their first rows. A
// tile is as wide as LANES packs.
template <int SUMS, u32 WIDTH, u32 LANES, class Terms>
__device__ inline void column_sums(Terms terms, float* to, u64 first, u64 end, u32 tile) {
    __shared__ float of_threads[SUMS][BLOCK * PACK];
    constexpr u32 SLOTS = BLOCK / LANES;
    u32 slot = threadIdx.x / LANES, lane = threadIdx.x % LANES;
    u32 column = (tile * LANES + lane) * PACK, here = rest(WIDTH, column);
    float sums[SUMS][PACK] = {};
    if (here > 0) {
#pragma unroll 4
        for (u64 row = first + slot; row < end; row += SLOTS) terms(sums, row, column, here);
    }
#pragma unroll
    for (int sum = 0; sum < SUMS; sum++) {
#pragma unroll
        for (int i = 0; i < PACK; i++) of_threads[sum][threadIdx.x * PACK + i] = sums[sum][i];
    }
    __syncthreads();
    for (u32 i = threadIdx.x; i < LANES * PACK; i += BLOCK) {
        u32 column = tile * LANES * PACK + i;
        if (column >= WIDTH) break;
#pragma unroll
        for (int sum = 0; sum < SUMS; sum++) {
            float total = of_threads[sum][i];
            for (u32 slot = 1; slot < SLOTS; slot++) total += of_threads[sum][slot * LANES * PACK + i];
            to[u64(sum) * WIDTH + column] = total;
        }
    }
}

// The gradients of the gain, and with CENTRED of the bias, for each chunk of rows: `to` (chunks, 1 or 2, WIDTH).
template <class E, int CENTRED, u32 WIDTH, u32 PARTS, u32 X_STRIDE, u32 DY_STRIDE, u32 TILES, u32 LANES>
__global__ void norm_dparams(const E* x, const float* stats, const E* dy, float* to, u64 rows, u64 chunk) {
    u32 part = blockIdx.x / TILES;
    bool aligned = is_aligned(x, X_STRIDE | WIDTH) && is_aligned(dy, DY_STRIDE);
    auto terms = [&](float(&sums)[1 + CENTRED][PACK], u64 row, u32 column, u32 here) {
        float values[PACK], gradients[PACK];
        load(values, x + start_of<WIDTH, PARTS, X_STRIDE>(row) + column, here, aligned);
        load(gradients, dy + start_of<WIDTH, PARTS, DY_STRIDE>(row) + column, here, aligned);
        float mean = mean_of<CENTRED>(stats, row), scale = scale_of<CENTRED>(stats, row);
#pragma unroll
        for (int i = 0; i < PACK; i++) {
            sums[0][i] = fmaf(gradients[i], (values[i] - mean) * scale, sums[0][i]);
            if (CENTRED) sums[CENTRED][i] += gradients[i];
        }
    };
    u64 first = part * chunk;
    to += u64(part) * (1 + CENTRED) * WIDTH;
    column_sums<1 + CENTRED, WIDTH, LANES>(terms, to, first, min(rows, first + chunk), blockIdx.x % TILES);
}

// The sum of each chunk of rows: `to` (chunks, WIDTH).
template <class E, u32 WIDTH, u32 TILES, u32 LANES>
__global__ void sum_chunks(const E* x, float* to, u64 rows, u64 chunk) {
    u32 part = blockIdx.x / TILES;
    bool aligned = is_aligned(x, WIDTH);
    auto terms = [&](float(&sums)[1][PACK], u64 row, u32 column, u32 here) {
        float values[PACK];
        load(values, x + row * WIDTH + column, here, aligned);
#pragma unroll
        for (int i = 0; i < PACK; i++) sums[0][i] += values[i];
    };
    u64 first = part * chunk;
    column_sums<1, WIDTH, LANES>(terms, to + u64(part) * WIDTH, first, min(rows, first + chunk), blockIdx.x % TILES);
}

// `to` (WIDTH) := or += the sum of `from` (chunks, WIDTH), whose rows begin STRIDE elements after one another. A block
// has 32 columns, with 8 threads for each.
template <u32 WIDTH, u32 STRIDE> __global__ void add_chunks(const float* from, float* to, u32 chunks, u32 add) {
    __shared__ float of_threads[8][32];
    u32 lane = threadIdx.x % 32, slot = threadIdx.x / 32, column = blockIdx.x * 32 + lane;
    float sum = 0.0f;
    if (column < WIDTH) {
#pragma unroll 4
        for (u32 chunk = slot; chunk < chunks; chunk += 8) sum += from[u64(chunk) * STRIDE + column];
    }
    of_threads[slot][lane] = sum;
    __syncthreads();
    if (slot > 0 || column >= WIDTH) return;
#pragma unroll
    for (int other = 1; other < 8; other++) sum += of_threads[other][lane];
    to[column] = add ? to[column] + sum : sum;
}
