//! Reference GPT: the model of the `gpt` example written the obvious way, for comparison with the real one.
//!
//! Plain loops over `f64`, one thread, every activation kept. Not fast, and not built from the crates that it checks.

pub mod golden;
mod layers;
pub mod muon;
pub mod optimizer;
#[cfg(test)]
mod tests;

use layers::{
    accumulate, add, add_bias, attention, attention_backward, bias_backward, cross_entropy, gelu, gelu_backward,
    layer_norm, layer_norm_backward, linear, linear_backward,
};

/// Shape of a GPT.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Number of different token ids.
    pub vocab: usize,
    /// Longest sequence, in tokens.
    pub context: usize,
    /// Width of the residual stream; a multiple of `heads`.
    pub dim: usize,
    /// Attention heads of a block.
    pub heads: usize,
    /// Blocks.
    pub layers: usize,
    /// Whether the head uses the embedding's table instead of a weight of its own.
    pub tied: bool,
}

/// One parameter.
#[derive(Clone, Debug)]
pub struct Tensor {
    /// Unit and path within it, such as `blocks[0].mlp.1.weight`.
    pub name: String,
    /// Sizes, slowest first; a weight is `(out, in)`.
    pub shape: Vec<usize>,
    /// Elements, row by row.
    pub data: Vec<f64>,
}

/// A GPT and its parameters, in the flat order of the model.
#[derive(Clone, Debug)]
pub struct Gpt {
    /// Shape of the model.
    pub config: Config,
    /// Parameters: `embed`, each of `blocks`, `norm` and, unless tied, `head`.
    pub tensors: Vec<Tensor>,
}

const TABLE: usize = 0;
const POSITIONS: usize = 1;
const FIRST_BLOCK: usize = 2;
const TENSORS_PER_BLOCK: usize = 12;

// Places within a block; the bias follows its gain or weight.
const LN1: usize = 0;
const QKV: usize = 2;
const OUT: usize = 4;
const LN2: usize = 6;
const FC: usize = 8;
const PROJ: usize = 10;

/// Activations that a block's forward keeps for its backward, each `(tokens, width)`.
struct BlockActivations {
    input: Vec<f64>,     // (tokens, dim)
    normed1: Vec<f64>,   // (tokens, dim)
    qkv: Vec<f64>,       // (tokens, 3 * dim)
    attended: Vec<f64>,  // (tokens, dim)
    middle: Vec<f64>,    // (tokens, dim): between the two residual branches
    normed2: Vec<f64>,   // (tokens, dim)
    wide: Vec<f64>,      // (tokens, 4 * dim)
    activated: Vec<f64>, // (tokens, 4 * dim)
    output: Vec<f64>,    // (tokens, dim)
}

impl Config {
    /// Names and shapes of the parameters, in the flat order.
    pub fn parameters(&self) -> Vec<(String, Vec<usize>)> {
        let Self { vocab, context, dim, .. } = *self;
        let mut all =
            vec![("embed.weight".to_owned(), vec![vocab, dim]), ("embed.positions".to_owned(), vec![context, dim])];
        for block in 0..self.layers {
            for (name, shape) in [
                ("attention.0.weight", vec![dim]),
                ("attention.0.bias", vec![dim]),
                ("attention.1.qkv.weight", vec![3 * dim, dim]),
                ("attention.1.qkv.bias", vec![3 * dim]),
                ("attention.1.out.weight", vec![dim, dim]),
                ("attention.1.out.bias", vec![dim]),
                ("mlp.0.weight", vec![dim]),
                ("mlp.0.bias", vec![dim]),
                ("mlp.1.weight", vec![4 * dim, dim]),
                ("mlp.1.bias", vec![4 * dim]),
                ("mlp.3.weight", vec![dim, 4 * dim]),
                ("mlp.3.bias", vec![dim]),
            ] {
                all.push((format!("blocks[{block}].{name}"), shape));
            }
        }
        all.push(("norm.weight".to_owned(), vec![dim]));
        all.push(("norm.bias".to_owned(), vec![dim]));
        if !self.tied {
            all.push(("head.weight".to_owned(), vec![vocab, dim]));
        }
        all
    }
}

impl Gpt {
    /// A model whose parameter `name` of `shape` has the elements `fill(name, shape)`.
    pub fn new(config: Config, mut fill: impl FnMut(&str, &[usize]) -> Vec<f64>) -> Self {
        let tensors = config.parameters().into_iter().map(|(name, shape)| {
            let data = fill(&name, &shape);
            assert_eq!(data.len(), shape.iter().product::<usize>(), "elements of `{name}`");
            Tensor { name, shape, data }
        });
        Self { config, tensors: tensors.collect() }
    }

