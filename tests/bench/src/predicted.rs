//! Predicted: predicted and measured times of a step, for every spec of the workspace and several numbers of threads. `cargo zero
//! measure` describes the machine for the simulation, just before the runs of a model. Never asserts.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use zero_runtime::plan::spec::{self, Spec};
use zero_runtime::plan::{Config, Mesh, PlanBuf, Sizes};
use zero_study::hardware::Hardware;
use zero_study::simulate::simulate_with;

use crate::Outcome;
use crate::figures::median;
use crate::processes::{finished, number, objects};

/// A model of the benchmark that an example has too, and the batch of a rank.
struct OwnModel {
    example: &'static str,
    size: &'static str,
    batch: &'static str,
}

const GPT: OwnModel = OwnModel { example: "gpt", size: "11M", batch: "sequences: 4, length: 256" };
const LONG: OwnModel = OwnModel { example: "gpt", size: "11M-512", batch: "sequences: 8, length: 512" };
const SMALL: OwnModel = OwnModel { example: "gpt", size: "0.7M", batch: "sequences: 4, length: 64" };
/// Its positions are stretched, at no cost in a step.
const LLAMA: OwnModel = OwnModel { example: "llama", size: "28M", batch: "sequences: 4, length: 512" };

/// A row of the benchmark as a spec of an example.
struct Own {
    /// The row.
    name: &'static str,
    model: OwnModel,
    ranks: usize,
    /// The keys of `zero`.
    zero: &'static str,
    /// The rest of the spec.
    more: &'static str,
}

const fn own(name: &'static str, model: OwnModel, ranks: usize, zero: &'static str, more: &'static str) -> Own {
    Own { name, model, ranks, zero, more }
}

const SINGLE: &str = "stage: 0";
const ZERO3: &str = "stage: 3, prefetch: 2, bucket: MiB(8)";
const BF16: &str = ", precision: (compute: BF16)";

/// All rows of the benchmark.
const OWN: [Own; 17] = [
    own("single", GPT, 1, SINGLE, ""),
    own("single_bf16", GPT, 1, SINGLE, BF16),
    own("single_bf16_params", GPT, 1, SINGLE, ", precision: (compute: BF16, params: BF16, master: F32)"),
    own("ddp", GPT, 2, "stage: 0, bucket: MiB(8)", ""),
    own("zero1", GPT, 2, "stage: 1, bucket: MiB(8)", ""),
    own("zero2", GPT, 2, "stage: 2, bucket: MiB(8)", ""),
    own("zero3", GPT, 2, ZERO3, ""),
    own("zero3_bf16", GPT, 2, ZERO3, BF16),
    own("long", LONG, 1, SINGLE, ""),
    own("long_bf16", LONG, 1, SINGLE, BF16),
    own("small_single", SMALL, 1, SINGLE, ""),
    own("small_ddp", SMALL, 2, SINGLE, ""),
    own("small_zero3", SMALL, 2, "stage: 3, prefetch: 2", ""),
    own("llama", LLAMA, 2, ZERO3, ""),
    own("llama_bf16", LLAMA, 2, ZERO3, BF16),
    own("llama_single", LLAMA, 1, SINGLE, ""),
    own("llama_single_bf16", LLAMA, 1, SINGLE, BF16),
];

/// Rows that are also predicted on twice as many ranks, which share the cores of a small machine.
const TWICE: [&str; 5] = ["ddp", "zero3", "zero3_bf16", "small_zero3", "llama"];

impl Own {
    /// Its spec, on this many ranks.
    fn text(&self, ranks: usize) -> String {
        let Self { model: OwnModel { example, batch, .. }, zero, more, .. } = self;
        format!("(model: Example({example:?}), mesh: (zero: {ranks}), zero: ({zero}), batch: ({batch}){more})\n")
    }
}

