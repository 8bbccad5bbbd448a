//! States: the part of each state that an engine stores, as elements of tensors: those that a rank writes, and those
//! that it loads under any plan. Never opens a file.

use core::ops::Range;
use std::collections::BTreeSet;

use super::elements::Elements;
use super::entry::TensorRun;
use super::error::CheckpointError;
use super::manifest::TensorInfo;
use super::open::Checkpoint;
use super::verify::HashedChunk;
use crate::weights::{NamedTensor, model_tensors};
use zero_core::model::Program;
use zero_core::states::RankStates;
use zero_plan::place::State;
use zero_plan::reshard::Wanted;
use zero_plan::{Precision, Width};

/// The tensors of a model except those that are tied, in the order of units and of their flat buffers.
pub fn tensors_of<D>(program: &Program<D>) -> Vec<TensorInfo> {
    let own = model_tensors(program).into_iter().filter(|named| !named.is_alias);
    own.map(|NamedTensor { name, shape, transposed, unit, start, .. }| TensorInfo {
        name,
        shape,
        transposed,
        unit,
        start,
    })
    .collect()
}

/// The width in which the numbers of a state are stored.
const fn width(precision: &Precision, state: State) -> Width {
    match state {
        State::Parameters => precision.params,
        State::Master => precision.master,
        State::FirstMoment | State::SecondMoment => precision.moments,
    }
}

/// The intersection of two ranges, unless it is empty.
fn common(a: &Range<usize>, b: &Range<usize>) -> Option<Range<usize>> {
    let both = a.start.max(b.start)..a.end.min(b.end);
    (!both.is_empty()).then_some(both)
}

/// The runs that a rank writes, in the order of [`RankStates::saved`].
pub fn entries(engine: &impl RankStates, tensors: &[TensorInfo]) -> Vec<TensorRun> {
    let mut entries = Vec::new();
    for saved in engine.saved() {
        let width = width(&engine.plan().config.precision, saved.state);
        for (tensor, info) in tensors.iter().enumerate().filter(|(_, info)| info.unit == saved.unit) {
            let own = info.start..info.start + info.elements();
            if let Some(both) = common(&own, &saved.stretch.elements()) {
                let (start, len) = (both.start - info.start, both.len());
                entries.push(TensorRun { state: saved.state, tensor, start, len, width });
            }
        }
    }
    entries
}

/// The part of a state that a rank stores, as elements of the tensors of a checkpoint.
fn wanted(engine: &impl RankStates, tensors: &[(NamedTensor, usize)], state: State) -> Vec<Wanted> {
    let mut wanted = Vec::new();
    for (named, tensor) in tensors {
        let own = named.start..named.start + named.elements();
        let stored = engine.stored(state, named.unit);
        if let Some(both) = stored.and_then(|stored| common(&own, &stored.elements())) {
            let (start, len) = (both.start - named.start, both.len());
            wanted.push(Wanted { tensor: *tensor, start, len, unit: named.unit, at: both.start });
        }
    }
    wanted
}

/// Loads the parameters of a checkpoint into an engine, in pieces: the part of each unit that its rank stores.
pub(super) fn load_parameters(
    checkpoint: &Checkpoint,
    tensors: &[(NamedTensor, usize)],
    engine: &mut impl RankStates,
    is_verified: bool,
) -> Result<(), CheckpointError> {
    let stored = wanted(engine, tensors, State::Parameters);
    let elements = Elements::new(checkpoint, checkpoint.best_parameters(), stored)?;
    let mut elements = if is_verified { elements.of_verified() } else { elements };
    for unit in 0..engine.plan().units.len() {
        engine.load_pieces(unit, |start, values| elements.read(unit, start, values))?;
    }
    Ok(())
}

/// The optimizer's states.
const MOMENTS: [State; 2] = [State::FirstMoment, State::SecondMoment];

impl Checkpoint {
    /// Loads everything into an engine that it needs to continue from here: the part of each state that its rank stores,
    /// in pieces, and the number of steps that were done. `tensors` come from [`Checkpoint::require_model`]; the chunks of
    /// [`Checkpoint::chunks_for`] must just have been verified.
    ///
    /// # Errors
    /// Z0385 if a file cannot be read, Z0387 if it was changed, Z0389 if files do not have each element once.
    pub fn load(&self, tensors: &[(NamedTensor, usize)], engine: &mut impl RankStates) -> Result<(), CheckpointError> {
        load_parameters(self, tensors, engine, true)?;
        for state in MOMENTS {
            let mut elements = Elements::new(self, state, wanted(engine, tensors, state))?.of_verified();
            for unit in 0..engine.plan().units.len() {
                engine.set_state(state, unit, |start, values| elements.read(unit, start, values))?;
            }
        }
        engine.set_steps_done(self.manifest.step);
        Ok(())
    }

    /// The chunks that a rank must verify, so that all ranks together verify every chunk: those that it loads from, and
    /// its share of those that no rank loads from.
    ///
    /// # Errors
    /// Z0389 if files do not have each element once.
    pub fn chunks_for(
        &self,
        tensors: &[(NamedTensor, usize)],
        engine: &impl RankStates,
    ) -> Result<BTreeSet<HashedChunk>, CheckpointError> {
        let own = [(self.best_parameters(), State::Parameters), (MOMENTS[0], MOMENTS[0]), (MOMENTS[1], MOMENTS[1])];
        let (mut mine, mut read) = (BTreeSet::new(), BTreeSet::new());
        for (from, to) in own {
            mine.extend(Elements::new(self, from, wanted(engine, tensors, to))?.chunks());
            // Every element of a state that is loaded is stored by some rank.
            read.extend(Elements::all(self, from)?.chunks());
        }
        let (rank, ranks) = (engine.rank(), engine.plan().config.mesh.ranks());
        let unread = self.chunks().filter(|chunk| !read.contains(chunk)).enumerate();
        mine.extend(unread.filter(|(number, _)| number % ranks == rank).map(|(_, chunk)| chunk));
        Ok(mine)
    }
}
