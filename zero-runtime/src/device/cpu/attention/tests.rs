//! Attention against an f64 reference that holds the whole (length, length) matrix.

use super::*;
use crate::device::cpu::testing::{assert_close, noise};

struct Reference {
    out: Vec<f64>,
    lse: Vec<f64>,
    dqkv: Vec<f64>,
}

fn reference(shape: AttentionShape, qkv: &[f32], dout: &[f32]) -> Reference {
    let AttentionShape { sequences, length, heads, key_heads, head_dim } = shape;
    let width = heads * head_dim;
    let scale = 1.0 / (head_dim as f64).sqrt();
    let mut r = Reference {
        out: vec![0.0; sequences * length * width],
        lse: vec![0.0; sequences * length * heads],
        dqkv: vec![0.0; qkv.len()],
    };
    for sequence in 0..sequences {
        for head in 0..heads {
            // Queries, keys and values.
            let first = [head, heads + head * key_heads / heads, heads + key_heads + head * key_heads / heads];
            let row_width = (heads + 2 * key_heads) * head_dim;
            let at =
                |row: usize, kind: usize, d: usize| (sequence * length + row) * row_width + first[kind] * head_dim + d;
            let x = |row, kind, d| f64::from(qkv[at(row, kind, d)]);
            for i in 0..length {
                let token = sequence * length + i;
                let out_at = |d: usize| token * width + head * head_dim + d;
                let scores: Vec<f64> =
                    (0..=i).map(|j| scale * (0..head_dim).map(|d| x(i, 0, d) * x(j, 1, d)).sum::<f64>()).collect();
                let total: f64 = scores.iter().map(|s| s.exp()).sum();
                r.lse[token * heads + head] = total.ln();
                let p: Vec<f64> = scores.iter().map(|s| s.exp() / total).collect();
                let dp: Vec<f64> =
                    (0..=i).map(|j| (0..head_dim).map(|d| f64::from(dout[out_at(d)]) * x(j, 2, d)).sum()).collect();
                let mean_dp: f64 = p.iter().zip(&dp).map(|(p, dp)| p * dp).sum();
                for j in 0..=i {
                    let ds = p[j] * (dp[j] - mean_dp) * scale;
                    for d in 0..head_dim {
                        r.out[out_at(d)] += p[j] * x(j, 2, d);
                        r.dqkv[at(i, 0, d)] += ds * x(j, 1, d);
                        r.dqkv[at(j, 1, d)] += ds * x(i, 0, d);
                        r.dqkv[at(j, 2, d)] += p[j] * f64::from(dout[out_at(d)]);
                    }
                }
            }
        }
    }
    r
}

fn check(shape: AttentionShape) {
    let (tokens, width) = (shape.tokens(), shape.out_width());
    let (qkv, dout) = (noise(tokens * shape.qkv_width(), 1), noise(tokens * width, 2));
    let expected = reference(shape, &qkv, &dout);
    // NaN wherever a kernel must write before it reads.
    let (mut out, mut lse) = (vec![f32::NAN; tokens * width], vec![f32::NAN; tokens * shape.heads]);
    let mut dqkv = vec![f32::NAN; qkv.len()];
    attention(Cpu::ONE_THREAD, shape, &qkv, &mut out, &mut lse);
    assert_close("out", &out, &expected.out, 1e-5);
    assert_close("lse", &lse, &expected.lse, 1e-5);
    attention_backward(Cpu::ONE_THREAD, shape, &qkv, &out, &lse, &dout, &mut dqkv);
    assert_close("dqkv", &dqkv, &expected.dqkv, 3e-5);
}

#[test]
fn matches_f64_on_awkward_shapes() {
    for [sequences, length, heads, head_dim] in [
        [1, 1, 1, 1],
        [2, 3, 2, 5],
        [1, 17, 3, 3],
        [2, 63, 1, 16],
        [1, 64, 2, 7],
        [2, 65, 2, 8],
        [1, 130, 1, 3],
        [1, 200, 2, 64],
        [1, 97, 2, 40],
        [3, 33, 1, 100],
    ] {
        check(AttentionShape { sequences, length, heads, key_heads: heads, head_dim });
    }
}

#[test]
fn heads_share_keys_and_values() {
    for [sequences, length, heads, key_heads, head_dim] in [[2, 3, 2, 1, 5], [1, 65, 6, 2, 7], [2, 97, 4, 1, 33]] {
        check(AttentionShape { sequences, length, heads, key_heads, head_dim });
    }
}

#[test]
#[should_panic(expected = "3 heads cannot share 2 heads of keys")]
fn heads_share_evenly() {
    let shape = AttentionShape { sequences: 1, length: 1, heads: 3, key_heads: 2, head_dim: 1 };
    attention(Cpu::ONE_THREAD, shape, &[0.0; 7], &mut [0.0; 3], &mut [0.0; 3]);
}

#[test]
fn the_first_token_sees_only_itself() {
    let shape = AttentionShape { sequences: 1, length: 2, heads: 1, key_heads: 1, head_dim: 1 };
    let (mut out, mut lse) = ([0.0; 2], [0.0; 2]);
    // Two tokens of q, k, v; with q = 0 the second weighs both values alike.
    attention(Cpu::ONE_THREAD, shape, &[1.0, 2.0, 3.0, 0.0, 5.0, 9.0], &mut out, &mut lse);
    assert_eq!((out, lse), ([3.0, 6.0], [2.0, 2f32.ln()]));
}

#[test]
fn large_scores_do_not_overflow() {
    let shape = AttentionShape { sequences: 1, length: 3, heads: 1, key_heads: 1, head_dim: 1 };
    let (mut out, mut lse) = ([0.0; 3], [0.0; 3]);
    let qkv = [1e4, 1e4, 1.0, 1e4, -1e4, 2.0, 1e4, 1e4, 3.0];
    attention(Cpu::ONE_THREAD, shape, &qkv, &mut out, &mut lse);
    assert_eq!(out, [1.0, 1.0, 2.0]);
}

#[test]
#[should_panic(expected = "a head of 1025 features, 1024 at most")]
fn a_head_beyond_the_scratch_is_refused() {
    let shape = AttentionShape { sequences: 1, length: 1, heads: 1, key_heads: 1, head_dim: 1025 };
    attention(Cpu::ONE_THREAD, shape, &[0.0; 3 * 1025], &mut [0.0; 1025], &mut [0.0]);
}
