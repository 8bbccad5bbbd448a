//! Processes: starts a run of ours or of the peer, waits for it, and reads what it printed. Never starts more than one at a time.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

use crate::Outcome;
use crate::collectives::RANKS;
use crate::figures::COLLECTIVES;
use crate::figures::median;
use crate::flop::SIDE;
use crate::models::Mode;

/// Steps at the start of a run that do not count: first touch of memory, caches, lazy set-up.
const UNTIMED: u32 = 2;

/// The peer's file.
const SCRIPT: &str = "peer.py";

/// The peer's modes that torchrun does not start.
const ALONE: [&str; 5] = ["single", "mapped", "nvme", "product", "version"];

/// Arguments of every run of ours, besides its steps: only training.
const OURS: &[&str] = &["--sample", "0", "--held-out", "0"];

/// The result of one run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// Median duration of a step.
    pub step_s: f64,
    /// The shortest duration of a step.
    pub best_s: f64,
    /// The most memory that rank 0 held, in bytes.
    pub peak_bytes: f64,
}

/// The time of a collective.
#[derive(Clone, Debug, PartialEq)]
pub struct Timed {
    /// Its name.
    pub name: String,
    /// Bytes of its input or its output, whichever are more.
    pub bytes: usize,
    /// Its duration.
    pub seconds: f64,
}

/// Trains our model of this name with these threads of a rank.
///
/// # Errors
/// If it fails, with what it printed.
pub fn train_ours(name: &str, threads: usize, steps: u32) -> Outcome<Sample> {
    Ok(train_ours_said(name, steps, &["--threads", &threads.to_string()].map(OsStr::new))?.0)
}

/// Trains our model of this name, with further arguments; also returns its output.
///
/// # Errors
/// If it fails, with what it printed.
pub fn train_ours_said(name: &str, steps: u32, arguments: &[&OsStr]) -> Outcome<(Sample, String)> {
    let metrics = std::env::temp_dir().join(format!("zero-bench-{}.jsonl", std::process::id()));
    let mut command = ours(name)?;
    command.args(["--steps", &(steps + UNTIMED).to_string()]).args(OURS).args(arguments).arg("--metrics").arg(&metrics);
    let said = finished(command, name)?;
    let lines = std::fs::read_to_string(&metrics)?;
    std::fs::remove_file(&metrics)?;
    Ok((read_ours(&lines)?, said))
}

/// Times our collectives between processes.
///
/// # Errors
/// If it fails, with what it printed.
pub fn time_our_collectives() -> Outcome<Vec<Timed>> {
    read_collectives(&finished(ours(COLLECTIVES)?, COLLECTIVES)?)
}

pub(crate) fn ours(name: &str) -> Outcome<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["run", name]);
    Ok(command)
}

/// PyTorch, as `peer.py` uses it.
pub struct Peer {
    /// A Python that has torch.
    pub python: PathBuf,
}

impl Peer {
    /// The versions of torch and Python that it reports.
    ///
    /// # Errors
    /// If it fails, with what it printed.
    pub fn version(&self) -> Outcome<String> {
        let mut command = Command::new(&self.python);
        command.arg(script()).args(["--mode", "version"]);
        Ok(finished(command, "the peer's version")?.trim().to_owned())
    }

    /// Trains a model of the size that the options set, in a mode and on some ranks with this many threads each. It must have as many
    /// parameters as ours.
    ///
    /// # Errors
    /// If it fails, with what it printed.
    pub fn train(
        &self,
        mode: &Mode,
        [ranks, threads]: [usize; 2],
        size: &[impl AsRef<OsStr>],
        params: usize,
        steps: u32,
    ) -> Outcome<Sample> {
        let mut command = self.command(mode.name, ranks);
        command.args(["--precision", mode.precision, "--steps", &steps.to_string()]).args(size);
        command.env("OMP_NUM_THREADS", threads.to_string());
        read_peer(&finished(command, mode.name)?, params)
    }

