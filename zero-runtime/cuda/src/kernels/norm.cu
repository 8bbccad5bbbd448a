// Layer norm and RMS norm of rows, and of heads within wider rows: PARTS adjacent parts, as wide as the norm, of each
// row of a matrix. THREADS of a block share a row: a part of a warp, or some warps. ALIGNED says that all packs can be
// moved in one access; it is a constant, so that all loads of a row begin before a thread waits for any.
#include "packs.cuh"

// The start of a row.
template <u32 WIDTH, u32 PARTS, u32 STRIDE> __device__ inline u64 start_of(u64 row) {
    return row / PARTS * STRIDE + row % PARTS * WIDTH;
}

// Packs of a row that one thread has, all in registers.
template <int THREADS, u32 WIDTH> constexpr u32 PACKS = (WIDTH + THREADS * PACK - 1) / (THREADS * PACK);

// The column of a thread's pack number `k`.
template <int THREADS> __device__ inline u32 column_of(u32 k) { return (k * THREADS + threadIdx.x % THREADS) * PACK; }

// A thread's packs of a row, with zeros beyond its end; all zeros for a row that does not exist.
template <int THREADS, u32 WIDTH, class E>
__device__ inline void load_row(float (&to)[PACKS<THREADS, WIDTH>][PACK], const E* row, bool aligned, bool is_there = true) {
#pragma unroll
    for (u32 k = 0; k < PACKS<THREADS, WIDTH>; k++) {
        u32 column = column_of<THREADS>(k);
        load(to[k], row + column, is_there ? rest(WIDTH, column) : 0, aligned);
    }
}

// y := (x - mean) / sqrt(variance + epsilon) gain + bias; stats := mean, 1 / sqrt(variance + epsilon).
template <class E, int ALIGNED, int THREADS, u32 WIDTH, u32 EPSILON_BITS>
__global__ void __launch_bounds__(BLOCK)
    layer_norm(const E* x, const E* gain, const E* bias, E* y, float* stats, u64 rows) {
    u64 mine = row_of_thread<THREADS>(), row = min(mine, rows - 1);
    float values[PACKS<THREADS, WIDTH>][PACK], gains[PACK], biases[PACK], sum = 0.0f;
    load_row<THREADS, WIDTH>(values, x + row * WIDTH, ALIGNED);
#pragma unroll
    for (u32 k = 0; k < PACKS<THREADS, WIDTH>; k++) {
#pragma unroll
        for (int i = 0; i < PACK; i++) sum += values[k][i];
    }
    float mean = row_sum<THREADS>(sum) / float(WIDTH);
    sum = 0.0f;
#pragma unroll
    for (u32 k = 0; k < PACKS<THREADS, WIDTH>; k++) {
        u32 here = rest(WIDTH, column_of<THREADS>(k));
#pragma unroll
        for (int i = 0; i < PACK; i++) sum += i < here ? (values[k][i] - mean) * (values[k][i] - mean) : 0.0f;
    }
    float scale = 1.0f / sqrtf(row_sum<THREADS>(sum) / float(WIDTH) + __uint_as_float(EPSILON_BITS));
    // Threads beyond the last row only take part in sums.
    if (mine >= rows) return;
#pragma unroll
    for (u32 k = 0; k < PACKS<THREADS, WIDTH>; k++) {
        u32 column = column_of<THREADS>(k), here = rest(WIDTH, column);
        load(gains, gain + column, here, ALIGNED);
        load(biases, bias + column, here, ALIGNED);
#pragma unroll
        for (int i = 0; i < PACK; i++) values[k][i] = fmaf((values[k][i] - mean) * scale, gains[i], biases[i]);
        store(y + row * WIDTH + column, values[k], here, ALIGNED);
    }
    if (threadIdx.x % THREADS == 0) {
        stats[2 * row] = mean;
        stats[2 * row + 1] = scale;
    }
}

// y := x / sqrt(mean(x^2) + epsilon) gain; inverse := 1 / sqrt(mean(x^2) + epsilon).
template <class E, int ALIGNED, int THREADS, u32 WIDTH, u32 PARTS, u32 X_STRIDE, u32 Y_STRIDE, u32 EPSILON_BITS>
__global__ void __launch_bounds__(BLOCK) rms_norm(const E* x, const E* gain, E* y, float* inverse, u64 rows) {
    u64 mine = row_of_thread<THREADS>(), row = min(mine, rows - 1);
    float values[PACKS<THREADS, WIDTH>][PACK], gains[PACK], sum = 0.0f;
    load_row<THREADS, WIDTH>(values, x + start_of<WIDTH, PARTS, X_STRIDE>(row), ALIGNED);
#pragma unroll
    for (u32 k = 0; k < PACKS<THREADS, WIDTH>; k++) {
#pragma unroll
        for (int i = 0; i < PACK; i++) sum += values[k][i] * values[k][i];
    }
    float scale = 1.0f / sqrtf(row_sum<THREADS>(sum) / float(WIDTH) + __uint_as_float(EPSILON_BITS));
    if (mine >= rows) return;
    E* to = y + start_of<WIDTH, PARTS, Y_STRIDE>(row);
#pragma unroll
    for (u32 k = 0; k < PACKS<THREADS, WIDTH>; k++) {
        u32 column = column_of<THREADS>(k), here = rest(WIDTH, column);
        load(gains, gain + column, here, ALIGNED);
#pragma unroll
        for (int i = 0; i < PACK; i++) values[k][i] = values[k][i] * scale * gains[i];
        store(to + column, values[k], here, ALIGNED);
    }
    if (threadIdx.x % THREADS == 0) inverse[row] = scale;
}

