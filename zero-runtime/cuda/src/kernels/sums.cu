// Sums: in the orders of the processor's device, which depend only on lengths. No order is left to chance.
#include "prelude.cuh"
#include "step.cuh"

// Addresses of COUNT summands, which a launch copies.
template <u32 COUNT> struct Sources {
    const void* at[COUNT];
};

// Levels of a tree of this many summands: as few as possible, because each level takes eight registers of every thread.
__device__ constexpr int levels(u32 summands) { return summands < 2 ? 1 : 1 + levels(summands / 2); }

// `to` := or += the sum of COUNT stretches along the tree in which, of n, the first n.next_power_of_two() / 2 are
// summed before the others are added. Summands come one by one; two sums of equally many summands are added as soon as
// both are complete. Sums are floats, and the last is rounded to the width of `to`.
template <class E, u32 COUNT, int ADDS, int ALIGNED>
__global__ void reduce(E* to, const __grid_constant__ Sources<COUNT> sources, u64 len) {
    u64 start = thread_index() * EIGHT;
    if (start >= len) return;
    // Level l holds a sum of 2^l summands that waits for the next one.
    constexpr int DEPTH = levels(COUNT);
    float waiting[DEPTH][EIGHT];
    for (u32 i = 0; i < COUNT; i++) {
        float sum[EIGHT];
        load<ALIGNED>(sum, static_cast<const E*>(sources.at[i]), start, len);
        bool is_carried = true;
#pragma unroll
        for (int level = 0; level < DEPTH; level++) {
            if (!is_carried) continue;
            is_carried = i >> level & 1;
#pragma unroll
            for (int k = 0; k < EIGHT; k++) {
                if (is_carried) sum[k] = waiting[level][k] + sum[k];
                else waiting[level][k] = sum[k];
            }
        }
    }
    // The waiting sums have different numbers of summands; the smallest ones are added first.
    float total[EIGHT];
    bool has_any = false;
#pragma unroll
    for (int level = 0; level < DEPTH; level++) {
        if (!(COUNT >> level & 1)) continue;
#pragma unroll
        for (int k = 0; k < EIGHT; k++) total[k] = has_any ? waiting[level][k] + total[k] : waiting[level][k];
        has_any = true;
    }
    if (ADDS) {
        float held[EIGHT];
        load<ALIGNED>(held, to, start, len);
#pragma unroll
        for (int k = 0; k < EIGHT; k++) total[k] = held[k] + total[k];
    }
    store<ALIGNED>(to, total, start, len);
}

// `to` (1) += the sum of `x` over `len`. One block of THREADS threads: each adds every THREADS-th number to its sum,
// and then the sums are added pairwise.
template <u32 THREADS> __global__ void add_mean(const float* x, u64 len, double* to) {
    __shared__ double sums[THREADS];
    double sum = 0;
#pragma unroll 8
    for (u64 i = threadIdx.x; i < len; i += THREADS) sum = sum + (double)x[i];
    sums[threadIdx.x] = sum;
    for (u32 half = THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) sums[threadIdx.x] = sums[threadIdx.x] + sums[threadIdx.x + half];
    }
    if (threadIdx.x == 0) *to = *to + sums[0] / (double)len;
}

// Squares are summed in blocks of this many elements.
constexpr int BLOCK = 4096;
// Each block is summed in this many sums, each of every sixteenth element.
constexpr int LANES = 16;

// `sums` (blocks) := the sum of squares of each block of `x`.
template <class E> __global__ void squares(const E* x, u64 len, double* sums) {
    u64 block = thread_index() / LANES;
    u32 lane = threadIdx.x % LANES;
    u64 start = block * BLOCK;
    u64 end = start + BLOCK < len ? start + BLOCK : len;
    double sum = 0;
#pragma unroll 16
    for (u64 i = start + lane; i < end; i += LANES) {
        double number = (double)widen(x[i]);
        sum = fma(number, number, sum);
    }
    // Adds lane l + 8 to lane l, then lane l + 4, and so on. All threads take part, even those of blocks beyond the
    // last.
    for (int half = LANES / 2; half > 0; half /= 2) sum = sum + __shfl_down_sync(0xffffffffu, sum, half, LANES);
    if (lane == 0 && start < len) sums[block] = sum;
}

// The most branches of a tree of squares that one block sums, one in each thread: those at depth 8.
constexpr u32 BRANCHES = 256;

