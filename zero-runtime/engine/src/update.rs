//! Update: the end of a step: agreement on loss and norm, clipping, and the optimizer for the parameters whose state
//! this rank keeps: Muon for hidden matrices if the plan asks for it, AdamW for all others. The order of every sum
//! follows the layout, never the stage.
#![allow(unsafe_code)]

use core::ops::Range;

use zero_plan::place::{Kept, Place, Places, State, Stretch};
use zero_plan::{Op, Piece, Width};

use super::Engine;
use super::calls::ExchangeReason;
use super::tier::TierOfRank;
use super::words::StepWords;
use zero_core::device::{DecayRun, Device, Element, HyperBlock, Stored, StoredMut, Weights, bf16};
use zero_core::layer::{HiddenMatrix, Tensor, Tensors};
use zero_core::lost::Lost;
use zero_core::model::Program;
use zero_core::orthogonal::{orthogonalize, step_factor};
use zero_core::tier::Direction;
use zero_core::transport::Transport;
use zero_core::view::View;

/// The user's settings of the optimizer for one step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Hyper {
    /// Learning rate.
    pub lr: f64,
    /// Decay of the first moment.
    pub beta1: f64,
    /// Decay of the second moment.
    pub beta2: f64,
    /// Decay of Muon's momentum.
    pub momentum: f64,
    /// Added to the root of the second moment.
    pub epsilon: f64,
    /// Decoupled weight decay, of matrices only.
    pub weight_decay: f64,
    /// The norm to which longer gradients are scaled down, if any.
    pub clip: Option<f64>,
}

impl Hyper {
    /// The numbers that AdamW (Loshchilov and Hutter, 2019) and Muon (Jordan et al., 2024) need after `steps_done`
    /// steps.
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

/// A stretch of a flat buffer that this rank updates by one op, counted from the start of the part that it owns.
#[derive(Clone, Debug)]
pub(super) struct UpdatedStretch {
    pub(super) start: usize,
    /// Its runs with and without weight decay; a single run if it is part of a matrix.
    pub(super) runs: Vec<DecayRun>,
    /// The matrix that contains it, if that matrix is made orthogonal.
    of_matrix: Option<HiddenMatrix>,
}

impl UpdatedStretch {
    fn len(&self) -> usize {
        self.runs.iter().map(|run| run.len).sum()
    }

    /// Extends this stretch by the next stretch of the buffer, if one op can update both.
    fn join(&mut self, next: &Self) -> bool {
        if self.of_matrix.is_some() || next.of_matrix.is_some() || next.start != self.start + self.len() {
            return false;
        }
        let (count, run) = (self.runs.len(), next.runs[0]);
        match self.runs.last_mut() {
            Some(last) if last.decays == run.decays => last.len += run.len,
            _ if count < DecayRun::MOST => self.runs.push(run),
            _ => return false,
        }
        true
    }
}

/// The stretches that a rank updates of each unit: all of it, or its shard, without the padding. If they are updated
/// piece by piece, each lies in one piece. Weight decay may leave out embeddings.
pub(super) fn segments<D>(program: &Program<D>, places: &Places, decays_embeddings: bool) -> Vec<Vec<UpdatedStretch>> {
    let (units, placements) = (places.tables.units, places.tables.placements);
    let segments_of = |unit: usize| {
        let start = places.owned(unit).start;
        let mut tensors = Tensors::default();
        if units[unit].params > 0 && placements[unit].pipeline_stage == places.at.pipeline {
            program.code[units[unit].position].tensors(&mut tensors);
        }
        let cut = |within: Stretch, part: Stretch, tensor: &Tensor, of_matrix: Option<HiddenMatrix>| {
            let from = part.start.max(start + within.start);
            let to = (part.start + part.len).min(start + within.start + within.len);
            let decays = tensor.decays() && (decays_embeddings || !tensor.embeds);
            (from < to).then(|| {
                let runs = vec![DecayRun { len: to - from, decays }];
                UpdatedStretch { start: from - start, runs, of_matrix }
            })
        };
        let of_tensor = |within: Stretch, tensor: &Tensor| -> Vec<UpdatedStretch> {
            let matrices = tensor.hidden_matrices().filter(|_| places.tables.is_orthogonalized(unit));
            let of_matrices: Vec<_> =
                matrices.map(|matrix| cut(within, elements_of(&matrix), tensor, Some(matrix))).collect();
            let whole = Stretch { start: tensor.start, len: tensor.len() };
            let parts = if of_matrices.is_empty() { vec![cut(within, whole, tensor, None)] } else { of_matrices };
            parts.into_iter().flatten().collect()
        };
        let tensors = tensors.into_list();
        let within = |within: Stretch| {
            let mut stretches: Vec<UpdatedStretch> = Vec::new();
            for next in tensors.iter().flat_map(|tensor| of_tensor(within, tensor)) {
                if !stretches.last_mut().is_some_and(|last| last.join(&next)) {
                    stretches.push(next);
                }
            }
            stretches
        };
        worked_parts(places, unit).into_iter().flat_map(within).collect()
    };
    (0..units.len()).map(segments_of).collect()
}

/// The parts of what a rank owns of a unit that are updated one after another, counted from its start.
fn worked_parts(places: &Places, unit: usize) -> Vec<Stretch> {
    if places.tables.config.updates_in_pieces() {
        return (0..places.tables.pieces(unit)).map(|index| places.piece(unit, index)).collect();
    }
    vec![Stretch { start: 0, ..places.owned(unit) }]
}

/// The elements of a matrix in the flat buffer of its unit.
fn elements_of(matrix: &HiddenMatrix) -> Stretch {
    Stretch { start: matrix.start, len: matrix.rows * matrix.columns }
}

/// Cuts a place down to some of its elements, which have this width.
fn elements(place: Place, width: Width, Stretch { start, len }: Stretch) -> Place {
    place.cut(start * width.bytes(), len * width.bytes())
}

impl<'p, D: Device, T: Transport<'p, D>> Engine<'p, D, T> {
    /// Agrees with all ranks on the mean loss of the step and the norm of its mean gradient, and so on the factor that
    /// scales gradients, entirely on the device.
    pub(super) fn agree(&mut self) -> Result<(), Lost> {
        if !self.plan.config.offloads_gradients() {
            self.square(0..self.plan.units.len());
        }
        self.exchange_on_device(ExchangeReason::Agree, self.plan.agreed_values())?;
        self.conclude();
        Ok(())
    }

