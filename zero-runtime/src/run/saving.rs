//! Saving: decides when a checkpoint of a run is due, and writes it on all ranks together, while the run continues if the plan
//! has room for a copy. Never reads one.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::{Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

use super::checkpoint_arguments::{CheckpointArguments, Every};
use super::manifest::{after, manifest};
use super::output::{Output, SaveLine, StepLine, say};
use super::train::{Job, RankEngine};
use super::weights::WeightFolders;
use crate::error::Error;
use zero_core::device::Device;
use zero_core::lost::Lost;
use zero_core::watchdog::Watchdog;
use zero_engine::RunError;
use zero_files::checkpoint::{
    CheckpointError, Manifest, Shard, ShardWriter, Store, System, TensorInfo, entries, tensors_of,
};
use zero_files::weights::Publication;
use zero_plan::Plan;
use zero_ranks::launch;

/// Words that each rank sends to the others after each step: whether it was asked to end, whether it is time for a
/// checkpoint, which counts only on rank 0, and whether it has written what it was writing.
const WORDS: usize = 3;

type SaveResult = Result<(), CheckpointError>;

/// The checkpoints of a run, as one rank writes them.
pub struct Saving<'scope, 'env> {
    scope: &'scope Scope<'scope, 'env>,
    arguments: &'env CheckpointArguments,
    folder: &'env Path,
    /// Only rank 0 has it.
    store: Option<Arc<Store>>,
    shard: Arc<Shard>,
    /// The part that all manifests of this run share. Only rank 0 has it.
    manifest: Option<Manifest>,
    publication: Arc<Publication>,
    /// Bytes of all states, which all files together hold.
    bytes: u64,
    writing: Option<Writing<'scope>>,
    /// The last step that was done.
    done: Option<StepLine>,
    /// The step whose checkpoint was begun last.
    begun: u64,
    /// When the last checkpoint was begun.
    last: Instant,
    /// Whether the last checkpoint that was due could not be written.
    failed: bool,
}

/// A checkpoint that is being written.
struct Writing<'scope> {
    step: StepLine,
    phase: SavingPhase,
    /// This rank's own work for it.
    own: Own<'scope>,
    began: Instant,
    /// How long training has waited for it so far.
    waited: Duration,
}

/// The progress of a checkpoint.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SavingPhase {
    /// Each rank writes its file.
    Files,
    /// All files are there, and rank 0 gives the checkpoint its name.
    Name,
}

enum Own<'scope> {
    Done(SaveResult),
    /// A thread, and a channel that closes when the thread has ended.
    Underway(ScopedJoinHandle<'scope, SaveResult>, Receiver<()>),
}

impl Own<'_> {
    fn has_ended(&self) -> bool {
        match self {
            Own::Done(_) => true,
            Own::Underway(thread, _) => thread.is_finished(),
        }
    }

    /// Waits until the work has ended. A slow disk is reported, and waited for as long as all ranks live.
    fn end(self, watchdog: &dyn Watchdog, step: u64) -> Result<SaveResult, Lost> {
        match self {
            Own::Done(written) => Ok(written),
            Own::Underway(thread, ended) => {
                let work = format!("the disk, which writes the checkpoint of step {step}");
                let has_ended = |patience| matches!(ended.recv_timeout(patience), Err(RecvTimeoutError::Disconnected));
                watchdog.wait_for(&work, None, &mut { has_ended })?;
                Ok(thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            }
        }
    }
}

impl<'scope, 'env> Saving<'scope, 'env> {
    /// The checkpoints of `--checkpoint`, if it is given. Rank 0 has a `store`.
    pub fn new<'p: 'scope, D: Device>(
        scope: &'scope Scope<'scope, 'env>,
        job: &'env Job<'_, D>,
        engine: &mut RankEngine<'p, D>,
        store: Option<Store>,
        publication: &Arc<Publication>,
    ) -> Option<Self> {
        let arguments = &job.arguments.checkpoints;
        let folder = arguments.checkpoint.as_deref()?;
        let tensors: Vec<TensorInfo> = tensors_of(job.program);
        // Touches the place of the copy now, while training does not wait for it, because the first time takes longer
        // than a copy.
        drop(engine.snapshot());
        let rank = engine.arena().rank();
        let shard = Arc::new(Shard::new(rank, &tensors, entries(engine, &tensors)));
        let plan = engine.plan();
        let bytes = (plan.params() * plan.config.precision.state_bytes()) as u64;
        let manifest = (rank == 0).then(|| manifest(job, tensors, publication));
        let (store, last, writing, failed) = (store.map(Arc::new), Instant::now(), None, false);
        let publication = Arc::clone(publication);
        let (done, begun) = (None, 0);
        Some(Self {
            scope,
            arguments,
            folder,
            store,
            shard,
            manifest,
            publication,
            bytes,
            writing,
            done,
            begun,
            last,
            failed,
        })
    }

