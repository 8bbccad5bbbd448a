//! Hosts: collectives and steps of ranks on two hosts, ours over MPI and PyTorch's over gloo in turn. The hosts are parts of one
//! machine that `tests/cluster/hosts.sh up FOLDER 2` makes, or any hosts that `FOLDER/ssh HOST COMMAND` reaches by the names in
//! `FOLDER/names`.

use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};

use zero_core::model::Model;
use zero_ranks::launch::{self, Role};
use zero_ranks::transport::cluster;
use zero_runtime::plan::{Mesh, TransportKind};

use crate::Outcome;
use crate::collectives::{BYTES, Collective, time_between_processes};
use crate::figures::{Round, Spread};
use crate::models::hosts_zero3;
use crate::processes::{Peer, Sample, Timed, finished, read_collectives, read_ours, read_peer, script};

/// The argument with which our process becomes one of these ranks.
pub const HOSTS: &str = "hosts";
/// The model that is trained.
pub const ZERO3: &str = "hosts_zero3";
/// Hosts of every measurement.
pub(crate) const NODES: usize = 2;
/// The name of their network cards in `tests/cluster/hosts.sh`.
pub(crate) const CARD: &str = "eth0";
/// Ranks on each host; both numbers are measured.
const EACH: [usize; 2] = [1, 2];
/// The collectives that are timed.
const COLLECTIVES: [Collective; 2] = [Collective::ReduceScatter, Collective::Gather];

/// What to measure, and on which hosts.
pub struct Choice {
    /// The folder of the hosts.
    pub folder: PathBuf,
    /// The mpirun of an Open MPI.
    pub launcher: String,
    /// A Python with torch.
    pub python: Option<PathBuf>,
    /// Rounds, at least 1.
    pub rounds: u32,
    /// Timed steps of a run.
    pub steps: u32,
}

/// One rank of `hosts COLLECTIVE BYTES RANKS`: prints a line of JSON, if it is the first.
pub fn run(arguments: &[String]) -> ExitCode {
    match run_rank(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            cluster::abort(1);
            ExitCode::FAILURE
        }
    }
}

fn run_rank(arguments: &[String]) -> Outcome<()> {
    let [name, bytes, ranks] = arguments else { return Err("a collective, bytes and ranks".into()) };
    let collective = COLLECTIVES.into_iter().find(|collective| collective.name() == name).ok_or("a collective")?;
    let (bytes, ranks) = (bytes.parse()?, ranks.parse()?);
    let Role::Rank(place) = launch::role(ranks)? else { return Err("it is started by mpirun".into()) };
    let mesh = Mesh { nodes: NODES, ..Mesh::of_zero(ranks) };
    let plan = collective.plan_on(bytes, mesh, TransportKind::Cluster);
    let seconds = time_between_processes(collective, bytes, &plan, &place)?;
    cluster::leave();
    if place.rank == 0 {
        let line = serde_json::json!({ "collective": collective.of_peer(), "bytes": bytes, "seconds": seconds });
        println!("{line}");
    }
    Ok(())
}

impl Choice {
    /// The hosts.
    pub(crate) fn names(&self) -> Outcome<Vec<String>> {
        let names: Vec<String> =
            std::fs::read_to_string(self.folder.join("names"))?.lines().map(str::to_owned).collect();
        if names.len() == NODES { Ok(names) } else { Err(format!("{} hosts instead of {NODES}", names.len()).into()) }
    }

    pub(crate) fn ssh(&self) -> PathBuf {
        self.folder.join("ssh")
    }

    /// A command that runs a line of a shell on a host.
    pub(crate) fn on(&self, host: &str, line: &str) -> Command {
        let mut command = Command::new(self.ssh());
        command.arg(host).arg(line);
        command
    }

    /// Runs this program under mpirun, with `each` ranks on each host.
    fn ours(&self, names: &[String], each: usize, words: &str) -> Outcome<String> {
        self.mpirun(names, each, &format!("{} run {words}", std::env::current_exe()?.display()))
    }

    /// Runs a program with its arguments under mpirun, with `each` ranks on each host.
    pub(crate) fn mpirun(&self, names: &[String], each: usize, program: &str) -> Outcome<String> {
        let slots: Vec<String> = names.iter().map(|name| format!("{name}:{each}")).collect();
        let line = format!(
            "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 {} --mca plm_rsh_agent {} --mca btl_tcp_if_include \
             {CARD} --mca oob_tcp_if_include {CARD} --bind-to none --map-by slot --host {} -n {} {program}",
            self.launcher,
            self.ssh().display(),
            slots.join(","),
            NODES * each,
        );
        finished(self.on(&names[0], &line), program)
    }

