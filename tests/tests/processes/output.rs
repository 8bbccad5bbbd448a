//! What a program says to the person who started it: its arguments, what is wrong with them, and what it measures.

use std::cell::Cell;
use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::run::{End, RANKS, Run, endless, new_job, program, start_ranks, tiny};
use crate::system::thread_names;

#[test]
fn help_lists_every_argument() {
    let of_all = [
        "steps",
        "lr",
        "lr-min-ratio",
        "warmup",
        "weight-decay",
        "beta1",
        "beta2",
        "epsilon",
        "clip",
        "seed",
        "threads",
        "held-out",
        "metrics",
        "profile",
        "plan",
        "schedule",
        "prove",
        "help",
        "version",
    ];
    let of_text = ["data", "sample", "prompt", "temperature"];
    for (binary, expected) in [
        (env!("CARGO_BIN_EXE_faults"), of_all.to_vec()),
        (env!("CARGO_BIN_EXE_tiny"), [&of_all[..], &of_text].concat()),
    ] {
        let end = Run::start(program(binary).arg("--help")).end();
        assert_eq!((end.code, end.errors.as_str()), (Some(0), ""));
        let listed = end.lines.iter().filter_map(|line| line.split_once("--")).map(|(_, rest)| rest);
        let mut listed: Vec<&str> = listed.map(|rest| rest.split(' ').next().unwrap()).collect();
        let mut expected = expected;
        listed.sort();
        expected.sort();
        assert_eq!(listed, expected);
    }
}

#[test]
fn the_plan_is_printed_without_a_run() {
    let end = Run::start(tiny(4).arg("--plan")).end();
    end.assert_success(0);
    assert!(
        end.lines[0].starts_with("Tiny: ") && end.lines[0].ends_with("ZeRO stage 3 over 3 ranks"),
        "{:?}",
        end.lines
    );
}

#[test]
fn what_was_proven_is_told_without_a_run() {
    let end = Run::start(tiny(4).arg("--prove")).end();
    end.assert_success(0);
    assert!(
        matches!(&end.lines[..], [line] if line.starts_with("proven: ") && line.contains(" ops on 3 ranks, ")),
        "{:?}",
        end.lines
    );
    // Whatever the environment says: a plan may be looked at from within another job.
    let end = Run::start(tiny(4).arg("--prove").env("RANK", "7").env("WORLD_SIZE", "3")).end();
    end.assert_success(0);
    let end = Run::start(tiny(4).arg("--schedule")).end();
    end.assert_success(0);
    for start in ["memory per rank", "proven: ", "pipeline stage 0", "    F mb 0 slot 0 | gather embed"] {
        assert!(end.lines.iter().any(|line| line.starts_with(start)), "no `{start}` in {:?}", end.lines);
    }
}

#[test]
fn an_argument_that_cannot_be_is_one_error() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str, content: &[u8]| {
        let path = directory.path().join(name);
        fs::write(&path, content).unwrap();
        path.into_os_string().into_string().unwrap()
    };
    let (short, odd) = (file("short", &[7; 33]), file("odd.bin", &[0; 101]));
    // The last of 100 tokens is the first one beyond the vocabulary.
    let beyond = file("beyond.bin", &[&[0; 198][..], &256_u16.to_le_bytes()].concat());
    let empty = directory.path().join("empty");
    fs::create_dir(&empty).unwrap();
    for (arguments, start) in [
        (["--lr", "nan"], "error: invalid value 'nan' for '--lr <RATE>'"),
        (["--lr", "0"], "error: invalid value '0' for '--lr <RATE>'"),
        (["--beta1", "1"], "error: invalid value '1' for '--beta1 <RATE>'"),
        (["--clip", "-1"], "error: "),
        (
            ["--threads", "0"],
            "error: invalid value '0' for '--threads <N>': [Z0353] expected a whole number, 1 or above",
        ),
        (["--seed", "1.5"], "error: invalid value '1.5' for '--seed <SEED>'"),
        (["--stage", "3"], "error: unexpected argument '--stage'"),
        (["--warmup", "100"], "error[Z0350]: --warmup 100 is not shorter than the run: --steps 99"),
        (["--data", "/nowhere"], "error[Z0340]: cannot read `/nowhere`"),
        (["--data", &short], &format!("error[Z0341]: `{short}` has 33 tokens, expected at least 34")),
        (["--data", &beyond], &format!("error[Z0342]: `{beyond}` has token id 256 at token 99 (byte 198)")),
        (["--data", &odd], &format!("error[Z0343]: `{odd}` has 101 bytes")),
        (["--data", empty.to_str().unwrap()], "error[Z0344]: no text below "),
        (["--metrics", &short], &format!("error[Z0351]: cannot write metrics to {short}: File exists")),
    ] {
        let end = Run::start(program(env!("CARGO_BIN_EXE_tiny")).args(["--steps", "99"]).args(arguments)).end();
        end.assert_error(2, start);
        assert_eq!(end.steps().len(), 0, "{arguments:?}");
    }
    assert_eq!(fs::read(&short).unwrap(), [7; 33]);
}