/// Steps of a run, of which the first two do not count.
pub(crate) const STEPS: usize = 12;
const UNTIMED: usize = 2;
/// If steps are short, more of them count: about as many as fit in these seconds, up to this number.
const TIMED_MAX: usize = 100;
const TIMED_S: f64 = 2.0;
/// Ranks that share a core meet at different points of each step, so single steps of a rank are too short or too long. The mean of
/// several consecutive steps is neither.
const IN_A_ROW: usize = 5;
/// Threads of a rank.
const THREADS: [usize; 2] = [1, 2];

/// A spec, its binary, and the sizes that the binary reports.
pub(crate) struct Built {
    pub name: String,
    pub binary: PathBuf,
    pub spec: Spec,
    pub sizes: Sizes,
}

impl Built {
    /// Its plan, with all ranks on one node.
    pub(crate) fn plan(&self) -> PlanBuf {
        let config = self.spec.config();
        let config = Config { mesh: Mesh { nodes: 1, ..config.mesh }, ..config };
        PlanBuf::new(&self.sizes.model, config, &self.sizes.probes[0].units)
    }
}

/// The results of one spec with some threads, in seconds: a measured and a predicted time of each round.
struct Line {
    name: String,
    threads: usize,
    /// Ranks per core.
    ranks_per_core: f64,
    measured_s: Vec<f64>,
    predicted_s: Vec<f64>,
}

impl Line {
    /// Its spec and threads, in words.
    fn of(&self) -> String {
        format!("{} with {}", self.name, zero_runtime::plan::counted(self.threads, "thread", "threads"))
    }

    fn measured_s(&self) -> f64 {
        median(self.measured_s.clone())
    }

    fn predicted_s(&self) -> f64 {
        median(self.predicted_s.clone())
    }

    /// Predicted over measured time: the median of the rounds' ratios, because the speed of the machine may differ between rounds.
    fn ratio(&self) -> f64 {
        median(
            self.predicted_s.iter().zip(&self.measured_s).map(|(predicted, measured)| predicted / measured).collect(),
        )
    }
}

/// Measures and prints the table of all specs and rows of the benchmark, or only of those with these names.
///
/// # Errors
/// If something fails to build or to run.
pub fn measure(rounds: u32, names: &[String]) -> Outcome<()> {
    let cores = std::thread::available_parallelism()?.get();
    let own = tempfile::tempdir()?;
    let sources = sources(names, Path::new("specs"), own.path())?;
    let built = sources.iter().map(build).collect::<Outcome<Vec<_>>>()?;
    let line = |built: &Built, threads| Line {
        name: built.name.clone(),
        threads,
        ranks_per_core: built.spec.config().mesh.ranks() as f64 / cores as f64,
        measured_s: Vec::new(),
        predicted_s: Vec::new(),
    };
    let mut lines: Vec<_> = built.iter().map(|built| THREADS.map(|threads| line(built, threads))).collect();
    let mut models: BTreeMap<_, Vec<usize>> = BTreeMap::new();
    for (index, (source, built)) in sources.iter().zip(&built).enumerate() {
        models.entry((&built.sizes.model, source.size)).or_default().push(index);
    }
    for round in 1..=rounds {
        eprintln!("round {round} of {rounds}");
        // The speed of the machine may change, so a model's steps are measured right after its units.
        for (&(_, size), of_model) in &models {
            let hardware = machine(of_model.iter().map(|&index| sources[index].path.as_path()), size)?;
            for &index in of_model {
                for line in &mut lines[index] {
                    let measured_s = run(&built[index].binary, line.threads)?;
                    let predicted_s = predict(&built[index], &hardware, line.threads)?;
                    let (of, [measured, predicted]) =
                        (line.of(), [measured_s, predicted_s].map(|seconds| 1e3 * seconds));
                    eprintln!("{of}: measured {measured:.2} ms, predicted {predicted:.2} ms");
                    line.measured_s.push(measured_s);
                    line.predicted_s.push(predicted_s);
                }
            }
        }
    }
    print(&lines.into_iter().flatten().collect::<Vec<_>>());
    Ok(())
}

/// A spec to build, and the size of its model, if that is not the smallest.
pub(crate) struct Source {
    pub path: PathBuf,
    pub size: Option<&'static str>,
}