    /// Advances the checkpoint that is being written, if all ranks have done their part, and begins the one that is
    /// due, if one is. Every rank calls it after every step. Returns whether some rank was asked to end: then the
    /// checkpoint of this step has been written, or could not be.
    ///
    /// # Errors
    /// The error of the checkpoint with `--checkpoint-or-stop`; otherwise only that another rank has ended.
    pub fn after_step<'p: 'scope, D: Device>(
        &mut self,
        engine: &mut RankEngine<'p, D>,
        step: &StepLine,
        is_last: bool,
        output: Option<&mut Output>,
    ) -> Result<bool, Error> {
        let mut output = output;
        self.done = Some(*step);
        let is_time = matches!(self.arguments.every, Some(Every::Time(time)) if self.last.elapsed() >= time);
        let ended = self.writing.as_ref().is_some_and(|writing| writing.own.has_ended());
        let mine = [launch::asked_to_end().is_some(), is_time, ended].map(f64::from);
        let all = engine.gather_numbers(&mine)?;
        let says = |rank: usize, word: usize| all[rank * WORDS + word] > 0.0;
        let mut ranks = 0..all.len() / WORDS;
        let asked = ranks.clone().any(|rank| says(rank, 0));
        let (is_time, ended) = (says(0, 1), ranks.all(|rank| says(rank, 2)));
        if ended {
            self.advance(engine, output.as_deref_mut())?;
        }
        let is_step =
            matches!(self.arguments.every, Some(Every::Steps(every)) if step.step.is_multiple_of(every.get()));
        if asked || is_last || is_step || is_time {
            if let Some(writing) = self.writing.as_ref().filter(|_| self.store.is_some()) {
                say(&format!("checkpoint of step {} waits for that of step {}\n", step.step, writing.step.step));
            }
            self.end(engine, output.as_deref_mut())?;
            // What is saved would otherwise be called whole, and an older checkpoint might go for it.
            engine.require_finite()?;
            self.begin(engine, step)?;
            if asked || is_last || !engine.plan().config.snapshot {
                self.end(engine, output)?;
            }
        }
        Ok(asked)
    }

    /// Whether the checkpoint of a step was begun, and could be.
    pub fn has_begun(&self, step: u64) -> bool {
        self.begun == step && !self.failed
    }

    /// Writes a checkpoint of the last step that was done, unless there is one, or its parameters are not finite. Every rank calls it
    /// when a run ends with an error that leaves states as they were after that step.
    ///
    /// # Errors
    /// Those of [`Saving::after_step`].
    pub fn save_last<'p: 'scope, D: Device>(
        &mut self,
        engine: &mut RankEngine<'p, D>,
        mut output: Option<&mut Output>,
    ) -> Result<(), Error> {
        self.end(engine, output.as_deref_mut())?;
        let Some(step) = self.done.filter(|step| !self.has_begun(step.step)) else { return Ok(()) };
        match engine.require_finite() {
            Err(RunError::Lost(lost)) => return Err(lost.into()),
            Err(_) => return Ok(()),
            Ok(()) => self.begin(engine, &step)?,
        }
        self.end(engine, output)
    }

    /// Waits until the checkpoint that is being written, if there is one, is complete.
    fn end<D: Device>(&mut self, engine: &mut RankEngine<D>, mut output: Option<&mut Output>) -> Result<(), Error> {
        while self.writing.is_some() {
            self.advance(engine, output.as_deref_mut())?;
        }
        Ok(())
    }

    /// Refuses a disk that has no room for the first checkpoint, and for an export if that goes to the same disk.
    ///
    /// # Errors
    /// Z0391, on rank 0.
    pub fn require_room(&self, weights: &WeightFolders) -> Result<(), CheckpointError> {
        let bytes = self.bytes.saturating_add(weights.export_bytes_on_disk_of(self.folder));
        self.store.as_ref().map_or(Ok(()), |store| store.require_room(bytes))
    }

    /// The path of the checkpoint of a step.
    pub fn checkpoint_of(&self, step: u64) -> PathBuf {
        Store::whole(self.folder, step)
    }

    /// Whether the last checkpoint that was due could not be written.
    pub fn has_failed(&self) -> bool {
        self.failed
    }

