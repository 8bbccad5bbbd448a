//! When ranks are restarted, and from which checkpoint; and what ends a run for good.

use std::thread::sleep;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::run::{End, RANKS, Run, faults, new_job, program, scripted, start_ranks, tiny};

/// The beginning of the launcher's note that it starts all ranks anew. Panics have notes, too.
const RESTART: &str = "note: restart ";

/// Lines of standard error that begin so.
fn told<'a>(end: &'a End, start: &str) -> Vec<&'a str> {
    end.errors.lines().filter(|line| line.starts_with(start)).collect()
}

/// The end of a run whose ranks follow instructions and share a folder.
fn end_of(folder: &TempDir, told: &str, variables: &[(&str, &str)]) -> End {
    let path = folder.path().to_str().unwrap();
    Run::start(scripted(told, variables).env("FOLDER", path)).end()
}

fn folder() -> TempDir {
    tempfile::tempdir().unwrap()
}

#[test]
fn a_start_that_has_left_a_checkpoint_is_followed_by_another() {
    for (fault, error) in
        [("panic", "error[Z0311]: rank "), ("abort", "error[Z0310]: rank "), ("again", "error[Z9999]")]
    {
        let end = end_of(&folder(), fault, &[("RESTARTS", "3"), ("TIMES", "2"), ("SAVES", "1")]);
        assert_eq!(end.code, Some(0), "{}", end.errors);
        let from = |restart, step| {
            format!("note: restart {restart} of 3: all ranks start anew from the checkpoint of step {step}")
        };
        assert_eq!(told(&end, RESTART), [from(1, 0), from(2, 1)]);
        // Each of three ranks may have said so itself before the others were ended.
        let errors = told(&end, error).len();
        assert!(if fault == "again" { (2..=6).contains(&errors) } else { errors == 2 }, "{}", end.errors);
        assert_eq!(end.lines.iter().filter(|line| line.ends_with(" of start 2")).count(), RANKS, "{:?}", end.lines);
    }
}

#[test]
fn z0317_a_start_without_progress_is_the_last() {
    for (newest, from) in [(None, "the beginning"), (Some("step-000000007"), "the checkpoint of step 7")] {
        let folder = folder();
        newest.iter().for_each(|name| std::fs::create_dir(folder.path().join(name)).unwrap());
        let end = end_of(&folder, "panic", &[("RESTARTS", "5")]);
        assert_eq!(end.code, Some(1));
        assert_eq!(told(&end, RESTART), [format!("note: restart 1 of 5: all ranks start anew from {from}")]);
        let errors = told(&end, "error");
        let [first, second, last] = errors[..] else { panic!("{}", end.errors) };
        assert!([first, second].iter().all(|error| error.starts_with("error[Z0311]")), "{}", end.errors);
        let words = "error[Z0317]: another restart would begin where the last one did: ";
        assert!(last.starts_with(words) && last.ends_with(newest.map_or("no checkpoint", |_| "step 7")), "{last}");
    }
}

#[test]
fn restarts_are_counted() {
    let end = end_of(&folder(), "panic", &[("RESTARTS", "2"), ("SAVES", "1")]);
    assert_eq!((end.code, told(&end, "error[Z0311]").len(), told(&end, RESTART).len()), (Some(1), 3, 2));
    assert!(!end.errors.contains("Z0317"), "{}", end.errors);
}

#[test]
fn what_a_restart_would_not_mend_ends_the_run() {
    // Rank 1 alone, so that its message comes once.
    let only = [("RESTARTS", "3"), ("SAVES", "1"), ("WHO", "1")];
    let end = end_of(&folder(), "report", &only);
    assert_eq!((end.code, end.errors.as_str()), (Some(2), "error[Z9999]: my own words\n"));
    end_of(&folder(), "exit", &only).assert_error(1, "error[Z0311]: rank 1 (pid ");
}

#[test]
fn without_restarts_a_rank_that_could_be_restarted_has_told_its_error() {
    let end = end_of(&folder(), "again", &[("WHO", "1")]);
    assert_eq!((end.code, end.errors.as_str()), (Some(2), "error[Z9999]: my own words\n"));
}

#[test]
fn the_end_of_all_ranks_is_that_of_the_run() {
    for (told, code) in [("done", 0), ("not-saved", 74)] {
        let end = end_of(&folder(), told, &[("RESTARTS", "3")]);
        assert_eq!((end.code, end.errors.as_str()), (Some(code), ""));
    }
}

#[test]
fn a_signal_between_two_starts_ends_the_run() {
    let mut run = Run::start(&mut scripted("panic", &[("RESTARTS", "3"), ("FINISHES", "1")]));
    while !run.next_complaint().starts_with("note: restart 1 of 3") {}
    kill_process(run.launcher(), Signal::TERM).unwrap();
    let end = run.end_at_once();
    assert_eq!(end.code, Some(143));
    assert!(end.errors.ends_with("interrupted by SIGTERM: all 3 ranks have ended\n"), "{}", end.errors);
}

