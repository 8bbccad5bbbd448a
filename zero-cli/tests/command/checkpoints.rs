//! `cargo zero verify`, `inspect`, `diff` and `export`: what they say of small checkpoints, whole and damaged, and
//! their exit codes.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::net::sockopt::set_socket_send_buffer_size;
use safetensors::{Dtype, SafeTensors};
use serde_json::{Value, json};
use tempfile::{TempDir, tempdir};
use zero_files::checkpoint::{Store, System};
use zero_files::testing::SampleCheckpoint;
use zero_files::weights::WeightType;
use zero_plan::Width;
use zero_plan::place::State;

/// The exit code, and what is said on standard output and on standard error.
fn zero(arguments: &[&str], paths: &[&Path]) -> (i32, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_zero"));
    let output = command.arg(arguments[0]).args(paths).args(&arguments[1..]).output().expect("the command");
    let text = |bytes| String::from_utf8(bytes).expect("text");
    (output.status.code().expect("no signal"), text(output.stdout), text(output.stderr))
}

/// The folder of a run with checkpoints of these steps.
fn run(steps: &[u64]) -> (TempDir, Vec<PathBuf>) {
    let root = tempdir().expect("a directory");
    let store = Store::open(root.path()).expect("a folder");
    let save = |&step: &u64| SampleCheckpoint::of_step(step).save(&store, &System, None).expect("a checkpoint");
    let paths = steps.iter().map(save).collect();
    (root, paths)
}

fn flip_last_byte(file: &Path) {
    let mut bytes = fs::read(file).expect("a file");
    *bytes.last_mut().expect("a byte") ^= 1;
    fs::write(file, bytes).expect("a file");
}

#[test]
fn verify_reads_all_of_a_run_and_names_every_fault() {
    let (root, paths) = run(&[1, 2, 3]);
    let (code, said, errors) = zero(&["verify", "--threads", "2"], &[root.path()]);
    assert_eq!((code, errors.as_str()), (0, ""));
    let expected: String = paths.iter().map(|path| format!("{}: whole\n", path.display())).collect();
    assert_eq!(said, expected);

    flip_last_byte(&paths[1].join("rank-00001.safetensors"));
    fs::remove_file(paths[1].join("rank-00000.safetensors")).expect("removed");
    flip_last_byte(&paths[2].join("manifest.jsonl"));
    let (code, said, errors) = zero(&["verify"], &[root.path()]);
    assert_eq!(code, 1);
    assert!(said.contains("step-000000001: whole\n") && said.contains("step-000000002: 2 faults\n"), "{said}");
    assert!(said.contains("step-000000003: 1 fault\n"), "{said}");
    for words in ["step-000000002/rank-00000.safetensors`: No such file", "`master/norm@x/y@2`", "error[Z0384]"] {
        assert!(errors.contains(words), "{errors}");
    }
    let (code, said, _) = zero(&["verify"], &[&paths[0]]);
    assert_eq!((code, said), (0, format!("{}: whole\n", paths[0].display())));
    let (code, _, errors) = zero(&["verify"], &[&root.path().join("nowhere")]);
    assert!(code == 1 && errors.starts_with("error[Z0383]: `"), "{errors}");
}

