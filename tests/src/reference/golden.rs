//! Golden files: training runs of PyTorch, read from `tests/golden`. Never writes one; `golden/make.py` does.

use std::collections::HashMap;
use std::path::Path;
use std::str::FromStr;

use safetensors::SafeTensors;
use safetensors::tensor::Dtype;

use super::{Config, Gpt};

/// A training run of a tiny GPT: its start, its data and its results.
#[derive(Clone, Debug)]
pub struct Golden {
    /// Weights before step 0, exact in `f32`.
    pub initial: Gpt,
    /// Weights after the last step, rounded to `f32`.
    pub last: Gpt,
    /// Gradients of step 0 in the model's order: mean over ranks and micro-batches, before clipping, rounded to `f32`.
    pub gradients: Vec<Vec<f64>>,
    /// Loss of each step in nats, before its update: mean over ranks and micro-batches.
    pub losses: Vec<f64>,
    /// Global gradient norm of each step, before clipping.
    pub norms: Vec<f64>,
    /// Optimizer steps.
    pub steps: usize,
    /// Ranks whose gradients are averaged.
    pub ranks: usize,
    /// Micro-batches of a rank in a step.
    pub micro_batches: usize,
    /// Sequences of a micro-batch.
    pub sequences: usize,
    /// Tokens of a sequence.
    pub length: usize,
    /// Learning rate, the same in all steps.
    pub lr: f64,
    /// AdamW's decay of the first moment.
    pub beta1: f64,
    /// AdamW's decay of the second moment.
    pub beta2: f64,
    /// AdamW's epsilon.
    pub eps: f64,
    /// AdamW's weight decay, for tensors with two or more dims.
    pub weight_decay: f64,
    /// Largest global gradient norm that is not clipped.
    pub clip: f64,
    ids: Vec<u32>,     // (steps, ranks, micro_batches, sequences, length)
    targets: Vec<u32>, // (steps, ranks, micro_batches, sequences, length)
}

/// The same run from the same weights, with the roundings of a plan in bf16. Step i has the batch of step i of the exact run;
/// batches start over after that run's last step.
#[derive(Clone, Debug)]
pub struct Rounded {
    /// Gradients of step 0, as in [`Golden`].
    pub gradients: Gpt,
    /// Loss of each step.
    pub losses: Vec<f64>,
    /// Global gradient norm of each step, before clipping.
    pub norms: Vec<f64>,
}

impl Rounded {
    /// Reads `golden/gpt_<variant>_bf16.safetensors`.
    ///
    /// # Panics
    /// As [`Golden::read`].
    pub fn read(variant: &str) -> Self {
        let bytes = read_file(&format!("gpt_{variant}_bf16"));
        let file = SafeTensors::deserialize(&bytes).expect("a safetensors file");
        let settings = Settings::read(&bytes);
        let steps = settings.get("steps");
        Self {
            gradients: Gpt::new(settings.model(), |name, shape| floats(&file, &stored("gradient", name, shape), shape)),
            losses: floats(&file, "losses", &[steps]),
            norms: floats(&file, "norms", &[steps]),
        }
    }
}

pub(super) fn read_file(name: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("golden/{name}.safetensors"));
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

impl Golden {
    /// Reads `golden/gpt_<variant>.safetensors`; the variants are `untied` and `tied`.
    ///
    /// # Panics
    /// If the file is missing or not in the format of `make.py`.
    pub fn read(variant: &str) -> Self {
        let bytes = read_file(&format!("gpt_{variant}"));
        let file = SafeTensors::deserialize(&bytes).expect("a safetensors file");
        let settings = Settings::read(&bytes);
        let config = settings.model();
        let model = |prefix: &str| Gpt::new(config, |name, shape| floats(&file, &stored(prefix, name, shape), shape));
        let steps = settings.get("steps");
        Self {
            initial: model("initial"),
            last: model("final"),
            gradients: model("gradient").tensors.into_iter().map(|tensor| tensor.data).collect(),
            losses: floats(&file, "losses", &[steps]),
            norms: floats(&file, "norms", &[steps]),
            steps,
            ranks: settings.get("ranks"),
            micro_batches: settings.get("micro_batches"),
            sequences: settings.get("sequences"),
            length: settings.get("length"),
            lr: settings.get("lr"),
            beta1: settings.get("beta1"),
            beta2: settings.get("beta2"),
            eps: settings.get("eps"),
            weight_decay: settings.get("weight_decay"),
            clip: settings.get("clip"),
            ids: tokens(&file, "ids"),
            targets: tokens(&file, "targets"),
        }
    }

    /// Ids and targets of one micro-batch, each `(sequences, length)`.
    pub fn micro_batch(&self, step: usize, rank: usize, micro_batch: usize) -> (&[u32], &[u32]) {
        assert!(step < self.steps && rank < self.ranks && micro_batch < self.micro_batches);
        let size = self.sequences * self.length;
        let first = ((step * self.ranks + rank) * self.micro_batches + micro_batch) * size;
        (&self.ids[first..][..size], &self.targets[first..][..size])
    }
}

/// The `name=value` pairs of a golden file's metadata.
pub(super) struct Settings(HashMap<String, String>);

impl Settings {
    pub(super) fn read(bytes: &[u8]) -> Self {
        let (_, header) = SafeTensors::read_metadata(bytes).expect("a safetensors file");
        let text = &header.metadata().as_ref().expect("metadata")["settings"];
        let pairs = text.split(' ').map(|pair| pair.split_once('=').expect("name=value"));
        Self(pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
    }

    fn model(&self) -> Config {
        Config {
            vocab: self.get("vocab"),
            context: self.get("context"),
            dim: self.get("dim"),
            heads: self.get("heads"),
            layers: self.get("layers"),
            tied: self.get::<u8>("tied") == 1,
        }
    }

    pub(super) fn get<T: FromStr>(&self, name: &str) -> T {
        let value = self.0.get(name).unwrap_or_else(|| panic!("`{name}` is not in the settings"));
        value.parse().unwrap_or_else(|_| panic!("`{name}={value}` is not a number of its kind"))
    }
}

/// The name of a parameter in a golden file, in which a norm's weight is called its gain, and the embedding's weight its table.
fn stored(prefix: &str, name: &str, shape: &[usize]) -> String {
    let name = match name.strip_suffix("weight") {
        Some(unit) if shape.len() == 1 => format!("{unit}gain"),
        Some("embed.") => "embed.table".to_owned(),
        _ => name.to_owned(),
    };
    format!("{prefix}.{name}")
}

pub(super) fn floats(file: &SafeTensors, name: &str, shape: &[usize]) -> Vec<f64> {
    let view = file.tensor(name).unwrap_or_else(|error| panic!("`{name}`: {error}"));
    assert_eq!(view.shape(), shape, "shape of `{name}`");
    match view.dtype() {
        Dtype::F32 => view.data().as_chunks().0.iter().map(|&bytes| f64::from(f32::from_le_bytes(bytes))).collect(),
        Dtype::F64 => view.data().as_chunks().0.iter().map(|&bytes| f64::from_le_bytes(bytes)).collect(),
        other => panic!("`{name}` is {other:?}, not F32 or F64"),
    }
}

fn tokens(file: &SafeTensors, name: &str) -> Vec<u32> {
    let view = file.tensor(name).unwrap_or_else(|error| panic!("`{name}`: {error}"));
    assert_eq!(view.dtype(), Dtype::I32, "type of `{name}`");
    view.data().as_chunks().0.iter().map(|&bytes| u32::from_le_bytes(bytes)).collect()
}
