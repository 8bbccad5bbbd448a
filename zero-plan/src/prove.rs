//! Prove: shows what must be true between the ranks of a plan, over the ops of every rank. Shares no code with the
//! modules that make schedules, and never assumes that ranks do the same: each is walked by itself.
//!
//! Six proofs: each rank's ops are sound by themselves ([`mod@crate::check`]); ranks issue the same collectives and
//! pair their parcels (`matching`); all of them reach the end, so nothing waits in a cycle (`crate::execution` says
//! why one execution proves it for all); every element has one owner and every gradient is in its sum once (`cover`);
//! if ranks are on several hosts, each message is received, holds what its op needs and need not be buffered
//! (`messages`); and if ops run in streams of a device, conflicting accesses to one place are in order (`streams`).
//!
//! Passes are proven one by one, except for streams. A pass that ends leaves no parcel on its way and no collective
//! half done, so the next pass starts like the first one, except that some of its ranks are ahead.

mod cover;
mod flow;
#[cfg(test)]
mod hosts_tests;
mod matching;
mod messages;
mod order;
mod streams;

use core::fmt;

use serde::Serialize;

use crate::check::{BucketState, CheckScratch, CheckedTables, Fault, SlotState, UnitState, check, check_layout};
use crate::execution::{Stuck, Wait};
use crate::groups::Groups;
use crate::layout::Memory;
use crate::mesh::Coordinates;
use crate::pipeline::Pass;
use crate::place::{Accesses, accesses, decoding_accesses};
use crate::plan::Plan;
use crate::schedule::Op;
use crate::unit::caches;

/// The figures of a proof: over all ranks, for a training step and an evaluation together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Proof {
    /// Ranks of the mesh.
    pub ranks: usize,
    /// Communicators that have more than one member.
    pub communicators: usize,
    /// Ops of all ranks.
    pub ops: usize,
    /// Collectives of these communicators, each counted once.
    pub collectives: usize,
    /// Parcels from one pipeline stage to another.
    pub parcels: usize,
}

impl fmt::Display for Proof {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { ranks, communicators, ops, collectives, parcels } = self;
        write!(f, "{ops} ops on {ranks} ranks, {collectives} collectives on {communicators} communicators")?;
        write!(f, " and {parcels} parcels: all match, and none waits in a cycle")
    }
}

/// A flaw between ranks, which is an error of this crate and not of its user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flaw {
    /// The pass that it is in.
    pub pass: Pass,
    /// The rule that is broken.
    pub rule: String,
    /// Where it shows; empty if it is about the layout.
    pub places: Vec<Spot>,
}

/// An op in the schedule of a rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spot {
    /// The rank.
    pub rank: usize,
    /// Its coordinates in the mesh.
    pub at: Coordinates,
    /// Index of the op; the number of ops if something is missing at the end.
    pub op: usize,
    /// The op, unless it is missing.
    pub does: Option<Op>,
    /// A note: what was expected of it, or found.
    pub note: String,
}

impl fmt::Display for Flaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let article = if self.pass == Pass::Evaluate { "an" } else { "a" };
        write!(f, "[Z0292] unsound plan, in {article} {}: {}", self.pass.name(), self.rule)?;
        self.places.iter().try_for_each(|place| write!(f, "\n  {place}"))
    }
}

impl fmt::Display for Spot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Coordinates { zero, replica, pipeline } = self.at;
        write!(f, "rank {} (zero {zero}, replica {replica}, pipeline stage {pipeline}), op {}: ", self.rank, self.op)?;
        match &self.does {
            Some(op) => write!(f, "{op:?}")?,
            None => f.write_str("no op")?,
        }
        if self.note.is_empty() { Ok(()) } else { write!(f, ", {}", self.note) }
    }
}

impl core::error::Error for Flaw {}

/// Proves everything that must hold for a plan and for its ranks together.
///
/// # Errors
/// The first flaw that is found.
pub fn prove(plan: &Plan) -> Result<Proof, Flaw> {
    let memories: Vec<Memory> = plan.pipeline_stages.iter().map(|pipeline_stage| pipeline_stage.memory).collect();
    if let Some(rule) = check_layout(&plan.tables(), &memories) {
        return Err(Flaw { pass: Pass::Train, rule: rule.to_owned(), places: Vec::new() });
    }
    cover::owners(plan)?;
    let mut proof = Proof::default();
    for pass in Pass::ALL {
        let ranks = 0..plan.config.mesh.ranks();
        let ops: Vec<&[Op]> = ranks.map(|rank| plan.of_rank(rank).ops(pass)).collect();
        let of_pass = prove_ranks(plan, pass, &ops)?;
        proof.ranks = of_pass.ranks;
        proof.communicators = of_pass.communicators;
        proof.ops += of_pass.ops;
        proof.collectives += of_pass.collectives;
        proof.parcels += of_pass.parcels;
    }
    prove_decoding(plan, &decoding_accesses)?;
    prove_streams(plan)?;
    Ok(proof)
}

