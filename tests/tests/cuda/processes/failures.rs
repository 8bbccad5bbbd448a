//! A failure of one rank's device or process ends all ranks with one error that names the failure and its place.

use std::os::unix::fs::symlink;
use std::process::Command;

use rustix::process::{Signal, kill_process};

use zero_cuda::FOLDERS_VARIABLE;
use zero_tests::pretend;

use super::on_cuda;
use crate::run::{RANKS, Run, TEXT};

/// The words for ranks whose devices reach one another, and for ranks that NCCL connects.
const WAYS: [&[&str]; 2] = [&[], &["nccl"]];

/// The model of text on GPUs, for this many steps; none without pretend GPUs.
fn gpus(steps: u64) -> Option<Command> {
    over(WAYS[0], steps)
}

/// The same, with the word for their connection, or for where states are kept.
fn over(way: &[&str], steps: u64) -> Option<Command> {
    if way == WAYS[1] && !pretend::is_nccl() {
        return None;
    }
    let mut command = on_cuda(env!("CARGO_BIN_EXE_gpus"))?;
    command.args(way).arg("--data").arg(pretend::carried(TEXT));
    command.args(["--sample", "0", "--log-every", "1", "--steps", &steps.to_string()]);
    Some(command)
}

#[test]
fn without_a_failure_it_trains() {
    let Some(mut command) = gpus(4) else { return };
    let end = Run::start(&mut command).end();
    end.assert_success(4);
    if pretend::is_hardware() {
        // Ranks that share a GPU see one another's memory on it.
        return;
    }
    for [what, expected] in [["on its GPU before it began", "0 B"], ["pinned for its GPU", "8.0 MiB"]] {
        let line = end.lines.iter().find(|line| line.starts_with(what)).expect(what);
        assert!(line.contains("not planned") && line.ends_with(expected), "{line}");
    }
    // It counts kernels, and nothing in an arena.
    let outside = end.lines.iter().find(|line| line.starts_with("on its GPU outside arenas")).expect("a line");
    assert!(outside.ends_with(" KiB") || outside.ends_with(" MiB"), "{outside}");
}

/// Ranks whose hosts keep their states have the losses of those that keep them on their devices, and compare what was
/// pinned and what has travelled with the plan.
#[test]
fn states_in_host_memory_change_no_loss() {
    let (Some(mut here), Some(mut there)) = (gpus(6), over(&["host"], 6)) else { return };
    let [here, there] = [&mut here, &mut there].map(|command| Run::start(command).end());
    here.assert_success(6);
    there.assert_success(6);
    assert_eq!(here.steps(), there.steps());
    assert!(there.lines.iter().any(|line| line.starts_with("offload: up to ") && line.ends_with(" of its host")));
    for row in ["host memory of a rank", "bytes from host per step", "bytes to host per step"] {
        let line = there.lines.iter().find(|line| line.starts_with(row)).expect(row);
        let figures: Vec<&str> = line[row.len()..].split_whitespace().collect();
        let (planned, measured) = figures.split_at(figures.len() / 2);
        assert!(planned == measured && planned[0] != "0", "{line}");
    }
}

#[test]
fn z0442_host_memory_that_one_rank_lacks_is_told_once() {
    if pretend::libraries().is_none() {
        return;
    }
    let Some(mut command) = over(&["host"], 6) else { return };
    let end = Run::start(command.env("PRETEND_FAIL", "host_memory:2").env("PRETEND_RANK", "1")).end();
    end.assert_error(2, "error[Z0442]: cannot pin ");
    assert!(end.steps().is_empty(), "{}", end.errors);
}

#[test]
fn z0447_a_rank_with_other_libraries_is_named() {
    for (failure, what) in [
        ("driver:13010", "another driver for CUDA: expected 13000, on 2 of 3 ranks, found 13010"),
        ("way:1", "another choice of matrix products, with the hash: expected "),
    ] {
        if pretend::libraries().is_none() {
            return;
        }
        let Some(mut command) = gpus(6) else { return };
        let end = Run::start(command.env("PRETEND_FAIL", failure).env("PRETEND_RANK", "0")).end_at_once();
        end.assert_error(2, &format!("error[Z0447]: rank 0 has {what}"));
        assert_eq!(end.steps().len(), 0);
    }
}

