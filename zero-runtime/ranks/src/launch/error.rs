//! Error: the errors between the start of a binary and the end of its ranks, each with a message, a stable code and a
//! way out. Never prints.

use std::io;
use std::ops::Range;
use std::time::Duration;

use signal_hook::low_level::signal_name;

use super::environment::PMIX_RANK;
use super::finding::RankFindings;
use super::host;
use super::options::{EXIT_AGAIN, EXIT_REPORTED};
use zero_core::device::{DeviceError, Failure};

/// An error of launching, joining or watching. [`LaunchError::report`] is its text for a person.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "each variant's message names its fields")]
pub enum LaunchError {
    #[error("the environment has `{set}` but not `{missing}`; a rank needs both")]
    PlaceIncomplete { set: &'static str, missing: &'static str },
    #[error("the environment has `{name}` = `{value}`, expected a whole number")]
    NotANumber { name: &'static str, value: String },
    #[error("the environment has `{rank_name}` = {rank}, expected less than `{size_name}`, which is {size}")]
    RankOutOfRange { rank_name: &'static str, rank: usize, size_name: &'static str, size: usize },
    #[error("two launchers contradict one another: {first}, but {second}")]
    LaunchersDisagree { first: String, second: String },
    #[error(
        "the environment has `{size_name}` = {world} on {}, but the plan in this binary is for {plan_ranks} ranks",
        host()
    )]
    WorldNotPlanned { size_name: &'static str, world: usize, plan_ranks: usize, numbered: Vec<&'static str> },
    #[error("the environment has `{name}` = {value}, expected 1 to {max} seconds")]
    TimeoutOutOfRange { name: &'static str, value: usize, max: usize },
    #[error("nothing in the environment names this job, so its ranks cannot find one another")]
    JobUnnamed,
    #[error("rank {rank} of {world} shares its host with only some of the ranks")]
    SeveralHosts { rank: usize, world: usize },

    #[error("rank {rank} (pid {pid}) was killed by signal {signal} ({})", signal_name(*signal).unwrap_or("unnamed"))]
    RankKilled { rank: usize, pid: u32, signal: i32 },
    #[error("rank {rank} (pid {pid}) ended with exit code {code}")]
    RankFailed { rank: usize, pid: u32, code: i32 },
    #[error("cannot start rank {rank} as a copy of this binary: {source}")]
    Spawn { rank: usize, source: io::Error },
    #[error("the launcher (pid {pid}) has ended before this rank began")]
    LauncherGone { pid: u32 },
    #[error("rank {rank} (pid {pid}) ended in the middle of the run")]
    RankLost { rank: usize, pid: u32 },

    #[error("{0}")]
    Failed(RankFindings),
    #[error("another restart would begin where the last one did: {}", newest_words(*.newest))]
    NoProgress { newest: Option<u64> },
    #[error(
        "the launcher of the ranks has ended with exit code 0 before the run reached its last step, {last_step}: {}",
        newest_words(*.newest)
    )]
    CutShort { newest: Option<u64>, last_step: u64 },
    #[error("--restarts {restarts} asks to restart ranks, but their launcher here never does")]
    NoRestarts { restarts: u64 },
    #[error(
        "{} s after {} the run had not ended, and was killed: {}",
        grace.as_secs_f64(), signal_name(*signal).unwrap_or("a signal"), newest.map_or(ITS_NEWEST.to_owned(), newest_words)
    )]
    OutOfGrace { signal: i32, grace: Duration, newest: Option<Option<u64>> },

    #[error("another rank 0 of the same job is starting on this host (job `{job}`)")]
    JobTaken { job: String },
    #[error("after {seconds} s, {} of {} never arrived", ranks(missing), those(here))]
    RanksMissing { missing: Vec<usize>, here: Range<usize>, seconds: u64 },
    #[error("rank {rank} waited {seconds} s for rank 0, which never arrived (job `{job}`)")]
    HostMissing { rank: usize, seconds: u64, job: String },
    #[error("rank 0 ended before all ranks had joined")]
    HostLost,
    #[error("rank 0 did not answer rank {rank} for {seconds} s")]
    HostSilent { rank: usize, seconds: u64 },
    #[error(
        "rank {rank} (pid {pid}) has another plan, other arguments or other data than rank 0: expected {expected_hash:016x} with {expected_bytes} \
         shared bytes, found {hash:016x} with {bytes}"
    )]
    PlanDiffers { rank: usize, pid: u32, expected_hash: u64, expected_bytes: u64, hash: u64, bytes: u64 },
    #[error("rank {rank} (pid {pid}) says that there are {found} ranks, rank 0 says {expected}")]
    WorldDiffers { rank: usize, pid: u32, expected: usize, found: usize },
    #[error("two processes say that they are rank {rank}: pid {first_pid} and pid {second_pid}")]
    DuplicateRank { rank: usize, first_pid: u32, second_pid: u32 },
    #[error("the job's socket belongs to user {found}, expected user {expected} (job `{job}`)")]
    Stranger { job: String, expected: u32, found: u32 },
    #[error("a rank of this host is in a process namespace that another one cannot look into")]
    Unseen,
    #[error("rank {rank} (pid {pid}) ended before all ranks had joined")]
    LostAtStart { rank: usize, pid: u32 },
    #[error("another rank stopped the start: {reason}")]
    Dismissed { reason: String },

    #[error(transparent)]
    Device(#[from] DeviceError),
    #[error("{0}")]
    Mpi(Failure),
    #[error(
        "rank {rank} on {} is number {local} of {found} there, expected number {expected} of {each}: the nodes of the mesh have \
         {each} ranks, which are numbered node by node",
        host()
    )]
    Misplaced { rank: usize, local: usize, found: usize, expected: usize, each: usize },
    #[error("the plan in this binary is for {nodes} hosts, but no launcher has started it on them")]
    NoHosts { nodes: usize },
}

