//! Weights: the published weights that a run starts from, and those that it exports. Never reads or writes a tensor.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::arguments::RunArguments;
use super::output::say;
use super::train::RankEngine;
use crate::error::Error;
use zero_core::device::Device;
use zero_core::model::Program;
use zero_files::checkpoint::InitialCheckpoint;
use zero_files::data::Tokenizer;
use zero_files::weights::{Export, Import, Publication, WeightsError, model_tensors};

/// Published files that are not counted.
const SMALL_BYTES: usize = 64 << 10;

/// The folders that `--init` and `--export` name.
#[derive(Debug, Default)]
pub struct WeightFolders {
    origin: FirstWeights,
    export: Option<Export>,
    /// How the model is published, unless the run continues from a checkpoint that says it.
    pub publication: Arc<Publication>,
    /// The run's tokenizer.
    tokenizer: Option<PathBuf>,
}

/// The source of the first parameters.
#[derive(Debug, Default)]
enum FirstWeights {
    /// Drawn.
    #[default]
    Seed,
    /// Those of a published model.
    Published(Import),
    /// Those of a checkpoint, which has more than these.
    Checkpoint(Box<InitialCheckpoint>),
}

impl WeightFolders {
    /// Opens the folder of `--init`, and checks whether that of `--export` can be made, before anything is trained. The
    /// run's `tokenizer`, if it has one, is published with the model.
    ///
    /// # Errors
    /// Z0360 to Z0368; those of [`InitialCheckpoint::open`] for a checkpoint.
    pub fn open<D>(
        program: &Program<D>,
        arguments: &RunArguments,
        tokenizer: Option<&Tokenizer>,
    ) -> Result<Self, Error> {
        let origin = match arguments.init.as_deref() {
            None => FirstWeights::Seed,
            Some(path) if InitialCheckpoint::is_one(path) => {
                FirstWeights::Checkpoint(Box::new(InitialCheckpoint::open(program, path)?))
            }
            Some(path) => FirstWeights::Published(Import::open(program, path)?),
        };
        let length = program.plan.config.length;
        let own = || {
            let end = tokenizer.and_then(Tokenizer::end_of_text).map(|(_, id)| id);
            Publication::own(model_tensors(program).into_iter(), (program.config)(), length, end)
        };
        let publication = match &origin {
            FirstWeights::Seed => own(),
            FirstWeights::Published(import) => Publication::of_import(import)?,
            FirstWeights::Checkpoint(initial) => {
                initial.checkpoint.publication_of(&initial.tensors)?.unwrap_or_else(own)
            }
        };
        let tokenizer = tokenizer.map(|tokenizer| tokenizer.path().to_owned());
        let mut weights = Self { origin, export: None, publication: Arc::default(), tokenizer };
        let publication = weights.continued(publication, length)?;
        let new = |path| Export::new(path, &publication, arguments.export_dtype);
        weights.export = arguments.export.as_deref().map(new).transpose()?;
        weights.publication = Arc::new(publication);
        Ok(weights)
    }

    /// A publication with the run's tokenizer, for its sequences.
    ///
    /// # Errors
    /// Z0360 if the tokenizer cannot be read any more.
    pub fn continued(&self, publication: Publication, length: usize) -> Result<Publication, WeightsError> {
        let publication = publication.for_length(length);
        match &self.tokenizer {
            Some(path) => publication.with_tokenizer(path),
            None => Ok(publication),
        }
    }

    /// A hash, on which ranks must agree, of everything that is imported except its numbers.
    pub fn fingerprint(&self) -> Option<u64> {
        match &self.origin {
            FirstWeights::Seed => None,
            FirstWeights::Published(import) => Some(import.folder.fingerprint),
            FirstWeights::Checkpoint(initial) => Some(initial.fingerprint()),
        }
    }

    /// Bytes that it holds in memory beyond a few KiB: the files of a tokenizer, which a checkpoint may have again.
    pub fn resident_bytes(&self) -> usize {
        (2 * self.publication.bytes()).saturating_sub(SMALL_BYTES)
    }

    /// Fills an engine with the parameters that a run starts from; `threads` threads draw those that are random.
    ///
    /// # Errors
    /// Z0360 or Z0385 if a file cannot be read any more, Z0387 if it was changed.
    pub fn fill<D: Device>(&self, engine: &mut RankEngine<D>, seed: u64, threads: NonZeroUsize) -> Result<(), Error> {
        match &self.origin {
            FirstWeights::Seed => engine.initialize_by(seed, threads),
            FirstWeights::Published(import) => import.load(engine)?,
            FirstWeights::Checkpoint(initial) => initial.load(engine)?,
        }
        Ok(())
    }

    /// Prints what a run starts from. A run that trains does not print that it starts untrained.
    pub fn introduce(&self, arguments: &RunArguments) {
        let (tensors, path, notes) = match &self.origin {
            FirstWeights::Seed => {
                if arguments.steps == 0 && arguments.checkpoints.resume.is_none() {
                    say(&format!("weights: untrained, drawn by seed {}; `--init` names others\n\n", arguments.seed));
                }
                return;
            }
            FirstWeights::Published(import) => (import.tensors.len(), &import.folder.path, import.notes.clone()),
            FirstWeights::Checkpoint(initial) => (initial.tensors.len(), &initial.checkpoint.path, initial.notes()),
        };
        let notes: String = notes.iter().map(|note| format!("  {note}\n")).collect();
        say(&format!("weights: {tensors} tensors of {}\n{notes}\n", path.display()));
    }

    /// The bytes that an export takes on the disk of what lies at `path`.
    pub fn export_bytes_on_disk_of(&self, path: &Path) -> u64 {
        self.export.as_ref().map_or(0, |export| export.bytes_on_disk_of(path))
    }

    /// Tries whether the trained weights can be exported, if that is asked for.
    ///
    /// # Errors
    /// Z0368.
    pub fn try_export(&self) -> Result<(), Error> {
        Ok(self.export.as_ref().map_or(Ok(()), Export::try_out)?)
    }

    /// Exports the trained weights, if that is asked for, as they are published. Every rank must call it. `checkpoint` has them too, if
    /// there is one.
    ///
    /// # Errors
    /// Z0368, or that another rank has ended.
    pub fn export<D: Device>(
        &self,
        engine: &mut RankEngine<D>,
        publication: &Publication,
        checkpoint: Option<&Path>,
    ) -> Result<(), Error> {
        let Some(export) = &self.export else { return Ok(()) };
        if checkpoint.is_none() {
            // What is in a checkpoint was looked at.
            engine.require_finite()?;
        }
        export.write(engine, publication, checkpoint)?;
        if engine.arena().rank() == 0 {
            say(&format!("weights: exported to {}\n", export.path().display()));
        }
        Ok(())
    }
}