/// A rank makes the same calls in each run, so the failing call is known: a kernel that does not start, a product, or a kernel that
/// touches other memory, which is noticed later. From the second step on, this is a kernel of a graph.
#[test]
fn what_fails_in_a_step_is_told_once_with_its_op_and_unit() {
    if pretend::libraries().is_none() {
        return;
    }
    for (failure, error, op) in [
        ("launch:93", "error[Z0438]: cannot start the kernel `agree<", "agree`"),
        ("product:7", "error[Z0439]: cannot multiply ", "forward mlp`"),
        ("product:18", "error[Z0439]: cannot multiply ", "backward mlp`"),
        ("async:30", "error[Z0440]: CUDA device 1 has stopped: ", ""),
        ("async:2000", "error[Z0440]: CUDA device 1 has stopped: ", ""),
    ] {
        let Some(mut command) = gpus(u64::MAX) else { return };
        let end = Run::start(command.env("PRETEND_FAIL", failure).env("PRETEND_RANK", "1")).end();
        end.assert_error(2, error);
        assert_eq!(end.steps().len() > 3, failure == "async:2000", "{failure}: {:?}", end.steps());
        let place = end.errors.lines().find(|line| line.starts_with("  --> ")).expect("a place");
        assert!(place.starts_with("  --> rank 1, in op "), "{failure}: {place}");
        assert!(place.contains(&format!(" of the step, `{op}")), "{failure}: {place}");
    }
}

#[test]
fn z0431_a_function_that_one_rank_lacks_is_told_once() {
    if pretend::libraries().is_none() {
        return;
    }
    let Some(mut command) = gpus(6) else { return };
    let end = Run::start(command.env("PRETEND_FAIL", "symbol:cuMemCreate").env("PRETEND_RANK", "1")).end();
    end.assert_error(2, "error[Z0431]: ");
    assert!(end.errors.contains("has no function `cuMemCreate`") && end.steps().is_empty(), "{}", end.errors);
}

/// The library that only this transport needs is missing, and nothing replaces it.
#[test]
fn z0430_ranks_without_nccl_do_not_start() {
    let Some(built) = pretend::libraries() else { return };
    let Some(mut command) = over(WAYS[1], 6) else { return };
    let folder = tempfile::tempdir().unwrap();
    for name in ["libcuda.so.1", "libnvrtc.so.13", "libcublasLt.so.13", "shim.h", "module.h"] {
        symlink(built.join(name), folder.path().join(name)).unwrap();
    }
    let end = Run::start(command.env(FOLDERS_VARIABLE, folder.path())).end();
    end.assert_error(2, "error[Z0430]: ");
    assert!(end.errors.contains("libnccl.so.2") && end.steps().is_empty(), "{}", end.errors);
}

/// A second start finds the kernels that the first one compiled; without them, a compiler that fails is an error.
#[test]
fn a_second_start_compiles_nothing() {
    if pretend::libraries().is_none() {
        return;
    }
    let Some(mut first) = gpus(1) else { return };
    Run::start(&mut first).end().assert_success(1);
    let Some(mut second) = gpus(1) else { return };
    Run::start(second.env("PRETEND_FAIL", "compile:1")).end().assert_success(1);
    let folder = tempfile::tempdir().unwrap();
    // Each rank that gets this far before it hears of another failure reports its own device.
    let end = Run::start(second.env("XDG_CACHE_HOME", folder.path())).end();
    let mut errors = end.errors.lines().filter(|line| line.starts_with("error[")).peekable();
    assert!(errors.peek().is_some() && errors.all(|line| line.starts_with("error[Z0437]: ")), "{}", end.errors);
    assert_eq!(end.code, Some(2), "{}", end.errors);
}

#[test]
fn a_rank_that_is_killed_in_a_step_ends_all() {
    for way in WAYS {
        let Some(mut command) = over(way, u64::MAX) else { return };
        let mut run = Run::start(&mut command);
        run.wait_for_step(3);
        let killed = run.ranks(RANKS)[1];
        // NCCL orders the work of several communicators, unless a user switches this off.
        let variables = std::fs::read(format!("/proc/{}/environ", killed.as_raw_pid())).unwrap();
        let is_ordered = variables.split(|&byte| byte == 0).any(|one| one == b"NCCL_LAUNCH_ORDER_IMPLICIT=1");
        assert_eq!(is_ordered, !way.is_empty());
        kill_process(killed, Signal::KILL).unwrap();
        run.end_at_once().assert_error(1, &format!("error[Z0310]: rank 1 (pid {}", killed.as_raw_pid()));
    }
}

/// Queues of the other devices wait for ever, and so do hosts. The rank is a process of this host, and the kernel reports it as
/// stopped.
#[test]
fn z0402_a_stopped_rank_is_named_and_ended_with_the_others() {
    for (way, rank) in WAYS.into_iter().flat_map(|way| [(way, 0), (way, 1)]) {
        let Some(mut command) = over(way, u64::MAX) else { return };
        let mut run = Run::start(command.args(["--timeout", "2s"]));
        run.wait_for_step(3);
        let stopped = run.ranks(RANKS)[rank];
        kill_process(stopped, Signal::STOP).unwrap();
        let end = run.end();
        end.assert_error(2, &format!("error[Z0402]: after 2 s, rank {rank} (pid {}", stopped.as_raw_pid()));
        assert!(end.errors.contains(") has not answered: it is stopped\n"), "{}", end.errors);
    }
}
