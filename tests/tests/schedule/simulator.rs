//! Simulator: executes the ops of all ranks on symbols: which version of a parameter lies where, which gradients were
//! added up. It knows what each op does in a run, and that ranks hear of one another only through counts that grow; it
//! knows no rule of schedules. Never measures, and shares nothing with the check.
//!
//! Ranks run at different paces. Where an op reads what a peer may not have written yet, or has overwritten, some pace
//! shows it: as a wrong symbol.

use zero_plan::{Gather, Kind, Op, Plan};

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

    fn execute(&mut self, rank: usize, op: Op) -> Done {
        match op {
            Op::Gather { unit, slot } => self.gather(rank, unit, slot),
            Op::Wait { unit } => self.wait(rank, unit)?,
            Op::Release { unit } => {
                self.ranks[rank].gathers[unit] = Gathering::Idle;
                self.clear_slot(rank, unit);
            }
            Op::Forward { unit, micro_batch } => self.forward(rank, unit, micro_batch)?,
            Op::Backward { unit, micro_batch } => self.backward(rank, unit, micro_batch)?,
            Op::Claim { .. } => {}
            Op::Reduce { bucket, .. } => {
                self.ranks[rank].offered += 1;
                self.ranks[rank].offers[bucket] = self.ranks[rank].offered;
            }
            Op::Settle { bucket, micro_batch } => self.settle(rank, bucket, micro_batch)?,
            Op::Spread { bucket } => self.spread(rank, bucket)?,
            Op::Agree if !self.ranks[rank].entered_now => {
                self.ranks[rank].entered_now = true;
                self.ranks[rank].entered += 1;
                return Ok(());
            }
            Op::Agree => self.agree(rank)?,
            Op::Update { unit } => self.update(rank, unit)?,
        }
        self.ranks[rank].next += 1;
        Ok(())
    }

    fn copies_into_slots(&self) -> bool {
        self.plan.config.shards_parameters() && self.plan.config.transport.gather() == Gather::Copied
    }

    fn shard(&self, unit: usize) -> usize {
        self.plan.placements[unit].padded / self.plan.config.ranks
    }

    /// A gather may write to its slot from its start on.
    fn gather(&mut self, rank: usize, unit: usize, slot: usize) {
        self.ranks[rank].gathers[unit] = Gathering::Started;
        self.ranks[rank].slots[unit] = slot;
        self.clear_slot(rank, unit);
    }

    fn clear_slot(&mut self, rank: usize, unit: usize) {
        let start = self.ranks[rank].slots[unit] * self.plan.memory.slot;
        self.ranks[rank].gathered.clear(start, self.plan.placements[unit].padded);
    }

    fn wait(&mut self, rank: usize, unit: usize) -> Done {
        let len = self.shard(unit);
        let gather = core::mem::replace(&mut self.ranks[rank].gathers[unit], Gathering::Whole);
        require(gather == Gathering::Started, || format!("there is no gather to wait for, but {gather:?}"))?;
        for owner in 0..self.ranks.len() {
            let version = self.ranks[owner].parameters[unit][owner];
            let own = &mut self.ranks[rank];
            if self.plan.config.shards_parameters() {
                if self.plan.config.transport.gather() == Gather::Copied {
                    let start = own.slots[unit] * self.plan.memory.slot + owner * len;
                    own.gathered.write(start, len, (unit, version))?;
                }
            } else {
                own.parameters[unit][owner] = version;
            }
        }
        Ok(())
    }

    /// That `rank` sees the newest version of a unit's parameters, all of them.
    fn require_parameters(&self, rank: usize, unit: usize) -> Done {
        let (own, len) = (&self.ranks[rank], self.shard(unit));
        if len == 0 {
            return Ok(());
        }
        let whole = own.gathers[unit] == Gathering::Whole || !self.plan.config.shards_parameters();
        require(whole, || format!("{unit} is not gathered, but {:?}", own.gathers[unit]))?;
        for owner in 0..self.ranks.len() {
            let version = if self.copies_into_slots() {
                *own.gathered.read(own.slots[unit] * self.plan.memory.slot + owner * len, len)?
            } else if self.plan.config.shards_parameters() {
                (unit, self.ranks[owner].parameters[unit][owner])
            } else {
                (unit, own.parameters[unit][owner])
            };
            require(version == (unit, self.updates), || format!("shard {owner} of {unit} is {version:?}"))?;
        }
        Ok(())
    }

    fn require_input(&self, rank: usize, mark: Mark) -> Done {
        let input = match mark.unit {
            0 => self.ranks[rank].batch,
            unit => {
                let (at, len) = (self.plan.placements[unit - 1].output, self.plan.units[unit - 1].output);
                Some(*self.ranks[rank].activations.read(at, len)?)
            }
        };
        let expected = Mark { unit: mark.unit.saturating_sub(1), ..mark };
        require(input == Some(expected), || format!("the input is {input:?}"))
    }

    fn forward(&mut self, rank: usize, unit: usize, micro_batch: usize) -> Done {
        let mark = Mark { pass: self.pass, micro_batch, unit };
        let (sizes, at) = (&self.plan.units[unit], &self.plan.placements[unit]);
        if unit == 0 {
            self.ranks[rank].batch = Some(mark);
        }
        self.require_parameters(rank, sizes.source)?;
        self.require_input(rank, mark)?;
        let own = &mut self.ranks[rank];
        own.activations.write(at.saved, sizes.saved, mark)?;
        own.activations.write(at.output, sizes.output, mark)?;
        if unit + 1 == self.plan.units.len() {
            own.losses.push(mark);
        }
        Ok(())
    }

    fn backward(&mut self, rank: usize, unit: usize, micro_batch: usize) -> Done {
        let mark = Mark { pass: self.pass, micro_batch, unit };
        let (sizes, at) = (&self.plan.units[unit], &self.plan.placements[unit]);
        self.require_parameters(rank, sizes.source)?;
        self.require_input(rank, mark)?;
        let own = &mut self.ranks[rank];
        if sizes.saved > 0 {
            let saved = own.activations.read(at.saved, sizes.saved)?;
            require(*saved == mark, || format!("saved by {saved:?}"))?;
        }
        if unit + 1 < self.plan.units.len() {
            let dy = own.activation_gradients[unit % 2];
            require(dy == Some(Mark { unit: unit + 1, ..mark }), || format!("the gradient of its output is {dy:?}"))?;
        }
        own.activation_gradients[(unit + 1) % 2] = Some(mark);
        self.add_gradients(rank, mark)
    }

    /// Of the units that share parameters, the first in backward sets the gradients and the others add to them.
    fn add_gradients(&mut self, rank: usize, mark: Mark) -> Done {
        let source = self.plan.units[mark.unit].source;
        let first = self.plan.units.iter().rposition(|unit| unit.source == source);
        for shard in 0..self.ranks.len() {
            let (at, len) = self.local_gradients(source, shard);
            let gradients = &mut self.ranks[rank].gradients;
            if len > 0 {
                let mut sum = if first == Some(mark.unit) { Vec::new() } else { gradients.read(at, len)?.clone() };
                sum.push((rank, mark));
                gradients.write(at, len, sum)?;
            }
        }
        Ok(())
    }

    /// Where the gradients of a shard of a unit lie before they are reduced, and how many there are.
    fn local_gradients(&self, unit: usize, shard: usize) -> (usize, usize) {
        let (at, len) = (&self.plan.placements[unit], self.shard(unit));
        let bucket = &self.plan.buckets[at.bucket];
        (bucket.staging + at.start - bucket.start + shard * len, len)
    }

    /// What `rank` has of the reduced gradients of a unit: its own shard.
    fn reduced(&self, rank: usize, unit: usize) -> Result<&Vec<Term>, String> {
        if self.plan.config.reduces_in_place() {
            let (at, len) = self.local_gradients(unit, rank);
            self.ranks[rank].gradients.read(at, len)
        } else {
            self.ranks[rank].reduced.read(self.plan.placements[unit].start / self.ranks.len(), self.shard(unit))
        }
    }

    /// The owners of parameters whose gradients are in a bucket.
    fn owners(&self, bucket: usize) -> Vec<usize> {
        let bucket = &self.plan.buckets[bucket];
        (bucket.first..=bucket.last).filter(|&unit| self.shard(unit) > 0).collect()
    }

    fn settle(&mut self, rank: usize, bucket: usize, micro_batch: usize) -> Done {
        for unit in self.owners(bucket) {
            let (at, len) = self.local_gradients(unit, rank);
            let mut sum = if micro_batch == 0 { Vec::new() } else { self.reduced(rank, unit)?.clone() };
            for peer in &self.ranks {
                sum.extend(peer.gradients.read(at, len)?);
            }
            let own = &mut self.ranks[rank];
            if self.plan.config.reduces_in_place() {
                own.gradients.write(at, len, sum)?;
            } else {
                own.reduced.write(self.plan.placements[unit].start / self.plan.config.ranks, len, sum)?;
            }
        }
        self.ranks[rank].settled += 1;
        Ok(())
    }

    fn spread(&mut self, rank: usize, bucket: usize) -> Done {
        for unit in self.owners(bucket) {
            for owner in 0..self.ranks.len() {
                let sum = self.reduced(owner, unit)?.clone();
                let (at, len) = self.local_gradients(unit, owner);
                self.ranks[rank].gradients.write(at, len, sum)?;
            }
        }
        Ok(())
    }

    /// That `sum` has the gradient of every unit that uses the parameters of `owner`, once for each rank and micro-batch.
    fn require_sum(&self, owner: usize, sum: &[Term]) -> Done {
        let micro_batches = self.plan.config.micro_batches;
        let mut expected = Vec::new();
        for unit in (0..self.plan.units.len()).filter(|&unit| self.plan.units[unit].source == owner) {
            for micro_batch in 0..micro_batches {
                expected.extend((0..self.ranks.len()).map(|rank| (rank, Mark { pass: self.pass, micro_batch, unit })));
            }
        }
        let mut sum = sum.to_vec();
        (sum.sort(), expected.sort());
        require(sum == expected, || format!("the gradients of {owner} are summed from {sum:?}"))
    }

    /// Reads the losses and the sum of squares of the gradients.
    fn agree(&mut self, rank: usize) -> Done {
        for unit in (0..self.plan.units.len()).filter(|&unit| self.shard(unit) > 0) {
            self.require_sum(unit, self.reduced(rank, unit)?)?;
        }
        let own = &mut self.ranks[rank];
        own.entered_now = false;
        own.agreed = Some(self.pass);
        let losses = own.losses.iter().filter(|loss| loss.pass == self.pass).count();
        require(losses == self.plan.config.micro_batches, || format!("{losses} losses"))
    }

    fn update(&mut self, rank: usize, unit: usize) -> Done {
        require(self.ranks[rank].agreed == Some(self.pass), || "the norm is not agreed on".to_owned())?;
        let own_shard = self.plan.config.shards_optimizer();
        for shard in (0..self.ranks.len()).filter(|&shard| !own_shard || shard == rank) {
            if own_shard {
                self.require_sum(unit, self.reduced(rank, unit)?)?;
            } else {
                let (at, len) = self.local_gradients(unit, shard);
                self.require_sum(unit, self.ranks[rank].gradients.read(at, len)?)?;
            }
            self.ranks[rank].parameters[unit][shard] += 1;
        }
        let own = &mut self.ranks[rank];
        if own_shard {
            own.published += 1;
            own.versions[unit] = own.published;
        }
        Ok(())
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
