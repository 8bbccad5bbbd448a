//! Stored: kernels over numbers that are stored in one width or the other. The optimizer step widens what is not f32 a
//! block at a time, has the f32 kernel step it, and rounds it back. Never computes a step itself.

use std::ops::Range;

use super::Cpu;
use super::convert as slices;
use super::optimizer;
use super::simd::check_len;
use crate::device::{AdamW, Stored, StoredMut, Weights};

/// Elements stepped at a time: a widened block of each tensor stays in the first-level cache.
const BLOCK: usize = 512;

/// [`super::adamw`] on numbers that are stored in any mix of widths; all of them (n).
///
/// Elementwise: n elements in one call or in many give the same bits.
pub fn adamw(step: &AdamW, weights: Weights<Cpu>, grads: Stored<Cpu>, m: StoredMut<Cpu>, v: StoredMut<Cpu>) {
    use StoredMut::F32;
    let Weights { params, master } = weights;
    match (params, master, grads, m, v) {
        (F32(params), None, Stored::F32(grads), F32(m), F32(v)) => {
            optimizer::adamw(step, params.into_slice(), grads.as_slice(), m.into_slice(), v.into_slice());
        }
        (params, master, grads, m, v) => in_blocks(step, Weights { params, master }, grads, m, v),
    }
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

fn in_blocks(step: &AdamW, weights: Weights<Cpu>, grads: Stored<Cpu>, mut m: StoredMut<Cpu>, mut v: StoredMut<Cpu>) {
    let Weights { mut params, mut master } = weights;
    let len = params.len();
    let master_len = master.as_ref().map_or(len, StoredMut::len);
    for (name, found) in [("master", master_len), ("grads", grads.len()), ("m", m.len()), ("v", v.len())] {
        check_len(name, found, len);
    }
    for start in (0..len).step_by(BLOCK) {
        let block = start..len.min(start + BLOCK);
        let grads = grads.part(start, block.len());
        let (m, v) = (part(&mut m, &block), part(&mut v, &block));
        let params = part(&mut params, &block);
        match master.as_mut().map(|master| part(master, &block)) {
            Some(mut master) => {
                step_block(step, master.reborrow(), grads, m, v);
                convert(params, master.as_stored());
            }
            None => step_block(step, params, grads, m, v),
        }
    }
}

fn part<'a>(stored: &'a mut StoredMut<Cpu>, block: &Range<usize>) -> StoredMut<'a, Cpu> {
    stored.reborrow().part(block.start, block.len())
}

/// Steps at most `BLOCK` elements.
fn step_block(step: &AdamW, updated: StoredMut<Cpu>, grads: Stored<Cpu>, m: StoredMut<Cpu>, v: StoredMut<Cpu>) {
    read(grads, |grads| change(updated, |p| change(m, |m| change(v, |v| optimizer::adamw(step, p, grads, m, v)))));
}

/// Shows `stored`, at most `BLOCK` elements, as f32: in place where it is that.
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

/// Lets `stored`, at most `BLOCK` elements, be changed as f32: in place where it is that, else rounded afterwards.
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