    /// After the op that ends the sum of a bucket: squares it, if it leaves for a tier.
    pub(super) fn square_sums(&self, op: Op) {
        let config = &self.plan.config;
        let ends = match op {
            Op::Settle { .. } => config.mesh.replica == 1,
            Op::Combine { .. } => true,
            _ => false,
        };
        if let (true, Some(bucket), Some(round)) = (ends && config.offloads_gradients(), op.bucket(), op.round())
            && round + 1 == config.reductions()
        {
            self.square(self.plan.buckets[bucket].first..self.plan.buckets[bucket].last + 1);
        }
    }

    /// Writes the sums of squares of this rank's gradients of some units for the other ranks.
    pub(super) fn square(&self, units: Range<usize>) {
        let (places, device) = (self.arena.places(), &self.ranks.device);
        for unit in units {
            let sizes = &self.plan.units[unit];
            if sizes.params > 0 && self.plan.placements[unit].pipeline_stage == places.at.pipeline {
                let summed = places.part(places.reduced(unit), places.at.replica);
                let square = self.arena.own_words_mut(self.plan.agreed_values()).part(1 + unit, 1);
                // SAFETY: its bucket is summed: nobody writes this rank's parts before they are stored, or the next step.
                device.squares(unsafe { self.arena.stored(summed) }, square);
            }
        }
    }

    /// Combines the words that all ranks have written into the report.
    pub(super) fn conclude(&self) {
        let values = self.plan.agreed_values();
        let (all, hyper, report) = (self.arena.all_words(values), self.arena.hyper(), self.arena.report_mut());
        self.ranks.device.agree(&self.agreement, all, hyper, report);
        if self.plan.config.updates_on_host() {
            // SAFETY: only calls of the host read them, all of which come between two agreements in this queue.
            let words = unsafe { self.arena.bytes_mut(self.arena.places().step_words()) };
            self.ranks.device.copy(words, self.arena.hyper_and_report());
        }
    }

    /// Adds the sums of gradients of a unit's matrices to their momentum, and replaces the sums by directions.
    pub(super) fn momentum(&mut self, unit: usize) {
        let (places, device) = (self.arena.places(), &self.ranks.device);
        for stretch in self.segments[unit].iter().filter(|stretch| stretch.of_matrix.is_some()) {
            // SAFETY: stretches of different regions. All ranks have agreed, so nobody reads this rank's sums any more,
            // and the directions only after this rank has published them.
            let [sums, momentum] =
                [self.cut(places.sums(unit), stretch), self.moment(State::FirstMoment, unit, stretch, None)]
                    .map(|place| unsafe { self.arena.stored_mut(place) });
            device.momentum(self.arena.hyper(), self.arena.report(), sums, momentum);
        }
    }

