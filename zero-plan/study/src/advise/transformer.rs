//! Transformer: units of published models for tests, with the sizes of the runtime's layers. A plan of these units
//! equals the golden plan of the real model.

use zero_plan::lines::{LINE_BYTES, round_up};
use zero_plan::{Unit, Width};

/// Sizes of a decoder like Llama's: RMS norms, grouped queries, rotary positions, SwiGlu, no biases.
#[derive(Clone, Copy, Debug)]
pub struct LlamaSizes {
    pub vocab: usize,
    pub layers: usize,
    pub width: usize,
    pub heads: usize,
    pub key_heads: usize,
    pub hidden: usize,
}

pub const LLAMA_3_8B: LlamaSizes =
    LlamaSizes { vocab: 128_256, layers: 32, width: 4096, heads: 32, key_heads: 8, hidden: 14_336 };
pub const LLAMA_3_70B: LlamaSizes =
    LlamaSizes { vocab: 128_256, layers: 80, width: 8192, heads: 64, key_heads: 8, hidden: 28_672 };
pub const LLAMA_2_7B: LlamaSizes =
    LlamaSizes { vocab: 32_000, layers: 32, width: 4096, heads: 32, key_heads: 32, hidden: 11_008 };
pub const LLAMA_2_13B: LlamaSizes =
    LlamaSizes { vocab: 32_000, layers: 40, width: 5120, heads: 40, key_heads: 40, hidden: 13_824 };
pub const LLAMA_2_70B: LlamaSizes =
    LlamaSizes { vocab: 32_000, layers: 80, width: 8192, heads: 64, key_heads: 8, hidden: 28_672 };
pub const CODE_LLAMA_34B: LlamaSizes =
    LlamaSizes { vocab: 32_000, layers: 48, width: 8192, heads: 64, key_heads: 8, hidden: 22_016 };

/// The GPT of Megatron-LM: a gated map of 8/3 of the width has as many products as a plain one of 4 times the width.
pub const GPT_1_7B: LlamaSizes =
    LlamaSizes { vocab: 51_200, layers: 24, width: 2304, heads: 24, key_heads: 24, hidden: 6144 };

/// Operations per element of an exponential and of a softmax, as the runtime counts them.
const EXP: usize = 20;
const SOFTMAX: usize = EXP + 3;
/// Operations per element of SiLU and the multiplication after it.
const GATE: usize = EXP + 3 + 1;

/// Bytes of this many numbers, in whole cache lines.
fn bytes(numbers: usize, width: Width) -> usize {
    round_up(numbers * width.bytes(), LINE_BYTES)
}

impl LlamaSizes {
    /// Its units for micro-batches of this shape.
    pub fn units(&self, compute: Width, sequences: usize, length: usize) -> Vec<Unit> {
        let tokens = sequences * length;
        let Self { vocab, width, .. } = *self;
        let features = bytes(tokens * width, compute);
        let ids = tokens * size_of::<u32>();
        let embed = Unit {
            params: vocab * width,
            input_bytes: ids,
            output_bytes: features,
            operations: tokens * width,
            ..Unit::NONE
        };
        let norm = Unit {
            params: width,
            saved_bytes: bytes(tokens, Width::F32),
            input_bytes: features,
            output_bytes: features,
            operations: 4 * tokens * width,
            ..Unit::NONE
        };
        let head = Unit {
            params: vocab * width,
            workspace_bytes: bytes(tokens.min(((1 << 18) / vocab).max(64)) * vocab, compute),
            input_bytes: features,
            output_bytes: tokens * size_of::<f32>(),
            targets_bytes: ids,
            operations: 2 * tokens * vocab * width + tokens * vocab * SOFTMAX,
            losses_in_backward: true,
            ..Unit::NONE
        };
        let block = |i| Unit { field: "blocks", index: Some(i), position: 1, ..self.block(compute, tokens, length) };
        let named = |field, position, unit| Unit { field, position, ..unit };
        let mut units = vec![named("embed", 0, embed)];
        units.extend((0..self.layers).map(block));
        units.extend([named("norm", 2, norm), named("head", 3, head)]);
        for (source, unit) in units.iter_mut().enumerate() {
            (unit.source, unit.takes) = (source, unit.params);
        }
        units
    }

