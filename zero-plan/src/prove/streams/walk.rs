//! Walk: goes through the ops of all ranks in a possible order, and keeps for each stream what is known to be done
//! before its next op. Never concludes from the order of the walk that one op is before another.

use super::clock::{KnownDone, OpNumber, StreamChain};
use super::memory::{TouchedMemory, Unordered};
use super::signals::{AwaitedCounts, CountedRanks, QueuedSoFar, SignalCount};
use super::{Flaw, spot};
use crate::config::Config;
use crate::mesh::{Axis, Coordinates};
use crate::pipeline::Pass;
use crate::place::{Access, Accesses, Position};
use crate::plan::Plan;
use crate::schedule::{Op, Stream};
use crate::streams::Queued;

pub(super) struct StreamsWalk<'a> {
    plan: &'a Plan<'a>,
    passes: &'a [Pass],
    accesses: &'a Accesses<'a>,
    memory: TouchedMemory,
    ranks: Vec<WalkingRank>,
    /// For each rank and count: a clock for each time that it was raised.
    raised: Vec<[Vec<KnownDone>; SignalCount::LEN]>,
    /// For each rank, the clock after each of its ops; only for tests.
    #[cfg(test)]
    pub clocks: Vec<Vec<KnownDone>>,
}

/// The progress of a rank.
struct WalkingRank {
    pass: usize,
    op: usize,
    /// Ops of all passes so far.
    number: u32,
    /// A clock for each of its streams: what is known to be done before the next op there.
    streams: [KnownDone; Stream::ALL.len()],
    /// The clocks after the ops of this pass.
    done: Vec<KnownDone>,
    told: QueuedSoFar,
    position: Position,
    /// The op that last raised each count.
    raisers: [Option<OpNumber>; SignalCount::LEN],
    /// The op that it is in, if that op waits.
    inside: Option<Inside>,
}

/// An op that has begun.
#[derive(Clone)]
struct Inside {
    moment: OpNumber,
    clock: KnownDone,
    awaited: [Option<AwaitedCounts>; 2],
}

impl<'a> StreamsWalk<'a> {
    pub fn new(plan: &'a Plan<'a>, passes: &'a [Pass], accesses: &'a Accesses<'a>) -> Self {
        let ranks = plan.config.mesh.ranks();
        let rank = |_| WalkingRank {
            pass: 0,
            op: 0,
            number: 0,
            streams: core::array::from_fn(|_| KnownDone::new(ranks)),
            done: Vec::new(),
            told: QueuedSoFar::new(plan),
            position: Position::new(plan.units.len()),
            raisers: [None; SignalCount::LEN],
            inside: None,
        };
        Self {
            plan,
            passes,
            accesses,
            memory: TouchedMemory::new(plan),
            ranks: (0..ranks).map(rank).collect(),
            raised: (0..ranks).map(|_| Default::default()).collect(),
            #[cfg(test)]
            clocks: vec![Vec::new(); ranks],
        }
    }

    /// Walks to the end.
    pub fn run(&mut self) -> Result<(), Flaw> {
        let mut moved = true;
        while moved {
            moved = false;
            for rank in 0..self.ranks.len() {
                while self.advance(rank)? {
                    moved = true;
                }
            }
        }
        match (0..self.ranks.len()).find(|&rank| self.ranks[rank].pass < self.passes.len()) {
            Some(rank) => {
                let WalkingRank { pass, op, .. } = self.ranks[rank];
                let places = vec![spot(self.plan, self.passes[pass], rank, op, "")];
                let rule = "an op that waits for a count that is never raised".to_owned();
                Err(Flaw { pass: self.passes[pass], rule, places })
            }
            None => Ok(()),
        }
    }

