//! Traffic: bytes that a rank sends in one pass over a schedule, counted from the places of its ops and from the peers
//! that it posts messages for. Never asks each peer for its places: there may be thousands. Never measures.

use core::ops::{AddAssign, Sub};

use crate::config::{Config, TierKind};
use crate::footprint::exchanged_bytes;
use crate::layout::Home;
use crate::mesh::{Axis, Coordinates};
use crate::pipeline::Pass;
use crate::place::{Places, given_bytes};
use crate::plan::Plan;
use crate::postings::{PostingBatch, each_peer};
use crate::schedule::{Op, OpTraits, Parcel, Stream};

/// Bytes that one rank sends, by purpose. A ring, like any algorithm that sends no byte twice, moves (N-1)/N of a
/// buffer for an all-gather and as much for a reduce-scatter; an all-reduce is one of each (ZeRO paper, section 7).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// All-gather of parameters along `zero`.
    pub gather_bytes: usize,
    /// Reduce-scatter of gradients along `zero`.
    pub reduce_bytes: usize,
    /// All-gather along `zero` of summed gradients, the second half of an all-reduce, or of directions made of them.
    pub spread_bytes: usize,
    /// Reduce-scatter of shards of gradients along `replica`.
    pub replica_reduce_bytes: usize,
    /// All-gather of summed parts of shards along `replica`.
    pub replica_spread_bytes: usize,
    /// Activations to the next pipeline stage.
    pub activation_bytes: usize,
    /// Gradients of activations to the pipeline stage before.
    pub gradient_bytes: usize,
    /// Tied parameters and their gradients, between pipeline stages.
    pub tied_bytes: usize,
    /// Loss and gradient norms, to all ranks.
    pub agree_bytes: usize,
}

/// Bytes that a rank sends or receives, by whether they are copied or read in place if ranks share memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// Bytes that are copied from the memory of one rank to that of another.
    pub copied: Traffic,
    /// Bytes that are read where their owner wrote them: views of gathered parameters, the terms of sums.
    pub in_place: Traffic,
}

impl Moved {
    /// The bytes that a rank sends in one pass over `ops`, which belong to `plan`.
    pub fn sent(plan: &Plan, rank: usize, ops: &[Op]) -> Self {
        Self::sum(plan, rank, ops, true)
    }

    /// The bytes that a rank receives from its peers in such a pass. Along `zero` and `replica` all ranks do the same,
    /// so a rank receives as much as it sends, unless hosts send one another different numbers of sums. Parcels are
    /// counted where they arrive.
    pub fn taken(plan: &Plan, rank: usize, ops: &[Op]) -> Self {
        Self::sum(plan, rank, ops, false)
    }

    /// The sum of both.
    pub fn all(&self) -> Traffic {
        let mut all = self.copied;
        all += self.in_place;
        all
    }

    fn sum(plan: &Plan, rank: usize, ops: &[Op], is_sent: bool) -> Self {
        let all = Traffic::sum(plan, rank, ops, is_sent, Exchange::all_bytes);
        let in_place = Traffic::sum(plan, rank, ops, is_sent, Exchange::bytes_in_place);
        Self { copied: all - in_place, in_place }
    }
}

/// Bytes that travel between a rank's tier and its window, whole blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TierBytes {
    /// Bytes that are read from the tier.
    pub read: usize,
    /// Bytes that are written to it.
    pub written: usize,
}

impl TierBytes {
    /// Those of a training step.
    pub fn of(plan: &Plan, rank: usize) -> Self {
        Self::where_home(plan, rank, Pass::Train, |_| true)
    }

    /// Those between one of its tiers and its window.
    pub fn in_tier(plan: &Plan, rank: usize, tier: TierKind) -> Self {
        Self::where_home(plan, rank, Pass::Train, |home| Some(home) == tier.home())
    }

    /// The same of a publication, without its copies.
    pub fn of_publication(plan: &Plan, rank: usize, tier: TierKind) -> Self {
        Self::where_home(plan, rank, Pass::Publish, |home| Some(home) == tier.home())
    }

    fn where_home(plan: &Plan, rank: usize, pass: Pass, is_counted: impl Fn(Home) -> bool) -> Self {
        let own = plan.places(plan.config.mesh.coordinates(rank));
        let mut all = Self::default();
        for &op in plan.of_rank(rank).ops(pass) {
            let counted = own.trips(op).filter(|(kept, _)| is_counted(own.memory.region(kept.region).home));
            let bytes = counted.map(|(kept, _)| kept.len_bytes).sum::<usize>();
            match op.traits().stream {
                Stream::Fetch => all.read += bytes,
                Stream::Store => all.written += bytes,
                _ => {}
            }
        }
        all
    }
}

