//! Passes that repeat, on one device: which parts stay the same each time, which may differ, and which are refused.

use zero_core::device::{Buffer, Device, Kernels, Queues, Storage};
use zero_cuda::Cuda;
use zero_tests::buffers::{of, values};
use zero_tests::pretend;

use super::device;

/// One pass: a staged number is added three times in one queue, and the sum is copied in another, which may or may not wait for it.
/// Returns the copy.
fn pass(cuda: &Cuda, staged: f32, [x, sum, copy]: &mut [Buffer<Cuda, f32>; 3], is_ordered: bool) -> Vec<f32> {
    cuda.begin_repeated(7);
    cuda.stage(x.view_mut(), |x| x.fill(staged));
    cuda.fill(sum.view_mut(), 0.0);
    cuda.record(0);
    cuda.enter(1);
    cuda.wait(0);
    (0..3).for_each(|_| cuda.add(sum.view_mut(), x.view()));
    cuda.record(1);
    cuda.enter(2);
    cuda.wait(if is_ordered { 1 } else { 0 });
    cuda.copy(copy.view_mut(), sum.view());
    cuda.record(2);
    cuda.enter(0);
    cuda.wait(1);
    cuda.wait(2);
    cuda.end_repeated();
    values(cuda, copy)
}

#[test]
fn a_pass_stages_anew_each_time_and_keeps_its_order() {
    let Some(cuda) = device() else { return };
    cuda.prepare(3).expect("events");
    let mut buffers = [0.0f32; 3].map(|zero| of(&cuda, &[zero; 5000]));
    for (seed, staged) in (1..17).map(|i| (i, i as f32)) {
        pretend::seed(seed);
        assert!(pass(&cuda, staged, &mut buffers, true) == [3.0 * staged; 5000], "seed {seed}");
    }
    assert_eq!(cuda.failure(), None);
}

#[test]
fn a_wait_too_few_is_noticed_by_some_seed() {
    let Some(cuda) = device() else { return };
    cuda.prepare(3).expect("events");
    let mut buffers = [0.0f32; 3].map(|zero| of(&cuda, &[zero; 5000]));
    let overtaken = (1..33).filter(|&seed| {
        pretend::seed(seed);
        pass(&cuda, seed as f32, &mut buffers, false) != [3.0 * seed as f32; 5000]
    });
    assert!(overtaken.count() > 2 || pretend::is_hardware(), "a graph keeps an order that nobody asked for");
    assert_eq!(cuda.failure(), None);
}

/// The factor is an argument of a kernel, and so a part of what is captured.
fn scale(cuda: &Cuda, x: &mut Buffer<Cuda, f32>, factors: &[f32]) {
    cuda.begin_repeated(0);
    factors.iter().for_each(|&factor| cuda.scale(x.view_mut(), factor));
    cuda.end_repeated();
}

#[test]
fn z0449_a_pass_asks_for_something_else() {
    for (changed, calls) in [(&[2.0f32, 4.0][..], 2), (&[2.0], 2), (&[2.0, 3.0, 3.0], 3)] {
        let Some(cuda) = device() else { return };
        let mut x = of(&cuda, &[1.0f32; 9]);
        (0..3).for_each(|_| scale(&cuda, &mut x, &[2.0, 3.0]));
        assert_eq!((values(&cuda, &x), cuda.failure()), (vec![216.0; 9], None));
        scale(&cuda, &mut x, changed);
        let failure = cuda.failure().expect("a pass that is another one");
        assert_eq!(failure.code, "Z0449", "{failure}");
        let what =
            format!("call {calls} of a step to CUDA device 0 differs from the step that was captured as a graph");
        assert_eq!(failure.what, what);
        assert!(failure.help.contains("--eager"), "{}", failure.help);
    }
}

/// Passes of two keys have a graph each; work between passes is executed directly.
#[test]
fn each_key_has_a_graph() {
    let Some(cuda) = device() else { return };
    let mut x = of(&cuda, &[1.0f32; 9]);
    let mut expected = 1.0;
    for (key, factor) in [(0, 2.0), (1, 3.0), (0, 2.0), (1, 3.0), (1, 3.0), (0, 2.0)] {
        cuda.begin_repeated(key);
        cuda.scale(x.view_mut(), factor);
        cuda.end_repeated();
        cuda.scale(x.view_mut(), 0.5);
        expected *= factor / 2.0;
        assert_eq!(values(&cuda, &x), [expected; 9], "key {key}");
    }
    assert_eq!(cuda.failure(), None);
}

/// In the first pass, in one that is captured and in one that is launched again, without a further call.
#[test]
fn what_was_staged_can_be_replaced_before_a_pass_ends() {
    let Some(cuda) = device() else { return };
    let (mut x, mut sum) = (of(&cuda, &[0.0f32; 8]), of(&cuda, &[0.0f32; 8]));
    for replaced in [false, true, true, false, true, false] {
        cuda.begin_repeated(0);
        cuda.stage(sum.view_mut(), |sum| sum.fill(1.0));
        cuda.stage(x.view_mut(), |x| x.fill(2.0));
        cuda.add(sum.view_mut(), x.view());
        if replaced {
            cuda.restage(sum.view_mut().part(0, 1), |sum| sum.fill(f32::NAN));
        }
        cuda.end_repeated();
        let found = values(&cuda, &sum);
        assert_eq!((found[0].is_nan(), &found[1..]), (replaced, &[3.0f32; 7][..]), "{found:?}");
    }
    assert_eq!(cuda.failure(), None);
}

/// A device that is dropped in the middle of a capture, as when a dataset panics, restores the state of the driver.
#[test]
fn a_capture_that_nobody_ends_is_given_up() {
    let Some(cuda) = device() else { return };
    let mut x = of(&cuda, &[1.0f32; 9]);
    scale(&cuda, &mut x, &[2.0]);
    cuda.begin_repeated(0);
    cuda.scale(x.view_mut(), 2.0);
    drop(cuda);
    drop(x);
    let cuda = device().expect("a device");
    let mut x = of(&cuda, &[1.0f32; 9]);
    (0..4).for_each(|_| scale(&cuda, &mut x, &[2.0]));
    assert_eq!((values(&cuda, &x), cuda.failure()), (vec![16.0; 9], None));
}
