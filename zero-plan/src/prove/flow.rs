//! Flow: follows the content of every byte of every rank's arena while a pass runs, by the places of its ops.
//! Everything that an op reads must lie there completely: written by the op that made it, on the rank that made it, and
//! not overwritten since.

use std::collections::{BTreeMap, HashMap};

use super::order::TermsRead;
use super::{Flaw, Ranks};
use crate::config::Config;
use crate::execution::execute;
use crate::layout::Kind;
use crate::mesh::{Axis, Coordinates};
use crate::pipeline::Pass;
use crate::place::{
    Access, Accesses, Content, Place, Places, Position, State, arrivals, published, sums_between_steps,
};
use crate::plan::Plan;
use crate::schedule::Op;

/// A stretch of a region with a single content.
#[derive(Clone, Copy)]
struct ContentPiece {
    end: usize,
    content: Content,
    /// The byte of its content with which the stretch begins.
    from_byte: usize,
}

/// The pieces of a region, by their starts.
type Pieces = BTreeMap<usize, ContentPiece>;

pub(super) struct ContentFlow<'a> {
    plan: &'a Plan<'a>,
    memory: HashMap<(usize, Kind), Pieces>,
}

/// Proves that every op of a pass finds what it needs at the places of `accesses`, and that everything that a rank
/// keeps is there at the end: parameters and their states and, if the pass `decodes`, the caches.
pub(super) fn flow(ranks: &Ranks, accesses: &Accesses, decodes: bool) -> Result<(), Flaw> {
    // A plan without copies has no publication.
    let walks = if ranks.pass == Pass::Publish { ranks.plan.config.publish.copies } else { 1 };
    (0..walks).try_for_each(|copy| flow_into(ranks, accesses, decodes, copy))
}

/// The same for the publications that write one of the copies; for other passes the copy does not matter.
fn flow_into(ranks: &Ranks, accesses: &Accesses, decodes: bool, copy: usize) -> Result<(), Flaw> {
    let Ranks { plan, pass, ops, ref groups } = *ranks;
    let mut flow = ContentFlow::new(plan, pass, copy);
    let mut positions = vec![Position::new(plan.units.len()); ops.len()];
    positions.iter_mut().for_each(|position| position.copy = copy);
    let mut done = vec![0; ops.len()];
    let mut flaw = None;
    let mut run = |rank: usize, op: Op| {
        let at = plan.config.mesh.coordinates(rank);
        let (mut rule, mut order) = (None, TermsRead::new(ranks, op, at));
        // All ranks have begun the op, and bytes that host peers receive for this rank arrive before any of them ends it.
        for peer in receivers(plan, rank, op).filter(|&peer| ops[peer].get(done[peer]) == Some(&op)) {
            let at = plan.config.mesh.coordinates(peer);
            let mut places = Vec::new();
            arrivals(plan, op, &positions[peer], &plan.places(at), &mut |arrival| places.push(arrival.to));
            accesses(plan, pass, op, &positions[peer], at, &mut |access| {
                if access.writes && access.at == at && places.contains(&access.place) {
                    rule = rule.take().or_else(|| flow.wrong(at, reach(&plan.config, op), &access));
                }
            });
        }
        accesses(plan, pass, op, &positions[rank], at, &mut |access| {
            let broken = rule.take().or_else(|| flow.wrong(at, reach(&plan.config, op), &access));
            rule = broken.or_else(|| order.wrong(&access));
        });
        if let Some(rule) = rule
            && flaw.is_none()
        {
            flaw = Some(ranks.flaw(rule, vec![ranks.spot(rank, done[rank], "")]));
        }
        positions[rank].pass(op);
        done[rank] += 1;
        0
    };
    execute(plan, groups, ops, &mut run).map_err(|stuck| super::deadlock(plan, pass, ops, &stuck))?;
    if let Some(flaw) = flaw {
        return Err(flaw);
    }
    for (rank, ops) in ops.iter().enumerate() {
        let is_stale = |access: Access| flow.wrong(access.at, None, &access);
        let cached = if decodes { caches(plan, rank) } else { Vec::new() };
        let at = plan.config.mesh.coordinates(rank);
        let sums = if pass == Pass::Train { sums_between_steps(plan, at, true) } else { Vec::new() };
        let copies = (0..plan.config.publish.copies).filter(|_| pass == Pass::Publish);
        let published = copies.flat_map(|copy| published(plan, at, copy));
        let is_updated = pass != Pass::Evaluate && !plan.config.serves();
        let mut all = held(plan, rank, is_updated).into_iter().chain(sums).chain(cached).chain(published);
        if let Some(rule) = all.find_map(is_stale) {
            return Err(ranks.flaw(rule, vec![ranks.spot(rank, ops.len(), "")]));
        }
    }
    Ok(())
}

