//! Constants: the numbers that a plan fixes are compiled into the kernels that a run loads, and are not arguments.

use zero_tests::pretend;
use zero_tests::tiny::{DIM, VOCAB};

use super::engine::on_cuda;

/// Heads of a tiny model, and the features of each.
const HEADS: usize = 3;
const HEAD_DIM: usize = DIM / HEADS;

/// The run has its own process, because a process remembers the kernels of all its runs.
#[test]
fn kernels_are_compiled_for_the_numbers_of_a_plan() {
    if pretend::is_done_apart() || pretend::libraries().is_none() || !pretend::is_cuda() {
        return;
    }
    on_cuda("ddp", |config| config);
    let bits = |number: f32| format!("{:#010x}", number.to_bits());
    let (epsilon, scale, every) = (bits(1e-5), bits(1.0 / (HEAD_DIM as f32).sqrt()), u32::MAX);
    let qkv = 3 * DIM;
    let shape = format!("{qkv}, {qkv}, {qkv}, {HEADS}, 1, {HEAD_DIM}, {every}, {scale}");
    let expected = [
        format!("embed<float, {VOCAB}, {DIM}, 1>"),
        format!("embed_backward<float, {VOCAB}, {DIM}, 5, 1>"),
        format!("positions_backward<float, {DIM}, 1>"),
        format!("layer_norm<float, 1, 8, {DIM}, {epsilon}>"),
        format!("norm_backward<float, 1, 1, 8, {DIM}, 1, {DIM}, {DIM}>"),
        format!("add_chunks<{DIM}, {}>", 2 * DIM),
        format!("sum_chunks<float, 1, {qkv}, 1, 16>"),
        format!("attention<8, {shape}>"),
        format!("attention_delta<float, {HEADS}, 1, {HEAD_DIM}>"),
        format!("attention_dkv<8, {shape}>"),
        format!("attention_dq<8, {shape}>"),
        format!("cross_entropy<float, 8, {VOCAB}>"),
        format!("cross_entropy_backward<float, 8, {VOCAB}>"),
    ];
    let found = pretend::kernels();
    let missing: Vec<_> = expected.iter().filter(|&name| !found.contains(name)).collect();
    assert!(missing.is_empty(), "{missing:#?} are missing among {found:#?}");
}