/// Bytes of a published version that a rank copies and serves; 0 if the plan publishes nothing.
pub fn published_bytes(plan: &Plan, rank: usize) -> usize {
    if plan.config.publishes() { plan.places(plan.config.mesh.coordinates(rank)).copy(0).len_bytes } else { 0 }
}

/// The bytes that a rank sends or receives in an op.
struct Exchange<'a> {
    plan: &'a Plan<'a>,
    own: Places<'a>,
    op: Op,
    is_sent: bool,
}

impl Exchange<'_> {
    fn all_bytes(&self) -> usize {
        let (config, others) = (&self.plan.config, self.others());
        match self.op {
            Op::Agree => others * self.plan.agreed_values() * size_of::<f64>(),
            op if is_summed_on_hosts(config, op) => self.bytes_in_place() + self.bytes_between_hosts(),
            // Each sends as much as this rank.
            op => others * given_bytes(self.plan, op, &self.own),
        }
    }

    /// The bytes that peers that reach one another read where they lie.
    fn bytes_in_place(&self) -> usize {
        match self.op {
            op if !is_read_in_place(&self.plan.config, op) => 0,
            op if is_summed_on_hosts(&self.plan.config, op) => self.terms_bytes(),
            op => {
                let mut near = self.others();
                each_peer(self.plan, self.own.at, op, self.is_sent, &mut |_| near -= 1);
                near * given_bytes(self.plan, op, &self.own)
            }
        }
    }

    /// The bytes that it sends to ranks of other hosts, or receives from them.
    fn bytes_between_hosts(&self) -> usize {
        let (plan, config, mesh) = (self.plan, &self.plan.config, &self.plan.config.mesh);
        if let Op::Agree = self.op {
            let (numbers, far) = (plan.agreed_values(), mesh.ranks() - mesh.ranks_per_node());
            let by_ranks = if config.transport.carries() { far * numbers * size_of::<f64>() } else { 0 };
            let by_hosts = (mesh.nodes - 1) * exchanged_bytes(numbers);
            return if config.spans_hosts() { by_hosts + by_ranks } else { 0 };
        }
        // Hosts may have different numbers of sums. Otherwise peers send as much as this rank.
        let is_uneven = !self.is_sent && is_summed_on_hosts(config, self.op);
        let (mut bytes, rank, own) = (0, mesh.rank(self.own.at), given_bytes(plan, self.op, &self.own));
        each_peer(plan, self.own.at, self.op, self.is_sent, &mut |PostingBatch { peer, .. }| {
            let given = || given_bytes(plan, self.op, &plan.places(mesh.coordinates(peer)));
            bytes += match config.shares_host(rank, peer) {
                true => 0,
                false if is_uneven => given(),
                false => own,
            };
        });
        bytes
    }

    /// The number of ranks that it exchanges bytes with.
    fn others(&self) -> usize {
        let mesh = &self.plan.config.mesh;
        match self.op {
            Op::Agree => mesh.ranks() - 1,
            op => op.traits().axis.map_or(1, |axis| mesh.len(axis) - 1),
        }
    }

    /// The bytes of the terms of other ranks of its host that it reads, for the sums that hosts make for one another.
    fn terms_bytes(&self) -> usize {
        let OpTraits { bucket: Some(bucket), round: Some(round), axis: Some(axis), .. } = self.op.traits() else {
            return 0;
        };
        let terms = (self.plan.config.ranks_per_host(axis) - 1) * self.plan.config.hosts_along(axis);
        terms * given_bytes(self.plan, Op::Subtotal { bucket, round, axis }, &self.own)
    }
}

/// The op whose places determine the bytes that a rank sends or receives in `op`, if there are any. Terms of sums along
/// `zero` are counted where they are offered, and received parcels where they arrive.
const fn exchanged(op: Op, is_sent: bool) -> Option<Op> {
    match op {
        Op::Reduce { bucket, round } => Some(Op::Settle { bucket, round }),
        Op::Gather { .. } | Op::Combine { .. } | Op::Spread { .. } | Op::Agree => Some(op),
        Op::Send { .. } if is_sent => Some(op),
        Op::Receive { .. } if !is_sent => Some(op),
        _ => None,
    }
}

/// Whether an op adds up sums that hosts have made of their terms.
const fn is_summed_on_hosts(config: &Config, op: Op) -> bool {
    match op {
        Op::Settle { .. } => config.sums_on_hosts(Axis::Zero),
        Op::Combine { .. } => config.sums_on_hosts(Axis::Replica),
        _ => false,
    }
}

