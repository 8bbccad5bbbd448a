//! Tiers: what it costs to keep states on a disk. Steps are timed beside those of the same spec with states in memory, on the disk
//! as it is and on one that a control group slows down, and beside what is predicted for them; and a model is trained in a fraction
//! of the memory that its states take. Never asserts.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use zero_runtime::plan::Bytes;
use zero_study::hardware::Hardware;

use crate::Outcome;
use crate::figures::median;
use crate::limits::Limits;
use crate::predicted::{Built, Source, build, cargo_zero, parse_machine, predict, steps_s};
use crate::processes::{Peer, finished, number, read_peer};
use crate::update_phase;

/// The parts that can be chosen.
pub const PARTS: [&str; 5] = ["speed", "predicted", "update", "larger", "mapped"];

/// What leaves memory: a name, and the key of a spec.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kept {
    InMemory,
    Optimizer,
    All,
    OptimizerAtUse,
    AllAtUse,
}

impl Kept {
    const fn name(self) -> &'static str {
        match self {
            Self::InMemory => "memory",
            Self::Optimizer => "optimizer",
            Self::All => "all",
            Self::OptimizerAtUse => "optimizer_at_use",
            Self::AllAtUse => "all_at_use",
        }
    }

    const fn key(self) -> &'static str {
        match self {
            Self::InMemory => "",
            Self::Optimizer => ", offload: (optimizer: Disk)",
            Self::All => ", offload: (optimizer: Disk, gradients: Disk, parameters: Disk)",
            Self::OptimizerAtUse => ", offload: (optimizer: Disk, update: AtUse)",
            Self::AllAtUse => ", offload: (optimizer: Disk, gradients: Disk, parameters: Disk, update: AtUse)",
        }
    }
}

/// Tokens of a sequence.
const LENGTH: usize = 256;
/// Tokens of a step, and what leaves memory: each is compared with the same in memory.
const SPEED: [(usize, Kept); 6] = [
    (8192, Kept::Optimizer),
    (4096, Kept::Optimizer),
    (8192, Kept::All),
    (8192, Kept::OptimizerAtUse),
    (4096, Kept::OptimizerAtUse),
    (8192, Kept::AllAtUse),
];
/// Steps are predicted at few tokens, so that the disk is a large part of them; and of a larger model than others, because a
/// control group that limits a disk lets up to 0.1 s of its rate pass at full speed after a rest.
const PREDICTED_TOKENS: usize = 1024;
const PREDICTED: &str = "\"gpt\", size: \"11M\", layers: 6, width: 768, heads: 12";
const PREDICTED_RANKS: [usize; 2] = [1, 2];
/// MB/s of slower disks.
const THROTTLES: [u64; 3] = [200, 400, 800];

/// Model states that are larger than the memory of all ranks.
const LARGER: &str = "(model: Example(\"gpt\", size: \"11M\", layers: 28, width: 768, heads: 12), mesh: (zero: 2), \
    zero: (stage: 3, bucket: MiB(4)), batch: (sequences: 2, length: 256, micro_batches: 4), recompute: Every(1)";
/// What the process that starts the ranks, and the kernel for all of them, need in addition to what is planned for ranks.
const BESIDE_RANKS_BYTES: u64 = 8 << 20;

/// The error of a run that needs more memory than there is.
const TOO_LARGE: &str = "[Z0331]";

/// A model whose moments do not fit beside all else that PyTorch holds in the same memory, on one rank of two threads; and its size
/// for the peer.
const MAPPED: &str = "(model: Example(\"gpt\", size: \"11M\", layers: 12, width: 768, heads: 12), zero: (stage: 3, bucket: MiB(8)), \
    batch: (sequences: 1, length: 256)";
const MAPPED_PEER: [&str; 8] = ["--dim", "768", "--heads", "12", "--layers", "12", "--batch", "1"];
/// What PyTorch may need beyond our plan.
const BESIDE_PLAN_BYTES: u64 = 512 << 20;

/// How often, and where.
pub struct Choice {
    /// A Python with torch, for the part `mapped`.
    pub python: Option<PathBuf>,
    /// A folder on the disk.
    pub folder: PathBuf,
    /// Rounds.
    pub rounds: u32,
    /// Timed steps of a run.
    pub steps: u32,
    /// The parts; all if there are none.
    pub names: Vec<String>,
}

