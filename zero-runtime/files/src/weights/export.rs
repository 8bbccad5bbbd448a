//! Export: each rank writes the part of a model that it owns into files that rank 0 makes. Never gathers, so that no rank
//! holds more than a piece. Parameters that are kept in more bits than layers compute with are written from their master
//! copy.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use super::directory::{Directory, UnfinishedFolder};
use super::dtype::WeightType;
use super::error::WeightsError;
use super::folder::{CONFIG, Folder, INDEX};
use super::import::Import;
use super::layout::{Exported, FILE_BYTES_MAX, Layout, Target};
use super::names;
use super::runs::runs;
use zero_core::lost::Lost;
use zero_core::model::Program;
use zero_core::states::RankStates;
use zero_plan::place::State;

/// Files besides the tensors that are carried over from an imported model.
pub(crate) const CARRIED: [&str; 8] = [
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "vocab.json",
    "merges.txt",
    "chat_template.jinja",
    "added_tokens.json",
];

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
    form: Form,
    /// The form in f32, which has a number for every value: in it nothing is lost if the other cannot be written.
    spare: Form,
}

/// The files of an export.
#[derive(Debug)]
struct Form {
    layout: Layout,
    /// The files of the imported folder that are carried over.
    carried: Vec<&'static str>,
    /// The config to write, unless an imported one is carried over.
    config: Option<Vec<u8>>,
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
    /// An export to `path`, in the types of the imported tensors, or in f32 if none were imported, unless `kind` names
    /// another type. Writes nothing yet. For f16 there must be room for f32, in case that a number has no value in f16.
    ///
    /// # Errors
    /// Z0368 if the folder cannot be made.
    pub fn new<D>(
        program: &Program<D>,
        path: &Path,
        import: Option<&Import>,
        kind: Option<WeightType>,
    ) -> Result<Self, WeightsError> {
        Self::in_files(program, path, import, kind, FILE_BYTES_MAX)
    }

