//! Compare: runs ours and the peer in turn and prints medians and their ratio. Timings of a shared machine drift, so only
//! what ran side by side is compared.

use std::error::Error;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

use crate::Arguments;
use crate::models::{PAIRS, Pair};

/// Steps at the start of a run that do not count: first touch of memory, caches, lazy set-up.
const UNTIMED: usize = 2;

/// What one run came to.
#[derive(Clone, Copy)]
struct Sample {
    step_s: f64,
    peak_mb: f64,
}

/// Measures and prints the table.
pub fn compare(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    if let Some(name) = arguments.names.iter().find(|name| PAIRS.iter().all(|pair| pair.ours != **name)) {
        let known: Vec<_> = PAIRS.iter().map(|pair| pair.ours).collect();
        return Err(format!("no row `{name}`; the rows are {}", known.join(", ")).into());
    }
    println!("| ours | ranks | step, s (range) | peak MB a rank | peer | step, s (range) | peak MB | peer / ours |");
    println!("|---|---|---|---|---|---|---|---|");
    let chosen = |pair: &&Pair| arguments.names.is_empty() || arguments.names.iter().any(|name| name == pair.ours);
    for pair in PAIRS.iter().filter(chosen) {
        let (mut ours, mut peer) = (Vec::new(), Vec::new());
        for _ in 0..arguments.rounds {
            if let Some(python) = &arguments.python {
                peer.push(run_peer(python, pair, arguments.steps)?);
            }
            ours.push(run_ours(pair, arguments.steps)?);
        }
        print!("| {} | {} | {} |", pair.ours, pair.ranks, cells(&ours));
        if peer.is_empty() {
            println!(" | | | |");
        } else {
            println!(" {} | {} | {:.2} |", pair.peer, cells(&peer), ratio(&peer, &ours));
        }
    }
    Ok(())
}

/// The value in the middle.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn cells(samples: &[Sample]) -> String {
    let steps: Vec<f64> = samples.iter().map(|sample| sample.step_s).collect();
    let (least, most) = steps.iter().fold((f64::MAX, 0.0), |(least, most): (f64, f64), &s| (least.min(s), most.max(s)));
    let peak = median(samples.iter().map(|sample| sample.peak_mb).collect());
    format!("{:.4} ({least:.4} to {most:.4}) | {peak:.0}", median(steps))
}

/// Median of the ratios of runs that were neighbours in time.
fn ratio(peer: &[Sample], ours: &[Sample]) -> f64 {
    median(peer.iter().zip(ours).map(|(peer, ours)| peer.step_s / ours.step_s).collect())
}

fn run_ours(pair: &Pair, steps: usize) -> Result<Sample, Box<dyn Error>> {
    let metrics = std::env::temp_dir().join(format!("zero-bench-{}.jsonl", std::process::id()));
    let run = Command::new(std::env::current_exe()?)
        .arg(pair.ours)
        .args(["--steps", &(steps + UNTIMED).to_string(), "--sample", "0", "--held-out", "0", "--metrics"])
        .arg(&metrics)
        .output()?;
    succeeded(&run, pair.ours)?;
    let lines = std::fs::read_to_string(&metrics)?;
    std::fs::remove_file(&metrics)?;
    let lines: Vec<Value> = lines.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
    let number = |line: &Value, key: &str| line[key].as_f64().ok_or(format!("{}: no `{key}`", pair.ours));
    let times = lines.iter().skip(UNTIMED).map(|line| number(line, "step_s")).collect::<Result<_, _>>()?;
    let last = lines.last().ok_or("no steps")?;
    Ok(Sample { step_s: median(times), peak_mb: number(last, "peak_resident_bytes")? / 1e6 })
}

fn run_peer(python: &Path, pair: &Pair, steps: usize) -> Result<Sample, Box<dyn Error>> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("peer.py");
    let mut command = Command::new(python);
    if pair.peer != "single" {
        command.args(["-m", "torch.distributed.run", "--nproc-per-node", &pair.ranks.to_string()]);
    }
    command.arg(script).args(["--mode", pair.peer, "--steps", &steps.to_string()]).args(pair.size);
    let run = command.env("OMP_NUM_THREADS", "1").output()?;
    succeeded(&run, pair.peer)?;
    let output = String::from_utf8_lossy(&run.stdout);
    let line = output.lines().rfind(|line| line.starts_with('{')).ok_or("the peer printed no result")?;
    let result: Value = serde_json::from_str(line)?;
    let number = |key: &str| result[key].as_f64().ok_or(format!("the peer's result has no `{key}`"));
    Ok(Sample { step_s: number("step_s_median")?, peak_mb: number("peak_rss_mb")? })
}

fn succeeded(run: &Output, what: &str) -> Result<(), String> {
    if run.status.success() {
        return Ok(());
    }
    Err(format!("{what} failed ({}):\n{}", run.status, String::from_utf8_lossy(&run.stderr)))
}
