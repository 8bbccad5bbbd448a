//! An error that only some ranks find is reported once, with these ranks; an error that all ranks find is reported once.

use std::process::Command;

use crate::run::{End, Run, new_job, program, start_ranks, tiny};

/// The end of each rank of a job that another launcher has started.
fn end_ranks(command: impl Fn() -> Command) -> Vec<End> {
    start_ranks(command, &[("ZERO_JOB", &new_job())]).into_iter().map(Run::end).collect()
}

/// Asserts that all ranks have failed, and that together they reported one error. Returns their whole output.
fn one_error(ends: &[End], start: &str) -> String {
    let told: String = ends.iter().map(|end| end.errors.as_str()).collect();
    let errors: Vec<&str> = told.lines().filter(|line| line.starts_with("error")).collect();
    assert!(matches!(errors[..], [only] if only.starts_with(start)), "expected `{start}`, found: {told}");
    ends.iter().for_each(|end| assert_eq!(end.code, Some(2), "{told}"));
    told
}

/// Ranks without data, and the note about them.
const MISSING: [(&str, &str); 4] = [
    ("0", "  = note: found by rank 0 of 3\n"),
    ("1", "  = note: found by rank 1 of 3\n"),
    ("1,2", "  = note: found by ranks 1, 2 of 3\n"),
    ("0,1,2", ""),
];

#[test]
fn data_that_some_ranks_miss_is_told_once_with_the_ranks() {
    for (missing, note) in MISSING {
        let end = Run::start(tiny(4).env("MISSING", missing)).end();
        let told = one_error(&[end], "error[Z0340]: ");
        assert!(told.ends_with(note) && told.contains("note:") != note.is_empty(), "{told}");
    }
}

#[test]
fn under_a_foreign_launcher_too() {
    for (missing, note) in MISSING {
        let ends = end_ranks(|| {
            let mut command = tiny(4);
            command.env("MISSING", missing);
            command
        });
        let told = one_error(&ends, "error[Z0340]: ");
        assert!(told.ends_with(note) && told.contains("note:") != note.is_empty(), "{told}");
    }
}

#[test]
fn what_all_ranks_find_is_told_once() {
    for (argument, start) in [("--nonsense", "error[Z0354]: unexpected argument"), ("--lr=-1", "error")] {
        let ends = end_ranks(|| {
            let mut command = program(env!("CARGO_BIN_EXE_tiny"));
            command.arg(argument);
            command
        });
        assert!(!one_error(&ends, start).contains("note: found by"));
    }
}

#[test]
fn an_environment_that_is_wrong_for_all_ranks_is_told_once() {
    let job = new_job();
    let ranks = [0, 1].map(|rank: usize| {
        Run::start(tiny(4).envs([
            ("RANK", rank.to_string()),
            ("WORLD_SIZE", "2".to_owned()),
            ("ZERO_JOB", job.clone()),
        ]))
    });
    assert!(!one_error(&ranks.map(Run::end), "error[Z0305]: ").contains("note:"));
    let forever = [("ZERO_JOIN_TIMEOUT_S", "9000000000000000000"), ("ZERO_JOB", &new_job())];
    let ends: Vec<End> = start_ranks(|| tiny(4), &forever).into_iter().map(Run::end).collect();
    one_error(&ends, "error[Z0315]: ");
}

#[test]
fn help_is_given_once() {
    let ends = end_ranks(|| {
        let mut command = program(env!("CARGO_BIN_EXE_tiny"));
        command.arg("--help");
        command
    });
    assert!(ends.iter().all(|end| (end.code, end.errors.as_str()) == (Some(0), "")));
    assert!(!ends[0].lines.is_empty() && ends[1..].iter().all(|end| end.lines.is_empty()));
}

#[test]
fn what_rank_0_finds_once_all_have_met_is_told_by_it_alone() {
    let taken = tempfile::NamedTempFile::new().unwrap();
    let ends = end_ranks(|| {
        let mut command = tiny(4);
        command.arg("--metrics").arg(taken.path());
        command
    });
    assert!(one_error(&ends, "error[Z0351]: ").ends_with("  = note: found by rank 0 of 3\n"));
}

#[test]
fn a_rank_0_that_leaves_quietly_is_not_missed() {
    let mut ranks = start_ranks(|| tiny(u64::MAX), &[("ZERO_JOB", &new_job())]);
    ranks[0].wait_for_step(3);
    ranks[0].stop_reading();
    for end in ranks.into_iter().map(Run::end) {
        assert_eq!((end.code, end.errors.as_str()), (Some(2), ""));
    }
}
