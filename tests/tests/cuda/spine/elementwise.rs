//! Copies, fills, conversions, sums and products of elements: to the bit, at every alignment, with nothing written outside.

use zero_core::device::{Device, Element, Kernels, bf16};
use zero_tests::buffers::{numbers, of};

use super::{CPU, Shifted, alike, bytes, device};

/// Below, at and beyond the lengths that a thread and a block process at a time.
const LENGTHS: [usize; 6] = [1, 7, 8, 9, 2048, 4099];

fn all_ops<D: Device, E: Element>(device: &D, len: usize, before: usize) -> Vec<Vec<u8>> {
    let x = Shifted::<D, E>::new(device, len, before, 1);
    let y = |seed| Shifted::<D, E>::new(device, len, before, seed);
    let (mut copied, mut filled, mut sum, mut product) = (y(2), y(3), y(4), y(5));
    let (mut scaled, mut blended) = (y(6), y(7));
    device.copy(copied.view_mut(), x.view());
    device.fill(filled.view_mut(), E::narrow(0.3));
    device.add(sum.view_mut(), x.view());
    device.mul(product.view_mut(), x.view());
    device.scale(scaled.view_mut(), 0.3);
    device.axpby(0.3, x.view(), -1.7, blended.view_mut());
    [copied, filled, sum, product, scaled, blended].iter().map(|y| y.bytes(device)).collect()
}

fn are_alike<E: Element>() {
    let Some(cuda) = device() else { return };
    for len in LENGTHS {
        for before in [0, 1, 8] {
            let (found, expected) = (all_ops::<_, E>(&cuda, len, before), all_ops::<_, E>(&CPU, len, before));
            for (op, (found, expected)) in found.iter().zip(&expected).enumerate() {
                alike(&format!("op {op} of {len} elements from {before}"), found, expected);
            }
        }
    }
}

#[test]
fn f32_is_as_on_the_processor() {
    are_alike::<f32>();
}

#[test]
fn bf16_is_as_on_the_processor() {
    are_alike::<bf16>();
}

/// A tie, a number beside it, subnormals, infinities, NaN whose upper half is an infinity, and zeros.
const AWKWARD: [u32; 11] = [
    0x3f81_8000,
    0x3f80_8000,
    0x3f80_8001,
    1,
    0x0000_8001,
    0x7f80_0000,
    0xff80_0000,
    0x7f80_0001,
    0xffff_ffff,
    0x8000_0000,
    0x7f7f_ffff,
];

fn convert_all<D: Device>(device: &D) -> [Vec<f32>; 4] {
    let wide = of(device, &AWKWARD.map(f32::from_bits));
    let narrow = of(device, &AWKWARD.map(|bits| bf16::from_bits((bits >> 16) as u16)));
    let [mut rounded, mut kept] = [(); 2].map(|()| of(device, &[bf16::ZERO; AWKWARD.len()]));
    let [mut widened, mut copied] = [(); 2].map(|()| of(device, &[0.0f32; AWKWARD.len()]));
    device.convert(rounded.view_mut().into(), wide.view().into());
    device.convert(kept.view_mut().into(), narrow.view().into());
    device.convert(widened.view_mut().into(), narrow.view().into());
    device.convert(copied.view_mut().into(), wide.view().into());
    [numbers(device, &rounded), numbers(device, &kept), numbers(device, &widened), numbers(device, &copied)]
}

#[test]
fn conversions_round_as_the_processor_does() {
    let Some(cuda) = device() else { return };
    for (way, (found, expected)) in convert_all(&cuda).iter().zip(&convert_all(&CPU)).enumerate() {
        for (at, (found, expected)) in found.iter().zip(expected).enumerate() {
            // NaN stays NaN, but not always the same one.
            let is_same = found.to_bits() == expected.to_bits() || (found.is_nan() && expected.is_nan());
            assert!(is_same, "conversion {way} of {:#010x}: {found}, expected {expected}", AWKWARD[at]);
        }
    }
}

#[test]
fn values_of_any_length_fill() {
    let Some(cuda) = device() else { return };
    let mut narrow = of(&cuda, &[0u16; 9]);
    let mut wide = of(&cuda, &[0.0f64; 2100]);
    let mut bytewise = of(&cuda, &[1u8; 5]);
    cuda.fill(narrow.view_mut().split_at(2).1, 0x1234);
    cuda.fill(wide.view_mut(), 1.5);
    cuda.fill(bytewise.view_mut().split_at(4).0, 7);
    assert_eq!(bytes(&cuda, &narrow), [[0, 0]; 2].into_iter().chain([[0x34, 0x12]; 7]).flatten().collect::<Vec<_>>());
    assert_eq!(bytes(&cuda, &wide), bytemuck::cast_slice::<f64, u8>(&[1.5; 2100]));
    assert_eq!(bytes(&cuda, &bytewise), [7, 7, 7, 7, 1]);
}

#[test]
fn nothing_is_nothing_to_do() {
    let Some(cuda) = device() else { return };
    let (x, mut y) = (of::<_, f32>(&cuda, &[]), of::<_, f32>(&cuda, &[]));
    cuda.add(y.view_mut(), x.view());
    cuda.copy(y.view_mut(), x.view());
    cuda.fill(y.view_mut(), 1.0);
    assert_eq!(cuda.failure(), None);
}

#[test]
#[should_panic(expected = "`x` has 2 elements, expected 3")]
fn lengths_must_agree() {
    let Some(cuda) = device() else { panic!("`x` has 2 elements, expected 3: not tested") };
    cuda.add(of(&cuda, &[0.0f32; 3]).view_mut(), of(&cuda, &[0.0f32; 2]).view());
}
