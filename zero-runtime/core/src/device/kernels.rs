//! Kernels: the operations of a device that compute, or move data within it. One list of their signatures generates the
//! trait and everything that forwards all kernels. Never computes.

use bytemuck::Pod;

use super::{
    AdamW, Agreement, AttentionShape, DecayRun, Element, HyperBlock, Matrix, Nonlinearity, ReportBlock, Rotary, Stored,
    StoredMut, Strided, StridedMut, Then, Weights, Write,
};
use crate::view::{View, ViewMut};

/// Partial sums to which [`Kernels::add_mean`] adds numbers in turn.
pub const MEAN_LANES: usize = 256;

/// Passes the signatures of all kernels to a macro.
#[doc(hidden)]
#[macro_export]
macro_rules! kernels {
    ($make:ident) => {
        $make! {
            /// `to` := `from`.
            fn copy<T: Pod>(&self, to: ViewMut<Self, T>, from: View<Self, T>);
            /// `to` := `value` everywhere.
            fn fill<T: Pod + Send + Sync>(&self, to: ViewMut<Self, T>, value: T);
            /// `to` := `from`, rounded to the nearest number that `to` can store, ties to even; NaN stays NaN.
            fn convert(&self, to: StoredMut<Self>, from: Stored<Self>);
            /// `y` += `x`.
            fn add<E: Element>(&self, y: ViewMut<Self, E>, x: View<Self, E>);
            /// `y` *= `x`, elementwise.
            fn mul<E: Element>(&self, y: ViewMut<Self, E>, x: View<Self, E>);
            /// `y` *= `factor` everywhere.
            fn scale<E: Element>(&self, y: ViewMut<Self, E>, factor: f32);
            /// `y` := `alpha` `x` + `beta` `y`, elementwise.
            fn axpby<E: Element>(&self, alpha: f32, x: View<Self, E>, beta: f32, y: ViewMut<Self, E>);

            /// `c` (m, n) := or += `a` (m, k) `b` (k, n). A sum over k may begin or end with the old value of `c`.
            fn matmul<O: Element, E: Element>(&self, c: ViewMut<Self, O>, a: Matrix<Self, E>, b: Matrix<Self, E>, write: Write);
            /// `y` (rows, output) := `x` (rows, input) times the transpose of `weight` (output, input), plus `bias` (output) in
            /// every row; then applies `then`.
            fn linear<E: Element>(
                &self,
                y: ViewMut<Self, E>,
                x: View<Self, E>,
                weight: Matrix<Self, E>,
                bias: Option<View<Self, E>>,
                then: Then<Self, E>,
            );
            /// `out` (width) := or += the sum of the rows of `x` (rows, width).
            fn sum_rows<E: Element>(&self, x: View<Self, E>, out: ViewMut<Self, f32>, write: Write);
            /// `y` := f(`x`), elementwise.
            fn activate<E: Element>(&self, kind: Nonlinearity, x: View<Self, E>, y: ViewMut<Self, E>);
            /// `dx` := `dy` f'(`x`), elementwise.
            fn activate_backward<E: Element>(
                &self,
                kind: Nonlinearity,
                x: View<Self, E>,
                dy: View<Self, E>,
                dx: ViewMut<Self, E>,
            );

            /// Layer norm of each row: `y` (rows, width) := (`x` - mean) / sqrt(variance + `epsilon`) `gain` + `bias`,
            /// where the variance is the biased one. `stats` (rows, 2) := the mean and 1 / sqrt(variance + epsilon).
            fn layer_norm<E: Element>(
                &self,
                x: View<Self, E>,
                gain: View<Self, E>,
                bias: View<Self, E>,
                y: ViewMut<Self, E>,
                stats: ViewMut<Self, f32>,
                epsilon: f32,
            );
            /// Its vector-Jacobian product: `dx`, if wanted, := the gradient of `x`, and `plus` is added as by [`Kernels::add`];
            /// `dgain` and `dbias` (width) := or += their gradients.
            fn layer_norm_backward<E: Element>(
                &self,
                x: View<Self, E>,
                gain: View<Self, E>,
                stats: View<Self, f32>,
                dy: View<Self, E>,
                dx: Option<ViewMut<Self, E>>,
                plus: Option<View<Self, E>>,
                dgain: ViewMut<Self, f32>,
                dbias: ViewMut<Self, f32>,
                write: Write,
            );
            /// Root-mean-square norm of each row: `y` (rows, width) := `x` / sqrt(mean(x^2) + `epsilon`) `gain`.
            /// `inverse` (rows) := 1 / sqrt(mean(x^2) + epsilon).
            fn rms_norm<E: Element>(
                &self,
                x: View<Self, E>,
                gain: View<Self, E>,
                y: ViewMut<Self, E>,
                inverse: ViewMut<Self, f32>,
                epsilon: f32,
            );
            /// Its vector-Jacobian product, as in [`Kernels::layer_norm_backward`].
            fn rms_norm_backward<E: Element>(
                &self,
                x: View<Self, E>,
                gain: View<Self, E>,
                inverse: View<Self, f32>,
                dy: View<Self, E>,
                dx: Option<ViewMut<Self, E>>,
                plus: Option<View<Self, E>>,
                dgain: ViewMut<Self, f32>,
                write: Write,
            );
            /// RMS norm, as [`Kernels::rms_norm`], of each of `heads` parts of each row. They are the first `heads` x width
            /// features, where the width is that of `gain`; `inverse` is (rows, heads).
            fn rms_norm_heads<E: Element>(
                &self,
                x: Strided<Self, E>,
                heads: usize,
                gain: View<Self, E>,
                y: StridedMut<Self, E>,
                inverse: ViewMut<Self, f32>,
                epsilon: f32,
            );
            /// Its vector-Jacobian product, in place: turns `dy` into the gradient of `x`. `dgain` (width) := or += its
            /// gradient, summed over rows and heads.
            fn rms_norm_heads_backward<E: Element>(
                &self,
                x: Strided<Self, E>,
                heads: usize,
                gain: View<Self, E>,
                inverse: View<Self, f32>,
                dy: StridedMut<Self, E>,
                dgain: ViewMut<Self, f32>,
                write: Write,
            );
            /// `table` (positions, head_dim) := for each position from `first` on, head_dim / 2 cosines, then as many sines.
            /// The angles are the position, in f32, times each frequency of `rotary`, and all entries are multiplied by the
            /// factor of `rotary` for cosines and sines. Heads have an even width, at most [`Kernels::HEAD_DIM_MAX`].
            fn rotary_table(&self, rotary: &Rotary, first: usize, head_dim: usize, table: ViewMut<Self, f32>);
            /// Rotates the first `heads` heads of each row of `x` in place. In each head, features i and i + head_dim / 2, x
            /// and y, become x cos - y sin and y cos + x sin, with cosine and sine i of row t % `length` of `table` (length,
            /// head_dim), where t is the number of the row of `x`. With `back`, the angles are negative: the vector-Jacobian
            /// product.
            fn rotate<E: Element>(
                &self,
                x: StridedMut<Self, E>,
                heads: usize,
                table: View<Self, f32>,
                length: usize,
                back: bool,
            );
            /// `y` (rows, width) := f(the first half of each row of `x`) times the second half, with `x` (rows, 2 width).
            fn gate<E: Element>(&self, kind: Nonlinearity, x: View<Self, E>, y: ViewMut<Self, E>, width: usize);
            /// Its vector-Jacobian product: `dx` (rows, 2 width) := the gradient of `x`, given `dy` (rows, width).
            fn gate_backward<E: Element>(
                &self,
                kind: Nonlinearity,
                x: View<Self, E>,
                dy: View<Self, E>,
                dx: ViewMut<Self, E>,
                width: usize,
            );
            /// Causal attention of each token to itself and earlier tokens of its sequence, or to as many as a window
            /// allows. For each head, `out` (tokens, heads head_dim) := softmax(q k^T / sqrt(head_dim)) v, where
            /// [`AttentionShape`] defines the rows of `q`, `k` and `v`. `lse` (tokens, heads) := the log-sum-exp of
            /// each row of the softmax. Scores may be of any finite size. A key or value that is not finite shows in
            /// the output of all tokens that see it, and may show in that of other tokens of its sequence.
            fn attention<E: Element>(
                &self,
                shape: AttentionShape,
                q: Strided<Self, E>,
                k: Strided<Self, E>,
                v: Strided<Self, E>,
                out: ViewMut<Self, E>,
                lse: ViewMut<Self, f32>,
            );
            /// Its vector-Jacobian product where all tokens have queries (`before` is 0): each row of `dqkv` := the gradients
            /// of a token's queries, then keys, then values.
            fn attention_backward<E: Element>(
                &self,
                shape: AttentionShape,
                q: Strided<Self, E>,
                k: Strided<Self, E>,
                v: Strided<Self, E>,
                out: View<Self, E>,
                lse: View<Self, f32>,
                dout: View<Self, E>,
                dqkv: ViewMut<Self, E>,
            );
            /// `out` (tokens, width) := rows of `table` (vocabulary, width) by id; plus, if there are `positions` (context,
            /// width), their rows by place in the sequence. There are whole sequences of `length` tokens, which is at most the
            /// context.
            fn embed<E: Element>(
                &self,
                ids: View<Self, u32>,
                table: View<Self, E>,
                positions: Option<View<Self, E>>,
                out: ViewMut<Self, E>,
                length: usize,
            );
            /// Its vector-Jacobian product. A row that no token refers to is 0, or left as it is.
            fn embed_backward<E: Element>(
                &self,
                ids: View<Self, u32>,
                dout: View<Self, E>,
                dtable: ViewMut<Self, f32>,
                dpositions: Option<ViewMut<Self, f32>>,
                length: usize,
                write: Write,
            );
            /// `loss` (rows) := the log-sum-exp of each row of `logits` (rows, classes) minus the target's logit. Logits may be
            /// of any finite size.
            fn cross_entropy<E: Element>(&self, logits: View<Self, E>, targets: View<Self, u32>, loss: ViewMut<Self, f32>);
            /// The same, and its vector-Jacobian product: replaces `logits` by their gradient, and each loss's gradient
            /// in `loss` by the loss.
            fn cross_entropy_backward<E: Element>(
                &self,
                logits: ViewMut<Self, E>,
                targets: View<Self, u32>,
                loss: ViewMut<Self, f32>,
            );
            /// `loss` (rows) := the mean of (x - t)^2 over each row of `x` and `targets` (rows, width).
            fn squared_error<E: Element>(&self, x: View<Self, E>, targets: View<Self, f32>, loss: ViewMut<Self, f32>);
            /// Its vector-Jacobian product: `dx` (rows, width).
            fn squared_error_backward<E: Element>(
                &self,
                x: View<Self, E>,
                targets: View<Self, f32>,
                dloss: View<Self, f32>,
                dx: ViewMut<Self, E>,
            );

            /// `to` := or += the sum of `count` stretches along the tree that halves them at powers of two: of n, the
            /// first `n.next_power_of_two() / 2` are summed before the others are added. Summand number `own`, if there
            /// is one, is the content of `to`; `source` is not called for it, and may be called any number of times for
            /// each other summand. All summands have the length and width of `to`. A device whose ranks may be on
            /// several hosts also accepts another width, unless `to` is a summand.
            ///
            /// Sums are f32, each rounded once, and the last is rounded once more to the width of `to`: results must
            /// have exactly the bits of this definition.
            fn reduce<'a>(
                &self,
                to: StoredMut<Self>,
                count: usize,
                own: Option<usize>,
                source: &dyn Fn(usize) -> Stored<'a, Self>,
                write: Write,
            );
            /// `to` (1) += the mean of `x`: its sum in f64, divided by its length. Each of the [`MEAN_LANES`] sums adds up
            /// every [`MEAN_LANES`]-th number; then the upper half of the sums is added onto the lower half, and so on.
            fn add_mean(&self, x: View<Self, f32>, to: ViewMut<Self, f64>);
            /// `to` (1) := the sum of squares, in f64.
            fn squares(&self, x: Stored<Self>, to: ViewMut<Self, f64>);
            /// `report` (1) := the result of `agreement` from the words of all ranks, (ranks, [`Agreement::values`]), and from
            /// `hyper` (1).
            fn agree(
                &self,
                agreement: &Agreement,
                all: View<Self, f64>,
                hyper: View<Self, HyperBlock>,
                report: ViewMut<Self, ReportBlock>,
            );
            /// [`Kernels::adamw`] with the numbers of the blocks. Consecutive runs, at most [`DecayRun::MOST`], say
            /// which elements are subject to weight decay. Does nothing if the report is not finite.
            fn update(
                &self,
                runs: &[DecayRun],
                hyper: View<Self, HyperBlock>,
                report: View<Self, ReportBlock>,
                weights: Weights<Self>,
                grads: Stored<Self>,
                m: StoredMut<Self>,
                v: StoredMut<Self>,
            );
            /// One AdamW step in f32, elementwise: its result does not depend on how a flat buffer is cut. Numbers that are
            /// stored as bf16 are rounded once, after the step.
            fn adamw<'a>(
                &self,
                step: &AdamW,
                weights: impl Into<Weights<'a, Self>>,
                grads: impl Into<Stored<'a, Self>>,
                m: impl Into<StoredMut<'a, Self>>,
                v: impl Into<StoredMut<'a, Self>>,
            );
            /// The momentum of Muon (Jordan et al., 2024), elementwise and in f32, so that its result does not depend on how a
            /// flat buffer is cut. With g, the sums in `gradients` times the report's `grad_scale`: `m` := m + (1 - momentum)
            /// (g - m), and then `gradients` := g + momentum (m - g), Nesterov's direction, with `m` before it is rounded. Does
            /// nothing if the report is not finite.
            fn momentum(
                &self,
                hyper: View<Self, HyperBlock>,
                report: View<Self, ReportBlock>,
                gradients: StoredMut<Self>,
                m: StoredMut<Self>,
            );
            /// `to` := `from` / max(sqrt(`square`), `epsilon`), where `square` (1) is a result of [`Kernels::squares`]. The
            /// divisor is f64, and its reciprocal is rounded to f32.
            fn normalize<E: Element>(&self, to: ViewMut<Self, E>, from: Stored<Self>, square: View<Self, f64>, epsilon: f64);
            /// One step along a `direction`, elementwise: p := p (1 - lr weight_decay) - lr `factor` `direction`. The factors
            /// of p and of the direction are worked out in f64 and rounded to f32. Parameters decay if `decays` is true. Does
            /// nothing if the report is not finite. Parameters that are stored as bf16 are rounded once, after the step.
            fn step_along<E: Element>(
                &self,
                decays: bool,
                factor: f64,
                hyper: View<Self, HyperBlock>,
                report: View<Self, ReportBlock>,
                weights: Weights<Self>,
                direction: View<Self, E>,
            );
            /// Whether all elements are finite. It returns the answer to the host, so no step calls it.
            fn all_finite<'a>(&self, x: impl Into<Stored<'a, Self>>) -> bool;
        }
    };
}

