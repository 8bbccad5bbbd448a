//! A step of Muon: its updates of each element, in every mix of widths, to the bit; and the products by which it orthogonalizes.

use zero_core::device::{Device, Element, ReportBlock, Stored, StoredMut, Weights, bf16};
use zero_core::orthogonal::{orthogonalize, room_bytes};
use zero_core::view::{View, ViewMut};
use zero_tests::buffers::of;

use super::{CPU, HYPER, REPORT, Shifted, device, steps_alike};

/// All tensors after two steps along the gradients, divided by their norm. Widths are those of layers' parameters, gradients,
/// momentum, and directions; a master copy, if there is one, is f32.
fn steps<D: Device, P: Element, G: Element, M: Element, E: Element>(
    device: &D,
    [decays, is_finite]: [bool; 2],
    has_master: bool,
    [len, before]: [usize; 2],
) -> Vec<Vec<u8>>
where
    for<'a> Stored<'a, D>: From<View<'a, D, G>>,
    for<'a> StoredMut<'a, D>:
        From<ViewMut<'a, D, P>> + From<ViewMut<'a, D, f32>> + From<ViewMut<'a, D, G>> + From<ViewMut<'a, D, M>>,
{
    let mut params = Shifted::<D, P>::new(device, len, before, 1);
    let mut master = Shifted::<D, f32>::new(device, len, before, 2);
    let mut m = Shifted::<D, M>::new(device, len, before, 3);
    let mut direction = Shifted::<D, E>::new(device, len, before, 4);
    let is_finite = if is_finite { 1.0 } else { 0.0 };
    let (hyper, report) = (of(device, &[HYPER]), of(device, &[ReportBlock { is_finite, ..REPORT }]));
    let mut squares = of(device, &[f64::NAN; 2]);
    let mut written = Vec::new();
    for step in 0..2 {
        let mut gradients = Shifted::<D, G>::new(device, len, before, 10 + step);
        device.momentum(hyper.view(), report.view(), gradients.view_mut().into(), m.view_mut().into());
        let square = squares.view_mut().part(1, 1);
        device.squares(gradients.view().into(), square);
        let square = squares.view().part(1, 1);
        device.normalize(direction.view_mut(), gradients.view().into(), square, 1e-7);
        let (params, master) = (StoredMut::from(params.view_mut()), StoredMut::from(master.view_mut()));
        let weights = Weights { params, master: has_master.then_some(master) };
        device.step_along(decays, 1.5, hyper.view(), report.view(), weights, direction.view());
        written.push(gradients.bytes(device));
    }
    written.extend([params.bytes(device), master.bytes(device), m.bytes(device), direction.bytes(device)]);
    written
}

macro_rules! widths {
    ($($name:ident: $params:ty, $grads:ty, $m:ty, $direction:ty, $has_master:expr;)*) => {
        $(#[test] fn $name() {
            steps_alike(
                &[[true, true], [false, true], [true, false]],
                |cuda, way, sizes| steps::<_, $params, $grads, $m, $direction>(cuda, way, $has_master, sizes),
                |cpu, way, sizes| steps::<_, $params, $grads, $m, $direction>(cpu, way, $has_master, sizes),
            );
        })*
    };
}

widths! {
    all_in_f32: f32, f32, f32, f32, false;
    all_in_bf16: bf16, bf16, bf16, bf16, false;
    a_master_in_f32: bf16, bf16, f32, bf16, true;
    a_master_beside_f32: f32, f32, bf16, f32, true;
    directions_in_bf16: f32, f32, f32, bf16, false;
}

/// The nearest orthogonal matrix, from an odd element on.
fn orthogonal<D: Device>(device: &D, [rows, columns]: [usize; 2]) -> Vec<f32> {
    let from = Shifted::<D, f32>::new(device, rows * columns, 1, 5);
    let mut room = of(device, &vec![u8::MAX; room_bytes::<f32>([rows, columns])]);
    let found = orthogonalize::<D, f32>(device, [rows, columns], from.view().into(), room.view_mut());
    let mut numbers = vec![f32::NAN; found.len()];
    device.read(found, &mut numbers);
    numbers
}

/// The library computes the products, so their last bits differ.
#[test]
fn matrices_are_orthogonalized_as_on_the_processor() {
    let Some(cuda) = device() else { return };
    for shape in [[1, 19], [19, 1], [5, 7], [7, 5], [33, 64]] {
        let (found, expected) = (orthogonal(&cuda, shape), orthogonal(&CPU, shape));
        for (i, (found, expected)) in found.iter().zip(&expected).enumerate() {
            assert!((found - expected).abs() < 2e-5, "element {i} of {shape:?} is {found}, expected {expected}");
        }
    }
    assert_eq!(cuda.failure(), None);
}
