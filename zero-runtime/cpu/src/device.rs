//! `Cpu`: the kernels of this folder as a [`Device`]. Each kernel is called once for each piece of its work; attention
//! and the sums of ranks and of squares share their own work. Never computes.

use std::num::NonZeroUsize;
use std::sync::Arc;

use bytemuck::Pod;

use super as kernels;
use super::scraps::keep_scraps;
use super::simd::check_len;
use super::{Cpu, MatrixMut, attention, features};
use zero_core::device::{
    AdamW, Agreement, AttentionShape, DecayRun, Device, DeviceError, Element, HyperBlock, Kernels, Matrix,
    Nonlinearity, Queues, ReportBlock, Rotary, STACK_BYTES, Segment, SharedParts, Storage, Stored, StoredMut, Strided,
    StridedMut, Then, Weights, Write,
};
use zero_core::view::{HostMemory, View, ViewMut};

fn matrix<'a, E: Element>(matrix: &Matrix<'a, Cpu, E>) -> kernels::StridedMatrix<'a, E> {
    let stored = kernels::StridedMatrix::new(matrix.view.as_slice(), matrix.rows, matrix.cols);
    if matrix.transposed { stored.transposed() } else { stored }
}

fn strided<'a, E: Element>(rows: Strided<'a, Cpu, E>, width: usize) -> kernels::StridedSlice<'a, E> {
    kernels::StridedSlice::new(rows.view.as_slice(), rows.stride, width)
}

fn strided_mut<'a, E: Element>(rows: StridedMut<'a, Cpu, E>, width: usize) -> kernels::StridedSliceMut<'a, E> {
    kernels::StridedSliceMut::new(rows.view.into_slice(), rows.stride, width)
}

// SAFETY: its memory is that of this process.
#[allow(unsafe_code)]
unsafe impl HostMemory for Cpu {}

impl Device for Cpu {
    const FEATURES: &'static [&'static str] = &features::NAMES;

    fn features() -> u64 {
        features::found()
    }

    fn open(_: usize) -> Result<Self, DeviceError> {
        Ok(Self::ONE_THREAD)
    }

    fn beside(&self) -> Self {
        Self::ONE_THREAD
    }

    fn on_threads<R: Send>(
        self,
        threads: NonZeroUsize,
        name: &str,
        work: impl FnOnce(Self) -> R + Send,
    ) -> Result<R, DeviceError> {
        if threads == NonZeroUsize::MIN {
            keep_scraps();
            return Ok(work(Self { threads, ..self }));
        }
        Ok(pool(threads, name)?.install(|| work(Self { threads, ..self })))
    }
}

/// Threads that share work, called `name` and a number.
pub(super) fn pool(threads: NonZeroUsize, name: &str) -> Result<rayon::ThreadPool, DeviceError> {
    let name = name.to_owned();
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads.get()).stack_size(STACK_BYTES);
    let pool = pool.thread_name(move |index| format!("{name}.{index}")).start_handler(|_| keep_scraps()).build();
    pool.map_err(|error| DeviceError::system("start a thread")(std::io::Error::other(error)))
}

impl Cpu {
    /// `y` (rows, output) := `x` (rows, input) times the transpose of `weight` (output, input), plus `bias`, by the kernel for few
    /// rows, however many there are.
    fn few_rows<O: Element, E: Element>(
        &self,
        y: ViewMut<Self, O>,
        x: View<Self, E>,
        weight: kernels::StridedMatrix<E>,
        bias: Option<&[E]>,
    ) {
        let (rows, depth, output) = (y.len() / weight.rows(), weight.cols(), weight.rows());
        check_len("bias", bias.map_or(output, <[E]>::len), output);
        let x = kernels::StridedMatrix::new(x.as_slice(), rows, depth);
        let y = MatrixMut::new(y.into_slice(), rows, output);
        self.by_columns(depth, output, (y, weight), |(y, weight)| {
            kernels::few_rows(y, x, weight.transposed(), |to, column, sum| {
                *to = O::narrow(bias.map_or(sum, |bias| sum + bias[column].widen()));
            });
        });
    }
}

impl Storage for Cpu {
    type Memory = Arc<Segment>;

    fn allocate(&self, bytes: usize) -> Result<Self::Memory, DeviceError> {
        Segment::private(bytes).map(Arc::new)
    }

