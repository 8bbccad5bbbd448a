//! Faults: a rank is killed, stopped or sent SIGSEGV, wherever it is in a step or in a save, or the launcher is killed. The run
//! ends with the losses and the states of an undisturbed run, and nothing of it is left.
//! `FAULTS=200` interrupts the last test more often.

use std::time::{Duration, Instant};

use rustix::process::{Signal, kill_process};

use super::survivor::{Outcome, Survivor};
use crate::run::{RANKS, Run, wait_until};
use crate::system::{members, rank_of};

const STEPS: u64 = 20;
const EVERY: u64 = 3;
/// Enough saves for a rank that looks for one.
const SAVES: u64 = 300;
/// How long a rank may be silent; four times as long in the first two steps.
const TIMEOUT: &str = "2s";

fn undisturbed(steps: u64, every: u64) -> Outcome {
    let run = Survivor::new("processes", steps, every);
    assert_eq!(Run::start(&mut run.command(false)).end().code, Some(0));
    run.assert_tidy();
    run.outcome()
}

/// Asserts that a run whose rank 1 gets the signal at this moment recovers.
fn strike(moment: &str, signal: Signal, (steps, every): (u64, u64), expected: &Outcome) {
    let run = Survivor::new("processes", steps, every);
    let note = run.path("struck");
    let mut command = run.command(false);
    command.args(["--restarts", "1", "--timeout", TIMEOUT]).env("STRIKE", format!("{moment} {}", signal.as_raw()));
    command.env("STRUCK", &note).env("CHECKPOINTS", run.checkpoints());
    let end = Run::start(&mut command).end();
    let what = format!("{signal:?} in {moment}: {}", end.errors);
    assert_eq!(end.code, Some(0), "{what}");
    assert!(note.exists(), "{what}");
    assert!(end.errors.contains("rank 1") && end.errors.contains("note: restart 1 of 1"), "{what}");
    run.assert_tidy();
    run.outcome().assert_is(expected);
}

#[test]
fn a_rank_that_dies_in_a_step_comes_back() {
    let expected = undisturbed(STEPS, EVERY);
    for signal in [Signal::KILL, Signal::SEGV] {
        for moment in ["forward", "backward"] {
            strike(moment, signal, (STEPS, EVERY), &expected);
        }
    }
}

/// Collectives of gradients and the update are over within some ten microseconds of one another.
#[test]
fn a_rank_that_dies_between_backward_and_the_next_step_comes_back() {
    let expected = undisturbed(STEPS, EVERY);
    for micros in [0, 10, 20, 40, 80, 160, 320, 640] {
        strike(&format!("after {micros}"), Signal::KILL, (STEPS, EVERY), &expected);
    }
}

#[test]
fn a_rank_that_dies_while_it_saves_comes_back() {
    let expected = undisturbed(SAVES, 1);
    for signal in [Signal::KILL, Signal::SEGV, Signal::STOP] {
        strike("save", signal, (SAVES, 1), &expected);
    }
}

#[test]
fn a_rank_that_is_stopped_comes_back() {
    let expected = undisturbed(STEPS, EVERY);
    for moment in ["forward", "backward"] {
        strike(moment, Signal::STOP, (STEPS, EVERY), &expected);
    }
}

#[test]
fn a_run_whose_launcher_is_killed_comes_back() {
    const MANY: u64 = 3000;
    let (expected, run) = (undisturbed(MANY, EVERY), Survivor::new("processes", MANY, EVERY));
    let started = Run::start(&mut run.command(false));
    wait_until("there is no checkpoint", || run.checkpoints().exists() && run.newest() >= Some(EVERY));
    kill_process(started.launcher(), Signal::KILL).unwrap();
    assert_eq!(started.end().code, None);
    assert!(run.newest_is_whole() < Some(MANY));
    assert_eq!(Run::start(&mut run.command(true)).end().code, Some(0));
    run.outcome().assert_is(&expected);
}

#[test]
fn faults_in_a_row_leave_nothing_behind() {
    let count = std::env::var("FAULTS").map_or(8, |count| count.parse().expect("a number of faults"));
    soak(count);
}

/// Pseudo-random numbers, the same in every run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: u64) -> u64 {
        self.0 += 1;
        (zero_core::random::uniform(7, self.0) * end as f64) as u64
    }
}

/// Interrupts runs until they were interrupted `count` times, and lets the last one end.
fn soak(count: usize) {
    const LONG: u64 = 2000;
    let (expected, mut dice) = (undisturbed(LONG, EVERY), Dice(0));
    let (mut struck, mut ends) = (0, Vec::new());
    while struck < count {
        let run = Survivor::new("processes", LONG, EVERY);
        let mut resumes = false;
        loop {
            let mut command = run.command(resumes);
            command.args(["--restarts", "1000", "--timeout", TIMEOUT]);
            let started = Run::start(&mut command);
            let before = struck;
            while struck < count && !members(started.launcher()).is_empty() && struck < before + 20 {
                std::thread::sleep(Duration::from_millis(dice.below(500)));
                struck += usize::from(fault(&started, &mut dice));
            }
            let end = started.end();
            ends.push(end.code);
            // The newest checkpoint is whole, however the run ended.
            run.newest_is_whole();
            resumes = run.checkpoints().exists();
            match end.code {
                Some(0) => break,
                // The launcher was killed or asked to end, or there was no checkpoint between two faults.
                None | Some(75 | 1 | 2 | 143) => {}
                code => panic!("{code:?}: {}", end.errors),
            }
        }
        run.outcome().assert_is(&expected);
    }
    println!("{struck} faults; runs ended with {ends:?}");
}

/// Interrupts a run somewhere. Returns whether there was a process to interrupt.
fn fault(run: &Run, dice: &mut Dice) -> bool {
    let all = members(run.launcher());
    let ranks: Vec<_> = all.iter().filter(|&&pid| rank_of(pid).is_some()).copied().collect();
    let victim = *ranks.get(dice.below(RANKS as u64) as usize).unwrap_or(&run.launcher());
    let (pid, signal) = match dice.below(12) {
        0 => (run.launcher(), Signal::KILL),
        1 => (run.launcher(), Signal::TERM),
        2 => (victim, Signal::STOP),
        3 => (victim, Signal::ABORT),
        4..=6 => (victim, Signal::SEGV),
        _ => (victim, Signal::KILL),
    };
    if pid == run.launcher() && matches!(signal, Signal::STOP) || !all.contains(&pid) {
        return false;
    }
    let start = Instant::now();
    let is_struck = kill_process(pid, signal).is_ok();
    // Until it has ended, or is found to be stopped.
    let timeout = Duration::from_secs(20);
    while members(run.launcher()).contains(&pid) && start.elapsed() < timeout {
        std::thread::sleep(Duration::from_millis(2));
        // The first SIGSEGV only removes Rust's own handler.
        if signal == Signal::SEGV {
            let _ = kill_process(pid, signal);
        }
    }
    is_struck
}