impl Plan<'_> {
    /// The first of the ranks of a pipeline stage that send most. All send the same, unless hosts send one another
    /// different numbers of sums.
    pub fn busiest_rank(&self, pipeline: usize) -> usize {
        let config = &self.config;
        let first = Coordinates { zero: 0, replica: 0, pipeline };
        let at = config.subtotal_axis().map_or(first, |axis| {
            let sums = |host: &usize| core::cmp::Reverse(config.subtrees(axis).count_of(*host));
            let host = (0..config.hosts_along(axis)).min_by_key(sums).unwrap_or(0);
            first.with(axis, host * config.ranks_per_host(axis))
        });
        config.mesh.rank(at)
    }

    /// Whether all ranks of a pipeline stage send the same number of bytes.
    pub fn sends_alike(&self) -> bool {
        self.config.subtotal_axis().is_none_or(|axis| {
            let subtrees = self.config.subtrees(axis);
            subtrees.count() == subtrees.most() * self.config.hosts_along(axis)
        })
    }
}

/// Whether peers that reach a rank read the bytes of an op in place. Otherwise they are copied.
fn is_read_in_place(config: &Config, op: Op) -> bool {
    match op {
        // A gather into a rank's own slot, or into a replica, copies.
        Op::Gather { .. } => config.shards_parameters() && (!config.uses_slots() || config.shares_slots()),
        Op::Settle { .. } | Op::Combine { .. } => true,
        Op::Send { parcel, .. } | Op::Receive { parcel, .. } => matches!(parcel, Parcel::TiedGradients),
        _ => false,
    }
}

impl Traffic {
    /// The bytes that a rank sends in one pass over `ops`, which belong to its schedule.
    pub fn of(plan: &Plan, rank: usize, ops: &[Op]) -> Self {
        Self::sum(plan, rank, ops, true, Exchange::all_bytes)
    }

    /// The part of these bytes that goes to ranks of other hosts. MPI sends loss and norms, and the reason for their
    /// exchange, once to each other host. Under `Nccl` the numbers also go to each rank there.
    pub fn between_hosts(plan: &Plan, rank: usize, ops: &[Op]) -> Self {
        Self::sum(plan, rank, ops, true, Exchange::bytes_between_hosts)
    }

    /// The bytes that it receives from ranks of other hosts in such a pass: they have other sums, and other parcels.
    pub fn from_hosts(plan: &Plan, rank: usize, ops: &[Op]) -> Self {
        Self::sum(plan, rank, ops, false, Exchange::bytes_between_hosts)
    }

    fn sum<'a>(plan: &'a Plan<'a>, rank: usize, ops: &[Op], is_sent: bool, bytes: fn(&Exchange<'a>) -> usize) -> Self {
        let (mut sum, own) = (Self::default(), plan.places(plan.config.mesh.coordinates(rank)));
        for op in ops.iter().filter_map(|&op| exchanged(op, is_sent)) {
            *sum.part_mut(op) += bytes(&Exchange { plan, own, op, is_sent });
        }
        sum
    }

    /// The part that the bytes of an op belong to.
    const fn part_mut(&mut self, op: Op) -> &mut usize {
        match op {
            Op::Gather { .. } => &mut self.gather_bytes,
            Op::Combine { .. } => &mut self.replica_reduce_bytes,
            Op::Spread { axis: Axis::Zero, .. } => &mut self.spread_bytes,
            Op::Spread { .. } => &mut self.replica_spread_bytes,
            Op::Send { parcel, .. } | Op::Receive { parcel, .. } => match parcel {
                Parcel::Activations => &mut self.activation_bytes,
                Parcel::Gradients => &mut self.gradient_bytes,
                Parcel::TiedGradients | Parcel::TiedParameters => &mut self.tied_bytes,
            },
            Op::Agree => &mut self.agree_bytes,
            _ => &mut self.reduce_bytes,
        }
    }

    /// Bytes of sums along an axis.
    pub const fn reduced_mut(&mut self, axis: Axis) -> &mut usize {
        match axis {
            Axis::Zero => &mut self.reduce_bytes,
            Axis::Replica | Axis::Pipeline => &mut self.replica_reduce_bytes,
        }
    }

    /// Bytes along an axis.
    pub fn on(&self, axis: Axis) -> usize {
        match axis {
            Axis::Zero => self.gather_bytes + self.reduce_bytes + self.spread_bytes,
            Axis::Replica => self.replica_reduce_bytes + self.replica_spread_bytes,
            Axis::Pipeline => self.activation_bytes + self.gradient_bytes + self.tied_bytes,
        }
    }

    /// Bytes of parameters and gradients, as the published volumes count them.
    pub fn payload_bytes(&self) -> usize {
        self.on(Axis::Zero) + self.on(Axis::Replica)
    }

    /// All bytes.
    pub fn total_bytes(&self) -> usize {
        Axis::ALL.map(|axis| self.on(axis)).iter().sum::<usize>() + self.agree_bytes
    }
}

