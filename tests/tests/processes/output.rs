//! The output of a program for its user: its arguments, errors in them, and its measurements.

use std::cell::Cell;
use std::fs;
use std::path::Path;
use std::process::Command;

use rustix::process::{Signal, kill_process};
use rustix::thread::{CpuSet, sched_getaffinity};
use serde_json::{Value, json};
use zero_core::model::Model;
use zero_plan::{Config, Sizes, own_core, prove};
use zero_tests::tiny::Piped;

use crate::disk::Disk;
use crate::run::{End, RANKS, Run, TEXT, endless, faults, new_job, program, start_ranks, tiny, wait_until};
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
        "momentum",
        "epsilon",
        "clip",
        "seed",
        "threads",
        "bf16-products",
        "eager",
        "offload",
        "publish",
        "publish-every",
        "publish-timeout",
        "publish-token",
        "held-out",
        "held-out-every",
        "log-every",
        "metrics",
        "profile",
        "lr-schedule",
        "decay",
        "no-decay-embeddings",
        "init",
        "export",
        "export-dtype",
        "checkpoint",
        "every",
        "keep",
        "resume",
        "checkpoint-or-stop",
        "grace",
        "restarts",
        "rollback",
        "timeout",
        "plan",
        "schedule",
        "sizes",
        "prove",
        "help",
        "version",
    ];
    let of_text = ["data", "data-as", "tokenizer", "sample", "prompt", "temperature", "top-k", "top-p", "stop", "only"];
    let groups =
        ["Training:", "Optimizer:", "Output:", "Published weights:", "Checkpoints:", "Recovery:", "Instead of a run:"];
    let text_groups = ["Data:", "Sample of what was learned:"];
    for (binary, expected, groups) in [
        (env!("CARGO_BIN_EXE_faults"), of_all.to_vec(), groups.to_vec()),
        (env!("CARGO_BIN_EXE_tiny"), [&of_all[..], &of_text].concat(), [&groups[..], &text_groups].concat()),
    ] {
        let end = Run::start(program(binary).arg("--help")).end();
        assert_eq!((end.code, end.errors.as_str()), (Some(0), ""));
        for group in groups {
            assert!(end.lines.iter().any(|line| line == group), "no `{group}` in {:?}", end.lines);
        }
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
fn sizes_are_those_of_the_plan() {
    let end = Run::start(program(env!("CARGO_BIN_EXE_piped")).arg("--sizes")).end();
    end.assert_success(0);
    let [line] = &end.lines[..] else { panic!("{:?}", end.lines) };
    let sizes: Sizes = serde_json::from_str(line).expect("sizes");
    let Config { precision, sequences, length, .. } = Piped::PLAN.config;
    assert_eq!(sizes.units(precision.compute, sequences, length), Some(Piped::PLAN.units));
    assert_eq!((sizes.model.as_str(), sizes.spec.as_str()), (Piped::PLAN.model, Piped::PROGRAM.spec_text));
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
    // The figures are those of the proof of this very plan.
    let proof = format!("proven: {}", prove(Piped::PLAN).expect("a sound plan"));
    let piped = |what: &str| Run::start(program(env!("CARGO_BIN_EXE_piped")).arg(what)).end();
    assert_eq!(piped("--prove").lines, std::slice::from_ref(&proof));
    assert!(piped("--plan").lines.contains(&proof) && piped("--schedule").lines.contains(&proof));
    // The environment does not matter, because a user may print a plan from within another job.
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
    let table = file("table.parquet", b"PAR1, and words that are valid text");
    // The last of 100 tokens is the first one outside of the vocabulary.
    let beyond = file("beyond.bin", &[&[0; 198][..], &256_u16.to_le_bytes()].concat());
    let empty = directory.path().join("empty");
    fs::create_dir(&empty).unwrap();
    let empty = empty.to_str().unwrap();
    for (arguments, start) in [
        (["--lr", "-1"], "error[Z0353]: invalid value '-1' for '--lr <RATE>': expected a number above 0"),
        (
            ["--threads", "100000"],
            "error[Z0353]: invalid value '100000' for '--threads <N>': expected a whole number from 1 to 1024",
        ),
        (["--seed", "1.5"], "error[Z0353]: invalid value '1.5' for '--seed <SEED>'"),
        (["--stage", "3"], "error[Z0354]: unexpected argument '--stage'"),
        (["--warmup", "100"], "error[Z0350]: --warmup 100 is not shorter than the run: --steps 99"),
        (["--data", "/nowhere"], "error[Z0340]: cannot read `/nowhere`"),
        (["--data", &short], &format!("error[Z0341]: `{short}` has 33 tokens, expected at least 34")),
        (["--data", &beyond], &format!("error[Z0342]: `{beyond}` has token id 256 at token 99 (byte 198)")),
        (["--data", &table], &format!("error[Z0349]: `{table}` is a table, by its name (.parquet)")),
        (["--data", &odd], &format!("error[Z0343]: `{odd}` has 101 bytes")),
        (["--data", empty], "error[Z0344]: no text below "),
        (["--metrics", &short], &format!("error[Z0351]: cannot write metrics to {short}: File exists")),
        (["--metrics", empty], &format!("error[Z0351]: cannot write metrics to {empty}: File exists")),
    ] {
        let end = Run::start(program(env!("CARGO_BIN_EXE_tiny")).args(["--steps", "99"]).args(arguments)).end();
        end.assert_error(2, start);
        assert_eq!(end.steps().len(), 0, "{arguments:?}");
    }
    assert_eq!(fs::read(&short).unwrap(), [7; 33]);
    // A refused run creates no file of metrics, which would block the next try.
    let metrics = directory.path().join("metrics");
    let end = Run::start(tiny(4).args(["--profile", &short, "--metrics"]).arg(&metrics)).end();
    end.assert_error(2, &format!("error[Z0351]: cannot write a profile to {short}: File exists"));
    assert!(!metrics.exists());
}

/// On two cores, two of the four ranks keep to each core.
#[test]
fn ranks_keep_to_a_core_if_all_cores_get_equally_many() {
    let allowed = |pid| {
        let allowed = sched_getaffinity(pid).unwrap();
        (0..CpuSet::MAX_CPU).filter(|&core| allowed.is_set(core)).collect::<Vec<_>>()
    };
    let cores = allowed(None);
    let mut command = program(env!("CARGO_BIN_EXE_piped"));
    let mut run = Run::start(command.args(["--data", TEXT, "--steps", "1000000000"]));
    run.wait_for_step(1);
    let ranks = run.ranks(Piped::PLAN.config.mesh.ranks());
    for (rank, &pid) in ranks.iter().enumerate() {
        let own = own_core(rank, ranks.len(), cores.len()).map_or(cores.clone(), |own| vec![cores[own]]);
        assert_eq!(allowed(Some(pid)), own, "rank {rank} of {}", ranks.len());
    }
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
    // A run gets as many threads as it requests, even more than there are cores, and they change no number.
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
        // A thread gets its name when it first runs, which may be after a step without shared work.
        let is_worker = |name: &String| name.starts_with(&format!("rank {rank}."));
        let has_workers = || thread_names(pid).iter().filter(|&name| is_worker(name)).count() == 3;
        wait_until("not three workers", has_workers);
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
    let end = Run::start(tiny(5).args(["--lr", "0.003", "--threads", "2", "--metrics"]).arg(&path)).end();
    end.assert_success(5);
    let mut lines = json_lines(&path);
    assert_eq!(lines.len(), 7);
    let header = lines.remove(0);
    let number = |line: &Value, key: &str| line[key].as_f64().unwrap_or_else(|| panic!("no `{key}` in {line}"));
    for (i, (line, printed)) in lines.iter().zip(end.steps()).enumerate() {
        assert_eq!(number(line, "step"), (i + 1) as f64);
        let (loss, norm, lr) = (number(line, "loss"), number(line, "gradient_norm"), number(line, "lr"));
        assert_eq!(printed, format!("step {:>4}/5  loss {loss:.4}  norm {norm:.3}  lr {lr:.2e}", i + 1));
        for key in ["step_s", "tokens_per_s"] {
            assert!(number(line, key) > 0.0, "{line}");
        }
        // In bytes: no process is as small as a megabyte.
        assert!(number(line, "peak_resident_bytes") > 1e6, "{line}");
        assert_eq!(line["kind"], "step");
        assert!(number(line, "within_host_bytes") > 0.0 && line.get("between_hosts_bytes").is_none(), "{line}");
        // The arena takes 0.1 MB: nothing outside of it may be as large as the arena of a real model.
        assert!(number(line, "peak_resident_bytes") < 30e6, "{line}");
    }
    let held_out = format!("held-out loss {:.4} nats", number(&lines[5], "held_out_loss"));
    assert!(end.lines.contains(&held_out), "{:?}", end.lines);
    assert_eq!((&lines[5]["kind"], number(&lines[5], "step")), (&"held_out".into(), 5.0));
    // Seconds of one clock that begins with the first step.
    let times: Vec<f64> = lines.iter().map(|line| number(line, "time_s")).collect();
    assert!(times.is_sorted() && times[0] >= number(&lines[0], "step_s"), "{times:?}");

    let expected = json!({
        "kind": "header", "model": "Tiny", "spec": "#[zero]", "seed": 0, "ranks": RANKS, "threads_per_rank": 2,
        "tokens_per_step": 96, "parameters": 6516,
    });
    assert_eq!(picked(&header, &expected), expected);
    let arguments = json!({
        "steps": 5, "lr": 0.003, "lr_min_ratio": 0.1, "warmup": null, "beta1": 0.9, "beta2": 0.95, "momentum": null, "epsilon": 1e-8,
        "weight_decay": 0.1, "clip": 1.0, "threads": 2, "held_out": 128, "held_out_every": null, "log_every": 1,
        "data": TEXT, "data_as": null, "sample": 20, "prompt": null, "temperature": 0.7, "metrics": path,
    });
    assert_eq!(picked(&header["arguments"], &arguments), arguments);
    let bytes = fs::metadata(TEXT).unwrap().len();
    let data = json!({ "origin": format!("`{TEXT}`"), "files": 1, "skipped": {}, "tokens": bytes });
    assert_eq!(picked(&header["data"], &data), data);
    assert_eq!(header["versions"]["zero"], env!("CARGO_PKG_VERSION"));
    let started = header["started"].as_str().expect("a time");
    assert!(started.len() == "2026-11-20T12:00:00.000Z".len() && started.ends_with('Z'), "{started}");
}

/// The part of an object that has the keys of another one.
fn picked(object: &Value, keys: &Value) -> Value {
    keys.as_object().unwrap().keys().map(|key| (key.clone(), object[key].clone())).collect()
}

#[test]
fn a_run_begins_with_what_it_trains_on() {
    let directory = tempfile::tempdir().unwrap();
    for (name, content) in [("a.txt", "some text "), ("b.parquet", "more"), (".c", "more"), ("d.bin", "more")] {
        fs::write(directory.path().join(name), content.repeat(10)).unwrap();
    }
    let data = directory.path().display().to_string();
    let end = Run::start(program(env!("CARGO_BIN_EXE_tiny")).args(["--data", &data, "--steps", "1"])).end();
    end.assert_success(1);
    let at = end.lines.iter().position(|line| line.starts_with("data: ")).expect("a line about data");
    let expected = [
        format!("data: `{data}`, 1 file, 100 tokens, 17 of them held out as 1 sequence"),
        "  skipped: .bin (token ids): 1, .parquet (a table): 1, hidden entries: 1".to_owned(),
    ];
    assert_eq!(end.lines[at..at + 2], expected);
    assert!(end.lines[at..].iter().any(|line| line.starts_with("step ")), "before the first step");
    assert_eq!(end.lines.iter().filter(|line| line.starts_with("data: ")).count(), 1);
    let is_slow = end.lines.iter().any(|line| line.contains("debug build") && line.contains("slow"));
    assert_eq!(is_slow, cfg!(debug_assertions));

    let own = Run::start(&mut faults("")).end();
    assert!(own.lines.contains(&"data: this program's own, 12 sequences of it held out".to_owned()), "{:?}", own.lines);
}

#[test]
fn held_out_data_that_is_not_there_is_not_asked_for() {
    let without = Run::start(&mut faults("nothing-held-out")).end();
    without.assert_success(6);
    assert!(without.lines.iter().any(|line| line == "data: this program's own, 0 sequences of it held out"));
    assert!(!without.lines.iter().any(|line| line.starts_with("held-out loss")), "{:?}", without.lines);
    let asked = Run::start(faults("nothing-held-out").args(["--held-out-every", "2"])).end();
    asked.assert_error(2, "error[Z0350]: --held-out-every 2 asks for a loss on held-out data, and this program's data");
}

#[test]
fn lines_of_steps_are_as_many_as_asked_for() {
    let directory = tempfile::tempdir().unwrap();
    let metrics = directory.path().join("metrics.jsonl");
    let mut few = program(env!("CARGO_BIN_EXE_tiny"));
    few.args(["--data", TEXT, "--steps", "10", "--log-every", "4", "--held-out-every", "4", "--metrics"]).arg(&metrics);
    let few = Run::start(&mut few).end();
    few.assert_success(4);
    let numbers = |end: &End| end.steps().iter().map(|line| line[..12].to_owned()).collect::<Vec<_>>();
    assert_eq!(numbers(&few), ["step    1/10", "step    4/10", "step    8/10", "step   10/10"]);
    let held_out: Vec<_> = few.lines.iter().filter(|line| line.starts_with("held-out loss ")).collect();
    assert_eq!(held_out.len(), 3, "{held_out:?}");
    assert!(held_out[0].ends_with(" nats after step 4") && held_out[2].ends_with(" nats"), "{held_out:?}");
    let kinds: Vec<_> =
        json_lines(&metrics).iter().map(|line| line["kind"].as_str().unwrap()[..1].to_owned()).collect();
    assert_eq!(kinds.concat(), "hsssshsssshssh");
    // A held-out loss changes no step, and is not counted in the bytes of a step.
    let all = Run::start(&mut tiny(10)).end();
    assert_eq!(all.steps().last(), few.steps().last());
    let moved = |end: &End| -> Vec<String> {
        end.lines.iter().filter(|line| line.starts_with("bytes ") && line.contains(" per step")).cloned().collect()
    };
    assert_eq!((moved(&few).len(), moved(&few)), (2, moved(&all)));
}

#[test]
fn metrics_may_be_asked_of_one_rank_alone() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("metrics.jsonl");
    // Ranks start in order, and only the first writes.
    let first = Cell::new(true);
    let command = || {
        let mut command = program(env!("CARGO_BIN_EXE_tiny"));
        command.args(["--data", TEXT, "--steps", "5"]);
        if first.replace(false) {
            command.args(["--log-every", "1", "--metrics"]).arg(&path);
        }
        command
    };
    let ends: Vec<End> = start_ranks(command, &[("ZERO_JOB", &new_job())]).into_iter().map(Run::end).collect();
    ends[0].assert_success(5);
    assert_eq!(json_lines(&path).len(), 7);
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
    for mapped in ["private memory of a rank", "memory shared by all ranks"] {
        let row = row(mapped);
        assert_eq!((row.len(), &row[..2]), (4, &row[2..]));
        assert_ne!(row[0], "0");
    }
    for moved in ["bytes copied per step", "bytes read in place per step"] {
        let row = row(moved);
        assert_eq!((row.len(), row[0]), (2, row[1]));
        assert!(row[0].parse::<usize>().unwrap() > RANKS);
    }
}

