// Causal attention and its gradients in f32 over tensors of bf16, rounded as fused kernels do: weights and the gradients of
// scores are rounded to bf16 before they are factors, sums once, at the end. Knows nothing of cuDNN.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "product.h"

namespace pretend {

// Where (sequence, head, token, feature) lies.
struct Heads {
    uint16_t* start;
    int64_t heads, strides[4];
    uint16_t* at(int64_t sequence, int64_t head, int64_t token) const {
        return start + sequence * strides[0] + head * strides[1] + token * strides[2];
    }
};

struct AttentionCall {
    int64_t sequences, length, features;
    // A token sees itself, and tokens that are fewer than this many before it.
    int64_t window;
    float scale;
    Heads queries, keys, values, output;
    // (sequence, head, token)
    float* statistics;
    // Only the backward has these. Gradients of queries are summed in `accumulated`: (sequence, head, token, feature).
    Heads output_gradients, query_gradients, key_gradients, value_gradients;
    float* accumulated;
    // The first key whose part is added to the gradients of queries. Where it differs from call to call, sums are rounded after
    // each part, so that the order shows.
    int64_t first = 0;
    bool is_ordered = true;
};

inline float widened(uint16_t number) { return load(&number, Type::BF16, 0); }
inline uint16_t narrowed(float number) {
    uint16_t to;
    store(&to, Type::BF16, 0, number);
    return to;
}
inline float rounded(float number) { return widened(narrowed(number)); }

inline float dot(const uint16_t* a, const uint16_t* b, int64_t count) {
    float sum = 0;
    for (int64_t i = 0; i < count; i++) sum = fmaf(widened(a[i]), widened(b[i]), sum);
    return sum;
}

inline void attend(const AttentionCall& of) {
    int64_t share = of.queries.heads / of.keys.heads;
    std::vector<float> scores(of.length), sums(of.features);
    for (int64_t sequence = 0; sequence < of.sequences; sequence++)
        for (int64_t head = 0; head < of.queries.heads; head++)
            for (int64_t token = 0; token < of.length; token++) {
                int64_t first = std::max<int64_t>(0, token - of.window + 1), key_head = head / share;
                float most = -INFINITY, sum = 0;
                for (int64_t seen = first; seen <= token; seen++) {
                    scores[seen] = of.scale * dot(of.queries.at(sequence, head, token), of.keys.at(sequence, key_head, seen), of.features);
                    most = std::max(most, scores[seen]);
                }
                std::fill(sums.begin(), sums.end(), 0.0f);
                for (int64_t seen = first; seen <= token; seen++) sum += expf(scores[seen] - most);
                // Rounded with the sum in them, which zero's own kernels divide by at the end.
                for (int64_t seen = first; seen <= token; seen++) {
                    float weight = rounded(expf(scores[seen] - most) / sum);
                    const uint16_t* value = of.values.at(sequence, key_head, seen);
                    for (int64_t i = 0; i < of.features; i++) sums[i] = fmaf(weight, widened(value[i]), sums[i]);
                }
                for (int64_t i = 0; i < of.features; i++) of.output.at(sequence, head, token)[i] = narrowed(sums[i]);
                of.statistics[(sequence * of.queries.heads + head) * of.length + token] = most + logf(sum);
            }
}

inline void attend_backward(const AttentionCall& of) {
    int64_t heads = of.queries.heads, share = heads / of.keys.heads, features = of.features;
    std::vector<float> keys(of.length * features), values(of.length * features);
    std::fill(of.accumulated, of.accumulated + of.sequences * heads * of.length * features, 0.0f);
    auto of_pair = [&](int64_t sequence, int64_t head, int64_t token, int64_t seen) {
        const uint16_t *query = of.queries.at(sequence, head, token), *key = of.keys.at(sequence, head / share, seen);
        const uint16_t *gradient = of.output_gradients.at(sequence, head, token);
        int64_t row = (sequence * heads + head) * of.length + token;
        float weight = expf(of.scale * dot(query, key, features) - of.statistics[row]);
        float product = dot(gradient, of.values.at(sequence, head / share, seen), features);
        float mean = dot(gradient, of.output.at(sequence, head, token), features);
        float score = rounded(weight * (product - mean) * of.scale);
        for (int64_t i = 0; i < features; i++) {
            float& to = of.accumulated[row * features + i];
            to = fmaf(score, widened(key[i]), to);
            if (!of.is_ordered) to = rounded(to);
            keys[seen * features + i] = fmaf(score, widened(query[i]), keys[seen * features + i]);
            values[seen * features + i] = fmaf(rounded(weight), widened(gradient[i]), values[seen * features + i]);
        }
    };
    for (int64_t sequence = 0; sequence < of.sequences; sequence++)
        for (int64_t key_head = 0; key_head < of.keys.heads; key_head++) {
            std::fill(keys.begin(), keys.end(), 0.0f);
            std::fill(values.begin(), values.end(), 0.0f);
            for (int64_t nth = 0; nth < of.length; nth++) {
                int64_t seen = (nth + of.first) % of.length, end = std::min(of.length, seen + of.window);
                for (int64_t token = seen; token < end; token++)
                    for (int64_t head = key_head * share; head < (key_head + 1) * share; head++) of_pair(sequence, head, token, seen);
            }
            for (int64_t token = 0; token < of.length; token++)
                for (int64_t i = 0; i < features; i++) {
                    of.key_gradients.at(sequence, key_head, token)[i] = narrowed(keys[token * features + i]);
                    of.value_gradients.at(sequence, key_head, token)[i] = narrowed(values[token * features + i]);
                }
        }
    for (int64_t sequence = 0; sequence < of.sequences; sequence++)
        for (int64_t head = 0; head < heads; head++)
            for (int64_t token = 0; token < of.length; token++)
                for (int64_t i = 0; i < features; i++) {
                    int64_t row = (sequence * heads + head) * of.length + token;
                    of.query_gradients.at(sequence, head, token)[i] = narrowed(of.accumulated[row * features + i]);
                }
}

}  // namespace pretend
