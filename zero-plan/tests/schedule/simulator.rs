//! Simulator: executes the ops of all ranks on symbols for versions of parameters, and for sums of gradients with their
//! order. It knows what each op does in a run, and that ranks learn about one another only through counts that grow; it
//! knows no rules of schedules. Never measures, and shares nothing with the check and the prover.
//!
//! Ranks run at different paces. If an op can read bytes that a peer has not written yet, or has overwritten, some pace
//! shows it as a wrong symbol. `wait` says how ranks wait for one another; `compute`, `parameters` and `gradients` say
//! what ops do.

mod compute;
mod gradients;
mod parameters;
mod trees;
mod wait;

use std::collections::HashMap;

use zero_plan::{Coordinates, Kind, Op, Parcel, Pass, Plan, Width};

use crate::spans::Spans;
use trees::{Tree, Trees};

/// The choice among the ranks that can continue.
#[derive(Clone, Copy, Debug)]
pub enum Pace {
    /// The first of them, so that the last rank lags as far behind as it can.
    FirstAhead,
    /// The last of them.
    LastAhead,
    /// The one that has made the least progress.
    Together,
    /// Any of them.
    Random(u64),
}

impl Pace {
    pub const ALL: [Self; 6] =
        [Self::FirstAhead, Self::LastAhead, Self::Together, Self::Random(1), Self::Random(2), Self::Random(3)];

    /// The ranks in the order in which they may continue.
    fn order(&mut self, ranks: &[Rank]) -> Vec<usize> {
        let mut order: Vec<usize> = (0..ranks.len()).collect();
        match self {
            Self::FirstAhead => {}
            Self::LastAhead => order.reverse(),
            Self::Together => order.sort_by_key(|&rank| ranks[rank].next),
            Self::Random(state) => {
                // Knuth's linear congruential generator; its high bits are the random ones.
                *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                order.rotate_left((*state >> 33) as usize % ranks.len());
            }
        }
        order
    }
}

/// The symbol of a stretch of activations, or of their gradients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Mark {
    what: What,
    pass: usize,
    data_rank: usize,
    micro_batch: usize,
    unit: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    /// The tokens that enter the model, and those that it is to predict.
    Tokens,
    Targets,
    /// The output of a unit, and the values that it saves for its backward.
    Output,
    Saved,
    /// Saved values that will be computed again, and must not be read.
    Scratch,
    /// The gradient of a unit's output.
    Gradient,
}

/// One shard of a unit's parameters: its owner, and the number of its updates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Shard {
    unit: usize,
    zero: usize,
    updates: usize,
}

/// The state of a unit's gather in a transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Gathering {
    Idle,
    Started,
    Whole,
}

struct Rank {
    at: Coordinates,
    data_rank: usize,
    /// The number of ops done, over all passes.
    next: usize,
    /// Whether the rank is inside of an op that peers wait for.
    is_inside: bool,
    counts: wait::Counts,
    /// Updates so far of each shard of each unit that it holds: all shards of a replica, or only the one that it owns.
    parameters: Vec<Vec<usize>>,
    gathers: Vec<Gathering>,
    slots: Vec<usize>,
    gathered: Spans<Shard>,
    gradients: Spans<Tree>,
    partial: Spans<Tree>,
    reduced: Spans<Tree>,
    activations: Spans<Mark>,
    recomputed: Spans<Mark>,
    outgoing: Spans<Mark>,
    activation_gradients: [Option<Mark>; 2],
    losses: Vec<Mark>,
    /// The last pass in which the ranks have agreed.
    agreed: Option<usize>,
}

struct World<'p> {
    plan: &'p Plan<'p>,
    ranks: Vec<Rank>,
    trees: Trees,
    /// The pass that the op belongs to, and the updates that were done before it.
    pass: usize,
    updates: usize,
    /// The op that each group does together, as the first rank of the group to get there says.
    together: HashMap<wait::Together, Op>,
}

type Done = Result<(), String>;

fn require(is_kept: bool, fault: impl FnOnce() -> String) -> Done {
    if is_kept { Ok(()) } else { Err(fault()) }
}