/// The command waits for whoever reads its lines, after it has listed the checkpoints, because its socket holds only a few lines.
#[test]
fn what_a_living_run_removes_meanwhile_is_no_fault() {
    const STEPS: u64 = 30;
    for (name, first_line) in [("verify", "step-000000001: whole\n"), ("inspect", "layout\n")] {
        let (root, paths) = run(&(1..=STEPS).collect::<Vec<_>>());
        let [.., gone, faulty] = &paths[..] else { unreachable!() };
        let (read, write) = UnixStream::pair().expect("a socket");
        set_socket_send_buffer_size(&write, 1).expect("a small socket");
        let mut command = Command::new(env!("CARGO_BIN_EXE_zero"));
        command.arg(name).arg(root.path()).stdout(OwnedFd::from(write)).stderr(Stdio::piped());
        let child = command.spawn().expect("a command");
        drop(command);
        let (mut said, mut line, mut rest) = (BufReader::with_capacity(1, read), String::new(), String::new());
        said.read_line(&mut line).expect("a line");
        assert!(line.ends_with(first_line), "{line}");
        fs::remove_dir_all(gone).expect("removed");
        fs::remove_file(faulty.join("rank-00000.safetensors")).expect("removed");
        said.read_to_string(&mut rest).expect("text");
        let end = child.wait_with_output().expect("its end");
        let errors = String::from_utf8(end.stderr).expect("text");
        assert_eq!((end.status.code(), errors.matches("error[").count()), (Some(1), 1), "{errors}");
        assert!(errors.contains(&format!("error[Z0385]: cannot read `{}/rank-00000", faulty.display())), "{errors}");
        if name == "verify" {
            assert!(rest.contains(&format!("{}: removed meanwhile\n", gone.display())), "{rest}");
        }
    }
    // What was named is not there.
    let (root, _) = run(&[1]);
    let (code, _, errors) = zero(&["verify"], &[&root.path().join("step-000000002")]);
    assert!(code == 1 && errors.starts_with("error[Z0383]: `"), "{errors}");
}

#[test]
fn inspect_says_what_is_in_a_checkpoint_and_in_a_run() {
    let root = tempdir().expect("a directory");
    let mut sample = SampleCheckpoint::of_step(20);
    sample.arguments.insert("lr".to_owned(), json!(0.5));
    let path = sample.saved(root.path());
    let (code, said, errors) = zero(&["inspect"], &[&path]);
    assert_eq!((code, errors.as_str()), (0, ""));
    for line in [
        "model         Sample, 20 parameters in 3 tensors\n",
        "step          20\n",
        "loss          1.50000\n",
        "parameters    40 B of bf16 in 6 pieces\n",
        "master        80 B of f32 in 6 pieces\n",
        "  lr                      0.5\n",
        "  up.weight  [4, 3]\n",
    ] {
        assert!(said.contains(line), "{line}{said}");
    }
    let (code, said, _) = zero(&["inspect"], &[root.path()]);
    let row: Vec<&str> = said.lines().nth(1).expect("a line").split_whitespace().collect();
    assert_eq!((code, said.lines().count()), (0, 2));
    assert_eq!((row[0], row[1]), ("20", "1.50000"));
    flip_last_byte(&path.join("manifest.jsonl"));
    let (code, _, errors) = zero(&["inspect"], &[root.path()]);
    assert!(code == 1 && errors.starts_with("error[Z0384]: "), "{errors}");
}

#[test]
fn diff_ends_with_0_for_equal_1_for_different_2_for_neither() {
    let root = tempdir().expect("a directory");
    let saved = |name: &str, sample: SampleCheckpoint| sample.saved(&root.path().join(name));
    let one = saved("one", SampleCheckpoint::of_step(2));
    let other_layout = SampleCheckpoint { ranks: 3, params: Width::F32, ..SampleCheckpoint::of_step(2) };
    let same = saved("same", other_layout);
    let (code, said, errors) = zero(&["diff"], &[&one, &same]);
    assert_eq!((code, errors.as_str()), (0, ""));
    assert!(said.starts_with("9 tensors of states are equal\n") && said.contains("  plan.ranks: 2 and 3\n"), "{said}");

    let other = saved("other", SampleCheckpoint { shift: 0.5, ..SampleCheckpoint::of_step(2) });
    let (code, said, _) = zero(&["diff"], &[&one, &other]);
    assert_eq!(code, 1);
    assert!(
        said.starts_with("master        up.weight  12 of 12 elements, by up to 5.000e-1, relative 1.000e0\n"),
        "{said}"
    );
    assert!(said.ends_with("9 of 12 tensors of states differ\n"), "{said}");

    flip_last_byte(&one.join("rank-00000.safetensors"));
    let (code, said, errors) = zero(&["diff"], &[&one, &other]);
    assert_eq!((code, said.as_str()), (2, ""));
    assert!(errors.starts_with("error[Z0387]: `"), "{errors}");
}

