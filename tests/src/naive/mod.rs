//! Naive: a second device, as simple as can be: one plain loop in f32 for each op, one thread, and memory that the host
//! cannot read. What runs on it rests on the contract of `Device` and not on the processor. Never fast, never calls a kernel
//! of the processor's device.

mod attention;
mod memory;

use std::sync::Arc;

use bytemuck::Pod;
use zero_runtime::device::{
    AdamW, Agreement, AttentionShape, Device, Element, HyperBlock, Matrix, Nonlinearity, ReportBlock, Stored,
    StoredMut, Then, Weights, Write, bf16,
};
use zero_runtime::launch::{LaunchError, Segment};
use zero_runtime::view::{View, ViewMut};

pub use memory::Hidden;
use memory::{hold, look};

/// What is staged before the host has filled it: bytes that make no sensible number of any kind.
const STALE: u8 = 0xa5;

/// The device.
#[derive(Clone, Copy, Debug, Default)]
pub struct Naive;

fn dot(x: &[f32], y: &[f32]) -> f32 {
    assert_eq!(x.len(), y.len());
    x.iter().zip(y).map(|(x, y)| x * y).sum()
}

fn log_sum_exp(x: &[f32]) -> f32 {
    let largest = x.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    largest + x.iter().map(|x| (x - largest).exp()).sum::<f32>().ln()
}

/// f(x), and f'(x).
fn nonlinearity(kind: Nonlinearity, x: f32) -> [f32; 2] {
    match kind {
        Nonlinearity::Gelu => {
            let scale = (2.0 / std::f32::consts::PI).sqrt();
            let tanh = (scale * (x + 0.044_715 * x * x * x)).tanh();
            let slope = scale * (1.0 + 3.0 * 0.044_715 * x * x);
            [0.5 * x * (1.0 + tanh), 0.5 * (1.0 + tanh) + 0.5 * x * (1.0 - tanh * tanh) * slope]
        }
        Nonlinearity::Relu if x < 0.0 => [0.0, 0.0],
        Nonlinearity::Relu => [x, if x > 0.0 { 1.0 } else { 0.0 }],
        Nonlinearity::Silu => {
            let gate = 1.0 / (1.0 + (-x).exp());
            [x * gate, gate * (1.0 + x * (1.0 - gate))]
        }
    }
}

/// Makes room for what is added to it.
fn begin(to: &mut [f32], write: Write) {
    if write == Write::Set {
        to.fill(0.0);
    }
}

/// Element (i, j) of a matrix or of its transpose.
fn element(matrix: &Matrix<Naive>, i: usize, j: usize) -> f32 {
    let [i, j] = if matrix.transposed { [j, i] } else { [i, j] };
    look(matrix.view)[i * matrix.cols + j]
}

fn widened(stored: Stored<Naive>) -> Vec<f32> {
    match stored {
        Stored::F32(view) => look(view).to_vec(),
        Stored::BF16(view) => look(view).iter().map(|x| x.widen()).collect(),
    }
}

fn store(to: StoredMut<Naive>, numbers: &[f32]) {
    match to {
        StoredMut::F32(to) => hold(to).copy_from_slice(numbers),
        StoredMut::BF16(to) => {
            assert_eq!(to.len(), numbers.len());
            hold(to).iter_mut().zip(numbers).for_each(|(to, &number)| *to = bf16::narrow(number));
        }
    }
}

fn sum_of(x: &[f32], y: &[f32]) -> Vec<f32> {
    assert_eq!(x.len(), y.len());
    x.iter().zip(y).map(|(x, y)| x + y).collect()
}

/// The sum along the tree that halves at powers of two.
fn tree(summands: &[Vec<f32>]) -> Vec<f32> {
    match summands {
        [one] => one.clone(),
        _ => {
            let (left, right) = summands.split_at(summands.len().next_power_of_two() / 2);
            sum_of(&tree(left), &tree(right))
        }
    }
}

