//! Tests of how many logits a head computes at a time on a GPU.

use zero_core::layer::{Features, Layer, LmHead, Shape};

use crate::Cuda;

/// 32 sequences of 1024 tokens, in f32.
struct Long;

impl Shape for Long {
    type Device = Cuda;
    type Compute = f32;
    const SEQUENCES: usize = 32;
    const LENGTH: usize = 1024;
}

/// Rows of logits that a head has at one time, from that many tokens.
fn rows_of_logits<const VOCAB: usize>() -> usize {
    <LmHead<8, VOCAB> as Layer<Long, Features<8>>>::WORKSPACE / (VOCAB * size_of::<f32>())
}

#[test]
fn a_chunk_of_logits_on_a_gpu_is_worth_reading_the_gradients_of_all_weights_for() {
    assert_eq!(rows_of_logits::<256>(), Long::TOKENS);
    assert_eq!(rows_of_logits::<50_304>(), (1 << 27) / 50_304);
    assert_eq!(rows_of_logits::<200_192>(), 1024);
}