    /// The command that trains a model of this size with two threads, with moments in a folder: in mapped files, or as DeepSpeed
    /// keeps them.
    pub(crate) fn on_disk(&self, mode: &str, size: &[&str], steps: u32, folder: &Path) -> Command {
        let mut command = self.command(mode, 1);
        command.args(["--steps", &steps.to_string(), "--folder"]).arg(folder).args(size).env("OMP_NUM_THREADS", "2");
        command
    }

    /// Seconds of its fastest product of matrices of each type, by name.
    ///
    /// # Errors
    /// If it fails, with what it printed.
    pub fn time_products(&self) -> Outcome<Vec<(String, f64)>> {
        read_products(&finished(self.command("product", 1), "the peer's products")?)
    }

    /// Times its collectives.
    ///
    /// # Errors
    /// If it fails, with what it printed.
    pub fn time_collectives(&self) -> Outcome<Vec<Timed>> {
        read_collectives(&finished(self.command("collectives", RANKS), "the peer's collectives")?)
    }

    /// Saves and loads the states of a model of this size; returns its output.
    ///
    /// # Errors
    /// If it fails, with what it printed.
    pub fn checkpoint(&self, size: &[&str], folder: &Path) -> Outcome<String> {
        let mut command = self.command("checkpoint", RANKS);
        command.args(["--steps", "5", "--folder"]).arg(folder.join("peer")).args(size);
        finished(command, "the peer's checkpoints")
    }

    fn command(&self, mode: &str, ranks: usize) -> Command {
        let mut command = Command::new(&self.python);
        if !ALONE.contains(&mode) {
            command.args(["-m", "torch.distributed.run", "--nproc-per-node", &ranks.to_string()]);
        }
        command.arg(script()).args(["--mode", mode]).env("OMP_NUM_THREADS", "1");
        command
    }
}

/// The path of the peer's file: beside this program, if both were copied to another machine, otherwise in the source tree.
pub(crate) fn script() -> PathBuf {
    let beside = std::env::current_exe().ok().map(|program| program.with_file_name(SCRIPT));
    beside.filter(|path| path.exists()).unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join(SCRIPT))
}

/// The standard output of a command, which must succeed.
pub(crate) fn finished(mut command: Command, what: &str) -> Outcome<String> {
    let Output { status, stdout, stderr } = command.output().map_err(|error| format!("{what}: {error}"))?;
    if status.success() {
        return Ok(String::from_utf8_lossy(&stdout).into_owned());
    }
    Err(format!("{what} failed ({status}):\n{}", String::from_utf8_lossy(&stderr)).into())
}

/// Reads our metrics: a line of JSON a step, among others.
pub(crate) fn read_ours(lines: &str) -> Outcome<Sample> {
    let lines: Vec<_> =
        objects(lines)?.into_iter().filter(|line| line.get("kind").is_some_and(|kind| kind == "step")).collect();
    let times = lines.iter().skip(UNTIMED as usize).map(|line| number(line, "step_s")).collect::<Outcome<Vec<_>>>()?;
    let last = lines.last().filter(|_| !times.is_empty()).ok_or("our run has no timed steps")?;
    let best_s = times.iter().copied().fold(f64::INFINITY, f64::min);
    Ok(Sample { peak_bytes: number(last, "peak_resident_bytes")?, best_s, step_s: median(times) })
}

/// Reads the peer's line of JSON about its steps from its output. It must train a model as large as ours.
pub(crate) fn read_peer(output: &str, params: usize) -> Outcome<Sample> {
    let lines = objects(output)?;
    let line = lines.last().ok_or("the peer printed no result")?;
    if number(line, "params")? != params as f64 {
        return Err(format!("the peer trains {} parameters, ours {params}", line["params"]).into());
    }
    let [step_s, best_s] = [number(line, "step_s_median")?, number(line, "step_s_min")?];
    Ok(Sample { step_s, best_s, peak_bytes: number(line, "peak_rss_bytes")? })
}

