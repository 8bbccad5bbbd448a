//! Environment: derives a process's role from environment variables. Knows the names that launchers use, and rejects
//! contradictions. Never touches the process or reads the environment itself: a lookup function returns the variables.

use std::ops::Range;
use std::time::Duration;

use super::error::LaunchError;

/// The name of the job, equal on all its ranks. Set by our launcher, or by a person if no launcher gives the job a
/// name.
pub(super) const JOB: &str = "ZERO_JOB";
/// Process id of our own launcher, which sets it.
pub(super) const LAUNCHER_PID: &str = "ZERO_LAUNCHER_PID";
/// The variable with the number of restarts of all ranks so far. Our own launcher sets it from the first restart on; a
/// caller of [`super::launch_by`] also sets it for the first start, to 0.
pub const RESTART: &str = "ZERO_RESTART";
const JOIN_TIMEOUT_S: &str = "ZERO_JOIN_TIMEOUT_S";
const JOIN_TIMEOUT_S_DEFAULT: usize = 60;
/// A day: a job that has not started by then should be restarted.
const JOIN_TIMEOUT_S_MAX: usize = 24 * 60 * 60;

/// The most ranks that meet on a host: Linux gives out no more process ids unless it is told to.
const RANKS_MAX: usize = 1 << 15;

/// The role of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Role {
    /// Started alone: it starts the ranks and waits for their end.
    Launcher,
    /// Started as one of several ranks.
    Rank(JobPlace),
}

/// The place of a rank among its peers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobPlace {
    /// Global rank, `0..world`.
    pub rank: usize,
    /// Number of ranks.
    pub world: usize,
    /// Rank among the ranks of this host.
    pub local_rank: usize,
    /// Whether all ranks are on this host, as far as their launcher says.
    pub one_host: bool,
    /// Number of ranks on this host, if their launcher says so.
    pub local_world: Option<usize>,
    /// The ranks that meet on this host: all, unless [`JobPlace::among`] says otherwise.
    pub here: Range<usize>,
    /// Equal on all ranks of a job, and different from any other job on this host.
    pub job: String,
    /// For how long a rank waits for its peers at start.
    pub join_timeout: Duration,
    /// The process id of our own launcher. None under another launcher.
    pub launcher_pid: Option<u32>,
}

impl JobPlace {
    /// The place of `rank` among `world` ranks of this host, with the default time to wait and without a launcher.
    pub fn on_this_host(rank: usize, world: usize, job: &str) -> Self {
        let join_timeout = Duration::from_secs(JOIN_TIMEOUT_S_DEFAULT as u64);
        let job = job.to_owned();
        let here = 0..world;
        JobPlace {
            rank,
            world,
            local_rank: rank,
            one_host: true,
            local_world: None,
            here,
            job,
            join_timeout,
            launcher_pid: None,
        }
    }

    /// This place in a plan that puts ranks `first..end` on one host and the other ranks elsewhere.
    ///
    /// # Errors
    /// Z0453 if the launcher has put other ranks on this host, or numbers them differently.
    pub fn among(&self, (first, end): (usize, usize)) -> Result<Self, LaunchError> {
        let (rank, local, expected, each) = (self.rank, self.local_rank, self.rank - first, end - first);
        let found = self.local_world.unwrap_or(each);
        if each < self.world && (local, found) != (expected, each) {
            return Err(LaunchError::Misplaced { rank, local, found, expected, each });
        }
        Ok(Self { here: first..end, ..self.clone() })
    }

    /// The place of a rank that will not start: it meets the ranks that its launcher put on this host or, if those are
    /// unknown, ranks `first..end` of a plan.
    pub fn in_company(self, (first, end): (usize, usize)) -> Self {
        let found = self.local_world.and_then(|count| {
            let first = self.rank.checked_sub(self.local_rank)?;
            Some(first..first + count)
        });
        Self { here: found.unwrap_or(first..end), ..self }
    }

    /// Whether this is the rank that the other ranks of this host connect to.
    pub(super) fn is_host(&self) -> bool {
        self.rank == self.here.start
    }
}

