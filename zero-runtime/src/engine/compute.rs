//! Compute: the ops that call layers, each with views of exactly what it may touch. Never communicates.
#![allow(unsafe_code)]

use zero_plan::Kind;
use zero_plan::unit::{ALIGNMENT, round_up};

use super::{Engine, InputOf, Walk};
use crate::device::{Cpu, Device, Write};
use crate::layer::{Activation, Backward, Context, Forward, Grads};
use crate::model::Model;
use crate::transport::Transport;
use crate::view::{View, ViewMut};

// SAFETY of all views made here: this rank's regions are disjoint, and within the activations each unit's saved part and
// output are, which the layout check proves. The schedule check proves that no op reads what another has not finished
// writing. Ops run one after another, so views of different ops never live at one time; what follows argues for each op.
impl<'p, M: Model, T: Transport<'p>> Engine<'p, M, T> {
    /// Where the targets lie in the batch region, behind the inputs.
    fn targets_at(&self) -> usize {
        round_up(self.plan.units[0].input, ALIGNMENT)
    }

    pub(super) fn fill_batch(
        &mut self,
        micro_batch: usize,
        walk: &Walk,
        batch: &mut impl FnMut(usize, &mut [InputOf<M>], &mut [u32]),
    ) {
        let tokens = walk.shape.0 * walk.shape.1;
        // SAFETY: inputs and targets lie behind one another in a region that no other view of this op covers.
        let (inputs, targets) = unsafe {
            (
                self.arena.view_mut(Kind::Batch, 0, tokens * M::Input::WIDTH),
                self.arena.view_mut(Kind::Batch, self.targets_at(), tokens),
            )
        };
        let inputs: &mut [f32] = inputs.into_slice();
        let targets: &mut [f32] = targets.into_slice();
        batch(micro_batch, bytemuck::cast_slice_mut(inputs), bytemuck::cast_slice_mut(targets));
    }

    /// The parameters that a unit's layer takes.
    fn params(&self, unit: usize) -> View<'_, Cpu> {
        let unit = &self.plan.units[unit];
        let source = unit.source;
        if self.plan.placements[source].padded == 0 {
            return View::from(&[][..]);
        }
        let flat = if self.plan.config.shards_parameters() {
            self.transport.gathered(source)
        } else {
            let (start, len) = self.arena.flat(source);
            // SAFETY: only `update` and a wait for a gather write parameters, and they are other ops.
            unsafe { self.arena.view(Kind::Parameters, start, len) }
        };
        flat.part(0, unit.takes)
    }

    /// What a unit takes: the batch, or the output of the unit before it.
    fn input(&self, unit: usize, walk: &Walk) -> View<'_, Cpu> {
        let len = self.rows_of(self.plan.units[unit].input, walk);
        match unit.checked_sub(1) {
            // SAFETY: written by `fill_batch`, which is over.
            None => unsafe { self.arena.view(Kind::Batch, 0, len) },
            // SAFETY: written by the forward of the unit before, which is over, and by no other op of this micro-batch.
            Some(before) => unsafe { self.arena.view(Kind::Activations, self.plan.placements[before].output, len) },
        }
    }

    /// Elements of an activation in this walk, which may be smaller than the plan's.
    fn rows_of(&self, planned: usize, walk: &Walk) -> usize {
        planned / self.plan.config.tokens() * (walk.shape.0 * walk.shape.1)
    }

    fn context(&self, walk: &Walk) -> Context<'_, Cpu> {
        let (sequences, length) = walk.shape;
        // SAFETY: as for the inputs.
        let targets = unsafe { self.arena.view(Kind::Batch, self.targets_at(), sequences * length) };
        Context { device: &self.device, sequences, length, targets: targets.ids() }
    }

    fn workspace(&self, unit: usize) -> ViewMut<'_, Cpu> {
        // SAFETY: a region of its own, which only this op uses.
        unsafe { self.arena.view_mut(Kind::Workspace, 0, self.plan.units[unit].workspace) }
    }

    pub(super) fn forward(&mut self, unit: usize, walk: &mut Walk) {
        let at = &self.plan.placements[unit];
        let sizes = &self.plan.units[unit];
        let is_last = unit + 1 == self.plan.units.len();
        if is_last && walk.headless {
            return;
        }
        let y_len = self.rows_of(sizes.output, walk);
        let cx = self.context(walk);
        // SAFETY: this unit's own output and saved part, which no other view of this op covers.
        let (y, saved) = unsafe {
            (
                self.arena.view_mut(Kind::Activations, at.output, y_len),
                self.arena.view_mut(Kind::Activations, at.saved, sizes.saved),
            )
        };
        let (params, x, work) = (self.params(unit), self.input(unit, walk), self.workspace(unit));
        (M::CODE[sizes.position].forward)(&cx, Forward { params, x, y, saved, work });
        // SAFETY: the views above have ended.
        let y = unsafe { self.arena.view(Kind::Activations, at.output, y_len) };
        if is_last {
            walk.loss += self.device.sum(y) / y_len as f64;
        }
        if let Some(search) = &mut walk.finding {
            search.forward(unit, self.device.all_finite(y));
        }
    }

    pub(super) fn backward(&mut self, unit: usize, walk: &mut Walk) {
        let at = &self.plan.placements[unit];
        let sizes = &self.plan.units[unit];
        let half = self.plan.memory.region(Kind::ActivationGradients).elements / 2;
        let (dy_start, dx_start) = (unit % 2 * half, (unit + 1) % 2 * half);
        // SAFETY: the two halves of a region that only this op uses.
        let (mut dy, dx) = unsafe {
            (
                self.arena.view_mut(Kind::ActivationGradients, dy_start, sizes.output),
                self.arena.view_mut(Kind::ActivationGradients, dx_start, sizes.input),
            )
        };
        if unit + 1 == self.plan.units.len() {
            // The loss of a micro-batch is the mean over its tokens.
            self.device.fill(dy.reborrow(), 1.0 / sizes.output as f32);
        }
        // SAFETY: written by this unit's forward, which is over.
        let saved = unsafe { self.arena.view(Kind::Activations, at.saved, sizes.saved) };
        let pass = Backward {
            params: self.params(unit),
            grads: self.grads(unit),
            x: self.input(unit, walk),
            saved,
            dy: dy.as_view(),
            dx: (unit > 0).then_some(dx),
            work: self.workspace(unit),
        };
        (M::CODE[sizes.position].backward)(&self.context(walk), pass);
        if let Some(search) = &mut walk.finding {
            // SAFETY: the views above have ended, and the bucket is not offered before the next op.
            let (grads, dx) = unsafe {
                (
                    self.arena.view(Kind::Gradients, self.arena.local_gradients(sizes.source).0, sizes.takes),
                    self.arena.view(Kind::ActivationGradients, dx_start, if unit > 0 { sizes.input } else { 0 }),
                )
            };
            search.backward(unit, self.device.all_finite(grads) && self.device.all_finite(dx));
        }
    }

    /// Where the gradients of a unit's parameters go. Leaves nothing of an older micro-batch in its flat buffer.
    fn grads(&self, unit: usize) -> Grads<'_, Cpu> {
        let source = self.plan.units[unit].source;
        let (start, len) = self.arena.local_gradients(source);
        // SAFETY: staging that the schedule has claimed and not offered: no peer reads it.
        let flat = unsafe { self.arena.view_mut(Kind::Gradients, start, len) };
        let (mut grads, padding) = flat.split_at(self.plan.units[unit].takes);
        let write = if self.first_writer[source] == source {
            // Else what another bucket left in this staging would be taken for gradients of the padding.
            self.device.fill(padding, 0.0);
            Write::Set
        } else {
            if self.first_writer[source] == unit {
                self.device.fill(padding, 0.0);
                self.device.fill(grads.reborrow(), 0.0);
            }
            Write::Add
        };
        Grads::new(grads, write)
    }

    /// Logits after the last of `length` tokens, from the input of the head, which is held gathered.
    pub(super) fn logits(&self, length: usize, logits: &mut [f32]) {
        let head = self.plan.units.len() - 1;
        let width = self.plan.units[head].input / self.plan.config.tokens();
        let walk = Walk { loss: 0.0, finding: None, shape: (1, length), headless: true };
        let x = self.input(head, &walk).part((length - 1) * width, width);
        (M::HEAD.logits)(&self.device, self.params(head), x, logits.into());
    }
}
