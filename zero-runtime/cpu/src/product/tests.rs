//! Tests of products of every width, compared with sums in f64, and of the instructions, compared with plain Rust.

use super::*;
use crate::testing::noise;
use crate::{MatrixMut, matmul};
use zero_core::device::{Write, bf16};

/// (m, n, k): single rows, columns and terms, widths below a cell and a block, and one more than each size of a piece.
const SIZES: [[usize; 3]; 9] = [
    [1, 1, 1],
    [1, 40, 7],
    [33, 1, 31],
    [5, 17, 2],
    [17, 5, 33],
    [32, 32, 0],
    [64, 96, 64],
    [ROWS + 1, 35, DEPTH_CELLS * SIDE * 2 + 1],
    [3, COLS + 1, DEPTH_CELLS * SIDE * 2 + 3],
];
const TRANSPOSES: [[bool; 2]; 4] = [[false, false], [false, true], [true, false], [true, true]];

fn narrowed<E: Element>(x: &[f32]) -> Vec<E> {
    x.iter().map(|&x| E::narrow(x)).collect()
}

/// `data` as (rows, cols), or as the transpose of (cols, rows).
fn view<E>(data: &[E], rows: usize, cols: usize, transpose: bool) -> StridedMatrix<'_, E> {
    if transpose { StridedMatrix::new(data, cols, rows).transposed() } else { StridedMatrix::new(data, rows, cols) }
}

/// The index of element (row, col) of [`view`].
fn at([row, col]: [usize; 2], [rows, cols]: [usize; 2], transpose: bool) -> usize {
    if transpose { col * rows + row } else { row * cols + col }
}

/// The product in f64, and the sum of the absolute values of its terms, to which rounding errors are proportional.
fn reference<E: Element>(a: &[E], b: &[E], [m, n, k]: [usize; 3], [left, right]: [bool; 2]) -> Vec<[f64; 2]> {
    let term = |i, j, l| {
        let (a, b) = (a[at([i, l], [m, k], left)], b[at([l, j], [k, n], right)]);
        f64::from(a.widen()) * f64::from(b.widen())
    };
    let sum = |i, j| (0..k).map(|l| term(i, j, l)).fold([0.0, 0.0], |[sum, size], x| [sum + x, size + x.abs()]);
    (0..m * n).map(|place| sum(place / n, place % n)).collect()
}

/// The largest error of a result: two roundings of f32 for each term, for one more sum, and the last rounding to `O`.
fn tolerance<O: Element>(exact: f64, size: f64, terms: usize) -> f64 {
    let of_sums = 2.0 * (terms + 1) as f64 * f64::from(f32::EPSILON) / 2.0 * size;
    let bits = if O::WIDTH == bf16::WIDTH { bf16::EPSILON.to_f64() } else { f64::from(f32::EPSILON) };
    of_sums + bits / 2.0 * (exact.abs() + of_sums)
}

#[track_caller]
fn assert_near<O: Element>(found: &[O], expected: &[[f64; 2]], terms: usize) {
    for (place, (found, &[exact, size])) in found.iter().zip(expected).enumerate() {
        let (found, most) = (f64::from(found.widen()), tolerance::<O>(exact, size, terms));
        assert!((found - exact).abs() <= most, "{place}: found {found}, expected {exact}, within {most:e}");
    }
}

fn matches_f64<O: Element, E: Element>() {
    for size @ [m, n, k] in SIZES {
        let (a, b) = (narrowed::<E>(&noise(m * k, 1)), narrowed::<E>(&noise(k * n, 2)));
        let before: Vec<O> = narrowed(&noise(m * n, 3));
        for transposes in TRANSPOSES {
            let (left, right) = (view(&a, m, k, transposes[0]), view(&b, k, n, transposes[1]));
            let mut expected = reference(&a, &b, size, transposes);
            let mut c = narrowed::<O>(&vec![f32::NAN; m * n]);
            matmul(MatrixMut::new(&mut c, m, n), left, right, Write::Set);
            assert_near(&c, &expected, k);
            c.copy_from_slice(&before);
            matmul(MatrixMut::new(&mut c, m, n), left, right, Write::Add);
            for ([exact, size], before) in expected.iter_mut().zip(&before) {
                *exact += f64::from(before.widen());
                *size += f64::from(before.widen().abs());
            }
            assert_near(&c, &expected, k);
        }
    }
}

#[test]
fn every_width_matches_f64() {
    matches_f64::<f32, bf16>();
    matches_f64::<bf16, bf16>();
    matches_f64::<bf16, f32>();
    matches_f64::<f32, f32>();
}

/// All sums of `a` (m, k) * `b` (k, n).
fn sums_by<T: Tile>(a: StridedMatrix<TileElement<T>>, b: StridedMatrix<TileElement<T>>) -> Vec<f32> {
    let mut all = vec![f32::NAN; a.rows() * b.cols()];
    let finish = |sums: ProductPart| {
        for row in sums.rows.clone() {
            all[row * b.cols()..][sums.cols.clone()].copy_from_slice(sums.row(row));
        }
    };
    // SAFETY: `each_tile` has checked that the instructions are there.
    unsafe { product_by::<T>(a, b, finish) };
    all
}

