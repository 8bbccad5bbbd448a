//! Testing: checks for layers, the library's and a user's own. Never used by a run.

use crate::device::{Cpu, Device, Then, Write};
use crate::layer::{Activation, Backward, Context, Features, Forward, Grads, Layer, Shape, Tensor, Tensors, Tokens};
use crate::random::{mix, uniform};
use crate::view::View;

/// Relative error that [`gradcheck`] admits: a few times what f32 leaves of a central difference.
const TOLERANCE: f64 = 5e-3;

/// Elements that [`gradcheck`] moves of parameters, and of inputs.
const CHECKED_MAX: usize = 400;

/// Inputs that [`gradcheck`] can make.
pub trait Sample: Activation {
    /// Whether the layer gives gradients of it.
    const DIFFERENTIABLE: bool;
    /// Element `i` of an input, in the 4-byte cells of the arena.
    fn cell(i: u64) -> f32;
}

impl<const W: usize> Sample for Features<W> {
    const DIFFERENTIABLE: bool = true;
    fn cell(i: u64) -> f32 {
        away_from_zero(1, i)
    }
}

impl Sample for Tokens {
    const DIFFERENTIABLE: bool = false;
    fn cell(i: u64) -> f32 {
        // Few ids, so that some repeat, and small, so that any vocabulary has them.
        f32::from_bits((mix(1, i) % 3) as u32)
    }
}

/// Between 0.1 and 1, of either sign: finite differences must not step over the kink of a ReLU.
fn away_from_zero(seed: u64, i: u64) -> f32 {
    let magnitude = 0.1 + 0.9 * uniform(seed, 2 * i);
    (if uniform(seed, 2 * i + 1) < 0.5 { magnitude } else { -magnitude }) as f32
}

/// Everything that one call of a layer touches.
struct Trial {
    params: Vec<f32>,
    x: Vec<f32>,
    targets: Vec<u32>,
    y: Vec<f32>,
    saved: Vec<f32>,
    work: Vec<f32>,
}

impl Trial {
    fn new<S: Shape<Device = Cpu>, X: Sample, L: Layer<S, X>>() -> Self {
        let fill = |len: usize, f: &dyn Fn(u64) -> f32| (0..len as u64).map(f).collect::<Vec<_>>();
        Self {
            params: fill(L::PARAMS, &|i| away_from_zero(2, i)),
            x: fill(S::TOKENS * X::WIDTH, &X::cell),
            targets: (0..S::TOKENS as u64).map(|i| (mix(3, i) % 3) as u32).collect(),
            y: vec![f32::NAN; S::TOKENS * L::Output::WIDTH],
            // A layer must not read what it has not written.
            saved: vec![f32::NAN; L::SAVED],
            work: vec![f32::NAN; L::WORKSPACE],
        }
    }

