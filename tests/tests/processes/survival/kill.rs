//! Kill: a run is killed before and after each system call that it makes in the folder of its checkpoints, or on the states that it
//! keeps on disk. It always leaves a whole newest checkpoint, and continues from it to the same end.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use zero_tests::long::is_left_out;
use zero_tests::tiers::can_keep_states;

use super::survivor::{OFFLOADED, Outcome, Survivor};
use super::trace::{Point, UNNAMED, trace};

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
    killed_at_each(kind, &points, Survivor::checkpoints, &outcome);
}

/// States on disk need no repair: a run continues from its checkpoint, and a file without a name is gone with its run.
#[test]
fn one_that_is_killed_at_any_system_call_of_a_fetch_or_store_does_too() {
    let alone = Survivor::new(OFFLOADED, STEPS, EVERY);
    if !can_keep_states(alone.states(), "run with states on disk that is killed") {
        return;
    }
    let undisturbed = trace(&mut alone.command(false), alone.states(), None);
    assert_eq!(undisturbed.code, Some(0), "the run fails by itself");
    let outcome = alone.outcome();
    // The same states, and the same files, as without offload.
    let kept = Survivor::new("waiting", STEPS, EVERY);
    assert!(kept.command(false).output().unwrap().status.success());
    outcome.assert_is(&kept.outcome());
    let points = undisturbed.points;
    for call in ["open", "fallocate", "pread64", "pwrite64", "close"] {
        let is_there = points.iter().any(|point| point.call.starts_with(call));
        assert!(is_there, "there is no {call} among {points:?}");
    }
    let is_unnamed = |point: &Point| point.call.starts_with("open") || point.path == Path::new(UNNAMED);
    assert!(points.iter().all(is_unnamed), "a file has a name: {points:?}");
    // Threads of two ranks come to them in any order, but each comes to all of its own.
    let every =
        if is_left_out("run that is killed at each system call of a fetch or store") { points.len() / 5 } else { 1 };
    let points: Vec<Point> = points.into_iter().step_by(every).collect();
    killed_at_each(OFFLOADED, &points, |run| run.states().to_owned(), &outcome);
}

/// Kills a run at each of these points, which lie in a folder.
fn killed_at_each(kind: &'static str, points: &[Point], folder: fn(&Survivor) -> PathBuf, outcome: &Outcome) {
    // Two runs at a time, each with its own tracer.
    std::thread::scope(|scope| {
        for points in points.chunks(points.len().div_ceil(2)) {
            scope.spawn(move || points.iter().for_each(|point| killed_at(kind, point, folder, outcome)));
        }
    });
    println!("{kind}: killed at {} points", points.len());
}

fn killed_at(kind: &'static str, point: &Point, folder: fn(&Survivor) -> PathBuf, expected: &Outcome) {
    let run = Survivor::new(kind, STEPS, EVERY);
    let traced = trace(&mut run.command(false), &folder(&run), Some(point));
    assert_eq!((traced.code, traced.points.last()), (None, Some(point)), "it was not killed there");
    run.assert_no_states();
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
