//! A run that is asked to end finishes its work in time, or is ended, whatever started it.

use std::process::Command;

use nix::sys::signal::{SigSet, Signal as Nix};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use crate::run::{End, RANKS, Run, new_job, program, scripted, start_ranks, tiny};

/// The signals that ask a run to end.
const REQUESTS: [(Signal, &str); 5] = [
    (Signal::TERM, "SIGTERM"),
    (Signal::INT, "SIGINT"),
    (Signal::HUP, "SIGHUP"),
    (Signal::USR1, "SIGUSR1"),
    (Signal::USR2, "SIGUSR2"),
];

const FINISHES: (&str, &str) = ("FINISHES", "1");

/// Starts ranks that follow instructions when they are asked to end, and waits until they listen.
fn listening(told: &str, variables: &[(&str, &str)]) -> Run {
    let mut run = Run::start(&mut scripted(told, variables));
    run.wait_for(RANKS, " listens");
    run
}

fn assert_asked(end: &End, name: &str) {
    let note = format!("note: asked to end by {name}: the ranks finish their step and write a checkpoint, in at most ");
    assert!(end.errors.starts_with(&note) && end.errors.lines().count() == 1, "{}", end.errors);
    assert_eq!(end.code, Some(75));
    assert_eq!(end.lines.iter().filter(|line| line.ends_with(" was asked")).count(), RANKS);
}

#[test]
fn a_signal_is_passed_on_and_the_ranks_finish() {
    for (signal, name) in REQUESTS {
        // To the launcher alone, like `kill`, and to the whole group, like a terminal or a scheduler.
        for ask in [kill_process, kill_process_group] {
            let run = listening("finish", &[FINISHES]);
            ask(run.launcher(), signal).unwrap();
            assert_asked(&run.end_at_once(), name);
        }
    }
}

#[test]
fn a_second_signal_ends_all_at_once() {
    for (signal, code, name) in [(Signal::TERM, 143, "SIGTERM"), (Signal::INT, 130, "SIGINT")] {
        for ask in [kill_process, kill_process_group] {
            let mut run = listening("deaf", &[FINISHES]);
            ask(run.launcher(), signal).unwrap();
            run.wait_for(RANKS, " was asked");
            ask(run.launcher(), signal).unwrap();
            let end = run.end_at_once();
            assert_eq!(end.code, Some(code));
            let told = format!("interrupted by {name}: all {RANKS} ranks have ended\n");
            assert!(end.errors.starts_with("note: asked ") && end.errors.ends_with(&told), "{}", end.errors);
        }
    }
}

#[test]
fn z0318_ranks_that_take_too_long_are_ended() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    for newest in ["there is no checkpoint", "the newest checkpoint is from step 12"] {
        let mut run = listening("deaf", &[FINISHES, ("GRACE", "1"), ("FOLDER", path)]);
        kill_process(run.launcher(), Signal::TERM).unwrap();
        run.wait_for(RANKS, " was asked");
        let end = run.end();
        end.assert_error(
            143,
            &format!("error[Z0318]: 1 s after SIGTERM the run had not ended, and was killed: {newest}"),
        );
        std::fs::create_dir_all(folder.path().join("step-000000012")).unwrap();
    }
}

#[test]
fn without_a_checkpoint_the_first_signal_ends_all() {
    let run = listening("finish", &[]);
    kill_process(run.launcher(), Signal::TERM).unwrap();
    let end = run.end_at_once();
    let words = format!("interrupted by SIGTERM: all {RANKS} ranks have ended\n");
    assert_eq!((end.code, end.errors), (Some(143), words));
}

#[test]
fn ranks_that_do_not_listen_yet_are_ended() {
    for ask in [kill_process, kill_process_group] {
        let mut run = Run::start(&mut scripted("done", &[FINISHES, ("WHO", "9")]));
        run.wait_for(RANKS, " waits");
        ask(run.launcher(), Signal::TERM).unwrap();
        let end = run.end_at_once();
        assert_eq!(end.code, Some(143));
        assert!(end.errors.ends_with("interrupted by SIGTERM: all 3 ranks have ended\n"), "{}", end.errors);
    }
}