#[test]
fn ranks_share_the_cores_unless_told_otherwise() {
    let told = |end: &End| {
        let told: Vec<_> = end.lines.iter().filter(|line| line.contains(" ranks x ")).cloned().collect();
        assert!(matches!(&told[..], [_]), "told once: {:?}", end.lines);
        let words: Vec<_> = told[0].split(' ').collect();
        assert!(matches!(words[..], [_, "ranks", "x", _, "thread" | "threads", "on", _, "core" | "cores"]), "{told:?}");
        [0, 3, 6].map(|at| words[at].parse::<usize>().unwrap())
    };
    let plain = Run::start(&mut tiny(4)).end();
    plain.assert_success(4);
    let [ranks, threads, cores] = told(&plain);
    assert_eq!((ranks, cores), (RANKS, std::thread::available_parallelism().unwrap().get()));
    assert!(threads == 1 || ranks * threads <= cores, "{ranks} ranks x {threads} threads on {cores} cores");
    // On one processor there is one core.
    let one = Run::start_on_one_processor(&mut tiny(4)).end();
    assert_eq!(told(&one), [RANKS, 1, 1]);
    // What is asked for is had, even beyond the cores, and changes no number.
    for threads in [1, 3] {
        let end = Run::start(tiny(4).args(["--threads", &threads.to_string()])).end();
        end.assert_success(4);
        assert_eq!(told(&end), [RANKS, threads, cores]);
        assert_eq!(end.steps(), plain.steps());
    }
}

#[test]
fn a_rank_has_the_threads_that_it_was_given() {
    let mut run = Run::start(tiny(u64::MAX).args(["--threads", "3"]));
    run.wait_for_step(1);
    for (rank, pid) in run.ranks(RANKS).into_iter().enumerate() {
        let names = thread_names(pid);
        let workers = names.iter().filter(|name| name.starts_with(&format!("rank {rank}.")));
        assert_eq!(workers.count(), 3, "{names:?}");
    }
}

#[test]
fn under_a_foreign_launcher_rank_0_speaks_for_all() {
    for arguments in [["--warmup", "9999"], ["--data", "/nowhere"]] {
        let tiny = || {
            let mut command = program(env!("CARGO_BIN_EXE_tiny"));
            command.args(arguments);
            command
        };
        let ranks = start_ranks(tiny, &[("ZERO_JOB", &new_job())]);
        let ends: Vec<End> = ranks.into_iter().map(Run::end).collect();
        ends[0].assert_error(2, "error");
        ends[1..].iter().for_each(|end| assert_eq!((end.code, end.errors.as_str()), (Some(2), "")));
    }
}

#[test]
fn metrics_are_a_line_of_json_for_each_step() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("metrics.jsonl");
    let end = Run::start(tiny(5).arg("--metrics").arg(&path)).end();
    end.assert_success(5);
    let lines = json_lines(&path);
    assert_eq!(lines.len(), 6);
    let number = |line: &Value, key: &str| line[key].as_f64().unwrap_or_else(|| panic!("no `{key}` in {line}"));
    for (i, (line, printed)) in lines.iter().zip(end.steps()).enumerate() {
        assert_eq!(number(line, "step"), (i + 1) as f64);
        let (loss, norm, lr) = (number(line, "loss"), number(line, "gradient_norm"), number(line, "lr"));
        assert_eq!(printed, format!("step {:>4}/5  loss {loss:.4}  norm {norm:.3}  lr {lr:.2e}", i + 1));
        for key in ["step_s", "tokens_per_s", "peak_resident_bytes"] {
            assert!(number(line, key) > 0.0, "{line}");
        }
        // The arena takes 0.1 MB: nothing beside it may be as large as that of a real model.
        assert!(number(line, "peak_resident_bytes") < 30e6, "{line}");
    }
    let held_out = format!("held-out loss {:.4} nats", number(&lines[5], "held_out_loss"));
    assert!(end.lines.contains(&held_out), "{:?}", end.lines);
}

#[test]
fn metrics_may_be_asked_of_one_rank_alone() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("metrics.jsonl");
    // Ranks start in order, and only the first writes.
    let first = Cell::new(true);
    let command = || {
        let mut command = tiny(5);
        if first.replace(false) {
            command.arg("--metrics").arg(&path);
        }
        command
    };
    let ends: Vec<End> = start_ranks(command, &[("ZERO_JOB", &new_job())]).into_iter().map(Run::end).collect();
    ends[0].assert_success(5);
    assert_eq!(json_lines(&path).len(), 6);
}

fn json_lines(path: &Path) -> Vec<Value> {
    fs::read_to_string(path).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn measured_equals_planned() {
    let end = Run::start(&mut tiny(5)).end();
    let row = |name: &str| {
        let row = end.lines.iter().find_map(|line| line.strip_prefix(name)).unwrap_or_else(|| panic!("no {name}"));
        row.split_whitespace().collect::<Vec<_>>()
    };
    let arena = row("arena per rank");
    assert_eq!((arena.len(), &arena[..2]), (4, &arena[2..]));
    assert_ne!(arena[0], "0");
    let sent = row("bytes sent per step");
    assert_eq!((sent.len(), sent[0]), (2, sent[1]));
    assert!(sent[0].parse::<usize>().unwrap() > RANKS);
}

#[test]
fn an_output_that_nobody_reads_ends_the_run_quietly() {
    let mut run = endless();
    run.stop_reading();
    let end = run.end_at_once();
    assert_eq!((end.code, end.errors.as_str()), (Some(2), ""));
}

#[test]
fn an_output_that_cannot_be_written_is_an_error() {
    let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let output = tiny(4).stdout(full).output().unwrap();
    let errors = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(errors.starts_with("error[Z0352]: ") && errors.matches("error").count() == 2, "{errors}");
}
