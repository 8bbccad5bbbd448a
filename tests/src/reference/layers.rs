//! Layers of the reference GPT: each forward, and its vector-Jacobian product computed from the forward's inputs.
//!
//! An activation is `(tokens, width)`, row by row; `d_x` is the loss's gradient by `x`. No function here owns a parameter.

use std::f64::consts::PI;

const LAYER_NORM_EPS: f64 = 1e-5;
const GELU_CUBIC: f64 = 0.044715;

/// Elementwise sum.
pub(super) fn add(a: &[f64], b: &[f64]) -> Vec<f64> {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(a, b)| a + b).collect()
}

/// `sum += term`, elementwise.
pub(super) fn accumulate(sum: &mut [f64], term: &[f64]) {
    assert_eq!(sum.len(), term.len());
    for (sum, term) in sum.iter_mut().zip(term) {
        *sum += term;
    }
}

/// `x weight^T`: `(tokens, width_in)` and `(width_out, width_in)` give `(tokens, width_out)`.
pub(super) fn linear(x: &[f64], weight: &[f64], width_in: usize) -> Vec<f64> {
    let mut y = Vec::new();
    for x_row in x.chunks_exact(width_in) {
        for weight_row in weight.chunks_exact(width_in) {
            y.push(dot(x_row, weight_row));
        }
    }
    y
}

/// Gradients by `x` and by `weight`.
pub(super) fn linear_backward(x: &[f64], weight: &[f64], d_y: &[f64], width_in: usize) -> (Vec<f64>, Vec<f64>) {
    let width_out = weight.len() / width_in;
    let mut d_x = vec![0.0; x.len()];
    let mut d_weight = vec![0.0; weight.len()];
    for token in 0..x.len() / width_in {
        for output in 0..width_out {
            let d = d_y[token * width_out + output];
            for input in 0..width_in {
                d_x[token * width_in + input] += d * weight[output * width_in + input];
                d_weight[output * width_in + input] += d * x[token * width_in + input];
            }
        }
    }
    (d_x, d_weight)
}

/// `y + bias` in every row.
pub(super) fn add_bias(mut y: Vec<f64>, bias: &[f64]) -> Vec<f64> {
    for row in y.chunks_exact_mut(bias.len()) {
        accumulate(row, bias);
    }
    y
}

/// Gradient by a bias of `width` elements: the sum of the rows.
pub(super) fn bias_backward(d_y: &[f64], width: usize) -> Vec<f64> {
    let mut d_bias = vec![0.0; width];
    for row in d_y.chunks_exact(width) {
        accumulate(&mut d_bias, row);
    }
    d_bias
}

/// Rows normalised to mean 0 and variance 1 (biased, plus epsilon), times `gain`, plus `bias`.
pub(super) fn layer_norm(x: &[f64], gain: &[f64], bias: &[f64]) -> Vec<f64> {
    let mut y = Vec::new();
    for row in x.chunks_exact(gain.len()) {
        let (normed, _) = normalise(row);
        for (channel, value) in normed.iter().enumerate() {
            y.push(value * gain[channel] + bias[channel]);
        }
    }
    y
}

/// Gradients by `x` and by `gain`; [`bias_backward`] has the gradient by the bias.
///
/// With `n = (x - mean) r` and `g = gain d_y`: `d_x = r (g - mean(g) - n mean(g n))`.
pub(super) fn layer_norm_backward(x: &[f64], gain: &[f64], d_y: &[f64]) -> (Vec<f64>, Vec<f64>) {
    let dim = gain.len();
    let mut d_x = Vec::new();
    let mut d_gain = vec![0.0; dim];
    for (row, d_row) in x.chunks_exact(dim).zip(d_y.chunks_exact(dim)) {
        let (normed, inverse_deviation) = normalise(row);
        let d_normed = multiply(d_row, gain);
        accumulate(&mut d_gain, &multiply(d_row, &normed));
        let mean = d_normed.iter().sum::<f64>() / dim as f64;
        let slope = dot(&d_normed, &normed) / dim as f64;
        for channel in 0..dim {
            d_x.push(inverse_deviation * (d_normed[channel] - mean - normed[channel] * slope));
        }
    }
    (d_x, d_gain)
}

/// The row normalised to mean 0 and variance 1, and the factor that it was multiplied by.
fn normalise(row: &[f64]) -> (Vec<f64>, f64) {
    let dim = row.len() as f64;
    let mean = row.iter().sum::<f64>() / dim;
    let variance = row.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / dim;
    let inverse_deviation = 1.0 / (variance + LAYER_NORM_EPS).sqrt();
    (row.iter().map(|x| (x - mean) * inverse_deviation).collect(), inverse_deviation)
}

/// `x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))` (Hendrycks and Gimpel, arXiv:1606.08415).
pub(super) fn gelu(x: &[f64]) -> Vec<f64> {
    x.iter().map(|&x| 0.5 * x * (1.0 + gelu_tanh(x))).collect()
}

