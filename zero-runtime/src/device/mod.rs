//! Device: the small set of operations that layers and the optimizer are written against. A new device is one folder
//! that implements [`Device`]. Never knows of units, ranks or schedules.

pub mod cpu;
mod element;
mod stored;

pub use cpu::{AdamW, AttentionShape, Cpu, HEAD_DIM_MAX, Nonlinearity};
pub use element::{Element, bf16};
pub use stored::{Stored, StoredMut, Weights};

use crate::view::{View, ViewMut};

/// Whether a result overwrites its destination or is added to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Write {
    /// Overwrites.
    Set,
    /// Adds.
    Add,
}

/// What is done to a result before it leaves the cache.
pub enum Then<'a, D> {
    /// Nothing.
    Nothing,
    /// The nonlinearity of the result goes to another place; the result stays too, for backward.
    Activate(Nonlinearity, ViewMut<'a, D>),
    /// As much is added to the result.
    Add(View<'a, D>),
}

impl<D: Device> Then<'_, D> {
    /// Does it to a result that is there already.
    pub fn apply(self, device: &D, result: ViewMut<D>) {
        match self {
            Then::Nothing => {}
            Then::Activate(kind, to) => device.activate(kind, result.as_view(), to),
            Then::Add(other) => device.add(result, other),
        }
    }
}

/// A row-major (rows, cols) matrix, or the transpose of one.
pub struct Matrix<'a, D> {
    /// The elements.
    pub view: View<'a, D>,
    /// Rows as stored.
    pub rows: usize,
    /// Columns as stored.
    pub cols: usize,
    /// Whether its transpose is meant.
    pub transposed: bool,
}

impl<'a, D> Matrix<'a, D> {
    /// The matrix as stored.
    pub fn new(view: View<'a, D>, rows: usize, cols: usize) -> Self {
        Self { view, rows, cols, transposed: false }
    }

    /// Its transpose, of the same elements.
    pub fn transposed(self) -> Self {
        Self { transposed: !self.transposed, ..self }
    }
}