    /// Begins to write: in a thread of its own, if there is room for a copy, and otherwise here.
    fn begin<'p: 'scope, D: Device>(&mut self, engine: &mut RankEngine<'p, D>, step: &StepLine) -> Result<(), Error> {
        let began = Instant::now();
        self.last = began;
        engine.finish_step()?;
        let number = step.step;
        self.begun = number;
        let made = self
            .store
            .as_ref()
            .map_or(Ok(()), |store| store.begin(&System, number, self.bytes + self.publication.bytes() as u64));
        if !self.agree(engine, made)? {
            return Ok(());
        }
        let (partial, shard) = (Store::partial(self.folder, number), Arc::clone(&self.shard));
        let own = match engine.snapshot() {
            Some(snapshot) => self.beside(move || {
                let mut writer = ShardWriter::begin(&System, &partial, &shard, number)?;
                snapshot.read(|bytes| writer.write(bytes))?;
                writer.finish()
            }),
            None => {
                let writer = ShardWriter::begin(&System, &partial, &shard, number);
                Own::Done(writer.map(ShardWriter::awaited).and_then(|mut writer| {
                    engine.read_saved(|bytes| writer.write(bytes))?;
                    writer.finish()
                }))
            }
        };
        self.writing = Some(Writing { step: *step, phase: SavingPhase::Files, own, began, waited: began.elapsed() });
        Ok(())
    }

    /// Moves the checkpoint that is being written to its next phase, after all ranks have completed this one.
    fn advance<D: Device>(&mut self, engine: &mut RankEngine<D>, output: Option<&mut Output>) -> Result<(), Error> {
        let Some(Writing { step, phase, own, began, waited }) = self.writing.take() else { return Ok(()) };
        let waits = Instant::now();
        let written = own.end(&*engine.watchdog(), step.step)?;
        let is_there = self.agree(engine, written)?;
        match (phase, output) {
            (SavingPhase::Files, _) if is_there => {
                let own = self.name(engine.plan(), &step);
                self.writing =
                    Some(Writing { step, phase: SavingPhase::Name, own, began, waited: waited + waits.elapsed() });
            }
            (SavingPhase::Name, Some(output)) if is_there => {
                let (took_s, waited_s) = (began.elapsed().as_secs_f64(), (waited + waits.elapsed()).as_secs_f64());
                output.saved(&SaveLine { step: step.step, bytes: self.bytes, took_s, waited_s });
            }
            _ if is_there => {}
            _ => self.store.iter().for_each(|store| store.abandon(&System, step.step)),
        }
        Ok(())
    }

    /// Gives the checkpoint of a step its name, on rank 0, in a thread of its own.
    fn name(&self, plan: &Plan, step: &StepLine) -> Own<'scope> {
        let (Some(store), Some(manifest)) = (&self.store, &self.manifest) else { return Own::Done(Ok(())) };
        let (store, manifest, number) = (Arc::clone(store), after(manifest, step), step.step);
        let (ranks, keep) = (plan.config.mesh.ranks(), self.arguments.keep);
        let publication = Arc::clone(&self.publication);
        self.beside(move || match store.publish(&System, number, manifest, &publication.files, ranks, keep) {
            // The checkpoint is there, but an older one could not be removed.
            Err(error @ CheckpointError::NotRemoved { .. }) => {
                launch::print(&error.report());
                Ok(())
            }
            published => published.map(drop),
        })
    }

    /// Runs `work` in a thread of its own.
    fn beside(&self, work: impl FnOnce() -> SaveResult + Send + 'scope) -> Own<'scope> {
        let (held, ended) = channel();
        let work = move || {
            let _held = held;
            work()
        };
        let thread = std::thread::Builder::new().name("zero-save".to_owned()).spawn_scoped(self.scope, work);
        let refused = CheckpointError::unwritable(self.folder);
        thread.map_or_else(|error| Own::Done(Err(refused(error))), |thread| Own::Underway(thread, ended))
    }

    /// Whether something succeeded on all ranks. Otherwise the first rank on which it failed reports the cause, and the run
    /// continues without this checkpoint, or ends.
    fn agree<D: Device>(&mut self, engine: &mut RankEngine<D>, own: SaveResult) -> Result<bool, Error> {
        let all = engine.gather_numbers(&[f64::from(own.is_err())])?;
        let Some(first) = all.iter().position(|&failed| failed > 0.0) else {
            self.failed = false;
            return Ok(true);
        };
        self.failed = true;
        let stops = self.arguments.checkpoint_or_stop;
        match own {
            Err(error) if engine.arena().rank() == first => {
                if stops {
                    return Err(error.into());
                }
                launch::print(&format!("{}\n  = note: training continues without this checkpoint", error.report()));
            }
            _ if stops => return Err(Lost::Ended { rank: first }.into()),
            _ => {}
        }
        Ok(false)
    }
}
