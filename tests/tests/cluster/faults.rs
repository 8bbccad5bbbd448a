//! Faults in a run: every remaining host reports them in time, with rank and host, and no process is left.

use std::io::Read;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::net::{Mpi, Net};

/// The time after which ranks give up on one another.
pub const TIMEOUT: &str = "4s";
/// Deadline for all remaining hosts to report a fault: the timeout, and time for a slow machine.
const TOLD: Duration = Duration::from_secs(14);
/// Deadline for all ranks to end: the timeout, the two seconds in which a world ends, and time for a slow machine.
const RANKS_GONE: Duration = Duration::from_secs(16);
/// Deadline for the whole job to end.
pub const GUARD: Duration = Duration::from_secs(45);
/// How long a launcher may run after its last rank has ended.
const LAUNCHER: Duration = Duration::from_secs(20);

/// Names of launchers, which run on the first host.
pub const LAUNCHERS: &[&str] = &["mpirun", "mpiexec", "prterun"];

/// The message of Open MPI's launchers for the loss of a helper.
const LOST_HELPER: &str = "lost communication with a remote daemon";

/// Number of hosts, ranks of each host, and the first argument of the program that trains on them.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    hosts: usize,
    each: usize,
    program: &'static str,
    word: &'static str,
}

pub const PAIRS: Layout = Layout { hosts: 2, each: 2, program: env!("CARGO_BIN_EXE_hosts"), word: "" };
pub const LONE: Layout = Layout { hosts: 3, each: 1, word: "lone", ..PAIRS };

/// Names of the processes of ranks.
const NAMES: [&str; 2] = ["hosts", "gpu_hosts"];

impl Layout {
    /// The program that trains for ever, with its arguments.
    pub fn endless(self) -> String {
        format!(
            "{} {} --steps 100000000 --sample 0 --held-out 0 --log-every 4 --timeout {TIMEOUT} --data {}",
            self.program,
            self.word,
            crate::text().display()
        )
    }

    /// The same on GPUs.
    pub fn on_gpus(self) -> Self {
        Self { program: env!("CARGO_BIN_EXE_gpu_hosts"), ..self }
    }
}

/// A job that trains until something ends it.
pub struct Job {
    child: Child,
    output: ChildStdout,
    /// Whether its launcher may outlive all ranks. The launcher of Open MPI 5.0.11 and its helper sometimes wait for one another
    /// for ever if both were stopped while ranks aborted the job, as in [`strike`].
    may_hang: bool,
}

/// The end of a job.
pub struct End {
    success: bool,
    /// Whether a launcher that must not hang had to be killed, long after all ranks had ended.
    hung: bool,
    pub errors: String,
}

impl Job {
    fn start(net: &Net, mpi: Mpi) -> Self {
        Self::start_on(net, mpi, PAIRS)
    }

    fn start_on(net: &Net, mpi: Mpi, layout: Layout) -> Self {
        Self::start_with(net, mpi, layout, &[])
    }

    /// A job with further variables.
    pub fn start_with(net: &Net, mpi: Mpi, layout: Layout, variables: &[(&str, &str)]) -> Self {
        let (Layout { hosts, each, .. }, library) = (layout, mpi.library());
        let environment = [&[("ZERO_MPI", &*library)], variables].concat();
        let job = Self::of(net.launch(mpi, hosts, each, &environment, &net.telling(&layout.endless())));
        Self { may_hang: mpi == Mpi::Prrte, ..job }
    }

    /// The job of a launcher that starts [`Layout::endless`].
    pub fn of(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("a launcher");
        let output = child.stdout.take().expect("piped");
        Self { child, output, may_hang: false }
    }

    /// Waits until the slow first steps and a few more are done.
    pub fn wait_for_steps(&mut self, net: &Net) {
        let ended = self.wait_for_times("tokens/s", 2);
        ended.unwrap_or_else(|errors| panic!("the job has ended: {errors}; ranks have told {:?}", net.told()));
        std::thread::sleep(Duration::from_millis(300));
    }

    /// Waits until these words are printed.
    pub fn wait_for(&mut self, words: &str) {
        self.wait_for_times(words, 1).unwrap_or_else(|errors| panic!("the job has ended: {errors}"));
    }

    /// Waits until these words are printed this often; otherwise returns the job's errors.
    fn wait_for_times(&mut self, words: &str, times: usize) -> Result<(), String> {
        let (mut seen, mut bytes) = (String::new(), [0; 4096]);
        while seen.matches(words).count() < times {
            let read = self.output.read(&mut bytes).expect("text");
            if read == 0 {
                let mut errors = String::new();
                self.child.stderr.as_mut().expect("piped").read_to_string(&mut errors).expect("text");
                return Err(errors);
            }
            seen += &String::from_utf8_lossy(&bytes[..read]);
        }
        Ok(())
    }

