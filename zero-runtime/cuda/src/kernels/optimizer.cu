// Optimizer: one step of AdamW, and the elementwise parts of Muon, with the bits of the processor's device: the same
// operations in the same order, with the same roundings.
#include "prelude.cuh"
#include "step.cuh"

// The factors of a step, as floats. Weights that decay are multiplied by `keep`.
struct Factors {
    float keep, beta2, epsilon, grad_scale, fresh1, fresh2, step_size, root_correction;
};

__device__ Factors factors(const Hyper& hyper, double grad_scale) {
    Factors f;
    f.keep = (float)(1.0 - hyper.lr * hyper.weight_decay);
    f.beta2 = (float)hyper.beta2;
    f.epsilon = (float)hyper.epsilon;
    f.grad_scale = (float)grad_scale;
    f.fresh1 = (float)(1.0 - hyper.beta1);
    f.fresh2 = (float)(1.0 - hyper.beta2);
    f.step_size = (float)(hyper.lr / hyper.correction1);
    f.root_correction = (float)(1.0 / sqrt(hyper.correction2));
    return f;
}

// Runs of elements: the end of each run, and whether its elements decay.
template <u32 COUNT> struct Runs {
    u64 ends[COUNT], decays[COUNT];
};

// The run of an element that is not before the elements of `run`.
template <u32 COUNT> __device__ u32 run_of(const Runs<COUNT>& runs, u64 element, u32 run) {
    while (run + 1 < COUNT && element >= runs.ends[run]) run++;
    return run;
}

// `updated` := `p`, and `params`, if there are any, := `updated`, rounded: the copy that layers read.
template <int ALIGNED, class P, class U>
__device__ void store_weights(P* params, U* updated, float* p, u64 start, u64 len) {
    store<ALIGNED>(updated, p, start, len);
    if (params) {
        // First rounded to `updated`, then to `params`: both may be narrower than a float.
#pragma unroll
        for (int i = 0; i < EIGHT; i++) p[i] = widen(narrow<U>(p[i]));
        store<ALIGNED>(params, p, start, len);
    }
}

// A step of `len` elements: `updated` are the optimizer's weights, and `params`, if there are any, the copy that layers
// read.
template <class P, class U, class G, class M, class V, int ALIGNED, u32 RUNS>
__device__ void step(const Factors& f, const Runs<RUNS>& runs, P* params, U* updated, const G* grads, M* ms, V* vs, u64 len) {
    u64 threads = (u64)gridDim.x * blockDim.x;
    u32 run = 0;
    for (u64 start = thread_index() * EIGHT; start < len; start += threads * EIGHT) {
        float p[EIGHT], g[EIGHT], m[EIGHT], v[EIGHT], keep[EIGHT];
        run = run_of(runs, start, run);
#pragma unroll
        for (int i = 0; i < EIGHT; i++) keep[i] = runs.decays[run] ? f.keep : 1.0f;
        // Almost all elements are in the same run as the first.
        if (start + EIGHT > runs.ends[run]) {
            u32 later = run;
#pragma unroll
            for (int i = 1; i < EIGHT; i++) {
                later = run_of(runs, start + i, later);
                keep[i] = runs.decays[later] ? f.keep : 1.0f;
            }
        }
        load<ALIGNED>(p, updated, start, len);
        load<ALIGNED>(g, grads, start, len);
        load<ALIGNED>(m, ms, start, len);
        load<ALIGNED>(v, vs, start, len);
#pragma unroll
        for (int i = 0; i < EIGHT; i++) {
            float grad = g[i] * f.grad_scale;
            m[i] = fmaf(grad - m[i], f.fresh1, m[i]);
            v[i] = fmaf(f.fresh2 * grad, grad, f.beta2 * v[i]);
            float denominator = fmaf(sqrtf(v[i]), f.root_correction, f.epsilon);
            p[i] = fmaf(-f.step_size, m[i] / denominator, p[i] * keep[i]);
        }
        store<ALIGNED>(ms, m, start, len);
        store<ALIGNED>(vs, v, start, len);
        store_weights<ALIGNED>(params, updated, p, start, len);
    }
}

