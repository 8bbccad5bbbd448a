//! Export: writes a checkpoint as a folder in the format of Hugging Face, from the checkpoint alone. Never builds a
//! model, and never holds a whole tensor.

use std::collections::HashMap;
use std::path::Path;

use super::elements::Elements;
use super::error::CheckpointError;
use super::manifest::{Manifest, TensorInfo};
use super::open::Checkpoint;
use crate::weights::directory::Directory;
use crate::weights::export::{Writer, begin, typed};
use crate::weights::layout::{FILE_BYTES_MAX, Layout};
use crate::weights::{CONFIG, NamedTensor, Publication, WeightType, WeightsError};
use zero_core::states::PIECE_ELEMENTS;

/// Why a checkpoint could not be exported.
#[derive(Debug, thiserror::Error)]
pub enum PublishError {
    /// It is not whole.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// The folder cannot be written.
    #[error(transparent)]
    Weights(#[from] WeightsError),
}

/// The figures of a folder that was exported.
#[derive(Debug, PartialEq, Eq)]
pub struct Published {
    /// Number of tensors.
    pub tensors: usize,
    /// Bytes of the files of tensors.
    pub bytes: u64,
    /// Remarks for a person, each a line.
    pub notes: Vec<String>,
}

/// Writes the parameters of a checkpoint, or their master copy if there is one, to the new folder `path`, as its run
/// would, in the types that it records unless `kind` names another. `progress` is told how many more elements were
/// written.
///
/// # Errors
/// Z0368 if the folder cannot be made or written, or if a number has no value in `kind`; Z0385, Z0387 or Z0389 if the
/// checkpoint is not whole. Nothing is left behind then, unless all is written and only its name is taken, which the error says.
pub fn export(
    checkpoint: &Checkpoint,
    path: &Path,
    kind: Option<WeightType>,
    progress: &dyn Fn(u64),
) -> Result<Published, PublishError> {
    in_files(checkpoint, path, kind, FILE_BYTES_MAX, progress)
}

/// [`export`], in files of up to `file_bytes_max` bytes of tensors.
fn in_files(
    checkpoint: &Checkpoint,
    path: &Path,
    kind: Option<WeightType>,
    file_bytes_max: u64,
    progress: &dyn Fn(u64),
) -> Result<Published, PublishError> {
    let manifest = &checkpoint.manifest;
    let mut notes = Vec::new();
    let publication = match checkpoint.publication()? {
        Some(publication) => publication,
        None => {
            notes.push(format!("{UNRECORDED}; a run that resumes from it, with `--init`, exports those of a folder"));
            unrecorded(manifest)
        }
    };
    let Publication { tensors, files } = typed(&publication, kind);
    if files.iter().all(|file| file.name != CONFIG) {
        notes.push("the model declares no configuration, so there is no config.json".to_owned());
    }
    let others: Vec<&str> = files.iter().map(|file| &*file.name).filter(|name| *name != CONFIG).collect();
    if !others.is_empty() {
        notes.push(format!("with {}", others.join(", ")));
    }
    let layout = Layout::new(tensors, file_bytes_max);
    let directory = Directory::new(path, layout.file_bytes() + publication.bytes() as u64)?;
    let mut elements = Elements::all(checkpoint, checkpoint.best_parameters())?;
    let partial = begin(&directory, &layout, &files)?;
    let mut writer = Writer::open(&layout, &directory.partial(std::process::id()))?;
    // A tied tensor is where its owner is.
    let places = manifest.tensors.iter().zip(0..).map(|(it, number)| ((it.unit, it.start), number));
    let numbers: HashMap<(usize, usize), usize> = places.collect();
    let mut values = Vec::new();
    for target in &layout.targets {
        let named = &target.tensor.named;
        for first in (0..named.elements()).step_by(PIECE_ELEMENTS) {
            values.resize(PIECE_ELEMENTS.min(named.elements() - first), 0.0);
            elements.read(numbers[&(named.unit, named.start)], first, &mut values)?;
            writer.write_tensor(target, first, &values)?;
            progress(values.len() as u64);
        }
    }
    partial.finish()?;
    Ok(Published { tensors: layout.targets.len(), bytes: layout.file_bytes(), notes })
}

/// What is not known of a checkpoint that does not record how its model is published.
pub const UNRECORDED: &str = "it does not record how its model is published: names are those of the struct, numbers are f32, \
                              and there is no tokenizer";

/// How the model of a manifest that does not say so is published.
fn unrecorded(manifest: &Manifest) -> Publication {
    let named = |it: &TensorInfo| {
        let TensorInfo { name, shape, transposed, unit, start } = it.clone();
        NamedTensor { name, shape, transposed, unit, start, is_alias: false }
    };
    Publication::own(manifest.tensors.iter().map(named), manifest.config.clone(), manifest.plan.length, None)
}
