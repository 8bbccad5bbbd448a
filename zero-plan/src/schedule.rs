//! Schedule: checked layout in, frozen table of ops out. Never rejects user input, never reads a file.
//!
//! A step walks each micro-batch forward through the units and back. Communication is placed around that walk:
//! parameters are gathered `prefetch` uses ahead (stage 3), a bucket is reduced once its last gradient is there, and its
//! sum is settled one bucket later, so that a rank that is late by less than a bucket delays nobody.

use crate::config::Config;
use crate::layout::{Bucket, Placement};
use crate::unit::Unit;

/// One entry of a rank's schedule. Units, buckets and slots are indices into the plan's tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// Starts to gather a unit's flat buffer, into a slot where gathers are copied.
    Gather {
        /// The owner of the flat buffer.
        unit: usize,
        /// The slot, in the ring of gathered parameters.
        slot: usize,
    },
    /// Waits until a unit's flat buffer is whole.
    Wait {
        /// The owner of the flat buffer.
        unit: usize,
    },
    /// Runs a unit forward.
    Forward {
        /// The unit.
        unit: usize,
        /// The micro-batch.
        micro_batch: usize,
    },
    /// Runs a unit's vector-Jacobian product: gradients of its parameters and of its input.
    Backward {
        /// The unit.
        unit: usize,
        /// The micro-batch.
        micro_batch: usize,
    },
    /// Gives up a unit's gathered flat buffer.
    Release {
        /// The owner of the flat buffer.
        unit: usize,
    },
    /// Takes a bucket's staging: waits until peers have read what lay there.
    Claim {
        /// The bucket.
        bucket: usize,
    },
    /// Offers a bucket's local gradients to its peers: the start of a reduce-scatter.
    Reduce {
        /// The bucket.
        bucket: usize,
        /// The micro-batch whose gradients these are: the first overwrites the sum, later ones add to it.
        micro_batch: usize,
    },
    /// Sums this rank's shards of a bucket over all ranks: the end of a reduce-scatter.
    Settle {
        /// The bucket.
        bucket: usize,
        /// The micro-batch whose gradients these are.
        micro_batch: usize,
    },
    /// Gathers the summed shards of a bucket: with `Settle`, an all-reduce (stage 0).
    Spread {
        /// The bucket.
        bucket: usize,
    },
    /// Agrees on loss and gradient norm. Also the point behind which no rank reads this step's parameters any more.
    Agree,
    /// Updates what this rank keeps the optimizer state of.
    Update {
        /// The unit.
        unit: usize,
    },
}

/// What a schedule is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Pass {
    /// A training step.
    Train,
    /// One forward pass over one micro-batch, for held-out loss and for sampling.
    Evaluate,
}

/// Number of ops of a schedule.
pub const fn op_count(
    pass: Pass,
    config: &Config,
    units: &[Unit],
    placements: &[Placement],
    buckets: &[Bucket],
) -> usize {
    fill_ops(pass, config, units, placements, buckets, &mut [])
}

/// Fills in the ops and returns their number. `out` has [`op_count`] entries, or none, to only count.
pub const fn fill_ops(
    pass: Pass,
    config: &Config,
    units: &[Unit],
    placements: &[Placement],
    buckets: &[Bucket],
    out: &mut [Op],
) -> usize {
    let walk = Walk { pass, config, units, placements };
    let mut ops = Ops { out, len: 0 };
    let mut parameters = Parameters::new(&walk);
    let mut i = 0;
    while i < walk.steps() {
        let step = walk.step(i);
        parameters.before(&walk, i, &mut ops);
        if step.backward {
            claim(&walk, buckets, step, &mut ops);
            ops.push(Op::Backward { unit: step.unit, micro_batch: step.micro_batch });
        } else {
            ops.push(Op::Forward { unit: step.unit, micro_batch: step.micro_batch });
        }
        parameters.after(&walk, i, &mut ops);
        if step.backward {
            reduce(&walk, buckets, step, &mut ops);
        }
        i += 1;
    }
    if let Pass::Train = pass {
        ops.push(Op::Agree);
        update(config, placements, &mut ops);
    }
    ops.len
}

