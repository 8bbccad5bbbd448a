//! Slurm, whose nodes are the hosts: srun with either MPI, and the script that `cargo zero launch --slurm` writes.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Signal, kill_process};
use tempfile::TempDir;

use crate::back::newer_than;
use crate::faults::{Job, PAIRS, assert_nothing_left, end_rank, ranks, stop};
use crate::net::{Mpi, Net, skipped, words};

const PROGRAM: &str = env!("CARGO_BIN_EXE_hosts");
/// Far more than a job needs, including Slurm's wait before it restarts a job.
const PATIENCE: Duration = Duration::from_secs(100);

/// A cluster of two nodes, which is shut down when this is dropped.
struct Slurm {
    net: Net,
}

fn script() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("cluster/slurm.sh")
}

impl Slurm {
    /// None if this machine has no Slurm, or no hosts.
    fn start() -> Option<Self> {
        let can = Command::new(script()).arg("can").output().expect("a script");
        if !can.status.success() {
            return skipped("Slurm", String::from_utf8_lossy(&can.stderr).trim());
        }
        let slurm = Self { net: Net::of(2)? };
        let up = Command::new(script()).arg("up").arg(slurm.net.own()).status();
        assert!(up.is_ok_and(|end| end.success()), "a Slurm that does not start");
        Some(slurm)
    }

    /// A command of Slurm on the first node, which is killed after a while.
    fn command(&self, line: &str) -> Command {
        let mut command = Command::new(script());
        command.arg("run").arg(self.net.own()).arg(format!("exec timeout --kill-after 3 120 {line}"));
        command.stdin(Stdio::null());
        command
    }

    /// Starts two ranks of a program on each node.
    fn srun(&self, mpi: Mpi, options: &str, program: &str) -> Command {
        let interface = match mpi {
            Mpi::Orte => "pmix",
            Mpi::Mpich => "pmi2",
            Mpi::Prrte => unreachable!("srun starts those of Debian"),
        };
        let line =
            format!("srun --mpi={interface} --kill-on-bad-exit=1 --nodes=2 --ntasks-per-node=2 {options} {program}");
        let mut command = self.command(&line);
        command.env("ZERO_MPI", mpi.library());
        command
    }

    /// A job that trains until something ends it.
    fn endless(&self, mpi: Mpi) -> Job {
        Job::of(self.srun(mpi, "", &self.net.telling(&PAIRS.endless())))
    }

    /// Makes Slurm do something.
    fn tell(&self, line: &str) {
        let output = self.command(line).output().expect("a script");
        assert!(output.status.success(), "{line}: {}", words(&output));
    }
}

impl Drop for Slurm {
    fn drop(&mut self) {
        let _ = Command::new(script()).arg("down").arg(self.net.own()).status();
    }
}

fn trains(arguments: &str) -> String {
    format!("{PROGRAM} --steps 3 --sample 0 --held-out 0 --log-every 1 --data {} {arguments}", crate::text().display())
}

#[test]
fn it_trains_and_measures_what_was_planned() {
    let Some(slurm) = Slurm::start() else { return };
    for mpi in Mpi::DEBIAN {
        let output = slurm.srun(mpi, "", &trains("")).output().unwrap();
        let all = words(&output);
        assert!(output.status.success(), "{mpi:?}: {all}");
        assert!(all.contains("bytes copied per step") && all.contains("3/3"), "{all}");
    }
}

#[test]
fn z0453_ranks_that_are_dealt_out_like_cards_or_not_evenly() {
    let Some(slurm) = Slurm::start() else { return };
    for options in ["--distribution=cyclic", "--ntasks=4 --ntasks-per-node=3"] {
        let output = slurm.srun(Mpi::Orte, options, &trains("")).output().unwrap();
        let all = words(&output);
        assert!(!output.status.success(), "{options}: {all}");
        assert!(all.contains("error[Z0453]") && !all.contains("error[Z0320]"), "{options}: {all}");
    }
}

#[test]
fn a_rank_that_is_killed_ends_all_nodes() {
    let Some(slurm) = Slurm::start() else { return };
    for mpi in Mpi::DEBIAN {
        end_rank(&slurm.net, slurm.endless(mpi), mpi, PAIRS, Signal::KILL);
    }
}

