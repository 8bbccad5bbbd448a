//! Products: the pretend cublasLt's, against loops in f64; and calls that it refuses as the real library does.
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::ptr::null_mut;

use super::raw::{self, Handle, allocate, blas, call, receive, send, stream};

/// `cublasLtMatmulHeuristicResult_t`.
type Heuristic = [u64; 12];

/// op(a) (m, k) times op(b) (k, n), all column by column; f32.
#[derive(Clone, Copy)]
struct Case {
    m: usize,
    n: usize,
    k: usize,
    transposed: [bool; 2],
    bias: bool,
    beta: f32,
}

impl Case {
    /// Rows and columns of an operand as it is stored.
    fn stored(self, which: usize) -> [usize; 2] {
        let shape = [[self.m, self.k], [self.k, self.n], [self.m, self.n]][which];
        if which < 2 && self.transposed[which] { [shape[1], shape[0]] } else { shape }
    }

    fn layout(self, which: usize) -> Handle {
        let ([rows, columns], mut layout) = (self.stored(which).map(|size| size as u64), null_mut());
        let status = call!(blas(), cublasLtMatrixLayoutCreate(
            &mut layout => *mut Handle, 0 => i32, rows => u64, columns => u64, rows as i64 => i64,
        ));
        assert_eq!(status, 0);
        layout
    }

    fn description(self, bias: u64) -> Handle {
        let mut description = null_mut();
        let made = call!(blas(), cublasLtMatmulDescCreate(&mut description => *mut Handle, 68 => i32, 0 => i32));
        assert_eq!(made, 0);
        let [a, b] = self.transposed.map(i32::from);
        set(description, 3, &a);
        set(description, 4, &b);
        if self.bias {
            set(description, 7, &4u32);
            set(description, 8, &bias);
        }
        description
    }
}

fn set<T>(description: Handle, attribute: i32, value: &T) {
    let (from, bytes) = (std::ptr::from_ref(value).cast::<c_void>(), size_of::<T>());
    let status = call!(blas(), cublasLtMatmulDescSetAttribute(
        description => Handle, attribute => i32, from => *const c_void, bytes => usize,
    ));
    assert_eq!(status, 0);
}

/// The status of a product whose operands lie `offset` bytes beyond a multiple of 256, by an algorithm for pointers of
/// the given alignment.
fn product(case: Case, at: [u64; 4], alignment: Option<u32>, stream: Handle) -> i32 {
    let layouts = [0, 1, 2].map(|which| case.layout(which));
    let description = case.description(at[3]);
    let (mut handle, mut preference, mut found) = (null_mut(), null_mut(), 0);
    let mut heuristics: [Heuristic; 2] = [[0; 12]; 2];
    assert_eq!(call!(blas(), cublasLtCreate(&mut handle => *mut Handle)), 0);
    assert_eq!(call!(blas(), cublasLtMatmulPreferenceCreate(&mut preference => *mut Handle)), 0);
    for attribute in 5..9 {
        let Some(bytes) = alignment else { continue };
        call!(blas(), cublasLtMatmulPreferenceSetAttribute(
            preference => Handle, attribute => i32, &bytes => *const u32, 4 => usize,
        ));
    }
    let [a, b, c] = layouts;
    let status = call!(blas(), cublasLtMatmulAlgoGetHeuristic(
        handle => Handle, description => Handle, a => Handle, b => Handle, c => Handle, c => Handle,
        preference => Handle, 2 => i32, heuristics.as_mut_ptr() => *mut Heuristic, &mut found => *mut i32,
    ));
    assert_eq!([status, found], [0, 1], "without a workspace there is one algorithm");
    let (one, null) = (1.0f32, null_mut());
    call!(blas(), cublasLtMatmul(
        handle => Handle, description => Handle, &one => *const f32, at[0] => u64, a => Handle, at[1] => u64, b => Handle,
        &case.beta => *const f32, at[2] => u64, c => Handle, at[2] => u64, c => Handle,
        heuristics.as_ptr() => *const Heuristic, null => Handle, 0 => usize, stream => Handle,
    ))
}

fn numbers(len: usize, seed: u64) -> Vec<f32> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    };
    (0..len).map(|_| next()).collect()
}

fn check(case: Case) {
    let one = stream();
    let [a, b, c] = [0, 1, 2].map(|which| numbers(case.stored(which).iter().product(), which as u64 + 1));
    let bias = numbers(case.m, 4);
    let at = [&a, &b, &c, &bias].map(|values| {
        let start = allocate(values.len() * 4);
        assert_eq!(send(start, values, one), 0);
        start
    });
    assert_eq!(product(case, at, None, one), 0);
    let found: Vec<f32> = receive(at[2], case.m * case.n, one).unwrap();
    let [lda, ldb, _] = [0, 1, 2].map(|which| case.stored(which)[0]);
    let [ta, tb] = case.transposed;
    for column in 0..case.n {
        for row in 0..case.m {
            let left = |k: usize| f64::from(if ta { a[k + row * lda] } else { a[row + k * lda] });
            let right = |k: usize| f64::from(if tb { b[column + k * ldb] } else { b[k + column * ldb] });
            let mut expected: f64 = (0..case.k).map(|k| left(k) * right(k)).sum();
            expected += f64::from(case.beta) * f64::from(c[row + column * case.m]);
            expected += if case.bias { f64::from(bias[row]) } else { 0.0 };
            let found = f64::from(found[row + column * case.m]);
            assert!((found - expected).abs() < 1e-5 * case.k as f64, "{found} for {expected} at {row}, {column}");
        }
    }
}

#[test]
fn products_agree_with_plain_loops() {
    if !raw::begin() {
        return;
    }
    for (i, [m, n, k]) in [[1, 1, 1], [17, 7, 5], [32, 12, 64], [33, 50, 70]].into_iter().enumerate() {
        for flags in 0..4 {
            let transposed = [flags & 1 != 0, flags & 2 != 0];
            check(Case { m, n, k, transposed, bias: i % 2 == 0, beta: if flags == 2 { 1.0 } else { 0.0 } });
        }
    }
}

#[test]
fn pointers_less_aligned_than_was_said_are_refused() {
    if !raw::begin() {
        return;
    }
    let (one, case) = (stream(), Case { m: 4, n: 4, k: 4, transposed: [false; 2], bias: false, beta: 0.0 });
    let at = [0; 4].map(|_| allocate(256));
    let beside = [at[0] + 16, at[1], at[2], at[3]];
    assert_eq!([product(case, at, None, one), product(case, beside, None, one)], [0, 15]);
    assert_eq!([product(case, beside, Some(16), one), product(case, beside, Some(32), one)], [0, 15]);
}
