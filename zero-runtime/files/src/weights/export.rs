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

/// The files of an export.
struct Form {
    layout: Layout,
    files: Vec<BesideFile>,
}

/// A failure on which all ranks agree.
struct Failed {
    /// The first rank that has failed.
    first: usize,
    kind: FailureKind,
    /// The error of this rank.
    own: Option<WeightsError>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum FailureKind {
    /// The files are whole, but under another name.
    Unnamed = 1,
    /// A number has no value in the type to write.
    TooLarge,
    Other,
}

impl FailureKind {
    const ALL: [Self; 3] = [Self::Unnamed, Self::TooLarge, Self::Other];

    fn of(error: &WeightsError) -> Self {
        match error {
            WeightsError::Unnamed { .. } => Self::Unnamed,
            WeightsError::TooLarge { .. } => Self::TooLarge,
            _ => Self::Other,
        }
    }
}

/// What all ranks have made, or the failure of the first one that failed.
fn agreed<T>(engine: &mut impl RankStates, own: Result<T, WeightsError>) -> Result<Result<T, Failed>, Lost> {
    let mine = own.as_ref().map_or_else(|error| FailureKind::of(error) as u8, |_| 0);
    let all = engine.gather_numbers(&[f64::from(mine)])?;
    let first = all.iter().position(|&kind| kind > 0.0);
    Ok(match own {
        Ok(made) if first.is_none() => Ok(made),
        own => {
            let first = first.expect("this rank, at least");
            let kind = FailureKind::ALL.into_iter().find(|&kind| f64::from(kind as u8) == all[first]);
            Err(Failed { first, kind: kind.expect("a kind of failure"), own: own.err() })
        }
    })
}

impl Export {
    /// An export to `path`, of about what `expected` says. Writes nothing yet. For f16 there must be room for f32, in case that a number
    /// has no value in f16.
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
        let (form, spare) = (Form::of(typed(expected, kind), file_bytes_max), Form::spare(expected, file_bytes_max));
        let is_half = |target: &Target| target.tensor.kind == WeightType::F16;
        let roomiest = if form.layout.targets.iter().any(is_half) { &spare } else { &form };
        let directory = Directory::new(path, roomiest.layout.file_bytes() + expected.bytes() as u64)?;
        Ok(Self { directory, kind, file_bytes_max })
    }

    /// The folder that it goes to.
    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// The bytes that it takes on the disk of what lies at `path`.
    pub fn bytes_on_disk_of(&self, path: &Path) -> u64 {
        self.directory.bytes_on_disk_of(path)
    }

    /// Tries whether the folder can be made, filled, flushed and named, before there is anything to lose.
    ///
    /// # Errors
    /// Z0368.
    pub fn try_out(&self) -> Result<(), WeightsError> {
        self.directory.try_out()
    }

    /// Writes the model of an engine as it is published. Every rank must call it. `checkpoint` has the same parameters, if there is one.
    ///
    /// # Errors
    /// Z0368, which names a folder that has the weights, unless no other one can be written either; or that another rank has ended:
    /// then no files remain, unless rank 0 was killed. The name of the folder that it leaves shows that it is partial.
    pub fn write(
        &self,
        engine: &mut impl RankStates,
        publication: &Publication,
        checkpoint: Option<&Path>,
    ) -> Result<(), ExportError> {
        let form = Form::of(typed(publication, self.kind), self.file_bytes_max);
        let Err(failed) = form.write(&self.directory, engine)? else { return Ok(()) };
        let rescued = match (failed.kind, checkpoint) {
            (FailureKind::Unnamed, _) => None,
            (_, Some(path)) => {
                Some(Ok(format!("the checkpoint `{}`, from which `cargo zero export` makes a folder", path.display())))
            }
            (kind, None) => Some(self.rescue(kind, engine, publication)?),
        };
        let Some(cause) = failed.own.filter(|_| engine.rank() == failed.first) else {
            return Err(Lost::Ended { rank: failed.first }.into());
        };
        let boxed = Box::new;
        Err(match rescued {
            None => cause,
            Some(Ok(place)) => WeightsError::Rescued { cause: boxed(cause), place },
            Some(Err(elsewhere)) => WeightsError::NotRescued { cause: boxed(cause), elsewhere },
        }
        .into())
    }

    /// Writes all weights in f32 to another folder: beside the other one if only a number was in the way, or else among temporary
    /// files. Returns the place, or why there is none.
    fn rescue(
        &self,
        kind: FailureKind,
        engine: &mut impl RankStates,
        publication: &Publication,
    ) -> Result<Result<String, String>, Lost> {
        let process = engine.gather_numbers(&[f64::from(std::process::id())])?[0] as u32;
        let spare = Form::spare(publication, self.file_bytes_max);
        let mut why = Vec::new();
        for is_temporary in [false, true].into_iter().skip(usize::from(kind != FailureKind::TooLarge)) {
            let bytes = spare.layout.file_bytes();
            let written = match agreed(engine, self.directory.elsewhere(is_temporary, process, bytes))? {
                Ok(directory) => match spare.write(&directory, engine)? {
                    Ok(()) => return Ok(Ok(format!("`{}`, in f32", directory.path().display()))),
                    failed => failed,
                },
                Err(failed) => Err(failed),
            };
            why.extend(written.err().map(|failed| match failed.own {
                Some(error) => error.to_string(),
                None => format!("rank {} could not write them", failed.first),
            }));
        }
        Ok(Err(why.join("; ")))
    }
}

impl Form {
    fn of(publication: Publication, file_bytes_max: u64) -> Self {
        Self { layout: Layout::new(publication.tensors, file_bytes_max), files: publication.files }
    }

    /// The form in f32, which has a number for every value: in it nothing is lost if another cannot be written.
    fn spare(publication: &Publication, file_bytes_max: u64) -> Self {
        Self::of(publication.clone().in_type(WeightType::F32), file_bytes_max)
    }

    /// Makes a folder of this form on all ranks.
    fn write(&self, directory: &Directory, engine: &mut impl RankStates) -> Result<Result<(), Failed>, Lost> {
        let made = (engine.rank() == 0).then(|| begin(directory, &self.layout, &self.files)).transpose();
        let partial = match agreed(engine, made)? {
            // From here on, the files are there for all ranks.
            Ok(partial) => partial,
            Err(failed) => return Ok(Err(failed)),
        };
        let process = engine.gather_numbers(&[f64::from(std::process::id())])?[0] as u32;
        let written = write_owned(engine, &self.layout, &directory.partial(process));
        if let Err(failed) = agreed(engine, written)? {
            return Ok(Err(failed));
        }
        // From here on, they are whole.
        agreed(engine, partial.map_or(Ok(()), UnfinishedFolder::finish))
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
            if let Some(i) = numbers.clone().position(|value| !value.is_finite()) {
                let (tensor, element, value) = (name.clone(), run.published + i, values[run.own + i * run.step]);
                return Err(WeightsError::NotFinite { tensor, element, value });
            }
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
