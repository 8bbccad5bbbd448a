//! Folders that are refused, each for one fault, before training.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use tempfile::TempDir;
use zero_core::model::Model;
use zero_files::weights::{Import, WeightsError};
use zero_plan::{Config, Mesh};
use zero_tests::tiny::{Tied, Untied};
use zero_tests::training::CONFIG;

use super::folder::{Content, Job, export, files, name, tensors, write};
use super::largest_allocation;

const ALONE: Config = Config { mesh: Mesh::of_zero(1), ..CONFIG };
const INDEX: &str = "model.safetensors.index.json";

/// A sound folder of [`Untied`], in one file or in several.
fn sound(file_bytes_max: u64) -> (TempDir, PathBuf) {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("folder");
    export(Untied::PROGRAM, ALONE, &Job { file_bytes_max, ..Job::default() }, &path).unwrap();
    (root, path)
}

/// The files of tensors of a folder that has several.
fn parts(path: &Path) -> Vec<String> {
    files(path).into_keys().filter(|name| name.ends_with(".safetensors")).collect()
}

/// The error of a folder.
fn refused(path: &Path, code: &str) -> String {
    let error = Import::open(Untied::PROGRAM, path).expect_err(code);
    assert_eq!(error.code(), code, "{error}");
    error.report()
}

/// The error after the tensors of a sound file are changed.
fn changed(code: &str, change: impl FnOnce(&mut BTreeMap<String, Content>)) -> String {
    let (_root, path) = sound(u64::MAX);
    let file = path.join("model.safetensors");
    let mut all = tensors(&file);
    change(&mut all);
    write(&file, &all);
    refused(&path, code)
}

/// The first tensor of the last norm.
fn gain() -> String {
    name(Untied::PROGRAM, "norm", 0)
}

fn has(error: &str, words: &[&str]) {
    words.iter().for_each(|words| assert!(error.contains(words), "{words}: {error}"));
}

#[test]
fn z0360_what_is_not_there() {
    let (root, path) = sound(5000);
    has(&refused(&root.path().join("nowhere"), "Z0360"), &["nowhere", "No such file"]);
    has(&refused(&path.join(INDEX), "Z0360"), &[INDEX, "not a directory"]);
    let second = &parts(&path)[1];
    fs::remove_file(path.join(second)).unwrap();
    has(&refused(&path, "Z0360"), &[&format!("{second}`: entity not found")]);
    fs::remove_file(path.join(INDEX)).unwrap();
    has(&refused(&path, "Z0360"), &["model.safetensors`: "]);
}

/// People give the name that other tools download.
#[test]
fn z0360_a_name_of_the_hub_is_no_folder() {
    for name in ["Qwen/Qwen3-4B", "gpt2"] {
        has(
            &refused(Path::new(name), "Z0360"),
            &[&format!("there is no folder `{name}`"), "`hf download NAME --local-dir"],
        );
    }
}

#[test]
fn z0356_a_pointer_of_git_lfs_is_no_file_of_weights() {
    for name in ["model.safetensors", "config.json"] {
        let (_root, path) = sound(u64::MAX);
        fs::write(path.join(name), "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 151234567\n")
            .unwrap();
        has(&refused(&path, "Z0356"), &[&format!("{name}` is a pointer of Git LFS"), "git lfs pull"]);
    }
}

#[test]
fn z0361_files_that_are_cut_off_or_lie() {
    let (_root, path) = sound(u64::MAX);
    let file = path.join("model.safetensors");
    let len = fs::metadata(&file).unwrap().len();
    File::options().write(true).open(&file).unwrap().set_len(len - 1).unwrap();
    has(&refused(&path, "Z0361"), &["model.safetensors` has `", "expected"]);
    File::options().write(true).open(&file).unwrap().set_len(5).unwrap();
    has(&refused(&path, "Z0361"), &["model.safetensors` has 5 bytes, expected at least 8"]);

    let (_root, path) = sound(5000);
    let index = path.join(INDEX);
    let text = fs::read_to_string(&index).unwrap();
    fs::write(&index, text.replace(&format!("\"{}\"", gain()), "\"norm.loss\"")).unwrap();
    has(&refused(&path, "Z0361"), &["index.json` names `norm.loss` in `model-"]);
    fs::write(&index, &text[1..]).unwrap();
    has(&refused(&path, "Z0361"), &["index.json` is not understood"]);
}

#[test]
fn z0361_nothing_is_allocated_by_a_lie() {
    let root = tempfile::tempdir().unwrap();
    let file = root.path().join("model.safetensors");
    let lie = |length: u64, header: &str| {
        fs::write(&file, [&length.to_le_bytes()[..], header.as_bytes()].concat()).unwrap();
        let most =
            largest_allocation(|| assert_eq!(Import::open(Untied::PROGRAM, root.path()).unwrap_err().code(), "Z0361"));
        assert!(most < 1 << 16, "{most} bytes for {length}: {header}");
    };
    lie(99_000_000, "{}");
    lie(u64::MAX, "{}");
    let huge = r#"{"a":{"dtype":"F32","shape":[4611686018427387903],"data_offsets":[0,18446744073709551612]}}"#;
    lie(huge.len() as u64, huge);
}

