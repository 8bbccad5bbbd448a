//! Diagnose: finds where a step went wrong, by running it again and checking every result. A step is a pure function of
//! parameters and batch, so the second run goes wrong at the same place. A run in which nothing goes wrong does not pay
//! for the search.
#![allow(unsafe_code)]

use core::fmt;

use zero_plan::place::{Kept, State};
use zero_plan::{Op, Pass};

use super::batch::{IdMisfit, Ids};
use super::calls::ExchangeReason;
use super::{Engine, Fill, RunError, WalkState};
use zero_core::device::Device;
use zero_core::lost::Lost;
use zero_core::transport::Transport;

/// The place where a number went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultyPhase {
    /// In the output of a unit.
    Forward,
    /// In the gradients that a unit's backward computed.
    Backward,
    /// In the sum of gradients over ranks and micro-batches, each of which was finite.
    Sum,
    /// In the parameters that the update of the step has written.
    Update,
    /// Nowhere in a second run of the same step: its batch differs each time. Rank and unit mean nothing then.
    Nowhere,
}

/// The first result that is infinite or not a number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NonFinite {
    /// The step, counted from 1.
    pub step: u64,
    /// Whether the result occurred in that step; otherwise, in an evaluation after it.
    pub trained: bool,
    /// The rank; the lowest, if several went wrong.
    pub rank: usize,
    /// The unit.
    pub unit: String,
    /// The place in the step.
    pub phase: FaultyPhase,
}

impl std::error::Error for NonFinite {}

impl fmt::Display for NonFinite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { step, trained, rank, unit, phase } = self;
        let when = if *trained { "in step" } else { "on held-out data after step" };
        let what = match phase {
            FaultyPhase::Forward => "the output",
            FaultyPhase::Backward => "the gradients",
            FaultyPhase::Sum => "the summed gradients",
            FaultyPhase::Update => "the parameters",
            FaultyPhase::Nowhere => {
                return write!(
                    f,
                    "error[Z0401]: the loss or a gradient went infinite or NaN {when} {step}, but not when it was run \
                     again\n  = help: a dataset must return the same sequences for the same draw"
                );
            }
        };
        write!(
            f,
            "error[Z0401]: {what} of unit `{unit}` on rank {rank} went infinite or NaN {when} {step}\n  = help: lower \
             --lr, set --clip, or look at the data of that step"
        )
    }
}

/// A search under way: the first finding, if any.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Search(Option<(FaultyPhase, usize)>);

impl Search {
    pub(super) fn forward(&mut self, unit: usize, finite: bool) {
        self.note(FaultyPhase::Forward, unit, finite);
    }

    pub(super) fn backward(&mut self, unit: usize, finite: bool) {
        self.note(FaultyPhase::Backward, unit, finite);
    }

    fn note(&mut self, phase: FaultyPhase, unit: usize, finite: bool) {
        if !finite && self.0.is_none() {
            self.0 = Some((phase, unit));
        }
    }
}