impl LaunchError {
    pub(super) fn incomplete(set: &'static str, missing: &'static str) -> Self {
        LaunchError::PlaceIncomplete { set, missing }
    }

    /// For `map_err`: `what` completes "cannot ...".
    pub fn system<E: Into<io::Error>>(what: &'static str) -> impl FnOnce(E) -> Self {
        move |source| DeviceError::system(what)(source).into()
    }

    /// The stable code.
    pub fn code(&self) -> &'static str {
        match self {
            LaunchError::PlaceIncomplete { .. } => "Z0301",
            LaunchError::NotANumber { .. } => "Z0302",
            LaunchError::RankOutOfRange { .. } => "Z0303",
            LaunchError::LaunchersDisagree { .. } => "Z0304",
            LaunchError::WorldNotPlanned { .. } => "Z0305",
            LaunchError::JobUnnamed => "Z0306",
            LaunchError::SeveralHosts { .. } => "Z0307",
            LaunchError::RankKilled { .. } => "Z0310",
            LaunchError::RankFailed { .. } => "Z0311",
            LaunchError::Spawn { .. } => "Z0312",
            LaunchError::LauncherGone { .. } => "Z0313",
            LaunchError::RankLost { .. } => "Z0314",
            LaunchError::TimeoutOutOfRange { .. } => "Z0315",
            LaunchError::Failed(_) => "Z0316",
            LaunchError::NoProgress { .. } => "Z0317",
            LaunchError::OutOfGrace { .. } => "Z0318",
            LaunchError::NoRestarts { .. } => "Z0319",
            LaunchError::JobTaken { .. } => "Z0320",
            LaunchError::RanksMissing { .. } => "Z0321",
            LaunchError::HostMissing { .. } => "Z0322",
            LaunchError::HostLost => "Z0323",
            LaunchError::HostSilent { .. } => "Z0324",
            LaunchError::PlanDiffers { .. } => "Z0325",
            LaunchError::WorldDiffers { .. } => "Z0326",
            LaunchError::DuplicateRank { .. } => "Z0327",
            LaunchError::Stranger { .. } => "Z0328",
            LaunchError::LostAtStart { .. } => "Z0329",
            LaunchError::Dismissed { .. } => "Z0330",
            LaunchError::CutShort { .. } => "Z0336",
            LaunchError::Unseen => "Z0337",
            LaunchError::Device(error) => error.code(),
            LaunchError::Mpi(failure) => failure.code,
            LaunchError::Misplaced { .. } => "Z0453",
            LaunchError::NoHosts { .. } => "Z0455",
        }
    }

    /// The meaning of the error, and how to continue.
    pub fn help(&self) -> String {
        let help = match self {
            LaunchError::PlaceIncomplete { set: PMIX_RANK, .. } => {
                "have the launcher set the variables of Open MPI's mpirun: `prterun --personality ompi`"
            }
            LaunchError::PlaceIncomplete { missing, .. } => {
                return format!("set `{missing}` too, or unset both and let the binary start its own ranks");
            }
            LaunchError::NotANumber { name, .. } | LaunchError::TimeoutOutOfRange { name, .. } => {
                return format!("correct `{name}` or unset it");
            }
            LaunchError::RankOutOfRange { size, .. } => {
                return format!("ranks count from 0 to {}", size.saturating_sub(1));
            }
            LaunchError::LaunchersDisagree { .. } => {
                "unset the variables of the launcher that did not start this process"
            }
            LaunchError::WorldNotPlanned { plan_ranks, numbered, .. } if !numbered.is_empty() => {
                return format!(
                    "start {plan_ranks} ranks; if these variables were set for a shell or a pod that is one task, unset them, and the \
                     binary starts its own ranks: `unset {}`",
                    numbered.join(" ")
                );
            }
            LaunchError::WorldNotPlanned { plan_ranks, .. } => {
                return format!("start {plan_ranks} ranks, or build the binary from a spec whose mesh has this many");
            }
            LaunchError::JobUnnamed => "set ZERO_JOB on all ranks to one word that no other run on this host uses",
            LaunchError::SeveralHosts { .. } => {
                "shared memory joins the ranks of one host: start all ranks on one host, or build the binary from a spec with \
                 `transport: Cluster`, or `Nccl` for GPUs, and as many `mesh.nodes` as there are hosts"
            }
            LaunchError::RankKilled { signal, .. } => signal_help(*signal),
            LaunchError::RankFailed { code: PANIC, .. } => "it panicked; its own message is above",
            LaunchError::RankFailed { .. } => "its own message, if it had one, is above",
            LaunchError::Spawn { .. } => "check `ulimit -u`, and whether the binary is still in its place",
            LaunchError::LauncherGone { .. } => "start the run again; the launcher must live as long as its ranks",
            LaunchError::RankLost { .. } => {
                "its own output or its launcher says why; if neither does, see `dmesg` for the out-of-memory killer"
            }
            LaunchError::JobTaken { .. } => "end the other run, or give this one another ZERO_JOB on all its ranks",
            LaunchError::RanksMissing { .. } => {
                "check that they were started on this host and not in separate containers; ZERO_JOIN_TIMEOUT_S sets \
                 how long to wait, in seconds"
            }
            LaunchError::HostMissing { .. } => {
                "check that rank 0 was started on this host and with the same job; ZERO_JOIN_TIMEOUT_S sets how long \
                 to wait, in seconds"
            }
            LaunchError::HostLost => "rank 0's own message says why",
            LaunchError::HostSilent { .. } => "check whether rank 0 is stopped or swapping",
            LaunchError::PlanDiffers { .. } => "start the same binary with the same arguments and data on all ranks",
            LaunchError::WorldDiffers { .. } => "start all ranks with the same world size",
            LaunchError::DuplicateRank { .. } => {
                "give each rank its own number; two runs with the same ZERO_JOB would look like this too"
            }
            LaunchError::Stranger { .. } => "give this run another ZERO_JOB on all its ranks",
            LaunchError::Unseen => {
                "ranks of a host watch one another by process id: start them in one container, or let their containers share \
                 process ids (`--pid=host`, or `shareProcessNamespace` in a pod)"
            }
            LaunchError::LostAtStart { .. } => "its own message, if it had one, says why",
            LaunchError::Failed(_) => "correct the errors that these ranks report",
            LaunchError::NoProgress { .. } => {
                "the errors above will recur, or checkpoints are too far apart: lower --every"
            }
            LaunchError::CutShort { .. } => {
                "the launcher's own output shows what it has lost; start the job again with --resume, unless a restart follows"
            }
            LaunchError::NoRestarts { .. } => {
                "start it by `cargo zero run`, or on several hosts by `cargo zero launch SPEC --hosts a,b`; under any other \
                 launcher omit --restarts, and start the job again with --resume"
            }
            LaunchError::OutOfGrace { .. } => {
                "give it longer with --grace, or write checkpoints more often with --every"
            }
            LaunchError::Dismissed { .. } => "correct the error that the other rank reports",
            LaunchError::Device(error) => error.help(),
            LaunchError::Mpi(failure) => &failure.help,
            LaunchError::Misplaced { each, .. } => {
                return format!(
                    "have the launcher fill one host after another: `mpirun --map-by slot` with {each} slots a host, `mpiexec \
                     -ppn {each}`, `srun --ntasks-per-node {each} --distribution block`"
                );
            }
            LaunchError::NoHosts { .. } => {
                "start it by `cargo zero launch SPEC --hosts a,b`, or by mpirun, mpiexec or srun on all hosts; on one host, build \
                 it with `transport: Shm`, or `Peer` for GPUs"
            }
        };
        help.to_owned()
    }

    /// The exit code of a rank that ends with this error. It shows whether a restart may help.
    pub fn exit_code(&self) -> u8 {
        match self {
            LaunchError::RankLost { .. }
            | LaunchError::LostAtStart { .. }
            | LaunchError::RanksMissing { .. }
            | LaunchError::HostMissing { .. }
            | LaunchError::HostLost
            | LaunchError::HostSilent { .. } => EXIT_AGAIN,
            LaunchError::Mpi(failure) if failure.code == HOSTS_MISSING => EXIT_AGAIN,
            _ => EXIT_REPORTED,
        }
    }

    /// Whether rank 0 or a launcher prints a better message for the same error, so that this rank should print nothing.
    pub fn is_echo(&self) -> bool {
        matches!(self, LaunchError::Dismissed { .. } | LaunchError::HostLost)
    }

    /// The whole error as text for a person.
    pub fn report(&self) -> String {
        if let LaunchError::Failed(findings) = self {
            // These are complete reports already, each with its own code.
            return findings.to_string();
        }
        format!("error[{}]: {self}\n  = help: {}", self.code(), self.help())
    }
}