/// Runs a step, an evaluation and another step.
///
/// # Errors
/// What went wrong: a deadlock, a read of the wrong symbol, or a parameter that was not updated once a step from the
/// sum of the gradients of all ranks and micro-batches, added in the order of the plan.
pub fn simulate(plan: &Plan, pace: Pace) -> Done {
    let of = |pass| (0..plan.config.mesh.ranks()).map(|rank| plan.of_rank(rank).ops(pass)).collect::<Vec<_>>();
    simulate_ranks(plan, &of(Pass::Train), &of(Pass::Evaluate), pace)
}

/// The same with a step and an evaluation for each rank.
pub fn simulate_ranks(plan: &Plan, steps: &[&[Op]], evaluations: &[&[Op]], mut pace: Pace) -> Done {
    let passes = [(steps, 0), (evaluations, 1), (steps, 1)];
    let program = |rank: usize| -> Vec<(usize, usize, Op)> {
        let passes = passes.iter().enumerate();
        passes.flat_map(|(pass, &(ops, updates))| ops[rank].iter().map(move |&op| (pass, updates, op))).collect()
    };
    let programs: Vec<_> = (0..plan.config.mesh.ranks()).map(program).collect();
    let ranks = (0..programs.len()).map(|rank| Rank::new(plan, rank)).collect();
    let mut world = World { plan, ranks, trees: Trees::default(), pass: 0, updates: 0, together: HashMap::new() };
    loop {
        let can_go_on = |&rank: &usize| {
            let op = programs[rank].get(world.ranks[rank].next);
            op.is_some_and(|&(_, _, op)| world.is_ready(rank, op))
        };
        let Some(rank) = pace.order(&world.ranks).into_iter().find(can_go_on) else { break };
        let next = world.ranks[rank].next;
        let (pass, updates, op) = programs[rank][next];
        (world.pass, world.updates) = (pass, updates);
        world.go_on(rank, op).map_err(|fault| format!("rank {rank}, op {next} ({op:?}), {pace:?}: {fault}"))?;
    }
    let is_through = world.ranks.iter().zip(&programs).all(|(rank, program)| rank.next == program.len());
    require(is_through, || format!("deadlock, {pace:?}"))?;
    world.require_updated(2)
}

/// The size of a region: in elements, or in bytes if it has numbers of several widths.
fn room(plan: &Plan, rank: usize, kind: Kind) -> usize {
    plan.of_rank(rank).memory.region(kind).bytes / kind.width(&plan.config).map_or(1, Width::bytes)
}

impl Rank {
    fn new(plan: &Plan, rank: usize) -> Self {
        let room = |kind| room(plan, rank, kind);
        let at = plan.config.mesh.coordinates(rank);
        Self {
            at,
            data_rank: at.data_rank(&plan.config.mesh),
            next: 0,
            is_inside: false,
            counts: wait::Counts::new(plan),
            parameters: vec![vec![0; plan.config.mesh.zero]; plan.units.len()],
            gathers: vec![Gathering::Idle; plan.units.len()],
            slots: vec![0; plan.units.len()],
            gathered: Spans::new(room(Kind::Gathered)),
            gradients: Spans::new(room(Kind::Gradients)),
            partial: Spans::new(room(Kind::Partial)),
            reduced: Spans::new(room(Kind::Reduced)),
            activations: Spans::new(room(Kind::Activations)),
            recomputed: Spans::new(room(Kind::Recomputed)),
            outgoing: Spans::new(room(Kind::Outgoing)),
            activation_gradients: [None; 2],
            losses: Vec::new(),
            agreed: None,
        }
    }
}

