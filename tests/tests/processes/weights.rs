//! Published weights of a run: a run starts from the weights that another has exported, and errors are reported before training.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use zero_files::checkpoint::{Checkpoint, export};

use crate::disk::Disk;
use crate::run::{End, Run, TEXT, program, tiny};

/// Runs the model of text for this many steps, with further arguments, and returns its losses to the last bit.
fn losses(steps: u64, metrics: &Path, arguments: &[&str]) -> (Vec<u64>, Value) {
    let mut command = tiny(steps);
    command.args(["--seed", "5", "--metrics"]).arg(metrics).args(arguments);
    let end = Run::start(&mut command).end();
    // This includes the comparison at its end: no process has held more memory than planned.
    assert_eq!((end.code, end.errors.as_str()), (Some(0), ""), "{arguments:?}");
    let metrics = fs::read_to_string(metrics).unwrap();
    let mut lines = metrics.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let header = lines.next().expect("a header");
    let told = lines.filter_map(|line| line.get("loss").or(line.get("held_out_loss"))?.as_f64());
    (told.map(f64::to_bits).collect(), header)
}

#[test]
fn a_run_goes_on_from_what_another_exported() {
    let root = tempfile::tempdir().unwrap();
    let path = |name: &str| root.path().join(name);
    let [first, again] = ["first", "again"].map(path);
    let [first, again] = [first.to_str().unwrap(), again.to_str().unwrap()];
    let (trained, _) = losses(2, &path("a"), &[]);
    let (held_out, header) = losses(0, &path("b"), &["--export", first]);
    assert_eq!((trained.len(), held_out.len()), (3, 1));
    assert_eq!((&header["arguments"]["export"], &header["arguments"]["init"]), (&Value::from(first), &Value::Null));
    let (imported, header) = losses(2, &path("c"), &["--init", first, "--export", again, "--export-dtype", "bf16"]);
    assert_eq!(imported, trained);
    assert_eq!(header["arguments"]["init"], first);
    assert_eq!(header["arguments"]["export_dtype"], "bf16");
    let bytes = |name: &str| fs::metadata(Path::new(name).join("model.safetensors")).expect("a file").len();
    assert!(bytes(again) < bytes(first) * 2 / 3, "half the bits, and a header");
    assert_eq!(fs::read_dir(root.path()).unwrap().count(), 5, "a part of an export is left");
}

/// A run of the model that is published, which finishes; returns its output.
fn published(root: &Path, arguments: &[&str]) -> Vec<String> {
    let text = root.join("text");
    fs::write(&text, [1, 2, 3].repeat(1000)).unwrap();
    let mut command = program(env!("CARGO_BIN_EXE_main_of"));
    command.args(["published", "--held-out=0", "--sample=0", "--data-as=bytes", "--data"]).arg(text);
    let end = Run::start(command.current_dir(root).args(arguments)).end();
    assert_eq!((end.code, end.errors.as_str()), (Some(0), ""), "{arguments:?}");
    end.lines
}

fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
    entries.map(|it| (it.file_name().into_string().unwrap(), fs::read(it.path()).unwrap())).collect()
}

/// Makes a checkpoint one of a program that did not record how its model is published.
fn forget(checkpoint: &Path) {
    let path = checkpoint.join("manifest.jsonl");
    let text = fs::read_to_string(&path).unwrap();
    let mut manifest: Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
    manifest.as_object_mut().unwrap().remove("published").expect("a record");
    manifest["files"].as_array_mut().unwrap().retain(|file| file["name"].as_str().unwrap().starts_with("rank-"));
    let line = manifest.to_string();
    let hash = blake3::hash(line.as_bytes()).to_hex();
    fs::write(path, format!("{line}\n{{\"blake3\":\"{hash}\"}}\n")).unwrap();
}