/// How a launcher says whether all its ranks are on one host.
enum Spread {
    /// By the number of ranks on this host: if it equals the number of all ranks, they are on one host.
    LocalWorld(&'static str),
    /// By the number of hosts, and by a list of the ranks of each, as Slurm does.
    Hosts(&'static str),
}

/// The variables by which a launcher assigns a process its place.
struct LauncherVariables {
    rank: &'static str,
    world: &'static str,
    local_rank: &'static str,
    spread: Spread,
}

/// The variables of torchrun, of our own launcher, and of most scripts.
pub(super) const PLAIN_RANK: &str = "RANK";
pub(super) const PLAIN_WORLD: &str = "WORLD_SIZE";
pub(super) const PLAIN_LOCAL_RANK: &str = "LOCAL_RANK";
pub(super) const PLAIN_LOCAL_WORLD: &str = "LOCAL_WORLD_SIZE";
const PLAIN: LauncherVariables = LauncherVariables {
    rank: PLAIN_RANK,
    world: PLAIN_WORLD,
    local_rank: PLAIN_LOCAL_RANK,
    spread: Spread::LocalWorld(PLAIN_LOCAL_WORLD),
};

/// Other launchers, innermost first: `mpirun` starts its helpers with `srun`, so Slurm's variables may be those of a
/// helper.
const FOREIGN: [LauncherVariables; 3] = [
    OPEN_MPI,
    LauncherVariables {
        rank: PMI_RANK,
        world: "PMI_SIZE",
        local_rank: PMI_LOCAL_RANK,
        spread: Spread::LocalWorld("MPI_LOCALNRANKS"),
    },
    LauncherVariables {
        rank: SLURM_RANK,
        world: "SLURM_NTASKS",
        local_rank: "SLURM_LOCALID",
        spread: Spread::Hosts("SLURM_STEP_NUM_NODES"),
    },
];
const OPEN_MPI: LauncherVariables = LauncherVariables {
    rank: "OMPI_COMM_WORLD_RANK",
    world: "OMPI_COMM_WORLD_SIZE",
    local_rank: "OMPI_COMM_WORLD_LOCAL_RANK",
    spread: Spread::LocalWorld("OMPI_COMM_WORLD_LOCAL_SIZE"),
};
/// PRRTE's own launcher. It numbers ranks, but sets their number only if told to set Open MPI's variables. Its numbering
/// is used only if there is no other, because other launchers set this variable in addition to their own.
const PRRTE: LauncherVariables = LauncherVariables { rank: PMIX_RANK, ..OPEN_MPI };
pub(super) const PMIX_RANK: &str = "PMIX_RANK";
const PMI_RANK: &str = "PMI_RANK";
const PMI_LOCAL_RANK: &str = "MPI_LOCALRANKID";
const SLURM_RANK: &str = "SLURM_PROCID";
const SLURM_NODE: &str = "SLURM_NODEID";
const SLURM_RANKS_OF_NODES: &str = "SLURM_STEP_TASKS_PER_NODE";
const SLURM_STEP: &str = "SLURM_STEP_ID";
/// Slurm counts steps of ranks from 0. Its batch scripts, shells and helpers have ids from here on.
const SLURM_STEP_RESERVED: u64 = 0xffff_fff0;

/// Launchers' variables that are equal on all ranks of a job. Together they name the job, because each alone may be the
/// same for two jobs: torchrun's id is `none` unless given, and an allocation of Slurm runs many steps.
const JOB_PARTS: [&str; 8] = [
    "TORCHELASTIC_RUN_ID",
    "TORCHELASTIC_RESTART_COUNT",
    "MASTER_ADDR",
    "MASTER_PORT",
    "PMIX_NAMESPACE",
    "OMPI_MCA_ess_base_jobid",
    "SLURM_JOB_ID",
    SLURM_STEP,
];

/// The lookup name of the parent process. It names the job if ranks have only RANK and WORLD_SIZE. No variable can have
/// this name.
pub(super) const PARENT: &str = "=parent";

/// The role of a process with these variables. `lookup` returns a variable's value, if it is set.
///
/// # Errors
/// Z0301 to Z0306, and Z0315: see [`LaunchError`].
pub fn role_from(plan_ranks: usize, lookup: impl Fn(&str) -> Option<String>) -> Result<Role, LaunchError> {
    let variables = Variables { lookup };
    let launcher_pid = variables.number(LAUNCHER_PID)?;
    let Some((seat, size_name)) = variables.seat(launcher_pid.is_some())? else {
        return Ok(Role::Launcher);
    };
    if seat.world != plan_ranks {
        let numbered = if seat.world == 1 { variables.numbering() } else { Vec::new() };
        return Err(LaunchError::WorldNotPlanned { size_name, world: seat.world, plan_ranks, numbered });
    }
    let join_timeout = variables.join_timeout()?;
    Ok(Role::Rank(JobPlace {
        rank: seat.rank,
        world: seat.world,
        local_rank: seat.local_rank,
        one_host: seat.one_host,
        local_world: seat.local_world,
        here: 0..seat.world,
        job: variables.job()?,
        join_timeout,
        launcher_pid: launcher_pid.map(|pid| pid as u32),
    }))
}

/// The place of a process, as far as these variables show it, even if they contradict one another. Ranks that cannot
/// start use it to find one another, so that an error is reported once. None if no launcher has numbered the process, or if it
/// says that there are more ranks than any host has.
pub fn company_from(plan_ranks: usize, lookup: impl Fn(&str) -> Option<String>) -> Option<JobPlace> {
    let variables = Variables { lookup };
    let number = |name| variables.number(name).ok().flatten();
    let mut dialects = [&PLAIN].into_iter().chain(variables.credible()).chain([&PRRTE]);
    let (rank, dialect) = dialects.find_map(|dialect| Some((number(dialect.rank)?, dialect)))?;
    let world = number(dialect.world).unwrap_or(plan_ranks);
    let launcher_pid = number(LAUNCHER_PID).map(|pid| pid as u32);
    let mut place = JobPlace { launcher_pid, ..JobPlace::on_this_host(rank, world, &variables.job().ok()?) };
    place.join_timeout = variables.join_timeout().unwrap_or(place.join_timeout);
    if let Some(local_rank) = number(dialect.local_rank) {
        place.local_rank = local_rank;
        place.local_world = match dialect.spread {
            Spread::LocalWorld(name) => number(name),
            Spread::Hosts(_) => variables.ranks_of_node(),
        };
    }
    let most = world.max(place.local_world.unwrap_or(0));
    (rank < world && most <= RANKS_MAX).then_some(place)
}

/// The place that one launcher assigns to this process.
#[derive(Clone, Copy)]
struct Seat {
    rank: usize,
    world: usize,
    local_rank: usize,
    one_host: bool,
    local_world: Option<usize>,
}

struct Variables<F> {
    lookup: F,
}

impl<F: Fn(&str) -> Option<String>> Variables<F> {
    fn number(&self, name: &'static str) -> Result<Option<usize>, LaunchError> {
        let Some(value) = (self.lookup)(name) else {
            return Ok(None);
        };
        match value.trim().parse() {
            Ok(number) => Ok(Some(number)),
            Err(_) => Err(LaunchError::NotANumber { name, value }),
        }
    }

    /// The seat, and the name of the variable with the number of ranks. None if no launcher has assigned one.
    fn seat(&self, ours: bool) -> Result<Option<(Seat, &'static str)>, LaunchError> {
        let plain = self.seat_in(&PLAIN)?;
        // These launchers may run inside another one, whose variables then count other processes.
        let nested = ours || (self.lookup)("TORCHELASTIC_RUN_ID").is_some();
        if let (Some(seat), true) = (&plain, nested) {
            return Ok(Some((*seat, PLAIN.world)));
        }
        let mut seats = self.credible().map(|dialect| self.seat_in(dialect).map(|seat| Some((seat?, dialect))));
        let foreign = seats.find_map(Result::transpose).transpose()?;
        match (plain, foreign) {
            (Some(plain), Some((seat, dialect))) if (plain.rank, plain.world) != (seat.rank, seat.world) => {
                Err(LaunchError::LaunchersDisagree {
                    first: format!("{} = {}, {} = {}", PLAIN.rank, plain.rank, PLAIN.world, plain.world),
                    second: format!("{} = {}, {} = {}", dialect.rank, seat.rank, dialect.world, seat.world),
                })
            }
            (_, Some((seat, dialect))) => Ok(Some((seat, dialect.world))),
            (Some(plain), None) => Ok(Some((plain, PLAIN.world))),
            (None, None) => Ok(self.seat_in(&PRRTE)?.map(|seat| (seat, PRRTE.world))),
        }
    }

    /// Launchers whose variables, if set, describe ranks.
    fn credible(&self) -> impl Iterator<Item = &'static LauncherVariables> {
        FOREIGN.iter().filter(|dialect| match dialect.rank {
            SLURM_RANK => self.in_slurm_step(),
            PMI_RANK => !self.pmi_is_of_slurm(),
            _ => true,
        })
    }

    /// The variables that make this process a rank. Without them, it starts ranks of its own.
    fn numbering(&self) -> Vec<&'static str> {
        let launchers = [&PLAIN].into_iter().chain(&FOREIGN).chain([&PRRTE]);
        let names = launchers.flat_map(|launcher| [launcher.rank, launcher.world, launcher.local_rank]);
        let mut set: Vec<_> = names.filter(|name| (self.lookup)(name).is_some()).collect();
        set.sort_unstable();
        set.dedup();
        set
    }