    fn share(&self, segment: Arc<Segment>, _parts: SharedParts) -> Result<Self::Memory, DeviceError> {
        Ok(segment)
    }

    fn stage<T: Pod>(&self, to: ViewMut<Self, T>, fill: impl FnOnce(&mut [T])) {
        fill(to.into_slice());
    }

    fn read<T: Pod>(&self, from: View<Self, T>, to: &mut [T]) {
        to.copy_from_slice(from.as_slice());
    }
}

impl Queues for Cpu {}

impl Kernels for Cpu {
    const HEAD_DIM_MAX: usize = attention::HEAD_DIM_MAX;

    fn copy<T: Pod>(&self, to: ViewMut<Self, T>, from: View<Self, T>) {
        let (to, from) = (to.cast::<u8>(), from.cast::<u8>());
        self.by_elements(to.len(), (to.into_slice(), from.as_slice()), |(to, from)| to.copy_from_slice(from));
    }

    fn fill<T: Pod + Send + Sync>(&self, to: ViewMut<Self, T>, value: T) {
        self.by_elements(to.len(), to.into_slice(), |to| to.fill(value));
    }

    #[inline(never)]
    fn add<E: Element>(&self, y: ViewMut<Self, E>, x: View<Self, E>) {
        self.by_elements(y.len(), (y.into_slice(), x.as_slice()), |(y, x)| kernels::add(y, x));
    }

    #[inline(never)]
    fn mul<E: Element>(&self, y: ViewMut<Self, E>, x: View<Self, E>) {
        self.by_elements(y.len(), (y.into_slice(), x.as_slice()), |(y, x)| kernels::mul(y, x));
    }

    #[inline(never)]
    fn scale<E: Element>(&self, y: ViewMut<Self, E>, factor: f32) {
        self.by_elements(y.len(), y.into_slice(), |y| kernels::scale(y, factor));
    }

    #[inline(never)]
    fn axpby<E: Element>(&self, alpha: f32, x: View<Self, E>, beta: f32, y: ViewMut<Self, E>) {
        self.by_elements(y.len(), (x.as_slice(), y.into_slice()), |(x, y)| kernels::axpby(alpha, x, beta, y));
    }

    #[inline(never)]
    fn matmul<O: Element, E: Element>(
        &self,
        c: ViewMut<Self, O>,
        a: Matrix<Self, E>,
        b: Matrix<Self, E>,
        write: Write,
    ) {
        let ([rows, depth], [_, cols]) = (a.size(), b.size());
        let (c, a, b) = (MatrixMut::new(c.into_slice(), rows, cols), matrix(&a), matrix(&b));
        if kernels::are_few(&a, &b) {
            return self.by_columns(depth, cols, (c, b.transposed()), |(c, b)| {
                kernels::few_rows(c, a, b.transposed(), |to, _, sum| {
                    *to = O::narrow(if write == Write::Add { to.widen() + sum } else { sum });
                });
            });
        }
        self.by_products([rows, depth, cols], c, |c| kernels::matmul(c, a, b, write));
    }

    #[inline(never)]
    fn linear<E: Element>(
        &self,
        mut y: ViewMut<Self, E>,
        x: View<Self, E>,
        weight: Matrix<Self, E>,
        bias: Option<View<Self, E>>,
        then: Then<Self, E>,
    ) {
        let (weight, bias) = (matrix(&weight), bias.map(View::as_slice));
        let (rows, depth, output) = (y.len() / weight.rows(), weight.cols(), weight.rows());
        let rows_of_x = kernels::StridedMatrix::new(x.as_slice(), rows, depth);
        if kernels::are_few(&rows_of_x, &weight.transposed()) {
            self.few_rows(y.reborrow(), x, weight, bias);
            return then.apply(self, y);
        }
        let then = match then {
            Then::Nothing => kernels::ThenBlock::Nothing,
            Then::Activate(kind, to) => {
                kernels::ThenBlock::Activate(kind, MatrixMut::new(to.into_slice(), rows, output))
            }
            Then::Add(other) => kernels::ThenBlock::Add(kernels::StridedMatrix::new(other.as_slice(), rows, output)),
        };
        let y = MatrixMut::new(y.into_slice(), rows, output);
        self.by_products([rows, depth, output], (y, then), |(y, then)| {
            kernels::linear(y, rows_of_x, weight, bias, then)
        });
    }

