//! A fault inside a rank ends all ranks, and is reported once, by the process that knows most about it.

use rustix::process::{Signal, kill_process};

use crate::run::{End, RANKS, Run, faults, new_job, start_ranks};

/// Often enough, where the order in which ranks end is up to chance.
const REPETITIONS: usize = 5;

fn on_threads(fault: &str) -> End {
    Run::start(faults(fault).env("THREADS", "1")).end()
}

#[test]
fn without_a_fault_it_trains() {
    Run::start(&mut faults("")).end().assert_success(6);
    on_threads("").assert_success(6);
}

#[test]
fn a_panic_ends_all_and_is_named() {
    let end = Run::start(&mut faults("panic")).end_at_once();
    end.assert_error(1, "error[Z0311]: rank 1 (pid ");
    assert!(end.errors.contains("as told") && end.errors.contains("ended with exit code 101"), "{}", end.errors);
    // Rank 0 may have had no time to report step 2.
    assert!(end.steps().len() <= 2, "{:?}", end.steps());
}

#[test]
fn a_panic_ends_ranks_that_are_threads() {
    let end = on_threads("panic");
    assert_eq!((end.code, end.steps().len()), (Some(101), 2));
    assert_eq!(end.errors.matches("panicked").count(), 1, "{}", end.errors);
    assert!(end.errors.contains("'rank 1'") && end.errors.contains("as told"), "{}", end.errors);
}

#[test]
fn an_exit_code_is_named() {
    let end = Run::start(&mut faults("exit")).end_at_once();
    end.assert_error(1, "error[Z0311]: rank 1 (pid ");
    assert!(end.errors.contains("ended with exit code 7"), "{}", end.errors);
}

#[test]
fn a_rank_that_dies_before_it_joins_is_named() {
    let end = Run::start(&mut faults("early")).end_at_once();
    end.assert_error(1, "error[Z0311]: rank 1 (pid ");
    assert!(end.errors.contains("ended with exit code 9"), "{}", end.errors);
}

#[test]
fn a_rank_0_that_dies_while_others_join_is_named() {
    let run = Run::start(&mut faults("absent"));
    kill_process(run.ranks(RANKS)[0], Signal::KILL).unwrap();
    run.end_at_once().assert_error(1, "error[Z0310]: rank 0 (pid ");
}

#[test]
fn an_interrupt_while_ranks_join_ends_all() {
    let run = Run::start(&mut faults("absent"));
    run.ranks(RANKS);
    kill_process(run.launcher(), Signal::TERM).unwrap();
    assert_eq!(run.end_at_once().code, Some(143));
}

#[test]
fn a_rank_that_has_reported_is_not_named_again() {
    let end = Run::start(&mut faults("report")).end_at_once();
    assert_eq!((end.code, end.errors.as_str()), (Some(2), "error[Z9999]: my own words\n"));
}

#[test]
fn a_rank_that_leaves_early_with_success_is_named_by_a_survivor() {
    Run::start(&mut faults("leave")).end().assert_error(2, "error[Z0314]: rank 1 (pid ");
}

/// Z0401 for a unit and a part of its work, on rank 1 in step 3.
fn not_finite(what: &str, unit: &str) -> String {
    format!("error[Z0401]: {what} of unit `{unit}` on rank 1 went infinite or NaN in step 3")
}

#[test]
fn an_output_that_is_not_finite_is_located() {
    for _ in 0..REPETITIONS {
        let end = Run::start_on_one_processor(&mut faults("nan")).end();
        end.assert_error(2, &not_finite("the output", "power"));
        assert_eq!(end.steps().len(), 2);
    }
    on_threads("nan").assert_error(2, &not_finite("the output", "power"));
}

#[test]
fn a_gradient_that_is_not_finite_is_located() {
    for _ in 0..REPETITIONS {
        let end = Run::start_on_one_processor(&mut faults("zero")).end();
        end.assert_error(2, &not_finite("the gradients", "power"));
        assert_eq!(end.steps().len(), 2);
    }
    on_threads("zero").assert_error(2, &not_finite("the gradients", "power"));
}

#[test]
fn held_out_data_that_is_not_finite_is_located() {
    let end = Run::start(&mut faults("held-out")).end();
    end.assert_error(
        2,
        "error[Z0401]: the output of unit `power` on rank 1 went infinite or NaN on held-out data after step 6",
    );
}

#[test]
fn under_a_foreign_launcher_rank_0_tells_what_is_not_finite() {
    let ranks = start_ranks(|| faults("nan"), &[("ZERO_JOB", &new_job())]);
    let ends: Vec<End> = ranks.into_iter().map(Run::end).collect();
    ends[0].assert_error(2, &not_finite("the output", "power"));
    for end in &ends[1..] {
        assert_eq!((end.code, end.errors.as_str()), (Some(2), ""));
    }
}

/// Z0420 for a target, in a step and at a place of a rank's micro-batch.
fn no_class(step: u64, id: u32, rank: usize, sequence: usize, token: usize) -> String {
    format!(
        "error[Z0420]: a target in step {step} is {id}, expected less than 2, the number of classes of the head\n  --> rank \
         {rank}, micro-batch 0, sequence {sequence}, token {token} (each counted from 0)\n  = help: correct the dataset \
         there, or build the model with a head of {} or more\n",
        id + 1
    )
}

#[test]
fn a_target_beyond_the_classes_is_told_once_with_its_place() {
    for _ in 0..REPETITIONS {
        for end in [Run::start_on_one_processor(&mut faults("class")).end(), on_threads("class")] {
            assert_eq!((end.code, end.errors.as_str()), (Some(2), no_class(3, 300, 1, 0, 2).as_str()));
            assert_eq!(end.steps().len(), 2);
        }
    }
}

#[test]
fn targets_that_are_all_wrong_are_told_once() {
    for end in [Run::start(&mut faults("classes")).end(), on_threads("classes")] {
        assert_eq!((end.code, end.errors.as_str()), (Some(2), no_class(1, 2, 0, 0, 0).as_str()));
        assert_eq!(end.steps().len(), 0);
    }
}