/// As Slurm sends SIGTERM some time after SIGUSR1, and a shell SIGHUP after its terminal has.
#[test]
fn a_signal_of_another_kind_cuts_nothing_short() {
    let mut run = listening("finish", &[FINISHES]);
    let ranks = run.ranks(RANKS);
    // A rank that is stopped does not end meanwhile.
    ranks.iter().for_each(|rank| kill_process(*rank, Signal::STOP).unwrap());
    for signal in [Signal::HUP, Signal::HUP, Signal::USR1, Signal::USR1, Signal::TERM, Signal::INT] {
        kill_process(run.launcher(), signal).unwrap();
        if signal == Signal::HUP {
            continue;
        }
        // Signals that have not been taken yet count as one.
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    ranks.iter().for_each(|rank| kill_process(*rank, Signal::CONT).unwrap());
    run.wait_for(RANKS, " was asked");
    let end = run.end();
    assert_eq!((end.code, end.errors.matches("note: asked to end by SIGHUP").count()), (Some(75), 1), "{}", end.errors);
}

/// `nohup` starts a run like this.
#[test]
fn a_sighup_that_is_ignored_stays_ignored() {
    let mut command = program("/bin/sh");
    command.args(["-c", "trap '' HUP; exec \"$0\"", env!("CARGO_BIN_EXE_scripted")]);
    command.env("DO", "finish").envs([FINISHES]);
    let mut run = Run::start(&mut command);
    run.wait_for(RANKS, " listens");
    kill_process_group(run.launcher(), Signal::HUP).unwrap();
    kill_process(run.launcher(), Signal::TERM).unwrap();
    assert_asked(&run.end(), "SIGTERM");
}

/// Some supervisors block signals, and programs that they start inherit that.
#[test]
fn signals_that_were_blocked_are_heard() {
    let start = |command: &mut Command| {
        let blocked: SigSet = [Nix::SIGCHLD, Nix::SIGTERM, Nix::SIGINT].into_iter().collect();
        // In a thread of its own, because signals are blocked for a thread and the processes that it starts.
        std::thread::scope(|scope| {
            let blocked = scope.spawn(|| blocked.thread_block().map(|()| Run::start(command)));
            blocked.join().unwrap().unwrap()
        })
    };
    let end = start(&mut scripted("done", &[])).end_at_once();
    assert_eq!((end.code, end.errors.as_str()), (Some(0), ""));
    for signal in [Signal::TERM, Signal::INT] {
        let mut run = start(&mut scripted("finish", &[FINISHES]));
        run.wait_for(RANKS, " listens");
        kill_process(run.launcher(), signal).unwrap();
        assert_eq!(run.end_at_once().code, Some(75));
    }
}

/// All ranks may agree to end if one of them was asked, so the launcher waits for them.
#[test]
fn a_single_rank_can_be_asked() {
    let mut run = listening("finish", &[FINISHES]);
    let [first, others @ ..] = &run.ranks(RANKS)[..] else { unreachable!() };
    kill_process(*first, Signal::TERM).unwrap();
    run.wait_for(1, "rank 0 was asked");
    others.iter().for_each(|rank| kill_process(*rank, Signal::TERM).unwrap());
    let end = run.end();
    assert_eq!((end.code, end.errors.as_str()), (Some(75), ""));
}

#[test]
fn a_single_rank_that_was_asked_and_does_not_end_says_so() {
    let run = listening("deaf", &[FINISHES, ("GRACE", "1")]);
    let rank = run.ranks(RANKS)[1];
    kill_process(rank, Signal::TERM).unwrap();
    // If the launcher had been asked, it would have ended the rank earlier.
    run.end().assert_error(2, "error[Z0318]: 6 s after SIGTERM ");
}

#[test]
fn a_rank_that_fails_when_asked_is_told_and_nothing_is_restarted() {
    let mut run = listening("deaf", &[FINISHES, ("RESTARTS", "3")]);
    kill_process(run.launcher(), Signal::TERM).unwrap();
    run.wait_for(RANKS, " was asked");
    kill_process(run.ranks(RANKS)[1], Signal::KILL).unwrap();
    let end = run.end_at_once();
    end.assert_error(1, "error[Z0310]: rank 1 (pid ");
    assert!(!end.errors.contains("restart"), "{}", end.errors);
}

/// Ranks that a foreign launcher has started, after they have begun to listen.
fn foreign(told: &str, variables: &[(&str, &str)]) -> Vec<Run> {
    let mut ranks = start_ranks(|| scripted(told, variables), &[("ZERO_JOB", &new_job())]);
    ranks.iter_mut().for_each(|rank| rank.wait_for(1, " listens"));
    ranks
}

#[test]
fn under_a_foreign_launcher_each_rank_is_asked_by_itself() {
    for (signal, _) in REQUESTS {
        for rank in foreign("finish", &[]) {
            kill_process(rank.launcher(), signal).unwrap();
            let end = rank.end_at_once();
            assert_eq!((end.code, end.errors.as_str()), (Some(75), ""));
        }
    }
}

#[test]
fn under_a_foreign_launcher_a_second_signal_ends_a_rank() {
    let ask = |rank: Pid, signal| kill_process(rank, signal).unwrap();
    for (signal, code) in [(Signal::TERM, 143), (Signal::INT, 130)] {
        for mut rank in foreign("deaf", &[]) {
            ask(rank.launcher(), signal);
            rank.wait_for(1, " was asked");
            ask(rank.launcher(), signal);
            let end = rank.end_at_once();
            assert_eq!((end.code, end.errors.as_str()), (Some(code), ""));
        }
    }
}

#[test]
fn under_a_foreign_launcher_a_signal_of_another_kind_cuts_nothing_short() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = program(env!("CARGO_BIN_EXE_faults"));
    command.args(saving(&folder)).args(["--steps", "1000000000", "--log-every", "1"]);
    let mut run = Run::start(command.env("THREADS", "1"));
    run.wait_for_step(3);
    for signal in [Signal::USR1, Signal::USR1, Signal::TERM, Signal::INT, Signal::HUP] {
        // Fails if it has ended.
        let _ = kill_process(run.launcher(), signal);
    }
    let end = run.end();
    assert_eq!((end.code, end.errors.as_str(), checkpoints(&folder)), (Some(75), "", 1));
}