/// Reads either side's lines of JSON about its collectives, one for each, from its output.
pub(crate) fn read_collectives(output: &str) -> Outcome<Vec<Timed>> {
    let timed = |line: &Value| {
        let name = line["collective"].as_str().ok_or("no name of a collective")?.to_owned();
        Ok(Timed { name, bytes: number(line, "bytes")? as usize, seconds: number(line, "seconds")? })
    };
    objects(output)?.iter().map(timed).collect()
}

/// Reads the peer's lines of JSON about its products, one for each. They must be as large as ours.
fn read_products(output: &str) -> Outcome<Vec<(String, f64)>> {
    let timed = |line: &Value| {
        if number(line, "side")? != SIDE as f64 {
            return Err(format!("the peer's matrices have {} rows, ours {SIDE}", line["side"]).into());
        }
        Ok((line["product"].as_str().ok_or("no name of a product")?.to_owned(), number(line, "seconds_min")?))
    };
    objects(output)?.iter().map(timed).collect()
}

pub(crate) fn objects(output: &str) -> Outcome<Vec<Value>> {
    let lines = output.lines().filter(|line| line.starts_with('{'));
    Ok(lines.map(serde_json::from_str).collect::<Result<_, _>>()?)
}

pub(crate) fn number(line: &Value, key: &str) -> Outcome<f64> {
    Ok(line[key].as_f64().ok_or_else(|| format!("no number `{key}` in {line}"))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_steps_of_ours_do_not_count() {
        let line = |s: f64, bytes: usize| {
            format!("{{\"kind\": \"step\", \"step_s\": {s}, \"peak_resident_bytes\": {bytes}}}\n")
        };
        let header = "{\"kind\": \"header\"}\n".to_owned();
        let lines = [header, line(9.0, 1), line(8.0, 2), line(1.0, 3), line(3.0, 4), line(2.0, 5)].concat();
        assert_eq!(read_ours(&lines).unwrap(), Sample { step_s: 2.0, best_s: 1.0, peak_bytes: 5.0 });
        assert!(read_ours(&[line(9.0, 1), line(8.0, 2)].concat()).is_err());
        assert!(read_ours(&"{\"kind\": \"step\"}\n".repeat(3)).unwrap_err().to_string().contains("no number `step_s`"));
    }

    #[test]
    fn the_peer_prints_other_things_too() {
        let output =
            "W1120 a warning\n{\"params\": 9, \"step_s_median\": 0.5, \"step_s_min\": 0.4, \"peak_rss_bytes\": 700}\n";
        assert_eq!(read_peer(output, 9).unwrap(), Sample { step_s: 0.5, best_s: 0.4, peak_bytes: 700.0 });
        assert!(read_peer(output, 8).unwrap_err().to_string().contains("trains 9 parameters, ours 8"));
        assert!(read_peer("nothing\n", 9).is_err());
    }

    #[test]
    fn collectives_come_one_a_line() {
        let output = "{\"collective\": \"all_reduce\", \"bytes\": 16384, \"seconds\": 2e-6}\nan end\n";
        let expected = Timed { name: "all_reduce".to_owned(), bytes: 16384, seconds: 2e-6 };
        assert_eq!(read_collectives(output).unwrap(), [expected]);
        assert!(read_collectives("{\"bytes\": 1}\n").is_err());
    }

    #[test]
    fn products_are_as_large_as_ours() {
        let line = |side: usize| format!("{{\"product\": \"bf16\", \"side\": {side}, \"seconds_min\": 2e-3}}\n");
        assert_eq!(read_products(&line(SIDE)).unwrap(), [("bf16".to_owned(), 2e-3)]);
        assert!(read_products(&line(SIDE / 2)).unwrap_err().to_string().contains("have 512 rows, ours 1024"));
    }
}
