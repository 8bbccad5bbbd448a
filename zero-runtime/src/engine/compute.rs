//! Compute: the ops that call layers, each with views of exactly what it may touch.
#![allow(unsafe_code)]

use zero_plan::{Parcel, Place};

use super::{Engine, Share, WalkState};
use crate::device::{Device, StoredMut, Write};
use crate::layer::{Backward, Context, Forward, Grads};
use crate::model::{DeviceOf, Model};
use crate::transport::Transport;
use crate::view::{View, ViewMut};

// SAFETY of all views made here: the places are those that the plan gives the op, which `check` shows to lie apart and `prove`
// to hold what the op needs. Ops run one after another, so views of different ops never live at one time; what follows argues
// for each op.
impl<'p, M: Model, T: Transport<'p, DeviceOf<M>>> Engine<'p, M, T> {
    fn is_head(&self, unit: usize) -> bool {
        unit + 1 == self.plan.units.len()
    }

    /// The parameters that a unit's layer takes.
    fn params(&self, unit: usize) -> View<'_, DeviceOf<M>> {
        let (places, takes) = (self.arena.places(), self.plan.units[unit].takes);
        if takes == 0 {
            return View::empty();
        }
        let holder = places.holder(unit);
        let flat = places.computed_on(holder, self.ranks.position.slot(holder));
        // SAFETY: the schedule has gathered it and waited for it, or widened it, and releases it after this op; where it is
        // kept, only updates, waits for gathers and tied parameters write it, and they are other ops.
        unsafe { self.arena.view(flat) }.part(0, takes)
    }

    fn input(&self, unit: usize, slot: usize, share: Share) -> View<'_, DeviceOf<M>> {
        // SAFETY: written by `fill_batch`, by a receive or by the forward of the unit before, which are over, and by no
        // other op of this micro-batch.
        unsafe { self.arena.view(share.of_place(self.arena.places().input(unit, slot))) }
    }

    fn context(&self, unit: usize, slot: usize, walk: &WalkState) -> Context<'_, DeviceOf<M>> {
        let (sequences, length) = walk.shape;
        let ends = self.plan.placements[unit].chunk + 1 == self.plan.chunks.len();
        let targets = if ends {
            // SAFETY: as for the inputs.
            unsafe { self.arena.view(self.share(walk).of_place(self.arena.places().targets(slot))) }
        } else {
            View::empty()
        };
        Context { device: &self.ranks.device, sequences, length, targets }
    }

    fn workspace(&self, unit: usize) -> ViewMut<'_, DeviceOf<M>> {
        // SAFETY: a region of its own, which only this op uses.
        unsafe { self.arena.view_mut(self.arena.places().workspace(unit)) }
    }

    pub(super) fn forward(&mut self, unit: usize, slot: usize, walk: &mut WalkState) {
        let is_head = self.is_head(unit);
        if is_head && walk.headless {
            return;
        }
        let output = self.arena.places().output(unit, slot, self.ranks.position.outgoing(Parcel::Activations));
        self.run_forward(unit, slot, output, walk);
        // SAFETY: the views of the call have ended.
        let y = unsafe { self.arena.view::<f32>(self.share(walk).of_place(output)) };
        if is_head {
            self.ranks.device.add_mean(y, self.arena.own_words_mut(1));
        }
        if let Some(search) = &mut walk.finding {
            search.forward(unit, self.ranks.device.all_finite(y));
        }
    }

    /// Runs a unit forward once more, from the same input; its output is no news.
    pub(super) fn recompute(&mut self, unit: usize, slot: usize, walk: &WalkState) {
        self.run_forward(unit, slot, self.arena.places().output_again(unit), walk);
    }

    /// Fills what a layer is to write with NaN, in a debug build: what it forgets then shows as a number that is not
    /// finite, not as what happened to lie there.
    fn poison<const N: usize>(&self, unwritten: [&mut ViewMut<DeviceOf<M>>; N]) {
        if cfg!(debug_assertions) {
            unwritten.into_iter().for_each(|view| self.ranks.device.fill(view.reborrow(), f32::NAN));
        }
    }

    fn run_forward(&self, unit: usize, slot: usize, output: Place, walk: &WalkState) {
        let share = self.share(walk);
        // SAFETY: this unit's own output and saved part, which no other view of this op covers.
        let (mut y, mut saved) = unsafe {
            (self.arena.view_mut(share.of_place(output)), self.arena.view_mut(self.arena.places().saved(unit, slot)))
        };
        let (params, x, mut work) = (self.params(unit), self.input(unit, slot, share), self.workspace(unit));
        self.poison([&mut y, &mut saved, &mut work]);
        let pass = Forward { params, x, y, saved, work };
        (M::CODE[self.plan.units[unit].position].forward)(&self.context(unit, slot, walk), pass);
    }

    pub(super) fn backward(&mut self, unit: usize, micro_batch: usize, slot: usize, walk: &mut WalkState) {
        let (places, sizes) = (self.arena.places(), &self.plan.units[unit]);
        let input_gradient = places.input_gradient(unit, self.ranks.position.outgoing(Parcel::Gradients));
        // SAFETY: the gradient of the output, the place for that of the input, which is the other half of the same region
        // or leaves, and what this unit's forward saved, which is over.
        let (mut dy, mut dx, saved) = unsafe {
            (
                self.arena.view_mut::<f32>(places.output_gradient(unit)),
                input_gradient.map(|place| self.arena.view_mut::<f32>(place)),
                self.arena.view(places.saved(unit, slot)),
            )
        };
        if self.is_head(unit) {
            // The loss of a micro-batch is the mean over its tokens.
            self.ranks.device.fill(dy.reborrow(), 1.0 / sizes.output as f32);
        }
        let mut work = self.workspace(unit);
        self.poison([&mut work]);
        if let Some(dx) = &mut dx {
            self.poison([dx]);
        }
        let pass = Backward {
            params: self.params(unit),
            grads: self.grads(unit, micro_batch),
            x: self.input(unit, slot, self.share(walk)),
            saved,
            dy: dy.as_view(),
            dx,
            work,
        };
        (M::CODE[sizes.position].backward)(&self.context(unit, slot, walk), pass);
        self.narrow_grads(unit);
        if let Some(search) = &mut walk.finding {
            let gradients = places.local_gradients(unit);
            // SAFETY: the views above have ended, and the bucket is not offered before the next op.
            let is_finite = unsafe {
                let gradients = self.arena.stored(self.arena.rank(), gradients).part(0, sizes.takes);
                self.ranks.device.all_finite(gradients)
                    && input_gradient.is_none_or(|place| self.ranks.device.all_finite(self.arena.view::<f32>(place)))
            };
            search.backward(unit, is_finite);
        }
    }

    /// Where the gradients of a unit's parameters go: to those of earlier micro-batches where they are held; otherwise nothing
    /// of another unit is left in its flat buffer.
    fn grads(&self, unit: usize, micro_batch: usize) -> Grads<'_, DeviceOf<M>> {
        let (places, device) = (self.arena.places(), &self.ranks.device);
        let adds = self.plan.config.holds_gradients() && micro_batch > 0;
        // SAFETY: staging that the schedule has claimed and not offered, which no peer reads; the region for one unit's
        // gradients is another.
        let flat = unsafe {
            match self.arena.stored_mut(places.local_gradients(unit)) {
                StoredMut::F32(flat) => flat,
                StoredMut::BF16(narrow) => {
                    let mut wide = self.arena.view_mut(places.wide_gradients(unit));
                    if adds {
                        device.widen(wide.reborrow(), narrow.as_view());
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
        device.fill(padding, 0.0);
        self.poison([&mut grads]);
        Grads::new(grads, Write::Set)
    }

    /// Rounds the gradients of a unit where they are held in a narrower type.
    fn narrow_grads(&self, unit: usize) {
        let places = self.arena.places();
        // SAFETY: as for `grads`, whose view has ended.
        unsafe {
            if let StoredMut::BF16(narrow) = self.arena.stored_mut(places.local_gradients(unit)) {
                self.ranks.device.narrow(narrow, self.arena.view(places.wide_gradients(unit)));
            }
        }
    }

    /// Logits after the last of `length` tokens, from the input of the head, which is held gathered.
    pub(super) fn logits(&self, length: usize, slot: usize, logits: &mut [f32]) {
        let head = self.plan.units.len() - 1;
        let width = self.plan.units[head].input / self.plan.config.tokens();
        let share = Share { tokens: length, of: self.plan.config.tokens() };
        let x = self.input(head, slot, share).part((length - 1) * width, width);
        let mut outputs = self.workspace(head).part(0, M::HEAD.outputs);
        (M::HEAD.logits)(&self.ranks.device, self.params(head), x, outputs.reborrow());
        self.ranks.device.read(outputs.as_view(), logits);
    }
}
