//! Agreement: logits, losses, gradients and training of tiny models, as in `transformers`.

use std::collections::BTreeMap;
use std::path::Path;

use safetensors::{Dtype, SafeTensors};
use zero_core::device::{Device, bf16};
use zero_core::layer::{Tensor, Tensors};
use zero_core::model::{Model, Program, published};
use zero_engine::{Engine, Hyper};
use zero_plan::{Config, Mesh, PlanBuf, TransportKind};
use zero_ranks::transport::{Shared, local};
use zero_tests::training::{CONFIG, Outcome, Start, train};

use super::sized::*;

/// Tensors of a file, by name.
type File = BTreeMap<String, Vec<f64>>;

const SEQUENCES: usize = 4;
const LENGTH: usize = 31;

/// The optimizer of `golden/models/make.py`.
const HYPER: Hyper =
    Hyper { lr: 1e-2, beta1: 0.9, beta2: 0.95, momentum: 0.95, epsilon: 1e-8, weight_decay: 0.1, clip: Some(0.5) };

struct Golden {
    weights: File,
    numbers: File,
    notes: BTreeMap<String, f64>,
}

impl Golden {
    fn read(name: &str) -> Self {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/models").join(name);
        let bytes = std::fs::read(folder.join("golden.safetensors")).expect("a golden file");
        let notes = SafeTensors::read_metadata(&bytes).expect("a header").1.metadata().clone().unwrap_or_default();
        let notes = notes.into_iter().map(|(name, value)| (name, value.parse().expect("a number"))).collect();
        let weights = std::fs::read(folder.join("model.safetensors")).expect("weights");
        Self { weights: tensors(&weights), numbers: tensors(&bytes), notes }
    }

    /// The flat buffers of a model's units.
    fn flat<D: Device>(&self, program: &'static Program<D>) -> Vec<Vec<f32>> {
        let flat = |named: Vec<(Tensor, String, bool)>| {
            named.into_iter().flat_map(|(tensor, name, transposed)| ours(&tensor, &self.weights[&name], transposed))
        };
        by_unit(program).into_iter().map(|named| flat(named).map(|value| value as f32).collect()).collect()
    }

    /// Sequence `index` of a step: inputs, or targets with `shift` 1.
    fn ids(&self, step: usize, index: usize, shift: usize) -> impl Iterator<Item = u32> {
        let start = (step * SEQUENCES + index) * (LENGTH + 1) + shift;
        self.numbers["ids"][start..start + LENGTH].iter().map(|&id| id as u32)
    }
}

fn tensors(bytes: &[u8]) -> File {
    let file = SafeTensors::deserialize(bytes).expect("a safetensors file");
    let numbers = |(name, view): (String, safetensors::tensor::TensorView)| {
        let data = view.data();
        let values = match view.dtype() {
            Dtype::F64 => data.chunks_exact(8).map(|x| f64::from_le_bytes(x.try_into().unwrap())).collect(),
            Dtype::F32 => data.chunks_exact(4).map(|x| f32::from_le_bytes(x.try_into().unwrap()).into()).collect(),
            Dtype::I32 => data.chunks_exact(4).map(|x| i32::from_le_bytes(x.try_into().unwrap()).into()).collect(),
            Dtype::BF16 => data.chunks_exact(2).map(|x| bf16::from_le_bytes([x[0], x[1]]).into()).collect(),
            Dtype::F16 => data.chunks_exact(2).map(|x| half::f16::from_le_bytes([x[0], x[1]]).into()).collect(),
            other => panic!("{name} is {other:?}"),
        };
        (name, values)
    };
    file.tensors().into_iter().map(numbers).collect()
}

