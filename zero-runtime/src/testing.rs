//! Testing: checks for layers, the library's and a user's own. Never used by a run.

mod names;
mod sample;
mod trial;

pub use sample::Sample;
pub use zero_files::testing::{FailingDisk, SampleCheckpoint};

use names::LayerNames;
use trial::{Along, DX, GRADS, Trial, Y};
use zero_core::device::{Kernels, Then, Write};
use zero_core::layer::{Layer, Shape, Tokens};
use zero_core::random::uniform;
use zero_cpu::Cpu;

/// Relative error that [`gradcheck`] admits: a few times the rounding error of a central difference in f32.
const TOLERANCE: f64 = 5e-3;

/// Relative error between two ways to compute the same in f32.
const ROUNDING: f64 = 1e-4;

/// The most elements that [`gradcheck`] moves of parameters, and of inputs.
const CHECKED_MAX: usize = 400;

/// The value of gradients before a layer adds to them.
const HELD: f32 = 2.0;

/// A number of magnitude 0.1 to 1 and either sign: finite differences must not step over the kink of a ReLU.
fn away_from_zero(seed: u64, i: u64) -> f32 {
    let magnitude = 0.1 + 0.9 * uniform(seed, 2 * i);
    (if uniform(seed, 2 * i + 1) < 0.5 { magnitude } else { -magnitude }) as f32
}

/// Checks a layer's backward against finite differences of its forward, that gradients are overwritten or added to as
/// asked, that the losses of a head with [`Layer::LOSSES_IN_BACKWARD`] are those of its forward, that an operation done
/// in the same pass gives the same as one done after it, that decoding a sequence token by token gives the same as
/// forward, that `MATRICES` counts the hidden matrices of its tensors, and that it reads nothing that it was not given.
///
/// Parameters and input elements are moved one by one, by two step widths (Richardson), with sums in f64: all of them,
/// or some hundreds spread evenly if there are more. Targets are ids of classes; [`gradcheck_towards`] takes others.
///
/// # Panics
/// If something is forgotten or off by more than the tolerance, naming the layer, the tensor and the element.
pub fn gradcheck<S: Shape<Device = Cpu, Compute = f32>, X: Sample, L: Layer<S, X>>() {
    gradcheck_towards::<S, X, Tokens, L>();
}

/// [`gradcheck`] of a head with targets of its own kind, `T`.
///
/// # Panics
/// As [`gradcheck`].
pub fn gradcheck_towards<S: Shape<Device = Cpu, Compute = f32>, X: Sample, T: Sample, L: Layer<S, X>>() {
    if let Some(fault) = L::FAULT {
        panic!("{}", fault.as_str());
    }
    let names = LayerNames::of::<S, X, L>();
    let mut trial = Trial::new::<S, X, T, L>();
    let dy: Vec<f32> = (0..trial.y.len() as u64).map(|i| away_from_zero(4, i)).collect();
    trial.forward::<S, X, L>(Then::Nothing);
    names.require_written(Y, &trial.y);
    check_shorter::<S, X, T, L>(&names, &trial);
    check_decoding::<S, X, T, L>(&names, &trial);
    let (grads, dx) = trial.backward::<S, X, L>(&dy, None, GRADS.value(), Write::Set);
    names.require_written(GRADS, &grads);
    names.require_written(DX, &dx);
    for (i, (&found, &expected)) in trial.losses.iter().zip(&trial.y).enumerate() {
        if !is_close(f64::from(found), f64::from(expected), ROUNDING * f64::from(expected.abs().max(1.0))) {
            names.differs(Y, i, "in `losses` after `backward`, as of `forward`", f64::from(expected), found);
        }
    }
    let (added, _) = trial.backward::<S, X, L>(&dy, None, HELD, Write::Add);
    for (i, (&set, &found)) in grads.iter().zip(&added).enumerate() {
        let expected = f64::from(HELD) + f64::from(set);
        if !is_close(f64::from(found), expected, ROUNDING * (1.0 + f64::from(set).abs())) {
            names.differs(GRADS, i, &format!("where {HELD} was held and `Write` says to add {set}"), expected, found);
        }
    }
    check_one_pass::<S, X, L>(&names, &mut trial, &dy, &dx);
    check::<S, X, L>(&names, &mut trial, &dy, &grads, Along::Params);
    check::<S, X, L>(&names, &mut trial, &dy, &dx, Along::Input);
}

/// Whether two numbers differ by no more than `admitted`, which NaN never does.
fn is_close(found: f64, expected: f64, admitted: f64) -> bool {
    (found - expected).abs() <= admitted
}

/// Checks that an operation done in a layer's pass gives the same as one done after it: an addition to its output or to
/// the gradient of its input; and the whole layer in another one's pass, if it says that it is a nonlinearity.
fn check_one_pass<S: Shape<Device = Cpu, Compute = f32>, X: Sample, L: Layer<S, X>>(
    names: &LayerNames,
    trial: &mut Trial,
    dy: &[f32],
    dx: &[f32],
) {
    let same = |buffer, why: &str, found: &[f32], expected: &[f32], plus: &[f32]| {
        for (i, ((&found, expected), plus)) in found.iter().zip(expected).zip(plus).enumerate() {
            let expected = f64::from(expected + plus);
            if !is_close(f64::from(found), expected, ROUNDING * expected.abs().max(1.0)) {
                names.differs(buffer, i, why, expected, found);
            }
        }
    };
    let y = trial.y.clone();
    let plus: Vec<f32> = (0..y.len().max(dx.len()) as u64).map(|i| away_from_zero(5, i)).collect();
    trial.forward::<S, X, L>(Then::Add((&plus[..y.len()]).into()));
    same(Y, "of `forward_then` with something to add", &trial.y, &y, &plus);
    if let Some(kind) = L::ACTIVATION {
        let mut activated = vec![f32::NAN; y.len()];
        Cpu::ONE_THREAD.activate(kind, trial.x.as_slice().into(), activated.as_mut_slice().into());
        same(Y, "as `forward` gives it, of the layer's `ACTIVATION`", &activated, &y, &vec![0.0; y.len()]);
    }
    if X::DIFFERENTIABLE {
        let (_, sum) = trial.backward::<S, X, L>(dy, Some(&plus[..dx.len()]), GRADS.value(), Write::Set);
        same(DX, "of `backward_plus` with something to add", &sum, dx, &plus);
    }
}