    /// Does the updates of the last step, if they are still due because parameters are updated at their use. Whatever reads
    /// parameters or their states between steps needs them. Every rank must call it.
    ///
    /// # Errors
    /// [`Lost`] if another rank has ended, or the tier has failed.
    pub fn finish_step(&mut self) -> Result<(), Lost> {
        if !self.is_update_due {
            return Ok(());
        }
        self.begin();
        let result = self.update_all();
        self.end(result)
    }

    /// Updates all pieces one after another. Nothing else is under way, so each is fetched, updated and stored in turn.
    fn update_all(&mut self) -> Result<(), Lost> {
        let (places, stage) = (self.arena.places(), self.arena.coordinates().pipeline);
        self.tier.iter().for_each(TierOfRank::begin_pass);
        for unit in 0..self.plan.units.len() {
            let is_here = self.plan.placements[unit].pipeline_stage == stage && self.plan.units[unit].params > 0;
            let pieces = if is_here { self.plan.tables().pieces(unit) } else { 0 };
            for piece in (0..pieces).map(|index| Piece { index, slot: 0 }) {
                let op = Op::Update { unit, piece: Some(piece) };
                // SAFETY: every rank has agreed on the last step, after which none reads its parameters; no pass is under way,
                // so nobody uses the window.
                unsafe {
                    self.carry_now(Direction::Fetch, places.trips(Op::Fetch { unit, piece }))?;
                    self.ranks.begin(op)?;
                    self.update(unit, Some(piece));
                    self.ranks.end(op);
                    self.carry_now(Direction::Store, places.trips(Op::Store { unit, piece }))?;
                }
            }
        }
        self.end_updates();
        Ok(())
    }

    /// Ends a pass after which no update is due.
    pub(super) fn end_updates(&mut self) {
        self.arena.begin(None);
        if self.is_update_due {
            // The next step begins with updates too, and these find that there is nothing to do.
            self.ranks.device.stage(self.arena.report_mut(), |to| to.fill(bytemuck::Zeroable::zeroed()));
            self.is_update_due = false;
        }
    }

    /// Updates the parameters whose optimizer state this rank keeps: all of them, or the piece whose state is in the
    /// window.
    pub(super) fn update(&mut self, unit: usize, piece: Option<Piece>) {
        if let Some(piece) = piece.filter(|_| self.plan.config.updates_on_host()) {
            return self.update_by_host(unit, piece);
        }
        let part = piece.map(|piece| self.arena.places().piece(unit, piece.index).elements());
        let is_meant = |stretch: &&UpdatedStretch| part.as_ref().is_none_or(|part| part.contains(&stretch.start));
        for stretch in self.segments[unit].iter().filter(is_meant) {
            match stretch.of_matrix {
                Some(matrix) => self.step_along(unit, stretch, matrix),
                None => self.step_by_moments(unit, stretch, piece),
            }
        }
    }

    /// AdamW on a stretch of a unit.
    fn step_by_moments(&self, unit: usize, stretch: &UpdatedStretch, piece: Option<Piece>) {
        // SAFETY: as in `weights`; the op reads and writes different regions.
        let gradients: Stored<_> = unsafe { self.arena.stored(self.summed(unit, stretch, piece)) };
        // SAFETY: as in `weights`, and the two halves of the optimizer state.
        let [m, v] = [State::FirstMoment, State::SecondMoment]
            .map(|state| unsafe { self.arena.stored_mut(self.moment(state, unit, stretch, piece)) });
        let (hyper, report) = (self.arena.hyper(), self.arena.report());
        let weights = self.weights(unit, stretch, piece);
        self.ranks.device.update(&stretch.runs, hyper, report, weights, gradients, m, v);
    }

    /// Muon on a stretch of a unit, in the width that layers compute in.
    fn step_along(&self, unit: usize, stretch: &UpdatedStretch, matrix: HiddenMatrix) {
        match self.program.compute {
            Width::F32 => self.step_along_in::<f32>(unit, stretch, matrix),
            Width::BF16 => self.step_along_in::<bf16>(unit, stretch, matrix),
        }
    }

    /// Muon on a stretch of a unit, which is all or part of a matrix. Every rank that updates some of the matrix makes
    /// the whole direction orthogonal, so that all of them compute the same bits.
    fn step_along_in<E: Element>(&self, unit: usize, stretch: &UpdatedStretch, matrix: HiddenMatrix) {
        let (places, device) = (self.arena.places(), &self.ranks.device);
        let (directions, room) = (places.local_gradients(unit), places.orthogonal_room(unit));
        let whole = elements(directions, self.arena.width(directions), elements_of(&matrix));
        // SAFETY: directions are whole, and nobody writes there before the next step or spread of this rank. The room is its own.
        let (from, room) = unsafe { (self.arena.stored(whole), self.arena.bytes_mut(room)) };
        let shape = [matrix.rows, matrix.columns];
        let orthogonal: View<_, E> = orthogonalize(device, shape, from, room);
        let first = places.owned(unit).start + stretch.start - matrix.start;
        let (hyper, report, weights) = (self.arena.hyper(), self.arena.report(), self.weights(unit, stretch, None));
        let DecayRun { len, decays } = stretch.runs[0];
        device.step_along(decays, step_factor(shape), hyper, report, weights, orthogonal.part(first, len));
    }

