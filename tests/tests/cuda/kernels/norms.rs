//! Norms of rows and of heads, and their gradients.

use zero_core::device::{Device, Element, Kernels, Strided, StridedMut, Write, bf16};

use super::{Case, How, MARGIN, Results, SUMS, Tensor, check, check_in, cuda, noise};

const EPSILON: f32 = 1e-5;

/// Gradients contain differences of sums.
const GRADIENTS: How = How::Near(1e-5);

struct Norms {
    rows: usize,
    width: usize,
    start: usize,
}

impl Norms {
    fn tensor<D: Device, E: Element>(&self, device: &D, len: usize, seed: u64) -> Tensor<D, E> {
        Tensor::new(device, &noise(len, seed), self.start)
    }

    fn named(&self, what: &str) -> String {
        format!("{what} of {} x {}", self.rows, self.width)
    }
}

struct LayerNorm(Norms);

impl Case for LayerNorm {
    fn run<D: Device, E: Element>(&self, device: &D) -> Results {
        let Norms { rows, width, .. } = self.0;
        let [x, dy, plus] = [1, 2, 3].map(|seed| self.0.tensor::<D, E>(device, rows * width, seed));
        let [gain, bias] = [4, 5].map(|seed| self.0.tensor::<D, E>(device, width, seed));
        let (mut y, mut stats) = (Tensor::<D, E>::unwritten(device, rows * width), Tensor::unwritten(device, 2 * rows));
        device.layer_norm(x.view(), gain.view(), bias.view(), y.view_mut(), stats.view_mut(), EPSILON);
        let mut results = vec![
            (self.0.named("y"), GRADIENTS, y.values(device)),
            (self.0.named("statistics"), GRADIENTS, stats.values(device)),
        ];
        for (write, plus) in [(Write::Set, None), (Write::Add, Some(plus.view()))] {
            // With the same statistics on both devices.
            let stats = Tensor::<D, f32>::new(device, &noise(2 * rows, 6), MARGIN);
            let before = if write == Write::Set { vec![f32::NAN; width] } else { noise(width, 7) };
            let [mut dgain, mut dbias] = [8, 9].map(|start| Tensor::<D, f32>::new(device, &before, start));
            let mut dx = Tensor::<D, E>::new(device, &vec![f32::NAN; rows * width], self.0.start);
            let to = Some(dx.view_mut());
            let (of_gain, of_bias) = (dgain.view_mut(), dbias.view_mut());
            let (x, gain, dy) = (x.view(), gain.view(), dy.view());
            device.layer_norm_backward(x, gain, stats.view(), dy, to, plus, of_gain, of_bias, write);
            for (name, tensor) in [("dgain", &dgain), ("dbias", &dbias)] {
                results.push((self.0.named(name), GRADIENTS, tensor.values(device)));
            }
            results.push((self.0.named("dx"), GRADIENTS, dx.values(device)));
        }
        results
    }
}

struct RmsNorm(Norms);

impl Case for RmsNorm {
    fn run<D: Device, E: Element>(&self, device: &D) -> Results {
        let Norms { rows, width, .. } = self.0;
        let [x, dy, plus] = [1, 2, 3].map(|seed| self.0.tensor::<D, E>(device, rows * width, seed));
        let gain = self.0.tensor::<D, E>(device, width, 4);
        let (mut y, mut inverse) = (Tensor::<D, E>::unwritten(device, rows * width), Tensor::unwritten(device, rows));
        device.rms_norm(x.view(), gain.view(), y.view_mut(), inverse.view_mut(), EPSILON);
        let mut results =
            vec![(self.0.named("y"), SUMS, y.values(device)), (self.0.named("inverse"), SUMS, inverse.values(device))];
        for (write, plus, wants_dx) in
            [(Write::Set, None, true), (Write::Add, Some(plus.view()), true), (Write::Add, None, false)]
        {
            let inverse = Tensor::<D, f32>::new(device, &noise(rows, 6), MARGIN);
            let before = if write == Write::Set { vec![f32::NAN; width] } else { noise(width, 7) };
            let mut dgain = Tensor::<D, f32>::new(device, &before, MARGIN);
            let mut dx = Tensor::<D, E>::new(device, &vec![0.5; rows * width], self.0.start);
            let to = wants_dx.then(|| dx.view_mut());
            let (x, gain, dy) = (x.view(), gain.view(), dy.view());
            device.rms_norm_backward(x, gain, inverse.view(), dy, to, plus, dgain.view_mut(), write);
            results.push((self.0.named("dgain"), GRADIENTS, dgain.values(device)));
            results.push((self.0.named("dx"), GRADIENTS, dx.values(device)));
        }
        results
    }
}

