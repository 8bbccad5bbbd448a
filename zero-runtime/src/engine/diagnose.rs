//! Diagnose: finds where a step that went wrong did so, by doing it again and looking at every result. A step is a pure
//! function of parameters and batch, so the second run goes wrong at the same place; and a run in which nothing goes
//! wrong does not pay for the search.
#![allow(unsafe_code)]

use core::fmt;

use zero_plan::{Op, Pass};

use super::{Engine, InputOf, Walk};
use crate::device::Device;
use crate::model::Model;
use crate::transport::{Lost, Transport};

/// Where a number went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// In the output of a unit.
    Forward,
    /// In the gradients that a unit's backward gave.
    Backward,
    /// In the sum of gradients over ranks and micro-batches, each of which was finite.
    Sum,
    /// Nowhere in a second run of the same step: its batch is not the same each time. Rank and unit mean nothing then.
    Nowhere,
}

/// The first result that is infinite or not a number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NonFinite {
    /// The step, counted from 1.
    pub step: u64,
    /// Whether it was in that step, and not in an evaluation after it.
    pub trained: bool,
    /// The rank; the lowest, where several went wrong.
    pub rank: usize,
    /// The unit.
    pub unit: String,
    /// Where in the step.
    pub phase: Phase,
}

impl std::error::Error for NonFinite {}

impl fmt::Display for NonFinite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { step, trained, rank, unit, phase } = self;
        let when = if *trained { "in step" } else { "on held-out data after step" };
        let what = match phase {
            Phase::Forward => "the output",
            Phase::Backward => "the gradients",
            Phase::Sum => "the summed gradients",
            Phase::Nowhere => {
                return write!(
                    f,
                    "error[Z0401]: the loss or a gradient went infinite or NaN {when} {step}, but not when that was done \
                     again\n  = help: a dataset must give the same sequences for the same draw"
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
pub(super) struct Search(Option<(Phase, usize)>);

impl Search {
    pub(super) fn forward(&mut self, unit: usize, finite: bool) {
        self.note(Phase::Forward, unit, finite);
    }

    pub(super) fn backward(&mut self, unit: usize, finite: bool) {
        self.note(Phase::Backward, unit, finite);
    }

    fn note(&mut self, phase: Phase, unit: usize, finite: bool) {
        if !finite && self.0.is_none() {
            self.0 = Some((phase, unit));
        }
    }
}

impl<'p, M: Model, T: Transport<'p>> Engine<'p, M, T> {
    /// Runs the computations of `pass` again, and agrees with all ranks on what was found first.
    pub(super) fn diagnose(
        &mut self,
        pass: Pass,
        mut batch: impl FnMut(usize, &mut [InputOf<M>], &mut [u32]),
    ) -> Result<NonFinite, Lost> {
        let trained = pass == Pass::Train;
        let stage = self.arena.stage();
        let ops = if trained { stage.step } else { stage.evaluation };
        let mut walk = Walk { finding: Some(Search::default()), ..self.new_walk() };
        for &op in ops.iter().take_while(|&&op| op != Op::Agree) {
            self.execute(op, &mut walk, &mut batch)?;
        }
        let mut search = walk.finding.unwrap_or_default();
        let at = self.arena.coordinates();
        for unit in (0..self.plan.units.len()).filter(|_| trained) {
            if self.plan.placements[unit].stage == at.pipeline {
                let (kind, start, len) = self.arena.reduced(unit, at.zero);
                // SAFETY: every bucket is summed: nobody writes the sums before the next step.
                let finite = self.device.all_finite(unsafe { self.arena.stored(kind, start, len) });
                search.note(Phase::Sum, unit, finite);
            }
        }
        // A sum shows on every rank what came from one, so what a rank found of its own goes first. What goes wrong on one
        // pipeline stage goes on to the next: forward the first unit counts, backward the last.
        const PHASES: [Phase; 4] = [Phase::Forward, Phase::Backward, Phase::Sum, Phase::Nowhere];
        let (phase, unit) = search.0.unwrap_or((Phase::Nowhere, 0));
        let passed = if phase == Phase::Forward { unit } else { self.plan.units.len() - unit };
        let found = [f64::from(phase as u8), passed as f64, unit as f64];
        let all = self.gather_numbers(&found)?.chunks_exact(found.len()).enumerate();
        let first = all.min_by(|(_, a), (_, b)| a[0].total_cmp(&b[0]).then(a[1].total_cmp(&b[1])));
        let (rank, numbers) = first.expect("there is at least this rank");
        let (phase, unit) = (PHASES[numbers[0] as usize], numbers[2] as usize);
        let unit = self.plan.units[unit].to_string();
        let step = self.steps_done + u64::from(trained);
        Ok(NonFinite { step, trained, rank, unit, phase })
    }
}