/// The tensors of each unit, with their published names, and a flag for those published transposed.
fn by_unit<D: Device>(program: &'static Program<D>) -> Vec<Vec<(Tensor, String, bool)>> {
    let of_unit = |unit: &zero_plan::Unit| {
        let mut tensors = Tensors::default();
        if unit.params > 0 {
            program.code[unit.position].tensors(&mut tensors);
        }
        let named = |tensor: Tensor| {
            let transposed = tensor.weights.as_ref().is_some_and(|weights| weights.transposed);
            (tensor.clone(), published(unit, &tensor), transposed)
        };
        tensors.into_list().into_iter().map(named).collect()
    };
    program.plan.units.iter().map(of_unit).collect()
}

/// Elements of a published tensor in our order.
fn ours(tensor: &Tensor, theirs: &[f64], transposed: bool) -> Vec<f64> {
    assert_eq!(theirs.len(), tensor.len(), "{}", tensor.name);
    if !(transposed && tensor.shape.len() == 2) {
        return theirs.to_vec();
    }
    let (rows, cols) = (tensor.shape[0], tensor.shape[1]);
    (0..rows * cols).map(|i| theirs[i % cols * rows + i / cols]).collect()
}

/// Steps over two ranks with two sequences each, at a stage.
fn trained<D: Device>(program: &'static Program<D>, golden: &Golden, stage: u8) -> Outcome {
    let config = Config {
        mesh: Mesh::of_zero(2),
        sequences: 2,
        length: LENGTH,
        precision: program.plan.config.precision,
        transport: TransportKind::Local,
        ..CONFIG.at_stage(stage)
    };
    let batch = |step: u64, rank: usize, _: usize, ids: &mut [u32], targets: &mut [u32]| {
        for sequence in 0..2 {
            let (index, part) = (2 * rank + sequence, sequence * LENGTH..(sequence + 1) * LENGTH);
            ids[part.clone()].iter_mut().zip(golden.ids(step as usize, index, 0)).for_each(|(to, id)| *to = id);
            targets[part].iter_mut().zip(golden.ids(step as usize, index, 1)).for_each(|(to, id)| *to = id);
        }
    };
    train(program, config, HYPER, 5, Start::Flat(&golden.flat(program)), &batch)
}

/// Logits after each token of the first sequence.
fn logits<D: Device>(program: &'static Program<D>, golden: &Golden) -> Vec<f64> {
    let config = Config { mesh: Mesh::of_zero(1), sequences: 2, length: LENGTH, ..CONFIG.at_stage(0) };
    let config = Config { precision: program.plan.config.precision, transport: TransportKind::Local, ..config };
    let ids: Vec<u32> = golden.ids(0, 0, 0).collect();
    let flat = golden.flat(program);
    PlanBuf::new("", config, program.plan.units).with(|plan| {
        let predicted = local::run(
            plan,
            |_| false,
            |transport: Shared<_>| {
                let mut engine = Engine::new(program, transport);
                flat.iter().enumerate().for_each(|(unit, flat)| engine.load(unit, flat));
                let mut all = Vec::new();
                let mut row = vec![0.0; program.head.classes];
                for end in 1..=LENGTH {
                    engine.predict(&ids[..end], &mut row).expect("one rank");
                    all.extend(row.iter().map(|&logit| f64::from(logit)));
                }
                all
            },
        );
        predicted.expect("the memory of a tiny model").remove(0)
    })
}

/// The norm of the difference, relative to the norm of the expected numbers.
fn relative(found: &[f64], expected: &[f64]) -> f64 {
    assert_eq!(found.len(), expected.len());
    let norm = |values: &mut dyn Iterator<Item = f64>| values.map(|value| value * value).sum::<f64>().sqrt();
    let difference = norm(&mut found.iter().zip(expected).map(|(found, expected)| found - expected));
    difference / norm(&mut expected.iter().copied())
}

