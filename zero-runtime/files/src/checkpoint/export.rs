//! Export: writes a checkpoint as a folder in the format of Hugging Face, from the checkpoint alone. Never builds a
//! model, and never holds a whole tensor.

use std::collections::HashMap;
use std::path::Path;

use serde_json::Value;

use super::elements::Elements;
use super::error::CheckpointError;
use super::open::Checkpoint;
use crate::weights::directory::{Directory, UnfinishedFolder};
use crate::weights::export::{CARRIED, Writer, begin, own_config};
use crate::weights::layout::{self, FILE_BYTES_MAX, Layout};
use crate::weights::{Folder, NamedTensor, WeightType, WeightsError};
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

/// Writes the parameters of a checkpoint, or their master copy if there is one, to the new folder `path`, as they are
/// published, in f32 unless `kind` says otherwise. Files beside the tensors, such as a tokenizer, come from the folder
/// of the run's `--init`, if it is still there. `progress` is told how many more elements were written.
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
    let kind = kind.unwrap_or(WeightType::F32);
    let exported = manifest.tensors.iter().map(|it| {
        let (name, shape) = (it.name.clone(), it.shape.clone());
        let named =
            NamedTensor { name, shape, transposed: it.transposed, unit: it.unit, start: it.start, is_alias: false };
        layout::Exported { name: named.name.clone(), named, kind }
    });
    let layout = Layout::new(exported.collect(), file_bytes_max);
    let directory = Directory::new(path, layout.file_bytes())?;
    let config = own_config(manifest.config.clone(), layout.kind());
    let mut notes = Vec::new();
    if config.is_none() {
        notes.push("the model declares no configuration, so there is no config.json".to_owned());
    }
    let mut elements = Elements::all(checkpoint, checkpoint.best_parameters())?;
    let mut partial = begin(&directory, &layout, config.as_deref())?;
    notes.extend(carry(manifest.arguments.get("init"), &mut partial)?);
    let mut writer = Writer::open(&layout, &directory.partial(std::process::id()))?;
    let numbers: HashMap<&str, usize> = manifest.tensors.iter().zip(0..).map(|(it, i)| (it.name.as_str(), i)).collect();
    let mut values = Vec::new();
    for target in &layout.targets {
        let named = &target.tensor.named;
        for first in (0..named.elements()).step_by(PIECE_ELEMENTS) {
            values.resize(PIECE_ELEMENTS.min(named.elements() - first), 0.0);
            elements.read(numbers[named.name.as_str()], first, &mut values)?;
            writer.write_tensor(target, first, &values)?;
            progress(values.len() as u64);
        }
    }
    partial.finish()?;
    Ok(Published { tensors: layout.targets.len(), bytes: layout.file_bytes(), notes })
}

/// Copies the files that lie beside the run's initial weights, and returns remarks about them.
fn carry(init: Option<&Value>, partial: &mut UnfinishedFolder) -> Result<Vec<String>, WeightsError> {
    let Some(init) = init.and_then(Value::as_str) else { return Ok(Vec::new()) };
    let folder = match Folder::open(Path::new(init)) {
        Ok(folder) => folder,
        Err(error) => return Ok(vec![format!("without a tokenizer, as the run's --init has changed: {error}")]),
    };
    let mut notes = Vec::new();
    for name in CARRIED {
        if let Some((mut file, _)) = folder.open_inside(name)? {
            partial.add_copy(name, &mut file)?;
            notes.push(format!("{name} of {init}"));
        }
    }
    Ok(notes)
}
