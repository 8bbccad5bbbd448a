//! Offload: ranks that keep states on a disk train to the bits of ranks that keep them in memory, leave no file behind, and
//! refuse folders that cannot keep them.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;
use zero_tests::tiers::can_keep_states;

use crate::run::{End, Run, program};

const STEPS: usize = 5;

fn trained(binary: &str, directory: &Path, name: &str, arguments: &[&str]) -> (End, Vec<Value>) {
    let (text, metrics) = (directory.join("text"), directory.join(format!("{name}.jsonl")));
    fs::write(&text, [1, 2, 3, 5, 8].repeat(2_000)).unwrap();
    let mut command: Command = program(binary);
    command.args(["--steps", &STEPS.to_string(), "--held-out", "4", "--sample", "0"]).args(arguments);
    command.arg("--data").arg(&text).arg("--metrics").arg(&metrics);
    let end = Run::start(&mut command).end();
    let lines = fs::read_to_string(&metrics).unwrap_or_default();
    let steps = lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let numbers = steps.filter(|line| line["kind"] == "step").map(|line| line["loss"].clone());
    (end, numbers.collect())
}

const OFFLOADED: &str = env!("CARGO_BIN_EXE_offloaded");

#[test]
fn states_on_disk_change_no_loss_and_leave_no_file() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let folder = directory.path().join("states");
    fs::create_dir(&folder).unwrap();
    if !can_keep_states(&folder, "offload of processes") {
        return;
    }
    let (end, here) = trained(env!("CARGO_BIN_EXE_piped"), directory.path(), "here", &[]);
    assert_eq!((end.code, end.errors.as_str()), (Some(0), ""));
    let offload = ["--offload", folder.to_str().unwrap()];
    let (end, there) = trained(OFFLOADED, directory.path(), "there", &offload);
    assert_eq!((end.code, end.errors.as_str()), (Some(0), ""));
    assert!(here.len() == STEPS && here == there, "{here:?}\n{there:?}");
    assert!(end.lines.iter().any(|line| line.starts_with("offload: up to ")), "{:?}", end.lines);
    for row in ["bytes from disk per step", "bytes to disk per step"] {
        let line = end.lines.iter().find(|line| line.starts_with(row)).expect(row);
        let figures: Vec<&str> = line[row.len()..].split_whitespace().collect();
        assert!(figures.len() == 2 && figures[0] == figures[1] && figures[0] != "0", "{line}");
    }
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 0, "a file is left");
}

#[test]
fn folders_that_cannot_keep_states_are_refused() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let refused = |name: &str, arguments: &[&str]| {
        let (end, steps) = trained(OFFLOADED, directory.path(), name, arguments);
        assert!(end.code == Some(2) && steps.is_empty(), "{:?}: {}", end.code, end.errors);
        assert_eq!(end.errors.matches("error[").count(), 1, "{}", end.errors);
        end.errors.lines().next().unwrap().to_owned()
    };
    let missing = "error[Z0350]: this program keeps states on disk, but there is no --offload";
    assert_eq!(refused("nowhere", &[]), missing);
    let memory = "error[Z0397]: `/dev/shm` lies in memory: its file system is tmpfs";
    assert_eq!(refused("memory", &["--offload", "/dev/shm"]), memory);
    let absent = refused("absent", &["--offload", "/no/such/folder"]);
    assert!(absent.starts_with("error[Z0396]: cannot keep states in `/no/such/folder`"), "{absent}");
}
