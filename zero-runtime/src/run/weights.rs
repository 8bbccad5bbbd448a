//! Weights: the published weights that a run starts from, and those that it leaves behind. Never reads or writes a tensor.

use super::arguments::RunArguments;
use super::output::say;
use crate::engine::Engine;
use crate::error::Error;
use crate::model::{DeviceOf, Model};
use crate::transport::Transport;
use crate::weights::{Export, Import};

/// What `--init` and `--export` name.
#[derive(Debug, Default)]
pub struct Weights {
    /// What parameters are at first.
    pub import: Option<Import>,
    export: Option<Export>,
}

impl Weights {
    /// Opens the one folder, and finds out whether the other can be made, before anything is trained.
    ///
    /// # Errors
    /// Z0360 to Z0368.
    pub fn open<M: Model>(arguments: &RunArguments) -> Result<Self, Error> {
        let import = arguments.init.as_deref().map(Import::open::<M>).transpose()?;
        let new = |path| Export::new::<M>(path, import.as_ref(), arguments.export_dtype);
        let export = arguments.export.as_deref().map(new).transpose()?;
        Ok(Self { import, export })
    }

    /// What ranks must agree on: the content of what is imported, but for its numbers.
    pub fn fingerprint(&self) -> Option<u64> {
        self.import.as_ref().map(|import| import.folder.fingerprint)
    }

    /// Says what a run starts from.
    pub fn introduce(&self) {
        let Some(import) = &self.import else { return };
        let notes: String = import.notes.iter().map(|note| format!("  {note}\n")).collect();
        let (tensors, path) = (import.tensors.len(), import.folder.path.display());
        say(&format!("weights: {tensors} tensors of {path}\n{notes}\n"));
    }

    /// Writes what was trained, if that is asked for. Every rank must call it.
    ///
    /// # Errors
    /// Z0368, or that another rank has ended.
    pub fn export<'p, M: Model, T: Transport<'p, DeviceOf<M>>>(
        &self,
        engine: &mut Engine<'p, M, T>,
    ) -> Result<(), Error> {
        let Some(export) = &self.export else { return Ok(()) };
        export.write(engine, self.import.as_ref())?;
        if engine.arena().rank() == 0 {
            say(&format!("weights: exported to {}\n", export.path().display()));
        }
        Ok(())
    }
}