// The statistics of a row that backward reads: with CENTRED a mean and a scale, otherwise only a scale.
template <int CENTRED> __device__ inline float mean_of(const float* stats, u64 row) {
    return CENTRED ? stats[2 * row] : 0.0f;
}
template <int CENTRED> __device__ inline float scale_of(const float* stats, u64 row) {
    return CENTRED ? stats[2 * row + 1] : stats[row];
}

// Groups of THREADS threads in a block.
template <int THREADS> constexpr u32 GROUPS = THREADS < BLOCK ? BLOCK / THREADS : 1;

// `to` (WIDTH) := the sums of columns over the whole block, whose groups are added in their order.
template <int THREADS, u32 WIDTH>
__device__ inline void sum_groups(float* to, const float (&sums)[PACKS<THREADS, WIDTH>][PACK]) {
    constexpr u32 COUNT = GROUPS<THREADS>;
    __shared__ float of_groups[COUNT > 1 ? COUNT * WIDTH : 1];
    float* mine = COUNT > 1 ? of_groups + threadIdx.x / THREADS * WIDTH : to;
#pragma unroll
    for (u32 k = 0; k < PACKS<THREADS, WIDTH>; k++) {
        u32 column = column_of<THREADS>(k);
        store(mine + column, sums[k], rest(WIDTH, column), false);
    }
    if (COUNT == 1) return;
    __syncthreads();
    for (u32 column = threadIdx.x; column < WIDTH; column += COUNT * THREADS) {
        float total = of_groups[column];
        for (u32 group = 1; group < COUNT; group++) total += of_groups[group * WIDTH + column];
        to[column] = total;
    }
    // All threads have read before the next sums are written.
    __syncthreads();
}

// dx := scale (g - mean(g) - n mean(g n)) with g = dy gain and n the normalised row, without mean(g) unless CENTRED;
// then `plus`, if there is one, is added to the stored result. `dx`, if there is one, may lie in the place of `dy`. The
// gradients of the gain, and with CENTRED of the bias, of each chunk of rows: `to` (chunks, 1 or 2, WIDTH).
//
// One block at a time on a multiprocessor is enough: the compiler then uses more registers, and spills none.
template <class E, int ALIGNED, int CENTRED, int THREADS, u32 WIDTH, u32 PARTS, u32 X_STRIDE, u32 DY_STRIDE>
__global__ void __launch_bounds__(GROUPS<THREADS> * THREADS, 1)
    norm_backward(const E* x, const E* gain, const float* stats, const E* dy, E* dx, const E* plus, float* to, u64 rows, u64 chunk) {
    constexpr u32 COUNT = PACKS<THREADS, WIDTH>;
    float values[COUNT][PACK], gradients[COUNT][PACK], added[1][PACK], gains[COUNT][PACK];
    float dgain[COUNT][PACK] = {}, dbias[CENTRED ? COUNT : 1][PACK] = {};
    load_row<THREADS, WIDTH>(gains, gain, ALIGNED);
    u64 first = blockIdx.x * chunk, end = min(rows, first + chunk);
    // All threads take part in the sums of a row, so groups without further rows continue with a gradient of 0.
    for (u64 start = first; start < end; start += GROUPS<THREADS>) {
        u64 mine = start + threadIdx.x / THREADS, row = min(mine, end - 1);
        u64 x_start = start_of<WIDTH, PARTS, X_STRIDE>(row), dy_start = start_of<WIDTH, PARTS, DY_STRIDE>(row);
        load_row<THREADS, WIDTH>(values, x + x_start, ALIGNED);
        load_row<THREADS, WIDTH>(gradients, dy + dy_start, ALIGNED, mine < end);
        // Threads with several packs have no registers for `plus` yet.
        if constexpr (COUNT == 1) load_row<THREADS, WIDTH>(added, plus + dy_start, ALIGNED, plus && mine < end);
        float mean = mean_of<CENTRED>(stats, row), scale = scale_of<CENTRED>(stats, row), along[2] = {};
#pragma unroll
        for (u32 k = 0; k < COUNT; k++) {
#pragma unroll
            for (int i = 0; i < PACK; i++) {
                float n = (values[k][i] - mean) * scale, g = gains[k][i] * gradients[k][i];
                dgain[k][i] = fmaf(gradients[k][i], n, dgain[k][i]);
                if (CENTRED) dbias[CENTRED ? k : 0][i] += gradients[k][i];
                along[0] += n * g;
                if (CENTRED) along[1] += g;
                values[k][i] = n;
                gradients[k][i] = g;
            }
        }
        row_sums<THREADS>(along);
        if (!dx || mine >= end) continue;
        float along_n = along[0] / float(WIDTH), along_one = along[1] / float(WIDTH);
#pragma unroll
        for (u32 k = 0; k < COUNT; k++) {
            u32 column = column_of<THREADS>(k), here = rest(WIDTH, column);
            if (COUNT > 1 && plus) load(added[0], plus + dy_start + column, here, ALIGNED);
#pragma unroll
            for (int i = 0; i < PACK; i++) {
                float value = scale * fmaf(values[k][i], -along_n, gradients[k][i] - along_one);
                values[k][i] = plus ? widen(narrow<E>(value)) + added[0][i] : value;
            }
            store(dx + dy_start + column, values[k], here, ALIGNED);
        }
    }
    to += u64(blockIdx.x) * (1 + CENTRED) * WIDTH;
    sum_groups<THREADS, WIDTH>(to, dgain);
    if constexpr (CENTRED) sum_groups<THREADS, WIDTH>(to + WIDTH, dbias);
}

