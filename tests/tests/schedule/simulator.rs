//! Simulator: executes the ops of all ranks on symbols: which version of a parameter lies where, which gradients were
//! added up. It knows what each op does in a run, and that ranks hear of one another only through counts that grow; it
//! knows no rule of schedules. Never measures, and shares nothing with the check.
//!
//! Ranks run at different paces. Where an op reads what a peer may not have written yet, or has overwritten, some pace
//! shows it: as a wrong symbol. `execute` has the ops.

mod execute;

use zero_plan::{Kind, Op, Plan};

use crate::spans::Spans;

/// Which of the ranks that can go on does so.
#[derive(Clone, Copy, Debug)]
pub enum Pace {
    /// The first of them: the last rank lags as far behind as it can.
    FirstAhead,
    /// The last of them.
    LastAhead,
    /// The one that has come least far.
    Together,
    /// Any of them.
    Random(u64),
}

impl Pace {
    pub const ALL: [Self; 6] =
        [Self::FirstAhead, Self::LastAhead, Self::Together, Self::Random(1), Self::Random(2), Self::Random(3)];

    fn pick(&mut self, movable: &[usize], ranks: &[Rank]) -> usize {
        match self {
            Self::FirstAhead => movable[0],
            Self::LastAhead => movable[movable.len() - 1],
            Self::Together => *movable.iter().min_by_key(|&&rank| ranks[rank].next).expect("some rank can go on"),
            Self::Random(state) => {
                // Knuth's linear congruential generator; its high bits are the random ones.
                *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                movable[(*state >> 33) as usize % movable.len()]
            }
        }
    }
}

/// The forward or backward of a unit, as a mark on what it wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Mark {
    pass: usize,
    micro_batch: usize,
    unit: usize,
}

/// One gradient in a sum: from which rank, and from the backward of which unit.
type Term = (usize, Mark);

struct Rank {
    /// Ops done, of all passes.
    next: usize,
    /// Waiting in an agreement.
    entered_now: bool,
    published: usize,
    offered: usize,
    settled: usize,
    entered: usize,
    /// For each unit, the publication that made its newest shards.
    versions: Vec<usize>,
    /// For each bucket, its newest offer.
    offers: Vec<usize>,
    /// Updates so far of each shard of each unit: of a replica, or of what this rank owns alone.
    parameters: Vec<Vec<usize>>,
    gathers: Vec<Gathering>,
    slots: Vec<usize>,
    gathered: Spans<(usize, usize)>,
    gradients: Spans<Vec<Term>>,
    reduced: Spans<Vec<Term>>,
    batch: Option<Mark>,
    activations: Spans<Mark>,
    activation_gradients: [Option<Mark>; 2],
    losses: Vec<Mark>,
    /// The last pass that the ranks have agreed in.
    agreed: Option<usize>,
}

/// What a transport knows of a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Gathering {
    Idle,
    Started,
    Whole,
}

struct World<'p> {
    plan: &'p Plan<'p>,
    ranks: Vec<Rank>,
    /// The training pass in progress, and the updates that were done before it.
    pass: usize,
    updates: usize,
}

type Done = Result<(), String>;

fn require(holds: bool, fault: impl FnOnce() -> String) -> Done {
    if holds { Ok(()) } else { Err(fault()) }
}

