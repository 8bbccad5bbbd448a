//! Check: walks the schedule of one pipeline stage and objects to the first op that breaks a rule. Shares no code with
//! the builder: it has the rules, not the way in which schedules are made. [`check_layout`] does the same for the
//! tables that schedules point into; [`crate::prove`] covers the rules between ranks.

/// Returns the first broken rule of several.
macro_rules! rules {
    ($($is_kept:expr => $rule:literal,)*) => {{
        $(if !$is_kept { return Some($rule); })*
    }};
}

mod compute;
mod gradients;
mod layout;
mod parameters;
mod parcels;
mod pieces;
mod plan;
mod publish;
mod tiers;

use crate::config::Offload;
use crate::layout::{Bucket, Placement, Tables};
use crate::pipeline::Pass;
use crate::schedule::Op;

pub use layout::check_layout;
use tiers::{SumsSlot, WindowSlot};

/// A flaw of a schedule, and the op that has it. An index of `ops.len()` means that something is missing at the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Index of the op.
    pub op: usize,
    /// The rule that it breaks.
    pub rule: &'static str,
}

/// The state of a unit in the walk.
#[derive(Clone, Copy, Debug)]
pub struct UnitState {
    /// The rank's replica of its parameters (stages 0 to 2).
    replica: Held,
    /// Its parameters as gathered or converted into a slot, or gathered where they lie (stage 3).
    slotted: Held,
    slot: usize,
    /// Whether a unit is in the slot of this index; there are no more slots than units.
    is_slot_taken: bool,
    forwards: usize,
    backwards: usize,
    /// Whether the directions of its matrices have replaced its sums.
    directed: bool,
    updated: bool,
    /// Micro-batches whose activations have been stored in their tier, and fetched from there.
    stored: usize,
    brought_back: usize,
    /// Pieces of its states that have been fetched and updated.
    fetched: usize,
    updated_pieces: usize,
    /// Pieces of its parameters that have come back from the host that updated them.
    taken_back: usize,
    /// Whether its parameters have been offered to readers.
    offered: bool,
    /// Whether they wait in a window for their way to a copy.
    is_in_window: bool,
    /// Whether the gradients of tied parameters have been added up here, or sent to the rank that adds them up.
    tied: bool,
    /// Whether tied parameters have been sent.
    mirrored: bool,
}

/// The state of a bucket in the walk.
#[derive(Clone, Copy, Debug)]
pub struct BucketState {
    staging: StagingState,
    /// Backward calls that add to its gradients in one micro-batch, and those since its claim.
    writers: usize,
    writes: usize,
    /// Its index among the step's reductions when it was last offered.
    offer: usize,
    /// Its sum over this host.
    subtotal: Subtotal,
    /// Its index among the step's reductions along `zero` when it was last settled.
    settle: usize,
    settled: usize,
    combined: usize,
    /// Its reductions after which its sum was stored in its tier.
    stored: usize,
    spread_replica: bool,
    spread_zero: bool,
    /// The bucket after this one in each [`BucketList`] that it is in.
    next: [Option<usize>; 3],
}

/// The content of a slot for activations, as the walk knows it: 1 + micro-batch x chunks + chunk, or 0 for nothing.
#[derive(Clone, Copy, Debug)]
pub struct SlotState(usize);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Held {
    No,
    InFlight,
    Yes,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StagingState {
    Free,
    Claimed,
    Offered,
}

/// The progress of a bucket on its way to other hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Subtotal {
    None,
    /// Summed over a host, but not yet over all hosts.
    Made,
}

/// Lists of buckets whose places other buckets may not use. They are short even if a plan has many buckets.
#[derive(Clone, Copy)]
enum BucketList {
    /// Those whose staging is not free.
    Staged,
    /// Those that are settled, but whose sum over a replica has not yet been combined or summed over a host.
    Partial,
    /// Those that are summed over a host, but not yet settled or combined.
    Subtotal,
}

/// A slot from which parcels leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outgoing {
    Unknown,
    Clear,
    Written { unit: usize, micro_batch: usize },
}

