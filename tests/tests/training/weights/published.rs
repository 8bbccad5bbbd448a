//! A model with the names, the transposed matrices and the config of a published one.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tempfile::TempDir;
use zero_core::model::Model;
use zero_files::weights::{Import, WeightType};
use zero_plan::{Config, Mesh};
use zero_tests::published::Published;
use zero_tests::training::{CONFIG, mesh};

use super::folder::{Content, From, Job, export, files, named, numbers, tensors, write};

const ALONE: Config = Config { mesh: Mesh::of_zero(1), ..CONFIG };
const FILE: &str = "model.safetensors";

fn folder() -> (TempDir, PathBuf) {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("published");
    export(Published::PROGRAM, ALONE, &Job::default(), &path).unwrap();
    (root, path)
}

fn change_tensors(path: &Path, change: impl FnOnce(BTreeMap<String, Content>) -> BTreeMap<String, Content>) {
    write(&path.join(FILE), &change(tensors(&path.join(FILE))));
}

fn change_config(path: &Path, key: &str, value: Value) {
    let file = path.join("config.json");
    let mut config: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    config[key] = value;
    fs::write(file, config.to_string()).unwrap();
}

#[test]
fn matrices_lie_transposed_under_their_published_names() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("published");
    let units = export(Published::PROGRAM, CONFIG, &Job::default(), &path).unwrap();
    let mut found = tensors(&path.join(FILE));
    let (mut transposed, mut others) = (0, 0);
    for (unit, flat) in PLAN_UNITS.iter().zip(&units).filter(|(unit, _)| unit.params > 0) {
        for (name, tensor) in named(Published::PROGRAM, unit) {
            let (_, shape, data) = found.remove(&name).expect(&name);
            let (data, own) = (numbers(&data), &flat[tensor.start..tensor.start + tensor.len()]);
            if name.contains("attn") && name.ends_with("weight") || name.contains("mlp") && name.ends_with("weight") {
                let (rows, columns) = (tensor.shape[0], tensor.shape[1]);
                assert_eq!(shape, [columns, rows], "{name}");
                let is_equal =
                    |i: usize| own[i / columns * columns + i % columns] == data[i % columns * rows + i / columns];
                assert!((0..own.len()).all(is_equal), "{name}");
                transposed += 1;
            } else {
                assert_eq!((shape, &data[..]), (tensor.shape, own), "{name}");
                others += 1;
            }
        }
    }
    assert_eq!((transposed, others, found.len()), (8, 20, 0));
    let config: Value = serde_json::from_slice(&fs::read(path.join("config.json")).unwrap()).unwrap();
    assert_eq!((&config["n_embd"], &config["dtype"]), (&json!(24), &json!("float32")));
}

const PLAN_UNITS: &[zero_plan::Unit] = <Published as zero_core::model::Model>::PLAN.units;

#[test]
fn every_layout_imports_and_exports_transposed_matrices() {
    let (root, path) = folder();
    for kind in [None, Some(WeightType::BF16)] {
        let first = root.path().join(format!("first {kind:?}"));
        export(Published::PROGRAM, ALONE, &Job { from: From::Folder(&path), kind, ..Job::default() }, &first).unwrap();
        for (stage, mesh) in [(0, mesh(1, 2, 2)), (1, mesh(2, 1, 2)), (3, Mesh::of_zero(3)), (3, mesh(2, 1, 5))] {
            let again = root.path().join(format!("{kind:?} {stage} {mesh:?}"));
            let config = Config { mesh, micro_batches: 2, ..CONFIG.at_stage(stage) };
            export(Published::PROGRAM, config, &Job { from: From::Folder(&first), ..Job::default() }, &again).unwrap();
            assert!(files(&again) == files(&first), "{config:?}");
        }
    }
}

/// The files of GPT-2 itself have masks, and lack the prefix of later files.
#[test]
fn a_folder_without_a_prefix_keeps_its_names_and_files() {
    let (root, path) = folder();
    change_tensors(&path, |all| {
        let mut all: BTreeMap<_, _> =
            all.into_iter().map(|(name, it)| (name.strip_prefix("transformer.").expect("it").to_owned(), it)).collect();
        let mask = (safetensors::Dtype::BOOL, vec![1, 1, 12, 12], vec![1; 144]);
        all.insert("h.0.attn.bias".to_owned(), mask);
        all
    });
    change_config(&path, "torch_dtype", json!("float32"));
    change_config(&path, "resid_pdrop", json!(0.1));
    fs::write(path.join("tokenizer.json"), "{}").unwrap();
    fs::write(path.join("README.md"), "theirs").unwrap();
    let notes = Import::open(Published::PROGRAM, &path).unwrap().notes;
    assert_eq!(notes.len(), 2, "{notes:?}");
    assert!(notes[0].contains("`resid_pdrop` is 0.1") && notes[1].contains("without `transformer.`"), "{notes:?}");
    let again = root.path().join("again");
    export(Published::PROGRAM, CONFIG.at_stage(3), &Job { from: From::Folder(&path), ..Job::default() }, &again)
        .unwrap();
    let (mut expected, found) = (tensors(&path.join(FILE)), tensors(&again.join(FILE)));
    expected.remove("h.0.attn.bias");
    assert!(expected == found);
    let (old, new) = (files(&path), files(&again));
    assert_eq!(new.keys().collect::<Vec<_>>(), ["config.json", FILE, "tokenizer.json"]);
    assert!(old["config.json"] == new["config.json"] && old["tokenizer.json"] == new["tokenizer.json"]);
    // Another `model_type` makes it another config.
    let narrow = root.path().join("narrow");
    let job = Job { from: From::Folder(&path), kind: Some(WeightType::BF16), ..Job::default() };
    export(Published::PROGRAM, ALONE, &job, &narrow).unwrap();
    let config: Value = serde_json::from_slice(&files(&narrow)["config.json"]).unwrap();
    let said = ["torch_dtype", "dtype", "n_embd"].map(|key| &config[key]);
    assert_eq!(said, [&json!("bfloat16"), &json!("bfloat16"), &json!(24)]);
}