/// dx = scale (g - mean(g) - n mean(g n)) with g = dy gain, where n is the normalised row; without the mean of g where rows
/// are not centred. Adds to `dgain` what the row brings.
fn norm_row_backward(
    [n, gain, dy]: [&[f32]; 3],
    scale: f32,
    is_centred: bool,
    dx: Option<(&mut [f32], Option<&[f32]>)>,
    dgain: &mut [f32],
) {
    let width = gain.len() as f32;
    let g: Vec<f32> = dy.iter().zip(gain).map(|(dy, gain)| dy * gain).collect();
    let mean = if is_centred { g.iter().sum::<f32>() / width } else { 0.0 };
    let along = dot(&g, n) / width;
    for i in 0..gain.len() {
        dgain[i] += dy[i] * n[i];
    }
    if let Some((dx, plus)) = dx {
        for i in 0..gain.len() {
            dx[i] = scale * (g[i] - mean - n[i] * along);
            dx[i] += plus.map_or(0.0, |plus| plus[i]);
        }
    }
}

impl Device for Naive {
    const HEAD_DIM_MAX: usize = usize::MAX;

    type Memory = Hidden;

    fn allocate(&self, bytes: usize) -> Result<Hidden, LaunchError> {
        Segment::private(bytes).map(|segment| Hidden(Arc::new(segment)))
    }