/// Checks a call with fewer tokens than the shape says: the first sequence without its last token gives the same
/// outputs, because no token depends on a later one.
fn check_shorter<S: Shape<Device = Cpu, Compute = f32>, X: Sample, T: Sample, L: Layer<S, X>>(
    names: &LayerNames,
    whole: &Trial,
) {
    let length = S::LENGTH.saturating_sub(1).max(1);
    let mut part = Trial::new::<S, X, T, L>();
    let y = part.forward_shorter::<S, X, L>(length);
    for (i, (&found, &expected)) in y.iter().zip(&whole.y).enumerate() {
        let expected = f64::from(expected);
        if !is_close(f64::from(found), expected, ROUNDING * expected.abs().max(1.0)) {
            names.differs(Y, i, &format!("of the first {length} tokens alone, as of all"), expected, found);
        }
    }
}

/// Checks that decoding a sequence gives the same as forward, however it is divided into calls: at once, token by
/// token, or a beginning and the rest; and that sequences that are decoded side by side do not change one another's bits.
fn check_decoding<S: Shape<Device = Cpu, Compute = f32>, X: Sample, T: Sample, L: Layer<S, X>>(
    names: &LayerNames,
    whole: &Trial,
) {
    let half = S::LENGTH.div_ceil(2);
    let calls = [vec![S::LENGTH], vec![1; S::LENGTH], vec![half, S::LENGTH - half]];
    for calls in calls.iter().filter(|calls| !calls.contains(&0)) {
        let mut part = Trial::new::<S, X, T, L>();
        let y = part.decode::<S, X, L>(1, calls);
        for (i, (&found, &expected)) in y.iter().zip(&whole.y).enumerate() {
            let expected = f64::from(expected);
            if !is_close(f64::from(found), expected, ROUNDING * expected.abs().max(1.0)) {
                let why = format!(
                    "of `decode`, {} tokens at once and {} calls in all, as of `forward`; a layer in which tokens depend \
                     on others, or on their places, needs a `decode` of its own",
                    calls[0],
                    calls.len()
                );
                names.differs(Y, i, &why, expected, found);
            }
        }
    }
    let mut part = Trial::new::<S, X, T, L>();
    let alone = part.decode::<S, X, L>(1, &vec![1; S::LENGTH]).to_vec();
    let together = part.decode::<S, X, L>(S::SEQUENCES, &vec![1; S::LENGTH]);
    for (i, (&found, &expected)) in together.iter().zip(&alone).enumerate() {
        if found.to_bits() != expected.to_bits() {
            names.differs(Y, i, "of `decode` of several sequences, as of one alone", f64::from(expected), found);
        }
    }
    for (i, (&found, &expected)) in together.iter().zip(&whole.y).enumerate() {
        let expected = f64::from(expected);
        if !is_close(f64::from(found), expected, ROUNDING * expected.abs().max(1.0)) {
            names.differs(Y, i, "of `decode` of several sequences, as of `forward`", expected, found);
        }
    }
}

fn check<S: Shape<Device = Cpu, Compute = f32>, X: Sample, L: Layer<S, X>>(
    names: &LayerNames,
    trial: &mut Trial,
    dy: &[f32],
    analytic: &[f32],
    along: Along,
) {
    let scale = analytic.iter().map(|g| f64::from(g.abs())).fold(0.0, f64::max);
    let stride = analytic.len().div_ceil(CHECKED_MAX).max(1);
    for (i, &gradient) in analytic.iter().enumerate().step_by(stride) {
        let mut slope = |width: f32| {
            let ((right, above), (left, below)) = (
                objective_at::<S, X, L>(trial, dy, along, i, width),
                objective_at::<S, X, L>(trial, dy, along, i, -width),
            );
            (above - below) / (right - left)
        };
        let numeric = (4.0 * slope(0.01) - slope(0.02)) / 3.0;
        // Next to a large gradient, a small one drowns in the rounding of the objective.
        let admitted = TOLERANCE * f64::from(gradient).abs().max(0.1 * scale).max(0.01);
        if !is_close(f64::from(gradient), numeric, admitted) {
            names.differs(along.gradients(), i, "by differences of `forward`", numeric, gradient);
        }
    }
}

/// Moves element `i` by `by`; returns its new value, and the weighted sum of outputs whose gradients are checked.
fn objective_at<S: Shape<Device = Cpu, Compute = f32>, X: Sample, L: Layer<S, X>>(
    trial: &mut Trial,
    dy: &[f32],
    along: Along,
    i: usize,
    by: f32,
) -> (f64, f64) {
    let before = trial.vector(along)[i];
    let moved = before + by;
    trial.vector(along)[i] = moved;
    trial.forward::<S, X, L>(Then::Nothing);
    trial.vector(along)[i] = before;
    (f64::from(moved), trial.y.iter().zip(dy).map(|(&y, &dy)| f64::from(y) * f64::from(dy)).sum())
}
