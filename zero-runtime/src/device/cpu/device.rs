//! `Cpu`: the kernels of this folder as a [`Device`]. Only hands slices on.

use super as kernels;
use super::{AdamW, AttentionShape, MatrixMut, Nonlinearity};
use crate::device::{Device, Matrix, Stored, StoredMut, Then, Weights, Write, bf16};
use crate::view::{View, ViewMut};

/// This processor, one thread.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cpu;

fn matrix<'a>(matrix: &Matrix<'a, Cpu>) -> kernels::Matrix<'a> {
    let stored = kernels::Matrix::new(matrix.view.as_slice(), matrix.rows, matrix.cols);
    if matrix.transposed { stored.transposed() } else { stored }
}

impl Device for Cpu {
    fn copy(&self, to: ViewMut<Self>, from: View<Self>) {
        to.into_slice().copy_from_slice(from.as_slice());
    }

    fn fill(&self, to: ViewMut<Self>, value: f32) {
        to.into_slice().fill(value);
    }

    fn add(&self, y: ViewMut<Self>, x: View<Self>) {
        kernels::add(y.into_slice(), x.as_slice());
    }

    fn matmul(&self, c: ViewMut<Self>, a: Matrix<Self>, b: Matrix<Self>, write: Write) {
        let rows = if a.transposed { a.cols } else { a.rows };
        let cols = if b.transposed { b.rows } else { b.cols };
        kernels::matmul(MatrixMut::new(c.into_slice(), rows, cols), matrix(&a), matrix(&b), write);
    }

    fn linear(&self, y: ViewMut<Self>, x: View<Self>, weight: View<Self>, bias: View<Self>, then: Then<Self>) {
        let then = match then {
            Then::Nothing => kernels::Then::Nothing,
            Then::Activate(kind, to) => kernels::Then::Activate(kind, to.into_slice()),
            Then::Add(other) => kernels::Then::Add(other.as_slice()),
        };
        kernels::linear(y.into_slice(), x.as_slice(), weight.as_slice(), bias.as_slice(), then);
    }

    fn sum_rows(&self, x: View<Self>, out: ViewMut<Self>, write: Write) {
        kernels::sum_rows(x.as_slice(), out.into_slice(), write);
    }

    fn activate(&self, kind: Nonlinearity, x: View<Self>, y: ViewMut<Self>) {
        kernels::activate(kind, x.as_slice(), y.into_slice());
    }

    fn activate_backward(&self, kind: Nonlinearity, x: View<Self>, dy: View<Self>, dx: ViewMut<Self>) {
        kernels::activate_backward(kind, x.as_slice(), dy.as_slice(), dx.into_slice());
    }

    fn layer_norm(&self, x: View<Self>, gain: View<Self>, bias: View<Self>, y: ViewMut<Self>, stats: ViewMut<Self>) {
        let (gain, bias) = (gain.as_slice(), bias.as_slice());
        kernels::layer_norm(x.as_slice(), gain, bias, y.into_slice(), stats.into_slice(), NORM_EPSILON);
    }

    fn layer_norm_backward(
        &self,
        x: View<Self>,
        gain: View<Self>,
        stats: View<Self>,
        dy: View<Self>,
        dx: Option<ViewMut<Self>>,
        plus: Option<View<Self>>,
        dgain: ViewMut<Self>,
        dbias: ViewMut<Self>,
        write: Write,
    ) {
        kernels::layer_norm_backward(
            x.as_slice(),
            gain.as_slice(),
            stats.as_slice(),
            dy.as_slice(),
            dx.map(ViewMut::into_slice),
            plus.map(View::as_slice),
            dgain.into_slice(),
            dbias.into_slice(),
            write,
        );
    }

    fn rms_norm(&self, x: View<Self>, gain: View<Self>, y: ViewMut<Self>, inverse: ViewMut<Self>) {
        kernels::rms_norm(x.as_slice(), gain.as_slice(), y.into_slice(), inverse.into_slice(), NORM_EPSILON);
    }

