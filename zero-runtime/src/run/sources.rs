//! Sources: whether data is still what it was when the run began. If it is not, the run ends, after a checkpoint. Never reads a
//! sequence.

use super::output::Output;
use super::saving::Saving;
use super::train::{Job, RankEngine};
use crate::error::Error;
use zero_core::device::Device;
use zero_core::lost::Lost;
use zero_engine::RunError;

/// The steps in which a run draws as many tokens as its data has; none if the data does not say how many it has.
pub fn epoch_steps<D: Device>(job: &Job<D>) -> Option<u64> {
    let tokens = job.data.contents()?.tokens;
    Some(tokens.div_ceil(job.program.plan.config.tokens_per_step()).max(1) as u64)
}

/// Compares the data of all ranks with what it was. Every rank must call it. If it has changed, the last step that was done is
/// saved, and the first rank that found it reports the change.
///
/// # Errors
/// The change; on other ranks, the end of that rank.
pub fn require_unchanged<'scope, 'p: 'scope, D: Device>(
    engine: &mut RankEngine<'p, D>,
    job: &Job<D>,
    saving: Option<&mut Saving<'scope, '_>>,
    output: Option<&mut Output>,
) -> Result<(), Error> {
    let own = job.data.require_unchanged();
    let all = engine.gather_numbers(&[f64::from(own.is_err())])?;
    let Some(first) = all.iter().position(|&changed| changed > 0.0) else { return Ok(()) };
    saving.map_or(Ok(()), |saving| saving.save_last(engine, output))?;
    match own {
        Err(changed) if engine.arena().rank() == first => Err(changed.into()),
        _ => Err(Lost::Ended { rank: first }.into()),
    }
}

/// The result of a step or an evaluation. If it could not be done because data has changed, that is the error.
///
/// # Errors
/// Those of the result and of [`require_unchanged`].
pub fn explained<'scope, 'p: 'scope, D: Device, T>(
    result: Result<T, Error>,
    engine: &mut RankEngine<'p, D>,
    job: &Job<D>,
    saving: Option<&mut Saving<'scope, '_>>,
    output: Option<&mut Output>,
) -> Result<T, Error> {
    // A sequence that could not be read is such that all ranks agree on one of these errors.
    if let Err(Error::Run(RunError::OutOfRange(_) | RunError::NonFinite(_))) = result {
        require_unchanged(engine, job, saving, output)?;
    }
    result
}