#[test]
fn z0402_a_rank_that_is_stopped_is_named_with_its_node() {
    let Some(slurm) = Slurm::start() else { return };
    for mpi in Mpi::DEBIAN {
        for rank in [3, 0] {
            stop(&slurm.net, slurm.endless(mpi), PAIRS, rank);
        }
    }
}

#[test]
fn a_rank_that_ends_by_itself_ends_all_nodes() {
    let Some(slurm) = Slurm::start() else { return };
    for mpi in Mpi::DEBIAN {
        end_rank(&slurm.net, slurm.endless(mpi), mpi, PAIRS, Signal::ALARM);
    }
}

/// The script that `cargo zero launch --slurm` writes, for a job of this machine, and the file that the job prints to.
fn batch(folder: &TempDir, steps: &str) -> [PathBuf; 2] {
    let (run, text) = (folder.path().join("run").display().to_string(), crate::text());
    let options = format!("--checkpoint {run} --every 50 --keep 2 --steps {steps} --sample 0 --held-out 0");
    let command = format!("{PROGRAM} --data {} {options}", text.display());
    let own = [("SPEC", "hosts"), ("NODES", "2"), ("RANKS", "2"), ("FOLDER", &run), ("COMMAND", &command)];
    let script = include_str!("../../../zero-cli/src/launch/job.sh").replace("@GPUS@\n", "");
    let script = own.iter().fold(script, |script, (name, value)| script.replace(&format!("@{name}@"), value));
    let paths = ["job.sh", "printed"].map(|name| folder.path().join(name));
    std::fs::write(&paths[0], script).expect("room");
    paths
}

/// Submits that script for a job that trains until something ends it; returns the path of its output, and the job's number.
fn submitted(slurm: &Slurm, folder: &TempDir) -> (PathBuf, String) {
    let [script, printed] = batch(folder, "100000000");
    let line = format!("sbatch --parsable --output={} {}", printed.display(), script.display());
    let output = slurm.command(&line).env("ZERO_MPI", Mpi::Orte.library()).output().unwrap();
    assert!(output.status.success(), "{}", words(&output));
    (printed, String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

#[test]
fn the_script_of_a_job_is_accepted_and_trains() {
    let Some(slurm) = Slurm::start() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let [script, printed] = batch(&folder, "3");
    let line = format!("sbatch --wait --output={} {}", printed.display(), script.display());
    let output = slurm.command(&line).env("ZERO_MPI", Mpi::Orte.library()).output().unwrap();
    let said = std::fs::read_to_string(printed).unwrap_or_default();
    assert!(output.status.success(), "{}{said}", words(&output));
    assert!(said.contains("bytes copied per step") && said.contains("3/3"), "{said}");
}

#[test]
fn a_job_that_is_asked_to_end_queues_again_and_goes_on() {
    let Some(slurm) = Slurm::start() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let (printed, job) = submitted(&slurm, &folder);
    wait_for(&printed, "tokens/s");
    // As Slurm does a minute before a job's time limit.
    slurm.tell(&format!("scancel --signal=TERM {job}"));
    let all = wait_for(&printed, "resumed: ");
    // The output of the first run is still there.
    assert!(all.contains("asked to end: stopped after step") && all.contains("Exited with exit code 75"), "{all}");
    slurm.tell(&format!("scancel {job}"));
    assert_nothing_left(&slurm.net);
}

#[test]
fn a_job_that_loses_a_rank_after_a_checkpoint_queues_again_and_goes_on() {
    let Some(slurm) = Slurm::start() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let (printed, job) = submitted(&slurm, &folder);
    newer_than(&folder.path().join("run"), None);
    let (_, victim) = ranks(&slurm.net).into_iter().rfind(|(host, _)| *host == 1).expect("a rank on the second node");
    kill_process(victim, Signal::KILL).unwrap();
    let all = wait_for(&printed, "resumed: ");
    assert!(!all.contains("asked to end"), "{all}");
    slurm.tell(&format!("scancel {job}"));
    assert_nothing_left(&slurm.net);
}

/// Waits until a file has these words, and gives its whole text.
fn wait_for(path: &Path, words: &str) -> String {
    let begin = Instant::now();
    loop {
        let all = std::fs::read_to_string(path).unwrap_or_default();
        if all.contains(words) {
            return all;
        }
        assert!(begin.elapsed() < PATIENCE, "expected `{words}`: {all}");
        std::thread::sleep(Duration::from_millis(100));
    }
}