/// The RON files of `folder`, in order, then the specs of the benchmark's rows, which are written to `own`. If names are given,
/// only files with these names.
fn sources(names: &[String], folder: &Path, own: &Path) -> Outcome<Vec<Source>> {
    let mut paths = std::fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<Outcome<Vec<_>>>()?;
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "ron"));
    paths.sort();
    let mut sources: Vec<_> = paths.into_iter().map(|path| Source { path, size: None }).collect();
    let twice = TWICE.iter().flat_map(|name| OWN.iter().filter(move |row| row.name == *name));
    let twice = twice.map(|row| (row, 2 * row.ranks, format!("bench-{}_{}", row.name, 2 * row.ranks)));
    for (row, ranks, name) in OWN.iter().map(|row| (row, row.ranks, format!("bench-{}", row.name))).chain(twice) {
        let path = own.join(name).with_extension("ron");
        std::fs::write(&path, row.text(ranks))?;
        sources.push(Source { path, size: Some(row.model.size) });
    }
    let all: Vec<_> = sources.iter().map(|source| name(&source.path)).collect();
    if let Some(name) = names.iter().find(|name| !all.contains(name)) {
        return Err(format!("nothing is predicted of `{name}`, but of {}", all.join(", ")).into());
    }
    sources.retain(|source| names.is_empty() || names.contains(&name(&source.path)));
    Ok(sources)
}

/// The name of a file, without its ending.
fn name(path: &Path) -> String {
    path.file_stem().map_or_else(String::new, |name| name.to_string_lossy().into_owned())
}

/// The `cargo zero` command of this workspace.
pub(crate) fn cargo_zero() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(["--quiet", "--locked", "zero"]);
    command
}

pub(crate) fn build(Source { path, size }: &Source) -> Outcome<Built> {
    eprintln!("building {}", path.display());
    let mut command = cargo_zero();
    command.arg("build").arg(path).args(size.iter().flat_map(|size| ["--size", size]));
    let binary = PathBuf::from(finished(command, "cargo zero build")?.trim());
    let mut command = Command::new(&binary);
    command.arg("--sizes");
    let sizes: Sizes = serde_json::from_str(&finished(command, "a binary")?)?;
    let spec = spec::parse(&sizes.spec).map_err(|_| "a spec that was built is no spec")?;
    Ok(Built { name: name(path), binary, spec, sizes })
}

/// The command's description of this machine, with the units of the model that these specs name, in one size.
pub(crate) fn machine<'s>(specs: impl IntoIterator<Item = &'s Path>, size: Option<&str>) -> Outcome<Hardware> {
    let threads = THREADS.map(|threads| threads.to_string()).join(",");
    let mut command = cargo_zero();
    command.args(["measure", "--threads", &threads]).args(specs).args(size.iter().flat_map(|size| ["--size", size]));
    parse_machine(&finished(command, "cargo zero measure")?)
}

/// A description that the command printed.
pub(crate) fn parse_machine(text: &str) -> Outcome<Hardware> {
    Ok(Hardware::parse(text).map_err(|problems| problems[0].render("the machine", text))?)
}

/// Seconds of a step: the median over groups of steps.
fn run(binary: &Path, threads: usize) -> Outcome<f64> {
    let metrics = std::env::temp_dir().join(format!("zero-predicted-{}.jsonl", std::process::id()));
    let step_s = |steps: usize| {
        let mut command = Command::new(binary);
        command.args(["--held-out", "0", "--sample", "0"]);
        command.args(["--steps", &steps.to_string(), "--threads", &threads.to_string()]);
        command.arg("--metrics").arg(&metrics);
        finished(command, "a run")?;
        let groups = steps_s(&metrics)?;
        let groups = groups.chunks_exact(IN_A_ROW).map(|group| group.iter().sum::<f64>() / IN_A_ROW as f64);
        Outcome::Ok(median(groups.collect()))
    };
    let first_s = step_s(STEPS)?;
    let timed = ((TIMED_S / first_s) as usize).min(TIMED_MAX);
    if UNTIMED + timed > STEPS { step_s(UNTIMED + timed) } else { Ok(first_s) }
}

