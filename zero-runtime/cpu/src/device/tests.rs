//! Tests of the device apart from kernels: memory, the two ways in which the host writes data, and the ops on words.

use super::*;
use crate::testing::{STEP, assert_close, noise, stored, to_f64};
use zero_core::device::bf16;
use zero_core::device::{DecayRun, DeviceMemory, Element};

const CPU: Cpu = Cpu::ONE_THREAD;

const HYPER: HyperBlock = HyperBlock {
    lr: STEP.lr,
    beta1: STEP.beta1,
    beta2: STEP.beta2,
    momentum: 0.95,
    epsilon: STEP.eps,
    weight_decay: STEP.weight_decay,
    clip: f64::INFINITY,
    correction1: STEP.correction1,
    correction2: STEP.correction2,
};

#[test]
fn memory_is_what_was_asked_for_and_shared_memory_the_segment_itself() {
    let own = CPU.allocate(5000).expect("5000 bytes");
    assert_eq!((DeviceMemory::len(&own), own.start() as usize % 4096), (5000, 0));
    let segment = Arc::new(Segment::private(5000).expect("5000 bytes"));
    assert_eq!(
        CPU.share(segment.clone(), SharedParts { bytes: vec![4096], own: 0, exchange: None })
            .expect("its memory")
            .start(),
        segment.ptr()
    );
    assert_eq!(CPU.allocate(usize::MAX).expect_err("more than there is").code(), "Z0331");
}

#[test]
fn what_is_staged_can_be_read() {
    let (mut there, mut here) = ([0u32; 3], [0u32; 3]);
    CPU.stage((&mut there[..]).into(), |cells| cells.copy_from_slice(&[7, 8, 9]));
    CPU.read((&there[..]).into(), &mut here);
    assert_eq!(here, [7, 8, 9]);
}

#[test]
fn words_are_those_of_the_sums() {
    let (x, mut words) = (noise(33, 1), [0.25, f64::NAN]);
    let [mean, squares] = words.each_mut().map(core::slice::from_mut);
    CPU.add_mean(x.as_slice().into(), mean.into());
    CPU.squares(View::from(x.as_slice()).into(), squares.into());
    let sum: f64 = x.iter().map(|&x| f64::from(x)).sum();
    assert_eq!(words, [0.25 + sum / 33.0, kernels::stored::sum_squares(CPU, View::from(x.as_slice()).into())]);
}

#[test]
fn numbers_are_copied_from_one_width_to_another() {
    let wide = noise(33, 1);
    let narrow: Vec<bf16> = wide.iter().map(|&x| bf16::narrow(x)).collect();
    let rounded: Vec<f32> = narrow.iter().map(|x| x.widen()).collect();
    let (mut to_wide, mut to_narrow) = (vec![0.0; 33], vec![bf16::ZERO; 33]);
    let (from_wide, from_narrow) = (View::from(wide.as_slice()), View::from(narrow.as_slice()));
    CPU.convert(ViewMut::from(to_wide.as_mut_slice()).into(), from_wide.into());
    assert_eq!(to_wide, wide);
    CPU.convert(ViewMut::from(to_wide.as_mut_slice()).into(), from_narrow.into());
    assert_eq!(to_wide, rounded);
    CPU.convert(ViewMut::from(to_narrow.as_mut_slice()).into(), from_wide.into());
    assert_eq!(to_narrow, narrow);
    to_narrow.fill(bf16::ZERO);
    CPU.convert(ViewMut::from(to_narrow.as_mut_slice()).into(), from_narrow.into());
    assert_eq!(to_narrow, narrow);
}

/// Parameters and moments after an update by these blocks.
fn updated(decays: [bool; 2], report: ReportBlock) -> [Vec<f32>; 3] {
    let (mut params, mut m, mut v, grads) = (noise(9, 1), noise(9, 2), vec![0.5; 9], noise(9, 3));
    let weights = ViewMut::from(params.as_mut_slice()).into();
    let [m_view, v_view] = [&mut m, &mut v].map(|x| ViewMut::from(x.as_mut_slice()).into());
    let grads = View::from(grads.as_slice()).into();
    let runs = [DecayRun { len: 4, decays: decays[0] }, DecayRun { len: 5, decays: decays[1] }];
    CPU.update(&runs, (&[HYPER][..]).into(), (&[report][..]).into(), weights, grads, m_view, v_view);
    [params, m, v]
}

#[test]
fn an_update_is_a_step_by_what_the_blocks_say() {
    let report = ReportBlock { loss: 1.0, gradient_norm: 1.0, grad_scale: STEP.grad_scale, is_finite: 1.0 };
    for decays in [[true, true], [false, false], [true, false], [false, true]] {
        let (mut params, mut m, mut v, grads) = (noise(9, 1), noise(9, 2), vec![0.5; 9], noise(9, 3));
        for (run, decays) in [0..4, 4..9].into_iter().zip(decays) {
            let step = AdamW { weight_decay: if decays { STEP.weight_decay } else { 0.0 }, ..STEP };
            let [params, m, v] = [&mut params, &mut m, &mut v].map(|x| &mut x[run.clone()]);
            kernels::adamw(&step, params, &grads[run.clone()], m, v);
        }
        assert_eq!(updated(decays, report), [params, m, v]);
    }
}

