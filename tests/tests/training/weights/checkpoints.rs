//! A checkpoint initialises the parameters of any layout of its own model, from its master copy; another model is refused by name.

use std::path::{Path, PathBuf};

use zero_core::model::{Model, Program};
use zero_files::checkpoint::{
    Checkpoint, DataPosition, FORMAT, InitialCheckpoint, Manifest, PlanInfo, Shard, ShardWriter, SpecInfo, Store,
    System, TensorInfo, TensorRun, WriterVersions,
};
use zero_files::weights::model_tensors;
use zero_plan::place::State;
use zero_plan::{Config, Mesh, Precision, Width};
use zero_runtime::device::Device;
use zero_tests::tiny::{Tied, Untied};
use zero_tests::training::{CONFIG, mesh};

use super::folder::{From, Job, export, files};

/// A checkpoint of three ranks with these parameters in a master copy, and different numbers as the layers' parameters.
fn save<D: Device>(program: &'static Program<D>, root: &Path, units: &[Vec<f32>]) -> PathBuf {
    const RANKS: usize = 3;
    let own = model_tensors(program).into_iter().filter(|named| !named.is_alias);
    let tensors: Vec<TensorInfo> = own
        .map(|it| TensorInfo {
            name: it.name,
            shape: it.shape,
            transposed: it.transposed,
            unit: it.unit,
            start: it.start,
        })
        .collect();
    let store = Store::open(root).expect("a folder");
    store.begin(&System, 9, 0).expect("a folder");
    for rank in 0..RANKS {
        let entries = [State::Parameters, State::Master].into_iter().flat_map(|state| {
            tensors.iter().enumerate().map(move |(tensor, info)| {
                let (start, end) = (info.elements() * rank / RANKS, info.elements() * (rank + 1) / RANKS);
                TensorRun { state, tensor, start, len: end - start, width: Width::F32 }
            })
        });
        let shard = Shard::new(rank, &tensors, entries.collect());
        let mut writer = ShardWriter::begin(&System, &Store::partial(root, 9), &shard, 9).expect("a file");
        for entry in shard.entries() {
            let info = &tensors[entry.tensor];
            let first = info.start + entry.start;
            let values = &units[info.unit][first..first + entry.len];
            let bytes = values.iter().flat_map(|&value| match entry.state {
                State::Master => value.to_le_bytes(),
                _ => (value + 1.0).to_le_bytes(),
            });
            writer.write(&bytes.collect::<Vec<u8>>()).expect("written");
        }
        writer.finish().expect("on the disk");
    }
    let manifest = Manifest {
        format: FORMAT,
        step: 9,
        seed: 0,
        model: "tiny".to_owned(),
        tensors,
        config: (program.config)(),
        arguments: serde_json::Map::new(),
        data: DataPosition::default(),
        spec: SpecInfo::default(),
        plan: PlanInfo { ranks: RANKS, ..PlanInfo::default() },
        loss: None,
        gradient_norm: None,
        versions: WriterVersions::default(),
        written_at: String::new(),
        files: Vec::new(),
        published: Vec::new(),
    };
    store.publish(&System, 9, manifest, &[], RANKS, None).expect("a checkpoint")
}

fn goes_on<D: Device>(program: &'static Program<D>) {
    let root = tempfile::tempdir().expect("a directory");
    let first = root.path().join("first");
    let alone = Config { mesh: Mesh::of_zero(1), ..CONFIG };
    let units = export(program, alone, &Job::default(), &first).expect("a folder");
    let checkpoint = save(program, &root.path().join("run"), &units);
    let narrow = Precision { params: Width::BF16, ..Precision::default() };
    for (i, config) in [
        alone,
        Config { mesh: Mesh::of_zero(3), ..CONFIG.at_stage(3) },
        Config { mesh: mesh(2, 2, 2), micro_batches: 2, ..CONFIG.at_stage(1) },
        Config { mesh: Mesh::of_zero(2), precision: narrow, ..CONFIG.at_stage(2) },
    ]
    .into_iter()
    .enumerate()
    {
        let again = root.path().join(i.to_string());
        export(program, config, &Job { from: From::Checkpoint(&checkpoint), ..Job::default() }, &again)
            .expect("a folder");
        assert!(files(&again) == files(&first), "{config:?}");
    }
    // The same without any engine.
    let again = root.path().join("again");
    let opened = Checkpoint::open(&checkpoint).expect("a checkpoint");
    zero_files::checkpoint::export(&opened, &again, None, &|_| {}).expect("a folder");
    assert!(files(&again) == files(&first));
}

#[test]
fn every_layout_takes_the_master_copy_of_a_checkpoint() {
    goes_on(Untied::PROGRAM);
    goes_on(Tied::PROGRAM);
}

#[test]
fn z0390_a_checkpoint_of_another_model() {
    let root = tempfile::tempdir().expect("a directory");
    let alone = Config { mesh: Mesh::of_zero(1), ..CONFIG };
    let units = export(Untied::PROGRAM, alone, &Job::default(), &root.path().join("first")).expect("a folder");
    let path = save(Untied::PROGRAM, &root.path().join("run"), &units);
    assert!(InitialCheckpoint::is_one(&path) && !InitialCheckpoint::is_one(root.path()));
    let error = InitialCheckpoint::open(Tied::PROGRAM, &path).expect_err("another model").report();
    assert!(error.starts_with("error[Z0390]: `") && error.contains("is of another model:\n      `"), "{error}");
    assert!(error.contains("expected nothing, found ["), "{error}");
}
