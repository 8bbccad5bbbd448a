//! Trial: the buffers that one call of a layer touches, and the calls. A buffer that a layer is to write is first
//! filled with a kind of NaN of its own, which shows elements that were forgotten, and in which buffer.

use super::away_from_zero;
use super::sample::Sample;
use zero_core::device::{Then, Write};
use zero_core::layer::{Activation, Backward, Context, Earlier, Forward, Grads, Layer, Shape};
use zero_core::view::{View, ViewMut};
use zero_cpu::Cpu;

/// Buffers that a layer writes.
pub(super) const Y: Unwritten = Unwritten { name: "`y`", bits: 0x7fc0_0a01 };
pub(super) const SAVED: Unwritten = Unwritten { name: "`saved`", bits: 0x7fc0_0a02 };
pub(super) const WORK: Unwritten = Unwritten { name: "`work`", bits: 0x7fc0_0a03 };
pub(super) const GRADS: Unwritten = Unwritten { name: "`grads`", bits: 0x7fc0_0a04 };
pub(super) const DX: Unwritten = Unwritten { name: "`dx`", bits: 0x7fc0_0a05 };
pub(super) const CACHE: Unwritten = Unwritten { name: "`cache`", bits: 0x7fc0_0a06 };
pub(super) const ALL: [Unwritten; 6] = [Y, SAVED, WORK, GRADS, DX, CACHE];

/// The content of a buffer before it is written: a NaN that arithmetic passes on but never creates.
#[derive(Clone, Copy)]
pub(super) struct Unwritten {
    pub name: &'static str,
    bits: u32,
}

impl Unwritten {
    pub(super) fn value(self) -> f32 {
        f32::from_bits(self.bits)
    }

    pub(super) fn is(self, number: f32) -> bool {
        number.to_bits() == self.bits
    }

    fn of(self, len: usize) -> Vec<f32> {
        vec![self.value(); len]
    }
}

/// The vector of a trial along which a difference is taken.
#[derive(Clone, Copy)]
pub(super) enum Along {
    Params,
    Input,
}

impl Along {
    /// The buffer to which backward writes the gradients.
    pub(super) fn gradients(self) -> Unwritten {
        match self {
            Along::Params => GRADS,
            Along::Input => DX,
        }
    }
}

fn bytes(numbers: &[f32]) -> View<'_, Cpu, u8> {
    View::from(numbers).cast()
}

/// Everything that one call of a layer touches.
pub(super) struct Trial {
    params: Vec<f32>,
    pub x: Vec<f32>,
    pub y: Vec<f32>,
    targets: Vec<f32>,
    saved: Vec<f32>,
    work: Vec<f32>,
    /// The losses that the last backward has written.
    pub losses: Vec<f32>,
}

impl Trial {
    /// `T` is the type of the targets.
    pub(super) fn new<S: Shape<Device = Cpu, Compute = f32>, X: Sample, T: Sample, L: Layer<S, X>>() -> Self {
        Self {
            params: (0..L::PARAMS as u64).map(|i| away_from_zero(2, i)).collect(),
            x: X::cells(1, S::TOKENS),
            y: Y.of(S::TOKENS * L::Output::WIDTH),
            targets: T::cells(3, S::TOKENS),
            saved: SAVED.of(L::SAVED / size_of::<f32>()),
            work: WORK.of(L::WORKSPACE / size_of::<f32>()),
            losses: Vec::new(),
        }
    }

    pub(super) fn vector(&mut self, along: Along) -> &mut [f32] {
        match along {
            Along::Params => &mut self.params,
            Along::Input => &mut self.x,
        }
    }

