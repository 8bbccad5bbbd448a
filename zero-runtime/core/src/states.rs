//! States: a rank's part of a model's parameters and of the optimizer's states, as files read and fill it. Never knows
//! where the numbers lie.

use zero_plan::Plan;
use zero_plan::place::{State, Stretch};

use crate::lost::Lost;

/// The most elements that are read or written at a time when parameters come from a file or go to one: 1 MiB of f32.
pub const PIECE_ELEMENTS: usize = 256 << 10;

/// A stretch of a state that one rank writes to a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Saved {
    /// The state of its parameters.
    pub state: State,
    /// The unit.
    pub unit: usize,
    /// The elements of its flat buffer, without padding.
    pub stretch: Stretch,
}

/// A rank's part of a model. The engine has it.
pub trait RankStates {
    /// The plan of the run.
    fn plan(&self) -> &Plan<'_>;

    /// The number of the rank.
    fn rank(&self) -> usize;

    /// The stretches that this rank writes to a checkpoint: all ranks together write every element of every state once.
    fn saved(&self) -> Vec<Saved>;

    /// The stretch of a unit's flat buffer that this rank stores of a state, without padding; none if it stores none.
    fn stored(&self, state: State, unit: usize) -> Option<Stretch>;

    /// The numbers that this rank stores of a state of a unit, in pieces and in order: `each(start, numbers)`, where
    /// `start` counts in the unit's flat buffer. Returns the whole stretch, padding included; none if it stores none.
    fn read_state(&self, state: State, unit: usize, each: impl FnMut(usize, &[f32])) -> Option<Stretch>;

    /// Sets the parameters of the next unit that has none yet. `source(start, values)` fills `values` with those of the
    /// unit's flat buffer from `start` on; it is called only for elements that this rank stores, once each and in order.
    ///
    /// # Errors
    /// The error of `source`.
    fn load_pieces<E>(&mut self, unit: usize, source: impl FnMut(usize, &mut [f32]) -> Result<(), E>) -> Result<(), E>;

    /// Sets the part of a unit's state that this rank stores, in the same way, after all parameters.
    ///
    /// # Errors
    /// The error of `source`.
    fn set_state<E>(
        &mut self,
        state: State,
        unit: usize,
        source: impl FnMut(usize, &mut [f32]) -> Result<(), E>,
    ) -> Result<(), E>;

    /// Continues as if `steps` steps had been done.
    fn set_steps_done(&mut self, steps: u64);

    /// Gathers equally many numbers of each rank, in the order of ranks. Every rank must call it.
    ///
    /// # Errors
    /// [`Lost`] if another rank has ended.
    fn gather_numbers(&mut self, mine: &[f64]) -> Result<&[f64], Lost>;
}
