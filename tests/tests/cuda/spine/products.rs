//! Matrix products: they agree with the processor's to rounding, and products of one shape always use the same algorithm.

use zero_core::device::{Device, Element, Kernels, Matrix, Then, Write, bf16};
use zero_cuda::Cuda;
use zero_tests::buffers::{noise, of};

use super::{CPU, Shifted, bytes, device};

/// Rows, columns, depth: one, odd numbers, and multiples of the instructions' sizes.
const SIZES: [[usize; 3]; 5] = [[1, 1, 1], [5, 9, 70], [33, 17, 1], [64, 48, 32], [7, 128, 300]];

fn product<D: Device, O: Element, E: Element>(
    device: &D,
    [m, n, k]: [usize; 3],
    before: usize,
    transposed: [bool; 2],
    write: Write,
) -> Vec<f32> {
    let (a, b) = (Shifted::<D, E>::new(device, m * k, before, 1), Shifted::<D, E>::new(device, k * n, before, 2));
    let mut c = Shifted::<D, O>::new(device, m * n, before, 3);
    if write == Write::Set {
        device.fill(c.view_mut(), O::narrow(f32::NAN));
    }
    let of = |view, rows, cols, transposed| match transposed {
        false => Matrix::new(view, rows, cols),
        true => Matrix::new(view, cols, rows).transposed(),
    };
    device.matmul(c.view_mut(), of(a.view(), m, k, transposed[0]), of(b.view(), k, n, transposed[1]), write);
    widened::<O>(&c.bytes(device), before)
}

fn widened<E: Element>(bytes: &[u8], before: usize) -> Vec<f32> {
    let elements = bytes.chunks_exact(size_of::<E>()).map(bytemuck::pod_read_unaligned::<E>);
    elements.skip(before).map(E::widen).collect()
}

/// Sums of `depth` terms of at most 4, each summed in f32 and rounded once.
#[track_caller]
fn assert_close<E: Element>(what: &str, found: &[f32], expected: &[f32], depth: usize) {
    assert_closer::<E>(what, found, expected, depth, 0.0);
}

/// The same, if the library may also round products before it adds them to numbers of at most `added`: on some GPUs, memory itself
/// adds the values that a kernel stores.
#[track_caller]
fn assert_closer<E: Element>(what: &str, found: &[f32], expected: &[f32], depth: usize, added: f32) {
    assert_eq!(found.len(), expected.len(), "{what}");
    let of_sums = 4.0 * (depth + 1) as f32 * (depth + 1) as f32 * f32::EPSILON;
    let of_rounding = if size_of::<E>() == 2 { bf16::EPSILON.widen() } else { f32::EPSILON };
    for (i, (found, expected)) in found.iter().zip(expected).enumerate() {
        // Each of the two may be rounded to a different neighbour.
        let most = of_sums + (expected.abs() + added + of_sums) * of_rounding;
        assert!((found - expected).abs() <= most, "{what}, element {i}: {found}, expected {expected}");
    }
}

fn are_alike<O: Element, E: Element>() {
    let Some(cuda) = device() else { return };
    for size in SIZES {
        for before in [0, 1] {
            for transposed in [[false, false], [true, false], [false, true], [true, true]] {
                for write in [Write::Set, Write::Add] {
                    let what = format!("{size:?} from {before}, transposed {transposed:?}, {write:?}");
                    let found = product::<_, O, E>(&cuda, size, before, transposed, write);
                    let expected = product::<_, O, E>(&CPU, size, before, transposed, write);
                    let added = if write == Write::Add { 2.0 } else { 0.0 };
                    assert_closer::<O>(&what, &found, &expected, size[2], added);
                }
            }
        }
    }
}

#[test]
fn products_of_f32() {
    are_alike::<f32, f32>();
}

#[test]
fn products_of_bf16() {
    are_alike::<bf16, bf16>();
}

#[test]
fn products_of_bf16_in_f32() {
    are_alike::<f32, bf16>();
}

/// A shorter fraction would lose the last term of (1 + e)^2.
#[test]
fn operands_of_f32_keep_all_their_bits() {
    let Some(cuda) = device() else { return };
    let number = 1.0 + 1.0 / 4096.0;
    let (x, mut c) = (of(&cuda, &[number]), of(&cuda, &[0.0f32]));
    cuda.matmul(c.view_mut(), Matrix::new(x.view(), 1, 1), Matrix::new(x.view(), 1, 1), Write::Set);
    assert_eq!(widened::<f32>(&bytes(&cuda, &c), 0), [number * number]);
}

