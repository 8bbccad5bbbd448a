//! Import: finds a model's tensors in a folder, and reads stretches of flat buffers from them. Never holds a tensor.

use std::collections::BTreeSet;
use std::path::Path;

use super::config;
use super::dtype::WeightType;
use super::error::{FirstTen, WeightsError};
use super::folder::{CONFIG, Folder, FolderTensor};
use super::names::{self, NamedTensor, Renaming, TIED_HEAD};
use super::runs::runs;
use zero_core::model::Program;
use zero_core::states::{PIECE_ELEMENTS, RankStates};

/// A folder that has each tensor of a model once, in its shape, and no other.
#[derive(Debug)]
pub struct Import {
    /// The folder.
    pub folder: Folder,
    /// The tensors in the order of units and of their flat buffers; tied ones only if the folder repeats them.
    pub tensors: Vec<ImportedTensor>,
    /// Notes for a person, one per line.
    pub notes: Vec<String>,
}

/// A tensor of a folder.
#[derive(Debug)]
pub struct ImportedTensor {
    /// The model's tensor.
    pub named: NamedTensor,
    /// The folder's name for it.
    pub name: String,
    /// The type of its numbers.
    pub kind: WeightType,
    found: FolderTensor,
}

impl Import {
    /// Opens the folder of `--init`, and compares it with a model.
    ///
    /// # Errors
    /// Z0360 to Z0367.
    pub fn open<D>(program: &Program<D>, path: &Path) -> Result<Self, WeightsError> {
        let model = names::of_model(program);
        let folder = Folder::open(path)?;
        let is_tied = model.iter().any(|named| named.is_alias);
        let notes = compare_config(&folder, &(program.config)(), is_tied, program.plan.config.length)?;
        Self::of(model, folder, notes)
    }

    /// Finds each tensor of a model in a folder.
    pub(super) fn of(model: Vec<NamedTensor>, folder: Folder, mut notes: Vec<String>) -> Result<Self, WeightsError> {
        let model = with_tied_head(model, &folder);
        let renaming = Renaming::between(&model, &folder.tensors);
        let model = by_kept_name(model, |named| folder.tensors.contains_key(&renaming.of(&named.name)));
        notes.extend(renaming.told());
        let (mut missing, mut differences, mut tensors) = (FirstTen::default(), FirstTen::default(), Vec::new());
        let mut taken = BTreeSet::new();
        for named in model {
            let name = renaming.of(&named.name);
            let Some(found) = folder.tensors.get(&name) else {
                if !named.is_alias {
                    missing.0.push(format!("`{name}` {:?}", named.published_shape()));
                }
                continue;
            };
            taken.insert(name.clone());
            let (expected, file) = (named.published_shape(), folder.file_of(found).display());
            if found.shape != expected {
                differences.0.push(format!("`{name}`: expected {expected:?}, found {:?} in `{file}`", found.shape));
            } else if let Some(kind) = WeightType::of(found.dtype) {
                tensors.push(ImportedTensor { name, kind, found: found.clone(), named });
            } else {
                differences.0.push(format!("`{name}`: expected BF16, F16 or F32, found {} in `{file}`", found.dtype));
            }
        }
        let left = folder.tensors.iter().filter(|(name, _)| !taken.contains(*name) && !names::is_buffer(name));
        let extra = FirstTen(left.map(|(name, found)| format!("`{name}` {:?}", found.shape)).collect());
        let path = folder.path.clone();
        match (missing.0.is_empty(), differences.0.is_empty(), extra.0.is_empty()) {
            (true, true, true) => {}
            (false, ..) => return Err(WeightsError::Missing { path, missing, extra }),
            (_, false, _) => return Err(WeightsError::OtherShape { path, differences }),
            _ => return Err(WeightsError::LeftOver { path, extra }),
        }
        let import = Self { folder, tensors, notes };
        import.require_ties()?;
        Ok(import)
    }

    /// Checks that each tensor that repeats another is equal to it.
    fn require_ties(&self) -> Result<(), WeightsError> {
        let mut bytes = Vec::new();
        for alias in self.tensors.iter().filter(|tensor| tensor.named.is_alias) {
            let NamedTensor { unit, start, .. } = alias.named;
            for first in (0..alias.named.elements()).step_by(PIECE_ELEMENTS) {
                let len = PIECE_ELEMENTS.min(alias.named.elements() - first);
                let (mut own, mut others) = (vec![0.0; len], vec![0.0; len]);
                self.read_tensor(alias, first, &mut own, &mut bytes)?;
                self.read(unit, start + first, &mut others, &mut bytes)?;
                let differs = own.iter().zip(&others).position(|(own, other)| own.to_bits() != other.to_bits());
                if let Some(i) = differs {
                    let owner = self
                        .of_unit(unit)
                        .find(|it| it.named.start <= start && start < it.named.start + it.named.elements());
                    return Err(WeightsError::NotTied {
                        path: self.folder.path.clone(),
                        alias: alias.name.clone(),
                        tensor: owner.map(|owner| owner.name.clone()).unwrap_or_default(),
                        element: first + i,
                        values: [own[i], others[i]],
                    });
                }
            }
        }
        Ok(())
    }