/// Measures and prints all tables, or those of some parts.
///
/// # Errors
/// If something fails to build or to run.
pub fn measure(choice: &Choice) -> Outcome<()> {
    if let Some(name) = choice.names.iter().find(|name| !PARTS.contains(&name.as_str())) {
        return Err(format!("there is no part `{name}`: there are {}", PARTS.join(", ")).into());
    }
    let specs = tempfile::tempdir()?;
    let bench = Bench { choice, specs: specs.path() };
    for (part, measure) in PARTS.iter().zip(Bench::ALL) {
        if choice.names.is_empty() || choice.names.iter().any(|name| name == part) {
            measure(&bench)?;
        }
    }
    Ok(())
}

struct Bench<'c> {
    choice: &'c Choice,
    /// Where specs are written.
    specs: &'c Path,
}

/// A spec, and whether it needs the disk.
struct Tiered {
    built: Built,
    path: PathBuf,
    kept: Kept,
}

impl Bench<'_> {
    /// What measures each part.
    const ALL: [fn(&Self) -> Outcome<()>; PARTS.len()] =
        [Self::speed, Self::predicted, Self::update, Self::larger, Self::mapped];

    fn build(&self, name: &str, kept: Kept, text: &str, size: Option<&'static str>) -> Outcome<Tiered> {
        let path = self.specs.join(format!("{name}_{}.ron", kept.name()));
        std::fs::write(&path, format!("{text}{})\n", kept.key()))?;
        Ok(Tiered { built: build(&Source { path: path.clone(), size })?, path, kept })
    }

    /// The benchmark's GPT at stage 3, with one micro-batch of these tokens a step of all ranks.
    fn gpt(&self, ranks: usize, tokens: usize, kept: Kept) -> Outcome<Tiered> {
        self.at_stage_3("\"gpt\"", Some("11M"), (ranks, tokens), kept)
    }

    /// An example in a size, which the text may name.
    fn at_stage_3(
        &self,
        example: &str,
        size: Option<&'static str>,
        (ranks, tokens): (usize, usize),
        kept: Kept,
    ) -> Outcome<Tiered> {
        let sequences = tokens / ranks / LENGTH;
        let text = format!(
            "(model: Example({example}), mesh: (zero: {ranks}), zero: (stage: 3, bucket: MiB(8)), \
             batch: (sequences: {sequences}, length: {LENGTH})"
        );
        self.build(&format!("{ranks}_ranks_{tokens}"), kept, &text, size)
    }

    /// The command of a run.
    fn run(&self, tiered: &Tiered, steps: u32) -> Command {
        let mut command = Command::new(&tiered.built.binary);
        command.args(["--held-out", "0", "--sample", "0", "--steps", &steps.to_string()]);
        if tiered.kept != Kept::InMemory {
            command.arg("--offload").arg(&self.choice.folder);
        }
        command
    }

    /// Seconds of a step, within limits.
    fn step_s(&self, tiered: &Tiered, limits: &Limits) -> Outcome<f64> {
        self.step_s_of(tiered, &[], limits)
    }

    /// The same with further arguments.
    fn step_s_of(&self, tiered: &Tiered, arguments: &[&str], limits: &Limits) -> Outcome<f64> {
        let metrics = self.specs.join("metrics.jsonl");
        let mut command = self.run(tiered, self.choice.steps + 2);
        command.arg("--metrics").arg(&metrics).args(arguments);
        finished(limits.within(&command), &tiered.built.name)?;
        let step_s = median(steps_s(&metrics)?);
        eprintln!("  {}: {:.1} ms a step", tiered.built.name, 1e3 * step_s);
        Ok(step_s)
    }

    /// This machine within limits, as the command describes it, with the units of specs and the disk of the folder.
    fn machine(&self, specs: &[Tiered], limits: &Limits) -> Outcome<Hardware> {
        let mut command = cargo_zero();
        command.arg("measure").args(specs.iter().map(|tiered| &tiered.path)).args(["--threads", "1"]);
        command.arg("--disk").arg(&self.choice.folder);
        parse_machine(&finished(limits.within(&command), "cargo zero measure")?)
    }

    /// The direct rate of the disk both ways together, in bytes a second.
    fn direct(&self, limits: &Limits) -> Outcome<f64> {
        direct_of(&self.machine(&[], limits)?)
    }

    fn speed(&self) -> Outcome<()> {
        let ranks = 2;
        let pairs =
            SPEED.map(|(tokens, kept)| [self.gpt(ranks, tokens, Kept::InMemory), self.gpt(ranks, tokens, kept)]);
        let mut rows = Vec::new();
        for [memory, disk] in pairs {
            rows.push((memory?, disk?, [const { Vec::new() }; 3]));
        }
        for round in 1..=self.choice.rounds {
            eprintln!("speed, round {round}");
            for (memory, disk, [memories, disks, ratios]) in &mut rows {
                let [memory_s, disk_s] = [self.step_s(memory, &Limits::NONE)?, self.step_s(disk, &Limits::NONE)?];
                memories.push(memory_s);
                disks.push(disk_s);
                ratios.push(memory_s / disk_s);
            }
        }
        println!("\n| on disk, {ranks} ranks | tokens a step | in memory, ms | on disk, ms | speed against memory |");
        println!("|---|---|---|---|---|");
        for ((tokens, kept), (_, _, seconds)) in SPEED.iter().zip(rows) {
            let [memory_s, disk_s, ratio] = seconds.map(median);
            println!("| {} | {tokens} | {:.0} | {:.0} | {ratio:.2} |", kept.name(), 1e3 * memory_s, 1e3 * disk_s);
        }
        Ok(())
    }

    fn predicted(&self) -> Outcome<()> {
        let mut specs = Vec::new();
        for kept in [Kept::Optimizer, Kept::All] {
            for ranks in PREDICTED_RANKS {
                specs.push(self.at_stage_3(PREDICTED, None, (ranks, PREDICTED_TOKENS), kept)?);
            }
        }
        let disks: Vec<_> = THROTTLES.into_iter().map(Some).chain([None]).collect();
        let mut rows = vec![[const { Vec::new() }; 3]; disks.len() * specs.len()];
        let mut rates = vec![Vec::new(); disks.len()];
        for round in 1..=self.choice.rounds {
            for (at, disk) in disks.iter().enumerate() {
                let limits = match disk.map(|rate| Limits::disk(&self.choice.folder, rate * 1_000_000)).transpose() {
                    Ok(limits) => limits.unwrap_or(Limits::NONE),
                    Err(error) => {
                        eprintln!("skipped: {error}");
                        continue;
                    }
                };
                eprintln!("predicted, round {round}, {}", words(*disk));
                let hardware = self.machine(&specs, &limits)?;
                rates[at].push(direct_of(&hardware)?);
                for (tiered, [measured, predicted, ratios]) in specs.iter().zip(&mut rows[at * specs.len()..]) {
                    // Its units are measured with as many.
                    let measured_s = self.step_s_of(tiered, &["--threads", "1"], &limits)?;
                    let predicted_s = predict(&tiered.built, &hardware, 1)?;
                    measured.push(measured_s);
                    predicted.push(predicted_s);
                    ratios.push(predicted_s / measured_s);
                }
            }
        }
        println!(
            "\n| disk, each way | both ways, MB/s | on disk | ranks | measured, ms | predicted, ms | predicted / measured |"
        );
        println!("|---|---|---|---|---|---|---|");
        for ((at, tiered), seconds) in
            (0..disks.len()).flat_map(|at| specs.iter().map(move |spec| (at, spec))).zip(rows)
        {
            if rates[at].is_empty() {
                println!("| {} | skipped: no control groups | | | | | |", words(disks[at]));
                continue;
            }
            let ranks = tiered.built.spec.config().mesh.ranks();
            let [measured_s, predicted_s, ratio] = seconds.map(median);
            let (both, kept) = (median(rates[at].clone()) / 1e6, tiered.kept.name());
            let (measured, predicted) = (1e3 * measured_s, 1e3 * predicted_s);
            println!(
                "| {} | {both:.0} | {kept} | {ranks} | {measured:.0} | {predicted:.0} | {ratio:.2} |",
                words(disks[at])
            );
        }
        Ok(())
    }

    /// How fast the disk works in the update, beside its direct rate both ways.
    fn update(&self) -> Outcome<()> {
        let ranks = 2;
        let tiered = self.at_stage_3(PREDICTED, None, (ranks, PREDICTED_TOKENS), Kept::Optimizer)?;
        let plan = tiered.built.plan();
        let mut rows = Vec::new();
        for disk in [Some(200), Some(400), None] {
            let limited = disk.map(|rate| Limits::disk(&self.choice.folder, rate * 1_000_000)).transpose();
            let Ok(limits) = limited.map(|limits| limits.unwrap_or(Limits::NONE)) else {
                println!("\n{}: skipped: no control groups", words(disk));
                continue;
            };
            let (mut shares, profile) = (Vec::new(), self.specs.join("profile.json"));
            for round in 1..=self.choice.rounds {
                eprintln!("update, round {round}, {}", words(disk));
                let mut command = self.run(&tiered, self.choice.steps + 2);
                command.arg("--threads").arg("1").arg("--profile").arg(&profile);
                finished(limits.within(&command), &tiered.built.name)?;
                let said = serde_json::from_str(&std::fs::read_to_string(&profile)?)?;
                std::fs::remove_file(&profile)?;
                let found = plan.with(|plan| update_phase::bytes_per_s(plan, &said))?;
                // A group limits each way, to a rate that is known.
                let direct = match disk {
                    Some(rate) => 2e6 * rate as f64,
                    None => self.direct(&limits)?,
                };
                shares.push((found, direct));
            }
            rows.push((disk, shares));
        }
        println!("\n| disk, each way | both ways, MB/s | in the update, MB/s | share |\n|---|---|---|---|");
        for (disk, shares) in rows {
            let of = |value: fn(&(f64, f64)) -> f64| median(shares.iter().map(value).collect());
            let [found, direct] = [of(|pair| pair.0 / 1e6), of(|pair| pair.1 / 1e6)];
            let share = of(|pair| pair.0 / pair.1);
            println!("| {} | {direct:.0} | {found:.0} | {share:.2} |", words(disk));
        }
        Ok(())
    }

    fn larger(&self) -> Outcome<()> {
        let [memory, disk] = [Kept::InMemory, Kept::All].map(|kept| self.build("larger", kept, LARGER, None));
        let (memory, disk) = (memory?, disk?);
        let plan = self.plan(&disk)?;
        let limit = planned(&plan)? + BESIDE_RANKS_BYTES;
        let per_param = ["params_bytes", "gradients_bytes", "optimizer_bytes"];
        let per_param = per_param.map(|key| number(&plan["bytes_per_param"], key)).into_iter().sum::<Outcome<f64>>()?;
        let states = per_param * number(&plan, "params")?;
        let (mut ratios, mut used) = (Vec::new(), (0, 0));
        for round in 1..=self.choice.rounds {
            eprintln!("larger, round {round}");
            let limits = match Limits::memory(limit) {
                Ok(limits) => limits,
                Err(error) => {
                    println!("\nlarger than memory: skipped: {error}");
                    return Ok(());
                }
            };
            let disk_s = self.step_s(&disk, &limits)?;
            let (most, killed) = limits.used()?;
            used = (used.0.max(most), used.1 + killed);
            let refused = limits.within(&self.run(&memory, 1)).output()?;
            let why = String::from_utf8_lossy(&refused.stderr);
            if !why.contains(TOO_LARGE) {
                return Err(format!("states in memory are not refused by {TOO_LARGE}: {why}").into());
            }
            eprint!("{why}");
            drop(limits);
            ratios.push((self.step_s(&memory, &Limits::NONE)?, disk_s));
        }
        let [states, limit, most] = [states as u64, limit, used.0].map(|bytes| Bytes(bytes as usize));
        println!(
            "\nmodel states of {states} in a control group of {limit}: {:.2} times its memory",
            states.0 as f64 / limit.0 as f64
        );
        println!("most in use, with the cache of files: {most}; processes killed for want of memory: {}", used.1);
        let speed = median(ratios.iter().map(|(memory_s, disk_s)| memory_s / disk_s).collect());
        let [memory_s, disk_s] =
            [ratios.iter().map(|pair| pair.0).collect(), ratios.iter().map(|pair| pair.1).collect()].map(median);
        println!("a step takes {disk_s:.1} s, and {memory_s:.1} s in memory without a limit: {speed:.2} of the speed");
        Ok(())
    }

    /// Beside PyTorch with moments in mapped files, both in a control group that has no room for them.
    fn mapped(&self) -> Outcome<()> {
        let Some(python) = self.choice.python.clone() else {
            println!("\nmapped moments: skipped without --python");
            return Ok(());
        };
        let peer = Peer { python };
        let ours = self.build("mapped", Kept::Optimizer, MAPPED, None)?;
        let plan = self.plan(&ours)?;
        let (limit, params) = (planned(&plan)? + BESIDE_PLAN_BYTES, number(&plan, "params")? as usize);
        let (mut ratios, mut seconds) = (Vec::new(), [const { Vec::new() }; 3]);
        for round in 1..=self.choice.rounds {
            eprintln!("mapped, round {round}");
            let limits = || Limits::memory(limit);
            let Ok(limited) = limits() else {
                println!("\nmapped moments: skipped: no control groups");
                return Ok(());
            };
            let ours_s = self.step_s_of(&ours, &["--threads", "2"], &limited)?;
            drop(limited);
            let peers = |limits: &Limits| {
                let command = peer.on_disk("mapped", &MAPPED_PEER, self.choice.steps, &self.choice.folder);
                let step_s = read_peer(&finished(limits.within(&command), "the peer")?, params)?.step_s;
                eprintln!("  mapped: {:.1} ms a step", 1e3 * step_s);
                Outcome::Ok(step_s)
            };
            let peers_s = peers(&limits()?)?;
            ratios.push(peers_s / ours_s);
            [ours_s, peers_s, peers(&Limits::NONE)?].iter().zip(&mut seconds).for_each(|(one, all)| all.push(*one));
        }
        let [ours_s, peers_s, free_s] = seconds.map(median);
        let (limit, ratio) = (Bytes(limit as usize), median(ratios));
        println!("\n{params} parameters in a control group of {limit}, one process of two threads, 256 tokens a step");
        println!(
            "ours, optimizer on disk: {ours_s:.2} s; PyTorch with mapped moments: {peers_s:.2} s, {ratio:.2} times as long"
        );
        println!("PyTorch with mapped moments and no limit: {free_s:.2} s");
        // It does not fit the group, because its libraries alone take more.
        let deepspeed = peer.on_disk("nvme", &MAPPED_PEER, self.choice.steps, &self.choice.folder);
        match finished(deepspeed, "DeepSpeed").and_then(|said| read_peer(&said, params)) {
            Ok(theirs) => println!("DeepSpeed, optimizer on NVMe, and no limit: {:.2} s", theirs.step_s),
            Err(error) => {
                let said = error.to_string();
                let why = said.lines().rfind(|line| line.contains("Error")).unwrap_or(&said);
                println!("DeepSpeed, optimizer on NVMe: {why}");
            }
        }
        Ok(())
    }

    fn plan(&self, tiered: &Tiered) -> Outcome<Value> {
        let mut command = cargo_zero();
        command.arg("plan").arg(&tiered.path).arg("--json");
        Ok(serde_json::from_str(&finished(command, "cargo zero plan")?)?)
    }
}

/// What all ranks of a plan without a pipeline need, in bytes.
fn planned(plan: &Value) -> Outcome<u64> {
    let stages = plan["pipeline_stages"].as_array().ok_or("no pipeline stages")?;
    let of_rank = number(stages.first().ok_or("no pipeline stage")?, "total_bytes")?;
    Ok((number(plan, "ranks")? * of_rank) as u64)
}

/// The direct rate of a machine's disk both ways together, in bytes a second.
fn direct_of(hardware: &Hardware) -> Outcome<f64> {
    let direct = hardware.node.disk.as_ref().and_then(|disk| disk.direct).ok_or("no direct rates")?;
    Ok(direct.at_once().iter().sum())
}

/// A disk, in words.
fn words(throttle: Option<u64>) -> String {
    throttle.map_or_else(|| "as it is".to_owned(), |rate| format!("{rate} MB/s"))
}