/// Sends a signal until it has an effect: the first SIGSEGV that is sent rather than caused only removes Rust's own handler for
/// stack overflows.
fn strike(rank: Pid, signal: Signal) {
    let times = if signal == Signal::SEGV { 10 } else { 1 };
    for _ in 0..times {
        // Fails if the process is already dead.
        let _ = kill_process(rank, signal);
        sleep(Duration::from_millis(5));
    }
}

/// Enough steps to be interrupted before the end.
const STEPS: u64 = 4000;

#[test]
fn a_model_that_is_struck_is_trained_to_its_end() {
    for (rank, signal, error) in [
        (0, Signal::KILL, "error[Z0310]: rank 0 (pid "),
        (1, Signal::SEGV, "error[Z0310]: rank 1 (pid "),
        (2, Signal::STOP, "error[Z0402]: after 1 s, rank 2 (pid "),
    ] {
        let folder = folder();
        let checkpoints = ["--checkpoint", folder.path().to_str().unwrap(), "--restarts", "1", "--timeout", "1s"];
        let mut run = Run::start(tiny(STEPS).args(checkpoints));
        let struck = run.ranks(RANKS)[rank];
        run.wait_for_step(3);
        strike(struck, signal);
        let end = run.end();
        end.assert_error(0, error);
        assert!(end.errors.contains("\nnote: restart 1 of 1: all ranks start anew from "), "{}", end.errors);
        assert!(end.lines.iter().any(|line| line.starts_with(&format!("step {STEPS}/"))), "{:?}", end.lines);
    }
}

/// The end of the classifier with a fault that restarted ranks have too, on processes or on threads.
fn fault_of(fault: &str, on_threads: bool, arguments: &[&str]) -> End {
    let folder = folder();
    let mut command = faults(fault);
    command.args(["--checkpoint", folder.path().to_str().unwrap(), "--restarts", "5"]).args(arguments);
    if on_threads {
        command.env("THREADS", "1");
    }
    Run::start(&mut command).end()
}

/// Asserts that a run was restarted once, and has failed as before.
fn assert_repeated(end: &End, error: &str) {
    assert_eq!((end.code, told(end, error).len(), told(end, RESTART).len()), (Some(1), 2, 1), "{}", end.errors);
    assert_eq!(told(end, "error[Z0317]").len(), 1, "{}", end.errors);
}

#[test]
fn ranks_that_are_threads_are_started_anew_as_one_process() {
    assert_repeated(&fault_of("panic", true, &[]), "error[Z0311]: rank 0 (pid ");
    assert_repeated(&fault_of("busy", true, &["--timeout", "1s"]), "error[Z0402]: after 1 s, rank 1 (pid ");
}

#[test]
fn a_rank_that_is_silent_or_absent_is_started_anew() {
    assert_repeated(&fault_of("busy", false, &["--timeout", "1s"]), "error[Z0402]: after 1 s, rank 1 (pid ");
    let folder = folder();
    let mut command = faults("absent");
    command.args(["--checkpoint", folder.path().to_str().unwrap(), "--restarts", "5"]).env("ZERO_JOIN_TIMEOUT_S", "1");
    assert_repeated(&Run::start(&mut command).end(), "error[Z0321]: after 1 s, rank 1 of 3 never arrived");
}

#[test]
fn numbers_that_are_not_finite_are_rolled_back_where_that_is_asked_for() {
    for on_threads in [false, true] {
        let error = "error[Z0401]: the output of unit `power` on rank 1 ";
        fault_of("nan", on_threads, &[]).assert_error(2, error);
        assert_repeated(&fault_of("nan", on_threads, &["--rollback"]), error);
    }
}

#[test]
fn data_that_is_wrong_is_not_tried_again() {
    for on_threads in [false, true] {
        let end = fault_of("class", on_threads, &["--rollback"]);
        end.assert_error(2, "error[Z0420]: a target in step 3 is 300");
        assert_eq!(told(&end, RESTART).len(), 0);
    }
}

/// Runs a shell command in the place of another launcher.
fn started_by(folder: &TempDir, line: &str) -> Run {
    let mut command = program(env!("CARGO_BIN_EXE_starter"));
    Run::start(command.arg(line).env("RESTARTS", "3").env("FOLDER", folder.path()))
}

