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
use super::python_json;
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
    layout: Layout,
    /// The files of the imported folder that are carried over.
    carried: Vec<&'static str>,
    /// The config to write, unless an imported one is carried over.
    config: Option<Vec<u8>>,
}

impl Export {
    /// An export to `path`, in the types of the imported tensors, or in f32 if none were imported, unless `kind` names
    /// another type. Writes nothing yet.
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
        let tensors = match import {
            Some(import) => {
                let of = |it: &super::ImportedTensor| (it.named.clone(), it.name.clone(), it.kind);
                import.tensors.iter().map(of).collect()
            }
            None => {
                let own = names::of_model(program).into_iter().filter(|named| !named.is_alias);
                own.map(|named| (named.clone(), named.name, WeightType::F32)).collect::<Vec<_>>()
            }
        };
        let tensors =
            tensors.into_iter().map(|(named, name, own)| Exported { named, name, kind: kind.unwrap_or(own) }).collect();
        let layout = Layout::new(tensors, file_bytes_max);
        let directory = Directory::new(path, layout.file_bytes())?;
        let (config, carried) = match import {
            None => (own_config((program.config)(), layout.kind()), Vec::new()),
            Some(import) => {
                let config = adapted(&import.folder, layout.kind(), kind.is_some());
                let keeps = if config.is_none() { Some(CONFIG) } else { None };
                (config, CARRIED.into_iter().chain(keeps).collect())
            }
        };
        Ok(Self { directory, layout, carried, config })
    }

    /// The folder that it goes to.
    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Writes the model of an engine. Every rank must call it.
    ///
    /// # Errors
    /// Z0368, or that another rank has ended. No files remain then, unless rank 0 was killed; the name of the folder that it
    /// leaves shows that it is partial.
    pub fn write(&self, engine: &mut impl RankStates, import: Option<&Import>) -> Result<(), ExportError> {
        let makes = engine.rank() == 0;
        let partial = makes.then(|| self.begin(import)).transpose()?;
        // From here on, the files are there for all ranks.
        let process = engine.gather_numbers(&[f64::from(std::process::id())])?[0] as u32;
        self.write_owned(engine, &self.directory.partial(process))?;
        // From here on, they are whole.
        engine.gather_numbers(&[0.0])?;
        Ok(partial.map_or(Ok(()), UnfinishedFolder::finish)?)
    }

    /// Makes all files, with room for tensors.
    fn begin(&self, import: Option<&Import>) -> Result<UnfinishedFolder<'_>, WeightsError> {
        let mut partial = begin(&self.directory, &self.layout, self.config.as_deref())?;
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
    Some(python_json::unnamed(serde_json::to_string_pretty(&config).expect("JSON")).into_bytes())
}