/// The axis along which an op reads the memory of other ranks, if it does.
fn reach(config: &Config, op: Op) -> Option<Axis> {
    let reads_in_common = config.shards_parameters() && !config.uses_slots();
    match op {
        Op::Gather { .. } | Op::Wait { .. } | Op::Settle { .. } => Some(Axis::Zero),
        Op::Combine { .. } => Some(Axis::Replica),
        Op::Subtotal { axis, .. } | Op::Spread { axis, .. } => Some(axis),
        Op::Receive { .. } => Some(Axis::Pipeline),
        // In common memory an op reads the shards of other ranks where they lie.
        Op::Forward { .. } | Op::Recompute { .. } | Op::Backward { .. } if reads_in_common => Some(Axis::Zero),
        _ => None,
    }
}

/// The host peers that receive the bytes from other hosts that a rank reads in the same op.
fn receivers(plan: &Plan, rank: usize, op: Op) -> impl Iterator<Item = usize> + use<> {
    let (config, own) = (plan.config, plan.config.mesh.coordinates(rank));
    let axis = if let Op::Spread { axis, .. } = op { Some(axis) } else { None };
    axis.into_iter().flat_map(move |axis| {
        let (index, per_host) = (own.along(axis), config.ranks_per_host(axis));
        let first = index / per_host * per_host;
        let others = (first..first + per_host).filter(move |&peer| peer != index);
        others.map(move |peer| config.mesh.rank(own.with(axis, peer)))
    })
}

/// Accesses that read the parameters and their states, as a rank has them between passes.
fn held(plan: &Plan, rank: usize, is_updated: bool) -> Vec<Access> {
    let at = plan.config.mesh.coordinates(rank);
    let places = plan.places(at);
    let of_unit = |unit: usize| {
        State::ALL.into_iter().filter_map(move |state| {
            let (stretch, place) = places.state(state, unit)?;
            let content = match state {
                State::Parameters => Content::Parameters { unit: plan.units[unit].source, is_updated },
                state => Content::State { state, unit, is_updated },
            };
            let from_byte = place.region.bytes(&plan.config, stretch.start);
            Some(Access { at, place, content, from_byte, writes: false })
        })
    };
    (0..plan.units.len()).flat_map(of_unit).collect()
}

/// Accesses that read the caches of a rank, as the next decoding walk continues with them.
fn caches(plan: &Plan, rank: usize) -> Vec<Access> {
    let at = plan.config.mesh.coordinates(rank);
    let caches =
        |&unit: &usize| plan.placements[unit].pipeline_stage == at.pipeline && plan.units[unit].cache_bytes > 0;
    let cached = (0..plan.units.len()).filter(caches).map(|unit| {
        let place = plan.places(at).decoding().cache(unit);
        Access { at, place, content: Content::Cache { unit }, from_byte: 0, writes: false }
    });
    cached.collect()
}

impl<'a> ContentFlow<'a> {
    /// The start: every rank has its parameters and their states and, in a step that updates them at their use, the sums of the
    /// step before; and nothing else. A publication finds parameters updated, unless it does the updates itself, and all copies but
    /// its own.
    pub fn new(plan: &'a Plan<'a>, pass: Pass, copy: usize) -> Self {
        let mut flow = Self { plan, memory: HashMap::new() };
        for rank in 0..plan.config.mesh.ranks() {
            let at = plan.config.mesh.coordinates(rank);
            let is_updated = pass == Pass::Publish && !plan.config.updates_in(pass);
            held(plan, rank, is_updated).iter().for_each(|access| flow.write(access));
            if pass == Pass::Train || plan.config.updates_in(pass) {
                sums_between_steps(plan, at, false).iter().for_each(|access| flow.write(access));
            }
            if pass == Pass::Publish {
                let others = (0..plan.config.publish.copies).filter(|&other| other != copy);
                others.flat_map(|other| published(plan, at, other)).for_each(|access| flow.write(&access));
            }
        }
        flow
    }