    /// Runs the peer's ranks without a launcher, and returns the output of the first.
    fn peers(&self, peer: &Peer, names: &[String], each: usize, words: &str) -> Outcome<String> {
        let ranks = NODES * each;
        let start = |rank: usize| {
            let line = format!(
                "OMP_NUM_THREADS=1 RANK={rank} WORLD_SIZE={ranks} LOCAL_RANK={} MASTER_ADDR={} MASTER_PORT=29511 \
                 GLOO_SOCKET_IFNAME={CARD} {} {} {words}",
                rank % each,
                names[0],
                peer.python.display(),
                script().display()
            );
            self.on(&names[rank / each], &line)
        };
        let others: Vec<_> = (1..ranks)
            .map(|rank| start(rank).stdout(Stdio::null()).stderr(Stdio::null()).spawn())
            .collect::<Result<_, _>>()?;
        let first = finished(start(0), words);
        for mut other in others {
            if first.is_err() {
                let _ = other.kill();
            }
            other.wait()?;
        }
        first
    }

    fn train_ours(&self, names: &[String]) -> Outcome<Sample> {
        let metrics = std::env::temp_dir().join(format!("zero-bench-{}.jsonl", std::process::id()));
        let options = "--sample 0 --held-out 0 --threads 1";
        let words = format!("{ZERO3} --steps {} {options} --metrics {}", self.steps + 2, metrics.display());
        self.ours(names, 1, &words)?;
        let lines = std::fs::read_to_string(&metrics)?;
        std::fs::remove_file(&metrics)?;
        read_ours(&lines)
    }

    fn train_peer(&self, peer: &Peer, names: &[String]) -> Outcome<Sample> {
        let words = format!("--mode fsdp --precision f32 --steps {}", self.steps);
        read_peer(&self.peers(peer, names, 1, &words)?, hosts_zero3::Gpt::PLAN.params())
    }

    fn round(&self) -> Outcome<Round> {
        let (names, mut round) = (self.names()?, Round::default());
        let peer = self.python.clone().map(|python| Peer { python });
        for each in EACH {
            let mut put = |whose: &str, timed: &[Timed]| {
                timed.iter().for_each(|one| round.put(figure(whose, each, &one.name, one.bytes), one.seconds));
            };
            for (bytes, collective) in BYTES.iter().flat_map(|bytes| COLLECTIVES.map(|one| (bytes, one))) {
                let words = format!("{HOSTS} {} {bytes} {}", collective.name(), NODES * each);
                put("ours", &read_collectives(&self.ours(&names, each, &words)?)?);
            }
            if let Some(peer) = &peer {
                put("peer", &read_collectives(&self.peers(peer, &names, each, "--mode collectives")?)?);
            }
        }
        round.put("ours, step", self.train_ours(&names)?.step_s);
        if let Some(peer) = &peer {
            round.put("peer, step", self.train_peer(peer, &names)?.step_s);
        }
        Ok(round)
    }
}

fn figure(whose: &str, each: usize, name: &str, bytes: usize) -> String {
    format!("{whose}, {name} of {bytes} bytes, {NODES} x {each}")
}

/// Measures in rounds, and prints a table.
///
/// # Errors
/// If a run fails, with what it printed.
pub fn measure(choice: &Choice) -> Outcome<()> {
    let rounds: Vec<Round> = (0..choice.rounds).map(|_| choice.round()).collect::<Outcome<_>>()?;
    println!("| what | hosts x ranks | ours, ms | peer, ms | peer / ours | least to most |\n|---|---|---|---|---|---|");
    let row = |what: &str, each: usize, ours: &str, peer: &str| {
        let over = |name: &str| Spread::over(&rounds, |round| round.get(name));
        let cell = |name: &str| over(name).map_or(String::new(), |spread| format!("{:.3}", spread.median * 1e3));
        let ratio = Spread::over(&rounds, |round| round.ratio(peer, ours));
        let ratio = ratio
            .map_or(" | ".to_owned(), |ratio| format!("{:.2} | {:.2} to {:.2}", ratio.median, ratio.least, ratio.most));
        println!("| {what} | {NODES} x {each} | {} | {} | {ratio} |", cell(ours), cell(peer));
    };
    for (each, bytes, collective) in
        EACH.iter().flat_map(|&each| BYTES.iter().flat_map(move |&bytes| COLLECTIVES.map(|one| (each, bytes, one))))
    {
        let name = collective.of_peer();
        let what = format!("{name}, {} KiB", bytes >> 10);
        row(&what, each, &figure("ours", each, name, bytes), &figure("peer", each, name, bytes));
    }
    row("step of the GPT, stage 3 and fully_shard", 1, "ours, step", "peer, step");
    Ok(())
}
