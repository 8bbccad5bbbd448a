//! Initial: the parameters of a checkpoint as the initial values of a model. Never reads another state.

use std::path::Path;

use super::error::CheckpointError;
use super::manifest::{MANIFEST, TensorInfo};
use super::open::Checkpoint;
use super::states::load_parameters;
use crate::weights::{FirstTen, NamedTensor, model_tensors};
use zero_core::model::Program;
use zero_core::states::RankStates;
use zero_plan::Fingerprint;
use zero_plan::place::State;

/// A checkpoint of a model, whatever the layout and the widths that it was written under.
#[derive(Debug)]
pub struct InitialCheckpoint {
    /// The checkpoint.
    pub checkpoint: Checkpoint,
    /// The model's tensors in the order of units and of their flat buffers, each with its number in the checkpoint.
    pub tensors: Vec<(NamedTensor, usize)>,
}

impl InitialCheckpoint {
    /// Whether a path is a checkpoint.
    pub fn is_one(path: &Path) -> bool {
        path.join(MANIFEST).exists()
    }

    /// Opens a checkpoint, and compares it with a model.
    ///
    /// # Errors
    /// Those of [`Checkpoint::open`], and Z0390 if it is of another model.
    pub fn open<D>(program: &Program<D>, path: &Path) -> Result<Self, CheckpointError> {
        let checkpoint = Checkpoint::open(path)?;
        let tensors = checkpoint.require_model(program)?;
        Ok(Self { checkpoint, tensors })
    }

    /// Remarks for a person, each a line.
    pub fn notes(&self) -> Vec<String> {
        let step = self.checkpoint.manifest.step;
        let of = match self.checkpoint.best_parameters() {
            State::Master => "their master copy",
            _ => "their parameters",
        };
        vec![format!("{of} after step {step}; moments and the place in the data are not taken over")]
    }

    /// A hash of its contents.
    pub fn fingerprint(&self) -> u64 {
        Fingerprint::of(&self.checkpoint.manifest)
    }

    /// Loads its parameters into an engine, in pieces: the part of each unit that its rank stores.
    ///
    /// # Errors
    /// Z0385 if a file cannot be read any more, Z0387 if it was changed.
    pub fn load(&self, engine: &mut impl RankStates) -> Result<(), CheckpointError> {
        load_parameters(&self.checkpoint, &self.tensors, engine, false)
    }
}

impl Checkpoint {
    /// Compares it with a model, which must have the same tensors by name, dims and orientation, and the same
    /// configuration. Returns the model's tensors except tied ones, each with its number in the checkpoint.
    ///
    /// # Errors
    /// Z0390 with all differences.
    pub fn require_model<D>(&self, program: &Program<D>) -> Result<Vec<(NamedTensor, usize)>, CheckpointError> {
        let own: Vec<NamedTensor> = model_tensors(program).into_iter().filter(|named| !named.is_alias).collect();
        let mut differences = differences(&own, &self.manifest.tensors);
        if differences.is_empty() {
            differences = other_config(&(program.config)(), &self.manifest.config);
        }
        if !differences.is_empty() {
            return Err(CheckpointError::OtherModel { path: self.path.clone(), differences: FirstTen(differences) });
        }
        let number = |named: &NamedTensor| self.manifest.tensors.iter().position(|it| it.name == named.name);
        let numbered = |named: NamedTensor| {
            let tensor = number(&named).expect("a tensor of both");
            (named, tensor)
        };
        Ok(own.into_iter().map(numbered).collect())
    }

    /// The state to read parameters from: the master copy if there is one, because parameters are rounded copies of it;
    /// otherwise the parameters.
    pub fn best_parameters(&self) -> State {
        if self.has(State::Master) { State::Master } else { State::Parameters }
    }
}

/// How the tensors of a model differ from those of a checkpoint, by name and shape.
fn differences(own: &[NamedTensor], theirs: &[TensorInfo]) -> Vec<String> {
    let way = |transposed: bool| if transposed { ", published the other way round" } else { "" };
    let mut told = Vec::new();
    for named in own {
        match theirs.iter().find(|it| it.name == named.name) {
            None => told.push(format!("`{}`: expected {:?}, found nothing", named.name, named.shape)),
            Some(it) if (&it.shape, it.transposed) != (&named.shape, named.transposed) => {
                let (expected, found) = (way(named.transposed), way(it.transposed));
                told.push(format!(
                    "`{}`: expected {:?}{expected}, found {:?}{found}",
                    named.name, named.shape, it.shape
                ));
            }
            Some(_) => {}
        }
    }
    let extra = theirs.iter().filter(|it| own.iter().all(|named| named.name != it.name));
    told.extend(extra.map(|it| format!("`{}`: expected nothing, found {:?}", it.name, it.shape)));
    told
}

/// How configurations differ, key by key. If one of them is not declared, there is no difference.
fn other_config(own: &serde_json::Value, theirs: &serde_json::Value) -> Vec<String> {
    let (Some(own), Some(theirs)) = (own.as_object(), theirs.as_object()) else { return Vec::new() };
    let keys: std::collections::BTreeSet<&String> = own.keys().chain(theirs.keys()).collect();
    let shown = |value: Option<&serde_json::Value>| value.map_or("nothing".to_owned(), ToString::to_string);
    let differing = keys.into_iter().filter(|&key| own.get(key) != theirs.get(key));
    differing
        .map(|key| format!("`{key}` of its config: expected {}, found {}", shown(own.get(key)), shown(theirs.get(key))))
        .collect()
}
