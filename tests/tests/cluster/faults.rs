//! What goes wrong in a run: told on every host that is left, with rank and host, in time, and nothing is left over.

use std::io::Read;
use std::ops::Range;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::net::{Mpi, Net, words};

/// After which ranks give one another up.
const TIMEOUT: &str = "4s";
/// By when no rank may be left: the timeout, the two seconds in which a world ends, and a slow machine.
const RANKS_GONE: Duration = Duration::from_secs(20);
/// By when all must be over.
const GUARD: Duration = Duration::from_secs(30);
/// How long a launcher may still look for what is gone.
const LAUNCHER: Duration = Duration::from_secs(3);

/// How launchers are called that run on the first host.
const LAUNCHERS: &[&str] = &["mpirun", "mpiexec", "prterun"];

/// What launchers of Open MPI say of a helper that is gone.
const LOST_HELPER: &str = "lost communication with a remote daemon";

/// One of these is said of a rank that ends with an exit code: by its mates, by those that have waited for it, or by the launcher,
/// which may end all others before one of them can.
pub const ENDED_BY_ITSELF: &[&str] = &[
    "error[Z0314]",
    "error[Z0402]",
    "error[Z0451]",
    "non-zero exit code",
    "EXIT CODE",
    "peer process has unexpectedly disconnected",
    "writev failed: Broken pipe",
    "Exited with exit code 3",
];

/// Hosts, ranks of each, and the first argument of the program that trains on these.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    hosts: usize,
    each: usize,
    word: &'static str,
}

pub const PAIRS: Layout = Layout { hosts: 2, each: 2, word: "" };
pub const LONE: Layout = Layout { hosts: 3, each: 1, word: "lone" };

impl Layout {
    /// The program that trains for ever, with its arguments.
    pub fn endless(self) -> String {
        format!(
            "{} {} --steps 100000000 --sample 0 --held-out 0 --log-every 1 --timeout {TIMEOUT} --data {}",
            env!("CARGO_BIN_EXE_hosts"),
            self.word,
            crate::text().display()
        )
    }
}

/// A job that trains until something ends it.
pub struct Job {
    child: Child,
    output: ChildStdout,
}

/// What came of it.
pub struct End {
    success: bool,
    pub errors: String,
}

impl Job {
    fn start(net: &Net, mpi: Mpi) -> Self {
        Self::start_on(net, mpi, PAIRS)
    }

    fn start_on(net: &Net, mpi: Mpi, layout: Layout) -> Self {
        let Layout { hosts, each, .. } = layout;
        Self::of(net.launch(mpi, hosts, each, &[("ZERO_MPI", &*mpi.library())], &layout.endless()))
    }

    /// What a launcher starts that is given [`Layout::endless`].
    pub fn of(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("a launcher");
        let output = child.stdout.take().expect("piped");
        Self { child, output }
    }

    /// Waits until a step is done, and some more.
    pub fn wait_for_steps(&mut self) {
        self.wait_for("tokens/s");
        std::thread::sleep(Duration::from_millis(300));
    }

    /// Waits until such words are printed.
    pub fn wait_for(&mut self, words: &str) {
        let (mut seen, mut bytes) = (String::new(), [0; 4096]);
        while !seen.contains(words) {
            let read = self.output.read(&mut bytes).expect("text");
            if read == 0 {
                let mut errors = String::new();
                self.child.stderr.as_mut().expect("piped").read_to_string(&mut errors).expect("text");
                panic!("the job has ended: {errors}");
            }
            seen += &String::from_utf8_lossy(&bytes[..read]);
        }
    }

    /// Sends SIGTERM to what was started.
    fn ask_to_end(&self) {
        kill_process(Pid::from_child(&self.child), Signal::TERM).expect("a launcher");
    }