    /// Sends SIGTERM to the launcher.
    pub fn ask_to_end(&self) {
        kill_process(Pid::from_child(&self.child), Signal::TERM).expect("a launcher");
    }

    /// Waits until no rank is left, because launchers may not notice. Returns the whole output.
    pub fn end(self, net: &Net) -> End {
        self.end_within(net, LAUNCHER)
    }

    /// The same, but the launcher may take this long after the end of the last rank.
    fn end_within(mut self, net: &Net, launcher: Duration) -> End {
        // If mpiexec ends the other ranks before one has reported, only mpiexec's own message is left: MPICH prints it here.
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
        let (begin, mut last_rank, mut hung) = (Instant::now(), None, false);
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("a launcher") {
                break status;
            }
            last_rank = last_rank.or_else(|| ranks(net).is_empty().then(Instant::now));
            let is_in_time = last_rank.is_some() || begin.elapsed() < RANKS_GONE;
            assert!(is_in_time, "after {RANKS_GONE:?} there are {:?}", ranks(net));
            assert!(begin.elapsed() < GUARD, "after {GUARD:?} the launcher is there");
            if last_rank.is_some_and(|last| last.elapsed() > launcher) {
                hung |= !self.may_hang && !net.launchers().is_empty();
                net.end_launchers();
            }
            std::thread::sleep(Duration::from_millis(50));
        };
        let errors = errors.join().expect("text") + &printed.join().expect("text");
        End { success: status.success(), hung, errors }
    }
}

/// The processes of the ranks, each with its host.
pub fn ranks(net: &Net) -> Vec<(usize, Pid)> {
    net.processes(|name| NAMES.contains(&name))
}

/// The host and the process of a rank. The number that the launcher has assigned to the rank identifies it.
fn process_of(net: &Net, rank: usize) -> (usize, Pid) {
    let names = ["OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID"];
    let is_it = |(_, pid): &(usize, Pid)| {
        let environment = std::fs::read_to_string(format!("/proc/{}/environ", pid.as_raw_pid())).unwrap_or_default();
        environment.split('\0').any(|set| names.iter().any(|name| set == format!("{name}={rank}")))
    };
    ranks(net).into_iter().find(is_it).expect("a rank of this number")
}

/// Stops a rank of a job, and asserts that all remaining hosts name it and, if a host peer knows it, the op that it was in.
pub fn stop(net: &Net, mut job: Job, layout: Layout, rank: usize) {
    job.wait_for_steps(net);
    let (host, victim) = process_of(net, rank);
    assert_eq!(host, rank / layout.each);
    let left = (0..layout.hosts).filter(|&other| other != host || layout.each > 1);
    let expected: Vec<Told> = left.map(|other| (other, vec!["error[Z0402]: ".to_owned()])).collect();
    strike(net, layout, || kill_process(victim, Signal::STOP).unwrap(), &expected);
    let end = job.end(net);
    assert!(!end.success && !end.hung, "{}", end.errors);
    let errors: String = net.told().into_iter().map(|(_, told)| told).collect();
    let (host, pid) = (&net.hosts[host], victim.as_raw_pid());
    let has_peers = layout.each > 1;
    let life = if has_peers { "it is stopped" } else { "it is on another host" };
    let named = format!("after 4 s, rank {rank} (pid {pid} on {host}) has not answered: {life}\n");
    let told: Vec<&str> = errors.split("error[Z0402]: ").skip(1).collect();
    assert!(!told.is_empty() && told.iter().all(|told| told.starts_with(&named)), "expected `{named}`: {errors}");
    let ops: Vec<&str> = errors.split(&format!("rank {rank} was last in ")).skip(1).collect();
    let op = ops[0].lines().next().expect("a line");
    assert!(ops.iter().all(|other| other.lines().next() == Some(op)), "{errors}");
    if has_peers {
        // Between two steps it is in none.
        assert!(op == "no op" || op.starts_with("op ") && op.contains(" of the step, `"), "{errors}");
    } else {
        assert_eq!(op, format!("an unknown op, as {host} has no other rank"), "{errors}");
    }
    assert_nothing_left(net);
}

/// A host, and messages; some rank of the host must report one of them.
type Told = (usize, Vec<String>);

