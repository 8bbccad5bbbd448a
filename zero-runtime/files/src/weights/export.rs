//! Export: each rank writes the part of a model that it owns into files that rank 0 makes. Never gathers, so that no rank
//! holds more than a piece. Parameters that are kept in more bits than layers compute with are written from their master
//! copy.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::directory::{Directory, UnfinishedFolder};
use super::dtype::WeightType;
use super::error::WeightsError;
use super::folder::INDEX;
use super::layout::{Exported, FILE_BYTES_MAX, Layout, Target};
use super::publication::{BesideFile, Publication};
use super::runs::runs;
use zero_core::lost::Lost;
use zero_core::states::RankStates;
use zero_plan::place::State;

/// Why a run could not export its model.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// The folder cannot be written.
    #[error(transparent)]
    Weights(#[from] WeightsError),
    /// Another rank has ended.
    #[error(transparent)]
    Lost(#[from] Lost),
}

/// Where a model is to be exported, and how.
#[derive(Debug)]
pub struct Export {
    directory: Directory,
    /// The type of all numbers, if it is not that of the publication.
    kind: Option<WeightType>,
    file_bytes_max: u64,
}

impl Export {
    /// An export to `path`, of about what `expected` says. Writes nothing yet.
    ///
    /// # Errors
    /// Z0368 if the folder cannot be made.
    pub fn new(path: &Path, expected: &Publication, kind: Option<WeightType>) -> Result<Self, WeightsError> {
        Self::in_files(path, expected, kind, FILE_BYTES_MAX)
    }

    /// [`Export::new`], in files of up to `file_bytes_max` bytes of tensors.
    ///
    /// # Errors
    /// Those of [`Export::new`].
    pub fn in_files(
        path: &Path,
        expected: &Publication,
        kind: Option<WeightType>,
        file_bytes_max: u64,
    ) -> Result<Self, WeightsError> {
        let layout = Layout::new(typed(expected, kind).tensors, file_bytes_max);
        let directory = Directory::new(path, layout.file_bytes() + expected.bytes() as u64)?;
        Ok(Self { directory, kind, file_bytes_max })
    }

    /// The folder that it goes to.
    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Writes the model of an engine as it is published. Every rank must call it.
    ///
    /// # Errors
    /// Z0368, or that another rank has ended. No files remain then, unless rank 0 was killed; the name of the folder that it
    /// leaves shows that it is partial.
    pub fn write(&self, engine: &mut impl RankStates, publication: &Publication) -> Result<(), ExportError> {
        let Publication { tensors, files } = typed(publication, self.kind);
        let layout = Layout::new(tensors, self.file_bytes_max);
        let makes = engine.rank() == 0;
        let partial = makes.then(|| begin(&self.directory, &layout, &files)).transpose()?;
        // From here on, the files are there for all ranks.
        let process = engine.gather_numbers(&[f64::from(std::process::id())])?[0] as u32;
        write_owned(engine, &layout, &self.directory.partial(process))?;
        // From here on, they are whole.
        engine.gather_numbers(&[0.0])?;
        Ok(partial.map_or(Ok(()), UnfinishedFolder::finish)?)
    }
}

/// A publication in the type that is asked for.
pub(crate) fn typed(publication: &Publication, kind: Option<WeightType>) -> Publication {
    match kind {
        Some(kind) => publication.clone().in_type(kind),
        None => publication.clone(),
    }
}

/// Writes what this rank owns, unless an earlier rank owns the same.
fn write_owned(engine: &impl RankStates, layout: &Layout, partial: &Path) -> Result<(), WeightsError> {
    let plan = engine.plan();
    let at = plan.config.mesh.coordinates(engine.rank());
    let places = plan.places(at);
    if at.replica > 0 {
        return Ok(());
    }
    let mut writer = Writer::open(layout, partial)?;
    for unit in (0..plan.units.len()).filter(|&unit| plan.units[unit].params > 0) {
        // Parameters are rounded from the master copy.
        let states = [State::Master, State::Parameters];
        let Some(state) = states.into_iter().find(|&state| places.state(state, unit).is_some()) else { continue };
        let is_shared_out = places.state(state, unit).is_some_and(|(owned, _)| owned == places.shared_out(unit));
        if !is_shared_out && at.zero > 0 {
            continue;
        }
        let mut result = Ok(());
        engine.read_state(state, unit, |start, values| {
            if result.is_ok() {
                result = writer.write(unit, start, values);
            }
        });
        result?;
    }
    Ok(())
}

/// Makes the files of tensors with room for them, their index, and the files beside them.
pub(crate) fn begin<'a>(
    directory: &'a Directory,
    layout: &Layout,
    files: &[BesideFile],
) -> Result<UnfinishedFolder<'a>, WeightsError> {
    let mut partial = directory.begin()?;
    for file in &layout.files {
        partial.add(&file.name, &file.head, file.bytes)?;
    }
    if let Some(index) = layout.index() {
        partial.add_whole(INDEX, &index)?;
    }
    for file in files {
        partial.add_whole(&file.name, &file.content)?;
    }
    Ok(partial)
}

/// The files of an export, as one rank writes them.
pub(crate) struct Writer<'a> {
    layout: &'a Layout,
    files: Vec<(PathBuf, File)>,
    bytes: Vec<u8>,
}

impl<'a> Writer<'a> {
    pub(crate) fn open(layout: &'a Layout, partial: &Path) -> Result<Self, WeightsError> {
        let open = |name: &str| {
            let path = partial.join(name);
            let file = OpenOptions::new().write(true).open(&path).map_err(WeightsError::unwritable(&path))?;
            Ok((path, file))
        };
        let files = layout.files.iter().map(|file| open(&file.name)).collect::<Result<_, WeightsError>>()?;
        Ok(Self { layout, files, bytes: Vec::new() })
    }

    /// Writes a unit's flat buffer from `start` on; padding after its tensors is not written.
    fn write(&mut self, unit: usize, start: usize, values: &[f32]) -> Result<(), WeightsError> {
        let end = start + values.len();
        for target in self.layout.targets.iter().filter(|target| target.tensor.named.unit == unit) {
            let named = &target.tensor.named;
            let own = named.start..named.start + named.elements();
            let common = own.start.max(start)..own.end.min(end);
            if !common.is_empty() {
                let of_tensor = &values[common.start - start..common.end - start];
                self.write_tensor(target, common.start - own.start, of_tensor)?;
            }
        }
        Ok(())
    }

    /// Writes elements of a tensor from `first` on, which are in the order of the model.
    pub(crate) fn write_tensor(&mut self, target: &Target, first: usize, values: &[f32]) -> Result<(), WeightsError> {
        let Exported { named, name, kind } = &target.tensor;
        let (path, file) = &self.files[target.file];
        for run in runs(first..first + values.len(), &named.shape, named.transposed) {
            self.bytes.clear();
            let numbers = values[run.own..].iter().copied().step_by(run.step).take(run.len);
            kind.encode(numbers, &mut self.bytes).map_err(|i| WeightsError::TooLarge {
                tensor: name.clone(),
                element: run.published + i,
                value: values[run.own + i * run.step],
                dtype: kind.name(),
            })?;
            let start = target.start_bytes + (run.published * kind.bytes()) as u64;
            file.write_all_at(&self.bytes, start).map_err(WeightsError::unwritable(path))?;
        }
        Ok(())
    }
}