impl<'p, D: Device, T: Transport<'p, D>> Engine<'p, D, T> {
    /// Looks at the parameters that ranks store, as an update may overflow. The next step would notice it; what is saved or
    /// exported after a last step must be looked at. Every rank must call it.
    ///
    /// # Errors
    /// [`RunError`]: the first unit with a parameter that is infinite or not a number, or that another rank has ended.
    pub fn require_finite(&mut self) -> Result<(), RunError> {
        self.finish_step()?;
        self.begin();
        let result = self.look_at_parameters();
        self.end(result)
    }

    fn look_at_parameters(&mut self) -> Result<(), RunError> {
        let is_finite = |state, unit| {
            let mut is_finite = true;
            self.look_at(Kept::State(state), unit, |stored, _| is_finite &= self.ranks.device.all_finite(stored));
            is_finite
        };
        let is_sound = |unit| [State::Master, State::Parameters].into_iter().all(|state| is_finite(state, unit));
        let found = (0..self.plan.units.len()).find(|&unit| !is_sound(unit));
        let (rank, [unit, ..]) = self.first_of([found.map_or(f64::INFINITY, |unit| unit as f64), 0.0, 0.0])?;
        if unit.is_infinite() {
            return Ok(());
        }
        let unit = self.plan.units[unit as usize].to_string();
        Err(NonFinite { step: self.steps_done, trained: true, rank, unit, phase: FaultyPhase::Update }.into())
    }

    /// Runs the computations of `pass` again, and agrees with all ranks on the first fault.
    pub(super) fn diagnose(&mut self, pass: Pass, batch: Fill) -> Result<RunError, Lost> {
        let trained = pass == Pass::Train;
        let pipeline_stage = self.arena.pipeline_stage();
        let ops = if trained { pipeline_stage.step } else { pipeline_stage.evaluation };
        let mut walk = WalkState { finding: Some(Search::default()), ..self.new_walk() };
        self.awaited.begin_pass(self.plan, &self.ranks.device);
        for (index, &op) in ops.iter().enumerate().take_while(|&(_, &op)| op != Op::Agree) {
            self.execute((pass, index), op, &mut walk, batch)?;
        }
        self.end_pass();
        self.end_pass_of_tier()?;
        self.finish()?;
        let mut search = walk.finding.unwrap_or_default();
        let at = self.arena.coordinates();
        for unit in (0..self.plan.units.len()).filter(|_| trained) {
            if self.plan.placements[unit].pipeline_stage == at.pipeline {
                let mut finite = true;
                self.each_sum(unit, |sums| finite &= self.ranks.device.all_finite(sums));
                search.note(FaultyPhase::Sum, unit, finite);
            }
        }
        let step = self.steps_done + u64::from(trained);
        if let Some((rank, misfit)) = self.first_misfit(walk.misfit)? {
            return Ok(self.out_of_range(rank, misfit, step, trained).into());
        }
        // A sum spreads one rank's fault to all ranks, so faults in a rank's own results come first. A fault also
        // spreads to the next pipeline stage: forward, the first unit counts; backward, the last.
        const PHASES: [FaultyPhase; 5] =
            [FaultyPhase::Forward, FaultyPhase::Backward, FaultyPhase::Sum, FaultyPhase::Update, FaultyPhase::Nowhere];
        let (phase, unit) = search.0.unwrap_or((FaultyPhase::Nowhere, 0));
        let passed = if phase == FaultyPhase::Forward { unit } else { self.plan.units.len() - unit };
        let (rank, [phase, _, unit]) = self.first_of([f64::from(phase as u8), passed as f64, unit as f64])?;
        let (phase, unit) = (PHASES[phase as usize], self.plan.units[unit as usize].to_string());
        Ok(NonFinite { step, trained, rank, unit, phase }.into())
    }

    /// The least of all ranks' findings, compared by their first two numbers, and the lowest rank that found it.
    fn first_of(&mut self, found: [f64; 3]) -> Result<(usize, [f64; 3]), Lost> {
        self.exchange(ExchangeReason::Diagnose, &found)?;
        let all = self.exchanged_of(found.len()).as_chunks().0.iter().enumerate();
        let first = all.min_by(|(_, a), (_, b)| a[0].total_cmp(&b[0]).then(a[1].total_cmp(&b[1])));
        let (rank, found) = first.expect("there is at least this rank");
        Ok((rank, *found))
    }

    /// The first id on any rank that is out of range, and the lowest rank that received it.
    fn first_misfit(&mut self, own: Option<IdMisfit>) -> Result<Option<(usize, IdMisfit)>, Lost> {
        let place = own.map_or([f64::INFINITY, 0.0, 0.0], |IdMisfit { ids, micro_batch, element, id }| {
            [(2 * micro_batch + ids as usize) as f64, element as f64, f64::from(id)]
        });
        let (rank, [which, element, id]) = self.first_of(place)?;
        if which.is_infinite() {
            return Ok(None);
        }
        let ids = if which as usize % 2 == Ids::Input as usize { Ids::Input } else { Ids::Target };
        let misfit = IdMisfit { ids, micro_batch: which as usize / 2, element: element as usize, id: id as u32 };
        Ok(Some((rank, misfit)))
    }
}
