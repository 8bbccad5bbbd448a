//! Naive: a second device that is as simple as possible: one plain loop in f32 for each op, one thread, and memory that the host
//! cannot read. Code that runs on it relies on the contract of `Device` and not on the processor. Never fast, never calls a kernel
//! of the processor's device.
//!
//! `memory` has addresses that only the device can use, and notes the bytes that each op touches; `numbers` reads,
//! changes and rounds elements; `attention` and `rotary` are loops of their own. A new op of [`Kernels`] gets its loop here,
//! written from its formula, so that a kernel and its test share no mistake.

mod attention;
mod memory;
mod numbers;
mod rotary;

use std::sync::Arc;

use bytemuck::Pod;
use zero_core::device::{
    AdamW, Agreement, AttentionShape, DecayRun, Device, DeviceError, Element, HyperBlock, Kernels, Matrix,
    Nonlinearity, Queues, ReportBlock, Rotary, Segment, SharedParts, Storage, Stored, StoredMut, Strided, StridedMut,
    Then, Weights, Write,
};
use zero_core::view::{View, ViewMut};

pub use memory::{Hidden, Touch, note_touches, take_touches};
use memory::{hold, look};
use numbers::{
    add_product, begin, by_rows, change, dot, log_sum_exp, nonlinearity, store, sum_of, tree, wide, widened,
};

/// The byte in staging memory that the host has not filled yet: it makes no sensible number of any type.
const STALE: u8 = 0xa5;

/// The device.
#[derive(Clone, Copy, Debug, Default)]
pub struct Naive;

impl Naive {
    /// The gradients of a norm: dx = scale (g - mean(g) - n mean(g n)) with g = dy gain, without the mean of g where rows are
    /// not centred. `rows` gives n, the normalised row, and its scale.
    #[expect(clippy::too_many_arguments, reason = "one argument for each tensor of the formula")]
    fn norm_backward<E: Element>(
        &self,
        x: View<Self, E>,
        gain: View<Self, E>,
        rows: impl Fn(usize, &[f32]) -> (Vec<f32>, f32),
        dy: View<Self, E>,
        mut dx: Option<ViewMut<Self, E>>,
        plus: Option<View<Self, E>>,
        is_centred: bool,
        dgain: ViewMut<Self, f32>,
        write: Write,
    ) {
        let (gain, width, dgain) = (wide(gain), gain.len(), hold(dgain));
        begin(dgain, write);
        let mut gradients = Vec::new();
        for (row, (x, dy)) in wide(x).chunks(width).zip(wide(dy).chunks(width)).enumerate() {
            let (n, scale) = rows(row, x);
            let g: Vec<f32> = dy.iter().zip(&gain).map(|(dy, gain)| dy * gain).collect();
            let mean = if is_centred { g.iter().sum::<f32>() / width as f32 } else { 0.0 };
            let along = dot(&g, &n) / width as f32;
            for i in 0..width {
                dgain[i] += dy[i] * n[i];
                gradients.push(scale * (g[i] - mean - n[i] * along));
            }
        }
        if let Some(dx) = &mut dx {
            change(dx.reborrow(), |dx| dx.copy_from_slice(&gradients));
            if let Some(plus) = plus {
                self.add(dx.reborrow(), plus);
            }
        }
    }
}

impl Device for Naive {
    fn open(_: usize) -> Result<Self, DeviceError> {
        Ok(Self)
    }

    fn beside(&self) -> Self {
        Self
    }
}

impl Storage for Naive {
    type Memory = Hidden;

    fn allocate(&self, bytes: usize) -> Result<Self::Memory, DeviceError> {
        Segment::private(bytes).map(|segment| Hidden(Arc::new(segment)))
    }

    fn share(&self, segment: Arc<Segment>, _parts: SharedParts) -> Result<Self::Memory, DeviceError> {
        Ok(Hidden(segment))
    }

