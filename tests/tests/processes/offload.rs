//! Offload: ranks that keep states on a disk train to the bits of ranks that keep them in memory, leave no file behind, and
//! refuse folders that cannot keep them. A disk that fails or falls silent ends all ranks.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::Command;

use rustix::process::{Resource, Rlimit, prlimit};
use serde_json::Value;
use tempfile::TempDir;
use zero_core::model::Model;
use zero_files::tier::{StateFolder, TierError};
use zero_plan::{Home, TierBytes};
use zero_tests::tiers::can_keep_states;
use zero_tests::tiny::Offloaded;

use crate::disk::Disk;
use crate::run::{End, Run, program, wait_until};
use crate::system::members;

const STEPS: usize = 5;
const OFFLOADED: &str = env!("CARGO_BIN_EXE_offloaded");
/// Ranks of the model.
const RANKS: usize = 4;
/// As little locked memory as systems allow a user, also to root.
const LITTLE_LOCKED: &str = r#"ulimit -l 64 && ulimit -l || exit
[ "$(id -u)" = 0 ] && exec setpriv --bounding-set -ipc_lock "$0" "$@"
exec "$0" "$@""#;

/// Folders on a disk, for a run and for its states.
struct Place {
    root: TempDir,
}

impl Place {
    fn new() -> Self {
        let root = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        fs::create_dir(root.path().join("states")).unwrap();
        fs::write(root.path().join("text"), [1, 2, 3, 5, 8].repeat(2_000)).unwrap();
        Self { root }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    fn states(&self) -> PathBuf {
        self.path("states")
    }

    fn offload(&self) -> [String; 2] {
        ["--offload".to_owned(), self.states().to_str().unwrap().to_owned()]
    }

    /// Adds what every run here is told.
    fn told(&self, mut command: Command, steps: u64, name: &str) -> Command {
        command.args(["--steps", &steps.to_string(), "--held-out", "4", "--sample", "0", "--log-every", "1"]);
        command.arg("--data").arg(self.path("text")).arg("--metrics").arg(self.path(name));
        command
    }

    /// A run to its end, with the losses of its steps.
    fn trained(&self, command: Command, name: &str) -> (End, Vec<Value>) {
        let end = Run::start(&mut self.told(command, STEPS as u64, name)).end();
        let lines = fs::read_to_string(self.path(name)).unwrap_or_default();
        let steps = lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let numbers = steps.filter(|line| line["kind"] == "step").map(|line| line["loss"].clone());
        (end, numbers.collect())
    }

    /// A run that keeps states on the disk and does not end by itself, after its second step.
    fn endless(&self, arguments: &[&str]) -> Run {
        let mut command = program(OFFLOADED);
        command.args(self.offload()).args(arguments);
        let mut run = Run::start(&mut self.told(command, u64::MAX, "endless"));
        run.wait_for_step(2);
        run
    }

    fn assert_tidy(&self) {
        let left = fs::read_dir(self.states()).unwrap().map(|entry| entry.unwrap().file_name());
        let left: Vec<_> = left.filter(|name| !["lost+found", "filler"].iter().any(|known| name == known)).collect();
        assert!(left.is_empty(), "files are left: {left:?}");
    }
}

/// Bytes of a rank's file.
fn bytes(rank: usize) -> u64 {
    Offloaded::PLAN.of_rank(rank).memory.bytes_of(Home::Disk) as u64
}

#[test]
fn states_on_disk_change_no_loss_and_leave_no_file() {
    let place = Place::new();
    if !can_keep_states(&place.states(), "offload of processes") {
        return;
    }
    let (end, here) = place.trained(program(env!("CARGO_BIN_EXE_piped")), "here");
    assert_eq!((end.code, end.errors.as_str()), (Some(0), ""));
    let mut limited = program("/bin/sh");
    limited.args(["-c", LITTLE_LOCKED, OFFLOADED]);
    for (name, mut command) in [("free", program(OFFLOADED)), ("limited", limited)] {
        command.args(place.offload());
        let (end, there) = place.trained(command, name);
        assert_eq!((end.code, end.errors.as_str()), (Some(0), ""), "{name}");
        assert_eq!(end.lines[0] == "64", name == "limited", "kilobytes that may be locked: {}", end.lines[0]);
        assert!(here.len() == STEPS && here == there, "{name}: {here:?}\n{there:?}");
        assert!(end.lines.iter().any(|line| line.starts_with("offload: up to ")), "{:?}", end.lines);
        for row in ["bytes from disk per step", "bytes to disk per step"] {
            let line = end.lines.iter().find(|line| line.starts_with(row)).expect(row);
            let figures: Vec<&str> = line[row.len()..].split_whitespace().collect();
            assert!(figures.len() == 2 && figures[0] == figures[1] && figures[0] != "0", "{line}");
        }
        place.assert_tidy();
    }
}

/// Runs a program, and prints what the system has counted for its processes: it adds that to whoever has waited for them.
const COUNTED: &str = r#""$0" "$@" >&2 && cat /proc/$$/io"#;

/// The first touch of a file, the text and the metrics are the same in both runs, but for a line of metrics a step.
#[test]
fn the_system_counts_the_bytes_that_are_planned() {
    const MORE_STEPS: usize = 20;
    let place = Place::new();
    if !can_keep_states(&place.states(), "bytes that the system counts") {
        return;
    }
    let counted = |steps: usize| {
        let mut command = program("/bin/sh");
        command.args(["-c", COUNTED, OFFLOADED]).args(place.offload()).arg("--data").arg(place.path("text"));
        command.args(["--held-out", "0", "--sample", "0", "--steps", &steps.to_string()]);
        let end = Run::start(&mut command).end();
        assert_eq!(end.code, Some(0), "{}", end.errors);
        ["read_bytes: ", "write_bytes: "].map(|row| {
            let bytes = end.lines.iter().find_map(|line| line.strip_prefix(row)).expect("a row of the system");
            bytes.parse::<usize>().expect("a number of bytes")
        })
    };
    let (few, many) = (counted(1), counted(1 + MORE_STEPS));
    let planned = (0..RANKS).map(|rank| TierBytes::of(Offloaded::PLAN, rank));
    let planned = planned.fold([0; 2], |[read, written], bytes| [read + bytes.read, written + bytes.written]);
    for ((few, many), planned) in few.into_iter().zip(many).zip(planned) {
        let counted = (many - few) / MORE_STEPS;
        assert!(counted.abs_diff(planned) <= 64 << 10, "{counted} bytes a step are counted, {planned} are planned");
    }
}

#[test]
fn folders_that_cannot_keep_states_are_refused() {
    let place = Place::new();
    let refused = |name: &str, arguments: &[&str]| {
        let mut command = program(OFFLOADED);
        command.args(arguments);
        refused(&place, command, name)
    };
    let missing = "error[Z0350]: this program keeps states on disk, but there is no --offload";
    assert_eq!(refused("nowhere", &[]), missing);
    let memory = "error[Z0397]: `/dev/shm` lies in memory: its file system is tmpfs";
    assert_eq!(refused("memory", &["--offload", "/dev/shm"]), memory);
    let absent = refused("absent", &["--offload", "/no/such/folder"]);
    assert!(absent.starts_with("error[Z0396]: cannot keep states in `/no/such/folder`"), "{absent}");
}

/// The first line of the only error of a run that does not begin.
fn refused(place: &Place, command: Command, name: &str) -> String {
    let (end, steps) = place.trained(command, name);
    assert!(end.code == Some(2) && steps.is_empty(), "{:?}: {}", end.code, end.errors);
    assert_eq!(end.errors.matches("error[").count(), 1, "{}", end.errors);
    end.errors.lines().next().unwrap().to_owned()
}

#[test]
fn z0399_a_disk_with_room_for_one_rank_but_not_for_all() {
    let place = Place::new();
    let Some(disk) = Disk::with_direct_io(&place.states(), 8 << 20, "disk with too little room") else { return };
    let (all, most) = ((0..RANKS).map(bytes).sum::<u64>(), (0..RANKS).map(bytes).max().unwrap());
    let filler = place.states().join("filler");
    let fill = |bytes: u64| {
        let file = File::create(&filler).unwrap();
        rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, disk.free() - bytes).unwrap();
    };
    fill(all - 4096);
    let free = disk.free();
    assert!(most <= free && free < all, "{free} bytes are free for {all}");
    let run = || {
        let mut command = program(OFFLOADED);
        command.args(place.offload());
        command
    };
    let error = refused(&place, run(), "full");
    assert!(
        error.starts_with("error[Z0399]: `") && error.contains("for the states of the ranks of this host"),
        "{error}"
    );
    assert_eq!(disk.free(), free, "something stays allocated");