#[test]
fn under_a_foreign_launcher_a_rank_ends_itself_when_it_takes_too_long() {
    for rank in foreign("deaf", &[("GRACE", "1")]) {
        kill_process(rank.launcher(), Signal::TERM).unwrap();
        let end = rank.end();
        end.assert_error(143, "error[Z0318]: 1 s after SIGTERM the run had not ended, and was killed: its work since");
    }
}

/// Arguments of a run with checkpoints.
fn saving(folder: &tempfile::TempDir) -> [&str; 2] {
    ["--checkpoint", folder.path().to_str().unwrap()]
}

fn checkpoints(folder: &tempfile::TempDir) -> usize {
    let names = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.starts_with("step-")).count()
}

#[test]
fn a_model_is_saved_whichever_process_is_asked() {
    // The launcher, as number 0, and each rank.
    for asked in 0..=RANKS {
        let folder = tempfile::tempdir().unwrap();
        let mut run = Run::start(tiny(u64::MAX).args(saving(&folder)));
        run.wait_for_step(3);
        let processes: Vec<Pid> = [run.launcher()].into_iter().chain(run.ranks(RANKS)).collect();
        kill_process(processes[asked], Signal::TERM).unwrap();
        let end = run.end();
        assert_eq!((end.code, checkpoints(&folder)), (Some(75), 1), "{}", end.errors);
    }
}

#[test]
fn under_a_foreign_launcher_all_ranks_save_when_one_is_asked() {
    for asked in 0..RANKS {
        let folder = tempfile::tempdir().unwrap();
        let command = || {
            let mut command = tiny(u64::MAX);
            command.args(saving(&folder));
            command
        };
        let mut ranks = start_ranks(command, &[("ZERO_JOB", &new_job())]);
        ranks[0].wait_for_step(3);
        kill_process(ranks[asked].launcher(), Signal::INT).unwrap();
        for end in ranks.into_iter().map(Run::end) {
            assert_eq!((end.code, end.errors.as_str()), (Some(75), ""));
        }
        assert_eq!(checkpoints(&folder), 1);
    }
}

#[test]
fn ranks_that_are_threads_are_asked_as_one_process() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = program(env!("CARGO_BIN_EXE_faults"));
    command.args(saving(&folder)).args(["--steps", "1000000000", "--log-every", "1"]);
    let mut run = Run::start(command.env("THREADS", "1"));
    // Before its ranks listen, a signal ends the process like any other.
    run.wait_for_step(3);
    kill_process(run.launcher(), Signal::INT).unwrap();
    let end = run.end();
    assert_eq!((end.code, end.errors.as_str(), checkpoints(&folder)), (Some(75), "", 1));
}