/// Appends ops, or counts them where there is no room for any.
struct Ops<'a> {
    out: &'a mut [Op],
    len: usize,
}

impl Ops<'_> {
    const fn push(&mut self, op: Op) {
        if !self.out.is_empty() {
            self.out[self.len] = op;
        }
        self.len += 1;
    }
}

/// The order of computation: each micro-batch forward through the units, then back.
struct Walk<'a> {
    pass: Pass,
    config: &'a Config,
    units: &'a [Unit],
    placements: &'a [Placement],
}

/// One computation of the walk.
#[derive(Clone, Copy)]
struct Step {
    unit: usize,
    micro_batch: usize,
    backward: bool,
}

impl Walk<'_> {
    const fn steps(&self) -> usize {
        match self.pass {
            Pass::Train => 2 * self.units.len() * self.config.micro_batches,
            Pass::Evaluate => self.units.len(),
        }
    }

    const fn step(&self, i: usize) -> Step {
        let units = self.units.len();
        let (micro_batch, i) = (i / (2 * units), i % (2 * units));
        let backward = i >= units;
        Step { unit: if backward { 2 * units - 1 - i } else { i }, micro_batch, backward }
    }

    /// The unit whose flat buffer step `i` needs, if it needs one.
    const fn source(&self, i: usize) -> Option<usize> {
        let source = self.units[self.step(i).unit].source;
        if self.placements[source].padded == 0 { None } else { Some(source) }
    }

    /// The next use at or after step `from`: consecutive steps on one flat buffer are one use of it. So the last unit of
    /// the forward pass, which is the first of the backward pass, is gathered once for both.
    const fn next_use(&self, from: usize) -> Option<Use> {
        let mut found: Option<Use> = None;
        let mut i = from;
        while i < self.steps() {
            if let Some(source) = self.source(i) {
                match &mut found {
                    None => found = Some(Use { unit: source, first: i, last: i }),
                    Some(current) if current.unit == source => current.last = i,
                    Some(_) => break,
                }
            }
            i += 1;
        }
        found
    }
}

/// A stretch of steps that works on one flat buffer.
#[derive(Clone, Copy)]
struct Use {
    unit: usize,
    first: usize,
    last: usize,
}

/// Places gathers, waits and releases around the walk (stage 3).
struct Parameters {
    /// The use that computes now, or else the next one.
    current: Option<Use>,
    /// The first use whose gather has not started.
    ahead: Option<Use>,
    /// Uses from `current` up to `ahead`.
    in_flight: usize,
    /// Gathers started so far.
    started: usize,
    slots: usize,
}

impl Parameters {
    const fn new(walk: &Walk) -> Self {
        let first = if walk.config.shards_parameters() { walk.next_use(0) } else { None };
        let (mut owners, mut i) = (0, 0);
        while i < walk.placements.len() {
            owners += (walk.placements[i].padded > 0) as usize;
            i += 1;
        }
        let slots = if walk.config.prefetch + 1 < owners { walk.config.prefetch + 1 } else { owners };
        Self { current: first, ahead: first, in_flight: 0, started: 0, slots }
    }

    /// Before step `i`: starts the gathers that are due and waits for the one that the step needs.
    const fn before(&mut self, walk: &Walk, i: usize, ops: &mut Ops) {
        let Some(current) = self.current else { return };
        if current.first != i {
            return;
        }
        while let Some(ahead) = self.ahead {
            if self.in_flight > walk.config.prefetch || self.is_held(walk, ahead.unit) {
                break;
            }
            ops.push(Op::Gather { unit: ahead.unit, slot: self.started % self.slots });
            self.started += 1;
            self.in_flight += 1;
            self.ahead = walk.next_use(ahead.last + 1);
        }
        ops.push(Op::Wait { unit: current.unit });
    }