    /// Whether srun has set the variables of MPICH's launcher, as with --mpi=pmi2. They then do not describe hosts; Slurm's
    /// own variables do.
    fn pmi_is_of_slurm(&self) -> bool {
        let value = |name| (self.lookup)(name);
        self.in_slurm_step() && value(PMI_LOCAL_RANK).is_none() && value(PMI_RANK) == value(SLURM_RANK)
    }

    fn join_timeout(&self) -> Result<Duration, LaunchError> {
        let seconds = self.number(JOIN_TIMEOUT_S)?.unwrap_or(JOIN_TIMEOUT_S_DEFAULT);
        if (1..=JOIN_TIMEOUT_S_MAX).contains(&seconds) {
            return Ok(Duration::from_secs(seconds as u64));
        }
        Err(LaunchError::TimeoutOutOfRange { name: JOIN_TIMEOUT_S, value: seconds, max: JOIN_TIMEOUT_S_MAX })
    }

    fn seat_in(&self, dialect: &LauncherVariables) -> Result<Option<Seat>, LaunchError> {
        let local_rank = self.number(dialect.local_rank)?;
        let (rank, world) = match (self.number(dialect.rank)?, self.number(dialect.world)?) {
            (Some(rank), Some(world)) => (rank, world),
            (None, None) if local_rank.is_none() => return Ok(None),
            (None, None) => return Err(LaunchError::incomplete(dialect.local_rank, dialect.rank)),
            (Some(_), None) => return Err(LaunchError::incomplete(dialect.rank, dialect.world)),
            (None, Some(_)) => return Err(LaunchError::incomplete(dialect.world, dialect.rank)),
        };
        within(dialect.rank, rank, dialect.world, world)?;
        let local_rank = local_rank.unwrap_or(rank);
        let (one_host, local_world) = match dialect.spread {
            Spread::Hosts(name) => (self.number(name)?.is_none_or(|hosts| hosts == 1), self.ranks_of_node()),
            Spread::LocalWorld(name) => match self.number(name)? {
                Some(local_world) => {
                    within(dialect.local_rank, local_rank, name, local_world)?;
                    (local_world == world, Some(local_world))
                }
                None => (true, None),
            },
        };
        Ok(Some(Seat { rank, world, local_rank, one_host, local_world }))
    }