#[test]
fn nothing_is_updated_by_what_is_not_finite() {
    let report = ReportBlock { loss: f64::NAN, gradient_norm: 1.0, grad_scale: 1.0, is_finite: 0.0 };
    assert_eq!(updated([true; 2], report), [noise(9, 1), noise(9, 2), vec![0.5; 9]]);
}

/// Gradients, momentum and parameters after a step of Muon by these blocks.
fn updated_along(decays: bool, report: ReportBlock) -> [Vec<f32>; 3] {
    let (mut gradients, mut m, mut params) = (noise(9, 1), noise(9, 2), noise(9, 3));
    let [gradients_view, m_view, weights] =
        [&mut gradients, &mut m, &mut params].map(|x| StoredMut::from(ViewMut::from(x.as_mut_slice())));
    let (hyper, report) = ([HYPER], [report]);
    let (hyper, report) = (View::from(&hyper[..]), View::from(&report[..]));
    CPU.momentum(hyper, report, gradients_view, m_view);
    CPU.step_along(decays, 1.5, hyper, report, weights.into(), View::from(noise(9, 4).as_slice()));
    [gradients, m, params]
}

#[test]
fn a_step_of_muon_is_by_what_the_blocks_say() {
    let report = ReportBlock { loss: 1.0, gradient_norm: 1.0, grad_scale: 0.25, is_finite: 1.0 };
    for decays in [true, false] {
        let (mut gradients, mut m, mut params) = (noise(9, 1), noise(9, 2), noise(9, 3));
        kernels::muon::momentum(0.95, 0.25, &mut gradients, &mut m);
        let keep = if decays { (1.0 - STEP.lr * STEP.weight_decay) as f32 } else { 1.0 };
        kernels::muon::step_along(keep, (1.5 * STEP.lr) as f32, &mut params, &noise(9, 4));
        assert_eq!(updated_along(decays, report), [gradients, m, params]);
    }
    let infinite = ReportBlock { is_finite: 0.0, ..report };
    assert_eq!(updated_along(true, infinite), [noise(9, 1), noise(9, 2), noise(9, 3)]);
}

/// By its norm, or by `epsilon` if that is larger.
#[test]
fn a_matrix_is_divided_by_its_norm() {
    let normalized = |square: f64, epsilon: f64| {
        let (mut to, from, square) = ([f32::NAN; 2], [3.0f32, -4.0], [square]);
        CPU.normalize((&mut to[..]).into(), View::from(&from[..]).into(), (&square[..]).into(), epsilon);
        to
    };
    assert_eq!(normalized(25.0, 1e-7), [0.6, -0.8]);
    assert_eq!(normalized(25.0, 8.0), [0.375, -0.5]);
    assert_eq!(normalized(0.0, 0.5), [6.0, -8.0]);
}

#[test]
fn the_report_is_that_of_the_agreement() {
    use zero_plan::{Config, Mesh, PlanBuf, Unit};
    let config = Config { mesh: Mesh::of_zero(2), stage: 1, ..Config::PLAIN };
    let unit = Unit { params: 64, takes: 64, input_bytes: 4, output_bytes: 4, ..Unit::NONE };
    let agreement = PlanBuf::new("", config, &[unit]).with(Agreement::of);
    let mut report = [ReportBlock { loss: f64::NAN, gradient_norm: f64::NAN, grad_scale: f64::NAN, is_finite: 0.0 }];
    CPU.agree(&agreement, (&[1.0, 7.0, 2.0, 9.0][..]).into(), (&[HYPER][..]).into(), (&mut report[..]).into());
    assert_eq!(report, [ReportBlock { loss: 1.5, gradient_norm: 2.0, grad_scale: 0.5, is_finite: 1.0 }]);
}

fn few_rows_match_many<E: Element>() {
    let (many, output, input) = (9, 70, 37);
    let [x, weight, bias, other] = [(many * input, 1), (output * input, 2), (output, 3), (many * output, 4)]
        .map(|(len, seed)| stored::<E>(len, seed));
    let weight = || Matrix::new(weight.as_slice().into(), output, input);
    let run = |rows: usize, bias: Option<View<Cpu, E>>| {
        let (x, other) = (&x[..rows * input], &other[..rows * output]);
        let nan = || vec![E::narrow(f32::NAN); rows * output];
        let (mut added, mut y, mut z, mut product) = (nan(), nan(), nan(), stored::<f32>(rows * output, 5));
        CPU.linear((&mut added[..]).into(), x.into(), weight(), bias, Then::Add(other.into()));
        let then = Then::Activate(Nonlinearity::Silu, (&mut z[..]).into());
        CPU.linear((&mut y[..]).into(), x.into(), weight(), bias, then);
        let x = || Matrix::new(x.into(), rows, input);
        CPU.matmul((&mut product[..]).into(), x(), weight().transposed(), Write::Add);
        [to_f64(&added), to_f64(&y), to_f64(&z), to_f64(&product)]
    };
    for bias in [None, Some(bias.as_slice().into())] {
        let of_many = run(many, bias);
        for rows in 1..=4 {
            for (name, (found, of_many)) in
                ["added", "y", "z", "product"].iter().zip(run(rows, bias).iter().zip(&of_many))
            {
                let found: Vec<E> = found.iter().map(|&x| E::narrow(x as f32)).collect();
                assert_close(name, &found, &of_many[..rows * output], 1e-4);
            }
        }
    }
}

/// The device has another way to multiply few rows.
#[test]
fn a_few_rows_come_to_what_they_do_among_many() {
    few_rows_match_many::<f32>();
    few_rows_match_many::<bf16>();
}