impl UnitState {
    /// The state before the first op; the check sets the rest.
    pub const NEW: Self = Self {
        replica: Held::No,
        slotted: Held::No,
        slot: 0,
        is_slot_taken: false,
        forwards: 0,
        backwards: 0,
        directed: false,
        updated: false,
        stored: 0,
        brought_back: 0,
        fetched: 0,
        updated_pieces: 0,
        taken_back: 0,
        offered: false,
        is_in_window: false,
        tied: false,
        mirrored: false,
    };
}

impl BucketState {
    /// The state before the first op.
    pub const NEW: Self = Self {
        staging: StagingState::Free,
        writers: 0,
        writes: 0,
        offer: 0,
        subtotal: Subtotal::None,
        settle: 0,
        settled: 0,
        combined: 0,
        stored: 0,
        spread_replica: false,
        spread_zero: false,
        next: [None; 3],
    };
}

impl SlotState {
    /// The state before the first op.
    pub const NEW: Self = Self(0);
}

/// The tables that a check reads.
#[derive(Clone, Copy)]
pub struct CheckedTables<'a> {
    /// The purpose of the schedule.
    pub pass: Pass,
    /// The pipeline stage.
    pub pipeline: usize,
    /// Configuration, units, chunks, placements and buckets.
    pub tables: Tables<'a>,
    /// The schedule.
    pub ops: &'a [Op],
}

/// Scratch of a check, so that it runs in constants and at run time alike.
pub struct CheckScratch<'s> {
    /// One `NEW` for each unit.
    pub units: &'s mut [UnitState],
    /// One `NEW` for each bucket.
    pub buckets: &'s mut [BucketState],
    /// At least one `NEW` for each slot for activations.
    pub slots: &'s mut [SlotState],
}

/// Checks the schedule of a pipeline stage.
///
/// # Errors
/// The first op that breaks a rule.
pub const fn check(subject: CheckedTables, scratch: CheckScratch) -> Result<(), Fault> {
    if matches!(subject.pass, Pass::Train) && subject.tables.config.serves() {
        let rule = "a step in the plan of a worker";
        return if subject.ops.is_empty() { Ok(()) } else { Err(Fault { op: 0, rule }) };
    }
    let mut checker = Checker {
        subject,
        units: scratch.units,
        buckets: scratch.buckets,
        slots: scratch.slots,
        gathered_slots: 0,
        window: [WindowSlot::Free; Offload::SLOTS_MAX],
        sums: [SumsSlot::Free; Offload::SUM_SLOTS_MAX],
        shards: [None; Offload::SHARD_SLOTS],
        given: 0,
        activations_out: Outgoing::Unknown,
        gradients_out: Outgoing::Unknown,
        arrived: None,
        gradient_of: None,
        recomputed: None,
        offered: 0,
        subtotalled: 0,
        settled: 0,
        combined: 0,
        first: [None; 3],
        agreed: false,
    };
    checker.start();
    let mut op = 0;
    while op < subject.ops.len() {
        if let Some(rule) = checker.broken(subject.ops[op]) {
            return Err(Fault { op, rule });
        }
        op += 1;
    }
    match checker.unfinished() {
        Some(rule) => Err(Fault { op, rule }),
        None => Ok(()),
    }
}

/// Whether an evaluation may have such an op.
const fn is_of_evaluations(op: Op) -> bool {
    matches!(
        op,
        Op::Gather { .. }
            | Op::Wait { .. }
            | Op::Convert { .. }
            | Op::Release { .. }
            | Op::Receive { .. }
            | Op::Clear { .. }
            | Op::Send { .. }
            | Op::Forward { .. }
            | Op::FetchShard { .. }
    )
}

/// The rule that is broken, if any.
type BrokenRule = Option<&'static str>;

/// A unit in a micro-batch.
#[derive(Clone, Copy)]
struct At {
    unit: usize,
    micro_batch: usize,
}

impl At {
    const fn is(place: Option<Self>, unit: usize, micro_batch: usize) -> bool {
        matches!(place, Some(at) if at.unit == unit && at.micro_batch == micro_batch)
    }
}