/// Compares a model with a golden folder: `allowed` are distances of logits, of all gradients together, of each alone,
/// and of losses and norms.
fn agrees<D: Device>(program: &'static Program<D>, name: &str, stages: &[u8], allowed: impl Fn(&Golden) -> [f64; 4]) {
    let golden = Golden::read(name);
    let [of_logits, of_gradients, of_each, of_losses] = allowed(&golden);
    let distance = relative(&logits(program, &golden), &golden.numbers["logits"]);
    assert!(distance < of_logits, "{name}: logits are off by {distance:.2e}");
    let mut names: Vec<String> = Vec::new();
    for &stage in stages {
        let outcome = trained(program, &golden, stage);
        let (mut found, mut expected) = (Vec::new(), Vec::new());
        for (named, flat) in by_unit(program).into_iter().zip(&outcome.gradients) {
            for (tensor, title, transposed) in named {
                let theirs = ours(&tensor, &golden.numbers[&format!("gradient.{title}")], transposed);
                // The sum over two ranks of means.
                let of_tensor = flat[tensor.start..tensor.start + tensor.len()].iter().map(|&sum| f64::from(sum) / 2.0);
                let of_tensor: Vec<f64> = of_tensor.collect();
                let distance = relative(&of_tensor, &theirs);
                // Parameters that cancel in the softmax have only rounding as their gradient.
                let is_noise = theirs.iter().all(|gradient| gradient.abs() < 1e-8);
                assert!(distance < of_each || is_noise, "{name}: gradient of `{title}` is off by {distance:.2e}");
                found.extend(of_tensor);
                expected.extend(theirs);
                names.push(title);
            }
        }
        let distance = relative(&found, &expected);
        assert!(distance < of_gradients, "{name} at stage {stage}: gradients are off by {distance:.2e}");
        for (what, found, expected) in [("loss", &outcome.losses, "losses"), ("norm", &outcome.norms, "norms")] {
            for (step, (found, expected)) in found.iter().zip(&golden.numbers[expected]).enumerate() {
                let distance = (found / expected - 1.0).abs();
                // AdamW turns gradients that are little more than rounding into full steps, which norms show first.
                let allowed = if what == "norm" && step > 0 { 10.0 * of_losses } else { of_losses };
                assert!(
                    distance < allowed,
                    "{name} at stage {stage}: {what} of step {step} is {found}, not {expected}"
                );
            }
        }
    }
    names.sort();
    names.dedup();
    assert!(names.iter().eq(golden.weights.keys()), "{name}: other tensors than published: {names:?}");
}

/// In f32, to the rounding of f32: about as `transformers` in f32 differs from itself in f64.
fn in_f32(golden: &Golden) -> [f64; 4] {
    let _ = golden;
    [1e-5, 1e-5, 3e-5, 1e-5]
}

/// In bf16, at most 1.5 times as far from exact numbers as `transformers` in bf16.
fn in_bf16(golden: &Golden) -> [f64; 4] {
    let [logits, gradients, losses] =
        ["logits", "gradients", "losses"].map(|what| golden.notes[&format!("bf16_{what}")]);
    [1.5 * logits, 1.5 * gradients, 10.0 * gradients, 3.0 * losses.max(gradients)]
}

macro_rules! agrees_with_transformers {
    ($($module:ident $narrow:ident = $name:literal),* $(,)?) => {
        $(
            #[test]
            fn $module() {
                agrees($module::Model::PROGRAM, $name, &[0, 1, 2, 3], in_f32);
            }

            #[test]
            fn $narrow() {
                agrees($narrow::Model::PROGRAM, $name, &[3], in_bf16);
            }
        )*
    };
}

agrees_with_transformers!(
    gpt2_tiny gpt2_tiny_bf16 = "gpt2-tiny",
    llama_tiny llama_tiny_bf16 = "llama-tiny",
    llama_tiny_tied llama_tiny_tied_bf16 = "llama-tiny-tied",
    qwen3_tiny qwen3_tiny_bf16 = "qwen3-tiny",
    qwen3_tiny_untied qwen3_tiny_untied_bf16 = "qwen3-tiny-untied",
    olmo3_tiny olmo3_tiny_bf16 = "olmo3-tiny",
);