    fn stage<T: Pod>(&self, to: ViewMut<Self, T>, fill: impl FnOnce(&mut [T])) {
        let mut staging = vec![T::zeroed(); to.len()];
        bytemuck::cast_slice_mut::<T, u8>(&mut staging).fill(STALE);
        fill(&mut staging);
        hold(to).copy_from_slice(&staging);
    }

    fn read<T: Pod>(&self, from: View<Self, T>, to: &mut [T]) {
        to.copy_from_slice(look(from));
    }
}

impl Queues for Naive {}

impl Kernels for Naive {
    const HEAD_DIM_MAX: usize = usize::MAX;

    fn copy<T: Pod>(&self, to: ViewMut<Self, T>, from: View<Self, T>) {
        hold(to).copy_from_slice(look(from));
    }

    fn convert(&self, to: StoredMut<Self>, from: Stored<Self>) {
        store(to, &widened(from));
    }

    fn fill<T: Pod + Send + Sync>(&self, to: ViewMut<Self, T>, value: T) {
        hold(to).fill(value);
    }

    fn add<E: Element>(&self, y: ViewMut<Self, E>, x: View<Self, E>) {
        assert_eq!(y.len(), x.len());
        change(y, |y| y.iter_mut().zip(wide(x)).for_each(|(y, x)| *y += x));
    }

    fn mul<E: Element>(&self, y: ViewMut<Self, E>, x: View<Self, E>) {
        assert_eq!(y.len(), x.len());
        change(y, |y| y.iter_mut().zip(wide(x)).for_each(|(y, x)| *y *= x));
    }

    fn scale<E: Element>(&self, y: ViewMut<Self, E>, factor: f32) {
        change(y, |y| y.iter_mut().for_each(|y| *y *= factor));
    }

    fn axpby<E: Element>(&self, alpha: f32, x: View<Self, E>, beta: f32, y: ViewMut<Self, E>) {
        assert_eq!(y.len(), x.len());
        change(y, |y| y.iter_mut().zip(wide(x)).for_each(|(y, x)| *y = alpha * x + beta * *y));
    }

    fn matmul<O: Element, E: Element>(
        &self,
        c: ViewMut<Self, O>,
        a: Matrix<Self, E>,
        b: Matrix<Self, E>,
        write: Write,
    ) {
        let ([m, k], [depth, n]) = (a.size(), b.size());
        assert_eq!((k, c.len()), (depth, m * n));
        change(c, |c| {
            begin(c, write);
            add_product(c, &by_rows(&a), &by_rows(&b.transposed()), k);
        });
    }

    fn linear<E: Element>(
        &self,
        mut y: ViewMut<Self, E>,
        x: View<Self, E>,
        weight: Matrix<Self, E>,
        bias: Option<View<Self, E>>,
        then: Then<Self, E>,
    ) {
        let [output, input] = weight.size();
        let bias = bias.map(wide);
        change(y.reborrow(), |y| {
            y.fill(0.0);
            add_product(y, &wide(x), &by_rows(&weight), input);
            for y in y.chunks_mut(output) {
                y.iter_mut().zip(bias.iter().flatten()).for_each(|(y, bias)| *y += bias);
            }
        });
        then.apply(self, y);
    }

    fn sum_rows<E: Element>(&self, x: View<Self, E>, out: ViewMut<Self, f32>, write: Write) {
        let out = hold(out);
        begin(out, write);
        for row in wide(x).chunks(out.len()) {
            out.iter_mut().zip(row).for_each(|(out, x)| *out += x);
        }
    }

    fn activate<E: Element>(&self, kind: Nonlinearity, x: View<Self, E>, y: ViewMut<Self, E>) {
        assert_eq!(x.len(), y.len());
        change(y, |y| y.iter_mut().zip(wide(x)).for_each(|(y, x)| *y = nonlinearity(kind, x)[0]));
    }

