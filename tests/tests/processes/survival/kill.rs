//! Kill: a run is killed before and after each system call that it makes in the folder of its checkpoints. It always leaves a
//! whole newest checkpoint, and continues from it to the same end.

use std::collections::BTreeSet;

use zero_tests::long::is_left_out;

use super::survivor::{Outcome, Survivor};
use super::trace::{Point, trace};

/// Two saves: the first, and one that makes the first unnecessary.
const STEPS: u64 = 4;
const EVERY: u64 = 2;

#[test]
fn a_run_that_is_killed_at_any_system_call_of_a_save_comes_back() {
    at_every_call("waiting");
}

#[test]
fn one_that_trains_while_it_saves_does_too() {
    at_every_call("threads");
}

fn at_every_call(kind: &'static str) {
    if is_left_out("run that is killed at each system call") {
        return;
    }
    let alone = Survivor::new(kind, STEPS, EVERY);
    let undisturbed = trace(&mut alone.command(false), &alone.checkpoints(), None);
    assert_eq!(undisturbed.code, Some(0), "the run fails by itself");
    alone.assert_tidy();
    let (outcome, points) = (alone.outcome(), undisturbed.points);
    assert_eq!(outcome.losses.len(), STEPS as usize);
    for call in ["fsync", "write", "openat", "rename", "unlink", "rmdir", "mkdir"] {
        let is_there = points.iter().any(|point| point.call.starts_with(call));
        assert!(is_there, "there is no {call} among {points:?}");
    }
    let files: BTreeSet<_> = points.iter().filter_map(|point| point.path.file_name()).collect();
    assert!(files.iter().any(|name| *name == "manifest.jsonl") && files.iter().any(|name| *name == "rank-00001.sums"));
    // Two runs at a time, each with its own tracer.
    std::thread::scope(|scope| {
        for points in points.chunks(points.len().div_ceil(2)) {
            scope.spawn(|| points.iter().for_each(|point| killed_at(kind, point, &outcome)));
        }
    });
    println!("{kind}: killed at {} points", points.len());
}

fn killed_at(kind: &'static str, point: &Point, expected: &Outcome) {
    let run = Survivor::new(kind, STEPS, EVERY);
    let traced = trace(&mut run.command(false), &run.checkpoints(), Some(point));
    assert_eq!((traced.code, traced.points.last()), (None, Some(point)), "it was not killed there");
    let newest = run.newest_is_whole();
    // A completed rename is not undone. That of step 0 is a trial.
    let is_trial = |point: &&Point| point.path.ends_with(".partial-step-000000000");
    let renamed = traced.points.iter().filter(|point| point.call.starts_with("rename") && point.is_after);
    let named = renamed.filter(|point| !is_trial(point)).count();
    assert!(newest.is_some() || named == 0, "killed at {point:?}, no checkpoint is left");
    let again = run.command(true).output().unwrap();
    let told = String::from_utf8_lossy(&again.stderr);
    assert_eq!((again.status.code(), &*told), (Some(0), ""), "killed at {point:?}, it does not come back");
    run.outcome().assert_is(expected);
    // If there was nothing left to do, there was no save that could have cleaned up.
    if newest != Some(STEPS) {
        run.assert_tidy();
    }
}