    #[inline(never)]
    fn linear_apart<E: Element>(
        &self,
        y: ViewMut<Self, E>,
        x: View<Self, E>,
        weight: Matrix<Self, E>,
        bias: Option<View<Self, E>>,
    ) {
        self.few_rows(y, x, matrix(&weight), bias.map(View::as_slice));
    }

    #[inline(never)]
    fn matmul_apart<O: Element, E: Element>(&self, c: ViewMut<Self, O>, a: View<Self, E>, b: Matrix<Self, E>) {
        self.few_rows(c, a, matrix(&b).transposed(), None);
    }

    #[inline(never)]
    fn sum_rows<E: Element>(&self, x: View<Self, E>, out: ViewMut<Self, f32>, write: Write) {
        let (x, width) = (x.as_slice(), out.len());
        self.by_columns(x.len() / width, width, (0..width, out.into_slice()), |(columns, out)| {
            kernels::sum_columns(x, width, columns, out, write);
        });
    }

    #[inline(never)]
    fn activate<E: Element>(&self, kind: Nonlinearity, x: View<Self, E>, y: ViewMut<Self, E>) {
        self.by_elements(x.len(), (x.as_slice(), y.into_slice()), |(x, y)| kernels::activate(kind, x, y));
    }

    #[inline(never)]
    fn activate_backward<E: Element>(
        &self,
        kind: Nonlinearity,
        x: View<Self, E>,
        dy: View<Self, E>,
        dx: ViewMut<Self, E>,
    ) {
        let parts = (x.as_slice(), dy.as_slice(), dx.into_slice());
        self.by_elements(x.len(), parts, |(x, dy, dx)| kernels::activate_backward(kind, x, dy, dx));
    }

    #[inline(never)]
    fn layer_norm<E: Element>(
        &self,
        x: View<Self, E>,
        gain: View<Self, E>,
        bias: View<Self, E>,
        y: ViewMut<Self, E>,
        stats: ViewMut<Self, f32>,
        epsilon: f32,
    ) {
        let (gain, bias) = (gain.as_slice(), bias.as_slice());
        let parts = (x.as_slice(), y.into_slice(), stats.into_slice());
        self.by_rows(x.len() / gain.len(), gain.len(), parts, |(x, y, stats)| {
            kernels::layer_norm(x, gain, bias, y, stats, epsilon);
        });
    }