#[test]
fn a_repeated_head_is_exported_again() {
    let (root, path) = folder();
    change_tensors(&path, |mut all| {
        all.insert("lm_head.weight".to_owned(), all["transformer.wte.weight"].clone());
        all
    });
    let again = root.path().join("again");
    export(Published::PROGRAM, CONFIG.at_stage(3), &Job { from: From::Folder(&path), ..Job::default() }, &again)
        .unwrap();
    assert!(tensors(&path.join(FILE)) == tensors(&again.join(FILE)));
}

/// As `safetensors.torch.save_model` writes a tied model.
#[test]
fn a_tied_matrix_may_have_the_name_of_the_head_alone() {
    let (root, path) = folder();
    let sound = tensors(&path.join(FILE));
    for prefix in ["transformer.", ""] {
        write(&path.join(FILE), &sound);
        change_tensors(&path, |mut all| {
            let tied = all.remove("transformer.wte.weight").expect("it");
            let renamed = all.into_iter().map(|(name, it)| (name.replace("transformer.", prefix), it));
            renamed.chain([("lm_head.weight".to_owned(), tied)]).collect()
        });
        let again = root.path().join(format!("again {prefix}"));
        let job = Job { from: From::Folder(&path), ..Job::default() };
        export(Published::PROGRAM, CONFIG.at_stage(3), &job, &again).unwrap();
        assert!(tensors(&path.join(FILE)) == tensors(&again.join(FILE)));
    }
    change_tensors(&path, |mut all| {
        all.remove("lm_head.weight").expect("it");
        all
    });
    let error = Import::open(Published::PROGRAM, &path).unwrap_err();
    assert_eq!(error.code(), "Z0363");
    assert!(error.report().contains("`wte.weight` ["), "{}", error.report());
}

/// Python writes numbers that JSON does not have, and editors a mark in front of a text.
#[test]
fn a_config_as_python_and_editors_write_it() {
    let (root, path) = folder();
    let file = path.join("config.json");
    let sound = fs::read_to_string(&file).unwrap();
    let other = |more: &str| format!("\u{feff}{}, {more}}}", sound.trim_end().strip_suffix('}').unwrap());
    fs::write(&file, other(r#""time_step_limit": [0.0, Infinity], "initializer_range": NaN"#)).unwrap();
    let notes = Import::open(Published::PROGRAM, &path).unwrap().notes;
    assert!(notes.len() == 1 && notes[0].contains("`time_step_limit`"), "{notes:?}");
    // They are written again as they were, with another type beside them.
    let again = root.path().join("again");
    let job = Job { from: From::Folder(&path), kind: Some(WeightType::BF16), ..Job::default() };
    export(Published::PROGRAM, ALONE, &job, &again).unwrap();
    let written = fs::read_to_string(again.join("config.json")).unwrap();
    for part in ["Infinity\n", "\"initializer_range\": NaN", "\"bfloat16\""] {
        assert!(written.contains(part), "{written}");
    }
    fs::write(&file, sound.replace("\"n_head\": 3", "\"n_head\": -Infinity")).unwrap();
    let error = Import::open(Published::PROGRAM, &path).unwrap_err().report();
    assert!(error.starts_with("error[Z0366]") && error.contains("`n_head`: expected 3, found \"-Infinity"), "{error}");
}

#[test]
fn z0366_a_config_of_another_model() {
    let (_root, path) = folder();
    for (key, value) in
        [("n_head", json!(4)), ("scale_attn_by_inverse_layer_idx", json!(true)), ("model_type", json!("llama"))]
    {
        change_config(&path, key, value);
    }
    let error = Import::open(Published::PROGRAM, &path).unwrap_err();
    assert_eq!(error.code(), "Z0366");
    let error = error.report();
    for words in [
        "config.json` is of another model",
        "`n_head`: expected 3, found 4",
        "`scale_attn_by_inverse_layer_idx`: expected false, found true",
        "`model_type`: expected \"gpt2\", found \"llama\"",
    ] {
        assert!(error.contains(words), "{error}");
    }
    fs::write(path.join("config.json"), "[]").unwrap();
    assert_eq!(Import::open(Published::PROGRAM, &path).unwrap_err().code(), "Z0361");
    fs::remove_file(path.join("config.json")).unwrap();
    assert_eq!(Import::open(Published::PROGRAM, &path).unwrap_err().code(), "Z0360");
}

#[test]
fn what_ranks_agree_on_is_headers_and_config() {
    let (_root, path) = folder();
    let fingerprint = || Import::open(Published::PROGRAM, &path).unwrap().folder.fingerprint;
    let first = fingerprint();
    assert_eq!(fingerprint(), first);
    change_config(&path, "use_cache", json!(true));
    let second = fingerprint();
    assert_ne!(second, first);
    change_tensors(&path, |mut all| {
        all.insert("transformer.h.0.attn.masked_bias".to_owned(), (safetensors::Dtype::F32, vec![], vec![0; 4]));
        all
    });
    assert_ne!(fingerprint(), second);
}