#[test]
fn every_export_of_a_run_is_the_same_folder() {
    let root = tempfile::tempdir().unwrap();
    let path = |name: &str| root.path().join(name);
    published(root.path(), &["--steps=0", "--export=plain", "--export-dtype=bf16"]);
    let mut plain: Value = serde_json::from_slice(&fs::read(path("plain/config.json")).unwrap()).unwrap();
    // What only the folder says, and a run must not lose.
    plain["eos_token_id"] = 7.into();
    plain["resid_pdrop"] = 0.1.into();
    fs::write(path("plain/config.json"), plain.to_string()).unwrap();
    for name in ["tokenizer.json", "tokenizer_config.json", "generation_config.json"] {
        fs::write(path("plain").join(name), format!("{{\"name\": {name:?}}}")).unwrap();
    }
    let first = ["--init=plain", "--steps=2", "--checkpoint=ck", "--every=1", "--export=a"];
    published(root.path(), &first);
    let expected = files(&path("a"));
    let (plain, model) = (files(&path("plain")), "model.safetensors");
    assert_eq!(expected.len(), 5);
    for (name, content) in &plain {
        assert_eq!(name == model, expected[name] != *content, "{name} is as it was, unless it was trained");
    }
    assert_eq!(expected[model].len(), plain[model].len(), "bf16 is half as long as f32");
    // Whatever a later run is told of the folder.
    fs::rename(path("plain"), path("moved")).unwrap();
    let (one, two) = ("ck/step-000000001", "ck/step-000000002");
    let resume = format!("--resume={one}");
    let init = format!("--init={two}");
    published(root.path(), &["--steps=2", &resume, "--export=b"]);
    published(root.path(), &["--steps=2", &resume, "--export=c", "--init=moved"]);
    published(root.path(), &["--steps=0", &init, "--export=d"]);
    export(&Checkpoint::open(&path(two)).unwrap(), &path("e"), None, &|_| {}).unwrap();
    for name in ["b", "c", "d", "e"] {
        assert!(files(&path(name)) == expected, "{name}");
    }
    // A checkpoint of an older program has no such record.
    forget(&path(one));
    let said = published(root.path(), &["--steps=2", &resume, "--export=f"]);
    assert!(said.iter().any(|line| line.contains("does not record how its model is published")), "{said:?}");
    assert_eq!(files(&path("f")).into_keys().collect::<Vec<_>>(), ["config.json", model]);
    published(root.path(), &["--steps=2", &resume, "--export=g", "--init=moved"]);
    assert!(files(&path("g")) == expected, "the folder says it");
}

/// So the output of an untrained model is not mistaken for that of a trained one.
#[test]
fn a_run_that_does_no_step_says_which_weights_it_has() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("folder");
    let of_weights = |command: &mut Command| {
        let end = Run::start(command).end();
        assert_eq!((end.code, end.errors.as_str()), (Some(0), ""));
        end.lines.into_iter().filter(|line| line.starts_with("weights: ")).collect::<Vec<_>>()
    };
    let sampled = |more: &[&str]| {
        let mut command = program(env!("CARGO_BIN_EXE_tiny"));
        of_weights(command.args(["--only=sample", "--sample", "2", "--seed", "5"]).args(more))
    };
    assert_eq!(
        of_weights(tiny(1).arg("--export").arg(&folder)).len(),
        1,
        "a run that trains speaks of its export alone"
    );
    assert_eq!(sampled(&[]), ["weights: untrained, drawn by seed 5; `--init` names others"]);
    let folder = folder.to_str().unwrap();
    let [line] = &sampled(&["--init", folder])[..] else { panic!("one line") };
    assert!(line.ends_with(&format!(" tensors of {folder}")), "{line}");
}

/// No step follows the last update, so nothing else would notice.
#[test]
fn z0401_a_last_update_that_overflows_is_neither_saved_nor_exported() {
    let root = tempfile::tempdir().unwrap();
    let [saved, exported] = ["saved", "exported"].map(|name| root.path().join(name));
    let overflows =
        ["--lr", "3.5e37", "--lr-schedule", "constant", "--weight-decay", "0", "--warmup", "0", "--held-out", "0"];
    for (option, folder) in [("--checkpoint", &saved), ("--export", &exported)] {
        let end = Run::start(tiny(1).args(overflows).arg(option).arg(folder)).end();
        assert_eq!(end.code, Some(2), "{}", end.errors);
        assert!(end.errors.starts_with("error[Z0401]: the parameters of unit `"), "{}", end.errors);
        assert!(end.errors.contains("went infinite or NaN in step 1"), "{}", end.errors);
    }
    assert!(!exported.exists());
    let left = fs::read_dir(&saved).into_iter().flatten().map(|entry| entry.unwrap().file_name());
    assert!(!left.map(|name| name.into_string().unwrap()).any(|name| name.contains("step")), "a checkpoint");
}

/// Such weights would generate the same token for ever.
#[test]
fn z0401_weights_that_are_not_finite_generate_nothing() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("folder");
    assert_eq!(Run::start(tiny(0).arg("--export").arg(&folder)).end().code, Some(0));
    let weights = folder.join("model.safetensors");
    let mut bytes = fs::read(&weights).unwrap();
    let last = bytes.len() - 4;
    bytes[last..].copy_from_slice(&f32::NAN.to_le_bytes());
    fs::write(&weights, bytes).unwrap();
    for temperature in ["0", "1"] {
        let mut command = program(env!("CARGO_BIN_EXE_tiny"));
        command.args(["--only=sample", "--sample", "2", "--temperature", temperature, "--init"]).arg(&folder);
        let end = refused(&mut command, "Z0401");
        assert!(
            end.errors.starts_with("error[Z0401]: logits after 7 tokens of the sample are infinite or NaN"),
            "{}",
            end.errors
        );
    }
}

fn refused(command: &mut Command, code: &str) -> End {
    let end = Run::start(command).end();
    assert_eq!(end.code, Some(2), "{}", end.errors);
    assert_eq!(end.errors.matches("error[").count(), 1, "{}", end.errors);
    assert!(end.errors.starts_with(&format!("error[{code}]: ")), "{}", end.errors);
    assert!(!end.lines.iter().any(|line| line.starts_with("step ")), "nothing is trained");
    end
}