    /// Mean cross-entropy in nats over all tokens, and its gradient by each parameter, in the order of parameters.
    ///
    /// `ids` and `targets` are `(sequences, length)`, with `length` at most the context.
    pub fn loss_and_gradients(
        &self,
        ids: &[u32],
        targets: &[u32],
        sequences: usize,
        length: usize,
    ) -> (f64, Vec<Vec<f64>>) {
        let Config { vocab, context, dim, layers, .. } = self.config;
        assert!(length <= context, "sequences of {length} tokens do not fit a context of {context}");
        assert_eq!(ids.len(), sequences * length);
        assert_eq!(targets.len(), sequences * length);

        let embedded = self.embed(ids, length);
        let mut blocks: Vec<BlockActivations> = Vec::new();
        for block in 0..layers {
            let input = blocks.last().map_or(&embedded, |previous| &previous.output).clone();
            blocks.push(self.block_forward(block, input, length));
        }
        let last = blocks.last().map_or(&embedded, |block| &block.output);
        let norm = FIRST_BLOCK + layers * TENSORS_PER_BLOCK;
        let head = if self.config.tied { TABLE } else { norm + 2 };
        let normed = layer_norm(last, self.data(norm), self.data(norm + 1));
        let logits = linear(&normed, self.data(head), dim); // (tokens, vocab)
        let (loss, d_logits) = cross_entropy(&logits, targets, vocab);

        let mut gradients: Vec<Vec<f64>> = self.tensors.iter().map(|tensor| vec![0.0; tensor.data.len()]).collect();
        let (d_normed, d_head) = linear_backward(&normed, self.data(head), &d_logits, dim);
        accumulate(&mut gradients[head], &d_head);
        let mut d_x = self.layer_norm_backward(norm, last, &d_normed, &mut gradients);
        for block in (0..layers).rev() {
            d_x = self.block_backward(block, &blocks[block], &d_x, length, &mut gradients);
        }
        self.embed_backward(ids, length, &d_x, &mut gradients);
        (loss, gradients)
    }

    fn data(&self, tensor: usize) -> &[f64] {
        &self.tensors[tensor].data
    }

    /// `(tokens, dim)`: each id's row of the table plus its place's row of the positions.
    fn embed(&self, ids: &[u32], length: usize) -> Vec<f64> {
        let dim = self.config.dim;
        let mut x = vec![0.0; ids.len() * dim];
        for (token, &id) in ids.iter().enumerate() {
            for channel in 0..dim {
                x[token * dim + channel] = self.data(TABLE)[id as usize * dim + channel]
                    + self.data(POSITIONS)[token % length * dim + channel];
            }
        }
        x
    }

    fn embed_backward(&self, ids: &[u32], length: usize, d_x: &[f64], gradients: &mut [Vec<f64>]) {
        let dim = self.config.dim;
        for (token, &id) in ids.iter().enumerate() {
            for channel in 0..dim {
                let d = d_x[token * dim + channel];
                gradients[TABLE][id as usize * dim + channel] += d;
                gradients[POSITIONS][token % length * dim + channel] += d;
            }
        }
    }

    fn block_forward(&self, block: usize, input: Vec<f64>, length: usize) -> BlockActivations {
        let Config { dim, heads, .. } = self.config;
        let first = FIRST_BLOCK + block * TENSORS_PER_BLOCK;
        let affine = |x: &[f64], layer: usize, width_in: usize| {
            add_bias(linear(x, self.data(first + layer), width_in), self.data(first + layer + 1))
        };
        let normed1 = layer_norm(&input, self.data(first + LN1), self.data(first + LN1 + 1));
        let qkv = affine(&normed1, QKV, dim);
        let attended = attention(&qkv, length, dim, heads);
        let middle = add(&input, &affine(&attended, OUT, dim));
        let normed2 = layer_norm(&middle, self.data(first + LN2), self.data(first + LN2 + 1));
        let wide = affine(&normed2, FC, dim);
        let activated = gelu(&wide);
        let output = add(&middle, &affine(&activated, PROJ, 4 * dim));
        BlockActivations { input, normed1, qkv, attended, middle, normed2, wide, activated, output }
    }

    /// Gradient by the block's input, from the gradient by its output.
    fn block_backward(
        &self,
        block: usize,
        saved: &BlockActivations,
        d_output: &[f64],
        length: usize,
        gradients: &mut [Vec<f64>],
    ) -> Vec<f64> {
        let Config { dim, heads, .. } = self.config;
        let first = FIRST_BLOCK + block * TENSORS_PER_BLOCK;

        let d_activated = self.affine_backward(first + PROJ, &saved.activated, d_output, gradients);
        let d_wide = gelu_backward(&saved.wide, &d_activated);
        let d_normed2 = self.affine_backward(first + FC, &saved.normed2, &d_wide, gradients);
        let d_branch2 = self.layer_norm_backward(first + LN2, &saved.middle, &d_normed2, gradients);
        let d_middle = add(d_output, &d_branch2);

        let d_attended = self.affine_backward(first + OUT, &saved.attended, &d_middle, gradients);
        let d_qkv = attention_backward(&saved.qkv, &d_attended, length, dim, heads);
        let d_normed1 = self.affine_backward(first + QKV, &saved.normed1, &d_qkv, gradients);
        let d_branch1 = self.layer_norm_backward(first + LN1, &saved.input, &d_normed1, gradients);
        add(&d_middle, &d_branch1)
    }

    /// Backward of the linear layer whose weight is tensor `weight`, and whose bias is the next.
    fn affine_backward(&self, weight: usize, x: &[f64], d_y: &[f64], gradients: &mut [Vec<f64>]) -> Vec<f64> {
        let &[width_out, width_in] = self.tensors[weight].shape.as_slice() else {
            unreachable!("a weight has two dims")
        };
        let (d_x, d_weight) = linear_backward(x, self.data(weight), d_y, width_in);
        accumulate(&mut gradients[weight], &d_weight);
        accumulate(&mut gradients[weight + 1], &bias_backward(d_y, width_out));
        d_x
    }

    /// Backward of the layer norm whose gain is tensor `gain`, and whose bias is the next.
    fn layer_norm_backward(&self, gain: usize, x: &[f64], d_y: &[f64], gradients: &mut [Vec<f64>]) -> Vec<f64> {
        let (d_x, d_gain) = layer_norm_backward(x, self.data(gain), d_y);
        accumulate(&mut gradients[gain], &d_gain);
        accumulate(&mut gradients[gain + 1], &bias_backward(d_y, self.config.dim));
        d_x
    }
}