impl World<'_> {
    /// Enters an op that peers wait for, or does the op.
    fn go_on(&mut self, rank: usize, op: Op) -> Done {
        if !self.ranks[rank].is_inside {
            self.ranks[rank].is_inside = true;
            self.enter(rank, op)?;
            if !self.is_ready(rank, op) {
                return Ok(());
            }
        }
        self.execute(rank, op)?;
        let own = &mut self.ranks[rank];
        own.is_inside = false;
        own.next += 1;
        Ok(())
    }

    fn execute(&mut self, rank: usize, op: Op) -> Done {
        match op {
            Op::Gather { unit, slot } => self.gather(rank, unit, slot),
            Op::Wait { unit } => self.wait(rank, unit),
            Op::Convert { unit, slot } => self.convert(rank, unit, slot),
            Op::Release { unit } => self.release(rank, unit),
            Op::Receive { parcel, unit, micro_batch, slot } => match parcel {
                Parcel::Activations => self.receive_activations(rank, unit, micro_batch, slot),
                Parcel::Gradients => self.receive_gradient(rank, unit, micro_batch),
                Parcel::TiedGradients => self.receive_tied_gradients(rank, unit),
                Parcel::TiedParameters => self.receive_tied_parameters(rank, unit),
            },
            Op::Clear { .. } | Op::Claim { .. } => Ok(()),
            Op::Send { parcel, unit, micro_batch } => self.send(rank, parcel, unit, micro_batch),
            Op::Forward { unit, micro_batch, slot } => self.forward(rank, unit, micro_batch, slot),
            Op::Recompute { unit, micro_batch, slot } => self.recompute(rank, unit, micro_batch, slot),
            Op::Backward { unit, micro_batch, slot } => self.backward(rank, unit, micro_batch, slot),
            Op::Reduce { .. } => Ok(()),
            Op::Subtotal { .. } => unreachable!("all ranks of these plans are on one host"),
            Op::Settle { bucket, round } => self.settle(rank, bucket, round),
            Op::Combine { bucket, round } => self.combine(rank, bucket, round),
            Op::Fold { unit } => self.fold(rank, unit),
            Op::Spread { bucket, axis } => self.spread(rank, bucket, axis),
            Op::Agree => self.agree(rank),
            Op::Momentum { unit } => self.momentum(rank, unit),
            Op::Update { unit, .. } => self.update(rank, unit),
            Op::Fetch { .. }
            | Op::Store { .. }
            | Op::FetchSums { .. }
            | Op::StoreSums { .. }
            | Op::FetchShard { .. }
            | Op::StoreActivations { .. }
            | Op::FetchActivations { .. }
            | Op::Offer { .. }
            | Op::StoreOffered { .. } => {
                unreachable!("all states of these plans are on the device, and not published")
            }
        }
    }

    /// The rank on another pipeline stage that has the same places along `zero` and `replica`.
    fn at_pipeline_stage(&self, rank: usize, pipeline: usize) -> usize {
        self.plan.config.mesh.rank(Coordinates { pipeline, ..self.ranks[rank].at })
    }

    /// The ranks that hold the other shards of the same replica, itself included.
    fn zero_peers(&self, rank: usize) -> Vec<usize> {
        let mesh = &self.plan.config.mesh;
        (0..mesh.zero).map(|zero| mesh.rank(Coordinates { zero, ..self.ranks[rank].at })).collect()
    }

    /// The ranks that hold the same shards, itself included.
    fn replica_peers(&self, rank: usize) -> Vec<usize> {
        let mesh = &self.plan.config.mesh;
        (0..mesh.replica).map(|replica| mesh.rank(Coordinates { replica, ..self.ranks[rank].at })).collect()
    }

    /// The other end of a parcel that a rank sends or receives for a unit.
    fn other_end(&self, rank: usize, parcel: Parcel, unit: usize, is_sender: bool) -> usize {
        let pipeline = |unit: usize| self.plan.placements[unit].pipeline_stage;
        let other = match (parcel, is_sender) {
            (Parcel::Activations, true) | (Parcel::Gradients, false) => unit + 1,
            (Parcel::Activations, false) | (Parcel::Gradients, true) => unit - 1,
            (Parcel::TiedGradients, true) | (Parcel::TiedParameters, false) => self.plan.units[unit].source,
            (Parcel::TiedGradients, false) | (Parcel::TiedParameters, true) => self.plan.units.len() - 1,
        };
        self.at_pipeline_stage(rank, pipeline(other))
    }

    /// Requires that all ranks have all parameters, or their own shards of them, after this many updates.
    fn require_updated(&self, updates: usize) -> Done {
        for (rank, own) in self.ranks.iter().enumerate() {
            let is_held = |&unit: &usize| {
                let at = &self.plan.placements[unit];
                at.holds && at.pipeline_stage == own.at.pipeline
            };
            for unit in (0..self.plan.units.len()).filter(is_held) {
                for (shard, &version) in own.parameters[unit].iter().enumerate() {
                    let holds = shard == own.at.zero || !self.plan.config.shards_parameters();
                    require(!holds || version == updates, || format!("rank {rank} has {unit}[{shard}] at {version}"))?;
                }
            }
        }
        Ok(())
    }
}