    fn activate_backward<E: Element>(
        &self,
        kind: Nonlinearity,
        x: View<Self, E>,
        dy: View<Self, E>,
        dx: ViewMut<Self, E>,
    ) {
        assert_eq!((x.len(), dy.len()), (dx.len(), dx.len()));
        change(dx, |dx| {
            for ((dx, dy), x) in dx.iter_mut().zip(wide(dy)).zip(wide(x)) {
                *dx = dy * nonlinearity(kind, x)[1];
            }
        });
    }

    fn layer_norm<E: Element>(
        &self,
        x: View<Self, E>,
        gain: View<Self, E>,
        bias: View<Self, E>,
        y: ViewMut<Self, E>,
        stats: ViewMut<Self, f32>,
        epsilon: f32,
    ) {
        let (gain, bias, width) = (wide(gain), wide(bias), gain.len());
        change(y, |y| {
            for ((x, y), stats) in wide(x).chunks(width).zip(y.chunks_mut(width)).zip(hold(stats).chunks_mut(2)) {
                let mean = x.iter().sum::<f32>() / width as f32;
                let variance = x.iter().map(|x| (x - mean) * (x - mean)).sum::<f32>() / width as f32;
                let scale = 1.0 / (variance + epsilon).sqrt();
                stats.copy_from_slice(&[mean, scale]);
                for i in 0..width {
                    y[i] = (x[i] - mean) * scale * gain[i] + bias[i];
                }
            }
        });
    }

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
        self.sum_rows(dy, dbias, write);
        let rows = |row: usize, x: &[f32]| {
            let [mean, scale] = [2 * row, 2 * row + 1].map(|i| look(stats)[i]);
            (x.iter().map(|x| (x - mean) * scale).collect(), scale)
        };
        self.norm_backward(x, gain, rows, dy, dx, plus, true, dgain, write);
    }

    fn rms_norm<E: Element>(
        &self,
        x: View<Self, E>,
        gain: View<Self, E>,
        y: ViewMut<Self, E>,
        inverse: ViewMut<Self, f32>,
        epsilon: f32,
    ) {
        let (gain, width) = (wide(gain), gain.len());
        change(y, |y| {
            for ((x, y), inverse) in wide(x).chunks(width).zip(y.chunks_mut(width)).zip(hold(inverse)) {
                *inverse = 1.0 / (dot(x, x) / width as f32 + epsilon).sqrt();
                for i in 0..width {
                    y[i] = x[i] * *inverse * gain[i];
                }
            }
        });
    }

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
        let rows = |row: usize, x: &[f32]| (x.iter().map(|x| x * look(inverse)[row]).collect(), look(inverse)[row]);
        self.norm_backward(x, gain, rows, dy, dx, plus, false, dgain, write);
    }

    fn rms_norm_heads<E: Element>(
        &self,
        x: Strided<Self, E>,
        heads: usize,
        gain: View<Self, E>,
        y: StridedMut<Self, E>,
        inverse: ViewMut<Self, f32>,
        epsilon: f32,
    ) {
        let (numbers, gain, width, inverse) = (wide(x.view), wide(gain), gain.len(), hold(inverse));
        change(y.view, |to| {
            for (i, inverse) in inverse.iter_mut().enumerate() {
                let part = &numbers[i / heads * x.stride + i % heads * width..][..width];
                *inverse = 1.0 / (dot(part, part) / width as f32 + epsilon).sqrt();
                for (j, x) in part.iter().enumerate() {
                    to[i / heads * y.stride + i % heads * width + j] = x * *inverse * gain[j];
                }
            }
        });
    }

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
        let (numbers, gain, width, dgain) = (wide(x.view), wide(gain), gain.len(), hold(dgain));
        begin(dgain, write);
        change(dy.view, |dy_numbers| {
            for (i, scale) in look(inverse).iter().enumerate() {
                let x = &numbers[i / heads * x.stride + i % heads * width..][..width];
                let dy = &mut dy_numbers[i / heads * dy.stride + i % heads * width..][..width];
                let n: Vec<f32> = x.iter().map(|x| x * scale).collect();
                let g: Vec<f32> = dy.iter().zip(&gain).map(|(dy, gain)| dy * gain).collect();
                let along = dot(&g, &n) / width as f32;
                for j in 0..width {
                    dgain[j] += dy[j] * n[j];
                    dy[j] = scale * (g[j] - n[j] * along);
                }
            }
        });
    }

    fn rotary_table(&self, rotary: &Rotary, first: usize, head_dim: usize, table: ViewMut<Self, f32>) {
        rotary::table(rotary, first, head_dim, hold(table));
    }

    fn rotate<E: Element>(
        &self,
        x: StridedMut<Self, E>,
        heads: usize,
        table: View<Self, f32>,
        length: usize,
        back: bool,
    ) {
        let angles = look(table).chunks(table.len() / length).cycle();
        change(x.view, |rows| {
            rows.chunks_mut(x.stride).zip(angles).for_each(|(row, angles)| rotary::rotate(row, heads, angles, back));
        });
    }

    fn gate<E: Element>(&self, kind: Nonlinearity, x: View<Self, E>, y: ViewMut<Self, E>, width: usize) {
        assert_eq!(x.len(), 2 * y.len());
        change(y, |y| {
            for (x, y) in wide(x).chunks(2 * width).zip(y.chunks_mut(width)) {
                for (i, y) in y.iter_mut().enumerate() {
                    *y = nonlinearity(kind, x[i])[0] * x[width + i];
                }
            }
        });
    }

    fn gate_backward<E: Element>(
        &self,
        kind: Nonlinearity,
        x: View<Self, E>,
        dy: View<Self, E>,
        dx: ViewMut<Self, E>,
        width: usize,
    ) {
        assert_eq!((x.len(), dx.len()), (2 * dy.len(), 2 * dy.len()));
        change(dx, |dx| {
            for ((x, dy), dx) in wide(x).chunks(2 * width).zip(wide(dy).chunks(width)).zip(dx.chunks_mut(2 * width)) {
                for (i, dy) in dy.iter().enumerate() {
                    let [value, slope] = nonlinearity(kind, x[i]);
                    (dx[i], dx[width + i]) = (dy * x[width + i] * slope, dy * value);
                }
            }
        });
    }

    fn attention<E: Element>(
        &self,
        shape: AttentionShape,
        q: Strided<Self, E>,
        k: Strided<Self, E>,
        v: Strided<Self, E>,
        out: ViewMut<Self, E>,
        lse: ViewMut<Self, f32>,
    ) {
        let inputs = attention::Inputs::new(shape, [q, k, v]);
        change(out, |out| attention::forward(&inputs, out, hold(lse)));
    }

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
        let inputs = attention::Inputs::new(shape, [q, k, v]);
        change(dqkv, |dqkv| attention::backward(&inputs, [&wide(out), look(lse), &wide(dout)], dqkv));
    }

    fn embed<E: Element>(
        &self,
        ids: View<Self, u32>,
        table: View<Self, E>,
        positions: Option<View<Self, E>>,
        out: ViewMut<Self, E>,
        length: usize,
    ) {
        let (width, table, positions) = (out.len() / ids.len(), wide(table), positions.map(wide));
        change(out, |out| {
            for (token, (out, &id)) in out.chunks_mut(width).zip(look(ids)).enumerate() {
                for i in 0..width {
                    let position = positions.as_ref().map_or(0.0, |positions| positions[token % length * width + i]);
                    out[i] = table[id as usize * width + i] + position;
                }
            }
        });
    }

    fn embed_backward<E: Element>(
        &self,
        ids: View<Self, u32>,
        dout: View<Self, E>,
        dtable: ViewMut<Self, f32>,
        dpositions: Option<ViewMut<Self, f32>>,
        length: usize,
        write: Write,
    ) {
        let (width, dtable, mut dpositions) = (dout.len() / ids.len(), hold(dtable), dpositions.map(hold));
        begin(dtable, write);
        dpositions.iter_mut().for_each(|dpositions| begin(dpositions, write));
        for (token, (dout, &id)) in wide(dout).chunks(width).zip(look(ids)).enumerate() {
            for i in 0..width {
                dtable[id as usize * width + i] += dout[i];
                if let Some(dpositions) = &mut dpositions {
                    dpositions[token % length * width + i] += dout[i];
                }
            }
        }
    }

    fn cross_entropy<E: Element>(&self, logits: View<Self, E>, targets: View<Self, u32>, loss: ViewMut<Self, f32>) {
        let (targets, loss) = (look(targets), hold(loss));
        for (row, logits) in wide(logits).chunks(logits.len() / targets.len()).enumerate() {
            loss[row] = log_sum_exp(logits) - logits[targets[row] as usize];
        }
    }

    fn cross_entropy_backward<E: Element>(
        &self,
        logits: ViewMut<Self, E>,
        targets: View<Self, u32>,
        loss: ViewMut<Self, f32>,
    ) {
        let (targets, loss, classes) = (look(targets), hold(loss), logits.len() / targets.len());
        change(logits, |logits| {
            for (row, logits) in logits.chunks_mut(classes).enumerate() {
                let (target, lse, dloss) = (targets[row] as usize, log_sum_exp(logits), loss[row]);
                loss[row] = lse - logits[target];
                logits.iter_mut().for_each(|x| *x = (*x - lse).exp() * dloss);
                logits[target] -= dloss;
            }
        });
    }

    fn squared_error<E: Element>(&self, x: View<Self, E>, targets: View<Self, f32>, loss: ViewMut<Self, f32>) {
        let width = x.len() / loss.len();
        for ((x, targets), loss) in wide(x).chunks(width).zip(look(targets).chunks(width)).zip(hold(loss)) {
            *loss = x.iter().zip(targets).map(|(x, t)| (x - t) * (x - t)).sum::<f32>() / width as f32;
        }
    }

    fn squared_error_backward<E: Element>(
        &self,
        x: View<Self, E>,
        targets: View<Self, f32>,
        dloss: View<Self, f32>,
        dx: ViewMut<Self, E>,
    ) {
        let (x, targets, dloss, width) = (wide(x), look(targets), look(dloss), x.len() / dloss.len());
        change(dx, |dx| {
            for (i, dx) in dx.iter_mut().enumerate() {
                *dx = 2.0 * (x[i] - targets[i]) / width as f32 * dloss[i / width];
            }
        });
    }

    fn reduce<'a>(
        &self,
        to: StoredMut<Self>,
        count: usize,
        own: Option<usize>,
        source: &dyn Fn(usize) -> Stored<'a, Self>,
        write: Write,
    ) {
        let held = widened(to.as_stored());
        let summand = |i| if own == Some(i) { held.clone() } else { widened(source(i)) };
        let sum = tree(&(0..count).map(summand).collect::<Vec<_>>());
        store(to, &if write == Write::Add { sum_of(&held, &sum) } else { sum });
    }

    fn add_mean(&self, x: View<Self, f32>, to: ViewMut<Self, f64>) {
        hold(to)[0] += look(x).iter().map(|&x| f64::from(x)).sum::<f64>() / x.len() as f64;
    }

    fn squares(&self, x: Stored<Self>, to: ViewMut<Self, f64>) {
        hold(to)[0] = widened(x).iter().map(|&x| f64::from(x) * f64::from(x)).sum();
    }

    fn agree(
        &self,
        agreement: &Agreement,
        all: View<Self, f64>,
        hyper: View<Self, HyperBlock>,
        report: ViewMut<Self, ReportBlock>,
    ) {
        hold(report)[0] = agreement.report(look(all), &look(hyper)[0]);
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
        let (hyper, report) = (look(hyper)[0], look(report)[0]);
        if report.is_finite() {
            DecayRun::each(runs, weights, grads, m, v, |decays, weights, grads, m, v| {
                self.adamw(&AdamW::of(&hyper, &report, decays), weights, grads, m, v);
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
        let Weights { params, master } = weights.into();
        let (grads, m_to, v_to) = (widened(grads.into()), m.into(), v.into());
        let (mut m, mut v) = (widened(m_to.as_stored()), widened(v_to.as_stored()));
        let mut numbers = widened(master.as_ref().unwrap_or(&params).as_stored());
        let (beta1, beta2, eps) = (step.beta1 as f32, step.beta2 as f32, step.eps as f32);
        for i in 0..numbers.len() {
            let grad = grads[i] * step.grad_scale as f32;
            m[i] = beta1 * m[i] + (1.0 - step.beta1) as f32 * grad;
            v[i] = beta2 * v[i] + (1.0 - step.beta2) as f32 * grad * grad;
            let root = (v[i] / step.correction2 as f32).sqrt() + eps;
            numbers[i] *= (1.0 - step.lr * step.weight_decay) as f32;
            numbers[i] -= step.lr as f32 * (m[i] / step.correction1 as f32) / root;
        }
        store(m_to, &m);
        store(v_to, &v);
        master.into_iter().for_each(|master| store(master, &numbers));
        store(params, &numbers);
    }

    fn momentum(
        &self,
        hyper: View<Self, HyperBlock>,
        report: View<Self, ReportBlock>,
        gradients: StoredMut<Self>,
        m: StoredMut<Self>,
    ) {
        if !look(report)[0].is_finite() {
            return;
        }
        let (decay, grad_scale) = (look(hyper)[0].momentum as f32, look(report)[0].grad_scale as f32);
        let grads: Vec<f32> = widened(gradients.as_stored()).iter().map(|g| g * grad_scale).collect();
        let averages = widened(m.as_stored()).into_iter().zip(&grads);
        let averages: Vec<f32> = averages.map(|(m, g)| decay * m + (1.0 - decay) * g).collect();
        let directions = averages.iter().zip(&grads).map(|(m, g)| decay * m + (1.0 - decay) * g);
        store(gradients, &directions.collect::<Vec<_>>());
        store(m, &averages);
    }

    fn normalize<E: Element>(&self, to: ViewMut<Self, E>, from: Stored<Self>, square: View<Self, f64>, epsilon: f64) {
        let (from, divisor) = (widened(from), look(square)[0].sqrt().max(epsilon));
        assert_eq!(to.len(), from.len());
        change(to, |to| to.iter_mut().zip(from).for_each(|(to, from)| *to = from / divisor as f32));
    }

    fn step_along<E: Element>(
        &self,
        decays: bool,
        factor: f64,
        hyper: View<Self, HyperBlock>,
        report: View<Self, ReportBlock>,
        weights: Weights<Self>,
        direction: View<Self, E>,
    ) {
        let (hyper, Weights { params, master }) = (&look(hyper)[0], weights);
        if !look(report)[0].is_finite() {
            return;
        }
        let mut numbers = widened(master.as_ref().unwrap_or(&params).as_stored());
        assert_eq!(numbers.len(), direction.len());
        for (number, direction) in numbers.iter_mut().zip(wide(direction)) {
            let decay = if decays { hyper.lr * hyper.weight_decay } else { 0.0 };
            *number = *number * (1.0 - decay) as f32 - (hyper.lr * factor) as f32 * direction;
        }
        master.into_iter().for_each(|master| store(master, &numbers));
        store(params, &numbers);
    }

    fn all_finite<'a>(&self, x: impl Into<Stored<'a, Self>>) -> bool {
        widened(x.into()).iter().all(|x| x.is_finite())
    }
}
