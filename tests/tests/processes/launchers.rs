//! A binary starts its own ranks, or is one rank if the environment says so; ranks of different jobs and of different plans do not
//! mix.

use std::fs;
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use rustix::process::{Signal, kill_process};

use crate::run::{End, RANKS, Run, TEXT, faults, new_job, program, start_ranks, tiny};
use crate::system::thread_names;
use zero_tests::long::report_skipped;

fn end_all(ranks: Vec<Run>) -> Vec<End> {
    ranks.into_iter().map(Run::end).collect()
}

#[test]
fn runs_at_once_do_not_meet() {
    let alone = Run::start(&mut faults("")).end();
    alone.assert_success(6);
    // A late rank keeps its peers waiting where they could meet ranks of the other run.
    let at_once: Vec<Run> = (0..2).map(|_| Run::start(&mut faults("late"))).collect();
    for end in end_all(at_once) {
        end.assert_success(6);
        assert_eq!(end.steps(), alone.steps());
    }
}

#[test]
fn a_binary_needs_nothing_around_it() {
    let directory = tempfile::tempdir().unwrap();
    // Copied by another process: a program that a thread of this one starts meanwhile would hold the copy open for
    // writing.
    let copy = Command::new("cp").arg(env!("CARGO_BIN_EXE_tiny")).arg(directory.path().join("copied")).status();
    assert!(copy.unwrap().success());
    fs::copy(TEXT, directory.path().join("text")).unwrap();
    let mut command = program("./copied");
    command.current_dir(&directory).args(["--data", "text", "--steps", "4"]);
    Run::start(&mut command).end().assert_success(4);
    let mut left: Vec<_> = fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["copied", "text"]);
}

/// As with `ulimit -s 64`.
#[test]
fn a_small_stack_is_enough_for_a_launcher_and_its_ranks() {
    for (arguments, expected) in [(&["--steps=2", "--sample=0"][..], 2), (&["--plan"], 0), (&["--help"], 0)] {
        let mut command = program("bash");
        command.args(["-c", "ulimit -s 64; exec \"$@\"", "bash", env!("CARGO_BIN_EXE_tiny"), "--data", TEXT]);
        Run::start(command.args(arguments)).end().assert_success(expected);
    }
}

#[test]
fn ranks_are_copies_of_what_runs_whatever_lies_at_its_path() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("copied");
    assert!(Command::new("cp").arg(env!("CARGO_BIN_EXE_tiny")).arg(&path).status().unwrap().success());
    let binary = fs::File::open(&path).unwrap();
    // A different program at the same path, which would end at once.
    let other = directory.path().join("other");
    assert!(Command::new("cp").arg("/bin/true").arg(&other).status().unwrap().success());
    fs::rename(&other, &path).unwrap();
    let mut command = program(&format!("/proc/self/fd/{}", binary.as_raw_fd()));
    command.arg0(&path).args(["--data", TEXT, "--steps", &u64::MAX.to_string()]);
    let mut run = Run::start(&mut command);
    run.wait_for_step(1);
    let started: Vec<_> = [run.launcher()].into_iter().chain(run.ranks(RANKS)).collect();
    for pid in started {
        assert_eq!(thread_names(pid)[0], "copied");
    }
    kill_process(run.launcher(), Signal::TERM).unwrap();
    assert_eq!(run.end().code, Some(143));
}

#[test]
fn under_a_foreign_launcher_each_process_is_a_rank() {
    let alone = Run::start(&mut tiny(8)).end();
    let (job, port) = (new_job(), new_job());
    // If nothing else names the job, the process that starts all ranks does: this one.
    for job in [&[("ZERO_JOB", job.as_str())][..], &[("MASTER_ADDR", "localhost"), ("MASTER_PORT", &port)], &[]] {
        let ends = end_all(start_ranks(|| tiny(8), job));
        ends[0].assert_success(8);
        assert_eq!(ends[0].steps(), alone.steps());
        for end in &ends[1..] {
            assert_eq!((end.code, end.errors.as_str(), end.lines.len()), (Some(0), "", 0));
        }
    }
}

#[test]
fn under_a_foreign_launcher_survivors_notice_a_loss() {
    for lost in 0..RANKS {
        let mut ranks = start_ranks(|| tiny(u64::MAX), &[("ZERO_JOB", &new_job())]);
        ranks[0].wait_for_step(3);
        let pid = ranks[lost].launcher();
        kill_process(pid, Signal::KILL).unwrap();
        let ends = end_all(ranks);
        let reporter = usize::from(lost == 0);
        ends[reporter].assert_error(2, &format!("error[Z0314]: rank {lost} (pid {})", pid.as_raw_pid()));
        for rank in (0..RANKS).filter(|rank| ![lost, reporter].contains(rank)) {
            assert_eq!((ends[rank].code, ends[rank].errors.as_str()), (Some(2), ""));
        }
    }
}