    #[inline(never)]
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
    ) {
        let (x, gain, stats, dy) = (x.as_slice(), gain.as_slice(), stats.as_slice(), dy.as_slice());
        let (dgain, dbias, width) = (dgain.into_slice(), dbias.into_slice(), gain.len());
        let (dx, plus) = (dx.map(ViewMut::into_slice), plus.map(View::as_slice));
        if let Some(dx) = dx {
            // One thread does all in one pass; threads that share the work take rows, or columns of all rows.
            if !self.shares(x.len()) {
                return kernels::layer_norm_backward(x, gain, stats, dy, dx, plus, dgain, dbias, write);
            }
            self.by_rows(x.len() / width, width, (x, stats, dy, dx, plus), |(x, stats, dy, dx, plus)| {
                kernels::layer_norm_dx(x, gain, stats, dy, dx, plus);
            });
        }
        self.by_columns(x.len() / width, width, (0..width, dgain, dbias), |(columns, dgain, dbias)| {
            kernels::layer_norm_dparams(x, stats, dy, width, columns, dgain, dbias, write);
        });
    }

    #[inline(never)]
    fn rms_norm<E: Element>(
        &self,
        x: View<Self, E>,
        gain: View<Self, E>,
        y: ViewMut<Self, E>,
        inverse: ViewMut<Self, f32>,
        epsilon: f32,
    ) {
        let gain = gain.as_slice();
        let parts = (x.as_slice(), y.into_slice(), inverse.into_slice());
        self.by_rows(x.len() / gain.len(), gain.len(), parts, |(x, y, inverse)| {
            kernels::rms_norm(x, gain, y, inverse, epsilon);
        });
    }

    #[inline(never)]
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
    ) {
        let (x, gain, inverse, dy) = (x.as_slice(), gain.as_slice(), inverse.as_slice(), dy.as_slice());
        let (dgain, width) = (dgain.into_slice(), gain.len());
        let (dx, plus) = (dx.map(ViewMut::into_slice), plus.map(View::as_slice));
        if let Some(dx) = dx {
            if !self.shares(x.len()) {
                return kernels::rms_norm_backward(x, gain, inverse, dy, dx, plus, dgain, write);
            }
            self.by_rows(x.len() / width, width, (x, inverse, dy, dx, plus), |(x, inverse, dy, dx, plus)| {
                kernels::rms_norm_dx(x, gain, inverse, dy, dx, plus);
            });
        }
        self.by_columns(x.len() / width, width, (0..width, dgain), |(columns, dgain)| {
            kernels::rms_norm_dgain(x, inverse, dy, width, columns, dgain, write);
        });
    }

    #[inline(never)]
    fn rms_norm_heads<E: Element>(
        &self,
        x: Strided<Self, E>,
        heads: usize,
        gain: View<Self, E>,
        y: StridedMut<Self, E>,
        inverse: ViewMut<Self, f32>,
        epsilon: f32,
    ) {
        let gain = gain.as_slice();
        let (x, y) = (strided(x, heads * gain.len()), strided_mut(y, heads * gain.len()));
        self.by_rows(x.rows(), x.width(), (x, y, inverse.into_slice()), |(x, y, inverse)| {
            kernels::rms_norm_heads(x, gain, y, inverse, epsilon);
        });
    }

    #[inline(never)]
    fn rms_norm_heads_backward<E: Element>(
        &self,
        x: Strided<Self, E>,
        heads: usize,
        gain: View<Self, E>,
        inverse: View<Self, f32>,
        dy: StridedMut<Self, E>,
        dgain: ViewMut<Self, f32>,
        write: Write,
    ) {
        let (gain, inverse, dgain) = (gain.as_slice(), inverse.as_slice(), dgain.into_slice());
        let (x, dy, width) = (strided(x, heads * gain.len()), strided_mut(dy, heads * gain.len()), gain.len());
        if !self.shares(x.rows() * x.width()) {
            return kernels::rms_norm_heads_backward(x, gain, inverse, dy, dgain, write);
        }
        // First the gradient of the gain, which reads `dy` before it is overwritten.
        let given = dy.as_rows();
        self.by_columns(x.rows() * heads, width, (0..width, dgain), |(columns, dgain)| {
            kernels::rms_norm_heads_dgain(x, width, inverse, given, columns, dgain, write);
        });
        self.by_rows(x.rows(), x.width(), (x, inverse, dy), |(x, inverse, dy)| {
            kernels::rms_norm_heads_dx(x, gain, inverse, dy);
        });
    }

    fn rotary_table(&self, rotary: &Rotary, first: usize, head_dim: usize, table: ViewMut<Self, f32>) {
        let rows = table.len() / head_dim;
        self.by_rows(rows, head_dim, (first..first + rows, table.into_slice()), |(positions, table)| {
            kernels::rotary_table(rotary, positions, head_dim, table);
        });
    }

    #[inline(never)]
    fn rotate<E: Element>(
        &self,
        x: StridedMut<Self, E>,
        heads: usize,
        table: View<Self, f32>,
        length: usize,
        back: bool,
    ) {
        let table = table.as_slice();
        let x = strided_mut(x, heads * (table.len() / length));
        self.by_rows(x.rows(), x.width(), (0..x.rows(), x), |(rows, x)| {
            kernels::rotate(x, rows.start, table, length, back);
        });
    }

    #[inline(never)]
    fn gate<E: Element>(&self, kind: Nonlinearity, x: View<Self, E>, y: ViewMut<Self, E>, width: usize) {
        self.by_rows(y.len() / width, width, (x.as_slice(), y.into_slice()), |(x, y)| kernels::gate(kind, x, y, width));
    }

    #[inline(never)]
    fn gate_backward<E: Element>(
        &self,
        kind: Nonlinearity,
        x: View<Self, E>,
        dy: View<Self, E>,
        dx: ViewMut<Self, E>,
        width: usize,
    ) {
        let parts = (x.as_slice(), dy.as_slice(), dx.into_slice());
        self.by_rows(dy.len() / width, width, parts, |(x, dy, dx)| kernels::gate_backward(kind, x, dy, dx, width));
    }

    #[inline(never)]
    fn attention<E: Element>(
        &self,
        shape: AttentionShape,
        q: Strided<Self, E>,
        k: Strided<Self, E>,
        v: Strided<Self, E>,
        out: ViewMut<Self, E>,
        lse: ViewMut<Self, f32>,
    ) {
        kernels::attention(*self, shape, [q, k, v], out.into_slice(), lse.into_slice());
    }

    #[inline(never)]
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
    ) {
        let (out, lse, dout) = (out.as_slice(), lse.as_slice(), dout.as_slice());
        kernels::attention_backward(*self, shape, [q, k, v], out, lse, dout, dqkv.into_slice());
    }

    #[inline(never)]
    fn embed<E: Element>(
        &self,
        ids: View<Self, u32>,
        table: View<Self, E>,
        positions: Option<View<Self, E>>,
        out: ViewMut<Self, E>,
        length: usize,
    ) {
        let (table, positions) = (table.as_slice(), positions.map(View::as_slice));
        // Whole sequences, since a token's position is counted from the start of a call.
        let sequences = ids.len() / length;
        self.by_rows(sequences, out.len() / sequences, (ids.as_slice(), out.into_slice()), |(ids, out)| {
            kernels::embed(ids, table, positions, out, length);
        });
    }

    #[inline(never)]
    fn embed_backward<E: Element>(
        &self,
        ids: View<Self, u32>,
        dout: View<Self, E>,
        dtable: ViewMut<Self, f32>,
        dpositions: Option<ViewMut<Self, f32>>,
        length: usize,
        write: Write,
    ) {
        let (ids, dout, dtable) = (ids.as_slice(), dout.as_slice(), dtable.into_slice());
        let (mut dpositions, width) = (dpositions.map(ViewMut::into_slice), dout.len() / ids.len());
        if write == Write::Set {
            for gradient in [Some(&mut *dtable), dpositions.as_deref_mut()].into_iter().flatten() {
                self.by_elements(gradient.len(), gradient, |gradient| gradient.fill(0.0));
            }
        }
        let parts =
            (MatrixMut::of_width(dtable, width), dpositions.map(|gradient| MatrixMut::of_width(gradient, width)));
        self.by_columns(ids.len(), width, parts, |(dtable, dpositions)| {
            kernels::embed_backward(ids, dout, dtable, dpositions, length);
        });
    }

    #[inline(never)]
    fn cross_entropy<E: Element>(&self, logits: View<Self, E>, targets: View<Self, u32>, loss: ViewMut<Self, f32>) {
        let (rows, classes) = (targets.len(), logits.len() / targets.len());
        let parts = (logits.as_slice(), targets.as_slice(), loss.into_slice());
        self.by_rows(rows, classes, parts, |(logits, targets, loss)| kernels::cross_entropy(logits, targets, loss));
    }

    #[inline(never)]
    fn cross_entropy_backward<E: Element>(
        &self,
        logits: ViewMut<Self, E>,
        targets: View<Self, u32>,
        loss: ViewMut<Self, f32>,
    ) {
        let (rows, classes) = (targets.len(), logits.len() / targets.len());
        let parts = (logits.into_slice(), targets.as_slice(), loss.into_slice());
        self.by_rows(rows, classes, parts, |(logits, targets, loss)| {
            kernels::cross_entropy_backward(logits, targets, loss);
        });
    }

    #[inline(never)]
    fn squared_error<E: Element>(&self, x: View<Self, E>, targets: View<Self, f32>, loss: ViewMut<Self, f32>) {
        let (rows, width) = (loss.len(), x.len() / loss.len());
        self.by_rows(rows, width, (x.as_slice(), targets.as_slice(), loss.into_slice()), |(x, targets, loss)| {
            kernels::squared_error(x, targets, loss);
        });
    }

    #[inline(never)]
    fn squared_error_backward<E: Element>(
        &self,
        x: View<Self, E>,
        targets: View<Self, f32>,
        dloss: View<Self, f32>,
        dx: ViewMut<Self, E>,
    ) {
        let (rows, width) = (dloss.len(), x.len() / dloss.len());
        let parts = (x.as_slice(), targets.as_slice(), dloss.as_slice(), dx.into_slice());
        self.by_rows(rows, width, parts, |(x, targets, dloss, dx)| {
            kernels::squared_error_backward(x, targets, dloss, dx);
        });
    }

    fn convert(&self, to: StoredMut<Self>, from: Stored<Self>) {
        self.by_elements(to.len(), (to, from), |(to, from)| kernels::stored::convert(to, from));
    }

    fn reduce<'a>(
        &self,
        to: StoredMut<Self>,
        count: usize,
        own: Option<usize>,
        source: &dyn Fn(usize) -> Stored<'a, Self>,
        write: Write,
    ) {
        kernels::reduce(*self, to, count, own, source, write);
    }

    fn add_mean(&self, x: View<Self, f32>, to: ViewMut<Self, f64>) {
        to.into_slice()[0] += kernels::sum(x.as_slice()) / x.len() as f64;
    }

    fn squares(&self, x: Stored<Self>, to: ViewMut<Self, f64>) {
        to.into_slice()[0] = kernels::stored::sum_squares(*self, x);
    }

    fn agree(
        &self,
        agreement: &Agreement,
        all: View<Self, f64>,
        hyper: View<Self, HyperBlock>,
        report: ViewMut<Self, ReportBlock>,
    ) {
        report.into_slice()[0] = agreement.report(all.as_slice(), &hyper.as_slice()[0]);
    }

    fn update(
        &self,
        runs: &[DecayRun],
        hyper: View<Self, HyperBlock>,
        report: View<Self, ReportBlock>,
        weights: Weights<Self>,
        grads: Stored<Self>,
        m: StoredMut<Self>,
        v: StoredMut<Self>,
    ) {
        let (hyper, report) = (&hyper.as_slice()[0], &report.as_slice()[0]);
        if report.is_finite() {
            DecayRun::each(runs, weights, grads, m, v, |decays, weights, grads, m, v| {
                self.adamw(&AdamW::of(hyper, report, decays), weights, grads, m, v);
            });
        }
    }

    fn adamw<'a>(
        &self,
        step: &AdamW,
        weights: impl Into<Weights<'a, Self>>,
        grads: impl Into<Stored<'a, Self>>,
        m: impl Into<StoredMut<'a, Self>>,
        v: impl Into<StoredMut<'a, Self>>,
    ) {
        let parts = (weights.into(), grads.into(), m.into(), v.into());
        self.by_elements(parts.1.len(), parts, |(weights, grads, m, v)| {
            kernels::stored::adamw(step, weights, grads, m, v);
        });
    }

    fn momentum(
        &self,
        hyper: View<Self, HyperBlock>,
        report: View<Self, ReportBlock>,
        gradients: StoredMut<Self>,
        m: StoredMut<Self>,
    ) {
        let (hyper, report) = (&hyper.as_slice()[0], &report.as_slice()[0]);
        if report.is_finite() {
            self.by_elements(gradients.len(), (gradients, m), |(gradients, m)| {
                kernels::stored::momentum(hyper.momentum, report.grad_scale, gradients, m);
            });
        }
    }

    #[inline(never)]
    fn normalize<E: Element>(&self, to: ViewMut<Self, E>, from: Stored<Self>, square: View<Self, f64>, epsilon: f64) {
        let factor = square.as_slice()[0].sqrt().max(epsilon).recip() as f32;
        self.by_elements(to.len(), (to.into_slice(), from), |(to, from)| {
            kernels::stored::scaled(to, from, factor);
        });
    }

    #[inline(never)]
    fn step_along<E: Element>(
        &self,
        decays: bool,
        factor: f64,
        hyper: View<Self, HyperBlock>,
        report: View<Self, ReportBlock>,
        weights: Weights<Self>,
        direction: View<Self, E>,
    ) {
        let (hyper, report) = (&hyper.as_slice()[0], &report.as_slice()[0]);
        let keep = if decays { (1.0 - hyper.lr * hyper.weight_decay) as f32 } else { 1.0 };
        let size = (hyper.lr * factor) as f32;
        if report.is_finite() {
            self.by_elements(direction.len(), (weights, direction.as_slice()), |(weights, direction)| {
                kernels::stored::step_along(keep, size, weights, direction);
            });
        }
    }

    fn all_finite<'a>(&self, x: impl Into<Stored<'a, Self>>) -> bool {
        kernels::stored::all_finite(x.into())
    }
}

#[cfg(test)]
mod tests;
