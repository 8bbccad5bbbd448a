//! No run uses more memory than planned, whatever the data; and the error of a run that differs from its plan.

use std::fs::{self, File};
use std::path::Path;
use std::process::Command;

use serde_json::Value;
use zero_plan::Bytes;
use zero_plan::footprint::RunSize;
use zero_tests::specs::{self, NAMES};

use crate::run::{End, Run, faults, program};

/// Far more than any process here may hold.
const DATA_BYTES: u64 = 300_000_000;
/// Files of a directory of the same size.
const FILES: u64 = 30;

/// The tiny model of a spec, for a few steps.
fn spec(name: &str, threads: &str, data: &Path, metrics: &Path) -> Command {
    let mut command = program(env!("CARGO_BIN_EXE_main_of"));
    command.args([name, "--steps", "3", "--threads", threads, "--held-out", "1", "--sample", "2", "--prompt", "\u{1}"]);
    command.arg("--data").arg(data).arg("--metrics").arg(metrics);
    command
}

/// Starts a spec and compares the memory of its processes with its plan: the run's report on all ranks, and the kernel's figure for
/// rank 0, which includes all shared memory that the rank has touched.
fn stays_below_its_plan(name: &str, data: &Path, data_as: &[&str]) {
    let directory = tempfile::tempdir().unwrap();
    let metrics = directory.path().join("metrics.jsonl");
    let end = Run::start(spec(name, "1", data, &metrics).args(data_as)).end();
    assert_eq!((end.code, end.errors.as_str()), (Some(0), ""), "{name}");
    let plan = specs::program(name).plan;
    let total = plan.total_bytes_max(&RunSize::LEAST);
    assert!(total < DATA_BYTES as usize / 2, "{name}: {total} bytes show nothing");
    assert!(end.lines.iter().any(|line| line.starts_with("  total") && line.contains("MiB")), "{:?}", end.lines);
    let row = end.lines.iter().find_map(|line| line.strip_prefix("peak resident of a rank")).expect("a row of it");
    let bound = format!("<= {}", Bytes(total));
    assert!(row.trim_start().starts_with(&bound), "{name}: {row}");
    assert_ne!(row.trim_start()[bound.len()..].trim(), "0 B", "{name}");
    let metrics = fs::read_to_string(&metrics).unwrap();
    let lines = metrics.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let steps: Vec<Value> = lines.filter(|line| line["kind"] == "step").collect();
    assert_eq!(steps.len(), 3, "{metrics}");
    for line in steps {
        let held = line["peak_resident_bytes"].as_u64().unwrap() as usize;
        assert!((1 << 20..=total).contains(&held), "{name}: {held} bytes of {total}");
    }
}

#[test]
fn every_spec_stays_below_the_total_of_its_plan() {
    let directory = tempfile::tempdir().unwrap();
    let text = directory.path().join("text");
    fs::write(&text, [1, 2, 3].repeat(10_000)).unwrap();
    for name in NAMES {
        stays_below_its_plan(name, &text, &[]);
    }
}

/// A sparse file takes no disk space, but can be read.
#[test]
fn files_of_300_mb_are_held_by_nobody() {
    let directory = tempfile::tempdir().unwrap();
    for (name, data_as) in [("text", &["--data-as", "bytes"][..]), ("ids.bin", &[])] {
        let path = directory.path().join(name);
        File::create(&path).unwrap().set_len(DATA_BYTES).unwrap();
        stays_below_its_plan("zero3", &path, data_as);
    }
}

/// Many names of one file.
#[test]
fn a_directory_of_300_mb_is_held_by_nobody() {
    let directory = tempfile::tempdir().unwrap();
    let first = directory.path().join("0");
    fs::write(&first, vec![7; (DATA_BYTES / FILES) as usize]).unwrap();
    (1..FILES).for_each(|i| fs::hard_link(&first, directory.path().join(i.to_string())).unwrap());
    stays_below_its_plan("ddp", directory.path(), &[]);
}

/// The one error of a run.
fn refused(end: &End, code: &str) -> String {
    assert_eq!(end.code, Some(2), "{}", end.errors);
    assert_eq!(end.errors.matches("error[").count(), 1, "{}", end.errors);
    assert!(end.errors.starts_with(&format!("error[{code}]: ")), "{}", end.errors);
    end.errors.clone()
}

#[test]
fn z0412_whoever_holds_more_than_planned_is_named() {
    let end = Run::start(&mut faults("hold")).end();
    let error = refused(&end, "Z0412");
    assert!(error.contains("rank 1, peak resident of a rank: planned are at most "), "{error}");
    // The run itself is reported as always.
    assert!(end.lines.iter().any(|line| line.starts_with("peak resident of a rank")), "{:?}", end.lines);
    let told = Run::start(&mut faults("told")).end();
    assert_eq!((told.code, told.errors.as_str()), (Some(0), ""), "what a dataset tells of counts");
}

#[test]
fn z0411_other_bytes_than_planned_are_an_error() {
    let end = Run::start(&mut program(env!("CARGO_BIN_EXE_tampered"))).end();
    let error = refused(&end, "Z0411");
    let numbers: Vec<usize> = error
        .split_once(": planned are ")
        .map(|(_, rest)| rest.split_once('\n').unwrap().0)
        .map(|line| line.split(' ').filter_map(|word| word.parse().ok()).collect())
        .unwrap_or_else(|| panic!("{error}"));
    assert!(numbers.len() == 2 && numbers[0] > 0 && numbers[1] > numbers[0], "{error}");
    let sound = Run::start(program(env!("CARGO_BIN_EXE_tampered")).env("NOTHING", "1")).end();
    assert_eq!((sound.code, sound.errors.as_str()), (Some(0), ""));
}

#[test]
fn z0333_more_threads_than_the_budget_has_room_for() {
    let directory = tempfile::tempdir().unwrap();
    let text = directory.path().join("text");
    fs::write(&text, [1, 2, 3].repeat(10_000)).unwrap();
    let run = |threads: &str| Run::start(&mut spec("zero3", threads, &text, &directory.path().join(threads))).end();
    let error = refused(&run("32"), "Z0333");
    let fitting = error.split_once("give --threads ").expect("a way out").1.split_once(',').unwrap().0;
    let end = run(fitting);
    assert_eq!((end.code, end.errors.as_str()), (Some(0), ""));
    let one_more: usize = fitting.parse::<usize>().unwrap() + 1;
    refused(&run(&one_more.to_string()), "Z0333");
}