#[test]
fn an_output_that_nobody_reads_ends_the_run_quietly() {
    let mut run = endless();
    run.stop_reading();
    let end = run.end_at_once();
    assert_eq!((end.code, end.errors.as_str()), (Some(2), ""));
}

#[test]
fn a_run_with_files_to_write_goes_on_when_nobody_reads_its_output() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run");
    let mut run = Run::start(tiny(u64::MAX).args(["--every", "20", "--checkpoint"]).arg(&path));
    run.wait_for_step(3);
    run.stop_reading();
    assert_eq!(run.next_complaint(), "note: nobody reads standard output any more");
    let is_saved = || fs::read_dir(&path).unwrap().count() > 2;
    wait_until("it does not go on", is_saved);
    kill_process(run.launcher(), Signal::TERM).unwrap();
    let end = run.end();
    assert_eq!((end.code, end.errors.matches("note: nobody").count()), (Some(75), 1), "{}", end.errors);
}

#[test]
fn an_output_that_cannot_be_written_does_not_end_training() {
    let folder = tempfile::tempdir().unwrap();
    let full = || fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let errors_of = |command: &mut Command, code| {
        let output = command.stdout(full()).output().unwrap();
        let errors = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{errors}");
        assert!(errors.starts_with("error[Z0352]: ") && errors.matches("error[").count() == 1, "{errors}");
        errors
    };
    let path = folder.path().join("run");
    let errors = errors_of(tiny(4).arg("--checkpoint").arg(&path), 0);
    assert!(errors.contains("the run goes on") && path.join("step-000000004").is_dir(), "{errors}");
    // The output of other runs is their only result.
    errors_of(program(env!("CARGO_BIN_EXE_tiny")).args(["--only=sample", "--sample", "2"]), 2);
    errors_of(program(env!("CARGO_BIN_EXE_tiny")).arg("--plan"), 2);
}