// The sum of each chunk of rows: `to` (chunks, WIDTH). A block has a tile of columns, as wide as LANES packs, and a
// chunk of rows. LANES adjacent threads have a pack of columns each; the BLOCK / LANES groups of such threads take rows
// in turn, and their sums are added in the order of their first rows.
template <class E, int ALIGNED, u32 WIDTH, u32 TILES, u32 LANES>
__global__ void __launch_bounds__(BLOCK) sum_chunks(const E* x, float* to, u64 rows, u64 chunk) {
    __shared__ float of_threads[BLOCK * PACK];
    constexpr u32 SLOTS = BLOCK / LANES;
    u32 part = blockIdx.x / TILES, tile = blockIdx.x % TILES, slot = threadIdx.x / LANES, lane = threadIdx.x % LANES;
    u32 column = (tile * LANES + lane) * PACK, here = rest(WIDTH, column);
    u64 first = part * chunk, end = min(rows, first + chunk);
    float sums[PACK] = {};
    if (here > 0) {
        // This many rows are fetched before the first is added.
        constexpr u32 AT_ONCE = 4;
        for (u64 row = first + slot; row < end; row += AT_ONCE * SLOTS) {
            float values[AT_ONCE][PACK];
#pragma unroll
            for (u32 k = 0; k < AT_ONCE; k++) {
                u64 next = row + k * SLOTS;
                load(values[k], x + min(next, end - 1) * WIDTH + column, next < end ? here : 0, ALIGNED);
            }
#pragma unroll
            for (u32 k = 0; k < AT_ONCE; k++) {
#pragma unroll
                for (int i = 0; i < PACK; i++) sums[i] += values[k][i];
            }
        }
    }
#pragma unroll
    for (int i = 0; i < PACK; i++) of_threads[threadIdx.x * PACK + i] = sums[i];
    __syncthreads();
    for (u32 i = threadIdx.x; i < LANES * PACK; i += BLOCK) {
        u32 column = tile * LANES * PACK + i;
        if (column >= WIDTH) break;
        float total = of_threads[i];
        for (u32 slot = 1; slot < SLOTS; slot++) total += of_threads[slot * LANES * PACK + i];
        to[u64(part) * WIDTH + column] = total;
    }
}

// `to` (WIDTH), and after it `next` (WIDTH) if there is one, := or += the sum of `from` (chunks, COLUMNS), where COLUMNS is
// WIDTH, or twice as much. A block has 32 columns, with 8 threads for each.
template <u32 WIDTH, u32 COLUMNS> __global__ void add_chunks(const float* from, float* to, float* next, u32 chunks, u32 add) {
    __shared__ float of_threads[8][32];
    u32 lane = threadIdx.x % 32, slot = threadIdx.x / 32, column = blockIdx.x * 32 + lane;
    float sum = 0.0f;
    if (column < COLUMNS) {
#pragma unroll 4
        for (u32 chunk = slot; chunk < chunks; chunk += 8) sum += from[u64(chunk) * COLUMNS + column];
    }
    of_threads[slot][lane] = sum;
    __syncthreads();
    if (slot > 0 || column >= COLUMNS) return;
#pragma unroll
    for (int other = 1; other < 8; other++) sum += of_threads[other][lane];
    float* place = column < WIDTH ? to + column : next + (column - WIDTH);
    *place = add ? *place + sum : sum;
}
