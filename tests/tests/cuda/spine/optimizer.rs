//! A step of the optimizer in every mix of widths, to the bit; and whether numbers are finite.

use zero_core::device::{AdamW, DecayRun, Device, Element, Kernels, ReportBlock, Stored, StoredMut, Weights, bf16};
use zero_core::view::{View, ViewMut};
use zero_tests::buffers::of;

use super::{HYPER, REPORT, Shifted, device, steps_alike};

/// How a step is requested.
#[derive(Clone, Copy, Debug)]
enum Way {
    Decaying,
    Plain,
    NotFinite,
    ByHost,
}

/// All tensors after three steps: widths are those of layers' parameters, of the master copy, if there is one, of gradients and of
/// both moments.
fn steps<D: Device, P: Element, G: Element, M: Element, V: Element>(
    device: &D,
    way: Way,
    has_master: bool,
    [len, before]: [usize; 2],
) -> Vec<Vec<u8>>
where
    for<'a> Stored<'a, D>: From<View<'a, D, G>>,
    for<'a> StoredMut<'a, D>:
        From<ViewMut<'a, D, P>> + From<ViewMut<'a, D, f32>> + From<ViewMut<'a, D, M>> + From<ViewMut<'a, D, V>>,
{
    let mut params = Shifted::<D, P>::new(device, len, before, 1);
    let mut master = Shifted::<D, f32>::new(device, len, before, 2);
    let (mut m, mut v) = (Shifted::<D, M>::new(device, len, before, 3), Shifted::<D, V>::new(device, len, before, 4));
    // The second moment averages squares, so it is positive.
    let positive = Shifted::<D, V>::new(device, len, before, 4);
    device.mul(v.view_mut(), positive.view());
    let is_finite = if matches!(way, Way::NotFinite) { 0.0 } else { 1.0 };
    let (hyper, report) = (of(device, &[HYPER]), of(device, &[ReportBlock { is_finite, ..REPORT }]));
    for step in 0..3 {
        let grads = Shifted::<D, G>::new(device, len, before, 10 + step);
        let (params, master) = (StoredMut::from(params.view_mut()), StoredMut::from(master.view_mut()));
        let weights = Weights { params, master: has_master.then_some(master) };
        let (grads, m, v) = (grads.view().into(), m.view_mut().into(), v.view_mut().into());
        match way {
            Way::ByHost => device.adamw(&AdamW::of(&HYPER, &REPORT, true), weights, grads, m, v),
            _ => {
                let decays = matches!(way, Way::Decaying);
                // The second run begins and ends within the elements of a thread.
                let (first, second) = (len / 2, len / 4);
                let runs = [(first, decays), (second, !decays), (len - first - second, decays)];
                let runs: Vec<_> = runs.into_iter().map(|(len, decays)| DecayRun { len, decays }).collect();
                device.update(&runs, hyper.view(), report.view(), weights, grads, m, v);
            }
        }
    }
    vec![params.bytes(device), master.bytes(device), m.bytes(device), v.bytes(device)]
}

macro_rules! widths {
    ($($name:ident: $params:ty, $grads:ty, $m:ty, $v:ty, $has_master:expr;)*) => {
        $(#[test] fn $name() {
            steps_alike(
                &[Way::Decaying, Way::Plain, Way::NotFinite, Way::ByHost],
                |cuda, way, sizes| steps::<_, $params, $grads, $m, $v>(cuda, way, $has_master, sizes),
                |cpu, way, sizes| steps::<_, $params, $grads, $m, $v>(cpu, way, $has_master, sizes),
            );
        })*
    };
}

widths! {
    all_in_f32: f32, f32, f32, f32, false;
    all_in_bf16: bf16, bf16, bf16, bf16, false;
    a_master_in_f32: bf16, bf16, bf16, f32, true;
    a_master_beside_f32: f32, f32, bf16, bf16, true;
}

fn finite<E: Element>(largest: E)
where
    for<'a> Stored<'a, zero_runtime::device::Cuda>: From<View<'a, zero_runtime::device::Cuda, E>>,
{
    let Some(cuda) = device() else { return };
    for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        for at in [0, 7, 8, 2999] {
            let mut numbers = vec![largest; 3000];
            assert!(cuda.all_finite(of(&cuda, &numbers).view()));
            numbers[at] = E::narrow(bad);
            assert!(!cuda.all_finite(of(&cuda, &numbers).view()), "{bad} at {at}");
        }
    }
    assert!(cuda.all_finite(View::<_, E>::empty()));
}

#[test]
fn one_number_that_is_not_finite_is_found() {
    finite(f32::MAX);
    finite(bf16::MAX);
}
