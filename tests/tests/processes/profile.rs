//! The contents of a profile of a run; and a profile does not change the run.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::run::{RANKS, Run, faults, tiny};

/// The profiled steps of a run of 14: from the third on, 10 at most.
const STEPS: std::ops::RangeInclusive<u64> = 3..=12;

/// A trace event of phase X, in microseconds.
#[derive(Clone, Debug)]
struct Event {
    name: String,
    rank: usize,
    start: f64,
    end: f64,
    /// How long cores worked for it, if recorded.
    core: Option<f64>,
}

/// A rank's steps and ops in a profile.
struct Rank {
    steps: Vec<Event>,
    /// In the order of the file.
    ops: Vec<Event>,
}

/// Reads the steps and ops of each rank from a trace.
fn ranks(path: &Path) -> Vec<Rank> {
    let trace: Value = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    let number = |value: &Value| value.as_f64().unwrap_or_else(|| panic!("no number: {value}"));
    let mut ranks: Vec<Rank> = Vec::new();
    for event in trace["traceEvents"].as_array().unwrap() {
        let rank = number(&event["pid"]) as usize - 1;
        ranks.resize_with(ranks.len().max(rank + 1), || Rank { steps: Vec::new(), ops: Vec::new() });
        if event["ph"] == "X" {
            let (start, name) = (number(&event["ts"]), event["name"].as_str().unwrap().to_owned());
            let core = event["args"]["core_us"].as_f64();
            let event = Event { rank, start, end: start + number(&event["dur"]), name, core };
            let of_rank = &mut ranks[rank];
            if event.name.starts_with("step ") { &mut of_rank.steps } else { &mut of_rank.ops }.push(event);
        } else if event["name"] == "process_name" {
            assert_eq!(event["args"]["name"], format!("rank {rank} (zero {rank})"));
        }
    }
    ranks
}

/// The ops of a step as the schedule lists them, each by its first two words.
fn schedule() -> Vec<String> {
    let end = Run::start(tiny(4).arg("--schedule")).end();
    let lines = end.lines.iter().skip_while(|line| !line.starts_with("  step, ")).skip(1);
    let lines: Vec<&str> =
        lines.map(|line| line.as_str()).take_while(|line| !line.starts_with("  evaluation")).collect();
    // A line begins with a turn and a bar, unless it continues the previous line.
    let text = lines.join(" |").replace("        ", " ");
    let ops = text.split(" |").map(str::trim).filter(|op| !op.is_empty());
    let is_turn = |op: &str| op == "end" || op.starts_with("F mb") || op.starts_with("B mb");
    ops.filter(|op| !is_turn(op)).map(|op| op.split(' ').take(2).collect::<Vec<_>>().join(" ")).collect()
}

#[test]
fn a_trace_has_every_op_of_every_rank_on_one_axis() {
    let directory = tempfile::tempdir().unwrap();
    let end = Run::start(tiny(14).arg("--profile").current_dir(&directory)).end();
    end.assert_success(14);
    let schedule = schedule();
    let ranks = ranks(&directory.path().join("profile.json"));
    assert_eq!(ranks.len(), RANKS);
    for rank in &ranks {
        let names: Vec<_> = rank.steps.iter().map(|step| step.name.clone()).collect();
        assert_eq!(names, STEPS.map(|step| format!("step {step}")).collect::<Vec<_>>());
        assert_eq!(rank.ops.len(), schedule.len() * rank.steps.len());
        for (number, (step, ops)) in rank.steps.iter().zip(rank.ops.chunks(schedule.len())).enumerate() {
            assert!(ops.iter().all(|op| op.core.is_some_and(|core| core > 0.0) == (number % 2 == 1)), "{ops:?}");
            assert!(ops.iter().map(|op| &op.name).eq(&schedule), "{ops:?}");
            let mut before = step.start;
            for op in ops {
                // With a tolerance below a nanosecond, because sums of microseconds are not exact.
                assert!(before < op.start + 1e-4 && op.start < op.end, "{op:?} after {before}");
                before = op.end;
            }
            assert!(before < step.end + 1e-4, "{step:?} ends before its last op");
        }
    }
    let starts = ranks.iter().map(|rank| rank.steps[0].start);
    assert_eq!(starts.fold(f64::INFINITY, f64::min), 0.0);
    let happened = |rank: &Rank, step: usize| -> HashMap<String, Event> {
        let ops = rank.ops.chunks(schedule.len()).nth(step).unwrap();
        ops.iter().map(|op| (op.name.clone(), op.clone())).collect()
    };
    let mut compared = 0;
    for step in 0..STEPS.count() {
        let of_ranks: Vec<_> = ranks.iter().map(|rank| happened(rank, step)).collect();
        // No rank has all numbers before each rank has begun to send its own.
        let pairs = of_ranks.iter().flat_map(|one| of_ranks.iter().map(move |other| (one, other)));
        for (one, other) in pairs {
            for (name, taken) in one {
                let given = match name.split_once(' ') {
                    Some(("settle", bucket)) => &other[&format!("reduce {bucket}")],
                    None => &other["agree"],
                    _ => continue,
                };
                assert!(given.start < taken.end, "{taken:?} without {given:?}");
                compared += usize::from(taken.rank != given.rank);
            }
        }
    }
    let settles = schedule.iter().filter(|op| op.starts_with("settle ")).count();
    assert_eq!(compared, STEPS.count() * (settles + 1) * RANKS * (RANKS - 1));
    assert!(settles > 0);
}