    /// Waits until no rank is left, with all that is printed until then: launchers themselves may not notice.
    pub fn end(mut self, net: &Net) -> End {
        // Where mpiexec ends the other ranks before one has told, its own words are all there is: MPICH prints them here.
        let printed = std::thread::spawn(move || {
            let mut printed = Vec::new();
            let _ = self.output.read_to_end(&mut printed);
            let text = String::from_utf8_lossy(&printed).into_owned();
            text.lines().filter(|line| !line.contains("tokens/s")).map(|line| format!("{line}\n")).collect::<String>()
        });
        let mut stderr = self.child.stderr.take().expect("piped");
        let errors = std::thread::spawn(move || {
            let mut errors = String::new();
            let _ = stderr.read_to_string(&mut errors);
            errors
        });
        let (begin, mut last_rank) = (Instant::now(), None);
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("a launcher") {
                break status;
            }
            last_rank = last_rank.or_else(|| ranks(net).is_empty().then(Instant::now));
            let is_in_time = last_rank.is_some() || begin.elapsed() < RANKS_GONE;
            assert!(is_in_time, "after {RANKS_GONE:?} there are {:?}", ranks(net));
            assert!(begin.elapsed() < GUARD, "after {GUARD:?} the launcher is there");
            if last_rank.is_some_and(|last| last.elapsed() > LAUNCHER) {
                net.end_launchers();
            }
            std::thread::sleep(Duration::from_millis(50));
        };
        let errors = errors.join().expect("text") + &printed.join().expect("text");
        End { success: status.success(), errors }
    }
}

/// The processes of the ranks, each with its host.
fn ranks(net: &Net) -> Vec<(usize, Pid)> {
    net.processes(|name| name == "hosts")
}

/// The process of a rank, which knows its number from its launcher, and its host.
fn process_of(net: &Net, rank: usize) -> (usize, Pid) {
    let names = ["OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID"];
    let is_it = |(_, pid): &(usize, Pid)| {
        let environment = std::fs::read_to_string(format!("/proc/{}/environ", pid.as_raw_pid())).unwrap_or_default();
        environment.split('\0').any(|set| names.iter().any(|name| set == format!("{name}={rank}")))
    };
    ranks(net).into_iter().find(is_it).expect("a rank of this number")
}

/// Stops a rank of a job, and sees that all who give it up name it, and what it was in where a mate of it can tell.
pub fn stop(net: &Net, mut job: Job, layout: Layout, rank: usize) {
    job.wait_for_steps();
    let (host, victim) = process_of(net, rank);
    assert_eq!(host, rank / layout.each);
    kill_process(victim, Signal::STOP).unwrap();
    let errors = job.end(net).errors;
    let (host, pid) = (&net.hosts[host], victim.as_raw_pid());
    let has_mates = layout.each > 1;
    let life = if has_mates { "it is stopped" } else { "it is on another host" };
    let named = format!("after 4 s, rank {rank} (pid {pid} on {host}) has not answered: {life}\n");
    let told: Vec<&str> = errors.split("error[Z0402]: ").skip(1).collect();
    assert!(!told.is_empty() && told.iter().all(|told| told.starts_with(&named)), "expected `{named}`: {errors}");
    let ops: Vec<&str> = errors.split(&format!("rank {rank} was last in ")).skip(1).collect();
    let op = ops[0].lines().next().expect("a line");
    assert!(ops.iter().all(|other| other.lines().next() == Some(op)), "{errors}");
    if has_mates {
        // Between two steps it is in none.
        assert!(op == "no op" || op.starts_with("op ") && op.contains(" of the step, `"), "{errors}");
    } else {
        assert_eq!(op, format!("an op that nobody can tell, as {host} has no other rank"), "{errors}");
    }
    assert_nothing_left(net);
}