    /// [`Export::new`], in files of up to `file_bytes_max` bytes of tensors.
    ///
    /// # Errors
    /// Those of [`Export::new`].
    pub fn in_files<D>(
        program: &Program<D>,
        path: &Path,
        import: Option<&Import>,
        kind: Option<WeightType>,
        file_bytes_max: u64,
    ) -> Result<Self, WeightsError> {
        let tensors: Vec<_> = match import {
            Some(import) => {
                let of = |it: &super::ImportedTensor| (it.named.clone(), it.name.clone(), it.kind);
                import.tensors.iter().map(of).collect()
            }
            None => {
                let own = names::of_model(program).into_iter().filter(|named| !named.is_alias);
                own.map(|named| (named.clone(), named.name, WeightType::F32)).collect()
            }
        };
        let form = |kind: Option<WeightType>| {
            let exported =
                tensors.iter().cloned().map(|(named, name, own)| Exported { named, name, kind: kind.unwrap_or(own) });
            let layout = Layout::new(exported.collect(), file_bytes_max);
            let (config, carried) = match import {
                None => (own_config((program.config)(), layout.kind()), Vec::new()),
                Some(import) => {
                    let config = adapted(&import.folder, layout.kind(), kind.is_some());
                    let keeps = if config.is_none() { Some(CONFIG) } else { None };
                    (config, CARRIED.into_iter().chain(keeps).collect())
                }
            };
            Form { layout, carried, config }
        };
        let (form, spare) = (form(kind), form(Some(WeightType::F32)));
        let is_half = |target: &Target| target.tensor.kind == WeightType::F16;
        let roomiest = if form.layout.targets.iter().any(is_half) { &spare } else { &form };
        let directory = Directory::new(path, roomiest.layout.file_bytes())?;
        Ok(Self { directory, form, spare })
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

    /// Writes the model of an engine. Every rank must call it. `checkpoint` has the same parameters, if there is one.
    ///
    /// # Errors
    /// Z0368, which names a folder that has the weights, unless no other one can be written either; or that another rank has ended:
    /// then no files remain, unless rank 0 was killed. The name of the folder that it leaves shows that it is partial.
    pub fn write(
        &self,
        engine: &mut impl RankStates,
        import: Option<&Import>,
        checkpoint: Option<&Path>,
    ) -> Result<(), ExportError> {
        let Err(failed) = self.form.write(&self.directory, engine, import)? else { return Ok(()) };
        let rescued = match (failed.kind, checkpoint) {
            (FailureKind::Unnamed, _) => None,
            (_, Some(path)) => {
                Some(Ok(format!("the checkpoint `{}`, from which `cargo zero export` makes a folder", path.display())))
            }
            (kind, None) => Some(self.rescue(kind, engine, import)?),
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
        import: Option<&Import>,
    ) -> Result<Result<String, String>, Lost> {
        let process = engine.gather_numbers(&[f64::from(std::process::id())])?[0] as u32;
        let mut why = Vec::new();
        for is_temporary in [false, true].into_iter().skip(usize::from(kind != FailureKind::TooLarge)) {
            let bytes = self.spare.layout.file_bytes();
            let written = match agreed(engine, self.directory.elsewhere(is_temporary, process, bytes))? {
                Ok(directory) => match self.spare.write(&directory, engine, import)? {
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
    /// Makes a folder of this form on all ranks.
    fn write(
        &self,
        directory: &Directory,
        engine: &mut impl RankStates,
        import: Option<&Import>,
    ) -> Result<Result<(), Failed>, Lost> {
        let made = (engine.rank() == 0).then(|| self.begin(directory, import)).transpose();
        let partial = match agreed(engine, made)? {
            // From here on, the files are there for all ranks.
            Ok(partial) => partial,
            Err(failed) => return Ok(Err(failed)),
        };
        let process = engine.gather_numbers(&[f64::from(std::process::id())])?[0] as u32;
        let written = self.write_owned(engine, &directory.partial(process));
        if let Err(failed) = agreed(engine, written)? {
            return Ok(Err(failed));
        }
        // From here on, they are whole.
        agreed(engine, partial.map_or(Ok(()), UnfinishedFolder::finish))
    }

    /// Makes all files, with room for tensors.
    fn begin<'a>(
        &self,
        directory: &'a Directory,
        import: Option<&Import>,
    ) -> Result<UnfinishedFolder<'a>, WeightsError> {
        let mut partial = begin(directory, &self.layout, self.config.as_deref())?;
        let Some(import) = import else { return Ok(partial) };
        for name in &self.carried {
            if let Some((mut file, _)) = import.folder.open_inside(name)? {
                partial.add_copy(name, &mut file)?;
            }
        }
        Ok(partial)
    }

    /// Writes what this rank owns, unless an earlier rank owns the same.
    fn write_owned(&self, engine: &impl RankStates, partial: &Path) -> Result<(), WeightsError> {
        let plan = engine.plan();
        let at = plan.config.mesh.coordinates(engine.rank());
        let places = plan.places(at);
        if at.replica > 0 {
            return Ok(());
        }
        let mut writer = Writer::open(&self.layout, partial)?;
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
}

/// Makes the files of tensors with room for them, their index and the config.
pub(crate) fn begin<'a>(
    directory: &'a Directory,
    layout: &Layout,
    config: Option<&[u8]>,
) -> Result<UnfinishedFolder<'a>, WeightsError> {
    let mut partial = directory.begin()?;
    for file in &layout.files {
        partial.add(&file.name, &file.head, file.bytes)?;
    }
    if let Some(index) = layout.index() {
        partial.add_whole(INDEX, &index)?;
    }
    if let Some(config) = config {
        partial.add_whole(CONFIG, config)?;
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

/// The config that a model declares, with the type of its tensors.
pub(crate) fn own_config(declared: Value, kind: Option<WeightType>) -> Option<Vec<u8>> {
    let Value::Object(mut config) = declared else { return None };
    if let Some(kind) = kind {
        config.entry("dtype").or_insert_with(|| kind.config_name().into());
    }
    Some(serde_json::to_vec_pretty(&config).expect("JSON"))
}

/// The config of an imported model with another type in it; none if it can stay as it is.
fn adapted(folder: &Folder, kind: Option<WeightType>, is_asked: bool) -> Option<Vec<u8>> {
    let (mut config, kind) = (folder.config.clone()?, kind?);
    let says = |config: &Map<String, Value>, key: &&str| config.get(*key).is_some_and(|own| !own.is_null());
    // Up to version 4, and since version 5, of `transformers`.
    let mut keys: Vec<&str> = ["torch_dtype", "dtype"].into_iter().filter(|key| says(&config, key)).collect();
    if keys.is_empty() {
        keys.push("dtype");
    }
    if !is_asked || keys.iter().all(|&key| config.get(key).is_some_and(|own| own == kind.config_name())) {
        return None;
    }
    for key in keys {
        config.insert(key.to_owned(), kind.config_name().into());
    }
    Some(serde_json::to_vec_pretty(&config).expect("JSON"))
}
