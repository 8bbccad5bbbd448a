//! Folders that `transformers` has written are imported under several layouts, produce the same tokens, and are exported again to
//! the bit.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use safetensors::{Dtype, SafeTensors};
use zero_core::model::{Model, Program};
use zero_engine::Engine;
use zero_files::weights::{Export, Import, Publication};
use zero_plan::{Config, Mesh, PlanBuf, Recompute, TransportKind};
use zero_ranks::transport::{Shared, local};
use zero_runtime::__tests::{Sampler, Sampling};
use zero_runtime::device::Cpu;
use zero_tests::training::{CONFIG, mesh};

use super::sized::*;

/// Layouts that read and write in different ways.
fn layouts() -> [Config; 4] {
    let plain = Config { sequences: 2, length: 31, transport: TransportKind::Local, ..CONFIG };
    [
        Config { mesh: Mesh::of_zero(1), ..plain.at_stage(0) },
        Config { mesh: Mesh::of_zero(3), transport: TransportKind::Shm, ..plain.at_stage(3) },
        Config { mesh: mesh(2, 1, 2), recompute: Recompute::Fields(&["blocks"]), ..plain.at_stage(2) },
        Config { mesh: mesh(2, 2, 1), ..plain.at_stage(1) },
    ]
}

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/models").join(name)
}

/// Type, shape and bytes of each tensor.
type Contents = BTreeMap<String, (Dtype, Vec<usize>, Vec<u8>)>;

fn contents(folder: &Path) -> Contents {
    let bytes = std::fs::read(folder.join("model.safetensors")).expect("weights");
    let tensors = SafeTensors::deserialize(&bytes).expect("a safetensors file").tensors();
    let whole = |(name, view): (String, safetensors::tensor::TensorView)| {
        (name, (view.dtype(), view.shape().to_vec(), view.data().to_vec()))
    };
    tensors.into_iter().map(whole).collect()
}

/// The ids of a tensor of the golden file.
fn ids(name: &str, tensor: &str) -> Vec<u32> {
    let bytes = std::fs::read(folder(name).join("golden.safetensors")).expect("a golden file");
    let file = SafeTensors::deserialize(&bytes).expect("a safetensors file");
    let view = file.tensor(tensor).expect("ids");
    view.data().chunks_exact(4).map(|id| u32::from_le_bytes(id.try_into().expect("four bytes"))).collect()
}

/// The likeliest tokens after a prompt, with a cache or recomputed from all tokens.
fn greedy<'p>(engine: &mut Engine<'p, Cpu, Shared<'p, Cpu>>, prompt: &[u32], count: usize, caches: bool) -> Vec<u32> {
    let classes = engine.program().head.classes;
    let (mut sampler, mut logits) = (Sampler::new(Sampling::GREEDY, classes), vec![0.0; classes]);
    let (mut ids, mut before) = (prompt.to_vec(), 0);
    for _ in 0..count {
        let has_logits =
            if caches { engine.decode(&ids[before..], before, &mut logits) } else { engine.predict(&ids, &mut logits) };
        before = ids.len();
        let choice =
            if has_logits.expect("a prediction") { sampler.choose(&logits, 0.5).expect("finite logits") } else { 0 };
        ids.push(engine.from_last_pipeline_stage(f64::from(choice)).expect("a number") as u32);
    }
    ids.split_off(prompt.len())
}

fn goes_in_and_out(program: &'static Program<Cpu>, name: &str) {
    let (import, expected) =
        (Import::open(program, &folder(name)).unwrap_or_else(|e| panic!("{}", e.report())), contents(&folder(name)));
    let (prompt, said) = (ids(name, "prompt"), ids(name, "greedy"));
    for (number, config) in layouts().into_iter().enumerate() {
        let directory = tempfile::tempdir().expect("a directory");
        let out = directory.path().join("out");
        let publication = Publication::of_import(&import).expect("files of the folder");
        let export = Export::new(&out, &publication, None).unwrap_or_else(|e| panic!("{}", e.report()));
        let samples = PlanBuf::new("", config, program.plan.units).with(|plan| {
            local::run(
                plan,
                |_| false,
                |transport| {
                    let mut engine = Engine::new(program, transport);
                    import.load(&mut engine).expect("whole weights");
                    let samples = [false, true].map(|caches| greedy(&mut engine, &prompt, said.len(), caches));
                    export.write(&mut engine, &publication, None).expect("a writable directory");
                    samples
                },
            )
        });
        for samples in samples.expect("the memory of a tiny model") {
            assert_eq!(samples, [said.clone(), said.clone()], "{name} on layout {number}");
        }
        assert!(contents(&out) == expected, "{name}: other weights after layout {number}");
        let config = |folder: &Path| -> serde_json::Value {
            serde_json::from_slice(&std::fs::read(folder.join("config.json")).expect("a config")).expect("JSON")
        };
        assert_eq!(config(&out), config(&folder(name)), "{name}: another config");
    }
}

macro_rules! go_in_and_out {
    ($($module:ident = $name:literal),* $(,)?) => {
        $(
            #[test]
            fn $module() {
                goes_in_and_out($module::Model::PROGRAM, $name);
            }
        )*
    };
}

go_in_and_out!(
    gpt2_tiny = "gpt2-tiny",
    llama_tiny = "llama-tiny",
    llama_tiny_tied = "llama-tiny-tied",
    qwen3_tiny = "qwen3-tiny",
    qwen3_tiny_untied = "qwen3-tiny-untied",
    olmo3_tiny = "olmo3-tiny",
);
