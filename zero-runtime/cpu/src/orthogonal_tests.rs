//! Tests of orthogonalization, compared with its formula in f64 and with known singular values.

use zero_core::device::{Element, bf16};
use zero_core::orthogonal::{operations, orthogonalize, room_bytes, step_factor};
use zero_core::view::{View, ViewMut};

use crate::Cpu;

/// One row, one column, wide, tall, square, and larger than one block of a product.
const SHAPES: [[usize; 2]; 8] = [[1, 1], [1, 19], [19, 1], [5, 7], [7, 5], [6, 6], [33, 64], [130, 70]];

/// Reproducible numbers in (-1, 1).
fn noise(len: usize, seed: u64) -> Vec<f64> {
    (0..len as u64).map(|i| 2.0 * zero_core::random::uniform(seed, i) - 1.0).collect()
}

/// (m, n) := (m, k) (k, n), row-major.
fn times(a: &[f64], b: &[f64], [m, k, n]: [usize; 3]) -> Vec<f64> {
    let element = |at: usize| (0..k).map(|l| a[at / n * k + l] * b[l * n + at % n]).sum();
    (0..m * n).map(element).collect()
}

fn transposed(a: &[f64], [rows, columns]: [usize; 2]) -> Vec<f64> {
    (0..rows * columns).map(|at| a[at % rows * columns + at / rows]).collect()
}

/// A singular value after five iterations.
fn iterated(value: f64) -> f64 {
    (0..5).fold(value, |s, _| 3.4445 * s - 4.7750 * s.powi(3) + 2.0315 * s.powi(5))
}

/// Each row of `x`, reflected in the plane perpendicular to `axis`.
fn reflected(x: &[f64], axis: &[f64]) -> Vec<f64> {
    let length: f64 = axis.iter().map(|a| a * a).sum();
    let row = |row: &[f64]| {
        let along = 2.0 * row.iter().zip(axis).map(|(x, a)| x * a).sum::<f64>() / length;
        row.iter().zip(axis).map(|(x, a)| x - along * a).collect::<Vec<_>>()
    };
    x.chunks(axis.len()).flat_map(row).collect()
}

/// The matrix with these singular values, and with singular vectors that do not depend on them.
fn with_values(values: &[f64], [rows, columns]: [usize; 2]) -> Vec<f64> {
    let mut diagonal = vec![0.0; rows * columns];
    values.iter().enumerate().for_each(|(i, value)| diagonal[i * columns + i] = *value);
    let right = reflected(&diagonal, &noise(columns, 1));
    let left = reflected(&transposed(&right, [rows, columns]), &noise(rows, 2));
    transposed(&left, [columns, rows])
}

/// The result on the processor for a matrix that begins at an odd element, in a room of exactly [`room_bytes`] with any
/// content.
fn orthogonalized<E: Element>(matrix: &[f64], shape: [usize; 2]) -> Vec<f64> {
    let stored: Vec<f32> = std::iter::once(f32::NAN).chain(matrix.iter().map(|&x| x as f32)).collect();
    let mut room = vec![u64::MAX; room_bytes::<E>(shape) / size_of::<u64>()];
    let room = ViewMut::<Cpu, u64>::from(room.as_mut_slice()).cast();
    let from = View::from(&stored[1..]).into();
    let found: View<Cpu, E> = orthogonalize(&Cpu::default(), shape, from, room);
    found.as_slice().iter().map(|x| f64::from(x.widen())).collect()
}

/// The norm of the difference, relative to that of `expected`.
fn distance(found: &[f64], expected: &[f64]) -> f64 {
    assert_eq!(found.len(), expected.len());
    let square = |x: f64| x * x;
    let apart: f64 = found.iter().zip(expected).map(|(found, expected)| square(found - expected)).sum();
    (apart / expected.iter().map(|&x| square(x)).sum::<f64>()).sqrt()
}