/// Seconds of each step that counts, from the metrics of a run, which are then removed.
pub(crate) fn steps_s(metrics: &Path) -> Outcome<Vec<f64>> {
    let lines = objects(&std::fs::read_to_string(metrics)?)?;
    std::fs::remove_file(metrics)?;
    lines.iter().filter(|line| line["kind"] == "step").skip(UNTIMED).map(|line| number(line, "step_s")).collect()
}

/// Predicted seconds of a step. All nodes are parts of this machine, as in the runs.
pub(crate) fn predict(built: &Built, hardware: &Hardware, threads: usize) -> Outcome<f64> {
    Ok(built.plan().with(|plan| simulate_with(plan, hardware, threads))?.step_s)
}

fn print(lines: &[Line]) {
    println!("| spec | threads | ranks a core | measured, ms | predicted, ms | predicted / measured |");
    println!("|---|---|---|---|---|---|");
    for line in lines {
        let Line { name, threads, ranks_per_core, .. } = line;
        let (measured, predicted, ratio) = (1e3 * line.measured_s(), 1e3 * line.predicted_s(), line.ratio());
        println!("| {name} | {threads} | {ranks_per_core} | {measured:.2} | {predicted:.2} | {ratio:.2} |");
    }
    let near = lines.iter().filter(|line| (line.ratio() - 1.0).abs() <= 0.1).count();
    println!("\nwithin 10 %: {near} of {}", lines.len());
    let (right, pairs) = order(lines);
    println!("order right in {right} of {pairs} pairs whose measured times differ by more than 10 %");
}

/// Of the pairs of specs whose measured times differ by more than a tenth: how many are predicted in the measured order, and how
/// many there are.
fn order(lines: &[Line]) -> (usize, usize) {
    let (mut right, mut pairs) = (0, 0);
    for (i, a) in lines.iter().enumerate() {
        for b in &lines[i + 1..] {
            let (measured_a, measured_b) = (a.measured_s(), b.measured_s());
            if measured_a.max(measured_b) > 1.1 * measured_a.min(measured_b) {
                pairs += 1;
                right += usize::from((measured_a < measured_b) == (a.predicted_s() < b.predicted_s()));
            }
        }
    }
    (right, pairs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::models::ROWS;

    #[test]
    fn every_row_of_the_benchmark_is_predicted_as_it_is() {
        let mut names = OWN.map(|row| row.name);
        // Each is predicted with one thread and with two.
        let mut rows: Vec<_> = ROWS.iter().filter(|row| row.threads == 1).map(|row| row.ours).collect();
        names.sort_unstable();
        rows.sort_unstable();
        assert_eq!(names[..], rows[..]);
        for own in &OWN {
            let row = ROWS.iter().find(|row| row.ours == own.name).expect("a row");
            assert_eq!(spec::parse(&own.text(own.ranks)).expect("a spec").config(), row.plan.config, "{}", own.name);
        }
    }

    #[test]
    fn some_rows_are_predicted_on_twice_as_many_ranks() {
        let own = tempfile::tempdir().unwrap();
        let names = TWICE.map(|name| {
            let ranks = OWN.iter().find(|row| row.name == name).expect("a row").ranks;
            format!("bench-{name}_{}", 2 * ranks)
        });
        let found = sources(&names, Path::new("../../specs"), own.path()).unwrap();
        assert_eq!(found.len(), TWICE.len());
        for Source { path, .. } in found {
            let config = spec::parse(&std::fs::read_to_string(path).unwrap()).expect("a spec").config();
            assert_eq!(config.mesh, Mesh::of_zero(4));
        }
    }

    #[test]
    fn only_pairs_that_differ_have_an_order() {
        let line = |measured_s, predicted_s| Line {
            name: String::new(),
            threads: 1,
            ranks_per_core: 1.0,
            measured_s: vec![measured_s],
            predicted_s: vec![predicted_s],
        };
        let lines = [line(1.0, 2.0), line(1.05, 1.0), line(2.0, 1.5)];
        assert_eq!(order(&lines), (1, 2));
    }
}