    /// After step `i`: releases what no later step of this use needs.
    const fn after(&mut self, walk: &Walk, i: usize, ops: &mut Ops) {
        let Some(current) = self.current else { return };
        if current.last == i {
            ops.push(Op::Release { unit: current.unit });
            self.in_flight -= 1;
            self.current = walk.next_use(i + 1);
        }
    }

    /// Whether a use between `current` and `ahead` holds `unit` already. Else it would be gathered twice at one time.
    const fn is_held(&self, walk: &Walk, unit: usize) -> bool {
        let (Some(current), Some(ahead)) = (self.current, self.ahead) else { return false };
        let mut i = current.first;
        while i < ahead.first {
            if let Some(source) = walk.source(i)
                && source == unit
            {
                return true;
            }
            i += 1;
        }
        false
    }
}

/// Claims the staging of a bucket before the first gradient goes into it.
const fn claim(walk: &Walk, buckets: &[Bucket], step: Step, ops: &mut Ops) {
    let bucket = walk.placements[walk.units[step.unit].source].bucket;
    if buckets[bucket].elements > 0 && first_writer(walk, &buckets[bucket]) == step.unit {
        ops.push(Op::Claim { bucket });
    }
}

/// The unit whose backward is the first to write gradients of a bucket.
const fn first_writer(walk: &Walk, bucket: &Bucket) -> usize {
    let mut unit = walk.units.len() - 1;
    loop {
        let source = walk.units[unit].source;
        if source >= bucket.first && source <= bucket.last {
            return unit;
        }
        unit -= 1;
    }
}

/// Reduces the bucket that step `step` completed, and settles those before it.
const fn reduce(walk: &Walk, buckets: &[Bucket], step: Step, ops: &mut Ops) {
    let bucket = walk.placements[step.unit].bucket;
    let micro_batch = step.micro_batch;
    // Tied units lie behind their owner and have written before, so the bucket's first unit is always the last to write.
    if buckets[bucket].first != step.unit {
        return;
    }
    if buckets[bucket].elements > 0 {
        ops.push(Op::Reduce { bucket, micro_batch });
    }
    let last = bucket + 1 == buckets.len();
    let spread = walk.config.stage == 0 && micro_batch + 1 == walk.config.micro_batches;
    if bucket > 0 {
        settle(buckets, bucket - 1, micro_batch, ops);
    }
    if spread && bucket > 1 {
        spread_bucket(buckets, bucket - 2, ops);
    }
    if last {
        settle(buckets, bucket, micro_batch, ops);
        if spread && bucket > 0 {
            spread_bucket(buckets, bucket - 1, ops);
        }
        if spread {
            spread_bucket(buckets, bucket, ops);
        }
    }
}

const fn settle(buckets: &[Bucket], bucket: usize, micro_batch: usize, ops: &mut Ops) {
    if buckets[bucket].elements > 0 {
        ops.push(Op::Settle { bucket, micro_batch });
    }
}

const fn spread_bucket(buckets: &[Bucket], bucket: usize, ops: &mut Ops) {
    if buckets[bucket].elements > 0 {
        ops.push(Op::Spread { bucket });
    }
}

/// Updates every unit; where parameters are replicated but optimizer state is not, all-gathers what peers updated.
const fn update(config: &Config, placements: &[Placement], ops: &mut Ops) {
    let gathers = config.shards_optimizer() && !config.shards_parameters();
    let mut unit = 0;
    while unit < placements.len() {
        if placements[unit].padded > 0 {
            ops.push(Op::Update { unit });
            if gathers {
                ops.push(Op::Gather { unit, slot: 0 });
            }
        }
        unit += 1;
    }
    unit = 0;
    while gathers && unit < placements.len() {
        if placements[unit].padded > 0 {
            ops.push(Op::Wait { unit });
        }
        unit += 1;
    }
}