#[test]
fn metrics_on_a_full_disk_do_not_end_training() {
    let folder = tempfile::tempdir().unwrap();
    let small = folder.path().join("small");
    let Some(_disk) = Disk::new(&small, 32 << 10) else { return };
    let [run_folder, metrics] = [folder.path().join("run"), small.join("metrics.jsonl")];
    let mut command = tiny(u64::MAX);
    command.arg("--checkpoint").arg(&run_folder).arg("--metrics").arg(&metrics);
    let mut run = Run::start(&mut command);
    let complaint = run.next_complaint();
    assert!(complaint.starts_with("error[Z0351]: cannot write metrics to "), "{complaint}");
    run.goes_on_after(|| ());
    kill_process(run.launcher(), Signal::TERM).unwrap();
    let end = run.end();
    assert_eq!((end.code, end.errors.matches("error[").count()), (Some(75), 1), "{}", end.errors);
    let lines = json_lines(&metrics);
    assert!(lines.len() > 10 && lines.iter().all(|line| line["kind"].is_string()), "whole lines alone");
    // Before the first step, there is nothing to lose.
    let another = small.join("another.jsonl");
    let end = Run::start(tiny(4).arg("--metrics").arg(&another)).end();
    end.assert_error(2, "error[Z0351]: cannot write metrics to ");
    assert!(end.steps().is_empty() && !another.exists(), "{:?}", end.lines);
}

#[test]
fn a_regression_says_what_its_loss_is() {
    let regression = |raise: &str| {
        let mut command = program(env!("CARGO_BIN_EXE_regression"));
        let end = Run::start(command.args(["--steps", "2", "--lr", "1e-9"]).env("RAISE", raise)).end();
        end.assert_success(2);
        let line = end.lines.iter().find_map(|line| line.strip_prefix("held-out loss ")).expect("a held-out loss");
        line.strip_suffix(" mean squared error").expect("its unit").parse::<f64>().expect("a number")
    };
    // Untrained outputs are far from 100, and closer to a sine.
    assert!(regression("0") < 10.0 && (8_000.0..12_000.0).contains(&regression("100")));
}