/// Widths for all ways to split a row among threads, with and without a remainder; more rows than one chunk; and widths of
/// published models, because kernels are compiled for each.
const SIZES: [(usize, usize, usize); 12] = [
    (1, 1, MARGIN),
    (5, 3, 0),
    (33, 17, MARGIN),
    (65, 64, 0),
    (3, 128, 0),
    (3, 129, 0),
    (2, 304, 0),
    (31, 304, MARGIN),
    (2, 2051, 0),
    (3, 2560, 0),
    (2, 2048, 0),
    (2, 8192, 0),
];

#[test]
fn layer_norms_agree() {
    for (rows, width, start) in SIZES {
        check(&LayerNorm(Norms { rows, width, start }));
    }
    check_in::<bf16>(&LayerNorm(Norms { rows: 700, width: 65, start: 0 }));
    // The sizes of GPT-2.
    for width in [768, 1600] {
        check_in::<bf16>(&LayerNorm(Norms { rows: 3, width, start: 0 }));
    }
}

#[test]
fn rms_norms_agree() {
    for (rows, width, start) in SIZES {
        check(&RmsNorm(Norms { rows, width, start }));
    }
    check_in::<bf16>(&RmsNorm(Norms { rows: 700, width: 65, start: 0 }));
}

struct Heads {
    rows: usize,
    heads: usize,
    width: usize,
    strides: [usize; 2],
}

impl Case for Heads {
    fn run<D: Device, E: Element>(&self, device: &D) -> Results {
        let Self { rows, heads, width, strides: [x_stride, y_stride] } = *self;
        let named = |what| format!("{what} of {rows} x {heads} x {width}");
        let x = Tensor::<D, E>::aligned(device, &noise(rows * x_stride, 1));
        let gain = Tensor::<D, E>::aligned(device, &noise(width, 2));
        // Elements between rows do not change.
        let mut y = Tensor::<D, E>::aligned(device, &noise(rows * y_stride, 3));
        let mut inverse = Tensor::<D, f32>::unwritten(device, rows * heads);
        let rows_of_x = || Strided::new(x.view(), x_stride);
        let to = StridedMut::new(y.view_mut(), y_stride);
        device.rms_norm_heads(rows_of_x(), heads, gain.view(), to, inverse.view_mut(), EPSILON);
        let mut results = vec![(named("y"), SUMS, y.values(device)), (named("inverse"), SUMS, inverse.values(device))];
        for write in [Write::Set, Write::Add] {
            let inverse = Tensor::<D, f32>::new(device, &noise(rows * heads, 4), MARGIN);
            let before = if write == Write::Set { vec![f32::NAN; width] } else { noise(width, 5) };
            let mut dgain = Tensor::<D, f32>::new(device, &before, MARGIN);
            let mut dy = Tensor::<D, E>::aligned(device, &noise(rows * y_stride, 6));
            let to = StridedMut::new(dy.view_mut(), y_stride);
            device.rms_norm_heads_backward(
                rows_of_x(),
                heads,
                gain.view(),
                inverse.view(),
                to,
                dgain.view_mut(),
                write,
            );
            results.push((named("dgain"), GRADIENTS, dgain.values(device)));
            results.push((named("dx"), GRADIENTS, dy.values(device)));
        }
        results
    }
}

#[test]
fn norms_of_heads_agree() {
    for (rows, heads, width, strides) in [
        (1, 1, 1, [1, 1]),
        (5, 3, 17, [60, 51]),
        (9, 4, 64, [256, 320]),
        (7, 2, 128, [272, 256]),
        (3, 1, 200, [200, 201]),
    ] {
        check(&Heads { rows, heads, width, strides });
    }
}

#[test]
fn what_is_not_finite_shows_in_its_row_alone() {
    let Some(cuda) = cuda() else { return };
    for bad in [f32::NAN, f32::INFINITY] {
        let mut values = noise(2 * 33, 1);
        values[5] = bad;
        let x = Tensor::<_, bf16>::new(&cuda, &values, 0);
        let ones = Tensor::<_, bf16>::new(&cuda, &[1.0; 33], 0);
        let (mut y, mut stats) = (Tensor::<_, bf16>::unwritten(&cuda, 66), Tensor::<_, f32>::unwritten(&cuda, 4));
        cuda.layer_norm(x.view(), ones.view(), ones.view(), y.view_mut(), stats.view_mut(), EPSILON);
        let y = y.values(&cuda);
        assert!(y[..33].iter().all(|y| y.is_nan()) && y[33..].iter().all(|y| y.is_finite()), "{y:?}");
        assert_eq!(cuda.failure(), None);
    }
}
