//! Batch: receives a micro-batch from the data, and checks each id before a layer uses it. Never trusts a dataset: an
//! id out of the model's range would make every rank panic.
#![allow(unsafe_code)]

use core::fmt;

use zero_plan::Width;

use super::words::StepWords;
use super::{Engine, Fill, WalkState};
use zero_core::device::{Device, Stored, StoredMut};
use zero_core::model::Program;
use zero_core::transport::Transport;
use zero_core::view::ViewMut;

/// A kind of ids of a micro-batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ids {
    /// The inputs of the model.
    Input,
    /// The targets of the model.
    Target,
}

impl Ids {
    /// One more than the largest id that the model accepts; `None` if the data is not ids.
    fn bound<D>(self, program: &Program<D>) -> Option<usize> {
        match self {
            Ids::Input => program.inputs.vocabulary,
            Ids::Target => (program.head.classes > 0).then_some(program.head.classes),
        }
    }
}

/// An id out of the model's range. Positions are counted from 0, the step from 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutOfRange {
    /// The step.
    pub step: u64,
    /// Whether the id occurred in that step; otherwise, in an evaluation after it.
    pub trained: bool,
    /// The rank that received the id; the lowest, if several did.
    pub rank: usize,
    /// The position of the id in its data.
    pub place: BatchPlace,
    /// The id.
    pub id: u32,
    /// Exclusive upper bound of ids.
    pub bound: usize,
}

/// The position of an id in the data of a rank's step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchPlace {
    /// Input or target.
    pub ids: Ids,
    /// The micro-batch.
    pub micro_batch: usize,
    /// The sequence in it.
    pub sequence: usize,
    /// The token in that sequence.
    pub token: usize,
}

impl std::error::Error for OutOfRange {}

impl fmt::Display for OutOfRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { step, trained, rank, place, id, bound } = self;
        let BatchPlace { ids, micro_batch, sequence, token } = place;
        let when = if *trained { "in step" } else { "in held-out data after step" };
        let (what, limit, fix) = match ids {
            Ids::Input => ("an input id", "the vocabulary of the first field", "an embedding"),
            Ids::Target => ("a target", "the number of classes of the head", "a head"),
        };
        write!(
            f,
            "error[Z0420]: {what} {when} {step} is {id}, expected less than {bound}, {limit}\n  --> rank {rank}, \
             micro-batch {micro_batch}, sequence {sequence}, token {token} (each counted from 0)\n  = help: correct the \
             dataset there, or build the model with {fix} of {} or more",
            u64::from(*id) + 1
        )
    }
}

/// The first id of a walk that is out of range, as ranks exchange it: its kind, its micro-batch, its element in the
/// micro-batch, and the id.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct IdMisfit {
    pub ids: Ids,
    pub micro_batch: usize,
    pub element: usize,
    pub id: u32,
}

impl<'p, D: Device, T: Transport<'p, D>> Engine<'p, D, T> {
    /// Fills in a micro-batch if `unit` begins a chunk that needs part of it: the inputs at the start of the model, the
    /// targets at the start of its last chunk. The unneeded part goes to the workspace, which no op uses now.
    pub(super) fn fill_batch(
        &mut self,
        unit: usize,
        micro_batch: usize,
        slot: usize,
        walk: &mut WalkState,
        batch: Fill,
    ) {
        let (begins, ends) = (unit == 0, self.plan.placements[unit].chunk + 1 == self.plan.chunks.len());
        let chunk = &self.plan.chunks[self.plan.placements[unit].chunk];
        // Decoding computes no losses, and has no place for targets.
        let takes_targets = !walk.decodes;
        if chunk.first != unit || !(begins || ends && takes_targets) {
            return;
        }
        let (places, tokens) = (self.ranks.places(), walk.shape.0 * walk.shape.1);
        let Program { inputs: taken, head, .. } = self.program;
        let (input_bytes, target_bytes) = (taken.words.bytes(tokens), head.targets.bytes(tokens));
        let converts = self.plan.units[0].given_bytes > 0;
        let inputs = match (begins, converts) {
            (true, false) => places.input(0, slot),
            (true, true) => places.given(),
            (false, _) => places.unneeded(),
        };
        let inputs = inputs.first(input_bytes);
        let targets = if ends { places.targets(slot) } else { places.unneeded() };
        // SAFETY: targets lie after inputs, or the two lie in different regions or parts of the workspace, because at
        // least one of them is needed. No other view of this op covers either.
        let (inputs_view, targets) = unsafe {
            let targets = takes_targets.then(|| self.arena.bytes_mut(targets.first(target_bytes)).cast());
            (self.arena.bytes_mut(inputs).cast(), targets.unwrap_or_else(ViewMut::empty))
        };
        let is_prediction = walk.headless;
        let mut misfit = None;
        let device = &self.ranks.device;
        device.stage(inputs_view, |inputs| {
            device.stage(targets, |targets| {
                batch(micro_batch, inputs, targets);
                if !is_prediction {
                    misfit = first_misfit(self.program, micro_batch, inputs, targets);
                }
            });
        });
        if begins && converts {
            let compute = self.plan.config.precision.compute;
            let entering = self.share(walk).of_place(places.input(0, slot));
            // SAFETY: the view of the staged inputs has ended, and the first unit's input lies elsewhere.
            let (entering, given) = unsafe { (self.arena.bytes_mut(entering), self.arena.bytes(inputs)) };
            device.convert(StoredMut::of(compute, entering), Stored::of(Width::F32, given));
        }
        if let Some(misfit) = misfit {
            // All ranks notice together when they agree on the loss, so none of them learns from this step.
            device.restage(self.arena.own_words_mut(1), |loss| loss.fill(f64::NAN));
            walk.misfit.get_or_insert(misfit);
        }
    }

    /// The error for an out-of-range id that `rank` found.
    pub(super) fn out_of_range(&self, rank: usize, misfit: IdMisfit, step: u64, trained: bool) -> OutOfRange {
        let IdMisfit { ids, micro_batch, element, id } = misfit;
        let (sequence, token) = (element / self.plan.config.length, element % self.plan.config.length);
        let bound = ids.bound(self.program).expect("only ids are out of range");
        OutOfRange { step, trained, rank, place: BatchPlace { ids, micro_batch, sequence, token }, id, bound }
    }
}

/// The first id of a micro-batch that is out of range. All such ids become 0, so that layers can continue.
fn first_misfit<D>(
    program: &Program<D>,
    micro_batch: usize,
    inputs: &mut [u32],
    targets: &mut [u32],
) -> Option<IdMisfit> {
    // Data that has a bound consists of ids.
    let of = |ids: Ids, words: &mut [u32]| {
        let (element, id) = take_out_of_range(words, ids.bound(program)?)?;
        Some(IdMisfit { ids, micro_batch, element, id })
    };
    let (input, target) = (of(Ids::Input, inputs), of(Ids::Target, targets));
    input.or(target)
}

/// Sets every id that is not less than `bound` to 0, so that layers can continue; returns the first.
fn take_out_of_range(ids: &mut [u32], bound: usize) -> Option<(usize, u32)> {
    let mut first = None;
    for (i, id) in ids.iter_mut().enumerate().filter(|(_, id)| **id as usize >= bound) {
        first.get_or_insert((i, *id));
        *id = 0;
    }
    first
}