    /// The number of ranks on this host, if Slurm says it: `2(x3),1` are three hosts of two ranks, and one of one.
    fn ranks_of_node(&self) -> Option<usize> {
        let node = self.number(SLURM_NODE).ok()??;
        let list = (self.lookup)(SLURM_RANKS_OF_NODES)?;
        let mut end = 0;
        list.split(',').find_map(|part| {
            let (ranks, hosts) = part.trim_end_matches(')').split_once("(x").unwrap_or((part, "1"));
            end += hosts.parse::<usize>().ok()?;
            if node < end { ranks.parse().ok() } else { None }
        })
    }

    /// Whether Slurm's variables are those of a rank. Slurm numbers a batch script, too, which would otherwise take
    /// itself for rank 0 and wait for the others.
    fn in_slurm_step(&self) -> bool {
        let step = (self.lookup)(SLURM_STEP).and_then(|step| step.parse::<u64>().ok());
        step.is_some_and(|step| step < SLURM_STEP_RESERVED)
    }

    fn job(&self) -> Result<String, LaunchError> {
        if let Some(job) = (self.lookup)(JOB) {
            return Ok(job);
        }
        let part = |name: &&str| Some(format!("{name}={}", (self.lookup)(name)?));
        let parts: Vec<String> = JOB_PARTS.iter().filter_map(part).collect();
        match (self.lookup)(PARENT) {
            Some(parent) if parts.is_empty() => Ok(parent),
            None if parts.is_empty() => Err(LaunchError::JobUnnamed),
            _ => Ok(parts.join(" ")),
        }
    }
}

fn within(rank_name: &'static str, rank: usize, size_name: &'static str, size: usize) -> Result<(), LaunchError> {
    if rank < size { Ok(()) } else { Err(LaunchError::RankOutOfRange { rank_name, rank, size_name, size }) }
}

#[cfg(test)]
#[path = "environment_tests.rs"]
mod tests;