/// Nothing of a job is left on any host.
pub fn assert_nothing_left(net: &Net) {
    let begin = Instant::now();
    while !ranks(net).is_empty() {
        assert!(begin.elapsed() < Duration::from_secs(10), "ranks are left: {:?}", ranks(net));
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Kills the launcher on a host, or its helper there, which has one of these names.
fn kill_launcher(net: &Net, host: usize, names: &[&str]) {
    let such = net.processes(|name| names.iter().any(|it| name.starts_with(it)));
    // Of a helper that has gone to the background, the last one is what works.
    let (_, victim) = such.into_iter().rfind(|(on, _)| *on == host).expect("a launcher or its helper");
    kill_process(victim, Signal::KILL).unwrap();
}

/// No launcher is left, and no helper of one.
fn assert_no_launcher_left(net: &Net) {
    let begin = Instant::now();
    while !net.launchers().is_empty() {
        assert!(begin.elapsed() < Duration::from_secs(10), "launchers are left: {:?}", net.launchers());
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// A job of mpirun or mpiexec with a fault on the second host, in which one of these is told.
fn fault(net: &Net, mpi: Mpi, fault: impl FnOnce(&Net, Pid), tells: &[&str]) -> End {
    fault_in(net, Job::start(net, mpi), fault, tells)
}

/// The same in any job.
pub fn fault_in(net: &Net, mut job: Job, fault: impl FnOnce(&Net, Pid), tells: &[&str]) -> End {
    job.wait_for_steps();
    let (_, victim) = ranks(net).into_iter().rfind(|(host, _)| *host == 1).expect("a rank on the second host");
    fault(net, victim);
    let end = job.end(net);
    assert!(!end.success, "{}", end.errors);
    assert!(tells.iter().any(|told| end.errors.contains(told)), "expected one of {tells:?}: {}", end.errors);
    end
}

#[test]
fn a_rank_that_is_killed_ends_all_hosts() {
    let Some(net) = Net::of(2) else { return };
    for mpi in Mpi::all() {
        fault(
            &net,
            mpi,
            |_, victim| kill_process(victim, Signal::KILL).unwrap(),
            &["error[Z0314]", "signal 9", "KILLED", "terminated badly"],
        );
        assert_nothing_left(&net);
    }
}

/// What brings a job back, with checkpoints in a folder. The shell of the first host says how often ranks were started before.
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

/// A job that is back has saved a step since.
fn wait_for_progress(job: &mut Job, folder: &Path) {
    job.wait_for("resumed: ");
    let newest = newer_than(folder, None);
    newer_than(folder, newest);
}

/// The newest checkpoint of a folder.
fn newest(folder: &Path) -> Option<u64> {
    let entries = std::fs::read_dir(folder).expect("a folder").flatten();
    entries.filter_map(|it| it.file_name().to_str()?.strip_prefix("step-")?.parse().ok()).max()
}

/// The newest checkpoint of a folder, once it is newer than another.
fn newer_than(folder: &Path, before: Option<u64>) -> Option<u64> {
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
        job.wait_for_steps();
        newer_than(folder.path(), None);
        let (_, victim) = ranks(&net).into_iter().rfind(|(host, _)| *host == 1).expect("a rank on the second host");
        kill_process(victim, Signal::KILL).unwrap();
        wait_for_progress(&mut job, folder.path());
        kill_launcher(&net, 0, LAUNCHERS);
        wait_for_progress(&mut job, folder.path());
        job.ask_to_end();
        let end = job.end(&net);
        // Not at the begin of a line where the launcher before has not ended its own.
        let restarts = end.errors.lines().filter(|line| line.contains("note: restart "));
        assert_eq!(restarts.count(), 2, "{mpi:?}: {}", end.errors);
        assert_nothing_left(&net);
    }
}

/// The states that a job has saved last, which has done so many steps: a file for each rank.
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
        // Each loses a host of its own.
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

#[test]
fn z0402_a_rank_that_is_stopped_is_named_with_its_host() {
    let Some(net) = Net::of(3) else { return };
    for mpi in Mpi::all() {
        for (layout, rank) in [(PAIRS, 3), (PAIRS, 0), (PAIRS, 2), (LONE, 2), (LONE, 1), (LONE, 0)] {
            stop(&net, Job::start_on(&net, mpi, layout), layout, rank);
        }
    }
}

#[test]
fn a_rank_that_ends_by_itself_ends_all_hosts() {
    let Some(net) = Net::of(3) else { return };
    for mpi in Mpi::all() {
        for layout in [PAIRS, LONE] {
            let job = Job::start_on(&net, mpi, layout);
            fault_in(&net, job, |_, victim| kill_process(victim, Signal::USR1).unwrap(), ENDED_BY_ITSELF);
            assert_nothing_left(&net);
        }
    }
}

#[test]
fn a_link_that_goes_down_is_told_and_ends_both_hosts() {
    for mpi in Mpi::all() {
        let Some(net) = Net::of(2) else { return };
        let down = |net: &Net, _| {
            assert!(net.on(1, "ip link set eth0 down").status().is_ok_and(|end| end.success()));
        };
        fault(&net, mpi, down, &["error[Z0402]", "error[Z0451]"]);
        assert_nothing_left(&net);
    }
}

#[test]
fn a_host_that_dies_is_told() {
    for mpi in Mpi::all() {
        let Some(net) = Net::of(2) else { return };
        let mut job = Job::start(&net, mpi);
        job.wait_for_steps();
        net.kill_host(1);
        let end = job.end(&net);
        // A launcher that loses a helper ends the other host at once, and says so in words of its own. That of Open MPI 5 does so
        // with exit code 0, or in no words but with the signal that its own way to the helper has died of.
        let tells = ["error[Z0402]", "error[Z0451]", "mpiexec", "mpirun", "MPI", LOST_HELPER, &net.hosts[1]];
        let is_told = tells.iter().any(|told| end.errors.contains(told));
        let is_over = if mpi == Mpi::Prrte { is_told || !end.success } else { is_told && !end.success };
        assert!(is_over, "{mpi:?}: {}", end.errors);
        assert_nothing_left(&net);
    }
}

#[test]
fn a_launcher_that_is_killed_ends_both_hosts() {
    let Some(net) = Net::of(2) else { return };
    for mpi in Mpi::all() {
        let mut job = Job::start(&net, mpi);
        job.wait_for_steps();
        kill_launcher(&net, 0, LAUNCHERS);
        // What ranks say goes through the launcher: its own end is all that can be seen.
        let end = job.end(&net);
        assert!(!end.success, "{}", end.errors);
        assert_nothing_left(&net);
        assert_no_launcher_left(&net);
    }
}

#[test]
fn a_helper_of_the_launcher_that_is_killed_is_told_with_its_host() {
    let Some(net) = Net::of(2) else { return };
    for mpi in Mpi::all() {
        let (tells, host) = match mpi {
            Mpi::Orte | Mpi::Prrte => (LOST_HELPER, format!("on node {}", net.hosts[1])),
            // Its launcher does not notice: the ranks that have lost their helper fall silent, and the others tell.
            Mpi::Mpich => ("error[Z0402]: after 4 s, rank ", format!("on {}) has not answered", net.hosts[1])),
        };
        let mut job = Job::start(&net, mpi);
        job.wait_for_steps();
        kill_launcher(&net, 1, &["orted", "prted", "hydra_pmi_proxy"]);
        let end = job.end(&net);
        assert!(end.errors.contains(tells) && end.errors.contains(&host), "{mpi:?}: {}", end.errors);
        // That of Open MPI 5 ends as if all was well, which its starter holds against checkpoints.
        assert!(!end.success || mpi == Mpi::Prrte, "{mpi:?}: {}", end.errors);
        assert_nothing_left(&net);
        assert_no_launcher_left(&net);
    }
}

#[test]
fn a_host_that_does_not_resolve_ends_the_start() {
    let Some(mut net) = Net::of(1) else { return };
    net.hosts.push("nowhere".to_owned());
    for mpi in Mpi::all() {
        // The launcher of MPICH 4 starts the ranks of the first host and then hangs: they give up by themselves.
        let library = mpi.library();
        let environment = [("ZERO_MPI", &*library), ("ZERO_JOIN_TIMEOUT_S", "2")];
        let end = Job::of(net.launch(mpi, 2, 2, &environment, &PAIRS.endless())).end(&net);
        assert!(!end.success && end.errors.contains("nowhere"), "{}", end.errors);
        assert_nothing_left(&net);
        assert_no_launcher_left(&net);
    }
}
