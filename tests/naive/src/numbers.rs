//! Numbers of the naive device: read and changed in f32, and rounded when they are stored; and the few formulas that ops share.
//! Contains no op.

use zero_core::device::{Element, Matrix, Nonlinearity, Stored, StoredMut, Write};
use zero_core::view::{View, ViewMut};

use super::Naive;
use super::memory::{hold, look};

pub(super) fn dot(x: &[f32], y: &[f32]) -> f32 {
    assert_eq!(x.len(), y.len());
    let mut sum = 0.0;
    for (x, y) in x.iter().zip(y) {
        sum += x * y;
    }
    sum
}

pub(super) fn log_sum_exp(x: &[f32]) -> f32 {
    let largest = x.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    largest + x.iter().map(|x| (x - largest).exp()).sum::<f32>().ln()
}

/// f(x), and f'(x).
pub(super) fn nonlinearity(kind: Nonlinearity, x: f32) -> [f32; 2] {
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

/// Prepares for terms to be added: `Write::Set` begins at zero.
pub(super) fn begin(to: &mut [f32], write: Write) {
    if write == Write::Set {
        to.fill(0.0);
    }
}

/// The elements of a matrix, row by row, in f32, even if the view is of its transpose.
pub(super) fn by_rows<E: Element>(matrix: &Matrix<Naive, E>) -> Vec<f32> {
    let elements = wide(matrix.view);
    if !matrix.transposed {
        return elements;
    }
    let element = |i: usize| elements[i % matrix.rows * matrix.cols + i / matrix.rows];
    (0..elements.len()).map(element).collect()
}

/// Adds a (m, depth) times the transpose of b (n, depth) to c (m, n).
pub(super) fn add_product(c: &mut [f32], a: &[f32], b: &[f32], depth: usize) {
    let Some(n) = b.len().checked_div(depth) else { return };
    for (a, c) in a.chunks(depth).zip(c.chunks_mut(n)) {
        for (b, c) in b.chunks(depth).zip(c) {
            *c += dot(a, b);
        }
    }
}

/// The elements of a view, in f32.
pub(super) fn wide<E: Element>(view: View<Naive, E>) -> Vec<f32> {
    look(view).iter().map(|x| x.widen()).collect()
}

/// Changes numbers in f32, and rounds the results.
pub(super) fn change<E: Element>(view: ViewMut<Naive, E>, change: impl FnOnce(&mut [f32])) {
    let stored = hold(view);
    let mut numbers: Vec<f32> = stored.iter().map(|x| x.widen()).collect();
    change(&mut numbers);
    stored.iter_mut().zip(numbers).for_each(|(stored, number)| *stored = E::narrow(number));
}

pub(super) fn widened(stored: Stored<Naive>) -> Vec<f32> {
    match stored {
        Stored::F32(view) => wide(view),
        Stored::BF16(view) => wide(view),
    }
}

pub(super) fn store(to: StoredMut<Naive>, numbers: &[f32]) {
    match to {
        StoredMut::F32(to) => change(to, |to| to.copy_from_slice(numbers)),
        StoredMut::BF16(to) => change(to, |to| to.copy_from_slice(numbers)),
    }
}

pub(super) fn sum_of(x: &[f32], y: &[f32]) -> Vec<f32> {
    assert_eq!(x.len(), y.len());
    x.iter().zip(y).map(|(x, y)| x + y).collect()
}

/// The sum along the tree that splits at powers of two.
pub(super) fn tree(summands: &[Vec<f32>]) -> Vec<f32> {
    match summands {
        [one] => one.clone(),
        _ => {
            let (left, right) = summands.split_at(summands.len().next_power_of_two() / 2);
            sum_of(&tree(left), &tree(right))
        }
    }
}
