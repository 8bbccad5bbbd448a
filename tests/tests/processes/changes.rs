//! Data that changes under a run: what is gone is one error, after a checkpoint; files that are open may be moved.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::{Signal, kill_process};
use tempfile::TempDir;
use zero_files::checkpoint::Store;

use crate::run::{End, Run, program};

/// The last window of a period is held out, so a text of whole periods ends with one.
const PERIOD: usize = 10 * 16 * 17;
/// Tokens of a step on all ranks.
const STEP: usize = 3 * 2 * 16;

/// A text, and the folder of a run on it.
struct Place {
    root: TempDir,
}

impl Place {
    fn new(bytes: usize) -> Self {
        let place = Self { root: tempfile::tempdir().unwrap() };
        fs::create_dir(place.root.path().join("data")).unwrap();
        fs::write(place.data(), content(bytes)).unwrap();
        place
    }

    fn data(&self) -> PathBuf {
        self.root.path().join("data/text")
    }

    fn folder(&self) -> PathBuf {
        self.root.path().join("run")
    }

    /// A run that does not end by itself.
    fn endless(&self, data: &Path, arguments: &[&str]) -> Run {
        Run::start(command(1 << 40, data).args(arguments))
    }

    /// The steps of its checkpoints, the newest first.
    fn saved(&self) -> Vec<u64> {
        Store::checkpoints(&self.folder()).unwrap().into_iter().map(|found| found.step).collect()
    }

    fn saves(&self) -> [String; 2] {
        ["--checkpoint".to_owned(), self.folder().display().to_string()]
    }
}

/// Letters that do not repeat soon.
fn content(bytes: usize) -> Vec<u8> {
    (0..bytes as u64).map(|i| b'a' + (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 60) as u8).collect()
}

fn command(steps: u64, data: &Path) -> Command {
    let mut command = program(env!("CARGO_BIN_EXE_tiny"));
    command.args(["--sample=0", "--log-every=1", "--warmup=1", "--lr-schedule=constant", "--steps"]);
    command.arg(steps.to_string()).arg("--data").arg(data);
    command
}

/// Overwrites the first byte.
fn write_to(path: &Path) {
    use std::os::unix::fs::FileExt;
    File::options().write(true).open(path).unwrap().write_all_at(b"z", 0).unwrap();
}

fn cut(path: &Path, bytes: u64) {
    File::options().write(true).open(path).unwrap().set_len(bytes).unwrap();
}

/// The last step that was printed.
fn last(end: &End) -> u64 {
    let number = |line: &String| line.strip_prefix("step ")?.split('/').next()?.trim().parse().ok();
    end.lines.iter().rev().find_map(number).expect("a step")
}

#[test]
fn a_text_that_is_cut_off_costs_no_step_and_the_run_goes_on_with_the_whole_one() {
    // No epoch ends within the test, so a sequence that cannot be read is what is noticed.
    let place = Place::new(100_000 * STEP);
    let saves = place.saves();
    let arguments = ["--held-out=0", &saves[0], &saves[1]];
    let mut run = place.endless(&place.data(), &arguments);
    run.wait_for_step(3);
    cut(&place.data(), 5);
    let end = run.end();
    end.assert_error(2, "error[Z0357]: the data changed while it was in use: `/");
    assert!(end.errors.contains("/text` was cut off at byte 5, and had 9600000 bytes before"), "{}", end.errors);
    let done = last(&end);
    assert_eq!(place.saved(), [done]);

    fs::write(place.data(), content(100_000 * STEP)).unwrap();
    let on = Run::start(command(done + 2, &place.data()).args(arguments).arg("--resume")).end();
    on.assert_success(2);
    let whole = Run::start(command(done + 2, &place.data()).arg("--held-out=0")).end();
    whole.assert_success(done as usize + 2);
    assert_eq!(on.steps(), whole.steps()[done as usize..]);
}

#[test]
fn a_text_that_is_written_to_is_noticed_where_an_epoch_begins() {
    let place = Place::new(4 * STEP);
    let mut run = place.endless(&place.data(), &["--held-out=0"]);
    run.wait_for_step(3);
    write_to(&place.data());
    let end = run.end();
    end.assert_error(2, "error[Z0357]: ");
    assert!(end.errors.contains("/text` was written to"), "{}", end.errors);
    assert_eq!(last(&end) % 4, 0, "an epoch has four steps");
}

#[test]
fn a_text_that_is_written_to_is_noticed_where_a_checkpoint_begins() {
    let place = Place::new(100_000 * STEP);
    let saves = place.saves();
    let mut run = place.endless(&place.data(), &["--held-out=0", "--every=5", "--keep=1", &saves[0], &saves[1]]);
    run.wait_for_step(3);
    write_to(&place.data());
    let end = run.end();
    end.assert_error(2, "error[Z0357]: ");
    assert_eq!((last(&end) % 5, place.saved()), (0, vec![last(&end)]));
}

/// Training never draws what is gone.
#[test]
fn a_text_whose_held_out_end_is_gone_is_told_by_the_evaluation() {
    let place = Place::new(100 * PERIOD);
    let saves = place.saves();
    let mut run = place.endless(&place.data(), &["--held-out=1600", "--held-out-every=1", &saves[0], &saves[1]]);
    run.wait_for_step(2);
    cut(&place.data(), 100 * PERIOD as u64 - 1);
    let end = run.end();
    end.assert_error(2, "error[Z0357]: ");
    assert_eq!(place.saved(), [last(&end)]);
}

#[test]
fn data_that_is_moved_is_read_as_before() {
    let place = Place::new(4 * STEP);
    for data in [place.data(), place.data().parent().unwrap().to_owned()] {
        let mut run = place.endless(&data, &["--held-out=0"]);
        run.wait_for_step(3);
        run.goes_on_after(|| fs::rename(place.root.path().join("data"), place.root.path().join("moved")).unwrap());
        // Several epochs.
        run.wait_for(100, "MiB");
        kill_process(run.launcher(), Signal::TERM).unwrap();
        let end = run.end();
        assert!(end.code == Some(143) && !end.errors.contains("error"), "{}", end.errors);
        fs::rename(place.root.path().join("moved"), place.root.path().join("data")).unwrap();
    }
}

/// As with `ulimit -n 64`.
#[test]
fn a_folder_may_have_more_files_than_a_process_may_open() {
    let place = Place::new(STEP);
    let folder = place.root.path().join("data");
    (0..100).for_each(|number| fs::write(folder.join(number.to_string()), content(STEP)).unwrap());
    let mut limited = program("bash");
    let tiny = command(3, &folder);
    limited.args(["-c", "ulimit -n 64; exec \"$@\"", "bash"]).arg(tiny.get_program()).args(tiny.get_args());
    Run::start(&mut limited).end().assert_success(3);
}
