//! Checkpoints of a run: another run continues from them, an impossible request is an error, and older checkpoints are never lost.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::{Resource, Rlimit, Signal, kill_process, prlimit};
use serde_json::Value;
use zero_files::checkpoint::Store;

use crate::disk::Disk;
use crate::run::{End, RANKS, Run, faults, tiny, wait_until};

/// The folder of a run and its metrics, in a directory that is removed at the end.
struct Place {
    root: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        Self { root: tempfile::tempdir().unwrap() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    fn folder(&self) -> PathBuf {
        self.path("run")
    }

    /// The model of text, with further arguments; it writes checkpoints here.
    fn command(&self, steps: u64, arguments: &[&str]) -> Command {
        let mut command = tiny(steps);
        command.args(["--held-out", "0", "--checkpoint"]).arg(self.folder()).args(arguments);
        command
    }

    /// A run that finishes.
    fn run(&self, steps: u64, arguments: &[&str]) -> End {
        let end = Run::start(&mut self.command(steps, arguments)).end();
        assert_eq!((end.code, end.errors.as_str()), (Some(0), ""), "{arguments:?}");
        end
    }

    fn checkpoint(&self, step: u64) -> PathBuf {
        self.folder().join(format!("step-{step:09}"))
    }

    /// The names of the existing checkpoints, and of everything else.
    fn listed(&self) -> Vec<String> {
        let entries = fs::read_dir(self.folder()).unwrap().map(|entry| entry.unwrap().file_name());
        let mut names: Vec<String> = entries.map(|name| name.into_string().unwrap()).collect();
        names.sort();
        names
    }
}

/// Steps of metrics with the bits of their losses and norms.
fn steps(metrics: &Path) -> Vec<(u64, [u64; 2])> {
    let text = fs::read_to_string(metrics).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let of_steps = lines.filter(|line| line["kind"] == "step");
    of_steps
        .map(|line| {
            let number = |key: &str| line[key].as_f64().unwrap().to_bits();
            (line["step"].as_u64().unwrap(), [number("loss"), number("gradient_norm")])
        })
        .collect()
}

/// A run that is refused before its first step, with one error.
fn refused(command: &mut Command, code: &str, words: &[&str]) {
    let end = Run::start(command).end();
    assert_eq!(end.code, Some(2), "{}", end.errors);
    assert_eq!(end.errors.matches("error[").count(), 1, "{}", end.errors);
    assert!(end.errors.starts_with(&format!("error[{code}]: ")), "{}", end.errors);
    words.iter().for_each(|word| assert!(end.errors.contains(word), "{word}: {}", end.errors));
    assert!(!end.lines.iter().any(|line| line.starts_with("step ")), "nothing is trained");
}

#[test]
fn a_run_goes_on_as_if_it_had_never_ended() {
    let place = Place::new();
    let [whole, parts] = ["whole", "parts"].map(|name| place.path(name));
    let end = Run::start(tiny(6).args(["--held-out=0", "--metrics"]).arg(&whole)).end();
    assert_eq!(end.code, Some(0), "{}", end.errors);
    let metrics = ["--metrics", parts.to_str().unwrap(), "--every", "2", "--resume"];
    // The learning rate is that of six steps in both parts.
    let begun = place.run(6, &[&metrics[..], &["--keep", "2"]].concat());
    assert!(begun.lines.iter().any(|line| line.starts_with("no checkpoint in `")), "{:?}", begun.lines);
    assert_eq!(steps(&parts), steps(&whole));
    assert_eq!(place.listed(), ["lock", "step-000000004", "step-000000006"]);
    fs::remove_dir_all(place.checkpoint(6)).unwrap();
    let on = place.run(6, &metrics);
    assert!(on.lines.iter().any(|line| line.starts_with("resumed: 4 steps are done")), "{:?}", on.lines);
    assert_eq!(steps(&parts)[6..], steps(&whole)[4..]);
    assert_eq!(place.listed(), ["lock", "step-000000004", "step-000000006"]);
    // There is nothing left to do.
    assert!(place.run(6, &metrics).lines.iter().any(|line| line.starts_with("resumed: 6 steps are done")));
    assert_eq!(steps(&parts).len(), 8);
}

#[test]
fn a_signal_ends_a_run_with_a_checkpoint_and_it_goes_on() {
    let place = Place::new();
    let [whole, parts] = ["whole", "parts"].map(|name| place.path(name));
    let mut run = Run::start(&mut place.command(1 << 40, &["--warmup=1", "--metrics", parts.to_str().unwrap()]));
    run.wait_for_step(3);
    kill_process(run.launcher(), Signal::TERM).unwrap();
    let end = run.end();
    assert_eq!(end.code, Some(75), "{}", end.errors);
    let saved = steps(&parts).len() as u64;
    assert_eq!(place.listed(), ["lock", &format!("step-{saved:09}")]);
    let metrics = parts.to_str().unwrap();
    let again = place.command(saved + 2, &["--warmup=1", "--lr-schedule=constant", "--resume", "--metrics", metrics]);
    let end = { again }.output().unwrap();
    assert_eq!(end.status.code(), Some(0), "{}", String::from_utf8_lossy(&end.stderr));
    let said = String::from_utf8_lossy(&end.stdout).into_owned();
    assert!(said.contains("--steps: ") && said.contains("--lr-schedule: \"constant\" instead of"), "{said}");
    let numbers: Vec<u64> = steps(&parts).into_iter().map(|(step, _)| step).collect();
    assert_eq!(numbers, (1..=saved + 2).collect::<Vec<_>>());
    drop(whole);
}

#[test]
fn what_a_run_cannot_go_on_from_is_told() {
    let place = Place::new();
    place.run(2, &["--seed=5"]);
    let before = place.listed();
    refused(&mut place.command(4, &["--seed=5"]), "Z0382", &["has checkpoints of a run already, the newest of step 2"]);
    refused(&mut place.command(4, &["--seed=6", "--resume"]), "Z0394", &["--seed: 6 instead of 5"]);
    let mut other = place.command(4, &["--seed=5", "--resume"]);
    let data = other.get_args().position(|argument| argument == "--data").unwrap();
    let mut arguments: Vec<_> = other.get_args().map(ToOwned::to_owned).collect();
    arguments[data + 1] = concat!(env!("CARGO_MANIFEST_DIR"), "/README.md").into();
    other = crate::run::program(env!("CARGO_BIN_EXE_tiny"));
    refused(other.args(arguments), "Z0394", &["the data has the fingerprint"]);
    refused(&mut place.command(1, &["--seed=5", "--resume"]), "Z0350", &["--steps 1", "raise --steps"]);
    let from = place.checkpoint(3);
    refused(tiny(4).arg("--resume").arg(&from), "Z0383", &["is not a checkpoint"]);
    refused(tiny(4).arg("--resume"), "Z0350", &["--checkpoint"]);
    let mut model = faults("");
    model.args(["--resume", "--checkpoint"]).arg(place.folder());
    refused(&mut model, "Z0390", &["`embed.weight`: expected nothing, found [256, 12]"]);
    assert_eq!(place.listed(), before);
}

/// One optimizer cannot use the states of the other, so each continues only from its own. Muon's own argument is refused without
/// Muon.
#[test]
fn a_checkpoint_is_of_one_optimizer() {
    let place = Place::new();
    let text = place.path("text");
    fs::write(&text, [1, 2, 3].repeat(10_000)).unwrap();
    let of = |name: &str, steps: &str, more: &[&str]| {
        let mut command = crate::run::program(env!("CARGO_BIN_EXE_main_of"));
        command.args([name, "--steps", steps, "--held-out=0", "--sample=0", "--data"]).arg(&text);
        command.arg("--checkpoint").arg(place.folder()).args(more);
        command
    };
    let end = Run::start(&mut of("muon", "2", &["--momentum=0.9"])).end();
    assert_eq!((end.code, end.errors.as_str()), (Some(0), ""));
    let words = ["optimizer: AdamW instead of Muon, in the spec"];
    refused(&mut of("zero2", "4", &["--resume"]), "Z0394", &words);
    refused(&mut of("zero2", "4", &["--resume", "--momentum=0.9"]), "Z0350", &["--momentum 0.9 is about Muon"]);
    let on = Run::start(&mut of("muon", "4", &["--resume"])).end();
    assert_eq!((on.code, on.errors.as_str()), (Some(0), ""));
    assert!(on.lines.iter().any(|line| line.contains("--momentum: none instead of 0.9")), "{:?}", on.lines);
}

#[test]
fn a_folder_that_cannot_be_used_is_told() {
    let place = Place::new();
    fs::write(place.path("file"), "").unwrap();
    symlink("/tmp", place.path("link")).unwrap();
    for name in ["file", "link"] {
        let folder = place.path(name);
        refused(tiny(2).arg("--checkpoint").arg(&folder), "Z0380", &["cannot keep checkpoints in `"]);
    }
    let mut first = Run::start(&mut place.command(1 << 40, &["--warmup=1"]));
    first.wait_for_step(2);
    refused(&mut place.command(4, &["--resume"]), "Z0381", &["is in use by another run: process "]);
    kill_process(first.launcher(), Signal::KILL).unwrap();
    assert_eq!(first.end().code, None);
    place.run(4, &["--resume"]);
}

#[test]
fn a_damaged_checkpoint_is_passed_over_only_where_the_newest_is_asked_for() {
    let place = Place::new();
    place.run(4, &["--every=2"]);
    let file = place.checkpoint(4).join(format!("rank-{:05}.safetensors", RANKS - 1));
    let mut bytes = fs::read(&file).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    fs::write(&file, bytes).unwrap();
    refused(tiny(6).arg("--resume").arg(place.checkpoint(4)), "Z0387", &["rank-00002.safetensors` was changed"]);
    let end = Run::start(&mut place.command(6, &["--resume"])).end();
    assert_eq!(end.code, Some(0), "{}", end.errors);
    assert!(end.errors.starts_with("error[Z0387]: ") && end.errors.contains("the next older one is tried"));
    assert_eq!(end.errors.matches("error[").count(), 1, "{}", end.errors);
    assert!(end.lines.iter().any(|line| line.starts_with("resumed: 2 steps are done")));
    // If no checkpoint is whole, no run begins anew in their folder.
    for step in [2, 4, 6] {
        fs::remove_file(place.checkpoint(step).join("manifest.jsonl")).unwrap();
    }
    let end = Run::start(&mut place.command(6, &["--resume"])).end();
    assert_eq!(end.code, Some(2), "{}", end.errors);
    assert_eq!(end.errors.matches("error[Z0383]").count(), 3, "{}", end.errors);
}

#[test]
fn a_checkpoint_that_cannot_be_written_costs_only_itself() {
    let place = Place::new();
    place.run(2, &[]);
    // The name that the save needs belongs to a file that only its owner may remove.
    fs::write(place.folder().join(".partial-step-000000004"), "").unwrap();
    let end = Run::start(&mut place.command(6, &["--resume", "--every=2"])).end();
    assert_eq!(end.code, Some(0), "{}", end.errors);
    assert!(end.errors.starts_with("error[Z0392]: ") && end.errors.contains("training continues"), "{}", end.errors);
    assert_eq!(end.errors.matches("error[").count(), 1, "{}", end.errors);
    assert_eq!(place.listed(), [".partial-step-000000004", "lock", "step-000000002", "step-000000006"]);
    fs::rename(place.folder().join(".partial-step-000000004"), place.folder().join(".partial-step-000000008")).unwrap();
    let end = Run::start(&mut place.command(8, &["--resume"])).end();
    assert_eq!(end.code, Some(74), "the last one is missing: {}", end.errors);
    let end = Run::start(&mut place.command(9, &["--resume", "--every=2", "--checkpoint-or-stop"])).end();
    assert_eq!(end.code, Some(2), "{}", end.errors);
    assert!(end.errors.starts_with("error[Z0392]: ") && !end.errors.contains("training continues"), "{}", end.errors);
    assert!(!end.lines.iter().any(|line| line.starts_with("step    9")), "it has stopped");
}

#[test]
fn a_run_saves_as_time_goes_by_and_comes_back_after_it_was_killed() {
    let place = Place::new();
    let mut run = Run::start(&mut place.command(1 << 40, &["--warmup=1", "--every=1s"]));
    run.wait_for_step(1);
    let newest = || place.listed().into_iter().filter_map(|name| name.strip_prefix("step-")?.parse::<u64>().ok()).max();
    wait_until("no checkpoint was written", || newest().is_some());
    kill_process(run.launcher(), Signal::KILL).unwrap();
    assert_eq!(run.end().code, None);
    let saved = newest().expect("one at least");
    let end = place.run(saved + 1, &["--warmup=1", "--resume"]);
    assert!(
        end.lines.iter().any(|line| line.starts_with(&format!("resumed: {saved} steps are done"))),
        "{:?}",
        end.lines
    );
}

#[test]
fn a_full_disk_costs_what_did_not_fit_and_a_read_only_one_is_told_at_the_start() {
    let place = Place::new();
    // Room for two checkpoints and the lock.
    let Some(disk) = Disk::new(&place.folder(), 240 << 10) else { return };
    let end = Run::start(&mut place.command(6, &["--every=2"])).end();
    assert_eq!(end.code, Some(74), "{}", end.errors);
    assert!(end.errors.starts_with("error[Z0391]: ") && end.errors.contains("training continues"), "{}", end.errors);
    assert_eq!(end.errors.matches("error[").count(), 1, "{}", end.errors);
    assert_eq!(place.listed(), ["lock", "step-000000002", "step-000000004"]);
    assert!(disk.remount("ro"));
    refused(&mut place.command(6, &["--resume"]), "Z0380", &["cannot be written"]);
    assert!(disk.remount("rw"));
    fs::remove_dir_all(place.checkpoint(2)).unwrap();
    place.run(6, &["--resume"]);
}

/// Runs that do not see one another's lock would remove one another's checkpoints.
#[test]
fn a_folder_that_is_renamed_is_left_alone() {
    let place = Place::new();
    let newest = |folder: &Path| Store::checkpoints(folder).unwrap().first().map(|newest| newest.step);
    let mut first = Run::start(&mut place.command(1 << 40, &["--warmup=1", "--every=5", "--keep=1"]));
    wait_until("no checkpoint was written", || newest(&place.folder()).is_some());
    fs::rename(place.folder(), place.path("moved")).unwrap();
    let second = place.run(4, &[]);
    assert!(second.lines.iter().any(|line| line.starts_with("step    4")), "{:?}", second.lines);
    // A save that was underway may find files missing.
    while !first.next_complaint().starts_with("error[Z0395]: `") {}
    kill_process(first.launcher(), Signal::TERM).unwrap();
    assert_eq!(first.end().code, Some(74), "the last one is missing");
    assert_eq!(place.listed(), ["lock", "step-000000004"]);
    assert!(newest(&place.path("moved")).is_some());
}

/// As with `ulimit -f`.
#[test]
fn a_file_that_may_not_grow_costs_only_its_checkpoint() {
    let place = Place::new();
    let mut run = Run::start(&mut place.command(1 << 40, &["--warmup=1", "--every=5"]));
    run.wait_for_step(1);
    let ranks = run.ranks(RANKS);
    let limit = |current| {
        for &rank in &ranks {
            prlimit(Some(rank), Resource::Fsize, Rlimit { current, maximum: None }).unwrap();
        }
    };
    limit(Some(1000));
    let complaint = run.next_complaint();
    assert!(complaint.starts_with("error[Z0392]: ") && complaint.contains("File too large"), "{complaint}");
    limit(None);
    run.goes_on_after(|| ());
    kill_process(run.launcher(), Signal::TERM).unwrap();
    let end = run.end();
    assert_eq!(end.code, Some(75), "{}", end.errors);
}

#[test]
fn what_a_first_try_finds_is_told_before_anything_is_trained() {
    let place = Place::new();
    for (arguments, code, words) in [
        (["--checkpoint", "x", "--export", "x"], "Z0350", "--checkpoint and --export name the same path"),
        (["--metrics", "x", "--export", "x"], "Z0350", "--export and --metrics name the same path"),
        (["--checkpoint", "x", "--export", &"n".repeat(250)], "Z0368", "a first try failed"),
    ] {
        refused(tiny(4).args(arguments).current_dir(place.root.path()), code, &[words]);
    }
    assert_eq!(fs::read_dir(place.root.path()).unwrap().count(), 0, "nothing is left");
    // Room for the lock, and for no checkpoint; then for one, but not for the weights beside it.
    for (kilobytes, arguments) in [(40, &[][..]), (100, &["--export", "weights"])] {
        let Some(disk) = Disk::new(&place.folder(), kilobytes << 10) else { return };
        let mut command = place.command(4, arguments);
        refused(command.current_dir(place.folder()), "Z0391", &["expected at least"]);
        drop((command, disk));
    }
}
