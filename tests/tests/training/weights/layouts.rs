//! Exports do not depend on ranks, and an import restores the exported parameters.

use std::fs;
use std::path::Path;

use safetensors::tensor::Dtype;
use zero_core::model::{Model, Program};
use zero_files::weights::WeightType;
use zero_plan::{Config, Mesh, Precision, Width};
use zero_runtime::device::Device;
use zero_tests::tiny::{Tied, Untied};
use zero_tests::training::{CONFIG, mesh};

use super::folder::{From, Job, export, files, name, named, numbers, tensors, write};

const ALONE: Config = Config { mesh: Mesh::of_zero(1), ..CONFIG };

fn layouts() -> Vec<Config> {
    let mut all = Vec::new();
    for stage in 0..4 {
        for mesh in [Mesh::of_zero(3), mesh(2, 1, 1), mesh(2, 2, 2)] {
            all.push(Config { mesh, micro_batches: 2, ..CONFIG.at_stage(stage) });
        }
        // Parameters in bf16, with a master copy.
        let precision = Precision { params: Width::BF16, ..Precision::default() };
        all.push(Config { mesh: Mesh::of_zero(2), precision, ..CONFIG.at_stage(stage) });
    }
    all
}

/// Exports from one rank, then imports and exports under every other layout: always the same files.
fn goes_around<D: Device>(program: &'static Program<D>, kind: WeightType, file_bytes_max: u64) {
    let root = tempfile::tempdir().unwrap();
    let first = root.path().join("first");
    let kind = Some(kind);
    export(program, ALONE, &Job { kind, file_bytes_max, ..Job::default() }, &first).unwrap();
    let first_files = files(&first);
    assert!(first_files.keys().any(|name| name.ends_with(".safetensors")));
    for (i, config) in layouts().into_iter().enumerate() {
        let again = root.path().join(i.to_string());
        let job = Job { from: From::Folder(&first), file_bytes_max, ..Job::default() };
        export(program, config, &job, &again).unwrap();
        assert!(files(&again) == first_files, "{config:?}");
    }
    let left: Vec<_> = fs::read_dir(root.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left.len(), 1 + layouts().len(), "a part is left: {left:?}");
}

#[test]
fn every_layout_imports_and_exports_the_same_f32() {
    goes_around(Untied::PROGRAM, WeightType::F32, u64::MAX);
}

#[test]
fn every_layout_imports_and_exports_the_same_bf16_of_a_tied_model() {
    goes_around(Tied::PROGRAM, WeightType::BF16, u64::MAX);
}

#[test]
fn every_layout_imports_and_exports_the_same_f16_in_several_files() {
    goes_around(Tied::PROGRAM, WeightType::F16, 5000);
}

/// Each tensor of a folder is where its name says in the flat buffers of the units.
fn assert_holds<D: Device>(program: &'static Program<D>, path: &Path, units: &[Vec<f32>]) {
    let mut found = tensors(&path.join("model.safetensors"));
    for (unit, flat) in program.plan.units.iter().zip(units).filter(|(unit, _)| unit.params > 0) {
        for (name, tensor) in named(program, unit) {
            let (dtype, shape, data) = found.remove(&name).expect(&name);
            assert_eq!((dtype, &shape), (Dtype::F32, &tensor.shape), "{name}");
            assert!(numbers(&data) == flat[tensor.start..tensor.start + tensor.len()], "{name}");
        }
    }
    assert!(found.is_empty(), "{:?}", found.keys());
}

#[test]
fn what_was_trained_is_what_is_exported() {
    for stage in [0, 1, 3] {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("trained");
        let config = Config { mesh: Mesh::of_zero(2), ..CONFIG.at_stage(stage) };
        let job = Job { steps: 2, ..Job::default() };
        let units = export(Tied::PROGRAM, config, &job, &path).unwrap();
        assert_holds(Tied::PROGRAM, &path, &units);
        let untrained = root.path().join("untrained");
        export(Tied::PROGRAM, config, &Job::default(), &untrained).unwrap();
        assert!(files(&path) != files(&untrained));
    }
}

#[test]
fn a_master_copy_is_exported_in_all_its_bits() {
    let root = tempfile::tempdir().unwrap();
    let precision = Precision { params: Width::BF16, ..Precision::default() };
    let config = Config { mesh: Mesh::of_zero(2), precision, ..CONFIG.at_stage(2) };
    let [wide, narrow] = ["wide", "narrow"].map(|name| root.path().join(name));
    export(Untied::PROGRAM, ALONE, &Job::default(), &wide).unwrap();
    let units = export(Untied::PROGRAM, config, &Job::default(), &narrow).unwrap();
    assert!(files(&wide) == files(&narrow), "the first values, in f32");
    let rounded = units.iter().flatten().all(|value| value.to_bits().trailing_zeros() >= 16);
    assert!(rounded, "layers compute on bf16");
}

#[test]
fn z0368_a_number_that_has_no_f16() {
    let root = tempfile::tempdir().unwrap();
    let [first, second] = ["first", "second"].map(|name| root.path().join(name));
    export(Untied::PROGRAM, ALONE, &Job::default(), &first).unwrap();
    let file = first.join("model.safetensors");
    let mut all = tensors(&file);
    let gain = name(Untied::PROGRAM, "norm", 0);
    all.get_mut(&gain).unwrap().2[4..8].copy_from_slice(&1e6f32.to_le_bytes());
    write(&file, &all);
    let job = Job { from: From::Folder(&first), kind: Some(WeightType::F16), ..Job::default() };
    let error = export(Untied::PROGRAM, ALONE, &job, &second).unwrap_err().to_string();
    let words = format!("error[Z0368]: `{gain}` has 1e6 at element 1, which f16 has no finite number for");
    assert!(error.starts_with(&words), "{error}");
    // The error names a folder with all numbers, also if another rank has found the one without a value.
    let rescued = |root: &Path| {
        let names = fs::read_dir(root).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name != "first").collect::<Vec<_>>()
    };
    let [folder] = &rescued(root.path())[..] else { panic!("{:?}", rescued(root.path())) };
    assert!(error.contains(&format!("/{folder}`, in f32")), "{error}");
    let folder = root.path().join(folder);
    assert!(tensors(&folder.join("model.safetensors")) == all);
    fs::remove_dir_all(folder).unwrap();
    let two = Config { mesh: Mesh::of_zero(2), ..CONFIG.at_stage(3) };
    export(Untied::PROGRAM, two, &job, &second).unwrap_err();
    let [folder] = &rescued(root.path())[..] else { panic!("{:?}", rescued(root.path())) };
    assert!(tensors(&root.path().join(folder).join("model.safetensors")) == all);
}