    fn context<S: Shape<Device = Cpu>>(targets: &[u32]) -> Context<'_, Cpu> {
        Context { device: &Cpu::ONE_THREAD, sequences: S::SEQUENCES, length: S::LENGTH, targets: targets.into() }
    }

    /// The output, and what `then` makes of it.
    fn forward<S: Shape<Device = Cpu>, X: Sample, L: Layer<S, X>>(&mut self, then: Then<Cpu>) {
        let pass = Forward {
            params: self.params.as_slice().into(),
            x: self.x.as_slice().into(),
            y: self.y.as_mut_slice().into(),
            saved: self.saved.as_mut_slice().into(),
            work: self.work.as_mut_slice().into(),
        };
        let context = Self::context::<S>(&self.targets);
        match then {
            Then::Nothing => L::forward(&context, pass),
            then => L::forward_then(&context, pass, then),
        }
    }

    /// Gradients of parameters and input, given `dy`; `plus` is to be added to that of the input. `held` is what the
    /// gradients hold before.
    fn backward<S: Shape<Device = Cpu>, X: Sample, L: Layer<S, X>>(
        &mut self,
        dy: &[f32],
        plus: Option<&[f32]>,
        held: f32,
        write: Write,
    ) -> (Vec<f32>, Vec<f32>) {
        let mut grads = vec![held; L::PARAMS];
        let mut dx = vec![f32::NAN; if X::DIFFERENTIABLE { self.x.len() } else { 0 }];
        self.work.fill(f32::NAN);
        let pass = Backward {
            params: self.params.as_slice().into(),
            grads: Grads::new(grads.as_mut_slice().into(), write),
            x: self.x.as_slice().into(),
            saved: self.saved.as_slice().into(),
            dy: dy.into(),
            dx: X::DIFFERENTIABLE.then(|| dx.as_mut_slice().into()),
            work: self.work.as_mut_slice().into(),
        };
        let context = Self::context::<S>(&self.targets);
        match plus {
            None => L::backward(&context, pass),
            Some(plus) => L::backward_plus(&context, pass, plus.into()),
        }
        (grads, dx)
    }

    /// The weighted sum of outputs whose gradients are checked.
    fn objective<S: Shape<Device = Cpu>, X: Sample, L: Layer<S, X>>(&mut self, dy: &[f32]) -> f64 {
        self.forward::<S, X, L>(Then::Nothing);
        self.y.iter().zip(dy).map(|(&y, &dy)| f64::from(y) * f64::from(dy)).sum()
    }
}

/// Which vector of a trial a difference is taken along.
#[derive(Clone, Copy)]
enum Along {
    Params,
    Input,
}

/// Checks a layer's backward against finite differences of its forward, that gradients are overwritten or added to as
/// asked, that what it does in one pass is as if done in two, and that it reads nothing that it was not given.
///
/// Parameters and input elements are moved one by one, by two step widths (Richardson), with sums in f64: all of them, or
/// some hundreds spread evenly where there are more.
///
/// # Panics
/// If a gradient is off by more than the tolerance, naming it.
pub fn gradcheck<S: Shape<Device = Cpu>, X: Sample, L: Layer<S, X>>() {
    let mut tensors = Tensors::default();
    L::tensors(&mut tensors);
    let named: usize = tensors.into_list().iter().map(Tensor::len).sum();
    assert_eq!(named, L::PARAMS, "the sizes of the tensors do not add up to PARAMS");
    let mut trial = Trial::new::<S, X, L>();
    let dy: Vec<f32> = (0..trial.y.len() as u64).map(|i| away_from_zero(4, i)).collect();
    trial.forward::<S, X, L>(Then::Nothing);
    check_shorter::<S, X, L>(&trial);
    let (grads, dx) = trial.backward::<S, X, L>(&dy, None, f32::NAN, Write::Set);
    let (added, _) = trial.backward::<S, X, L>(&dy, None, 2.0, Write::Add);
    for (i, (&set, &added)) in grads.iter().zip(&added).enumerate() {
        let difference = (f64::from(added) - 2.0 - f64::from(set)).abs();
        assert!(difference <= 1e-4 * (1.0 + f64::from(set).abs()), "gradient {i}: {added} is not 2 + {set}");
    }
    check_one_pass::<S, X, L>(&mut trial, &dy, &dx);
    check::<S, X, L>(&mut trial, &dy, &grads, Along::Params);
    check::<S, X, L>(&mut trial, &dy, &dx, Along::Input);
}

