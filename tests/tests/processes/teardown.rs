//! Ranks end together, whatever ends one of them, and nothing of them is left.

use rustix::process::{Signal, kill_process, kill_process_group};

use crate::run::{RANKS, Run, endless, new_job, start_ranks, tiny};
use crate::system::shared_mappings;

#[test]
fn a_killed_rank_ends_all_and_is_named() {
    for (rank, signal, words) in [
        (0, Signal::KILL, "signal 9 (SIGKILL)"),
        (1, Signal::KILL, "signal 9 (SIGKILL)"),
        (2, Signal::USR1, "signal 10 (SIGUSR1)"),
    ] {
        let run = endless();
        let pid = run.ranks(RANKS)[rank];
        kill_process(pid, signal).unwrap();
        let words = format!("error[Z0310]: rank {rank} (pid {}) was killed by {words}", pid.as_raw_pid());
        run.end_at_once().assert_error(1, &words);
    }
}

#[test]
fn a_stopped_rank_is_ended_with_the_others() {
    let run = endless();
    let ranks = run.ranks(RANKS);
    kill_process(ranks[2], Signal::STOP).unwrap();
    kill_process(ranks[0], Signal::KILL).unwrap();
    run.end_at_once().assert_error(1, "error[Z0310]: rank 0 ");
}

#[test]
fn an_interrupt_ends_all() {
    for (signal, code, name) in [(Signal::INT, 130, "SIGINT"), (Signal::TERM, 143, "SIGTERM")] {
        // To the launcher alone, like `kill`, and to the whole group, like a terminal.
        for interrupt in [kill_process, kill_process_group] {
            let run = endless();
            interrupt(run.launcher(), signal).unwrap();
            let end = run.end_at_once();
            let words = format!("interrupted by {name}: all {RANKS} ranks have ended\n");
            assert_eq!((end.code, end.errors), (Some(code), words));
        }
    }
}

#[test]
fn ranks_die_with_their_launcher() {
    let run = endless();
    kill_process(run.launcher(), Signal::KILL).unwrap();
    let end = run.end_at_once();
    assert_eq!((end.code, end.errors.as_str()), (None, ""));
}

#[test]
fn what_ranks_share_has_no_name() {
    let run = endless();
    let ranks = run.ranks(RANKS);
    let shared: Vec<_> = ranks.iter().flat_map(|rank| shared_mappings(*rank)).collect();
    assert_eq!(shared, ["/memfd:zero (deleted)"; RANKS]);
}

#[test]
fn a_dead_run_does_not_disturb_the_next() {
    let expected = Run::start(&mut tiny(4)).end();
    expected.assert_success(4);

    let run = endless();
    kill_process_group(run.launcher(), Signal::KILL).unwrap();
    assert_eq!(run.end_at_once().code, None);
    assert_eq!(Run::start(&mut tiny(4)).end().steps(), expected.steps());

    // The same holds if it was the same job.
    let job = new_job();
    let mut ranks = start_ranks(|| tiny(u64::MAX), &[("ZERO_JOB", &job)]);
    ranks[0].wait_for_step(3);
    // All are stopped first; otherwise a rank could notice another's death and end by itself before it is killed.
    for signal in [Signal::STOP, Signal::KILL] {
        for rank in &ranks {
            kill_process(rank.launcher(), signal).unwrap();
        }
    }
    ranks.into_iter().for_each(|rank| assert_eq!(rank.end_at_once().code, None));
    let ends: Vec<_> = start_ranks(|| tiny(4), &[("ZERO_JOB", &job)]).into_iter().map(Run::end).collect();
    assert_eq!(ends[0].steps(), expected.steps());
}