/// A part of traffic: its name in reports, and its bytes.
pub type NamedBytes = (&'static str, fn(&Traffic) -> usize);

impl Traffic {
    /// The parts along an axis. With the agreement on loss and norm of all ranks, these are all parts.
    pub const fn parts(axis: Axis) -> &'static [NamedBytes] {
        match axis {
            Axis::Zero => &[
                ("parameter all-gather", |traffic| traffic.gather_bytes),
                ("gradient reduce-scatter", |traffic| traffic.reduce_bytes),
                ("gradient all-gather", |traffic| traffic.spread_bytes),
            ],
            Axis::Replica => &[
                ("shard reduce-scatter", |traffic| traffic.replica_reduce_bytes),
                ("shard all-gather", |traffic| traffic.replica_spread_bytes),
            ],
            Axis::Pipeline => &[
                ("activations", |traffic| traffic.activation_bytes),
                ("activation gradients", |traffic| traffic.gradient_bytes),
                ("tied parameters", |traffic| traffic.tied_bytes),
            ],
        }
    }

    fn zip(self, other: Self, each: impl Fn(usize, usize) -> usize) -> Self {
        Self {
            gather_bytes: each(self.gather_bytes, other.gather_bytes),
            reduce_bytes: each(self.reduce_bytes, other.reduce_bytes),
            spread_bytes: each(self.spread_bytes, other.spread_bytes),
            replica_reduce_bytes: each(self.replica_reduce_bytes, other.replica_reduce_bytes),
            replica_spread_bytes: each(self.replica_spread_bytes, other.replica_spread_bytes),
            activation_bytes: each(self.activation_bytes, other.activation_bytes),
            gradient_bytes: each(self.gradient_bytes, other.gradient_bytes),
            tied_bytes: each(self.tied_bytes, other.tied_bytes),
            agree_bytes: each(self.agree_bytes, other.agree_bytes),
        }
    }
}

impl AddAssign for Traffic {
    fn add_assign(&mut self, other: Self) {
        *self = self.zip(other, |a, b| a + b);
    }
}

impl Sub for Traffic {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        self.zip(before, |a, b| a - b)
    }
}

impl AddAssign for Moved {
    fn add_assign(&mut self, other: Self) {
        self.copied += other.copied;
        self.in_place += other.in_place;
    }
}

impl Sub for Moved {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        Self { copied: self.copied - before.copied, in_place: self.in_place - before.in_place }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::PlanBuf;
    use crate::config::{DeviceKind, TransportKind};
    use crate::mesh::Mesh;
    use crate::unit::Unit;

    /// Each of four ranks has 128 of a unit's 512 parameters, in f32. It sends each of the two ranks on the other host
    /// its shard in each of two gathers, and their parts of its gradients in one reduction. It also sends each of them
    /// all numbers, besides one message by MPI.
    #[test]
    fn what_nccl_carries_between_hosts_goes_to_each_rank_there() {
        let unit = Unit { field: "only", params: 512, takes: 8, input_bytes: 32, output_bytes: 32, ..Unit::NONE };
        let sent = |nodes| {
            let mesh = Mesh { nodes, ..Mesh::of_zero(4) };
            let config = Config { mesh, device: DeviceKind::Cuda, transport: TransportKind::Nccl, ..Config::PLAIN };
            let plan = PlanBuf::new("", config.at_stage(3), &[unit, Unit { source: 1, ..unit }]);
            plan.with(|plan| {
                let numbers = plan.agreed_values();
                (Traffic::between_hosts(plan, 1, plan.pipeline_stages[0].step), numbers)
            })
        };
        assert_eq!(sent(1).0, Traffic::default());
        let (between, numbers) = sent(2);
        // The last unit of the forward is the first of the backward, so it is gathered once.
        assert_eq!((between.gather_bytes, between.reduce_bytes), (3 * 2 * 128 * 4, 2 * 2 * 128 * 4));
        assert_eq!(between.agree_bytes, exchanged_bytes(numbers) + 2 * numbers * 8);
        assert_eq!(between.total_bytes(), between.gather_bytes + between.reduce_bytes + between.agree_bytes);
    }
}