struct Checker<'a, 's> {
    subject: CheckedTables<'a>,
    units: &'s mut [UnitState],
    buckets: &'s mut [BucketState],
    slots: &'s mut [SlotState],
    /// Slots for gathered parameters.
    gathered_slots: usize,
    /// The content of each slot of the window.
    window: [WindowSlot; Offload::SLOTS_MAX],
    /// The content of each slot for sums that are kept in a tier.
    sums: [SumsSlot; Offload::SUM_SLOTS_MAX],
    /// The unit whose shard is in each slot for fetched shards, and how many shards have been gathered from there. Where devices
    /// gather shards right after their fetch: the unit that is fetched, and its slot.
    shards: [Option<usize>; Offload::SHARD_SLOTS],
    given: usize,
    activations_out: Outgoing,
    gradients_out: Outgoing,
    /// The input that was received last, if it has not been used.
    arrived: Option<At>,
    /// The unit whose output gradient is ready.
    gradient_of: Option<At>,
    /// The unit and micro-batch in the region for recomputed activations.
    recomputed: Option<At>,
    /// How many reductions of all buckets have been offered, summed over this host, settled and combined so far.
    offered: usize,
    subtotalled: usize,
    settled: usize,
    combined: usize,
    /// The first bucket in each [`BucketList`].
    first: [Option<usize>; 3],
    agreed: bool,
}