    // Ranks of other runs may have taken the room in the meantime. What a file got before the system refused the rest is given back.
    let error = StateFolder::open(&place.states()).unwrap().allocate(free as usize + (64 << 10), 0).err();
    assert!(matches!(error, Some(TierError::NoRoom { .. })), "{error:?}");
    assert_eq!(disk.free(), free, "something stays allocated");

    fs::remove_file(&filler).unwrap();
    let free = disk.free();
    let (end, steps) = place.trained(run(), "enough");
    assert_eq!((end.code, end.errors.as_str(), steps.len()), (Some(0), "", STEPS));
    assert_eq!(disk.free(), free, "something stays allocated");
    place.assert_tidy();
}

/// The error of a rank whose file cannot be written any more.
fn assert_lost(place: &Place, end: &End, rank: &str, why: &str) {
    end.assert_error(2, "error[Z0413]: ");
    for part in ["cannot write ", " bytes at byte ", rank, why, " or before"] {
        assert!(end.errors.contains(part), "expected `{part}`, found: {}", end.errors);
    }
    place.assert_tidy();
}

/// As with `ulimit -f`: no byte beyond the limit is written.
fn limit_file(run: &Run) {
    let limit = Rlimit { current: Some(4096), maximum: None };
    prlimit(Some(run.ranks(RANKS)[1]), Resource::Fsize, limit).unwrap();
}