macro_rules! declare {
    ($(
        $(#[$about:meta])*
        fn $name:ident $(<$($lifetime:lifetime)? $($generic:ident: $bound:ident $(+ $more:ident)*),*>)?
        (&self, $($argument:ident: $type:ty),* $(,)?) $(-> $result:ty)?;
    )*) => {
        /// Operations on views of one device's memory. These rules apply to all of them:
        ///
        /// - **Shapes.** Matrices are row-major; `(rows, width)` is a shape. Sizes that are not arguments of an op
        ///   follow from the lengths of its views. An op panics if lengths do not fit. The result for an id beyond its
        ///   table is unspecified, but the op touches no other memory.
        /// - **Order.** Ops take effect in the order of the calls. An op may run after its call has returned; only
        ///   [`Storage::read`](super::Storage::read) waits for it.
        /// - **Aliasing.** The destination of an op overlaps none of its other arguments, unless the op says so.
        /// - **Writing.** `:=` overwrites all of a destination, even if it held NaN; `+=` adds to all of it.
        /// - **Rounding.** A result is computed in f32 or wider, whatever its width in memory, and is rounded once,
        ///   when it is stored: to nearest, ties to even. An implementation may round a product and a sum together, and
        ///   may round a matrix product to the width of its result before adding it to the result. It may approximate
        ///   exponentials and roots to a few units in the last place of an f32. Infinities and NaN show in the result.
        ///   In products of bf16, subnormal factors and sums may count as zeros.
        /// - **Sums.** Their order depends on shapes alone, not on timing or threads, so a repeated op gives the same bits.
        /// - **Queues.** On a device that works asynchronously, an op goes to the queue that
        ///   [`Queues::enter`](super::Queues::enter) chose, and that queue must have waited for all data that the op
        ///   reads from other queues. "All ops so far" are those of all queues.
        #[allow(clippy::too_many_arguments, reason = "one argument for each tensor of the formula")]
        pub trait Kernels: Sized {
            /// The most features of a head in [`Kernels::attention`].
            const HEAD_DIM_MAX: usize;

            /// How many logits a model's head computes at a time: by default as many as stay in a processor's cache.
            const LOGITS: usize = 1 << 18;

            /// The least number of tokens that it computes logits of at a time: enough rows for a matrix product.
            const LOGITS_ROWS_MIN: usize = 64;

            $(
                $(#[$about])*
                fn $name $(<$($lifetime)? $($generic: $bound $(+ $more)*),*>)?
                (&self, $($argument: $type),*) $(-> $result)?;
            )*

            /// [`Kernels::linear`], where each row of `y` has the bits of a call with this row alone. A device that can do it
            /// with one reading of `weight` should.
            fn linear_apart<E: Element>(
                &self,
                mut y: ViewMut<Self, E>,
                x: View<Self, E>,
                weight: Matrix<Self, E>,
                bias: Option<View<Self, E>>,
            ) {
                let [output, input] = weight.size();
                for row in 0..y.len() / output {
                    let y = y.reborrow().part(row * output, output);
                    self.linear(y, x.part(row * input, input), weight, bias, Then::Nothing);
                }
            }

            /// [`Kernels::matmul`] of the rows of `a` (m, k), where each row of `c` has the bits of a call with this row alone.
            fn matmul_apart<O: Element, E: Element>(&self, mut c: ViewMut<Self, O>, a: View<Self, E>, b: Matrix<Self, E>) {
                let [depth, cols] = b.size();
                for row in 0..c.len() / cols {
                    let a = Matrix::new(a.part(row * depth, depth), 1, depth);
                    self.matmul(c.reborrow().part(row * cols, cols), a, b, Write::Set);
                }
            }
        }
    };
}

kernels!(declare);