/// Runs a step, an evaluation and another step.
///
/// # Errors
/// What went wrong: a deadlock, a read of something else than was meant, a parameter that was not updated once a step
/// from the sum of the gradients of all ranks and micro-batches.
pub fn simulate(plan: &Plan, mut pace: Pace) -> Done {
    let passes = [(plan.step, 0), (plan.evaluation, 1), (plan.step, 1)];
    let program: Vec<(usize, usize, Op)> = passes
        .iter()
        .enumerate()
        .flat_map(|(pass, &(ops, updates))| ops.iter().map(move |&op| (pass, updates, op)))
        .collect();
    let ranks = (0..plan.config.ranks).map(|_| Rank::new(plan)).collect();
    let mut world = World { plan, ranks, pass: 0, updates: 0 };
    loop {
        let can_go_on = |&rank: &usize| {
            let op = program.get(world.ranks[rank].next);
            op.is_some_and(|&(_, _, op)| world.is_ready(rank, op))
        };
        let movable: Vec<usize> = (0..plan.config.ranks).filter(can_go_on).collect();
        if movable.is_empty() {
            break;
        }
        let rank = pace.pick(&movable, &world.ranks);
        let next = world.ranks[rank].next;
        let (pass, updates, op) = program[next];
        (world.pass, world.updates) = (pass, updates);
        world.execute(rank, op).map_err(|fault| format!("rank {rank}, op {next} ({op:?}), {pace:?}: {fault}"))?;
    }
    require(world.ranks.iter().all(|rank| rank.next == program.len()), || format!("deadlock, {pace:?}"))?;
    world.require_updated(2)
}

impl Rank {
    fn new(plan: &Plan) -> Self {
        let elements = |kind| plan.memory.region(kind).elements;
        Self {
            next: 0,
            entered_now: false,
            published: 0,
            offered: 0,
            settled: 0,
            entered: 0,
            versions: vec![0; plan.units.len()],
            offers: vec![0; plan.buckets.len()],
            parameters: vec![vec![0; plan.config.ranks]; plan.units.len()],
            gathers: vec![Gathering::Idle; plan.units.len()],
            slots: vec![0; plan.units.len()],
            gathered: Spans::new(elements(Kind::Gathered)),
            gradients: Spans::new(elements(Kind::Gradients)),
            reduced: Spans::new(elements(Kind::Reduced)),
            batch: None,
            activations: Spans::new(elements(Kind::Activations)),
            activation_gradients: [None; 2],
            losses: Vec::new(),
            agreed: None,
        }
    }
}

impl World<'_> {
    /// Whether no peer keeps `rank` from finishing `op`. An agreement also begins when it is not ready to end.
    fn is_ready(&self, rank: usize, op: Op) -> bool {
        let own = &self.ranks[rank];
        let peers = |reached: &dyn Fn(&Rank) -> bool| self.ranks.iter().all(reached);
        match op {
            Op::Wait { unit } => peers(&|peer| peer.published >= own.versions[unit]),
            Op::Claim { bucket } => {
                let offer = self.newest_offer(rank, bucket);
                peers(&|peer| peer.settled >= offer)
            }
            Op::Settle { bucket, .. } => peers(&|peer| peer.offered >= own.offers[bucket]),
            Op::Spread { bucket } => peers(&|peer| peer.settled >= own.offers[bucket]),
            Op::Agree => !own.entered_now || peers(&|peer| peer.entered >= own.entered),
            _ => true,
        }
    }

    /// The newest offer out of the slot of a bucket.
    fn newest_offer(&self, rank: usize, bucket: usize) -> usize {
        let buckets = &self.plan.buckets;
        let shares = |other: usize| {
            other == bucket || (buckets[bucket].slot.is_some() && buckets[bucket].slot == buckets[other].slot)
        };
        (0..buckets.len()).filter(|&other| shares(other)).map(|other| self.ranks[rank].offers[other]).max().unwrap_or(0)
    }

    /// That all ranks have all parameters, or their own shards of them, after so many updates.
    fn require_updated(&self, updates: usize) -> Done {
        for (rank, own) in self.ranks.iter().enumerate() {
            for unit in (0..self.plan.units.len()).filter(|&unit| self.shard(unit) > 0) {
                for shard in 0..self.ranks.len() {
                    let holds = shard == rank || !self.plan.config.shards_parameters();
                    let version = own.parameters[unit][shard];
                    require(!holds || version == updates, || format!("rank {rank} has {unit}[{shard}] at {version}"))?;
                }
            }
        }
        Ok(())
    }
}