#[test]
fn z0413_a_file_that_cannot_be_written_any_more() {
    let place = Place::new();
    if !can_keep_states(&place.states(), "file that cannot be written any more") {
        return;
    }
    let run = place.endless(&[]);
    limit_file(&run);
    let end = run.end();
    assert_lost(&place, &end, "of the file of rank 1: ", "File too large (os error 27)");
    assert!(end.errors.contains("  --> rank 1, in `store "), "{}", end.errors);
}

/// The exit code of the rank says that a restart may help, and it does: ranks that start have no limit.
#[test]
fn a_run_goes_on_after_its_disk_has_failed() {
    let place = Place::new();
    if !can_keep_states(&place.states(), "run that goes on after its disk has failed") {
        return;
    }
    let checkpoints = place.path("checkpoints");
    let mut command = program(OFFLOADED);
    command.args(place.offload()).args(["--every", "50", "--restarts", "1"]).arg("--checkpoint").arg(&checkpoints);
    let mut run = Run::start(&mut place.told(command, 600, "restarted"));
    run.wait_for_step(60);
    limit_file(&run);
    let end = run.end();
    assert_eq!(end.code, Some(0), "{}", end.errors);
    assert!(end.errors.starts_with("error[Z0413]: ") && end.errors.contains("note: restart 1 of 1"), "{}", end.errors);
    place.assert_tidy();
}

/// A disk that promises more room than it has: its blocks lie in a file on another one, which is full.
#[test]
fn z0413_a_disk_that_is_full_after_all() {
    const BELOW: u64 = 32 << 20;
    let place = Place::new();
    let small = place.path("small");
    let Some(below) = Disk::new(&small, BELOW as usize) else { return };
    let states = small.join("states");
    let Some(_disk) = Disk::with_direct_io(&states, 16 << 20, "disk that is full after all") else { return };
    let is_full = format!("size={}", BELOW - below.free() + (16 << 10));
    assert!(below.remount(&is_full));
    let mut command = program(OFFLOADED);
    command.arg("--offload").arg(&states);
    let (end, _) = place.trained(command, "full");
    // All ranks of the disk fail, at their first parameters.
    assert_lost(&place, &end, "of the file of rank ", "(os error ");
}

/// No signal ends a thread that waits for such a disk, so the launcher leaves it behind.
#[test]
fn z0402_a_disk_that_falls_silent() {
    let place = Place::new();
    let Some(disk) = Disk::with_direct_io(&place.states(), 8 << 20, "disk that falls silent") else { return };
    let run = place.endless(&["--timeout", "2s"]);
    assert!(disk.freeze(true));
    wait_until("the launcher waits for ranks that hang", || members(run.launcher()).is_empty());
    // What is left of the ranks holds their output open.
    assert!(disk.freeze(false));
    let end = run.end();
    end.assert_error(2, "error[Z0402]: after 2 s, rank ");
    let left = "hangs in a call of the system, and ends when that returns";
    assert!(end.errors.contains(left), "{}", end.errors);
}