#[test]
fn another_plan_other_arguments_or_other_data_are_refused() {
    let text = |binary: &str, data: &str| {
        let mut command = program(binary);
        command.args(["--data", data, "--steps", "4"]);
        command
    };
    let tiny = || text(env!("CARGO_BIN_EXE_tiny"), TEXT);
    let [mut seeded, mut bolder] = [tiny(), tiny()];
    seeded.args(["--seed", "1"]);
    bolder.args(["--temperature", "0.8"]);
    let other_data = text(env!("CARGO_BIN_EXE_tiny"), concat!(env!("CARGO_MANIFEST_DIR"), "/README.md"));
    let misfits = [text(env!("CARGO_BIN_EXE_eager"), TEXT), seeded, bolder, other_data];
    let jobs = misfits.map(|mut misfit| {
        let job = new_job();
        let place = |rank: usize, command: &mut Command| {
            let place = [("RANK", rank.to_string()), ("WORLD_SIZE", RANKS.to_string()), ("ZERO_JOB", job.clone())];
            Run::start(command.envs(place))
        };
        vec![place(0, &mut tiny()), place(1, &mut tiny()), place(2, &mut misfit)]
    });
    for ranks in jobs {
        let pid = ranks[2].launcher().as_raw_pid();
        let ends = end_all(ranks);
        ends[0].assert_error(
            2,
            &format!("error[Z0325]: rank 2 (pid {pid}) has another plan, other arguments or other data"),
        );
        for end in &ends[1..] {
            assert_eq!((end.code, end.errors.as_str()), (Some(2), ""));
        }
    }
}

#[test]
fn a_plan_that_differs_in_order_alone_is_refused() {
    let job = new_job();
    let ranks = [["zero3", "prefetch=1"], ["zero3", "prefetch=2"]].iter().enumerate().map(|(rank, plan)| {
        let place = [("RANK", rank.to_string()), ("WORLD_SIZE", "2".to_owned()), ("ZERO_JOB", job.clone())];
        Run::start(program(env!("CARGO_BIN_EXE_spec")).args(plan).envs(place))
    });
    let ends = end_all(ranks.collect());
    assert!(ends[0].errors.contains("error[Z0325]: rank 1 (pid "), "{}", ends[0].errors);
}

#[test]
fn an_environment_that_contradicts_itself_or_the_plan_is_an_error() {
    for (variables, code) in [
        (&[("RANK", "0")][..], "Z0301"),
        (&[("WORLD_SIZE", "3")], "Z0301"),
        (&[("RANK", "zero"), ("WORLD_SIZE", "3")], "Z0302"),
        (&[("RANK", "3"), ("WORLD_SIZE", "3")], "Z0303"),
        (&[("RANK", "0"), ("WORLD_SIZE", "3"), ("PMI_RANK", "1"), ("PMI_SIZE", "3")], "Z0304"),
        (&[("RANK", "0"), ("WORLD_SIZE", "2"), ("ZERO_JOB", "any")], "Z0305"),
        (
            &[("RANK", "0"), ("WORLD_SIZE", "3"), ("LOCAL_RANK", "0"), ("LOCAL_WORLD_SIZE", "2"), ("ZERO_JOB", "any")],
            "Z0307",
        ),
    ] {
        // A job of its own, so that it does not meet the ranks of another test.
        let end = Run::start(tiny(4).env("ZERO_JOB", new_job()).envs(variables.iter().copied())).end();
        end.assert_error(2, &format!("error[{code}]: "));
        assert_eq!(end.steps().len(), 0);
    }
}

#[test]
fn ranks_that_are_threads_are_not_started_by_a_launcher() {
    let end =
        Run::start(faults("").envs([("THREADS", "1"), ("RANK", "0"), ("WORLD_SIZE", "3"), ("ZERO_JOB", &new_job())]))
            .end();
    end.assert_error(2, "error[Z0350]: the ranks of this plan are threads of one process");
}

#[test]
fn a_rank_whose_launcher_has_gone_does_not_start() {
    // Process 1 is not the one that starts it.
    let place = [("RANK", "0"), ("WORLD_SIZE", "3"), ("ZERO_LAUNCHER_PID", "1"), ("ZERO_JOB", &new_job())];
    Run::start(tiny(4).envs(place)).end().assert_error(2, "error[Z0313]: the launcher (pid 1) has ended");
}

/// As in two containers of one pod: they share the network, by which ranks meet, but no process ids.
#[test]
fn z0337_ranks_that_cannot_watch_one_another_say_so() {
    if !Command::new("unshare").args(["--pid", "--fork", "true"]).status().is_ok_and(|status| status.success()) {
        return report_skipped("ranks in process namespaces of their own", "this user cannot make namespaces");
    }
    let job = new_job();
    let start = |rank: usize| {
        let mut command = program("unshare");
        command.args(["--pid", "--fork", "--kill-child", env!("CARGO_BIN_EXE_faults"), "--steps", "6"]);
        command.env("RANK", rank.to_string()).env("WORLD_SIZE", RANKS.to_string()).env("ZERO_JOB", &job);
        command
            .env("FAULT", "")
            .env("ZERO_JOIN_TIMEOUT_S", "20")
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    };
    let ranks: Vec<_> = (0..RANKS).map(start).collect();
    let ends: Vec<_> = ranks.into_iter().map(|rank| rank.wait_with_output().unwrap()).collect();
    assert!(ends.iter().all(|end| end.status.code().is_some_and(|code| code != 0)), "{ends:?}");
    let errors: String = ends.iter().map(|end| String::from_utf8_lossy(&end.stderr)).collect();
    assert!(errors.contains("error[Z0337]: a rank of this host is in a process namespace"), "{errors}");
    assert!(!errors.contains("Success"), "{errors}");
}