    /// Runs the next op of a rank, if it need not wait. Returns whether it did.
    fn advance(&mut self, rank: usize) -> Result<bool, Flaw> {
        let own = &mut self.ranks[rank];
        let Some(&pass) = self.passes.get(own.pass) else { return Ok(false) };
        let pipeline_stage = self.plan.of_rank(rank);
        let Some(&op) = pipeline_stage.ops(pass).get(own.op) else {
            own.meet(&self.plan.config, &self.passes[own.pass..]);
            return Ok(true);
        };
        let queued = pipeline_stage.queue(pass)[own.op];
        if own.inside.is_none() {
            self.begin(rank, pass, op, queued)?;
        }
        let Some(mut inside) = self.ranks[rank].inside.take() else { return Ok(false) };
        for awaited in inside.awaited.into_iter().flatten() {
            for other in self.whose(rank, awaited.whose) {
                let Some(before) = awaited.times.checked_sub(1) else { continue };
                let Some(clock) = self.raised[other][awaited.count.index()].get(before) else {
                    self.ranks[rank].inside = Some(inside);
                    return Ok(false);
                };
                inside.clock.join(clock);
            }
        }
        self.finish(rank, pass, op, queued.stream, inside)?;
        Ok(true)
    }

    /// Begins an op: waits for its event, and raises the count that it raises before it waits for other ranks.
    fn begin(&mut self, rank: usize, pass: Pass, op: Op, queued: Queued) -> Result<(), Flaw> {
        let own = &mut self.ranks[rank];
        own.number += 1;
        let chain = StreamChain::of(rank, queued.stream);
        let [in_pass, at] = [own.pass as u32, own.op as u32];
        let moment = OpNumber { chain, number: own.number, rank: rank as u32, pass: in_pass, op: at };
        let mut clock = own.streams[queued.stream as usize].clone();
        if let Some(before) = queued.waits_for() {
            clock.join(&own.done[before]);
        }
        let first = own.told.first(op);
        if let Op::Agree = op {
            // The sums have been read before the op raises its count.
            clock.pass(moment);
            self.access(pass, op, moment, &clock)?;
        }
        if let Some(count) = first {
            self.raise(count, moment, &clock)?;
        }
        let own = &mut self.ranks[rank];
        let pipeline = self.plan.config.mesh.coordinates(rank).pipeline;
        let mut awaited = own.told.awaits(self.plan, pipeline, op, &own.position);
        if !self.plan.config.device.has_streams() {
            // Ranks are walked each for itself: see `is_done_by`.
            awaited = [None; 2];
        } else if self.plan.config.transport.carries() {
            // There are no counts along an axis: each rank's own op sends the bytes that other ranks receive.
            awaited = awaited.map(|awaited| awaited.filter(|awaited| !matches!(awaited.whose, CountedRanks::Along(_))));
        }
        own.inside = Some(Inside { moment, clock, awaited });
        Ok(())
    }

    /// Ends an op that has all that it waits for.
    fn finish(&mut self, rank: usize, pass: Pass, op: Op, stream: Stream, inside: Inside) -> Result<(), Flaw> {
        let Inside { moment, mut clock, .. } = inside;
        clock.pass(moment);
        if op != Op::Agree {
            self.access(pass, op, moment, &clock)?;
        }
        let own = &mut self.ranks[rank];
        for count in own.told.ends(self.plan, op, &own.position).into_iter().flatten() {
            self.raise(count, moment, &clock)?;
        }
        #[cfg(test)]
        self.clocks[rank].push(clock.clone());
        let own = &mut self.ranks[rank];
        own.position.pass(op);
        own.op += 1;
        own.streams[stream as usize].clone_from(&clock);
        own.done.push(clock);
        Ok(())
    }

    fn whose(&self, rank: usize, whose: CountedRanks) -> Vec<usize> {
        let mesh = &self.plan.config.mesh;
        let at = mesh.coordinates(rank);
        match whose {
            CountedRanks::Along(axis) => {
                let along = (0..mesh.len(axis)).map(|index| match axis {
                    Axis::Zero => Coordinates { zero: index, ..at },
                    Axis::Replica => Coordinates { replica: index, ..at },
                    Axis::Pipeline => Coordinates { pipeline: index, ..at },
                });
                along.map(|at| mesh.rank(at)).filter(|&other| other != rank).collect()
            }
            CountedRanks::All => (0..mesh.ranks()).collect(),
            CountedRanks::At(pipeline) => vec![mesh.rank(Coordinates { pipeline, ..at })],
        }
    }

