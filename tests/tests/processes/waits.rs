//! A long wait is reported with the awaited rank, more than once, in a step and at the start, by one rank for all.

use rustix::process::{Signal, kill_process};

use crate::run::{RANKS, Run, endless, faults, new_job, tiny};

#[test]
fn a_wait_for_a_stopped_rank_says_so_and_goes_on_with_it() {
    let mut run = endless();
    let stopped = run.ranks(RANKS)[1];
    kill_process(stopped, Signal::STOP).unwrap();
    // Two ranks wait. Because the second note is from a later time, one of them has reported for both.
    for seconds in [5, 10] {
        let note = run.next_complaint();
        let waited = format!(" has waited {seconds} s for rank ");
        assert!(note.starts_with("note: rank ") && note.contains(&waited), "{note}");
        assert!(note.contains(", in op ") && note.contains("; rank 1 is in "), "{note}");
    }
    run.goes_on_after(|| kill_process(stopped, Signal::CONT).unwrap());
}

#[test]
fn rank_0_says_for_whom_the_start_waits() {
    let mut run = Run::start(&mut faults("absent"));
    assert_eq!(run.next_complaint(), "note: rank 0 has waited 5 s for rank 1 of 3 to start");
    assert_eq!(run.next_complaint(), "note: rank 0 has waited 10 s for rank 1 of 3 to start");
}

#[test]
fn one_says_that_rank_0_has_not_started_and_that_it_never_did() {
    let job = new_job();
    let start = |rank: usize| {
        let place = [("RANK", rank.to_string()), ("WORLD_SIZE", RANKS.to_string()), ("ZERO_JOB", job.clone())];
        Run::start(tiny(4).envs(place).env("ZERO_JOIN_TIMEOUT_S", "7"))
    };
    let ends = [1, 2].map(start).map(Run::end);
    let told: Vec<&str> = ends.iter().flat_map(|end| end.errors.lines()).collect();
    let [note, error, _help] = told[..] else { panic!("{told:?}") };
    assert!(note.starts_with("note: rank ") && note.ends_with(" has waited 5 s for rank 0 to start"), "{note}");
    assert!(error.starts_with("error[Z0322]: rank ") && error.contains(" waited 7 s for rank 0"), "{error}");
}

#[test]
fn a_stopped_rank_0_is_named_by_one_that_waits_for_its_answer() {
    let mut run = Run::start(&mut faults("absent"));
    let rank_0 = run.ranks(RANKS)[0];
    // By then, rank 2 has sent its hello.
    assert_eq!(run.next_complaint(), "note: rank 0 has waited 5 s for rank 1 of 3 to start");
    kill_process(rank_0, Signal::STOP).unwrap();
    assert_eq!(run.next_complaint(), "note: rank 2 has waited 10 s for rank 0 to answer");
}