#[test]
fn a_profile_says_where_the_time_goes() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("trace.json");
    let end = Run::start(tiny(3).arg("--profile").arg(&path)).end();
    end.assert_success(3);
    let row = |start: &str| {
        let row = end.lines.iter().find(|line| line.starts_with(start));
        row.unwrap_or_else(|| panic!("no `{start}` in {:#?}", end.lines)).split_whitespace().collect::<Vec<_>>()
    };
    assert_eq!(
        row("profile: "),
        "profile: milliseconds in a step of a rank, mean of steps 3 to 3".split(' ').collect::<Vec<_>>()
    );
    assert_eq!(row("op "), ["op", "ops", "ms", "min..max", "share", "achieved", "this", "machine"]);
    let (products, copies) = (["GFLOP/s", "f32 GFLOP/s"], ["GB/s", "GB/s"]);
    for (kind, count, units) in [("forward", 4, products), ("backward", 4, products), ("update", 4, copies)] {
        let row = row(&format!("  {kind} "));
        assert_eq!((row[0], row[1].parse()), (kind, Ok(count)));
        let rates = row.iter().skip_while(|word| **word != "%").skip(1);
        let named: Vec<_> = rates.filter(|word| word.parse::<f64>().is_err()).copied().collect();
        assert_eq!(named.join(" "), units.join(" "), "{row:?}");
    }
    assert_eq!(row("  between ops ").len(), 6);
    assert_eq!(row("unit ")[..5], ["unit", "forward", "GFLOP/s", "backward", "GFLOP/s"]);
    // The head has no forward of its own, and so no forward speed.
    for (unit, figures) in [("embed", 7), ("mlp", 7), ("norm", 7), ("head", 6)] {
        assert_eq!(row(&format!("  {unit} ")).len(), figures, "{unit}");
    }
    assert_eq!(row("bucket "), ["bucket", "claim", "reduce", "settle"]);
    let whole = row("whole step: ");
    assert!(whole[2].parse::<f64>().unwrap() > 0.0 && whole[3] == "GFLOP/s", "{whole:?}");
    // Bytes copied to measure the machine are not compared with the plan.
    assert_eq!(row("bytes copied per step")[4], row("bytes copied per step")[5]);
}

#[test]
fn a_profile_changes_no_result_and_no_file() {
    let directory = tempfile::tempdir().unwrap();
    let run = |name: &str, profile: Option<&Path>| {
        let metrics = directory.path().join(name);
        let mut command = tiny(5);
        command.arg("--metrics").arg(&metrics).args(profile.map(|_| "--profile")).args(profile);
        (Run::start(&mut command).end(), metrics)
    };
    let results = |path: &Path| -> Vec<[Value; 3]> {
        let text = fs::read_to_string(path).unwrap();
        let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        lines.map(|line| ["loss", "gradient_norm", "held_out_loss"].map(|key| line[key].clone())).collect()
    };
    let trace = directory.path().join("trace.json");
    let (plain, profiled) = (run("plain", None), run("profiled", Some(&trace)));
    plain.0.assert_success(5);
    profiled.0.assert_success(5);
    assert_eq!(results(&plain.1), results(&profiled.1));

    let written = fs::read(&trace).unwrap();
    let (again, _) = run("again", Some(&trace));
    again.assert_error(2, &format!("error[Z0351]: cannot write a profile to {}: File exists", trace.display()));
    assert_eq!((again.steps().len(), fs::read(&trace).unwrap()), (0, written));
}

#[test]
fn a_trace_is_in_the_time_of_the_metrics() {
    let directory = tempfile::tempdir().unwrap();
    let [profile, metrics] = ["profile", "metrics"].map(|name| directory.path().join(name));
    let mut command = tiny(14);
    command.arg("--profile").arg(&profile).arg("--metrics").arg(&metrics);
    Run::start(&mut command).end().assert_success(14);
    let lines = fs::read_to_string(&metrics).unwrap();
    let lines = lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let steps: Vec<f64> =
        lines.filter(|line| line["kind"] == "step").map(|line| line["step_s"].as_f64().unwrap()).collect();
    let measured: f64 = steps[2..12].iter().sum();
    let traced: f64 = ranks(&profile)[0].steps.iter().map(|step| (step.end - step.start) * 1e-6).sum();
    // A step takes a little longer than its ops; a wrong unit of time would be a thousand times off.
    assert!(traced <= measured * 1.001 && traced * 100.0 > measured, "{traced} s of {measured} s");
}

#[test]
fn ranks_that_are_threads_are_profiled_alike() {
    let directory = tempfile::tempdir().unwrap();
    let end = Run::start(faults("").env("THREADS", "1").arg("--profile").current_dir(&directory)).end();
    end.assert_success(6);
    let ranks = ranks(&directory.path().join("profile.json"));
    assert_eq!(ranks.iter().map(|rank| rank.steps.len()).collect::<Vec<_>>(), [4; RANKS]);
    assert!(ranks.iter().all(|rank| rank.ops.len() == ranks[0].ops.len()));
}

#[test]
fn a_rank_that_dies_in_a_profile_ends_the_run() {
    let directory = tempfile::tempdir().unwrap();
    for threads in [None, Some("1")] {
        let path = directory.path().join(format!("{threads:?}.json"));
        let mut command = faults("panic");
        command.args(["--profile".as_ref(), path.as_os_str()]).envs(threads.map(|threads| ("THREADS", threads)));
        let end = Run::start(&mut command).end();
        assert_ne!(end.code, Some(0));
        assert_eq!(fs::read(&path).unwrap(), b"", "no trace of a run that did not end");
    }
}
