//! Stored: kernels over numbers of either width. The optimizer step widens numbers that are not f32 a block at a time,
//! calls the f32 kernel, and rounds the results back. Never computes a step itself.

use super::Cpu;
use super::convert as slices;
use super::parallel::Cut;
use super::simd::check_len;
use super::{muon, optimizer};
use zero_core::device::{AdamW, Element, Stored, StoredMut, Weights};

/// Elements stepped at a time: a widened block of each tensor stays in the first-level cache.
const BLOCK: usize = 512;

/// [`super::adamw`] on numbers in any mix of widths; all tensors have n elements.
///
/// Elementwise: one call for n elements and several calls give the same bits.
pub fn adamw(step: &AdamW, weights: Weights<Cpu>, grads: Stored<Cpu>, m: StoredMut<Cpu>, v: StoredMut<Cpu>) {
    use StoredMut::F32;
    let Weights { params, master } = weights;
    match (params, master, grads, m, v) {
        (F32(params), None, Stored::F32(grads), F32(m), F32(v)) => {
            optimizer::adamw(step, params.into_slice(), grads.as_slice(), m.into_slice(), v.into_slice());
        }
        (params, master, grads, m, v) => {
            let (weights, len) = (Weights { params, master }, grads.len());
            check_len("grads", len, weights.params.len());
            check_len("m", m.len(), len);
            check_len("v", v.len(), len);
            check_weights(&weights);
            in_blocks(len, (weights, grads, m, v), |(weights, grads, m, v)| {
                change_weights(weights, |updated| step_block(step, updated, grads, m, v));
            });
        }
    }
}

/// Muon's momentum on numbers that are stored in either width.
pub fn momentum(momentum: f64, grad_scale: f64, gradients: StoredMut<Cpu>, m: StoredMut<Cpu>) {
    check_len("m", m.len(), gradients.len());
    in_blocks(gradients.len(), (gradients, m), |(gradients, m)| {
        change(gradients, |gradients| change(m, |m| muon::momentum(momentum, grad_scale, gradients, m)));
    });
}

/// Numbers of either width, times a factor.
pub fn scaled<E: Element>(to: &mut [E], from: Stored<Cpu>, factor: f32) {
    match from {
        Stored::F32(from) => muon::scaled(to, from.as_slice(), factor),
        Stored::BF16(from) => muon::scaled(to, from.as_slice(), factor),
    }
}

/// Muon's step on parameters that are stored in either width.
pub fn step_along<E: Element>(keep: f32, size: f32, weights: Weights<Cpu>, direction: &[E]) {
    check_len("direction", direction.len(), weights.params.len());
    check_weights(&weights);
    in_blocks(direction.len(), (weights, direction), |(weights, direction)| {
        change_weights(weights, |updated| change(updated, |params| muon::step_along(keep, size, params, direction)));
    });
}

/// [`super::sum_squares`] of either width.
pub fn sum_squares(cpu: Cpu, x: Stored<Cpu>) -> f64 {
    match x {
        Stored::F32(x) => optimizer::sum_squares(cpu, x.as_slice()),
        Stored::BF16(x) => optimizer::sum_squares(cpu, x.as_slice()),
    }
}

/// [`super::all_finite`] of either width.
pub fn all_finite(x: Stored<Cpu>) -> bool {
    match x {
        Stored::F32(x) => optimizer::all_finite(x.as_slice()),
        Stored::BF16(x) => optimizer::all_finite(x.as_slice()),
    }
}

/// [`super::convert`] between numbers of either width.
pub fn convert(to: StoredMut<Cpu>, from: Stored<Cpu>) {
    match (to, from) {
        (StoredMut::F32(to), Stored::F32(from)) => slices::convert(to.into_slice(), from.as_slice()),
        (StoredMut::F32(to), Stored::BF16(from)) => slices::convert(to.into_slice(), from.as_slice()),
        (StoredMut::BF16(to), Stored::F32(from)) => slices::convert(to.into_slice(), from.as_slice()),
        (StoredMut::BF16(to), Stored::BF16(from)) => slices::convert(to.into_slice(), from.as_slice()),
    }
}

fn check_weights(weights: &Weights<Cpu>) {
    let len = weights.params.len();
    check_len("master", weights.master.as_ref().map_or(len, StoredMut::len), len);
}

/// Calls `run` on `parts`, which have `len` elements each, at most `BLOCK` elements at a time.
fn in_blocks<P: Cut>(len: usize, mut parts: P, run: impl Fn(P)) {
    let mut left = len;
    while left > BLOCK {
        let (block, rest) = parts.cut(BLOCK, left);
        run(block);
        (parts, left) = (rest, left - BLOCK);
    }
    run(parts);
}

/// Lets `update` change at most `BLOCK` elements of the master copy of weights, or of the weights themselves if there
/// is none, and rounds a master copy to the weights that layers read.
fn change_weights(weights: Weights<Cpu>, update: impl FnOnce(StoredMut<Cpu>)) {
    match weights.master {
        Some(mut master) => {
            update(master.reborrow());
            convert(weights.params, master.as_stored());
        }
        None => update(weights.params),
    }
}

/// Steps at most `BLOCK` elements.
fn step_block(step: &AdamW, updated: StoredMut<Cpu>, grads: Stored<Cpu>, m: StoredMut<Cpu>, v: StoredMut<Cpu>) {
    read(grads, |grads| change(updated, |p| change(m, |m| change(v, |v| optimizer::adamw(step, p, grads, m, v)))));
}

/// Passes `stored`, at most `BLOCK` elements, to `look` as f32: in place if it is stored as f32.
fn read(stored: Stored<Cpu>, look: impl FnOnce(&[f32])) {
    match stored {
        Stored::F32(view) => look(view.as_slice()),
        Stored::BF16(view) => {
            let mut buffer = [0.0; BLOCK];
            let wide = &mut buffer[..view.len()];
            slices::convert(wide, view.as_slice());
            look(wide);
        }
    }
}

/// Lets `work` change `stored`, at most `BLOCK` elements, as f32: in place if it is stored as f32, otherwise rounded
/// afterwards.
fn change(stored: StoredMut<Cpu>, work: impl FnOnce(&mut [f32])) {
    match stored {
        StoredMut::F32(view) => work(view.into_slice()),
        StoredMut::BF16(view) => {
            let mut buffer = [0.0; BLOCK];
            let (wide, stored) = (&mut buffer[..view.len()], view.into_slice());
            slices::convert(wide, stored);
            work(wide);
            slices::convert(stored, wide);
        }
    }
}

#[cfg(test)]
mod tests;