fn layer<D: Device, E: Element>(device: &D, bias_before: Option<usize>, is_transposed: bool, adds: bool) -> Vec<f32> {
    let [rows, input, output] = [5, 70, 9];
    let x = Shifted::<D, E>::new(device, rows * input, 0, 1);
    let weight = Shifted::<D, E>::new(device, output * input, 0, 2);
    let bias = bias_before.map(|before| Shifted::<D, E>::new(device, output + 9 - before, before, 3));
    let bias = bias.as_ref().map(|bias| bias.view().split_at(output).0);
    let (other, mut y) =
        (Shifted::<D, E>::new(device, rows * output, 0, 4), Shifted::<D, E>::new(device, rows * output, 0, 5));
    device.fill(y.view_mut(), E::narrow(f32::NAN));
    let weight = match is_transposed {
        false => Matrix::new(weight.view(), output, input),
        true => Matrix::new(weight.view(), input, output).transposed(),
    };
    let then = if adds { Then::Add(other.view()) } else { Then::Nothing };
    device.linear(y.view_mut(), x.view(), weight, bias, then);
    widened::<E>(&y.bytes(device), 0)
}

fn layers_alike<E: Element>() {
    let Some(cuda) = device() else { return };
    // Nine elements further, a bias is at an address where the product itself cannot add it.
    for bias in [None, Some(0), Some(1), Some(9)] {
        for is_transposed in [false, true] {
            for adds in [false, true] {
                let what = format!("bias {bias:?}, transposed {is_transposed}, adds {adds}");
                let [found, expected] =
                    [layer::<_, E>(&cuda, bias, is_transposed, adds), layer::<_, E>(&CPU, bias, is_transposed, adds)];
                assert_close::<E>(&what, &found, &expected, 72);
            }
        }
    }
}

#[test]
fn linear_layers_of_f32() {
    layers_alike::<f32>();
}

#[test]
fn linear_layers_of_bf16() {
    layers_alike::<bf16>();
}

/// The same numbers, once with a bias that the product can add and once with one that it cannot.
#[test]
fn a_bias_has_the_same_bits_wherever_it_lies() {
    let Some(cuda) = device() else { return };
    let [rows, input, output] = [6, 40, 16];
    let numbers = |len, seed| noise(len, seed).into_iter().map(bf16::narrow).collect::<Vec<_>>();
    let (x, weight) = (of(&cuda, &numbers(rows * input, 1)), of(&cuda, &numbers(output * input, 2)));
    let bias = numbers(output, 3);
    let [aligned, shifted] = [of(&cuda, &bias), of(&cuda, &[&[bf16::ZERO], &bias[..]].concat())];
    let results = [aligned.view(), shifted.view().split_at(1).1].map(|bias| {
        let mut y = of(&cuda, &vec![bf16::NAN; rows * output]);
        let weight = Matrix::new(weight.view(), output, input);
        cuda.linear(y.view_mut(), x.view(), weight, Some(bias), Then::Nothing);
        bytes(&cuda, &y)
    });
    assert_eq!(results[0], results[1]);
}

#[test]
fn no_depth_is_a_sum_of_nothing() {
    let Some(cuda) = device() else { return };
    let (nothing, mut c) = (of::<_, f32>(&cuda, &[]), of(&cuda, &[1.0f32, 2.0]));
    let multiply = |c: &mut zero_core::device::Buffer<Cuda, f32>, write| {
        cuda.matmul(c.view_mut(), Matrix::new(nothing.view(), 2, 0), Matrix::new(nothing.view(), 0, 1), write);
        widened::<f32>(&bytes(&cuda, c), 0)
    };
    assert_eq!(multiply(&mut c, Write::Add), [1.0, 2.0]);
    assert_eq!(multiply(&mut c, Write::Set), [0.0, 0.0]);
}

fn ways(products: &[[usize; 3]]) -> Option<u64> {
    let cuda = device()?;
    products.iter().for_each(|&size| drop(product::<_, f32, f32>(&cuda, size, 0, [false; 2], Write::Set)));
    Some(cuda.products())
}

#[test]
fn ranks_can_compare_how_they_multiply() {
    let [first, second, third] = [[5, 9, 70], [64, 48, 32], [2, 2, 2]];
    let (both, swapped) = (ways(&[first, second]), ways(&[second, first, second]));
    assert_eq!(both, swapped, "in whichever order they were asked for, and how often");
    assert!(both.is_none() || (both != ways(&[first]) && both != ways(&[first, third])));
}
