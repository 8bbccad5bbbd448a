//! Check: walks a schedule and objects to the first op that breaks a rule. Shares no code with the builder: it knows
//! the rules, not how schedules are made. [`check_layout`] does the same for the tables that a schedule points into.

/// Returns the first broken rule of several.
macro_rules! rules {
    ($($holds:expr => $rule:literal,)*) => {{
        $(if !$holds { return Some($rule); })*
    }};
}

mod layout;

use crate::config::Config;
use crate::layout::{Bucket, Placement};
use crate::schedule::{Op, Pass};
use crate::unit::Unit;

pub use layout::check_layout;

/// What is wrong with a schedule, and at which of its ops. At `ops.len()` something is missing at the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Index of the op.
    pub op: usize,
    /// The rule that it breaks.
    pub rule: &'static str,
}

/// What the walk knows of a unit.
#[derive(Clone, Copy, Debug)]
pub struct UnitState {
    parameters: Held,
    slot: usize,
    /// Whether a unit is in the slot of this index; there are no more slots than units.
    is_slot_taken: bool,
    forwards: usize,
    backwards: usize,
    updated: bool,
}

/// What the walk knows of a bucket.
#[derive(Clone, Copy, Debug)]
pub struct BucketState {
    staging: Staging,
    /// Backward calls that add to its gradients in one micro-batch, and those since its claim.
    writers: usize,
    writes: usize,
    /// Which of the step's reductions it was last offered in.
    offer: usize,
    settled: usize,
    spread: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Held {
    No,
    InFlight,
    Yes,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Staging {
    Free,
    Claimed,
    Offered,
}

impl UnitState {
    /// The state before the first op; the check sets the rest.
    pub const NEW: Self =
        Self { parameters: Held::No, slot: 0, is_slot_taken: false, forwards: 0, backwards: 0, updated: false };
}

impl BucketState {
    /// The state before the first op.
    pub const NEW: Self = Self { staging: Staging::Free, writers: 0, writes: 0, offer: 0, settled: 0, spread: false };
}

/// The tables that a check reads.
#[derive(Clone, Copy)]
pub struct Subject<'a> {
    /// What the schedule is for.
    pub pass: Pass,
    /// The configuration.
    pub config: &'a Config,
    /// The units.
    pub units: &'a [Unit],
    /// A placement for each unit.
    pub placements: &'a [Placement],
    /// The buckets.
    pub buckets: &'a [Bucket],
    /// The schedule.
    pub ops: &'a [Op],
}

/// Checks a schedule. `units` and `buckets` are scratch of the walk, one `NEW` for each unit and bucket, so that the
/// check runs in constants and at run time alike.
pub const fn check(subject: Subject, units: &mut [UnitState], buckets: &mut [BucketState]) -> Result<(), Fault> {
    let mut walk = Walk { subject, units, buckets, slots: 0, offered: 0, settled: 0, agreed: false };
    walk.start();
    let mut op = 0;
    while op < subject.ops.len() {
        if let Some(rule) = walk.broken(subject.ops[op]) {
            return Err(Fault { op, rule });
        }
        op += 1;
    }
    match walk.unfinished() {
        Some(rule) => Err(Fault { op, rule }),
        None => Ok(()),
    }
}

/// The rule, where it is broken.
type Broken = Option<&'static str>;

struct Walk<'a, 's> {
    subject: Subject<'a>,
    units: &'s mut [UnitState],
    buckets: &'s mut [BucketState],
    slots: usize,
    /// Reductions offered and settled so far, of all buckets.
    offered: usize,
    settled: usize,
    agreed: bool,
}

impl Walk<'_, '_> {
    const fn start(&mut self) {
        self.slots = slots(self.subject.config, self.subject.placements);
        let mut unit = 0;
        while unit < self.units.len() {
            let source = &self.subject.placements[self.subject.units[unit].source];
            self.buckets[source.bucket].writers += (source.padded > 0) as usize;
            // Below stage 3 every rank has all parameters at the start of a step.
            if !self.subject.config.shards_parameters() || self.subject.placements[unit].padded == 0 {
                self.units[unit].parameters = Held::Yes;
            }
            unit += 1;
        }
    }

    const fn trains(&self) -> bool {
        matches!(self.subject.pass, Pass::Train)
    }

    /// Whether the unit or bucket of an op is one of the plan.
    const fn exists(&self, op: Op) -> bool {
        match op {
            Op::Gather { unit, .. } | Op::Wait { unit } | Op::Release { unit } | Op::Update { unit } => {
                unit < self.units.len()
            }
            Op::Forward { unit, .. } | Op::Backward { unit, .. } => unit < self.units.len(),
            Op::Claim { bucket } | Op::Spread { bucket } => bucket < self.buckets.len(),
            Op::Reduce { bucket, .. } | Op::Settle { bucket, .. } => bucket < self.buckets.len(),
            Op::Agree => true,
        }
    }