    fn rms_norm_backward(
        &self,
        x: View<Self>,
        gain: View<Self>,
        inverse: View<Self>,
        dy: View<Self>,
        dx: Option<ViewMut<Self>>,
        plus: Option<View<Self>>,
        dgain: ViewMut<Self>,
        write: Write,
    ) {
        kernels::rms_norm_backward(
            x.as_slice(),
            gain.as_slice(),
            inverse.as_slice(),
            dy.as_slice(),
            dx.map(ViewMut::into_slice),
            plus.map(View::as_slice),
            dgain.into_slice(),
            write,
        );
    }

    fn attention(&self, shape: AttentionShape, qkv: View<Self>, out: ViewMut<Self>, lse: ViewMut<Self>) {
        kernels::attention(shape, qkv.as_slice(), out.into_slice(), lse.into_slice());
    }

    fn attention_backward(
        &self,
        shape: AttentionShape,
        qkv: View<Self>,
        out: View<Self>,
        lse: View<Self>,
        dout: View<Self>,
        dqkv: ViewMut<Self>,
    ) {
        kernels::attention_backward(
            shape,
            qkv.as_slice(),
            out.as_slice(),
            lse.as_slice(),
            dout.as_slice(),
            dqkv.into_slice(),
        );
    }

    fn embed(&self, ids: View<Self, u32>, table: View<Self>, positions: View<Self>, out: ViewMut<Self>, length: usize) {
        kernels::embed(ids.as_slice(), table.as_slice(), positions.as_slice(), out.into_slice(), length);
    }

    fn embed_backward(
        &self,
        ids: View<Self, u32>,
        dout: View<Self>,
        dtable: ViewMut<Self>,
        dpositions: ViewMut<Self>,
        length: usize,
        write: Write,
    ) {
        let (ids, dout) = (ids.as_slice(), dout.as_slice());
        kernels::embed_backward(ids, dout, dtable.into_slice(), dpositions.into_slice(), length, write);
    }

    fn cross_entropy(&self, logits: View<Self>, targets: View<Self, u32>, loss: ViewMut<Self>, lse: ViewMut<Self>) {
        kernels::cross_entropy(logits.as_slice(), targets.as_slice(), loss.into_slice(), lse.into_slice());
    }

    fn cross_entropy_backward(
        &self,
        logits: ViewMut<Self>,
        targets: View<Self, u32>,
        lse: View<Self>,
        dloss: View<Self>,
    ) {
        kernels::cross_entropy_backward(logits.into_slice(), targets.as_slice(), lse.as_slice(), dloss.as_slice());
    }

    fn widen(&self, to: ViewMut<Self>, from: View<Self, bf16>) {
        kernels::convert(to.into_slice(), from.as_slice());
    }

    fn narrow(&self, to: ViewMut<Self, bf16>, from: View<Self>) {
        kernels::convert(to.into_slice(), from.as_slice());
    }

    fn adamw<'a>(
        &self,
        step: &AdamW,
        weights: impl Into<Weights<'a, Self>>,
        grads: impl Into<Stored<'a, Self>>,
        m: impl Into<StoredMut<'a, Self>>,
        v: impl Into<StoredMut<'a, Self>>,
    ) {
        kernels::stored::adamw(step, weights.into(), grads.into(), m.into(), v.into());
    }

    fn sum_squares<'a>(&self, x: impl Into<Stored<'a, Self>>) -> f64 {
        kernels::stored::sum_squares(x.into())
    }

    fn sum(&self, x: View<Self>) -> f64 {
        x.as_slice().iter().map(|&x| f64::from(x)).sum()
    }

    fn all_finite<'a>(&self, x: impl Into<Stored<'a, Self>>) -> bool {
        kernels::stored::all_finite(x.into())
    }
}

/// What the norms add to a variance before its root.
const NORM_EPSILON: f32 = 1e-5;