#[test]
fn export_makes_a_folder_as_published_from_files_alone() {
    let root = tempdir().expect("a directory");
    let init = root.path().join("init");
    let first = SampleCheckpoint { shift: 0.25, ranks: 3, ..SampleCheckpoint::of_step(4) };
    let plain = first.saved(&root.path().join("plain"));
    let (code, said, errors) = zero(&["export"], &[&plain, &init]);
    assert_eq!((code, errors.as_str()), (0, ""));
    let [line, note] = &said.lines().collect::<Vec<_>>()[..] else { panic!("{said}") };
    assert_eq!(*line, format!("3 tensors of step 4 to {}", init.display()));
    assert!(note.starts_with("  it does not record how its model is published: "), "{said}");
    let bytes = fs::read(init.join("model.safetensors")).expect("a file");
    let tensors = SafeTensors::deserialize(&bytes).expect("tensors");
    let up = tensors.tensor("up.weight").expect("a tensor");
    assert_eq!((up.dtype(), up.shape()), (Dtype::F32, &[3, 4][..]));
    // Transposed, and from the master copy.
    let expected: Vec<u8> = (0..3)
        .flat_map(|column| (0..4).map(move |row| row * 3 + column))
        .flat_map(|i| first.value(State::Master, 0, i).to_le_bytes())
        .collect();
    assert_eq!(up.data(), expected);
    let config: Value = serde_json::from_slice(&fs::read(init.join("config.json")).expect("a file")).expect("JSON");
    let ids = json!({ "bos_token_id": null, "eos_token_id": null, "pad_token_id": null });
    let sizes = json!({ "model_type": "sample", "hidden_size": 3, "max_position_embeddings": 0, "dtype": "float32" });
    assert!([ids, sizes].iter().all(|part| part.as_object().expect("keys").iter().all(|(key, it)| config[key] == *it)));

    // The type of the numbers, and the files beside them, are those that the checkpoint records.
    let second = SampleCheckpoint { published: Some(WeightType::BF16), ..first };
    let path = second.saved(&root.path().join("second"));
    let out = root.path().join("out");
    for (dtype, expected) in [("", Dtype::BF16), ("--dtype=f32", Dtype::F32)] {
        let _ = fs::remove_dir_all(&out);
        let arguments: &[&str] = if dtype.is_empty() { &["export"] } else { &["export", dtype] };
        let (code, said, _) = zero(arguments, &[&path, &out]);
        assert!(code == 0 && said.contains("  with tokenizer.json\n"), "{said}");
        assert_eq!(fs::read(out.join("tokenizer.json")).expect("a file"), b"{}");
        let bytes = fs::read(out.join("model.safetensors")).expect("a file");
        let tensors = SafeTensors::deserialize(&bytes).expect("tensors");
        assert_eq!(tensors.tensor("up.bias").expect("a tensor").dtype(), expected);
    }
    let (code, _, errors) = zero(&["export"], &[&path, &out]);
    assert!(code == 1 && errors.starts_with("error[Z0368]: "), "{errors}");

    // Nothing is left if the checkpoint is damaged.
    flip_last_byte(&path.join("rank-00002.safetensors"));
    let (code, _, errors) = zero(&["export"], &[&path, &root.path().join("never")]);
    assert!(code == 1 && errors.starts_with("error[Z0387]: "), "{errors}");
    assert!(
        fs::read_dir(root.path())
            .expect("a folder")
            .all(|it| { !it.expect("an entry").file_name().to_string_lossy().starts_with("never") })
    );
}