// A step with the numbers of a step's words: no step if they are not finite.
template <class P, class U, class G, class M, class V, int ALIGNED, u32 RUNS>
__global__ void update(P* params, U* updated, const G* grads, M* m, V* v, u64 len, const Hyper* hyper,
                       const Report* report, const __grid_constant__ Runs<RUNS> runs) {
    __shared__ Factors shared;
    if (report->is_finite != 1.0) return;
    if (threadIdx.x == 0) shared = factors(*hyper, report->grad_scale);
    __syncthreads();
    Factors own = shared;
    step<P, U, G, M, V, ALIGNED>(own, runs, params, updated, grads, m, v, len);
}

// A step with the host's own numbers.
template <class P, class U, class G, class M, class V, int ALIGNED>
__global__ void adamw(P* params, U* updated, const G* grads, M* m, V* v, u64 len, Hyper hyper, double grad_scale) {
    step<P, U, G, M, V, ALIGNED>(factors(hyper, grad_scale), Runs<1>{{len}, {1}}, params, updated, grads, m, v, len);
}

// With g, `gradients` times the report's scale: `ms` := m + (1 - momentum) (g - m), `gradients` := g + momentum (m - g).
template <class G, class M, int ALIGNED>
__global__ void momentum(G* gradients, M* ms, u64 len, const Hyper* hyper, const Report* report) {
    u64 start = thread_index() * EIGHT;
    if (start >= len || report->is_finite != 1.0) return;
    float fresh = (float)(1.0 - hyper->momentum), decay = (float)hyper->momentum, scale = (float)report->grad_scale;
    float g[EIGHT], m[EIGHT];
    load<ALIGNED>(g, gradients, start, len);
    load<ALIGNED>(m, ms, start, len);
#pragma unroll
    for (int i = 0; i < EIGHT; i++) {
        float scaled = g[i] * scale;
        m[i] = fmaf(scaled - m[i], fresh, m[i]);
        g[i] = fmaf(m[i] - scaled, decay, scaled);
    }
    store<ALIGNED>(ms, m, start, len);
    store<ALIGNED>(gradients, g, start, len);
}

// `to` := `from` / max(sqrt(`square`), `epsilon`).
template <class E, class From, int ALIGNED>
__global__ void normalize(E* to, const From* from, u64 len, const double* square, double epsilon) {
    __shared__ float shared;
    if (threadIdx.x == 0) {
        double norm = sqrt(*square);
        shared = (float)(1.0 / (norm > epsilon ? norm : epsilon));
    }
    __syncthreads();
    float factor = shared;
    u64 start = thread_index() * EIGHT;
    if (start >= len) return;
    float x[EIGHT];
    load<ALIGNED>(x, from, start, len);
#pragma unroll
    for (int i = 0; i < EIGHT; i++) x[i] = x[i] * factor;
    store<ALIGNED>(to, x, start, len);
}

// `updated` := p (1 - lr weight_decay) - lr `factor` `direction`; see `store_weights`.
template <class P, class U, class E, int ALIGNED>
__global__ void step_along(P* params, U* updated, const E* direction, u64 len, const Hyper* hyper, const Report* report,
                           double factor, u32 decays) {
    u64 start = thread_index() * EIGHT;
    if (start >= len || report->is_finite != 1.0) return;
    float keep = decays ? (float)(1.0 - hyper->lr * hyper->weight_decay) : 1.0f;
    float size = (float)(hyper->lr * factor);
    float p[EIGHT], o[EIGHT];
    load<ALIGNED>(p, updated, start, len);
    load<ALIGNED>(o, direction, start, len);
#pragma unroll
    for (int i = 0; i < EIGHT; i++) p[i] = fmaf(-size, o[i], p[i] * keep);
    store_weights<ALIGNED>(params, updated, p, start, len);
}

// `found` (1) := 1 if an element of `x` is infinite or NaN.
template <class E, int ALIGNED> __global__ void find_infinite(const E* x, u64 len, u32* found) {
    u64 start = thread_index() * EIGHT;
    if (start >= len) return;
    float numbers[EIGHT];
    load<ALIGNED>(numbers, x, start, len);
    bool is_any = false;
#pragma unroll
    for (int i = 0; i < EIGHT; i++) is_any |= !(numbers[i] - numbers[i] == 0.0f);
    // All threads that write it write the same number.
    if (is_any) *found = 1;
}
