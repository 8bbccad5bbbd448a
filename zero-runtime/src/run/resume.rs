//! Resume: where a run continues: at a checkpoint that all ranks have verified, or at the beginning. Never writes a file.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use super::arguments::RunArguments;
use super::checkpoint_arguments::Resume;
use super::continuity;
use super::manifest::{arguments, data_fingerprint, plan_info};
use super::output::say;
use super::threads::Threads;
use super::train::{Job, RankEngine};
use crate::error::Error;
use zero_core::device::Device;
use zero_core::lost::Lost;
use zero_files::checkpoint::{Checkpoint, CheckpointError, Store, UNRECORDED, read_manifest};
use zero_files::data::TOKENIZER;
use zero_files::weights::{NamedTensor, Publication};
use zero_ranks::launch;

/// Where a run is asked to continue.
enum ResumedFrom<'a> {
    Beginning,
    Newest(&'a Path),
    From(&'a Path),
}

impl<'a> ResumedFrom<'a> {
    fn of(arguments: &'a RunArguments) -> Self {
        let checkpoints = &arguments.checkpoints;
        match (&checkpoints.resume, checkpoints.checkpoint.as_deref()) {
            // A restart continues from the newest checkpoint, whatever its arguments say.
            (_, Some(folder)) if launch::is_restart() => ResumedFrom::Newest(folder),
            (Some(Resume::Newest), Some(folder)) => ResumedFrom::Newest(folder),
            (Some(Resume::From(path)), _) => ResumedFrom::From(path),
            _ => ResumedFrom::Beginning,
        }
    }
}

/// The checkpoints that a run may be asked to resume from, the newest first.
fn resumed(arguments: &RunArguments) -> Vec<PathBuf> {
    match ResumedFrom::of(arguments) {
        ResumedFrom::Beginning => Vec::new(),
        ResumedFrom::From(path) => vec![path.to_owned()],
        ResumedFrom::Newest(folder) => {
            Store::checkpoints(folder).unwrap_or_default().into_iter().map(|found| found.path).collect()
        }
    }
}

/// The fingerprint of the data of the checkpoint that a run is asked to resume from, if there is one that can be read.
pub fn resumed_data(arguments: &RunArguments) -> Option<String> {
    Some(read_manifest(resumed(arguments).first()?).ok()?.data.fingerprint)
}

/// The tokenizer of the newest of these checkpoints whose files beside tensors are whole, if it has one.
pub fn resumed_tokenizer(arguments: &RunArguments) -> Option<PathBuf> {
    let is_whole = |path: &&PathBuf| Checkpoint::open(path).is_ok_and(|it| it.publication().is_ok());
    let path = resumed(arguments).iter().find(is_whole)?.join(TOKENIZER);
    path.exists().then_some(path)
}

/// Locks the folder of `--checkpoint` for this run, on rank 0. If there are checkpoints in it, the run must continue from
/// the newest.
///
/// # Errors
/// Z0380 if the folder cannot be used, Z0381 if another run uses it, Z0382 if it has other checkpoints.
pub fn take_folder<D: Device>(job: &Job<D>) -> Result<Option<Store>, CheckpointError> {
    let Some(folder) = job.arguments.checkpoints.checkpoint.as_deref() else { return Ok(None) };
    let store = Store::open(folder)?;
    match ResumedFrom::of(job.arguments) {
        ResumedFrom::Newest(_) => {}
        ResumedFrom::Beginning => store.require_new()?,
        ResumedFrom::From(path) => {
            let newest = Store::checkpoints(folder)?.into_iter().next();
            let is_same = |one: &Path| one.canonicalize().ok() == path.canonicalize().ok();
            if newest.is_some_and(|newest| !is_same(&newest.path)) {
                store.require_new()?;
            }
        }
    }
    Ok(Some(store))
}

/// A checkpoint that this rank would continue from, and the model's tensors in it.
type OpenedCheckpoint = (Checkpoint, Vec<(NamedTensor, usize)>);

/// Fills an engine with its states: those of a checkpoint, if the run continues from one, and the initial ones otherwise.
/// Returns the number of steps that were done, and how the model is published. Every rank must call it.
///
/// # Errors
/// The fault of the checkpoint, on the ranks that find it; on the others, the end of one of these ranks.
pub fn resume<D: Device>(engine: &mut RankEngine<D>, job: &Job<D>) -> Result<(u64, Arc<Publication>), Error> {
    let began = Instant::now();
    let opened = match ResumedFrom::of(job.arguments) {
        ResumedFrom::Beginning => None,
        ResumedFrom::From(path) => {
            let own = open(engine, job, path);
            Some(agreed(engine, own)?)
        }
        ResumedFrom::Newest(folder) => newest(engine, job, folder)?,
    };
    let Some((checkpoint, tensors)) = opened else {
        let threads = Threads::new(job.arguments.threads, engine.plan()).per_rank;
        job.weights.fill(engine, job.arguments.seed, threads)?;
        return Ok((0, Arc::clone(&job.weights.publication)));
    };
    let step = checkpoint.manifest.step;
    if step > job.arguments.steps {
        let what = format!("--steps {}, but `{}` is at step {step}", job.arguments.steps, checkpoint.path.display());
        let help = "raise --steps: it counts from the beginning".to_owned();
        return Err(Error::OfAll(Box::new(Error::Argument { what, help })));
    }
    checkpoint.load(&tensors, engine)?;
    let recorded = checkpoint.publication_of(&tensors)?;
    let publication = recorded.map(|it| job.weights.continued(it, engine.plan().config.length)).transpose()?;
    if engine.arena().rank() == 0 {
        say(&format!("resumed: {step} steps are done, by `{}`\n", checkpoint.path.display()));
        say(&format!("  verified and read in {:.3} s\n", began.elapsed().as_secs_f64()));
        let told =
            continuity::told(&checkpoint.manifest, &arguments(job), &plan_info(job.program.plan), &D::feature_names());
        told.iter().for_each(|line| say(&format!("  {line}\n")));
        if publication.is_none() {
            say(&format!("  {UNRECORDED}, unless this run's arguments name them\n"));
        }
        say("\n");
    }
    Ok((step, publication.map_or_else(|| Arc::clone(&job.weights.publication), Arc::new)))
}

/// The newest checkpoint in a folder that all ranks find whole; none if there is no checkpoint.
fn newest<D: Device>(
    engine: &mut RankEngine<D>,
    job: &Job<D>,
    folder: &Path,
) -> Result<Option<OpenedCheckpoint>, Error> {
    // All ranks use what rank 0 sees, because a folder may look different from another host.
    let mut candidates = match engine.arena().rank() {
        0 => Store::checkpoints(folder)?.into_iter(),
        _ => Vec::new().into_iter(),
    };
    loop {
        let step = candidates.next().map(|found| found.step as f64);
        let of_first = engine.gather_numbers(&[step.unwrap_or(-1.0), candidates.len() as f64])?;
        let (step, older) = (of_first[0], of_first[1]);
        if step < 0.0 {
            if engine.arena().rank() == 0 {
                say(&format!("no checkpoint in `{}` yet: the run begins\n\n", folder.display()));
            }
            return Ok(None);
        }
        let own = open(engine, job, &Store::whole(folder, step as u64));
        let is_damaged = own.as_ref().is_err_and(CheckpointError::is_damage);
        let flags = engine.gather_numbers(&[f64::from(own.is_err()), f64::from(is_damaged)])?;
        let failed = flags.chunks_exact(2).position(|flags| flags[0] > 0.0);
        let count = flags.chunks_exact(2).filter(|flags| flags[0] > 0.0).count();
        let may_pass = flags.chunks_exact(2).all(|flags| flags[0] == flags[1]);
        match (own, failed) {
            (own, None) => return Ok(own.ok()),
            (own, Some(first)) if may_pass && older > 0.0 => {
                if let Some(error) = own.err().filter(|_| engine.arena().rank() == first) {
                    let next = "  = note: it is skipped, and the next older one is tried";
                    launch::print(&format!("{}\n{next}", error.report()));
                }
            }
            (own, Some(first)) => return Err(failed_on(engine, own, first, count)),
        }
    }
}

/// The error of a call that failed on `count` ranks: one of them reports it.
fn failed_on<D: Device>(
    engine: &RankEngine<D>,
    own: Result<OpenedCheckpoint, CheckpointError>,
    first: usize,
    count: usize,
) -> Error {
    match own {
        Err(error) if count == engine.plan().config.mesh.ranks() => Error::OfAll(Box::new(error.into())),
        Err(error) if engine.arena().rank() == first => error.into(),
        _ => Lost::Ended { rank: first }.into(),
    }
}

/// The checkpoint, if all ranks could open it, and otherwise the error of this rank.
fn agreed<D: Device>(
    engine: &mut RankEngine<D>,
    own: Result<OpenedCheckpoint, CheckpointError>,
) -> Result<OpenedCheckpoint, Error> {
    let flags = engine.gather_numbers(&[f64::from(own.is_err())])?;
    let (first, count) = (flags.iter().position(|&failed| failed > 0.0), flags.iter().sum::<f64>() as usize);
    match (own, first) {
        (Ok(opened), None) => Ok(opened),
        (own, first) => Err(failed_on(engine, own, first.unwrap_or(0), count)),
    }
}

/// Opens a checkpoint, compares it with the model and the run, and verifies this rank's part of it.
fn open<D: Device>(engine: &RankEngine<D>, job: &Job<D>, path: &Path) -> Result<OpenedCheckpoint, CheckpointError> {
    let checkpoint = Checkpoint::open(path)?;
    let tensors = checkpoint.require_model(job.program)?;
    continuity::require(&checkpoint, &arguments(job), job.program.plan.config.optimizer, &data_fingerprint(job))?;
    let chunks: Vec<_> = checkpoint.chunks_for(&tensors, engine)?.into_iter().collect();
    let threads = Threads::new(job.arguments.threads, engine.plan()).per_rank.get();
    checkpoint.verify(&chunks, threads, &|_| {})?;
    Ok((checkpoint, tensors))
}