    /// Makes an access of the rank at `own`, which may read ranks along an axis. Returns the rule that it breaks, if any.
    fn wrong(&mut self, own: Coordinates, reach: Option<Axis>, access: &Access) -> Option<String> {
        let Access { at, place, content, writes, .. } = *access;
        let places = self.plan.places(at);
        let verb = if writes { "written" } else { "read" };
        if place.end_bytes() > places.region_bytes(place.region) {
            return Some(format!("{content:?} is {verb} beyond the end of its region: {place:?}"));
        }
        let home = places.memory.region(place.region).home;
        let is_in_line = match reach {
            Some(Axis::Zero) => at == Coordinates { zero: at.zero, ..own },
            Some(Axis::Replica) => at == Coordinates { replica: at.replica, ..own },
            Some(Axis::Pipeline) => at == Coordinates { pipeline: at.pipeline, ..own },
            None => at == own,
        };
        let [own_rank, rank] = [own, at].map(|at| self.plan.config.mesh.rank(at));
        let is_shut = home.is_private() && self.plan.config.reaches(own_rank, rank);
        if !is_in_line || at != own && (writes || is_shut) {
            return Some(format!(
                "{content:?} is {verb} in memory of a rank that has no part in it: {place:?} of {at:?}"
            ));
        }
        if writes {
            self.write(access);
            return None;
        }
        let found = self.other(access)?;
        Some(format!("{content:?} is not where it is read, {place:?} of {at:?}, but {found}"))
    }

    /// The pieces of a region, which ranks may hold in common.
    fn pieces(&mut self, at: Coordinates, region: Kind) -> &mut Pieces {
        let Places { memory, .. } = self.plan.places(at);
        let is_common = memory.region(region).home.is_common();
        let holder = if is_common { self.plan.places(at).first_in_common() } else { at };
        self.memory.entry((self.plan.config.mesh.rank(holder), region)).or_default()
    }

    pub fn write(&mut self, access: &Access) {
        let Place { region, offset_bytes: start, len_bytes } = access.place;
        let end = start + len_bytes;
        let pieces = self.pieces(access.at, region);
        let before = pieces.range(..start).next_back().map(|(&at, &piece)| (at, piece));
        let within: Vec<(usize, ContentPiece)> = pieces.range(start..end).map(|(&at, &piece)| (at, piece)).collect();
        for (at, piece) in before.into_iter().chain(within) {
            if piece.end <= start {
                continue;
            }
            pieces.remove(&at);
            if at < start {
                pieces.insert(at, ContentPiece { end: start, ..piece });
            }
            if piece.end > end {
                pieces.insert(end, ContentPiece { from_byte: piece.from_byte + end - at, ..piece });
            }
        }
        pieces.insert(start, ContentPiece { end, content: access.content, from_byte: access.from_byte });
    }

    /// The content of the first byte of a place that does not hold what an access reads there, if there is one.
    pub fn other(&mut self, access: &Access) -> Option<String> {
        let Place { region, offset_bytes: start, len_bytes } = access.place;
        let (content, from_byte) = (access.content, access.from_byte);
        let pieces = self.pieces(access.at, region);
        let mut at = start;
        while at < start + len_bytes {
            let piece = pieces.range(..=at).next_back().filter(|(_, piece)| piece.end > at);
            let Some((&first, piece)) = piece else { return Some("nothing".to_owned()) };
            let found = piece.from_byte + at - first;
            if piece.content != content {
                return Some(format!("{:?}", piece.content));
            }
            if found != from_byte + at - start {
                return Some(format!("byte {found} of it where byte {} is expected", from_byte + at - start));
            }
            at = piece.end;
        }
        None
    }
}