impl<'a> Checker<'a, '_> {
    const fn start(&mut self) {
        let config = self.subject.tables.config;
        let (mut holders, mut unit) = (0, 0);
        while unit < self.units.len() {
            let at = &self.subject.tables.placements[unit];
            if at.pipeline_stage == self.subject.pipeline {
                self.buckets[at.bucket].writers += (at.padded > 0) as usize;
                holders += at.holds as usize;
                // Below stage 3 every rank has all parameters at the start of a step.
                if !config.shards_parameters() {
                    self.units[unit].replica = Held::Yes;
                }
            }
            unit += 1;
        }
        let holds = self.trains() && config.holds_parameters();
        let ahead = if config.shards_parameters() { config.prefetch } else { 0 };
        self.gathered_slots = if holds || ahead >= holders { holders } else { ahead + 1 };
    }

    const fn trains(&self) -> bool {
        matches!(self.subject.pass, Pass::Train)
    }

    const fn at(&self, unit: usize) -> &'a Placement {
        &self.subject.tables.placements[unit]
    }

    const fn bucket(&self, bucket: usize) -> &'a Bucket {
        &self.subject.tables.buckets[bucket]
    }

    /// Whether the unit or bucket of an op is on this pipeline stage.
    const fn exists(&self, op: Op) -> bool {
        if let Some(unit) = op.unit() {
            unit < self.units.len() && self.at(unit).pipeline_stage == self.subject.pipeline
        } else if let Some(bucket) = op.bucket() {
            bucket < self.buckets.len() && self.bucket(bucket).pipeline_stage == self.subject.pipeline
        } else {
            true
        }
    }

    const fn broken(&mut self, op: Op) -> BrokenRule {
        rules! {
            self.exists(op) => "an op on a unit or bucket that does not exist",
            self.trains() || is_of_evaluations(op) || self.publishes() => "an op of a training step in an evaluation",
            publish::is_of_publications(op) || !self.publishes() => "an op of another pass in a publication",
        }
        match op {
            Op::Gather { unit, slot } => self.gather(unit, slot),
            Op::Wait { unit } => self.wait(unit),
            Op::Convert { unit, slot } => self.convert(unit, slot),
            Op::Release { unit } => self.release(unit),
            Op::Receive { parcel, unit, micro_batch, slot } => self.receive(parcel, unit, micro_batch, slot),
            Op::Clear { parcel } => self.clear(parcel),
            Op::Send { parcel, unit, micro_batch } => self.send(parcel, unit, micro_batch),
            Op::Forward { unit, micro_batch, slot } => self.forward(unit, micro_batch, slot),
            Op::Recompute { unit, micro_batch, slot } => self.recompute(unit, micro_batch, slot),
            Op::Backward { unit, micro_batch, slot } => self.backward(unit, micro_batch, slot),
            Op::Claim { bucket } => self.claim(bucket),
            Op::Reduce { bucket, round } => self.reduce(bucket, round),
            Op::Subtotal { bucket, round, axis } => self.subtotal(bucket, round, axis),
            Op::Settle { bucket, round } => self.settle(bucket, round),
            Op::Combine { bucket, round } => self.combine(bucket, round),
            Op::Fold { unit } => self.fold(unit),
            Op::Spread { bucket, axis } => self.spread(bucket, axis),
            Op::Agree => self.agree(),
            Op::Momentum { unit } => self.momentum(unit),
            Op::Update { unit, piece } => self.update(unit, piece),
            Op::Fetch { unit, piece } => self.fetch(unit, piece),
            Op::Store { unit, piece } => self.store(unit, piece),
            Op::FetchSums { bucket, round } => self.fetch_sums(bucket, round),
            Op::StoreSums { bucket, round } => self.store_sums(bucket, round),
            Op::FetchShard { unit, slot } => self.fetch_shard(unit, slot),
            Op::StoreActivations { unit, micro_batch, slot } => self.store_activations(unit, micro_batch, slot),
            Op::FetchActivations { unit, micro_batch, slot } => self.fetch_activations(unit, micro_batch, slot),
            Op::Offer { unit } => self.offer(unit),
            Op::StoreOffered { unit } => self.store_offered(unit),
        }
    }

    const fn agree(&mut self) -> BrokenRule {
        rules! { !self.agreed => "a second agreement", }
        let mut bucket = 0;
        while bucket < self.buckets.len() {
            let is_here =
                self.bucket(bucket).pipeline_stage == self.subject.pipeline && self.bucket(bucket).elements > 0;
            rules! {
                !is_here || self.is_summed(bucket) =>
                    "an agreement before every gradient is reduced once for each of its rounds",
                !is_here || self.is_spread(bucket) => "an agreement before every sum is spread",
                !is_here || self.has_stored_sums(bucket) => "an agreement before every sum is stored",
            }
            bucket += 1;
        }
        let mut unit = 0;
        while unit < self.units.len() {
            if self.at(unit).pipeline_stage == self.subject.pipeline {
                rules! {
                    self.units[unit].backwards == self.subject.tables.config.micro_batches =>
                        "an agreement before every backward",
                    self.units[unit].tied == self.is_in_tie(unit) =>
                        "an agreement before the gradients of tied parameters are added up",
                    // Otherwise a peer may update parameters that this rank still reads.
                    matches!(self.units[unit].slotted, Held::No) => "an agreement while parameters are held",
                }
            }
            unit += 1;
        }
        self.agreed = true;
        None
    }

    const fn unfinished(&self) -> BrokenRule {
        let trains = self.trains();
        let config = self.subject.tables.config;
        let passes = match self.subject.pass {
            Pass::Train => config.micro_batches,
            Pass::Evaluate => 1,
            Pass::Publish => 0,
        };
        let is_idle = matches!((self.activations_out, self.gradients_out), (Outgoing::Unknown, Outgoing::Unknown));
        rules! {
            self.agreed == trains => "no agreement in a training step",
            is_idle => "a result that is not sent",
            self.is_window_free() => "a piece that is fetched, but not stored",
            self.are_shards_given() => "a shard that is fetched, but not gathered",
        }
        let mut unit = 0;
        while unit < self.units.len() {
            let state = &self.units[unit];
            if self.at(unit).pipeline_stage == self.subject.pipeline {
                rules! {
                    state.forwards == passes => "a forward is missing",
                    state.updated == (self.updates() && self.at(unit).holds) => "an update is missing",
                    state.offered == self.is_offered(unit) => "an offer is missing",
                    !state.is_in_window => "what is offered does not get to a copy",
                    state.mirrored == (trains && self.is_mirrored(unit)) => "tied parameters are not sent",
                    matches!(state.slotted, Held::No) => "parameters are held at the end of a step",
                    config.shards_parameters() || matches!(state.replica, Held::Yes) =>
                        "a replica is stale at the end of a step",
                }
            }
            unit += 1;
        }
        None
    }

    /// Whether a unit takes part in a tie: it is tied to an owner, or is the owner of a tied unit.
    const fn is_in_tie(&self, unit: usize) -> bool {
        let tables = &self.subject.tables;
        tables.units[unit].is_tied(unit) && self.at(unit).padded > 0
            || tables.tied_to(unit).is_some() && self.at(unit).padded > 0
    }

    /// Whether a unit on another pipeline stage mirrors its parameters.
    const fn is_mirrored(&self, unit: usize) -> bool {
        matches!(self.subject.tables.tied_to(unit), Some(tied) if self.at(tied).holds)
    }
}