/// Causes a fault while all launchers and their helpers are stopped, so that none of them ends a rank before it has reported.
/// Resumes them after each of the expected hosts has reported.
fn strike(net: &Net, layout: Layout, fault: impl FnOnce(), expected: &[Told]) {
    let starters = [net.launchers(), net.processes(|name| ["srun", "slurmstepd"].contains(&name))].concat();
    let signal_all = |signal| {
        for (_, pid) in &starters {
            // A process on a host that has died is gone.
            let _ = kill_process(*pid, signal);
        }
    };
    signal_all(Signal::STOP);
    fault();
    let begin = Instant::now();
    let has_told = |(host, words): &Told| {
        let told = net.told();
        let mut here = told.iter().filter(|(rank, _)| rank / layout.each == *host);
        here.any(|(_, told)| words.iter().any(|words| told.contains(words)))
    };
    while !expected.iter().all(has_told) {
        assert!(begin.elapsed() < TOLD, "expected within {TOLD:?} {expected:?}: {:?}", net.told());
        std::thread::sleep(Duration::from_millis(50));
    }
    signal_all(Signal::CONT);
}

/// Asserts that no rank of a job is left on any host.
fn assert_no_rank_left(net: &Net) {
    let begin = Instant::now();
    while !ranks(net).is_empty() {
        assert!(begin.elapsed() < Duration::from_secs(10), "ranks are left: {:?}", ranks(net));
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Asserts that no rank, no launcher and no launcher's helper of a job is left on any host.
pub fn assert_nothing_left(net: &Net) {
    assert_no_rank_left(net);
    let begin = Instant::now();
    while !net.launchers().is_empty() {
        assert!(begin.elapsed() < Duration::from_secs(10), "launchers are left: {:?}", net.launchers());
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Kills the launcher on a host, or its helper there, which has one of these names.
pub fn kill_launcher(net: &Net, host: usize, names: &[&str]) {
    signal_launcher(net, host, names, Signal::KILL);
}

/// Sends a signal to the launcher on a host, or to its helper there, which has one of these names.
pub fn signal_launcher(net: &Net, host: usize, names: &[&str], signal: Signal) {
    let such = net.processes(|name| names.iter().any(|it| name.starts_with(it)));
    // If a helper has moved to the background, its last process does the work.
    let (_, launcher) = such.into_iter().rfind(|(on, _)| *on == host).expect("a launcher or its helper");
    kill_process(launcher, signal).unwrap();
}

/// The report of ranks that have waited for a rank of this host, or of MPI if it has noticed first.
fn lost(net: &Net, host: usize) -> Vec<String> {
    vec![format!(" on {}) has not answered", net.hosts[host]), "error[Z0451]".to_owned()]
}

/// The same for a rank of any host.
fn gave_up() -> Vec<String> {
    ["error[Z0402]", "error[Z0451]"].map(str::to_owned).to_vec()
}

/// Kills the last rank on a job's second host by a signal, and asserts that its host peers name it and other hosts report it missing.
pub fn end_rank(net: &Net, mut job: Job, mpi: Mpi, layout: Layout, signal: Signal) {
    job.wait_for_steps(net);
    let rank = 2 * layout.each - 1;
    let (_, victim) = process_of(net, rank);
    let peer = format!("error[Z0314]: rank {rank} (pid {}) ended in the middle of the run", victim.as_raw_pid());
    // MPICH's library ends ranks of other hosts by SIGSEGV when a connection breaks, before they can report.
    let others = (0..layout.hosts).filter(|&host| host != 1 && mpi != Mpi::Mpich);
    // With more than two hosts, a rank that has waited for another one may name that rank instead.
    let others = others.map(|host| (host, if layout.hosts > 2 { gave_up() } else { lost(net, 1) }));
    let peers = (layout.each > 1).then(|| (1, vec![peer]));
    let expected: Vec<Told> = others.chain(peers).collect();
    strike(net, layout, || kill_process(victim, signal).unwrap(), &expected);
    let told = net.told();
    let says = |words: &str| told.iter().any(|(_, told)| told.contains(words));
    // After its connection to a dead rank breaks, Open MPI may deliver nothing from other ranks either, so these name one another.
    let is_cut = layout.hosts > 2 && says("mca_btl_tcp_frag_");
    assert!(mpi == Mpi::Mpich || is_cut || lost(net, 1).iter().any(|words| says(words)), "{mpi:?}: {told:?}");
    let end = job.end(net);
    assert!(!end.success && !end.hung, "{mpi:?}: {}", end.errors);
    assert_nothing_left(net);
}

/// Takes the second of two hosts of a job off the network.
pub fn cut_off(net: &Net, mut job: Job, layout: Layout) {
    job.wait_for_steps(net);
    let down = || assert!(net.on(1, "ip link set eth0 down").status().is_ok_and(|end| end.success()));
    strike(net, layout, down, &[(0, lost(net, 1)), (1, lost(net, 0))]);
    // Launchers may wait for ever for an unreachable host.
    let end = job.end_within(net, Duration::from_secs(4));
    assert!(!end.success, "{}", end.errors);
    assert_no_rank_left(net);
}

#[test]
fn a_rank_that_is_killed_ends_all_hosts() {
    let Some(net) = Net::of(2) else { return };
    for mpi in Mpi::all() {
        end_rank(&net, Job::start(&net, mpi), mpi, PAIRS, Signal::KILL);
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
            end_rank(&net, Job::start_on(&net, mpi, layout), mpi, layout, Signal::ALARM);
        }
    }
}

#[test]
fn a_link_that_goes_down_is_told_and_ends_both_hosts() {
    for mpi in Mpi::all() {
        let Some(net) = Net::of(2) else { return };
        cut_off(&net, Job::start(&net, mpi), PAIRS);
    }
}

#[test]
fn a_host_that_dies_is_told() {
    for mpi in Mpi::all() {
        let Some(net) = Net::of(2) else { return };
        let mut job = Job::start(&net, mpi);
        job.wait_for_steps(&net);
        // MPICH's library ends ranks by SIGSEGV before they can report. Its launcher reports whichever of three it has seen first:
        // the loss of its helper, the end of a rank there, or that SIGSEGV.
        let expected = if mpi == Mpi::Mpich { vec![] } else { vec![(0, lost(&net, 1))] };
        strike(&net, PAIRS, || net.kill_host(1), &expected);
        let end = job.end(&net);
        // Open MPI 5's launcher ends as if all was well, so the process that starts it looks at checkpoints too.
        let is_over = !end.success || mpi == Mpi::Prrte;
        let is_told = mpi != Mpi::Mpich || ["mpiexec@", "RUNNING AT"].iter().any(|words| end.errors.contains(words));
        assert!(is_over && is_told && !end.hung, "{mpi:?}: {}", end.errors);
        assert_nothing_left(&net);
    }
}

#[test]
fn a_launcher_that_is_killed_ends_both_hosts() {
    let Some(net) = Net::of(2) else { return };
    for mpi in Mpi::all() {
        let mut job = Job::start(&net, mpi);
        job.wait_for_steps(&net);
        kill_launcher(&net, 0, LAUNCHERS);
        // Ranks print through the launcher, so only its own end can be seen.
        let end = job.end(&net);
        assert!(!end.success, "{}", end.errors);
        assert_nothing_left(&net);
    }
}

#[test]
fn a_helper_of_the_launcher_that_is_killed_is_told_with_its_host() {
    let Some(net) = Net::of(2) else { return };
    for mpi in Mpi::all() {
        let (tells, host) = match mpi {
            Mpi::Orte | Mpi::Prrte => (LOST_HELPER, format!("on node {}", net.hosts[1])),
            // Its launcher does not notice: the ranks that have lost their helper stop answering, and others report this.
            Mpi::Mpich => ("error[Z0402]: after 4 s, rank ", format!("on {}) has not answered", net.hosts[1])),
        };
        let mut job = Job::start(&net, mpi);
        job.wait_for_steps(&net);
        kill_launcher(&net, 1, &["orted", "prted", "hydra_pmi_proxy"]);
        let end = job.end(&net);
        let all = net.told().into_iter().fold(end.errors, |all, (_, told)| all + &told);
        assert!(all.contains(tells) && all.contains(&host), "{mpi:?}: {all}");
        // Open MPI 5's launcher ends as if all was well, so the process that starts it looks at checkpoints too.
        assert!(!end.success || mpi == Mpi::Prrte, "{mpi:?}: {all}");
        assert_nothing_left(&net);
    }
}

#[test]
fn a_host_that_does_not_resolve_ends_the_start() {
    let Some(mut net) = Net::of(1) else { return };
    net.hosts.push("nowhere".to_owned());
    for mpi in Mpi::all() {
        // The launcher of MPICH 4 starts the ranks of the first host and then hangs; these ranks give up by themselves.
        let library = mpi.library();
        let environment = [("ZERO_MPI", &*library), ("ZERO_JOIN_TIMEOUT_S", "2")];
        let end = Job::of(net.launch(mpi, 2, 2, &environment, &PAIRS.endless())).end(&net);
        // The launcher of MPICH may end before it has passed on ssh's message.
        let says = ["nowhere", if mpi == Mpi::Mpich { "Launch proxy failed" } else { "nowhere" }];
        assert!(!end.success && says.iter().any(|says| end.errors.contains(says)), "{mpi:?}: {}", end.errors);
        assert_nothing_left(&net);
    }
}