    /// Cuts a place, which holds the part of a unit that this rank owns, down to a stretch of it.
    fn cut(&self, place: Place, stretch: &UpdatedStretch) -> Place {
        elements(place, self.arena.width(place), Stretch { start: stretch.start, len: stretch.len() })
    }

    /// The place of a stretch of a state: where the state is kept, or where its piece is worked on.
    fn worked_on(&self, kept: Kept, unit: usize, stretch: &UpdatedStretch, piece: Option<Piece>) -> Option<Place> {
        let places = self.arena.places();
        let Some(piece) = piece else {
            return places.kept(kept, unit).map(|(_, place)| self.cut(place, stretch));
        };
        let whole = places.worked_on(kept, unit, piece)?;
        let start = stretch.start - places.piece(unit, piece.index).start;
        Some(elements(whole, self.arena.width(whole), Stretch { start, len: stretch.len() }))
    }

    /// The place of the sums of a stretch.
    fn summed(&self, unit: usize, stretch: &UpdatedStretch, piece: Option<Piece>) -> Place {
        let in_pieces = self.worked_on(Kept::Sums, unit, stretch, piece);
        in_pieces.unwrap_or_else(|| self.cut(self.arena.places().sums(unit), stretch))
    }

    /// The place of a stretch of a moment.
    fn moment(&self, state: State, unit: usize, stretch: &UpdatedStretch, piece: Option<Piece>) -> Place {
        self.worked_on(Kept::State(state), unit, stretch, piece).expect("moments of what is updated")
    }

    /// The parameters of a stretch of a unit, to update.
    fn weights(&self, unit: usize, stretch: &UpdatedStretch, piece: Option<Piece>) -> Weights<'_, D> {
        // SAFETY: stretches of different regions. All ranks have agreed, and they agree only after their last use of
        // the parameters, so nobody reads the bytes that are written here.
        let state = |place: Place| -> StoredMut<_> { unsafe { self.arena.stored_mut(place) } };
        let master = self.worked_on(Kept::State(State::Master), unit, stretch, piece).map(state);
        // Below stage 3, the state is all that the rank stores, and more than it updates.
        let params = match piece {
            Some(_) => self.worked_on(Kept::State(State::Parameters), unit, stretch, piece),
            None => Some(self.cut(self.arena.places().updated(unit), stretch)),
        };
        Weights { params: state(params.expect("parameters of what is updated")), master }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_op_updates_what_lies_side_by_side() {
        let stretch = |start, len, decays| {
            let runs = vec![DecayRun { len, decays }];
            UpdatedStretch { start, runs, of_matrix: None }
        };
        let mut joined = stretch(3, 4, true);
        assert!(
            joined.join(&stretch(7, 2, true))
                && joined.join(&stretch(9, 1, false))
                && joined.join(&stretch(10, 5, true))
        );
        let runs: Vec<_> = joined.runs.iter().map(|run| (run.len, run.decays)).collect();
        assert_eq!((joined.start, joined.len(), runs), (3, 12, vec![(6, true), (1, false), (5, true)]));
        // Neither a stretch that lies elsewhere, nor more runs than an op accepts.
        assert!(!joined.join(&stretch(16, 1, false)) && joined.len() == 12);
        while joined.runs.len() < DecayRun::MOST {
            let run = joined.runs[joined.runs.len() - 1];
            assert!(joined.join(&stretch(joined.start + joined.len(), 1, !run.decays)));
        }
        let (end, last) = (joined.start + joined.len(), joined.runs[DecayRun::MOST - 1]);
        assert!(!joined.join(&stretch(end, 1, !last.decays)) && joined.join(&stretch(end, 1, last.decays)));
        let matrix =
            UpdatedStretch { of_matrix: Some(HiddenMatrix { start: 0, rows: 1, columns: 1 }), ..stretch(0, 1, true) };
        assert!(
            !matrix.clone().join(&stretch(1, 1, true))
                && !stretch(0, 1, true).join(&UpdatedStretch { start: 1, ..matrix })
        );
    }

    /// At the third step, by the formulas of the paper.
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