/// Proves one pass with the given ops of each rank, which need not be those of its pipeline stage.
///
/// # Errors
/// The first flaw that is found.
pub fn prove_ranks(plan: &Plan, pass: Pass, ops: &[&[Op]]) -> Result<Proof, Flaw> {
    let ranks = Ranks { plan, pass, ops, groups: Groups::of(plan) };
    if ops.len() != ranks.groups.ranks() {
        return Err(ranks.flaw("schedules and ranks differ in number", Vec::new()));
    }
    ranks.check()?;
    let collectives = matching::collectives(&ranks)?;
    let parcels = matching::parcels(&ranks)?;
    flow::flow(&ranks, &accesses, false)?;
    messages::messages(&ranks, &accesses, false, &messages::posted)?;
    if pass == Pass::Train && !plan.config.serves() {
        cover::sums(&ranks)?;
    }
    Ok(Proof {
        ranks: ops.len(),
        communicators: ranks.groups.members.iter().filter(|members| members.len() > 1).count(),
        ops: ops.iter().map(|ops| ops.len()).sum(),
        collectives,
        parcels,
    })
}

/// Proves for both passes that every op finds the content that it needs at the places of `accesses`.
///
/// # Errors
/// The first flaw that is found.
pub fn prove_accesses(plan: &Plan, accesses: &Accesses) -> Result<(), Flaw> {
    Pass::ALL.into_iter().try_for_each(|pass| {
        let ops: Vec<&[Op]> = (0..plan.config.mesh.ranks()).map(|rank| plan.of_rank(rank).ops(pass)).collect();
        flow::flow(&Ranks { plan, pass, ops: &ops, groups: Groups::of(plan) }, accesses, false)
    })
}

/// Proves that any two accesses to one byte, of which one writes it, are in order: by streams, by events, and by the
/// counts that ranks send one another. For a plan without queues there is nothing to prove.
///
/// # Errors
/// The first flaw that is found.
pub fn prove_streams(plan: &Plan) -> Result<(), Flaw> {
    streams::streams(plan)
}

/// Proves that every op of a decoding walk, whose ops are those of an evaluation, finds what it needs, and that the
/// walk overwrites no cache. For a model that caches nothing, decoding is the same as evaluation.
///
/// # Errors
/// The first flaw that is found.
pub fn prove_decoding(plan: &Plan, accesses: &Accesses) -> Result<(), Flaw> {
    if !caches(plan.units) {
        return Ok(());
    }
    let pass = Pass::Evaluate;
    let ops: Vec<&[Op]> = (0..plan.config.mesh.ranks()).map(|rank| plan.of_rank(rank).ops(pass)).collect();
    let ranks = Ranks { plan, pass, ops: &ops, groups: Groups::of(plan) };
    flow::flow(&ranks, accesses, true)?;
    messages::messages(&ranks, accesses, true, &messages::posted)
}

/// One pass of all ranks, which a proof examines.
struct Ranks<'a> {
    plan: &'a Plan<'a>,
    pass: Pass,
    ops: &'a [&'a [Op]],
    groups: Groups,
}

impl Ranks<'_> {
    fn flaw(&self, rule: impl Into<String>, places: Vec<Spot>) -> Flaw {
        Flaw { pass: self.pass, rule: rule.into(), places }
    }

    fn spot(&self, rank: usize, op: usize, note: impl Into<String>) -> Spot {
        spot(self.plan, self.ops, rank, op, note.into())
    }

    /// Checks the ops of each rank by themselves, once for all ranks of a pipeline stage that share a table.
    fn check(&self) -> Result<(), Flaw> {
        let mut sound: Vec<(usize, &[Op])> = Vec::new();
        for (rank, &ops) in self.ops.iter().enumerate() {
            let pipeline = self.plan.config.mesh.coordinates(rank).pipeline;
            if sound.iter().any(|&(other, table)| other == pipeline && core::ptr::eq(table, ops)) {
                continue;
            }
            let subject = CheckedTables { pass: self.pass, pipeline, tables: self.plan.tables(), ops };
            let scratch = CheckScratch {
                units: &mut vec![UnitState::NEW; self.plan.units.len()],
                buckets: &mut vec![BucketState::NEW; self.plan.buckets.len()],
                slots: &mut vec![SlotState::NEW; self.plan.tables().activation_slots(pipeline)],
            };
            check(subject, scratch).map_err(|Fault { op, rule }| self.flaw(rule, vec![self.spot(rank, op, "")]))?;
            sound.push((pipeline, ops));
        }
        Ok(())
    }
}

fn spot(plan: &Plan, ops: &[&[Op]], rank: usize, op: usize, note: String) -> Spot {
    Spot { rank, at: plan.config.mesh.coordinates(rank), op, does: ops[rank].get(op).copied(), note }
}

/// The flaw of a pass that cannot end.
pub(crate) fn deadlock(plan: &Plan, pass: Pass, ops: &[&[Op]], stuck: &Stuck) -> Flaw {
    let rule = if stuck.is_cycle {
        "a deadlock: each of these ranks waits for the next, and the last for the first"
    } else {
        "a rank waits for an op that another rank never runs"
    };
    let note = |wait: &Wait| format!("waits for rank {} {}", wait.on, wait.what);
    let places = stuck.waits.iter().map(|wait| spot(plan, ops, wait.rank, wait.op, note(wait)));
    Flaw { pass, rule: rule.to_owned(), places: places.collect() }
}
