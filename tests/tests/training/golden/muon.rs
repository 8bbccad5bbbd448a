//! Muon: its ops, one after another, against PyTorch's steps.

use zero_core::device::{Device, Element, HyperBlock, ReportBlock, bf16};
use zero_core::orthogonal::{orthogonalize, room_bytes, step_factor};
use zero_core::view::View;
use zero_cpu::Cpu;
use zero_tests::buffers::{numbers, of, stored};
use zero_tests::naive::Naive;
use zero_tests::reference::muon::MuonSteps;

/// The matrix after each step, with orthogonalization in `E`, and the momentum after the last step.
fn steps<D: Device, E: Element>(device: &D, golden: &MuonSteps) -> (Vec<Vec<f64>>, Vec<f64>) {
    let narrow = |numbers: &[f64]| numbers.iter().map(|&x| x as f32).collect::<Vec<_>>();
    let wide = |numbers: Vec<f32>| numbers.into_iter().map(f64::from).collect::<Vec<_>>();
    let mut matrix = stored::<D, f32>(device, &narrow(&golden.initial));
    let mut momentum = stored::<D, f32>(device, &vec![0.0; golden.initial.len()]);
    let mut room = of(device, &vec![u8::MAX; room_bytes::<E>(golden.shape)]);
    let hyper = HyperBlock {
        lr: golden.lr,
        beta1: f64::NAN,
        beta2: f64::NAN,
        momentum: golden.decay,
        epsilon: f64::NAN,
        weight_decay: golden.weight_decay,
        clip: f64::NAN,
        correction1: f64::NAN,
        correction2: f64::NAN,
    };
    // As if four gradients had been summed, before they are averaged.
    let report = ReportBlock { loss: f64::NAN, gradient_norm: f64::NAN, grad_scale: 0.25, is_finite: 1.0 };
    let (hyper, report) = (of(device, &[hyper]), of(device, &[report]));
    let mut after = Vec::new();
    for gradients in &golden.gradients {
        let sums: Vec<f32> = gradients.iter().map(|&x| 4.0 * x as f32).collect();
        let mut sums = stored::<D, f32>(device, &sums);
        device.momentum(hyper.view(), report.view(), sums.view_mut().into(), momentum.view_mut().into());
        let direction: View<D, E> = orthogonalize(device, golden.shape, sums.view().into(), room.view_mut());
        let weights = matrix.view_mut().into();
        device.step_along(true, step_factor(golden.shape), hyper.view(), report.view(), weights, direction);
        after.push(wide(numbers(device, &matrix)));
    }
    (after, wide(numbers(device, &momentum)))
}

/// The distance of two matrices, relative to the distance of the expected from the initial one.
fn distance(found: &[f64], expected: &[f64], initial: &[f64]) -> f64 {
    let norm = |x: &[f64], y: &[f64]| x.iter().zip(y).map(|(x, y)| (x - y) * (x - y)).sum::<f64>().sqrt();
    norm(found, expected) / norm(expected, initial)
}

fn agrees_with_pytorch<D: Device>(device: &D) {
    for golden in MuonSteps::read_all() {
        let (shape, initial) = (golden.shape, &golden.initial);
        let (after, momentum) = steps::<D, f32>(device, &golden);
        for (step, (found, expected)) in after.iter().zip(&golden.exact).enumerate() {
            let off = distance(found, expected, initial);
            assert!(off < 1e-5, "step {step} of {shape:?} is off by {off}");
        }
        let off = distance(&momentum, &golden.momentum, &vec![0.0; momentum.len()]);
        assert!(off < 1e-6, "the momentum of {shape:?} is off by {off}");
        // In bf16, compared with the error of PyTorch's own result, which is rounded in other places.
        let (after, _) = steps::<D, bf16>(device, &golden);
        let [found, own] = [&after[after.len() - 1], &golden.bf16]
            .map(|last| distance(last, &golden.exact[golden.exact.len() - 1], initial));
        assert!(found < 1.5 * own, "in bf16, {shape:?} is off by {found}, and PyTorch's by {own}");
    }
}

#[test]
fn steps_are_those_of_pytorch() {
    agrees_with_pytorch(&Cpu::default());
    agrees_with_pytorch(&Naive);
}