/// Gradient by `x`.
pub(super) fn gelu_backward(x: &[f64], d_y: &[f64]) -> Vec<f64> {
    let slope = |x: f64| {
        let tanh = gelu_tanh(x);
        let inner_slope = (2.0 / PI).sqrt() * (1.0 + 3.0 * GELU_CUBIC * x * x);
        0.5 * (1.0 + tanh) + 0.5 * x * (1.0 - tanh * tanh) * inner_slope
    };
    x.iter().zip(d_y).map(|(&x, d)| d * slope(x)).collect()
}

fn gelu_tanh(x: f64) -> f64 {
    ((2.0 / PI).sqrt() * (x + GELU_CUBIC * x * x * x)).tanh()
}

/// Causal attention: `qkv` is `(tokens, 3 * dim)`, the result `(tokens, dim)`; sequences are `length` tokens each.
pub(super) fn attention(qkv: &[f64], length: usize, dim: usize, heads: usize) -> Vec<f64> {
    let head_dim = dim / heads;
    let mut y = vec![0.0; qkv.len() / 3];
    for head in Head::of(qkv, length, dim, heads) {
        for row in 0..length {
            for (column, weight) in head.weights(qkv, row).into_iter().enumerate() {
                for channel in 0..head_dim {
                    y[head.output(row) + channel] += weight * qkv[head.value(column) + channel];
                }
            }
        }
    }
    y
}

/// Gradient by `qkv`.
///
/// With `w = softmax(s)`: `d_s = w (d_w - sum(w d_w))`.
pub(super) fn attention_backward(qkv: &[f64], d_y: &[f64], length: usize, dim: usize, heads: usize) -> Vec<f64> {
    let head_dim = dim / heads;
    let mut d_qkv = vec![0.0; qkv.len()];
    for head in Head::of(qkv, length, dim, heads) {
        for row in 0..length {
            let weights = head.weights(qkv, row);
            let d_output = &d_y[head.output(row)..][..head_dim];
            let d_weights: Vec<f64> =
                (0..=row).map(|column| dot(d_output, &qkv[head.value(column)..][..head_dim])).collect();
            let mean = dot(&weights, &d_weights);
            for column in 0..=row {
                let d_score = weights[column] * (d_weights[column] - mean) * head.scale();
                for channel in 0..head_dim {
                    d_qkv[head.value(column) + channel] += weights[column] * d_output[channel];
                    d_qkv[head.query(row) + channel] += d_score * qkv[head.key(column) + channel];
                    d_qkv[head.key(column) + channel] += d_score * qkv[head.query(row) + channel];
                }
            }
        }
    }
    d_qkv
}

/// One head of one sequence: where its rows start in `qkv` and in the output.
struct Head {
    first_token: usize,
    head: usize,
    head_dim: usize,
    dim: usize,
}

impl Head {
    /// Every head of every sequence.
    fn of(qkv: &[f64], length: usize, dim: usize, heads: usize) -> Vec<Self> {
        let tokens = qkv.len() / (3 * dim);
        let mut all = Vec::new();
        for first_token in (0..tokens).step_by(length) {
            for head in 0..heads {
                all.push(Self { first_token, head, head_dim: dim / heads, dim });
            }
        }
        all
    }

    fn query(&self, row: usize) -> usize {
        (self.first_token + row) * 3 * self.dim + self.head * self.head_dim
    }

    fn key(&self, row: usize) -> usize {
        self.query(row) + self.dim
    }

    fn value(&self, row: usize) -> usize {
        self.query(row) + 2 * self.dim
    }

    fn output(&self, row: usize) -> usize {
        (self.first_token + row) * self.dim + self.head * self.head_dim
    }

    fn scale(&self) -> f64 {
        1.0 / (self.head_dim as f64).sqrt()
    }

    /// Attention weights of `row` over itself and the rows before it.
    fn weights(&self, qkv: &[f64], row: usize) -> Vec<f64> {
        let query = &qkv[self.query(row)..][..self.head_dim];
        let score = |column: usize| self.scale() * dot(query, &qkv[self.key(column)..][..self.head_dim]);
        softmax(&(0..=row).map(score).collect::<Vec<f64>>())
    }
}

/// Mean of `-ln softmax(logits)[target]` over the tokens, in nats, and its gradient by `logits` `(tokens, vocab)`.
pub(super) fn cross_entropy(logits: &[f64], targets: &[u32], vocab: usize) -> (f64, Vec<f64>) {
    let tokens = targets.len() as f64;
    let mut loss = 0.0;
    let mut d_logits = Vec::new();
    for (row, &target) in logits.chunks_exact(vocab).zip(targets) {
        let mut d_row = softmax(row);
        loss -= d_row[target as usize].ln() / tokens;
        d_row[target as usize] -= 1.0;
        d_logits.extend(d_row.iter().map(|d| d / tokens));
    }
    (loss, d_logits)
}

fn softmax(scores: &[f64]) -> Vec<f64> {
    // Otherwise large scores overflow.
    let max = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let powers: Vec<f64> = scores.iter().map(|score| (score - max).exp()).collect();
    let sum: f64 = powers.iter().sum();
    powers.iter().map(|power| power / sum).collect()
}

fn multiply(a: &[f64], b: &[f64]) -> Vec<f64> {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(a, b)| a * b).collect()
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}