/// The formula, in f64.
fn by_formula(matrix: &[f64], [rows, columns]: [usize; 2]) -> Vec<f64> {
    let norm = matrix.iter().map(|x| x * x).sum::<f64>().sqrt();
    let mut x: Vec<f64> = matrix.iter().map(|x| x / norm).collect();
    for _ in 0..5 {
        let gram = times(&x, &transposed(&x, [rows, columns]), [rows, columns, rows]);
        let squared = times(&gram, &gram, [rows; 3]);
        let factor: Vec<f64> = gram.iter().zip(squared).map(|(a, b)| -4.7750 * a + 2.0315 * b).collect();
        let step = times(&factor, &x, [rows, rows, columns]);
        x.iter_mut().zip(step).for_each(|(x, step)| *x = 3.4445 * *x + step);
    }
    x
}

#[test]
fn every_shape_matches_the_formula() {
    for shape in SHAPES {
        let matrix = noise(shape[0] * shape[1], 3);
        let expected = by_formula(&matrix, shape);
        let [wide, narrow] = [orthogonalized::<f32>(&matrix, shape), orthogonalized::<bf16>(&matrix, shape)]
            .map(|x| distance(&x, &expected));
        assert!(wide < 1e-5, "{shape:?} in f32 is off by {wide}");
        assert!(narrow < 3e-2, "{shape:?} in bf16 is off by {narrow}");
    }
}

#[test]
fn singular_vectors_stay_and_singular_values_come_near_one() {
    for shape in SHAPES {
        let side = shape[0].min(shape[1]);
        let values: Vec<f64> = (0..side).map(|i| 1.0 + i as f64 % 7.0).collect();
        let norm = values.iter().map(|x| x * x).sum::<f64>().sqrt();
        let near_one: Vec<f64> = values.iter().map(|value| iterated(value / norm)).collect();
        assert!(near_one.iter().all(|value| (0.68..1.14).contains(value)), "{shape:?}: {near_one:?}");
        let found = orthogonalized::<f32>(&with_values(&values, shape), shape);
        let off = distance(&found, &with_values(&near_one, shape));
        assert!(off < 1e-5, "{shape:?} is off by {off}");
    }
}

/// Scaling by powers of two leaves the bits of results unchanged.
#[test]
fn the_scale_of_a_matrix_does_not_matter() {
    let shape = [5, 7];
    let matrix = noise(35, 3);
    let expected = orthogonalized::<f32>(&matrix, shape);
    for exponent in [-20, 40] {
        let scaled: Vec<f64> = matrix.iter().map(|x| x * f64::powi(2.0, exponent)).collect();
        assert_eq!(orthogonalized::<f32>(&scaled, shape), expected, "times 2^{exponent}");
    }
}

#[test]
fn a_matrix_of_zeros_stays_one() {
    assert_eq!(orthogonalized::<f32>(&[0.0; 12], [3, 4]), [0.0; 12]);
}

/// Two matrices of 192 bytes, two squares of 128 bytes, and a word, whichever side is shorter.
#[test]
fn sizes_are_those_of_the_formula() {
    for shape in [[5, 7], [7, 5]] {
        assert_eq!(room_bytes::<f32>(shape), 2 * 192 + 2 * 128 + 64);
        assert_eq!(room_bytes::<bf16>(shape), 2 * 128 + 2 * 64 + 64);
        assert_eq!(operations(shape), 5 * (2 * (2 * 5 * 5 * 7) + 2 * 5 * 5 * 5));
    }
    assert_eq!(operations([1 << 30, 1 << 30]), usize::MAX);
}

#[test]
fn a_step_is_as_long_as_one_of_adamw() {
    assert_eq!([[4, 100], [100, 4]].map(step_factor), [2.0; 2]);
    // The squares of the 400 elements of an orthogonal matrix of this shape add up to 4.
    let root_mean_square = (4.0_f64 / 400.0).sqrt();
    assert!((step_factor([4, 100]) * root_mean_square - 0.2).abs() < 1e-12);
}