#[test]
fn z0362_an_index_that_names_files_elsewhere() {
    let (root, path) = sound(5000);
    let (index, first) = (path.join(INDEX), &parts(&path)[0]);
    let text = fs::read_to_string(&index).unwrap();
    let outside = root.path().join("outside.safetensors");
    fs::rename(path.join(first), &outside).unwrap();
    for name in ["../outside.safetensors", outside.to_str().unwrap(), "below/../../outside.safetensors", ".."] {
        fs::write(&index, text.replace(first, name)).unwrap();
        has(&refused(&path, "Z0362"), &["index.json` names `", name]);
    }
}

/// In caches of Hugging Face, `snapshots/REVISION/NAME` is a link to `../../blobs/HASH`, and in folders made from one, a
/// link to anywhere.
#[test]
fn files_may_be_links_and_must_lead_somewhere() {
    let (root, path) = sound(5000);
    let snapshot = root.path().join("snapshots/main");
    fs::create_dir_all(&snapshot).unwrap();
    fs::create_dir(root.path().join("blobs")).unwrap();
    for name in files(&path).keys() {
        fs::rename(path.join(name), root.path().join("blobs").join(name)).unwrap();
        symlink(Path::new("../../blobs").join(name), snapshot.join(name)).unwrap();
        symlink(root.path().join("blobs").join(name), path.join(name)).unwrap();
    }
    for folder in [&snapshot, &path] {
        assert!(Import::open(Untied::PROGRAM, folder).is_ok(), "{}", folder.display());
    }
    fs::remove_file(root.path().join("blobs").join(INDEX)).unwrap();
    has(&refused(&snapshot, "Z0360"), &[INDEX, "No such file"]);
}

#[test]
fn z0363_tensors_that_are_missing_are_all_named() {
    let error = changed("Z0363", |all| {
        all.remove(&gain()).unwrap();
        let renamed = all.remove("head.weight").unwrap();
        all.insert("tail.weight".to_owned(), renamed);
    });
    has(
        &error,
        &[
            "lacks 2 of",
            &format!("`{}` [24]", gain()),
            "`head.weight` [29, 24]",
            "has 1 that the model does not have",
            "`tail.weight`",
        ],
    );
    let error = changed("Z0363", |all| all.retain(|name, _| name.starts_with("embed")));
    let count = error.matches("`blocks").count();
    assert_eq!(count, 10, "{error}");
    has(&error, &["and 17 more"]);
}

#[test]
fn z0364_tensors_that_are_left_over() {
    let add = |all: &mut BTreeMap<String, Content>| {
        let copy = all[&gain()].clone();
        all.insert("h.0.attn.bias".to_owned(), copy.clone());
        all.insert("model.layers.0.self_attn.rotary_emb.inv_freq".to_owned(), copy.clone());
        all.insert("blocks.2.norm.gain".to_owned(), copy);
    };
    has(&changed("Z0364", add), &["has 1 tensors that the model does not have", "`blocks.2.norm.gain` [24]"]);
}

#[test]
fn z0365_tensors_of_another_shape_or_type() {
    let error = changed("Z0365", |all| {
        all.get_mut("head.weight").unwrap().1 = vec![24, 29];
        let (dtype, shape, data) = all.get_mut(&gain()).unwrap();
        (*dtype, *shape) = (safetensors::Dtype::I32, vec![24]);
        assert_eq!(data.len(), 96);
    });
    let of_gain = format!("`{}`: expected BF16, F16 or F32, found I32", gain());
    has(&error, &["`head.weight`: expected [29, 24], found [24, 29]", &of_gain]);
}

#[test]
fn z0367_a_head_that_is_repeated_but_differs() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("folder");
    export(Tied::PROGRAM, ALONE, &Job::default(), &path).unwrap();
    let file = path.join("model.safetensors");
    let mut all = tensors(&file);
    assert!(!all.contains_key("head.weight"));
    let name = name(Tied::PROGRAM, "embed", 0);
    let copy = all[&name].clone();
    for alias in ["lm_head.weight", "head.weight"] {
        all.insert(alias.to_owned(), copy.clone());
        write(&file, &all);
        assert!(Import::open(Tied::PROGRAM, &path).is_ok());
        all.get_mut(alias).unwrap().2[40] ^= 1;
        write(&file, &all);
        let error: WeightsError = Import::open(Tied::PROGRAM, &path).unwrap_err();
        assert_eq!(error.code(), "Z0367");
        has(&error.report(), &[&format!("has `{alias}` and `{name}`"), "from element 10 on"]);
        all.remove(alias);
    }
}
