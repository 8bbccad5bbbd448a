//! Compute: the ops that call layers, each with views of exactly what it may touch, and where what crosses pipeline stages
//! comes from and goes to.
#![allow(unsafe_code)]

use zero_plan::layout::OUTGOING_SLOTS;
use zero_plan::unit::{ALIGNMENT, round_up};
use zero_plan::{Kind, Parcel};

use super::{Engine, Walk};
use crate::device::{Cpu, Device, StoredMut, Write};
use crate::layer::{Activation, Backward, Context, Forward, Grads};
use crate::model::Model;
use crate::transport::{Lost, Transport};
use crate::view::{View, ViewMut};

/// A stretch of a region.
#[derive(Clone, Copy)]
pub(super) struct Stretch(pub Kind, pub usize);

// SAFETY of all views made here: this rank's regions are disjoint, and within the activations each slot, and in it each
// unit's saved part and output are, which the layout check proves. The schedule check proves that no op reads what another
// has not finished writing. Ops run one after another, so views of different ops never live at one time; what follows
// argues for each op.
impl<'p, M: Model, T: Transport<'p>> Engine<'p, M, T> {
    pub(super) fn is_chunk_first(&self, unit: usize) -> bool {
        self.plan.chunks[self.plan.placements[unit].chunk].first == unit
    }

    fn is_head(&self, unit: usize) -> bool {
        unit + 1 == self.plan.units.len()
    }

    /// Start of a slot for activations.
    pub(super) fn slot_start(&self, slot: usize) -> usize {
        slot * self.arena.memory().activation_slot
    }

    /// Where the targets lie in a slot of the last chunk, behind what enters it.
    pub(super) fn targets_at(&self, slot: usize) -> usize {
        let first = self.plan.chunks[self.plan.chunks.len() - 1].first;
        self.slot_start(slot) + round_up(self.plan.units[first].input, ALIGNMENT)
    }

    /// What a unit takes: what entered its chunk, or the output of the unit before it.
    fn input_at(&self, unit: usize, slot: usize) -> usize {
        let offset = if self.is_chunk_first(unit) { 0 } else { self.plan.placements[unit - 1].output };
        self.slot_start(slot) + offset
    }

    /// Where a unit's output goes: on to the next unit, or out.
    fn output_at(&self, unit: usize, slot: usize) -> Stretch {
        if self.plan.tables().leaves(unit) {
            let outgoing = self.transport.outgoing_slot(Parcel::Activations);
            Stretch(Kind::Outgoing, outgoing * self.arena.memory().outgoing_slot)
        } else {
            Stretch(Kind::Activations, self.slot_start(slot) + self.plan.placements[unit].output)
        }
    }

    /// Where a unit keeps what it saves.
    fn saved_at(&self, unit: usize, slot: usize) -> Stretch {
        if self.plan.config.recomputes(self.plan.units, unit) {
            Stretch(Kind::Recomputed, 0)
        } else {
            Stretch(Kind::Activations, self.slot_start(slot) + self.plan.placements[unit].saved)
        }
    }

    /// Where the gradient of a unit's output lies: units take turns with two places.
    fn gradient_at(&self, unit: usize) -> usize {
        unit % 2 * (self.arena.memory().region(Kind::ActivationGradients).elements / 2)
    }

    /// Where the gradient of a unit's input goes: to the unit before it, or out.
    fn input_gradient_at(&self, unit: usize) -> Stretch {
        if self.is_chunk_first(unit) {
            let memory = self.arena.memory();
            let outgoing = self.transport.outgoing_slot(Parcel::Gradients);
            let start = OUTGOING_SLOTS * memory.outgoing_slot + outgoing * memory.returning_slot;
            Stretch(Kind::Outgoing, start)
        } else {
            Stretch(Kind::ActivationGradients, self.gradient_at(unit + 1))
        }
    }

    /// Takes in a parcel.
    pub(super) fn receive(&mut self, parcel: Parcel, unit: usize, slot: usize, walk: &Walk) -> Result<(), Lost> {
        let (to, planned) = match parcel {
            Parcel::Activations => (self.slot_start(slot), self.plan.units[unit].input),
            Parcel::Gradients => (self.gradient_at(unit), self.plan.units[unit].output),
            Parcel::TiedGradients | Parcel::TiedParameters => (0, 0),
        };
        let len = self.rows_of(planned, walk);
        // SAFETY: as in `execute`, whose op this is; tied parameters are whole then.
        unsafe {
            self.transport.receive(parcel, unit, to, len)?;
            if parcel == Parcel::TiedParameters && self.plan.config.shards_optimizer() {
                self.transport.publish(unit);
            }
        }
        Ok(())
    }

    /// Sends a parcel on its way.
    pub(super) fn send(&mut self, parcel: Parcel, unit: usize, walk: &Walk) {
        let planned = match parcel {
            Parcel::Activations => self.plan.units[unit].output,
            Parcel::Gradients => self.plan.units[unit].input,
            Parcel::TiedGradients | Parcel::TiedParameters => 0,
        };
        let len = self.rows_of(planned, walk);
        // SAFETY: as in `execute`, whose op this is.
        unsafe { self.transport.send(parcel, unit, len) };
    }

    /// The parameters that a unit's layer takes.
    fn params(&self, unit: usize) -> View<'_, Cpu> {
        let placement = &self.plan.placements[unit];
        if placement.padded == 0 {
            return View::from(&[][..]);
        }
        let holder = if placement.holds { unit } else { self.plan.units[unit].source };
        let flat = if self.plan.config.shards_parameters() || self.plan.config.uses_slots() {
            // SAFETY: the schedule has gathered it and waited for it, or widened it, and releases it after this op.
            unsafe { self.transport.gathered(holder) }
        } else {
            let (start, len) = self.arena.flat(holder);
            // SAFETY: only `update`, a wait for a gather and tied parameters write parameters, and they are other ops.
            unsafe { self.arena.view(Kind::Parameters, start, len) }
        };
        flat.part(0, self.plan.units[unit].takes)
    }

    fn input(&self, unit: usize, slot: usize, walk: &Walk) -> View<'_, Cpu> {
        let len = self.rows_of(self.plan.units[unit].input, walk);
        // SAFETY: written by `fill_batch`, by a receive or by the forward of the unit before, which are over, and by no
        // other op of this micro-batch.
        unsafe { self.arena.view(Kind::Activations, self.input_at(unit, slot), len) }
    }

    /// Elements of an activation in this walk, which may be smaller than the plan's.
    fn rows_of(&self, planned: usize, walk: &Walk) -> usize {
        planned / self.plan.config.tokens() * (walk.shape.0 * walk.shape.1)
    }

    fn context(&self, unit: usize, slot: usize, walk: &Walk) -> Context<'_, Cpu> {
        let (sequences, length) = walk.shape;
        let ends = self.plan.placements[unit].chunk + 1 == self.plan.chunks.len();
        let targets = if ends {
            // SAFETY: as for the inputs.
            unsafe { self.arena.view(Kind::Activations, self.targets_at(slot), sequences * length * M::Target::WIDTH) }
        } else {
            View::from(&[][..])
        };
        Context { device: &self.device, sequences, length, targets }
    }

    fn workspace(&self, unit: usize) -> ViewMut<'_, Cpu> {
        // SAFETY: a region of its own, which only this op uses.
        unsafe { self.arena.view_mut(Kind::Workspace, 0, self.plan.units[unit].workspace) }
    }

    pub(super) fn forward(&mut self, unit: usize, slot: usize, walk: &mut Walk) {
        let is_head = self.is_head(unit);
        if is_head && walk.headless {
            return;
        }
        let Stretch(kind, at) = self.output_at(unit, slot);
        self.run_forward(unit, slot, Stretch(kind, at), walk);
        let y_len = self.rows_of(self.plan.units[unit].output, walk);
        // SAFETY: the views of the call have ended.
        let y = unsafe { self.arena.view::<f32>(kind, at, y_len) };
        if is_head {
            walk.loss += self.device.sum(y) / y_len as f64;
        }
        if let Some(search) = &mut walk.finding {
            search.forward(unit, self.device.all_finite(y));
        }
    }

    /// Runs a unit forward once more, from the same input; its output, which is no news, goes behind what it saves.
    pub(super) fn recompute(&mut self, unit: usize, slot: usize, walk: &Walk) {
        let behind = round_up(self.plan.units[unit].saved, ALIGNMENT);
        self.run_forward(unit, slot, Stretch(Kind::Recomputed, behind), walk);
    }

    /// Fills what a layer is to write with NaN, in a debug build: what it forgets then shows as a number that is not
    /// finite, not as what happened to lie there.
    fn poison<const N: usize>(&self, unwritten: [&mut ViewMut<Cpu>; N]) {
        if cfg!(debug_assertions) {
            unwritten.into_iter().for_each(|view| self.device.fill(view.reborrow(), f32::NAN));
        }
    }

    fn run_forward(&self, unit: usize, slot: usize, output: Stretch, walk: &Walk) {
        let sizes = &self.plan.units[unit];
        let Stretch(saved_kind, saved_at) = self.saved_at(unit, slot);
        // SAFETY: this unit's own output and saved part, which no other view of this op covers.
        let (mut y, mut saved) = unsafe {
            (
                self.arena.view_mut(output.0, output.1, self.rows_of(sizes.output, walk)),
                self.arena.view_mut(saved_kind, saved_at, sizes.saved),
            )
        };
        let (params, x, mut work) = (self.params(unit), self.input(unit, slot, walk), self.workspace(unit));
        self.poison([&mut y, &mut saved, &mut work]);
        let pass = Forward { params, x, y, saved, work };
        (M::CODE[sizes.position].forward)(&self.context(unit, slot, walk), pass);
    }

    pub(super) fn backward(&mut self, unit: usize, micro_batch: usize, slot: usize, walk: &mut Walk) {
        let sizes = &self.plan.units[unit];
        let Stretch(dx_kind, dx_at) = self.input_gradient_at(unit);
        let Stretch(saved_kind, saved_at) = self.saved_at(unit, slot);
        let dx_len = if unit > 0 { sizes.input } else { 0 };
        // SAFETY: the gradient of the output, the place for that of the input, which is the other half of the same region
        // or leaves, and what this unit's forward saved, which is over.
        let (mut dy, mut dx, saved) = unsafe {
            (
                self.arena.view_mut::<f32>(Kind::ActivationGradients, self.gradient_at(unit), sizes.output),
                self.arena.view_mut(dx_kind, if unit > 0 { dx_at } else { 0 }, dx_len),
                self.arena.view(saved_kind, saved_at, sizes.saved),
            )
        };
        if self.is_head(unit) {
            // The loss of a micro-batch is the mean over its tokens.
            self.device.fill(dy.reborrow(), 1.0 / sizes.output as f32);
        }
        let mut work = self.workspace(unit);
        self.poison([&mut dx, &mut work]);
        let pass = Backward {
            params: self.params(unit),
            grads: self.grads(unit, micro_batch),
            x: self.input(unit, slot, walk),
            saved,
            dy: dy.as_view(),
            dx: (unit > 0).then_some(dx),
            work,
        };
        (M::CODE[sizes.position].backward)(&self.context(unit, slot, walk), pass);
        self.narrow_grads(unit);
        if let Some(search) = &mut walk.finding {
            // SAFETY: the views above have ended, and the bucket is not offered before the next op.
            let (grads, dx) = unsafe {
                (
                    self.arena.stored(Kind::Gradients, self.arena.local_gradients(unit).0, sizes.takes),
                    self.arena.view::<f32>(dx_kind, if unit > 0 { dx_at } else { 0 }, dx_len),
                )
            };
            search.backward(unit, self.device.all_finite(grads) && self.device.all_finite(dx));
        }
    }

    /// Where the gradients of a unit's parameters go: to those of earlier micro-batches where they are held, else nothing
    /// of another unit is left in its flat buffer.
    fn grads(&self, unit: usize, micro_batch: usize) -> Grads<'_, Cpu> {
        let (start, len) = self.arena.local_gradients(unit);
        let adds = self.plan.config.holds_gradients() && micro_batch > 0;
        // SAFETY: staging that the schedule has claimed and not offered, which no peer reads; the region for one unit's
        // gradients is another.
        let flat = unsafe {
            match self.arena.stored_mut(Kind::Gradients, start, len) {
                StoredMut::F32(flat) => flat,
                StoredMut::BF16(narrow) => {
                    let mut wide = self.arena.view_mut(Kind::UnitGradients, 0, len);
                    if adds {
                        self.device.widen(wide.reborrow(), narrow.as_view());
                    }
                    wide
                }
            }
        };
        let (mut grads, padding) = flat.split_at(self.plan.units[unit].takes);
        if adds {
            return Grads::new(grads, Write::Add);
        }
        // Otherwise what another bucket left in this staging would be taken for gradients of the padding.
        self.device.fill(padding, 0.0);
        self.poison([&mut grads]);
        Grads::new(grads, Write::Set)
    }

    /// Rounds the gradients of a unit where they are held in a narrower type.
    fn narrow_grads(&self, unit: usize) {
        let (start, len) = self.arena.local_gradients(unit);
        // SAFETY: as for `grads`, whose view has ended.
        unsafe {
            if let StoredMut::BF16(narrow) = self.arena.stored_mut(Kind::Gradients, start, len) {
                self.device.narrow(narrow, self.arena.view(Kind::UnitGradients, 0, len));
            }
        }
    }

    /// Logits after the last of `length` tokens, from the input of the head, which is held gathered.
    pub(super) fn logits(&self, length: usize, slot: usize, logits: &mut [f32]) {
        let head = self.plan.units.len() - 1;
        let width = self.plan.units[head].input / self.plan.config.tokens();
        let walk = Walk { shape: (1, length), headless: true, ..self.new_walk() };
        let x = self.input(head, slot, &walk).part((length - 1) * width, width);
        (M::HEAD.logits)(&self.device, self.params(head), x, logits.into());
    }
}
