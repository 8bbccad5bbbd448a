//! Losses and their gradients.

use zero_core::device::{Device, Element, Kernels, bf16};
use zero_cuda::Cuda;

use super::{Case, How, MARGIN, Results, SUMS, Tensor, check, cuda, ids, noise};

struct CrossEntropy {
    rows: usize,
    classes: usize,
    start: usize,
    /// The magnitude of logits.
    scale: f32,
}

impl Case for CrossEntropy {
    fn run<D: Device, E: Element>(&self, device: &D) -> Results {
        let Self { rows, classes, start, scale } = *self;
        let named = |what: &str| format!("{what} of {rows} x {classes}, times {scale}");
        let logits: Vec<f32> = noise(rows * classes, 1).into_iter().map(|x| x * scale).collect();
        let targets = ids(device, &(0..rows).map(|row| (row * 7 % classes) as u32).collect::<Vec<_>>());
        let mut tensor = Tensor::<D, E>::new(device, &logits, start);
        let mut loss = Tensor::<D, f32>::unwritten(device, rows);
        device.cross_entropy(tensor.view(), targets.view(), loss.view_mut());
        let mut again = Tensor::<D, f32>::new(device, &noise(rows, 2), MARGIN);
        device.cross_entropy_backward(tensor.view_mut(), targets.view(), again.view_mut());
        let [loss, again] = [loss, again].map(|loss| loss.values(device));
        assert_eq!(again, loss, "{}", named("loss"));
        vec![(named("loss"), SUMS, loss), (named("dlogits"), SUMS, tensor.values(device))]
    }
}

#[test]
fn cross_entropy_agrees() {
    for (rows, classes, start) in
        [(1, 1, MARGIN), (3, 17, 0), (33, 65, MARGIN), (11, 300, MARGIN), (2, 2048, 0), (3, 5003, 0), (2, 50_304, 0)]
    {
        check(&CrossEntropy { rows, classes, start, scale: 5.0 });
    }
}

/// Also if differences exceed the largest f32.
#[test]
fn logits_may_be_of_any_finite_size() {
    for scale in [0.0, 1e-30, 1e4, 1e38] {
        check(&CrossEntropy { rows: 5, classes: 31, start: 0, scale });
    }
}

/// If some logits are 0 and the exponentials of the others are 0, the log-sum-exp is only a logarithm: accurate to two units in the
/// last place.
#[test]
fn logarithms_are_accurate() {
    let Some(cuda) = cuda() else { return };
    for classes in 1..80u16 {
        let logits: Vec<f32> = (0..80).map(|class| if class < classes { 0.0 } else { f32::MIN }).collect();
        let logits = Tensor::<_, f32>::new(&cuda, &logits, 0);
        let mut loss = Tensor::<Cuda, f32>::unwritten(&cuda, 1);
        // The target's logit is 0.
        cuda.cross_entropy(logits.view(), ids(&cuda, &[0]).view(), loss.view_mut());
        let (found, exact) = (f64::from(loss.values(&cuda)[0]), f64::from(classes).ln());
        assert!((found - exact).abs() <= 2.4e-7 * exact, "ln {classes} is {exact}, found {found}");
    }
    assert_eq!(cuda.failure(), None);
}

/// A NaN, an infinity, numbers, a target outside of the classes, an impossible class, and only impossible classes.
fn what_shows<E: Element>() {
    let Some(cuda) = cuda() else { return };
    let mut logits = noise(6 * 300, 1);
    (logits[299], logits[300], logits[4 * 300 + 7]) = (f32::NAN, f32::INFINITY, f32::NEG_INFINITY);
    logits[5 * 300..].fill(f32::NEG_INFINITY);
    let mut logits = Tensor::<_, E>::new(&cuda, &logits, 0);
    let targets = ids(&cuda, &[0, 1, 2, 300, 3, 4]);
    let mut loss = Tensor::<Cuda, f32>::unwritten(&cuda, 6);
    cuda.cross_entropy(logits.view(), targets.view(), loss.view_mut());
    let mut again = Tensor::<Cuda, f32>::new(&cuda, &[1.0; 6], 0);
    cuda.cross_entropy_backward(logits.view_mut(), targets.view(), again.view_mut());
    let expected = [false, false, true, false, true, false];
    for loss in [loss, again] {
        assert_eq!(loss.values(&cuda).iter().map(|x| x.is_finite()).collect::<Vec<_>>(), expected);
    }
    let gradients = logits.values(&cuda);
    // Only the loss shows a target outside of the classes.
    for (row, is_finite) in expected.into_iter().enumerate().filter(|(row, _)| *row != 3) {
        let row = &gradients[row * 300..][..300];
        assert_eq!(row.iter().all(|x| x.is_finite()), is_finite, "{row:?}");
    }
    assert_eq!(cuda.failure(), None);
}

#[test]
fn logits_that_are_not_finite_and_targets_that_are_no_classes_show() {
    what_shows::<f32>();
    what_shows::<bf16>();
}

struct SquaredError {
    rows: usize,
    width: usize,
    start: usize,
}

impl Case for SquaredError {
    fn run<D: Device, E: Element>(&self, device: &D) -> Results {
        let Self { rows, width, start } = *self;
        let named = |what: &str| format!("{what} of {rows} x {width}");
        let x = Tensor::<D, E>::new(device, &noise(rows * width, 1), start);
        let targets = Tensor::<D, f32>::new(device, &noise(rows * width, 2), start);
        let dloss = Tensor::<D, f32>::noise(device, rows, 3);
        let mut loss = Tensor::<D, f32>::unwritten(device, rows);
        let mut dx = Tensor::<D, E>::new(device, &vec![f32::NAN; rows * width], start);
        device.squared_error(x.view(), targets.view(), loss.view_mut());
        device.squared_error_backward(x.view(), targets.view(), dloss.view(), dx.view_mut());
        vec![(named("loss"), SUMS, loss.values(device)), (named("dx"), How::Bits, dx.values(device))]
    }
}

#[test]
fn squared_errors_agree() {
    for (rows, width, start) in [(1, 1, MARGIN), (33, 3, 0), (5, 64, 0), (3, 257, MARGIN), (2, 2056, 0)] {
        check(&SquaredError { rows, width, start });
    }
}