    fn context<S: Shape<Device = Cpu, Compute = f32>>(targets: &[f32]) -> Context<'_, Cpu> {
        let (sequences, length) = (S::SEQUENCES, S::LENGTH);
        Context { device: &Cpu::ONE_THREAD, sequences, length, earlier: &[], slots: 1, targets: bytes(targets) }
    }

    /// Computes the output, and does `then` with it.
    pub(super) fn forward<S: Shape<Device = Cpu, Compute = f32>, X: Sample, L: Layer<S, X>>(
        &mut self,
        then: Then<Cpu, f32>,
    ) {
        self.y.fill(Y.value());
        let pass = Forward {
            params: self.params.as_slice().into(),
            x: View::from(self.x.as_slice()).cast(),
            y: ViewMut::from(self.y.as_mut_slice()).cast(),
            saved: ViewMut::from(self.saved.as_mut_slice()).cast(),
            work: ViewMut::from(self.work.as_mut_slice()).cast(),
        };
        let context = Self::context::<S>(&self.targets);
        match then {
            Then::Nothing => L::forward(&context, pass),
            then => L::forward_then(&context, pass, then),
        }
    }

    /// The output of the first `length` tokens alone, as one sequence.
    pub(super) fn forward_shorter<S: Shape<Device = Cpu, Compute = f32>, X: Sample, L: Layer<S, X>>(
        &mut self,
        length: usize,
    ) -> &[f32] {
        let (y_len, target_len) = (self.y.len() / S::TOKENS * length, self.targets.len() / S::TOKENS * length);
        let pass = Forward {
            params: self.params.as_slice().into(),
            x: View::from(&self.x[..length * X::WIDTH]).cast(),
            y: ViewMut::from(&mut self.y[..y_len]).cast(),
            saved: ViewMut::from(self.saved.as_mut_slice()).cast(),
            work: ViewMut::from(self.work.as_mut_slice()).cast(),
        };
        let targets = bytes(&self.targets[..target_len]);
        L::forward(&Context { device: &Cpu::ONE_THREAD, sequences: 1, length, earlier: &[], slots: 1, targets }, pass);
        &self.y[..y_len]
    }

    /// The output of the first sequences, decoded side by side in calls of these numbers of tokens of each.
    pub(super) fn decode<S: Shape<Device = Cpu, Compute = f32>, X: Sample, L: Layer<S, X>>(
        &mut self,
        sequences: usize,
        calls: &[usize],
    ) -> &[f32] {
        let [x_width, y_width, target_width] = [&self.x, &self.y, &self.targets].map(|all| all.len() / S::TOKENS);
        // The first slot belongs to none of them.
        let slots = sequences + 1;
        let mut cache = CACHE.of(slots * L::CACHE / size_of::<f32>());
        self.y.fill(Y.value());
        let mut before = 0;
        for &length in calls {
            let of = |sequence: usize, width: usize| {
                let start = sequence * S::LENGTH + before;
                start * width..(start + length) * width
            };
            let gathered = |all: &[f32], width: usize| {
                (0..sequences).flat_map(|it| &all[of(it, width)]).copied().collect::<Vec<_>>()
            };
            let (x, targets) = (gathered(&self.x, x_width), gathered(&self.targets, target_width));
            let mut y = Y.of(sequences * length * y_width);
            self.saved.fill(SAVED.value());
            self.work.fill(WORK.value());
            let pass = Forward {
                params: self.params.as_slice().into(),
                x: View::from(x.as_slice()).cast(),
                y: ViewMut::from(y.as_mut_slice()).cast(),
                saved: ViewMut::from(self.saved.as_mut_slice()).cast(),
                work: ViewMut::from(self.work.as_mut_slice()).cast(),
            };
            let earlier: Vec<_> = (1..slots).rev().map(|slot| Earlier { slot, tokens: before }).collect();
            let targets = bytes(&targets);
            let context = Context { device: &Cpu::ONE_THREAD, sequences, length, earlier: &earlier, slots, targets };
            L::decode(&context, pass, ViewMut::from(cache.as_mut_slice()).cast());
            for (sequence, y) in y.chunks_exact(length * y_width).enumerate() {
                self.y[of(sequence, y_width)].copy_from_slice(y);
            }
            before += length;
        }
        &self.y[..sequences * before * y_width]
    }

    /// Gradients of parameters and input, given `dy`; `plus` is to be added to that of the input. Before the call, the
    /// gradients of parameters are `held`.
    pub(super) fn backward<S: Shape<Device = Cpu, Compute = f32>, X: Sample, L: Layer<S, X>>(
        &mut self,
        dy: &[f32],
        plus: Option<&[f32]>,
        held: f32,
        write: Write,
    ) -> (Vec<f32>, Vec<f32>) {
        let mut grads = vec![held; L::PARAMS];
        let mut dx = DX.of(if X::DIFFERENTIABLE { self.x.len() } else { 0 });
        self.work.fill(WORK.value());
        let (dy, losses) = if L::LOSSES_IN_BACKWARD { (&[][..], dy) } else { (dy, &[][..]) };
        self.losses = losses.to_vec();
        let pass = Backward {
            params: self.params.as_slice().into(),
            grads: Grads::new(grads.as_mut_slice().into(), write),
            x: View::from(self.x.as_slice()).cast(),
            saved: bytes(&self.saved),
            dy: View::from(dy).cast(),
            losses: self.losses.as_mut_slice().into(),
            dx: X::DIFFERENTIABLE.then(|| ViewMut::from(dx.as_mut_slice()).cast()),
            work: ViewMut::from(self.work.as_mut_slice()).cast(),
        };
        let context = Self::context::<S>(&self.targets);
        match plus {
            None => L::backward(&context, pass),
            Some(plus) => L::backward_plus(&context, pass, plus.into()),
        }
        (grads, dx)
    }
}