    const fn broken(&mut self, op: Op) -> Broken {
        let evaluates = matches!(op, Op::Gather { .. } | Op::Wait { .. } | Op::Forward { .. } | Op::Release { .. });
        rules! {
            self.exists(op) => "an op on a unit or bucket that is not there",
            self.trains() || evaluates => "an op of a training step in an evaluation",
        }
        match op {
            Op::Gather { unit, slot } => self.gather(unit, slot),
            Op::Wait { unit } => self.wait(unit),
            Op::Release { unit } => self.release(unit),
            Op::Forward { unit, micro_batch } => self.forward(unit, micro_batch),
            Op::Backward { unit, micro_batch } => self.backward(unit, micro_batch),
            Op::Claim { bucket } => self.claim(bucket),
            Op::Reduce { bucket, micro_batch } => self.reduce(bucket, micro_batch),
            Op::Settle { bucket, micro_batch } => self.settle(bucket, micro_batch),
            Op::Spread { bucket } => self.spread(bucket),
            Op::Agree => self.agree(),
            Op::Update { unit } => self.update(unit),
        }
    }

    const fn gather(&mut self, unit: usize, slot: usize) -> Broken {
        rules! {
            self.subject.placements[unit].padded > 0 => "a gather of a unit without parameters",
            matches!(self.units[unit].parameters, Held::No) => "a gather of parameters that are held already",
        }
        if self.subject.config.shards_parameters() {
            rules! {
                slot < self.slots => "a gather into a slot that is not there",
                !self.units[slot].is_slot_taken => "a gather into a slot in use",
            }
            self.units[slot].is_slot_taken = true;
            self.units[unit].slot = slot;
        }
        self.units[unit].parameters = Held::InFlight;
        None
    }

    const fn wait(&mut self, unit: usize) -> Broken {
        rules! { matches!(self.units[unit].parameters, Held::InFlight) => "a wait without a gather in flight", }
        self.units[unit].parameters = Held::Yes;
        None
    }

    const fn release(&mut self, unit: usize) -> Broken {
        rules! {
            self.holds_sharded(unit) => "a release of parameters that are not sharded, or not held",
            matches!(self.units[unit].parameters, Held::Yes) => "a release before its wait",
        }
        self.units[self.units[unit].slot].is_slot_taken = false;
        self.units[unit].parameters = Held::No;
        None
    }

    const fn forward(&mut self, unit: usize, micro_batch: usize) -> Broken {
        let source = self.subject.units[unit].source;
        let before = if unit == 0 { micro_batch + 1 } else { self.units[unit - 1].forwards };
        rules! {
            matches!(self.units[source].parameters, Held::Yes) => "a forward before its gather or after its release",
            self.units[unit].forwards == micro_batch => "a forward that is not the next of its unit",
            before == micro_batch + 1 => "a forward before the one that makes its input",
            // Else it overwrites activations that a backward has still to read.
            self.units[unit].backwards == micro_batch => "a forward before the backward of the micro-batch before it",
            !self.agreed => "a forward after the end of the backward passes",
        }
        self.units[unit].forwards += 1;
        None
    }

    const fn backward(&mut self, unit: usize, micro_batch: usize) -> Broken {
        let source = self.subject.units[unit].source;
        let last = unit + 1 == self.units.len();
        let behind = if last { self.units[unit].forwards } else { self.units[unit + 1].backwards };
        rules! {
            matches!(self.units[source].parameters, Held::Yes) => "a backward before its gather or after its release",
            self.units[unit].forwards == micro_batch + 1 => "a backward without its forward",
            self.units[unit].backwards == micro_batch => "a backward that is not the next of its unit",
            behind == micro_batch + 1 => "a backward before the one that makes its output's gradient",
        }
        self.units[unit].backwards += 1;
        if self.subject.placements[source].padded == 0 {
            return None;
        }
        let bucket = &mut self.buckets[self.subject.placements[source].bucket];
        rules! { matches!(bucket.staging, Staging::Claimed) => "a gradient written to staging that is not claimed", }
        bucket.writes += 1;
        None
    }