/// Runs `check` for each tile that this machine has.
macro_rules! each_tile {
    ($check:ident) => {
        $check::<Widened<bf16>>("widened");
        #[cfg(target_arch = "x86_64")]
        if amx::is_there() {
            $check::<amx::Amx>("amx_bf16");
        }
        #[cfg(target_arch = "x86_64")]
        if avx512::is_there() {
            $check::<avx512::Avx512>("avx512_bf16");
        }
    };
}

#[test]
fn every_tile_matches_f64() {
    fn check<T: Tile<Packing: Packing<Element = bf16>>>(_: &str) {
        for size @ [m, n, k] in SIZES {
            let (a, b) = (narrowed(&noise(m * k, 1)), narrowed(&noise(k * n, 2)));
            for transposes in TRANSPOSES {
                let found = sums_by::<T>(view(&a, m, k, transposes[0]), view(&b, k, n, transposes[1]));
                assert_near(&found, &reference(&a, &b, size, transposes), k);
            }
        }
    }
    each_tile!(check);
}

/// Integers so small that every sum of them is exact, in any order. So a term that is lost, counted twice or read from
/// another index shows.
#[test]
fn every_tile_is_exact_where_f32_is() {
    fn check<T: Tile<Packing: Packing<Element = bf16>>>(name: &str) {
        for size @ [m, n, k] in SIZES {
            let integers = |len, seed| noise(len, seed).iter().map(|x| bf16::narrow((x * 4.0).round())).collect();
            let (a, b): (Vec<bf16>, Vec<bf16>) = (integers(m * k, 1), integers(k * n, 2));
            for transposes in TRANSPOSES {
                let found = sums_by::<T>(view(&a, m, k, transposes[0]), view(&b, k, n, transposes[1]));
                let expected = reference(&a, &b, size, transposes);
                assert!(found.iter().zip(expected).all(|(&x, [y, _])| f64::from(x) == y), "{name} {size:?}");
            }
            let ones = vec![bf16::ONE; (m * k).max(k * n)];
            let found = sums_by::<T>(view(&ones[..m * k], m, k, false), view(&ones[..k * n], k, n, false));
            assert!(found.iter().all(|&x| x == k as f32), "{name} {size:?}");
        }
    }
    each_tile!(check);
}

/// So that no bit depends on the tile, the length of a vector, or where a block of the common dimension ends.
#[test]
fn a_widened_sum_adds_one_term_after_another() {
    let [m, n, k] = [7, 37, DEPTH_CELLS * SIDE + 77];
    let (a, b): (Vec<bf16>, Vec<bf16>) = (narrowed(&noise(m * k, 1)), narrowed(&noise(k * n, 2)));
    let found = sums_by::<Widened<bf16>>(view(&a, m, k, false), view(&b, k, n, true));
    for (place, found) in found.iter().enumerate() {
        let (a, b) = (&a[place / n * k..][..k], &b[place % n * k..][..k]);
        let sum = a.iter().zip(b).fold(0.0_f32, |sum, (a, b)| a.widen().mul_add(b.widen(), sum));
        assert_eq!(found.to_bits(), sum.to_bits(), "{place}");
    }
}

/// For every way to cut rows and columns.
#[test]
fn no_bit_depends_on_where_a_sum_is_computed() {
    fn check<T: Tile<Packing: Packing<Element = bf16>>>(name: &str) {
        let (m, n, k) = (ROWS + 45, COLS + 21, DEPTH_CELLS * SIDE * 2 + 77);
        let (a, b) = (narrowed(&noise(m * k, 1)), narrowed(&noise(k * n, 2)));
        let (a, b) = (view(&a, m, k, false), view(&b, k, n, true));
        let whole = sums_by::<T>(a, b);
        for (rows, cols) in [(0..1, 0..n), (7..m, 0..1), (m - 1..m, 5..n), (40..ROWS + 3, 16..64)] {
            let found = sums_by::<T>(a.part(rows.clone(), 0..k), b.part(0..k, cols.clone()));
            let expected = rows.clone().flat_map(|row| &whole[row * n..][cols.clone()]);
            assert!(found.iter().zip(expected).all(|(x, y)| x.to_bits() == y.to_bits()), "{name} {rows:?} {cols:?}");
        }
    }
    each_tile!(check);
}

/// An infinity or NaN shows in every sum that has it as a term, and in no other sum, at the edges too.
#[test]
fn what_is_not_finite_stays_in_its_row_and_column() {
    fn check<T: Tile<Packing: Packing<Element = bf16>>>(name: &str) {
        let (m, n, k) = (37, 35, 41);
        for bad in [f32::INFINITY, f32::NEG_INFINITY, f32::NAN] {
            for transposes in TRANSPOSES {
                let (mut a, mut b) = (vec![bf16::ONE; m * k], vec![bf16::ONE; k * n]);
                a[at([m - 1, k - 1], [m, k], transposes[0])] = bf16::narrow(bad);
                b[at([0, n - 1], [k, n], transposes[1])] = bf16::narrow(bad);
                let found = sums_by::<T>(view(&a, m, k, transposes[0]), view(&b, k, n, transposes[1]));
                for (place, &found) in found.iter().enumerate() {
                    let expected = if place / n == m - 1 || place % n == n - 1 { bad } else { k as f32 };
                    assert!(found == expected || found.is_nan() && expected.is_nan(), "{name} {place}: {found}");
                }
            }
        }
    }
    each_tile!(check);
}