/// Operations on views of one device. Matrices are row-major; shapes are given as `(rows, width)`; results do not depend
/// on timing, and every sum has one fixed order.
pub trait Device: Sized + Default + Send + 'static {
    /// `to` := `from`.
    fn copy(&self, to: ViewMut<Self>, from: View<Self>);
    /// `to` := `value` everywhere.
    fn fill(&self, to: ViewMut<Self>, value: f32);
    /// `y` += `x`.
    fn add(&self, y: ViewMut<Self>, x: View<Self>);
    /// `y` *= `x`, elementwise.
    fn mul(&self, y: ViewMut<Self>, x: View<Self>);
    /// `y` *= `factor` everywhere.
    fn scale(&self, y: ViewMut<Self>, factor: f32);
    /// `c` (m, n) := or += `a` (m, k) `b` (k, n).
    fn matmul(&self, c: ViewMut<Self>, a: Matrix<Self>, b: Matrix<Self>, write: Write);
    /// `y` (rows, output) := `x` (rows, input) times the transposed `weight` (output, input), plus `bias` (output); then
    /// what `then` says.
    fn linear(&self, y: ViewMut<Self>, x: View<Self>, weight: View<Self>, bias: View<Self>, then: Then<Self>);
    /// `out` (width) := or += the sum of the rows of `x` (rows, width).
    fn sum_rows(&self, x: View<Self>, out: ViewMut<Self>, write: Write);
    /// `y` := f(`x`), elementwise.
    fn activate(&self, kind: Nonlinearity, x: View<Self>, y: ViewMut<Self>);
    /// `dx` := `dy` f'(`x`), elementwise.
    fn activate_backward(&self, kind: Nonlinearity, x: View<Self>, dy: View<Self>, dx: ViewMut<Self>);
    /// Layer norm of each row; `stats` (rows, 2) takes mean and reciprocal deviation.
    fn layer_norm(&self, x: View<Self>, gain: View<Self>, bias: View<Self>, y: ViewMut<Self>, stats: ViewMut<Self>);
    /// Its vector-Jacobian product, and `plus` added to `dx`; `dgain` and `dbias` (width).
    #[allow(clippy::too_many_arguments, reason = "one argument for each tensor of the formula")]
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
    );
    /// Root-mean-square norm of each row; `inverse` (rows) takes the reciprocal root mean square.
    fn rms_norm(&self, x: View<Self>, gain: View<Self>, y: ViewMut<Self>, inverse: ViewMut<Self>);
    /// Its vector-Jacobian product, and `plus` added to `dx`; `dgain` (width).
    #[allow(clippy::too_many_arguments, reason = "one argument for each tensor of the formula")]
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
    );
    /// Causal attention; `qkv` (tokens, 3 heads head_dim), `out` (tokens, heads head_dim), `lse` (tokens, heads).
    fn attention(&self, shape: AttentionShape, qkv: View<Self>, out: ViewMut<Self>, lse: ViewMut<Self>);
    /// Its vector-Jacobian product: `dqkv` is overwritten.
    #[allow(clippy::too_many_arguments, reason = "one argument for each tensor of the formula")]
    fn attention_backward(
        &self,
        shape: AttentionShape,
        qkv: View<Self>,
        out: View<Self>,
        lse: View<Self>,
        dout: View<Self>,
        dqkv: ViewMut<Self>,
    );
    /// `out` (tokens, width) := rows of `table` (vocabulary, width) by id, plus rows of `positions` (context, width) by
    /// place in the sequence.
    fn embed(&self, ids: View<Self, u32>, table: View<Self>, positions: View<Self>, out: ViewMut<Self>, length: usize);
    /// Its vector-Jacobian product.
    fn embed_backward(
        &self,
        ids: View<Self, u32>,
        dout: View<Self>,
        dtable: ViewMut<Self>,
        dpositions: ViewMut<Self>,
        length: usize,
        write: Write,
    );
    /// `loss` (rows) := log-sum-exp of each row of `logits` (rows, classes), kept in `lse` (rows), less the target's logit.
    fn cross_entropy(&self, logits: View<Self>, targets: View<Self, u32>, loss: ViewMut<Self>, lse: ViewMut<Self>);
    /// Its vector-Jacobian product: turns `logits` into their gradient.
    fn cross_entropy_backward(
        &self,
        logits: ViewMut<Self>,
        targets: View<Self, u32>,
        lse: View<Self>,
        dloss: View<Self>,
    );
    /// `loss` (rows) := the mean of (x - t)^2 over each row of `x` and `targets` (rows, width).
    fn squared_error(&self, x: View<Self>, targets: View<Self>, loss: ViewMut<Self>);
    /// Its vector-Jacobian product: `dx` (rows, width).
    fn squared_error_backward(&self, x: View<Self>, targets: View<Self>, dloss: View<Self>, dx: ViewMut<Self>);
    /// `to` := `from`.
    fn widen(&self, to: ViewMut<Self>, from: View<Self, bf16>);
    /// `to` := `from`, rounded to nearest, ties to even; NaN stays NaN.
    fn narrow(&self, to: ViewMut<Self, bf16>, from: View<Self>);
    /// One AdamW step in f32, elementwise: its result does not depend on how a flat buffer is cut. What is stored as bf16
    /// is rounded once, after the step.
    fn adamw<'a>(
        &self,
        step: &AdamW,
        weights: impl Into<Weights<'a, Self>>,
        grads: impl Into<Stored<'a, Self>>,
        m: impl Into<StoredMut<'a, Self>>,
        v: impl Into<StoredMut<'a, Self>>,
    );
    /// Sum of squares, in f64.
    fn sum_squares<'a>(&self, x: impl Into<Stored<'a, Self>>) -> f64;
    /// Sum, in f64.
    fn sum(&self, x: View<Self>) -> f64;
    /// Whether no element is infinite or NaN.
    fn all_finite<'a>(&self, x: impl Into<Stored<'a, Self>>) -> bool;
}