/// The code for hosts that did not arrive in time; [`LaunchError::RanksMissing`] has another one for ranks.
const HOSTS_MISSING: &str = "Z0457";

/// Exit code of a Rust process whose main thread panicked.
pub(super) const PANIC: i32 = 101;

fn signal_help(signal: i32) -> &'static str {
    use signal_hook::consts::{SIGABRT, SIGBUS, SIGILL, SIGSEGV};
    match signal {
        signal_hook::consts::SIGKILL => {
            "if nobody sent it, the kernel's out-of-memory killer did (see `dmesg`): free memory, or build from a spec \
             that needs less: a higher stage or a smaller batch"
        }
        SIGILL => "the binary may be built for another processor: build it on this host or without `target-cpu`",
        SIGSEGV | SIGBUS | SIGABRT => "this is a bug in the binary or a library; its core dump says where",
        _ => "somebody or something sent it this signal",
    }
}

pub(super) fn ranks<N: ToString>(ranks: &[N]) -> String {
    let list: Vec<String> = ranks.iter().map(N::to_string).collect();
    format!("rank{} {}", if list.len() == 1 { "" } else { "s" }, list.join(", "))
}

/// The ranks of a host: their number or, if other ranks come before them, their range.
pub(super) fn those(here: &Range<usize>) -> String {
    match here.start {
        0 => here.len().to_string(),
        first => format!("ranks {first} to {}", here.end - 1),
    }
}

/// The words for a run whose newest checkpoint was not looked up.
const ITS_NEWEST: &str = "its work since the newest checkpoint is lost";

fn newest_words(newest: Option<u64>) -> String {
    newest.map_or("there is no checkpoint".to_owned(), |step| format!("the newest checkpoint is from step {step}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_that_are_missing_are_told_among_those_of_their_host() {
        let words = |here| LaunchError::RanksMissing { missing: vec![3], here, seconds: 5 }.to_string();
        assert_eq!(words(0..4), "after 5 s, rank 3 of 4 never arrived");
        assert_eq!(words(2..4), "after 5 s, rank 3 of ranks 2 to 3 never arrived");
    }
}