// The sum of `sums` from `first` on along the tree that halves their number.
__device__ double halved(const double* sums, u64 first, u64 count) {
    // For each branch: the right half that is still to be summed, and the sum of the left half.
    u64 starts[40], counts[40];
    double lefts[40];
    int depth = 0;
    for (;;) {
        while (count > 1) {
            u64 left = count / 2;
            starts[depth] = first + left;
            counts[depth] = count - left;
            lefts[depth] = 0;
            depth++;
            count = left;
        }
        double sum = sums[first];
        for (;;) {
            if (depth == 0) return sum;
            if (counts[depth - 1] > 0) {
                // The left half is done, so the right half follows.
                lefts[depth - 1] = sum;
                first = starts[depth - 1];
                count = counts[depth - 1];
                counts[depth - 1] = 0;
                break;
            }
            sum = lefts[depth - 1] + sum;
            depth--;
        }
    }
}

// `to` (1) := the sum of `sums` along that tree. One block of BRANCHES threads: each sums a branch at the greatest depth
// at which there are no more branches than threads or sums.
__global__ void sum_of_squares(const double* sums, u64 count, double* to) {
    __shared__ double branches[BRANCHES];
    if (count == 0) {
        if (threadIdx.x == 0) *to = 0.0;
        return;
    }
    u32 deepest = BRANCHES;
    while (deepest > count) deepest /= 2;
    // The bits of the thread's number, the highest first, say at each fork whether its branch is on the left or the
    // right.
    u64 first = 0, own = count;
    for (u32 bit = deepest / 2; bit > 0; bit /= 2) {
        u64 left = own / 2;
        if (threadIdx.x & bit) {
            first += left;
            own -= left;
        } else {
            own = left;
        }
    }
    if (threadIdx.x < deepest) branches[threadIdx.x] = halved(sums, first, own);
    __syncthreads();
    for (u32 width = deepest / 2; width > 0; width /= 2) {
        double sum = 0;
        if (threadIdx.x < width) sum = branches[2 * threadIdx.x] + branches[2 * threadIdx.x + 1];
        __syncthreads();
        if (threadIdx.x < width) branches[threadIdx.x] = sum;
        __syncthreads();
    }
    if (threadIdx.x == 0) *to = branches[0];
}

// The order in which words of ranks are summed: the ranks of the last pipeline stage by their data, then for each
// pipeline stage its ranks by their parts, then the pipeline stage of each unit.
template <u32 COUNT> struct Order {
    u32 at[COUNT];
};

// Sums COUNT words along the tree of `reduce`.
template <u32 COUNT, class Word> __device__ double tree(Word word) {
    double waiting[levels(COUNT)], total = 0;
    for (u32 i = 0; i < COUNT; i++) {
        double sum = word(i);
        int level = 0;
        for (; i >> level & 1; level++) sum = waiting[level] + sum;
        waiting[level] = sum;
    }
    bool has_any = false;
    for (int level = 0; level < levels(COUNT); level++) {
        if (!(COUNT >> level & 1)) continue;
        total = has_any ? waiting[level] + total : waiting[level];
        has_any = true;
    }
    return total;
}

// `report` := the report from the words of all ranks. One block.
template <u32 ZERO, u32 REPLICAS, u32 PARTS, u32 STAGES, u32 UNITS>
__global__ void agree(const __grid_constant__ Order<ZERO * REPLICAS + PARTS * STAGES + UNITS> order, double summed,
                      const double* all, const Hyper* hyper, Report* report) {
    __shared__ double squares_of[UNITS];
    constexpr u64 VALUES = 1 + UNITS;
    const u32* by_data = order.at;
    const u32* by_part = by_data + ZERO * REPLICAS;
    const u32* stage_of = by_part + STAGES * PARTS;
    for (u32 unit = threadIdx.x; unit < UNITS; unit += blockDim.x) {
        const u32* ranks = by_part + stage_of[unit] * PARTS;
        squares_of[unit] = tree<PARTS>([&](u32 part) { return all[ranks[part] * VALUES + 1 + unit]; });
    }
    __syncthreads();
    if (threadIdx.x > 0) return;
    double squares = 0;
    for (u32 unit = 0; unit < UNITS; unit++) squares = squares + squares_of[unit];
    double losses = tree<REPLICAS>([&](u32 replica) {
        return tree<ZERO>([&](u32 rank) { return all[by_data[replica * ZERO + rank] * VALUES]; });
    });
    double loss = losses / summed, norm = sqrt(squares) / summed;
    // PyTorch's formula for clipping; a norm that is NaN clips nothing.
    double clipping = hyper->clip / (norm + 1e-6);
    clipping = clipping < 1.0 ? clipping : 1.0;
    report->loss = loss;
    report->gradient_norm = norm;
    report->grad_scale = clipping / summed;
    // An infinity or NaN minus itself is NaN.
    report->is_finite = loss - loss == 0.0 && norm - norm == 0.0 ? 1.0 : 0.0;
}
