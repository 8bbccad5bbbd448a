//! Nonlinearities, gates and rotations: the processor's bits.

use zero_core::device::{Device, Element, Nonlinearity, Rotary, Scaling, StridedMut};

use super::{Case, How, MARGIN, Results, Tensor, check, check_in, noise};

const KINDS: [Nonlinearity; 3] = [Nonlinearity::Gelu, Nonlinearity::Relu, Nonlinearity::Silu];

/// Ordinary numbers, then numbers at which a formula changes or fails.
fn numbers(len: usize, seed: u64) -> Vec<f32> {
    const EDGES: [f32; 14] = [
        0.0,
        -0.0,
        f32::NAN,
        f32::INFINITY,
        f32::NEG_INFINITY,
        f32::MAX,
        f32::MIN,
        1e-30,
        -1e-40,
        10.0,
        -10.0,
        -10.1,
        88.8,
        -87.4,
    ];
    let mut numbers = noise(len, seed);
    numbers.iter_mut().for_each(|x| *x *= 4.0);
    let from = len.saturating_sub(EDGES.len());
    numbers[from..].iter_mut().zip(EDGES).for_each(|(x, edge)| *x = edge);
    numbers
}

struct Activations {
    len: usize,
    start: usize,
}

impl Case for Activations {
    fn run<D: Device, E: Element>(&self, device: &D) -> Results {
        let mut results = Results::new();
        for kind in KINDS {
            let x = Tensor::<D, E>::new(device, &numbers(self.len, 1), self.start);
            let dy = Tensor::<D, E>::new(device, &noise(self.len, 2), self.start);
            let unwritten = || Tensor::<D, E>::new(device, &vec![f32::NAN; self.len], self.start);
            let (mut y, mut dx) = (unwritten(), unwritten());
            device.activate(kind, x.view(), y.view_mut());
            device.activate_backward(kind, x.view(), dy.view(), dx.view_mut());
            let name = |what| format!("{what} of {kind:?} of {}", self.len);
            results.push((name("value"), How::Bits, y.values(device)));
            results.push((name("slope"), How::Bits, dx.values(device)));
        }
        results
    }
}

#[test]
fn activations_have_the_same_bits() {
    for len in [1, 7, 8, 31, 2049] {
        check(&Activations { len, start: MARGIN });
    }
    check(&Activations { len: 300, start: 0 });
}

struct Gates {
    rows: usize,
    width: usize,
    start: usize,
}

impl Case for Gates {
    fn run<D: Device, E: Element>(&self, device: &D) -> Results {
        let mut results = Results::new();
        let len = self.rows * self.width;
        for kind in KINDS {
            let x = Tensor::<D, E>::new(device, &numbers(2 * len, 1), self.start);
            let dy = Tensor::<D, E>::new(device, &noise(len, 2), self.start);
            let unwritten = |len| Tensor::<D, E>::new(device, &vec![f32::NAN; len], self.start);
            let (mut y, mut dx) = (unwritten(len), unwritten(2 * len));
            device.gate(kind, x.view(), y.view_mut(), self.width);
            device.gate_backward(kind, x.view(), dy.view(), dx.view_mut(), self.width);
            let name = |what| format!("{what} of {kind:?} of {} x {}", self.rows, self.width);
            results.push((name("gate"), How::Bits, y.values(device)));
            results.push((name("its gradient"), How::Bits, dx.values(device)));
        }
        results
    }
}

#[test]
fn gates_have_the_same_bits() {
    for (rows, width, start) in [(1, 1, MARGIN), (3, 17, 0), (17, 8, MARGIN), (2, 64, 0), (2, 2100, 0)] {
        check(&Gates { rows, width, start });
    }
}

struct Table(Scaling);

impl Case for Table {
    fn run<D: Device, E: Element>(&self, device: &D) -> Results {
        let rotary = Rotary { base: 10_000.0, scaling: self.0 };
        let sizes = [(0, 1, 2), (3, 33, 6), (100_000, 5, 128)];
        let run = |(first, positions, head_dim)| {
            let mut table = Tensor::<D, f32>::unwritten(device, positions * head_dim);
            device.rotary_table(&rotary, first, head_dim, table.view_mut());
            (format!("{positions} x {head_dim} from {first}"), How::Bits, table.values(device))
        };
        sizes.into_iter().map(run).collect()
    }
}

#[test]
fn rotary_tables_have_the_same_bits() {
    check_in::<f32>(&Table(Scaling::None));
    let (factor, original_length) = (4.0, 512);
    let [beta_fast, beta_slow] = [32.0, 1.0];
    let yarn = Scaling::Yarn { factor, original_length, beta_fast, beta_slow, attention_factor: None, truncate: true };
    check_in::<f32>(&Table(yarn));
}

struct Rotation {
    heads: usize,
    head_dim: usize,
    beside: usize,
    start: usize,
}

impl Case for Rotation {
    fn run<D: Device, E: Element>(&self, device: &D) -> Results {
        // Two and a half sequences.
        let (rows, length, stride) = (8, 3, self.heads * self.head_dim + self.beside);
        let table = Tensor::<D, f32>::new(device, &noise(length * self.head_dim, 1), self.start);
        let run = |back| {
            let mut x = Tensor::<D, E>::new(device, &noise(rows * stride, 2), self.start);
            device.rotate(StridedMut::new(x.view_mut(), stride), self.heads, table.view(), length, back);
            let name = format!("{} heads of {}, back: {back}", self.heads, self.head_dim);
            (name, How::Bits, x.values(device))
        };
        [false, true].map(run).into()
    }
}

#[test]
fn rotations_have_the_same_bits() {
    for (heads, head_dim, beside, start) in
        [(1, 2, 0, MARGIN), (3, 6, 5, 0), (2, 64, 64, 0), (5, 128, 0, 0), (3, 48, 1, MARGIN), (40, 18, 0, 0)]
    {
        check(&Rotation { heads, head_dim, beside, start });
    }
}