#[test]
fn z0360_a_folder_that_is_not_there_is_told_once() {
    let end = refused(tiny(3).args(["--init", "/nowhere"]), "Z0360");
    assert!(end.errors.contains("cannot read `/nowhere`: "), "{}", end.errors);
}

#[test]
fn z0363_weights_of_another_model_are_told_once() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("folder");
    assert_eq!(Run::start(tiny(0).arg("--export").arg(&folder)).end().code, Some(0));
    let mut other = program(env!("CARGO_BIN_EXE_piped"));
    other.args(["--data", TEXT, "--steps", "2", "--init"]).arg(&folder);
    let end = refused(&mut other, "Z0363");
    assert!(
        end.errors.contains("`blocks.0.attention") && end.errors.contains("`mlp.weight` [12, 12]"),
        "{}",
        end.errors
    );
}

#[test]
fn z0368_a_folder_that_is_there_is_not_overwritten() {
    let root = tempfile::tempdir().unwrap();
    fs::write(root.path().join("file"), "mine").unwrap();
    let end = refused(tiny(3).arg("--export").arg(root.path()), "Z0368");
    assert!(end.errors.contains("it exists, and is not empty"), "{}", end.errors);
    assert_eq!(fs::read_dir(root.path()).unwrap().count(), 1);
}

/// The folder that an error names, which is the last path in it.
fn named_folder(errors: &str) -> &Path {
    let line = errors.lines().find(|line| line.contains("are whole in")).expect("a place");
    Path::new(line.split('`').nth(1).expect("a path"))
}

/// Sets the first element of a published tensor, in f32.
fn set_first(folder: &Path, tensor: &str, value: f32) {
    let path = folder.join("model.safetensors");
    let mut bytes = fs::read(&path).unwrap();
    let (length, header) = safetensors::SafeTensors::read_metadata(&bytes).unwrap();
    let start = 8 + length + header.info(tensor).expect("a tensor").data_offsets.0;
    bytes[start..start + 4].copy_from_slice(&value.to_le_bytes());
    fs::write(path, bytes).unwrap();
}

#[test]
fn z0368_what_f16_has_no_number_for_is_not_lost() {
    let root = tempfile::tempdir().unwrap();
    let path = |name: &str| root.path().join(name);
    let [first, half] = ["first", "half"].map(path);
    let [first, half] = [first.to_str().unwrap(), half.to_str().unwrap()];
    losses(0, &path("a"), &["--export", first]);
    // Of a token that is not drawn: with it, numbers would not be finite.
    set_first(Path::new(first), "mlp.bias", 1e6);
    let trained = ["--seed=5", "--lr=1e-9", "--init", first, "--export", half, "--export-dtype", "f16"];
    let end = Run::start(tiny(2).args(trained)).end();
    end.assert_error(2, "error[Z0368]: `mlp.bias` has 1e6 at element 0, which f16 has no finite number for");
    assert!(!Path::new(half).exists());
    let rescued = named_folder(&end.errors);
    assert_eq!(rescued.parent(), Some(root.path()), "{}", end.errors);
    losses(1, &path("b"), &["--init", rescued.to_str().unwrap()]);
    // A checkpoint has them too.
    let end = Run::start(tiny(2).args(trained).arg("--checkpoint").arg(path("run"))).end();
    end.assert_error(2, "error[Z0368]: ");
    assert_eq!(named_folder(&end.errors), path("run/step-000000002"));
}

#[test]
fn z0368_weights_stay_where_they_are_whole_if_their_name_is_taken_meanwhile() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("folder");
    let mut run = Run::start(tiny(200).arg("--export").arg(&folder));
    run.wait_for_step(1);
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("mine"), "x").unwrap();
    let end = run.end();
    end.assert_error(2, "error[Z0368]: cannot name `");
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
    losses(1, &root.path().join("a"), &["--init", named_folder(&end.errors).to_str().unwrap()]);
}

#[test]
fn z0368_weights_go_elsewhere_if_their_disk_is_full_meanwhile() {
    let root = tempfile::tempdir().unwrap();
    let [small, temporary] = ["small", "temporary"].map(|name| root.path().join(name));
    let Some(_disk) = Disk::new(&small, 100 << 10) else { return };
    fs::create_dir(&temporary).unwrap();
    let mut run = Run::start(tiny(200).env("TMPDIR", &temporary).arg("--export").arg(small.join("folder")));
    run.wait_for_step(1);
    fs::write(small.join("fill"), vec![0; 1 << 20]).expect_err("no room");
    let end = run.end();
    end.assert_error(2, "error[Z0368]: cannot write `");
    assert_eq!(named_folder(&end.errors).parent(), Some(&*temporary), "{}", end.errors);
    losses(1, &root.path().join("a"), &["--init", named_folder(&end.errors).to_str().unwrap()]);
    assert_eq!(fs::read_dir(&small).unwrap().count(), 1, "only what fills it");
}
