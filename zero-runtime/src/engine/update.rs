//! Update: the end of a step: agreement on loss and norm, clipping, AdamW on what this rank keeps the state of. The order
//! of every sum follows the layout, never the stage.
#![allow(unsafe_code)]

use zero_plan::place::{Place, Places, State, Stretch};

use super::Engine;
use super::turn::ExchangeReason;
use crate::device::{Device, HyperBlock, Stored, StoredMut, Weights};
use crate::layer::Tensors;
use crate::model::{DeviceOf, Model};
use crate::transport::{Lost, Transport};

/// What the user chooses about the optimizer for one step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Hyper {
    /// Learning rate.
    pub lr: f64,
    /// Decay of the first moment.
    pub beta1: f64,
    /// Decay of the second moment.
    pub beta2: f64,
    /// Decay of the momentum of what Muon updates.
    pub momentum: f64,
    /// Added to the root of the second moment.
    pub epsilon: f64,
    /// Decoupled weight decay, of matrices only.
    pub weight_decay: f64,
    /// The norm to which longer gradients are scaled down, if any.
    pub clip: Option<f64>,
}

impl Hyper {
    /// What AdamW (Loshchilov and Hutter, 2019) and Muon (Jordan et al., 2024) need at step `steps_done` + 1.
    pub(super) fn block(&self, steps_done: u64) -> HyperBlock {
        let t = (steps_done + 1) as f64;
        HyperBlock {
            lr: self.lr,
            beta1: self.beta1,
            beta2: self.beta2,
            momentum: self.momentum,
            epsilon: self.epsilon,
            weight_decay: self.weight_decay,
            clip: self.clip.unwrap_or(f64::INFINITY),
            correction1: 1.0 - self.beta1.powf(t),
            correction2: 1.0 - self.beta2.powf(t),
        }
    }
}

/// A stretch of a flat buffer that this rank updates, counted from the start of what it owns of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct UpdatedStretch {
    start: usize,
    len: usize,
    decays: bool,
    embeds: bool,
}

/// What a rank updates of each unit: all of it, or its shard, without the padding.
pub(super) fn segments<M: Model>(places: &Places) -> Vec<Vec<UpdatedStretch>> {
    let (units, placements) = (places.tables.units, places.tables.placements);
    let segments_of = |unit: usize| {
        let Stretch { start, len } = places.owned(unit);
        let mut tensors = Tensors::default();
        if units[unit].params > 0 && placements[unit].pipeline_stage == places.at.pipeline {
            M::CODE[units[unit].position].tensors(&mut tensors);
        }
        let cut = |tensor: crate::layer::Tensor| {
            let from = tensor.start.max(start);
            let to = (tensor.start + tensor.len()).min(start + len);
            let (decays, embeds) = (tensor.decays(), tensor.embeds);
            (from < to).then(|| UpdatedStretch { start: from - start, len: to - from, decays, embeds })
        };
        tensors.into_list().into_iter().filter_map(cut).collect()
    };
    (0..units.len()).map(segments_of).collect()
}

impl<'p, M: Model, T: Transport<'p, DeviceOf<M>>> Engine<'p, M, T> {
    /// Agrees with all ranks on the mean loss of the step and the norm of its mean gradient, and so on what gradients are
    /// scaled by; all of it on the device.
    pub(super) fn agree(&mut self) -> Result<(), Lost> {
        self.square();
        self.exchange_on_device(ExchangeReason::Agree, self.plan.agreed_values())?;
        self.conclude();
        Ok(())
    }

    /// Leaves the squares of this rank's gradients for the others.
    pub(super) fn square(&self) {
        let (places, device) = (self.arena.places(), &self.ranks.device);
        for (unit, sizes) in self.plan.units.iter().enumerate() {
            if sizes.params > 0 && self.plan.placements[unit].pipeline_stage == places.at.pipeline {
                let summed = places.part(places.reduced(unit), places.at.replica);
                let square = self.arena.own_words_mut(self.plan.agreed_values()).part(1 + unit, 1);
                // SAFETY: every bucket is summed: nobody writes this rank's parts before the next step.
                device.squares(unsafe { self.arena.stored(summed) }, square);
            }
        }
    }

    /// Combines the words that all ranks have left into the report.
    pub(super) fn conclude(&self) {
        let values = self.plan.agreed_values();
        let (all, hyper, report) = (self.arena.all_words(values), self.arena.hyper(), self.arena.report_mut());
        self.ranks.device.agree(&self.agreement, all, hyper, report);
    }

    /// Updates what this rank keeps the optimizer state of.
    pub(super) fn update(&mut self, unit: usize) {
        let (places, device) = (self.arena.places(), &self.ranks.device);
        let place = |state| places.state(state, unit).map(|(_, place)| place);
        for &UpdatedStretch { start, len, decays, embeds } in &self.segments[unit] {
            let decays = decays && (self.decays_embeddings || !embeds);
            let cut = |place: Place| {
                let width = self.arena.width(place).bytes();
                place.cut(start * width, len * width)
            };
            // SAFETY: stretches of different regions, and of the two halves of the optimizer state. All ranks have agreed,
            // which they do after their last use of the parameters, so nobody reads what is written here.
            let state = |place: Place| -> StoredMut<_> { unsafe { self.arena.stored_mut(cut(place)) } };
            // SAFETY: as above.
            let gradients: Stored<_> = unsafe { self.arena.stored(cut(places.sums(unit))) };
            let weights = Weights { params: state(places.updated(unit)), master: place(State::Master).map(state) };
            let moment = |which| state(place(which).expect("moments of what is updated"));
            let (m, v) = (moment(State::FirstMoment), moment(State::SecondMoment));
            device.update(decays, self.arena.hyper(), self.arena.report(), weights, gradients, m, v);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// At the third step: by the formulas of the paper.
    #[test]
    fn moments_are_corrected_and_clipping_is_as_asked_for() {
        let (beta1, beta2, momentum) = (0.9, 0.5, 0.95);
        let hyper = Hyper { lr: 0.1, beta1, beta2, momentum, epsilon: 1e-8, weight_decay: 0.2, clip: Some(1.0) };
        let block = hyper.block(2);
        assert!((block.correction1 - 0.271).abs() < 1e-12 && (block.correction2 - 0.875).abs() < 1e-12);
        assert_eq!((block.lr, block.momentum, block.weight_decay, block.clip), (0.1, 0.95, 0.2, 1.0));
        assert_eq!(Hyper { clip: None, ..hyper }.block(2).clip, f64::INFINITY);
    }
}