    fn of_unit(&self, unit: usize) -> impl Iterator<Item = &ImportedTensor> {
        self.tensors.iter().filter(move |tensor| !tensor.named.is_alias && tensor.named.unit == unit)
    }

    /// Loads its parameters into an engine, in pieces: the part of each unit that its rank stores.
    ///
    /// # Errors
    /// Z0360 if a file cannot be read any more.
    pub fn load(&self, engine: &mut impl RankStates) -> Result<(), WeightsError> {
        let mut bytes = Vec::new();
        for unit in 0..engine.plan().units.len() {
            engine.load_pieces(unit, |start, values| self.read(unit, start, values, &mut bytes))?;
        }
        Ok(())
    }

    /// Fills `values` with a unit's flat buffer from `start` on, with `bytes` as a buffer.
    fn read(&self, unit: usize, start: usize, values: &mut [f32], bytes: &mut Vec<u8>) -> Result<(), WeightsError> {
        let end = start + values.len();
        for tensor in self.of_unit(unit) {
            let own = tensor.named.start..tensor.named.start + tensor.named.elements();
            let common = own.start.max(start)..own.end.min(end);
            if !common.is_empty() {
                let of_tensor = &mut values[common.start - start..common.end - start];
                self.read_tensor(tensor, common.start - own.start, of_tensor, bytes)?;
            }
        }
        Ok(())
    }

    /// Fills `values` with a tensor's elements from `first` on, in the order of the model.
    fn read_tensor(
        &self,
        tensor: &ImportedTensor,
        first: usize,
        values: &mut [f32],
        bytes: &mut Vec<u8>,
    ) -> Result<(), WeightsError> {
        let NamedTensor { shape, transposed, .. } = &tensor.named;
        for run in runs(first..first + values.len(), shape, *transposed) {
            let size = tensor.kind.bytes();
            bytes.resize(run.len * size, 0);
            self.folder.read(&tensor.found, run.published * size, bytes)?;
            tensor.kind.decode(bytes, values, run.own, run.step);
        }
        Ok(())
    }
}

/// Names a head that shares the embedding as files do, whatever the model calls it.
fn with_tied_head(mut model: Vec<NamedTensor>, folder: &Folder) -> Vec<NamedTensor> {
    let is_free = model.iter().all(|named| named.name != TIED_HEAD);
    let mut aliases = model.iter_mut().filter(|named| named.is_alias && !folder.tensors.contains_key(&named.name));
    if let (true, Some(alias), None) = (is_free, aliases.next(), aliases.next()) {
        alias.name = TIED_HEAD.to_owned();
    }
    model
}

/// Exchanges the names of two tied tensors if a folder has them under the name of the second alone, as
/// `safetensors.torch.save_model` writes them.
fn by_kept_name(mut model: Vec<NamedTensor>, has: impl Fn(&NamedTensor) -> bool) -> Vec<NamedTensor> {
    let place = |named: &NamedTensor| (named.unit, named.start, named.elements());
    for i in 0..model.len() {
        let owner = &model[i];
        if owner.is_alias || has(owner) {
            continue;
        }
        if let Some(kept) = model.iter().position(|it| it.is_alias && place(it) == place(owner) && has(it)) {
            model.swap(i, kept);
            (model[i].is_alias, model[kept].is_alias) = (false, true);
        }
    }
    model
}

/// Compares the folder's config with the model's declaration, if there is one. Returns notes for a person.
fn compare_config(
    folder: &Folder,
    declared: &serde_json::Value,
    is_tied: bool,
    length: usize,
) -> Result<Vec<String>, WeightsError> {
    let Some(declared) = declared.as_object() else { return Ok(Vec::new()) };
    let path = folder.path.join(CONFIG);
    let Some(config) = &folder.config else {
        return Err(WeightsError::unreadable(&path)(std::io::ErrorKind::NotFound.into()));
    };
    let compared = config::compare(declared, config, is_tied, length);
    if compared.differences.is_empty() {
        return Ok(compared.notes);
    }
    Err(WeightsError::OtherModel { path, differences: FirstTen(compared.differences) })
}