    fn share(&self, segment: Arc<Segment>) -> Result<Hidden, LaunchError> {
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

    fn copy(&self, to: ViewMut<Self>, from: View<Self>) {
        hold(to).copy_from_slice(look(from));
    }

    fn convert(&self, to: StoredMut<Self>, from: Stored<Self>) {
        store(to, &widened(from));
    }

    fn widen(&self, to: ViewMut<Self>, from: View<Self, bf16>) {
        self.convert(to.into(), from.into());
    }

    fn narrow(&self, to: ViewMut<Self, bf16>, from: View<Self>) {
        self.convert(to.into(), from.into());
    }

    fn fill(&self, to: ViewMut<Self>, value: f32) {
        hold(to).fill(value);
    }

    fn add(&self, y: ViewMut<Self>, x: View<Self>) {
        assert_eq!(y.len(), x.len());
        hold(y).iter_mut().zip(look(x)).for_each(|(y, x)| *y += x);
    }

    fn mul(&self, y: ViewMut<Self>, x: View<Self>) {
        assert_eq!(y.len(), x.len());
        hold(y).iter_mut().zip(look(x)).for_each(|(y, x)| *y *= x);
    }

    fn scale(&self, y: ViewMut<Self>, factor: f32) {
        hold(y).iter_mut().for_each(|y| *y *= factor);
    }

    fn matmul(&self, c: ViewMut<Self>, a: Matrix<Self>, b: Matrix<Self>, write: Write) {
        let ([m, k], [depth, n]) = (a.size(), b.size());
        assert_eq!((k, c.len()), (depth, m * n));
        let c = hold(c);
        begin(c, write);
        for i in 0..m {
            for j in 0..n {
                c[i * n + j] += (0..k).map(|l| element(&a, i, l) * element(&b, l, j)).sum::<f32>();
            }
        }
    }

    fn linear(
        &self,
        mut y: ViewMut<Self>,
        x: View<Self>,
        weight: Matrix<Self>,
        bias: Option<View<Self>>,
        then: Then<Self>,
    ) {
        let [output, input] = weight.size();
        let rows = x.len() / input;
        self.matmul(y.reborrow(), Matrix::new(x, rows, input), weight.transposed(), Write::Set);
        if let Some(bias) = bias {
            hold(y.reborrow()).chunks_mut(output).flat_map(|y| y.iter_mut().zip(look(bias))).for_each(|(y, b)| *y += b);
        }
        then.apply(self, y);
    }

    fn sum_rows(&self, x: View<Self>, out: ViewMut<Self>, write: Write) {
        let out = hold(out);
        begin(out, write);
        for row in look(x).chunks(out.len()) {
            out.iter_mut().zip(row).for_each(|(out, x)| *out += x);
        }
    }

    fn activate(&self, kind: Nonlinearity, x: View<Self>, y: ViewMut<Self>) {
        assert_eq!(x.len(), y.len());
        hold(y).iter_mut().zip(look(x)).for_each(|(y, &x)| *y = nonlinearity(kind, x)[0]);
    }

    fn activate_backward(&self, kind: Nonlinearity, x: View<Self>, dy: View<Self>, dx: ViewMut<Self>) {
        assert_eq!((x.len(), dy.len()), (dx.len(), dx.len()));
        for ((dx, dy), &x) in hold(dx).iter_mut().zip(look(dy)).zip(look(x)) {
            *dx = dy * nonlinearity(kind, x)[1];
        }
    }

    fn layer_norm(
        &self,
        x: View<Self>,
        gain: View<Self>,
        bias: View<Self>,
        y: ViewMut<Self>,
        stats: ViewMut<Self>,
        epsilon: f32,
    ) {
        let (gain, bias, width) = (look(gain), look(bias), gain.len());
        for ((x, y), stats) in look(x).chunks(width).zip(hold(y).chunks_mut(width)).zip(hold(stats).chunks_mut(2)) {
            let mean = x.iter().sum::<f32>() / width as f32;
            let variance = x.iter().map(|x| (x - mean) * (x - mean)).sum::<f32>() / width as f32;
            let scale = 1.0 / (variance + epsilon).sqrt();
            stats.copy_from_slice(&[mean, scale]);
            for i in 0..width {
                y[i] = (x[i] - mean) * scale * gain[i] + bias[i];
            }
        }
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
        self.sum_rows(dy, dbias, write);
        let (gain, width, plus) = (look(gain), gain.len(), plus.map(look));
        let (mut dx, dgain) = (dx.map(hold), hold(dgain));
        begin(dgain, write);
        for (row, stats) in look(stats).chunks(2).enumerate() {
            let row = row * width..(row + 1) * width;
            let n: Vec<f32> = look(x)[row.clone()].iter().map(|x| (x - stats[0]) * stats[1]).collect();
            let dx = dx.as_mut().map(|dx| (&mut dx[row.clone()], plus.map(|plus| &plus[row.clone()])));
            norm_row_backward([&n, gain, &look(dy)[row.clone()]], stats[1], true, dx, dgain);
        }
    }

    fn rms_norm(&self, x: View<Self>, gain: View<Self>, y: ViewMut<Self>, inverse: ViewMut<Self>, epsilon: f32) {
        let (gain, width) = (look(gain), gain.len());
        for ((x, y), inverse) in look(x).chunks(width).zip(hold(y).chunks_mut(width)).zip(hold(inverse)) {
            *inverse = 1.0 / (dot(x, x) / width as f32 + epsilon).sqrt();
            for i in 0..width {
                y[i] = x[i] * *inverse * gain[i];
            }
        }
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
        let (gain, width, plus) = (look(gain), gain.len(), plus.map(look));
        let (mut dx, dgain) = (dx.map(hold), hold(dgain));
        begin(dgain, write);
        for (row, &inverse) in look(inverse).iter().enumerate() {
            let row = row * width..(row + 1) * width;
            let n: Vec<f32> = look(x)[row.clone()].iter().map(|x| x * inverse).collect();
            let dx = dx.as_mut().map(|dx| (&mut dx[row.clone()], plus.map(|plus| &plus[row.clone()])));
            norm_row_backward([&n, gain, &look(dy)[row.clone()]], inverse, false, dx, dgain);
        }
    }

    fn attention(&self, shape: AttentionShape, qkv: View<Self>, out: ViewMut<Self>, lse: ViewMut<Self>) {
        attention::forward(shape, look(qkv), hold(out), hold(lse));
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
        attention::backward(shape, [qkv, out, lse, dout].map(look), hold(dqkv));
    }

    fn embed(
        &self,
        ids: View<Self, u32>,
        table: View<Self>,
        positions: Option<View<Self>>,
        out: ViewMut<Self>,
        length: usize,
    ) {
        let (width, table, positions) = (out.len() / ids.len(), look(table), positions.map(look));
        for (token, (out, &id)) in hold(out).chunks_mut(width).zip(look(ids)).enumerate() {
            for i in 0..width {
                let position = positions.map_or(0.0, |positions| positions[token % length * width + i]);
                out[i] = table[id as usize * width + i] + position;
            }
        }
    }

    fn embed_backward(
        &self,
        ids: View<Self, u32>,
        dout: View<Self>,
        dtable: ViewMut<Self>,
        dpositions: Option<ViewMut<Self>>,
        length: usize,
        write: Write,
    ) {
        let (width, dtable, mut dpositions) = (dout.len() / ids.len(), hold(dtable), dpositions.map(hold));
        begin(dtable, write);
        dpositions.iter_mut().for_each(|dpositions| begin(dpositions, write));
        for (token, (dout, &id)) in look(dout).chunks(width).zip(look(ids)).enumerate() {
            for i in 0..width {
                dtable[id as usize * width + i] += dout[i];
                if let Some(dpositions) = &mut dpositions {
                    dpositions[token % length * width + i] += dout[i];
                }
            }
        }
    }

    fn cross_entropy(&self, logits: View<Self>, targets: View<Self, u32>, loss: ViewMut<Self>, lse: ViewMut<Self>) {
        let (targets, loss, lse) = (look(targets), hold(loss), hold(lse));
        for (row, logits) in look(logits).chunks(logits.len() / targets.len()).enumerate() {
            lse[row] = log_sum_exp(logits);
            loss[row] = lse[row] - logits[targets[row] as usize];
        }
    }

    fn cross_entropy_backward(
        &self,
        logits: ViewMut<Self>,
        targets: View<Self, u32>,
        lse: View<Self>,
        dloss: View<Self>,
    ) {
        let (targets, lse, dloss, classes) = (look(targets), look(lse), look(dloss), logits.len() / targets.len());
        for (row, logits) in hold(logits).chunks_mut(classes).enumerate() {
            logits.iter_mut().for_each(|x| *x = (*x - lse[row]).exp() * dloss[row]);
            logits[targets[row] as usize] -= dloss[row];
        }
    }

    fn squared_error(&self, x: View<Self>, targets: View<Self>, loss: ViewMut<Self>) {
        let width = x.len() / loss.len();
        for ((x, targets), loss) in look(x).chunks(width).zip(look(targets).chunks(width)).zip(hold(loss)) {
            *loss = x.iter().zip(targets).map(|(x, t)| (x - t) * (x - t)).sum::<f32>() / width as f32;
        }
    }

    fn squared_error_backward(&self, x: View<Self>, targets: View<Self>, dloss: View<Self>, dx: ViewMut<Self>) {
        let (x, targets, dloss, width) = (look(x), look(targets), look(dloss), x.len() / dloss.len());
        for (i, dx) in hold(dx).iter_mut().enumerate() {
            *dx = 2.0 * (x[i] - targets[i]) / width as f32 * dloss[i / width];
        }
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

    fn add_mean(&self, x: View<Self>, to: ViewMut<Self, f64>) {
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
        decays: bool,
        hyper: View<Self, HyperBlock>,
        report: View<Self, ReportBlock>,
        weights: Weights<Self>,
        grads: Stored<Self>,
        m: StoredMut<Self>,
        v: StoredMut<Self>,
    ) {
        if look(report)[0].is_finite() {
            self.adamw(&AdamW::of(&look(hyper)[0], &look(report)[0], decays), weights, grads, m, v);
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

    fn all_finite<'a>(&self, x: impl Into<Stored<'a, Self>>) -> bool {
        widened(x.into()).iter().all(|x| x.is_finite())
    }
}