    /// A layer: attention after a norm, then a gated map after a norm, each added to its own input.
    fn block(&self, compute: Width, tokens: usize, length: usize) -> Unit {
        let Self { width, heads, key_heads, hidden, .. } = *self;
        let head = width / heads;
        let row = (heads + 2 * key_heads) * head;
        let features = bytes(tokens * width, compute);
        let attention = width * row + width * width;
        let (gates, down) = (2 * width * hidden, hidden * width);
        let norms = 2 * bytes(tokens, Width::F32);
        let kept = bytes(tokens * row, compute)
            + bytes(tokens * width, compute)
            + bytes(tokens * heads, Width::F32)
            + bytes(length * head, Width::F32);
        let gated = bytes(tokens * 2 * hidden, compute);
        let hidden_bytes = bytes(tokens * hidden, compute);
        // Saved after each norm, after the attention branch, and between the gated map and the last product.
        let saved_bytes = norms + 3 * features + kept + gated + hidden_bytes;
        let in_attention = features + features + bytes(tokens * row, compute);
        let in_mlp = features + hidden_bytes + gated;
        let scores = 4 * tokens * length * width + tokens * heads * length * SOFTMAX;
        let turned = 3 * tokens * (heads + key_heads) * head;
        Unit {
            params: attention + gates + down + 2 * width,
            saved_bytes,
            workspace_bytes: features + in_attention.max(in_mlp),
            input_bytes: features,
            output_bytes: features,
            attending: scores,
            operations: 2 * tokens * (attention + gates + down)
                + scores
                + turned
                + tokens * hidden * GATE
                + 10 * tokens * width,
            cache_bytes: 2 * bytes(length * key_heads * head, compute),
            ..Unit::NONE
        }
    }
}

#[cfg(test)]
mod tests {
    use zero_plan::{Config, Mesh, PlanBuf, Precision, Report};

    use super::*;

    #[test]
    fn a_plan_of_these_units_is_the_golden_plan_of_the_real_model() {
        let golden = crate::repository::text("tests/plans/llama-3.1-8B.txt");
        let config = Config {
            mesh: Mesh::of_zero(2),
            stage: 3,
            prefetch: 1,
            bucket_bytes: 1 << 20,
            precision: Precision { compute: Width::BF16, ..Config::PLAIN.precision },
            sequences: 1,
            length: 1024,
            transport: zero_plan::TransportKind::Local,
            ..Config::PLAIN
        };
        let units = LLAMA_3_8B.units(Width::BF16, 1, 1024);
        PlanBuf::new("Llama", config, &units).with(|plan| assert_eq!(Report(plan).to_string().trim(), golden.trim()));
    }

    #[test]
    fn numbers_of_parameters_are_those_published() {
        let params = |llama: LlamaSizes| llama.units(Width::BF16, 1, 128).iter().map(|unit| unit.params).sum::<usize>();
        assert_eq!(params(LLAMA_3_8B), 8_030_261_248);
        assert_eq!(params(LLAMA_3_70B), 70_553_706_496);
        assert_eq!(params(LLAMA_2_7B), 6_738_415_616);
        assert_eq!(params(LLAMA_2_13B), 13_015_864_320);
        assert_eq!(params(LLAMA_2_70B), 68_976_648_192);
    }

    /// The operations of a block are slightly more than those of its products. The runtime's tests compare its own
    /// count with published formulas.
    #[test]
    fn a_block_multiplies_what_its_weights_and_its_scores_say() {
        let block = LLAMA_3_8B.units(Width::BF16, 1, 1024)[1];
        let products = 2 * 1024 * (block.params - 2 * 4096) + 4 * 1024 * 1024 * 4096;
        assert!(block.operations > products && block.operations < products + products / 50);
    }
}
