//! Jobs that are restarted after a fault, on the same hosts or others, end with the bits of an undisturbed job.

use std::ops::Range;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::{Signal, kill_process};

use crate::faults::{
    GUARD, Job, LAUNCHERS, PAIRS, TIMEOUT, assert_nothing_left, kill_launcher, ranks, signal_launcher,
};
use crate::net::{Mpi, Net, words};

/// The command that restarts a job, with checkpoints in a folder. The shell of the first host inserts the number of earlier starts.
fn brought_back(net: &Net, mpi: Mpi, folder: &Path) -> Command {
    let program = format!("{} --every 1 --keep 2 --checkpoint {} --restarts 2", PAIRS.endless(), folder.display());
    let library = mpi.library();
    let launch = net.launch(mpi, 2, 2, &[("ZERO_MPI", &*library), ("ZERO_RESTART", "$ZERO_RESTART")], &program);
    let words = std::iter::once(launch.get_program()).chain(launch.get_args());
    let line: Vec<String> = words.map(|word| format!("'{}'", word.to_string_lossy())).collect();
    let mut starter = Command::new(env!("CARGO_BIN_EXE_starter"));
    starter.arg(format!("exec {}", line.join(" "))).env("RESTARTS", "2").env("FOLDER", folder);
    starter
}

/// Waits until a restarted job has saved another step.
fn wait_for_progress(job: &mut Job, folder: &Path) {
    job.wait_for("resumed: ");
    let newest = newer_than(folder, None);
    newer_than(folder, newest);
}

/// The newest checkpoint of a folder.
fn newest(folder: &Path) -> Option<u64> {
    let entries = std::fs::read_dir(folder).ok()?.flatten();
    entries.filter_map(|it| it.file_name().to_str()?.strip_prefix("step-")?.parse().ok()).max()
}

/// The newest checkpoint of a folder, once it is newer than another.
pub fn newer_than(folder: &Path, before: Option<u64>) -> Option<u64> {
    let begin = Instant::now();
    loop {
        let newest = newest(folder);
        if newest > before {
            return newest;
        }
        assert!(begin.elapsed() < GUARD, "no checkpoint after {before:?}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_job_comes_back_from_the_loss_of_a_rank_and_of_its_launcher() {
    let Some(net) = Net::of(2) else { return };
    for mpi in Mpi::all() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut job = Job::of(brought_back(&net, mpi, folder.path()));
        job.wait_for_steps(&net);
        newer_than(folder.path(), None);
        let (_, victim) = ranks(&net).into_iter().rfind(|(host, _)| *host == 1).expect("a rank on the second host");
        kill_process(victim, Signal::KILL).unwrap();
        wait_for_progress(&mut job, folder.path());
        kill_launcher(&net, 0, LAUNCHERS);
        wait_for_progress(&mut job, folder.path());
        job.ask_to_end();
        let end = job.end(&net);
        // The text is not at the start of a line if the previous launcher has not ended its own line.
        let restarts = end.errors.lines().filter(|line| line.contains("note: restart "));
        assert_eq!(restarts.count(), 2, "{mpi:?}: {}", end.errors);
        assert_nothing_left(&net);
    }
}

/// `cargo zero launch` asks them so: on SIGTERM, Open MPI's launcher would not give them the time.
#[test]
fn ranks_of_all_hosts_save_if_their_launcher_gets_sigusr1() {
    let Some(net) = Net::of(2) else { return };
    for mpi in Mpi::all() {
        let folder = tempfile::tempdir().expect("a folder");
        let program = format!("{} --checkpoint {}", PAIRS.endless(), folder.path().display());
        let mut job = Job::of(net.launch(mpi, 2, 2, &[("ZERO_MPI", &*mpi.library())], &program));
        job.wait_for_steps(&net);
        signal_launcher(&net, 0, LAUNCHERS, Signal::USR1);
        let end = job.end(&net);
        assert!(end.errors.contains("asked to end: stopped after step "), "{mpi:?}: {}", end.errors);
        assert!(newest(folder.path()).is_some(), "{mpi:?}: {}", end.errors);
        assert_nothing_left(&net);
    }
}

/// The last states that a job of this many steps has saved: a file for each rank.
fn states(folder: &Path, steps: u64) -> Vec<Vec<u8>> {
    let file = |rank: usize| folder.join(format!("step-{steps:09}/rank-{rank:05}.safetensors"));
    (0..4).map(|rank| std::fs::read(file(rank)).expect("a checkpoint")).collect()
}

#[test]
fn a_job_that_loses_a_host_goes_on_on_other_hosts_to_the_bits_of_one_that_does_not() {
    const STEPS: u64 = 2000;
    let launch = |net: &Net, mpi: Mpi, hosts: Range<usize>, folder: &Path, more: &str| {
        let program = format!(
            "{} --steps {STEPS} --every 100 --keep 2 --checkpoint {} --sample 0 --held-out 0 --timeout {TIMEOUT} --data {} {more}",
            env!("CARGO_BIN_EXE_hosts"),
            folder.display(),
            crate::text().display()
        );
        net.launch_on(mpi, hosts, 2, &[("ZERO_MPI", &*mpi.library())], "", &program)
    };
    let ends = |mut command: Command| {
        let output = command.output().expect("a launcher");
        assert!(output.status.success(), "{}", words(&output));
        words(&output)
    };
    let whole = tempfile::tempdir().expect("a folder");
    for mpi in Mpi::all() {
        // Each MPI needs its own hosts, because it loses one.
        let Some(net) = Net::of(4) else { return };
        if newest(whole.path()).is_none() {
            ends(launch(&net, mpi, 0..2, whole.path(), ""));
        }
        let folder = tempfile::tempdir().expect("a folder");
        let job = Job::of(launch(&net, mpi, 0..2, folder.path(), ""));
        newer_than(folder.path(), None);
        net.kill_host(1);
        job.end(&net);
        assert_nothing_left(&net);
        let saved = newest(folder.path()).expect("a checkpoint");
        assert!(saved < STEPS, "the job was over before its host");
        let resumed = ends(launch(&net, mpi, 2..4, folder.path(), "--resume"));
        assert!(resumed.contains(&format!("resumed: {saved} steps are done")), "{mpi:?}: {resumed}");
        assert!(states(folder.path(), STEPS) == states(whole.path(), STEPS), "{mpi:?}: other bits");
    }
}