/// What a layer may do in one pass is as if it were done after: something added to its output or to the gradient of its
/// input, and all of it by another layer, if it says that it is a nonlinearity.
fn check_one_pass<S: Shape<Device = Cpu>, X: Sample, L: Layer<S, X>>(trial: &mut Trial, dy: &[f32], dx: &[f32]) {
    let same = |what: &str, found: &[f32], expected: &[f32], plus: &[f32]| {
        for (i, ((found, expected), plus)) in found.iter().zip(expected).zip(plus).enumerate() {
            let expected = expected + plus;
            assert!((found - expected).abs() <= 1e-4 * expected.abs().max(1.0), "{what} {i}: {found}, not {expected}");
        }
    };
    let y = trial.y.clone();
    let plus: Vec<f32> = (0..y.len().max(dx.len()) as u64).map(|i| away_from_zero(5, i)).collect();
    trial.forward::<S, X, L>(Then::Add((&plus[..y.len()]).into()));
    same("output in one pass", &trial.y, &y, &plus);
    if let Some(kind) = L::ACTIVATION {
        let mut activated = vec![f32::NAN; y.len()];
        Cpu::ONE_THREAD.activate(kind, trial.x.as_slice().into(), activated.as_mut_slice().into());
        same("output by ACTIVATION", &activated, &y, &vec![0.0; y.len()]);
    }
    if X::DIFFERENTIABLE {
        let (_, sum) = trial.backward::<S, X, L>(dy, Some(&plus[..dx.len()]), f32::NAN, Write::Set);
        same("gradient of the input in one pass", &sum, dx, &plus);
    }
}

/// A call may bring fewer tokens than the shape says: the first sequence but its last token gives the same there, since
/// no token depends on a later one.
fn check_shorter<S: Shape<Device = Cpu>, X: Sample, L: Layer<S, X>>(whole: &Trial) {
    let length = S::LENGTH.saturating_sub(1).max(1);
    let mut part = Trial::new::<S, X, L>();
    let y_len = length * L::Output::WIDTH;
    let pass = Forward {
        params: part.params.as_slice().into(),
        x: View::from(&part.x[..length * X::WIDTH]),
        y: (&mut part.y[..y_len]).into(),
        saved: part.saved.as_mut_slice().into(),
        work: part.work.as_mut_slice().into(),
    };
    let targets = View::from(&part.targets[..length]);
    L::forward(&Context { device: &Cpu::ONE_THREAD, sequences: 1, length, targets }, pass);
    for (i, (&found, &expected)) in part.y[..y_len].iter().zip(&whole.y).enumerate() {
        let admitted = 1e-4 * expected.abs().max(1.0);
        assert!((found - expected).abs() <= admitted, "output {i} of {length} tokens: {found}, of all {expected}");
    }
}

fn check<S: Shape<Device = Cpu>, X: Sample, L: Layer<S, X>>(
    trial: &mut Trial,
    dy: &[f32],
    analytic: &[f32],
    along: Along,
) {
    let what = match along {
        Along::Params => "parameter",
        Along::Input => "input",
    };
    let scale = analytic.iter().map(|g| f64::from(g.abs())).fold(0.0, f64::max);
    let stride = analytic.len().div_ceil(CHECKED_MAX).max(1);
    for (i, &gradient) in analytic.iter().enumerate().step_by(stride) {
        let mut slope = |width: f32| {
            let mut moved = |by: f32| {
                let cell = match along {
                    Along::Params => &mut trial.params[i],
                    Along::Input => &mut trial.x[i],
                };
                let before = *cell;
                *cell = before + by;
                let (at, value) = (f64::from(*cell), trial.objective::<S, X, L>(dy));
                match along {
                    Along::Params => trial.params[i] = before,
                    Along::Input => trial.x[i] = before,
                }
                (at, value)
            };
            let ((right, above), (left, below)) = (moved(width), moved(-width));
            (above - below) / (right - left)
        };
        let numeric = (4.0 * slope(0.01) - slope(0.02)) / 3.0;
        let error = (numeric - f64::from(gradient)).abs();
        // Next to a large gradient, a small one drowns in the rounding of the objective.
        let admitted = TOLERANCE * f64::from(gradient).abs().max(0.1 * scale).max(0.01);
        assert!(error <= admitted, "gradient of {what} {i}: backward gives {gradient}, differences {numeric}");
    }
}
