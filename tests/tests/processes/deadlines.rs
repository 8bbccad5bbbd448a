//! If a rank does not arrive in time, one of the ranks that wait for it names it, and the run ends, wherever the rank is and
//! whatever started it.

use rustix::process::{Signal, kill_process};

use crate::run::{End, RANKS, Run, faults, new_job, start_ranks, tiny};

const TIMEOUT: [&str; 2] = ["--timeout", "2s"];

/// Asserts that a run ended because it gave up on a rank that was in some state.
fn assert_silent(end: &End, rank: usize, pid: &str, state: &str) {
    let start = format!("error[Z0402]: after 2 s, rank {rank} (pid {pid} on ");
    end.assert_error(2, &start);
    let told: Vec<&str> = end.errors.lines().collect();
    let [error, missing, waiting, help] = told[..] else { panic!("{}", end.errors) };
    assert!(error.ends_with(&format!(") has not answered: {state}")), "{error}");
    assert!(missing.starts_with(&format!("  --> rank {rank} was last in ")), "{missing}");
    assert!(waiting.starts_with("  --> rank ") && waiting.contains(" waits for rank "), "{waiting}");
    assert!(waiting.contains(&format!("rank {rank}, in ")), "{waiting}");
    assert!(help.starts_with("  = help: "), "{help}");
}

#[test]
fn a_stopped_rank_is_named_and_ended_with_the_others() {
    for rank in [0, 1, 2] {
        let mut run = Run::start(tiny(u64::MAX).args(TIMEOUT));
        run.wait_for_step(3);
        let pid = run.ranks(RANKS)[rank];
        kill_process(pid, Signal::STOP).unwrap();
        assert_silent(&run.end(), rank, &pid.to_string(), "it is stopped");
    }
}

#[test]
fn under_a_foreign_launcher_one_rank_names_it_and_it_ends_when_it_goes_on() {
    for stopped in [0, 2] {
        let mut ranks = start_ranks(
            || {
                let mut command = tiny(u64::MAX);
                command.args(TIMEOUT);
                command
            },
            &[("ZERO_JOB", &new_job())],
        );
        ranks[0].wait_for_step(3);
        let missing = ranks.remove(stopped);
        let pid = missing.launcher();
        kill_process(pid, Signal::STOP).unwrap();
        let ends: Vec<End> = ranks.into_iter().map(Run::end).collect();
        let (told, quiet): (Vec<&End>, Vec<&End>) = ends.iter().partition(|end| !end.errors.is_empty());
        assert_eq!((told.len(), quiet[0].code), (1, Some(2)));
        assert_silent(told[0], stopped, &pid.to_string(), "it is stopped");
        kill_process(pid, Signal::CONT).unwrap();
        let end = missing.end();
        assert_eq!((end.code, end.errors.as_str()), (Some(2), ""));
    }
}

#[test]
fn a_rank_that_is_busy_is_named_with_its_op() {
    let run = Run::start(faults("busy").args(TIMEOUT));
    let pid = run.ranks(RANKS)[1].to_string();
    let end = run.end();
    assert_silent(&end, 1, &pid, "it is neither stopped nor gone");
    assert!(end.errors.contains(" of the step, `forward power`\n"), "{}", end.errors);
    assert_eq!(end.steps().len(), 2);
}

#[test]
fn ranks_that_are_threads_end_together() {
    let run = Run::start(faults("busy").args(TIMEOUT).env("THREADS", "1"));
    let pid = run.launcher().to_string();
    assert_silent(&run.end(), 1, &pid, "it is a thread of this process");
}

#[test]
fn the_first_steps_may_take_four_times_as_long() {
    let end = Run::start(faults("busy at first").args(["--timeout", "1s"])).end();
    end.assert_error(2, "error[Z0402]: after 4 s, rank 1 ");
}

#[test]
fn a_rank_that_answers_in_time_is_not_given_up() {
    let mut run = Run::start(tiny(u64::MAX).args(["--timeout", "10s"]));
    run.wait_for_step(3);
    let stopped = run.ranks(RANKS)[1];
    kill_process(stopped, Signal::STOP).unwrap();
    assert!(run.next_complaint().contains(" has waited 5 s for rank "));
    run.goes_on_after(|| kill_process(stopped, Signal::CONT).unwrap());
}