#[test]
fn another_launcher_that_fails_is_followed_by_another_where_that_may_help() {
    let folder = folder();
    // A rank that others have lost, and a rank that was killed, each after a checkpoint.
    let saves = format!("mkdir {}/step-00000000$ZERO_RESTART", folder.path().display());
    let line = format!("{saves}; case $ZERO_RESTART in 0) exit 76;; 1) kill -9 $$;; esac; echo came back");
    let end = started_by(&folder, &line).end();
    assert_eq!((end.code, &*end.lines), (Some(0), &["came back".to_owned()][..]), "{}", end.errors);
    let from = |restart, step| {
        format!("note: restart {restart} of 3: all ranks start anew from the checkpoint of step {step}")
    };
    assert_eq!(told(&end, "note"), [from(1, 0), from(2, 1)]);
}

#[test]
fn z0317_another_launcher_without_progress_is_the_last() {
    let end = started_by(&folder(), "exit 76").end();
    assert_eq!((end.code, told(&end, RESTART).len()), (Some(1), 1), "{}", end.errors);
    assert!(end.errors.contains("error[Z0317]: another restart would begin where the last one did"), "{}", end.errors);
}

#[test]
fn z0336_another_launcher_that_ends_too_early_as_if_all_was_well_has_failed() {
    let folder = folder();
    let line = format!("mkdir {}/step-00000000$ZERO_RESTART", folder.path().display());
    let mut command = program(env!("CARGO_BIN_EXE_starter"));
    let command = command.arg(line).env("RESTARTS", "3").env("FOLDER", folder.path()).env("LAST_STEP", "2");
    let end = Run::start(command).end();
    assert_eq!((end.code, told(&end, RESTART).len()), (Some(0), 2), "{}", end.errors);
    assert_eq!(told(&end, "error[Z0336]").len(), 2, "{}", end.errors);
}

#[test]
fn another_launcher_whose_end_is_settled_is_the_last() {
    for code in [0, 2, 74, 75] {
        let end = started_by(&folder(), &format!("exit {code}")).end();
        assert_eq!((end.code, &*end.errors), (Some(code), ""));
    }
}

/// A launcher that says by which signal it is ended.
const ENDED: &str = "trap 'echo got TERM; exit 9' TERM; trap 'echo got INT; exit 9' INT; trap 'echo got USR1' USR1; echo ready; \
                     while :; do sleep 0.05; done";

#[test]
fn a_signal_reaches_another_launcher_and_no_restart_follows() {
    for (signal, got) in [(Signal::TERM, "got TERM"), (Signal::INT, "got INT"), (Signal::HUP, "got TERM")] {
        let mut run = started_by(&folder(), ENDED);
        run.wait_for(1, "ready");
        kill_process(run.launcher(), signal).unwrap();
        let end = run.end_at_once();
        assert_eq!((end.code, &*end.errors), (Some(9), ""));
        assert_eq!(end.lines.last().map(String::as_str), Some(got));
    }
}

/// So they finish their step and save. On other signals, Open MPI's launcher would not give them the time.
#[test]
fn another_launcher_passes_on_to_ranks_that_they_are_to_finish() {
    for signal in [Signal::TERM, Signal::INT, Signal::HUP, Signal::USR1, Signal::USR2] {
        let folder = folder();
        let mut command = program(env!("CARGO_BIN_EXE_starter"));
        let mut run = Run::start(command.arg(ENDED).env("FINISHES", "1").env("FOLDER", folder.path()));
        run.wait_for(1, "ready");
        // Only what a person repeats ends them at once.
        let again = match signal {
            Signal::TERM => "got TERM",
            Signal::INT => "got INT",
            _ => "got USR1",
        };
        for got in ["got USR1", again] {
            kill_process(run.launcher(), signal).unwrap();
            run.wait_for(1, got);
        }
    }
}

#[test]
fn a_restart_waits_until_the_last_start_has_left_its_folder() {
    let folder = folder();
    // A remaining process holds the lock for two seconds longer than the launcher's minimum wait.
    let lock = folder.path().join("lock");
    let holds = format!("[ $ZERO_RESTART = 1 ] || {{ flock {} sleep 5 & sleep 0.5; exit 76; }}", lock.display());
    let line = format!("{holds}; flock --nonblock {} true", lock.display());
    let end = started_by(&folder, &line).end();
    assert_eq!(end.code, Some(0), "{}", end.errors);
    assert!(end.errors.contains("note: the restart waits until no rank of the last start uses"), "{}", end.errors);
}

#[test]
fn z0319_ranks_that_nobody_starts_anew() {
    let folder = folder();
    let command = || {
        let mut command = tiny(3);
        command.args(["--checkpoint", folder.path().to_str().unwrap(), "--restarts", "5"]);
        command
    };
    let job = new_job();
    let ends: Vec<End> = start_ranks(command, &[("ZERO_JOB", &job)]).into_iter().map(Run::end).collect();
    assert!(ends.iter().all(|end| end.code == Some(2)));
    let errors: String = ends.iter().map(|end| end.errors.as_str()).collect();
    assert_eq!(errors.matches("error[Z0319]: --restarts 5 asks to restart ranks").count(), 1, "{errors}");
}