    const fn claim(&mut self, bucket: usize) -> Broken {
        rules! {
            matches!(self.buckets[bucket].staging, Staging::Free) => "a claim of staging in use",
            self.subject.buckets[bucket].elements > 0
                && self.buckets[bucket].settled < self.subject.config.micro_batches =>
                "a claim of staging that no gradient needs",
        }
        let mut other = 0;
        while other < self.buckets.len() {
            let (a, b) = (&self.subject.buckets[other], &self.subject.buckets[bucket]);
            let is_free = matches!(self.buckets[other].staging, Staging::Free);
            rules! {
                is_free || a.staging + a.elements <= b.staging || b.staging + b.elements <= a.staging =>
                    "a claim of staging that another bucket uses",
            }
            other += 1;
        }
        self.buckets[bucket].staging = Staging::Claimed;
        self.buckets[bucket].writes = 0;
        None
    }

    const fn reduce(&mut self, bucket: usize, micro_batch: usize) -> Broken {
        let state = &self.buckets[bucket];
        rules! {
            matches!(state.staging, Staging::Claimed) => "a reduce of staging that is not claimed",
            state.writes == state.writers => "a reduce before all its gradients are there",
            state.settled == micro_batch => "a reduce of another micro-batch than the next",
        }
        self.buckets[bucket].staging = Staging::Offered;
        self.buckets[bucket].offer = self.offered;
        self.offered += 1;
        None
    }

    const fn settle(&mut self, bucket: usize, micro_batch: usize) -> Broken {
        let state = &mut self.buckets[bucket];
        rules! {
            matches!(state.staging, Staging::Offered) => "a settle without a reduce",
            state.settled == micro_batch => "a settle of another micro-batch than the next",
            // Peers hear how many reductions are settled, not which.
            state.offer == self.settled => "a settle before that of a reduce before it",
        }
        state.staging = Staging::Free;
        state.settled += 1;
        self.settled += 1;
        None
    }

    const fn spread(&mut self, bucket: usize) -> Broken {
        let state = &mut self.buckets[bucket];
        rules! {
            self.subject.config.stage == 0 => "a spread of gradients that stay sharded",
            state.settled == self.subject.config.micro_batches => "a spread before the last settle",
            !state.spread => "a second spread of a bucket",
        }
        state.spread = true;
        None
    }

    const fn agree(&mut self) -> Broken {
        rules! { !self.agreed => "a second agreement", }
        let mut bucket = 0;
        while bucket < self.buckets.len() {
            let state = &self.buckets[bucket];
            let done = self.subject.buckets[bucket].elements == 0
                || state.settled == self.subject.config.micro_batches
                    && state.spread == (self.subject.config.stage == 0);
            rules! { done => "an agreement before every gradient is reduced once for each micro-batch", }
            bucket += 1;
        }
        let mut unit = 0;
        while unit < self.units.len() {
            rules! {
                self.units[unit].backwards == self.subject.config.micro_batches =>
                    "an agreement before every backward",
                // A peer may update what this rank still reads.
                !self.holds_sharded(unit) => "an agreement while sharded parameters are held",
            }
            unit += 1;
        }
        self.agreed = true;
        None
    }

    const fn update(&mut self, unit: usize) -> Broken {
        rules! {
            self.agreed => "an update before the agreement",
            !self.units[unit].updated => "a second update of a unit",
            self.subject.placements[unit].padded > 0 => "an update of a unit without parameters",
            !self.holds_sharded(unit) => "an update of sharded parameters that are held",
        }
        self.units[unit].updated = true;
        if self.subject.config.shards_optimizer() {
            // Of a replica only the own shard is new: the rest must be gathered before it is used.
            self.units[unit].parameters = Held::No;
        }
        None
    }

    const fn holds_sharded(&self, unit: usize) -> bool {
        self.subject.config.shards_parameters()
            && self.subject.placements[unit].padded > 0
            && !matches!(self.units[unit].parameters, Held::No)
    }

    const fn unfinished(&self) -> Broken {
        let trains = self.trains();
        let passes = if trains { self.subject.config.micro_batches } else { 1 };
        rules! { self.agreed == trains => "no agreement in a training step", }
        let mut unit = 0;
        while unit < self.units.len() {
            let state = &self.units[unit];
            let owns = self.subject.placements[unit].padded > 0;
            let replicated = !self.subject.config.shards_parameters();
            rules! {
                state.forwards == passes => "a forward is missing",
                state.updated == (trains && owns) => "an update is missing",
                !self.holds_sharded(unit) => "parameters are held at the end of a step",
                !replicated || matches!(state.parameters, Held::Yes) => "a replica is stale at the end of a step",
            }
            unit += 1;
        }
        None
    }
}

/// Slots for gathered parameters: for a unit in use and as many ahead as the configuration says, no unit twice.
const fn slots(config: &Config, placements: &[Placement]) -> usize {
    let (mut slots, mut unit) = (0, 0);
    while unit < placements.len() && slots <= config.prefetch {
        slots += (placements[unit].padded > 0) as usize;
        unit += 1;
    }
    slots
}