    /// Raises a count of the rank of an op.
    fn raise(&mut self, count: SignalCount, moment: OpNumber, clock: &KnownDone) -> Result<(), Flaw> {
        let rank = moment.rank as usize;
        let before = self.ranks[rank].raisers[count.index()].replace(moment);
        if let Some(before) = before.filter(|&before| before.number != moment.number && !clock.knows(before)) {
            // Otherwise a rank that waits for the earlier op would continue when the later one raises the count.
            let rule = format!("nothing orders two ops that raise one count, {count:?}");
            return Err(self.unordered(rule, before, "raises it", moment, "raises it"));
        }
        self.raised[rank][count.index()].push(clock.clone());
        Ok(())
    }

    /// Makes all accesses of an op that its own rank makes.
    fn access(&mut self, pass: Pass, op: Op, moment: OpNumber, clock: &KnownDone) -> Result<(), Flaw> {
        let (plan, memory) = (self.plan, &mut self.memory);
        let rank = moment.rank as usize;
        let mut found: Option<(Unordered, Access)> = None;
        let at = plan.config.mesh.coordinates(rank);
        (self.accesses)(plan, pass, op, &self.ranks[rank].position, at, &mut |access| {
            if found.is_none()
                && is_done_by(plan, op, at, &access)
                && let Err(unordered) = memory.access(plan, moment, clock, &access)
            {
                found = Some((unordered, access));
            }
        });
        let Some((Unordered { earlier, wrote }, Access { at, place, writes, .. })) = found else { return Ok(()) };
        let verb = |writes| if writes { "writes it" } else { "reads it" };
        let rule = format!("nothing orders two accesses to {place:?} of rank {}", plan.config.mesh.rank(at));
        Err(self.unordered(rule, earlier, verb(wrote), moment, verb(writes)))
    }

    fn unordered(&self, rule: String, earlier: OpNumber, did: &str, later: OpNumber, does: &str) -> Flaw {
        let spot = |moment: OpNumber, does: &str| {
            let (rank, pass, op) = (moment.rank as usize, self.passes[moment.pass as usize], moment.op as usize);
            let stream = self.plan.of_rank(rank).queue(pass)[op].stream.name();
            let when = if moment.pass < later.pass { ", in a pass before" } else { "" };
            spot(self.plan, pass, rank, op, format!("{does} in stream `{stream}`{when}"))
        };
        Flaw { pass: self.passes[later.pass as usize], rule, places: vec![spot(earlier, did), spot(later, does)] }
    }
}

/// Whether the rank at `at` makes an access of an op itself. Bytes that the transport carries along an axis are read by
/// their owner, in the same op.
///
/// On a device without streams, a rank makes one access after another, except those of tiers. Only the order of these is
/// shown here. They touch places of their own rank, none of which ranks hold in common. Peers read some of them, the
/// sums; a tier writes these no earlier than its op stands in the table, which is where the proof of contents takes it.
pub(super) fn is_done_by(plan: &Plan, op: Op, at: Coordinates, access: &Access) -> bool {
    if !plan.config.device.has_streams() {
        return access.at == at && !plan.places(at).memory.region(access.place.region).home.is_common();
    }
    access.at == at || !plan.config.transport.carries() || op.traits().axis.is_none()
}

/// Whether what a publication takes to the host goes on after it: the first of the passes left is one, and the next is another pass,
/// which touches none of it.
fn goes_on(passes: &[Pass]) -> bool {
    matches!(passes, [Pass::Publish, Pass::Train | Pass::Evaluate, ..])
}

impl WalkingRank {
    /// Ends a pass: each stream then knows what all of them have done. What a publication takes to the host goes on, unless the next
    /// pass is a publication, too.
    fn meet(&mut self, config: &Config, passes: &[Pass]) {
        let [mut all, others @ ..] = self.streams.clone();
        let (stores, goes_on) = (Stream::Store as usize, config.stores_published() && goes_on(passes));
        let joins = |stream: &usize| !goes_on || *stream != stores;
        others.iter().enumerate().filter(|(at, _)| joins(&(at + 1))).for_each(|(_, other)| all.join(other));
        for (at, stream) in self.streams.iter_mut().enumerate() {
            if joins(&at) { stream.clone_from(&all) } else { stream.join(&all) }
        }
        self.done.clear();
        self.position.restart();
        // Each publication writes the next copy.
        if passes.first() == Some(&Pass::Publish) {
            self.position.copy = (self.position.copy + 1) % config.publish.copies.max(1);
        }
        (self.pass, self.op) = (self.pass + 1, 0);
    }
}
