//! Compute: the ops that call layers, each with views of exactly the bytes that it may touch.
#![allow(unsafe_code)]

use zero_plan::place::Place;
use zero_plan::{Parcel, Width};

use super::words::StepWords;
use super::{Engine, Share, WalkState};
use zero_core::device::{Device, Stored, Write};
use zero_core::layer::{BackwardBytes, Context, ForwardBytes, Grads};
use zero_core::transport::Transport;
use zero_core::view::{View, ViewMut};

// SAFETY of all views made here: the places are those that the plan gives the op, which `check` shows to lie apart and
// `prove` to hold what the op needs. Ops run one after another, so views of different ops never live at one time; the
// comments below argue for each op.
impl<'p, D: Device, T: Transport<'p, D>> Engine<'p, D, T> {
    fn is_head(&self, unit: usize) -> bool {
        unit + 1 == self.plan.units.len()
    }

    /// The parameters that a unit's layer reads.
    fn params(&self, unit: usize) -> View<'_, D, u8> {
        let (places, takes) = (self.ranks.places(), self.plan.units[unit].takes);
        if takes == 0 {
            return View::empty();
        }
        let holder = places.holder(unit);
        let flat = places.computed_on(holder, self.ranks.position.slot(holder));
        let taken = flat.first(takes * self.arena.width(flat).bytes());
        // SAFETY: the schedule has gathered it and waited for it, or converted it, and releases it after this op; if it
        // is kept, only updates, waits for gathers and tied parameters write it, and they are other ops.
        unsafe { self.arena.bytes(taken) }
    }

    fn input(&self, unit: usize, slot: usize, share: Share) -> View<'_, D, u8> {
        let place = share.of_place(self.ranks.places().input(unit, slot));
        // SAFETY: written by `fill_batch`, by a receive or by the forward of the unit before, which are over, and by no
        // other op of this micro-batch.
        unsafe { self.arena.bytes(place) }
    }

    fn context(&self, unit: usize, slot: usize, walk: &WalkState) -> Context<'_, D> {
        let (sequences, length) = walk.shape;
        let ends = self.plan.placements[unit].chunk + 1 == self.plan.chunks.len();
        let targets = if ends && !walk.decodes {
            let place = self.share(walk).of_place(self.ranks.places().targets(slot));
            // SAFETY: as for the inputs.
            unsafe { self.arena.bytes(place) }
        } else {
            View::empty()
        };
        let earlier = if walk.decodes { &self.earlier[..] } else { &[] };
        Context { device: &self.ranks.device, sequences, length, earlier, slots: self.cached.len(), targets }
    }

    fn workspace(&self, unit: usize) -> ViewMut<'_, D, u8> {
        // SAFETY: a region of its own, which only this op uses.
        unsafe { self.arena.bytes_mut(self.ranks.places().workspace(unit)) }
    }

    pub(super) fn forward(&mut self, unit: usize, slot: usize, walk: &mut WalkState) {
        let is_head = self.is_head(unit);
        if is_head && walk.headless || self.is_left_to_backward(unit, walk) {
            return;
        }
        let output = self.ranks.places().output(unit, slot, self.ranks.position.outgoing(Parcel::Activations));
        self.run_forward(unit, slot, output, walk);
        // SAFETY: the views of the call have ended.
        let y = unsafe { self.arena.bytes(self.share(walk).of_place(output)) };
        if is_head {
            self.count_losses(y.cast(), walk);
        }
        if let Some(search) = &mut walk.finding {
            search.forward(unit, self.ranks.device.all_finite(Stored::of(self.width_of(unit), y)));
        }
    }

    /// Adds the mean of the losses of a micro-batch to the loss of the step. In an evaluation, adds the mean of each sequence that counts,
    /// so that the sum depends only on the order of the sequences; the mean of one that is cut is the next number.
    fn count_losses(&self, losses: View<D, f32>, walk: &WalkState) {
        let at_once = if walk.learns { losses.len() } else { walk.shape.1 };
        for start in (0..walk.counted).step_by(at_once) {
            let tokens = at_once.min(walk.counted - start);
            let number = self.arena.own_words_mut(2).part(usize::from(tokens < at_once), 1);
            self.ranks.device.add_mean(losses.part(start, tokens), number);
        }
    }

    /// Whether a forward of the head has nothing to do, because its backward computes the losses.
    fn is_left_to_backward(&self, unit: usize, walk: &WalkState) -> bool {
        walk.learns && self.plan.units[unit].losses_in_backward
    }

    /// Runs a unit forward once more, from the same input. Its output is not used.
    pub(super) fn recompute(&mut self, unit: usize, slot: usize, walk: &WalkState) {
        if self.is_left_to_backward(unit, walk) {
            return;
        }
        self.run_forward(unit, slot, self.ranks.places().output_again(unit), walk);
    }

    /// The width of the output of a unit: that of losses for the head, and of features for all others.
    fn width_of(&self, unit: usize) -> Width {
        if self.is_head(unit) { Width::F32 } else { self.plan.config.precision.compute }
    }

    /// In a debug build, fills the memory that a layer is to write with bytes that are NaN in any width. An element
    /// that the layer does not write then shows as a number that is not finite, instead of an old value.
    fn poison<const N: usize>(&self, unwritten: [&mut ViewMut<D, u8>; N]) {
        if cfg!(debug_assertions) {
            unwritten.into_iter().for_each(|view| self.ranks.device.fill(view.reborrow(), u8::MAX));
        }
    }

    fn run_forward(&self, unit: usize, slot: usize, output: Place, walk: &WalkState) {
        let share = self.share(walk);
        // SAFETY: this unit's own output and saved part, which no other view of this op covers.
        let (mut y, mut saved) = unsafe {
            (self.arena.bytes_mut(share.of_place(output)), self.arena.bytes_mut(self.ranks.places().saved(unit, slot)))
        };
        let (params, x, mut work) = (self.params(unit), self.input(unit, slot, share), self.workspace(unit));
        self.poison([&mut y, &mut saved, &mut work]);
        let pass = ForwardBytes { params, x, y, saved, work };
        let (code, context) = (&self.program.code[self.plan.units[unit].position], self.context(unit, slot, walk));
        if walk.decodes {
            (code.decode)(&context, pass, self.cache(unit));
        } else {
            (code.forward)(&context, pass);
        }
    }

    /// The caches of a unit in decoding, of all slots.
    fn cache(&self, unit: usize) -> ViewMut<'_, D, u8> {
        // SAFETY: they lie after the memory that units share in a decoding walk, and apart from other caches.
        unsafe { self.arena.bytes_mut(self.ranks.places().cache(unit)) }
    }

    pub(super) fn backward(&mut self, unit: usize, micro_batch: usize, slot: usize, walk: &mut WalkState) {
        let (places, sizes) = (self.ranks.places(), &self.plan.units[unit]);
        let input_gradient = places.input_gradient(unit, self.ranks.position.outgoing(Parcel::Gradients));
        // SAFETY: these lie apart: the gradient of the output; that of the input, which is in the other half of the
        // region or leaves; and the values saved by this unit's forward, which is over.
        let (mut dy, mut dx, saved) = unsafe {
            (
                self.arena.bytes_mut(places.output_gradient(unit)),
                input_gradient.map(|place| self.arena.bytes_mut(place)),
                self.arena.bytes(places.saved(unit, slot)),
            )
        };
        if self.is_head(unit) {
            // The loss of a micro-batch is the mean over its tokens.
            self.ranks.device.fill(dy.reborrow().cast(), 1.0 / self.plan.config.tokens() as f32);
        }
        let mut work = self.workspace(unit);
        self.poison([&mut work]);
        if let Some(dx) = &mut dx {
            self.poison([dx]);
        }
        let (dy, mut losses) =
            if sizes.losses_in_backward { (View::empty(), dy.cast()) } else { (dy.into_view(), ViewMut::empty()) };
        let pass = BackwardBytes {
            params: self.params(unit),
            grads: self.grads(unit, micro_batch),
            x: self.input(unit, slot, self.share(walk)),
            saved,
            dy,
            losses: losses.reborrow(),
            dx,
            work,
        };
        (self.program.code[sizes.position].backward)(&self.context(unit, slot, walk), pass);
        if self.is_left_to_backward(unit, walk) {
            self.count_losses(losses.as_view(), walk);
        }
        self.narrow_grads(unit);
        if let Some(search) = &mut walk.finding {
            let gradients = places.local_gradients(unit);
            // SAFETY: the views above have ended, and the bucket is not offered before the next op.
            let is_finite = unsafe {
                let gradients = self.arena.stored(gradients).part(0, sizes.takes);
                let of_input = input_gradient.map(|place| self.arena.bytes(place));
                self.ranks.device.all_finite(gradients)
                    && of_input.is_none_or(|of_input| {
                        self.ranks.device.all_finite(Stored::of(self.width_of(unit - 1), of_input))
                    })
            };
            search.backward(unit, is_finite);
        }
    }

    /// The destination of the gradients of a unit's parameters: they are added to those of earlier micro-batches if
    /// these are held; otherwise they replace whatever another unit left in the flat buffer.
    fn grads(&self, unit: usize, micro_batch: usize) -> Grads<'_, D> {
        let (places, device) = (self.ranks.places(), &self.ranks.device);
        let adds = self.plan.config.holds_gradients() && micro_batch > 0;
        // SAFETY: staging that the schedule has claimed and not offered, which no peer reads; the region for one unit's
        // gradients is another.
        let flat = unsafe {
            let local = places.local_gradients(unit);
            if self.arena.width(local).is_narrow() {
                let mut wide = self.arena.bytes_mut(places.wide_gradients(unit)).cast();
                if adds {
                    device.convert(wide.reborrow().into(), self.arena.stored(local));
                }
                wide
            } else {
                self.arena.bytes_mut(local).cast()
            }
        };
        let (mut grads, padding) = flat.split_at(self.plan.units[unit].takes);
        if adds {
            return Grads::new(grads, Write::Add);
        }
        // Clear the padding: stale values would be summed as gradients.
        device.fill(padding, 0.0);
        self.poison([&mut grads.reborrow().cast()]);
        Grads::new(grads, Write::Set)
    }

    /// Rounds the gradients of a unit if they are held in a narrower type.
    fn narrow_grads(&self, unit: usize) {
        let (places, device) = (self.ranks.places(), &self.ranks.device);
        let local = places.local_gradients(unit);
        if self.arena.width(local).is_narrow() {
            // SAFETY: as for `grads`, whose view has ended.
            unsafe { device.convert(self.arena.stored_mut(local), self.arena.stored(places.wide_gradients(unit))) };
        }
    }

    /// Logits after the last of `length` tokens of each sequence, from the input of the head, whose parameters stay gathered.
    pub(super) fn logits(&self, (sequences, length): (usize, usize), slot: usize, logits: &mut [f32]) {
        let (head, outputs) = (self.plan.units.len() - 1, self.program.head.outputs);
        let row = self.plan.units[head].input_bytes / self.plan.config.tokens();
        let share = Share { tokens: sequences * length, of: self.plan.config.tokens() };
        let (x, work) = (self.input(head, slot, share), self.ranks.places().workspace(head).len_bytes);
        // As many as there is room for.
        let at_once = (work / (outputs * size_of::<f32>())).clamp(1, sequences);
        assert!(length == 1 || sequences == 1, "the last tokens of {sequences} sequences are apart");
        for first in (0..sequences).step_by(at_once) {
            let rows = at_once.min(sequences - first);
            let x = x.part((first + length - 1) * row, rows * row);
            let mut found = self.workspace(head).take::<f32>(rows * outputs).0;
            (self.program.head.logits)(&self.ranks.device, self.params(head), x, found.reborrow());
            self.ranks.device.read(found.as_view(), &mut logits[first * outputs..][..rows * outputs]);
        }
    }
}
