//! Saves and resumes engines on threads, as a run does, reads saved states by tensor, and knows what a rank should publish.

use std::path::{Path, PathBuf};

use zero_core::device::Element;
use zero_core::model::Program;
use zero_engine::Engine;
use zero_files::checkpoint::{
    Checkpoint, Elements, FORMAT, Manifest, Shard, ShardWriter, Store, System, entries, tensors_of,
};
use zero_plan::Width;
use zero_plan::place::State;
use zero_ranks::transport::Transport;
use zero_runtime::device::{Device, bf16};

/// A manifest that records only the tensors and the step.
pub fn manifest<D>(program: &Program<D>, step: u64) -> Manifest {
    Manifest {
        format: FORMAT,
        step,
        model: program.plan.model.to_owned(),
        tensors: tensors_of(program),
        config: (program.config)(),
        ..Manifest::default()
    }
}

/// Writes a checkpoint of an engine to the folder of a run, from a copy if the plan has room for one. Every rank calls it.
///
/// # Panics
/// If the checkpoint cannot be written.
pub fn save<'p, D: Device, T: Transport<'p, D>>(engine: &mut Engine<'p, D, T>, folder: &Path) -> PathBuf {
    engine.finish_step().expect("no rank fails");
    let (rank, step, manifest) =
        (engine.arena().rank(), engine.steps_done(), manifest(engine.program(), engine.steps_done()));
    let shard = Shard::new(rank, &manifest.tensors, entries(engine, &manifest.tensors));
    let store = (rank == 0).then(|| {
        let store = Store::open(folder).expect("a folder");
        store.begin(&System, step, 0).expect("room");
        store
    });
    engine.gather_numbers(&[0.0]).expect("no rank fails");
    let mut writer = ShardWriter::begin(&System, &Store::partial(folder, step), &shard, step).expect("a file");
    match engine.snapshot() {
        Some(snapshot) => snapshot.read(|bytes| writer.write(bytes)),
        None => engine.read_saved(|bytes| writer.write(bytes)),
    }
    .expect("room");
    writer.finish().expect("room");
    engine.gather_numbers(&[0.0]).expect("no rank fails");
    let ranks = engine.plan().config.mesh.ranks();
    let published = store.map(|store| store.publish(&System, step, manifest, &[], ranks, None).expect("a checkpoint"));
    engine.gather_numbers(&[0.0]).expect("no rank fails");
    published.unwrap_or_else(|| Store::checkpoints(folder).expect("a folder")[0].path.clone())
}

/// Loads a checkpoint into a fresh engine, after verifying it. Every rank calls it.
///
/// # Panics
/// If it cannot be read.
pub fn resume<'p, D: Device, T: Transport<'p, D>>(engine: &mut Engine<'p, D, T>, path: &Path) {
    let checkpoint = Checkpoint::open(path).expect("a checkpoint");
    let tensors = checkpoint.require_model(engine.program()).expect("the model");
    let chunks: Vec<_> = checkpoint.chunks_for(&tensors, engine).expect("all elements").into_iter().collect();
    checkpoint.verify(&chunks, 1, &|_| {}).expect("a whole one");
    checkpoint.load(&tensors, engine).expect("a whole one");
}

/// Bits of all elements of a state by tensor; none if there is no such state.
///
/// # Panics
/// If it cannot be read.
pub fn bits(path: &Path, state: State) -> Option<Vec<Vec<u32>>> {
    let checkpoint = Checkpoint::open(path).expect("a checkpoint");
    let mut elements = checkpoint.has(state).then(|| Elements::all(&checkpoint, state).expect("all elements"))?;
    let tensors = checkpoint.lens().into_iter().enumerate().map(|(tensor, len)| {
        let mut values = vec![0.0; len];
        elements.read(tensor, 0, &mut values).expect("a whole one");
        values.into_iter().map(f32::to_bits).collect()
    });
    Some(tensors.collect())
}

/// What a rank should offer, by what it stores.
///
/// # Panics
/// If an engine lacks a state that it offers.
pub fn offered<'p, D: Device, T: Transport<'p, D>>(engine: &Engine<'p, D, T>) -> Vec<u8> {
    let places = engine.arena().places();
    let mut bytes = Vec::new();
    for unit in 0..engine.plan().units.len() {
        let Some(offered) = places.offered(unit) else { continue };
        let (stored, numbers) = engine.state(places.published_state(), unit).expect("a state of what is offered");
        for number in &numbers[offered.start - stored.start..][..offered.len] {
            match engine.plan().config.publish.dtype {
                Width::F32 => bytes.extend(number.to_le_bytes()),
                Width::BF16 => bytes.extend(bf16::narrow(*number).to_le_bytes()),
            }
        }
    }
    bytes
}
