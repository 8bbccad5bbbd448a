//! Traffic: bytes that a rank sends in one pass over a schedule, counted from its ops. Never measures.

use core::ops::{AddAssign, Sub};

use crate::config::Config;
use crate::footprint::exchanged_bytes;
use crate::mesh::{Axis, Coordinates};
use crate::place::are_counterparts;
use crate::plan::Plan;
use crate::schedule::{Op, Parcel};
use crate::unit::Unit;

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

/// Bytes that a rank sends or takes, by whether they are copied if ranks share memory.
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

    /// The bytes that a rank takes from its peers in such a pass. Along `zero` and `replica` all ranks do the same, so
    /// a rank takes as much as it sends, unless hosts send one another different numbers of sums. Parcels are counted
    /// where they arrive.
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
        ops.iter().fold(Self::default(), |mut moved, &op| {
            if let Some((axis, bucket)) = summed_on_hosts(&plan.config, op) {
                let [near, sent, taken] = of_hosts(plan, rank, axis, bucket);
                *moved.in_place.reduced_mut(axis) += near;
                *moved.copied.reduced_mut(axis) += if is_sent { sent } else { taken };
                return moved;
            }
            let all = of_op(plan, rank, op, is_sent);
            let partners = if is_read_in_place(&plan.config, op) { partners(plan, rank, op) } else { Vec::new() };
            let near = partners.iter().filter(|&&partner| !brings(plan, rank, partner, op)).count();
            // Each of the partners has an equal share.
            let in_place = if near > 0 { all.share(near, partners.len()) } else { Traffic::default() };
            moved.in_place += in_place;
            moved.copied += all - in_place;
            moved
        })
    }
}

/// The ranks with which a rank exchanges something in a collective op, or to or from which a parcel goes.
fn partners(plan: &Plan, rank: usize, op: Op) -> Vec<usize> {
    let mesh = &plan.config.mesh;
    let at = mesh.coordinates(rank);
    let of = |at: Coordinates| Some(mesh.rank(at)).filter(|&partner| partner != rank);
    match op {
        Op::Gather { .. } | Op::Reduce { .. } | Op::Spread { axis: Axis::Zero, .. } => {
            (0..mesh.zero).filter_map(|zero| of(Coordinates { zero, ..at })).collect()
        }
        Op::Combine { .. } | Op::Spread { .. } => {
            (0..mesh.replica).filter_map(|replica| of(Coordinates { replica, ..at })).collect()
        }
        Op::Send { parcel, .. } => {
            of(Coordinates { pipeline: plan.parcel_receiver(parcel, at.pipeline), ..at }).into_iter().collect()
        }
        Op::Receive { parcel, .. } => {
            of(Coordinates { pipeline: plan.parcel_sender(parcel, at.pipeline), ..at }).into_iter().collect()
        }
        _ => Vec::new(),
    }
}

/// Whether the bytes that one of two ranks gives the other in an op travel directly between them.
fn brings(plan: &Plan, rank: usize, partner: usize, op: Op) -> bool {
    let [own, other] = [rank, partner].map(|rank| plan.config.mesh.coordinates(rank));
    !plan.config.reaches(rank, partner) && are_counterparts(&plan.config, op, own, other)
}

/// The axis and the bucket of the sum that an op belongs to, if hosts make parts of it.
fn summed_on_hosts(config: &Config, op: Op) -> Option<(Axis, usize)> {
    match op {
        Op::Reduce { bucket, .. } if config.sums_on_hosts(Axis::Zero) => Some((Axis::Zero, bucket)),
        Op::Combine { bucket, .. } if config.sums_on_hosts(Axis::Replica) => Some((Axis::Replica, bucket)),
        _ => None,
    }
}

/// If a bucket is summed over hosts: its bytes that a rank reads from its mates, for each host; the bytes of sums, in
/// f32, that it sends to counterparts; and the bytes of sums that come to it from all other hosts.
fn of_hosts(plan: &Plan, rank: usize, axis: Axis, bucket: usize) -> [usize; 3] {
    let config = &plan.config;
    let (part, hosts) = (plan.buckets[bucket].elements / config.mesh.summed_parts(axis), config.hosts_along(axis));
    let (mates, subtrees) = (config.mates(axis), config.subtrees(axis));
    let near = (mates - 1) * hosts * part * config.precision.reduce.bytes();
    let own = subtrees.count_of(config.mesh.coordinates(rank).along(axis) / mates);
    [near, (hosts - 1) * own * part * size_of::<f32>(), (subtrees.count() - own) * part * size_of::<f32>()]
}

/// The bytes that a rank sends in an op, or takes. Except for parcels, it takes as many as it sends.
fn of_op(plan: &Plan, rank: usize, op: Op, is_sent: bool) -> Traffic {
    match op {
        Op::Send { .. } if !is_sent => Traffic::default(),
        Op::Receive { parcel, unit, .. } if !is_sent => carried(plan, parcel, unit, false),
        op => Traffic::of(plan, rank, &[op]),
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
            first.with(axis, host * config.mates(axis))
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

/// Whether peers that reach a rank read the bytes of an op in place. Those of other ops are copied.
fn is_read_in_place(config: &Config, op: Op) -> bool {
    match op {
        // A gather into a rank's own slot, or into a replica, copies.
        Op::Gather { .. } => config.shards_parameters() && (!config.uses_slots() || config.shares_slots()),
        Op::Reduce { .. } | Op::Combine { .. } => true,
        Op::Send { parcel, .. } | Op::Receive { parcel, .. } => matches!(parcel, Parcel::TiedGradients),
        _ => false,
    }
}

/// The bytes of a parcel that `unit` has made, if it is sent, or needs, if it is received.
fn carried(plan: &Plan, parcel: Parcel, unit: usize, is_sent: bool) -> Traffic {
    let (config, placement) = (&plan.config, &plan.placements[unit]);
    let Unit { input_bytes, output_bytes, .. } = plan.units[unit];
    let (activation_bytes, gradient_bytes) =
        if is_sent { (output_bytes, input_bytes) } else { (input_bytes, output_bytes) };
    let none = Traffic::default();
    match parcel {
        Parcel::Activations => Traffic { activation_bytes, ..none },
        Parcel::Gradients => Traffic { gradient_bytes, ..none },
        Parcel::TiedGradients => {
            Traffic { tied_bytes: placement.part(config) * config.precision.reduce.bytes(), ..none }
        }
        Parcel::TiedParameters => {
            let updated = if config.shards_optimizer() { placement.shard(config) } else { placement.padded };
            Traffic { tied_bytes: updated * config.precision.params.bytes(), ..none }
        }
    }
}

impl Traffic {
    /// The bytes that a rank sends in one pass over `ops`, which belong to its schedule.
    pub fn of(plan: &Plan, rank: usize, ops: &[Op]) -> Self {
        ops.iter().fold(Self::default(), |mut traffic, &op| {
            traffic.add(plan, rank, op);
            traffic
        })
    }

    /// The part of that that a rank sends to ranks of other hosts. MPI sends loss and norms, and the reason for their
    /// exchange, once to each other host. Under `Nccl` the numbers also go to each rank there.
    pub fn between_hosts(plan: &Plan, rank: usize, ops: &[Op]) -> Self {
        Self::crossing(plan, rank, ops, true)
    }

    /// The bytes that it takes from ranks of other hosts in such a pass: they have other sums, and other parcels.
    pub fn from_hosts(plan: &Plan, rank: usize, ops: &[Op]) -> Self {
        Self::crossing(plan, rank, ops, false)
    }

    fn crossing(plan: &Plan, rank: usize, ops: &[Op], is_sent: bool) -> Self {
        let config = &plan.config;
        ops.iter().fold(Self::default(), |mut sum, &op| {
            let partners = partners(plan, rank, op);
            let is_far = |&&partner: &&usize| !config.shares_host(rank, partner) && brings(plan, rank, partner, op);
            let far = partners.iter().filter(is_far).count();
            if let Some((axis, bucket)) = summed_on_hosts(config, op) {
                let [_, sent, taken] = of_hosts(plan, rank, axis, bucket);
                *sum.reduced_mut(axis) += if is_sent { sent } else { taken };
            } else if far > 0 {
                sum += of_op(plan, rank, op, is_sent).share(far, partners.len());
            }
            if let (Op::Agree, true) = (op, config.spans_hosts()) {
                let (numbers, far) = (plan.agreed_values(), config.mesh.ranks() - config.mesh.ranks_per_node());
                let by_ranks = if config.transport.carries() { far * numbers * size_of::<f64>() } else { 0 };
                sum.agree_bytes += (config.mesh.nodes - 1) * exchanged_bytes(numbers) + by_ranks;
            }
            sum
        })
    }

    fn add(&mut self, plan: &Plan, rank: usize, op: Op) {
        let (mesh, precision) = (&plan.config.mesh, &plan.config.precision);
        let (params, reduce) = (precision.params.bytes(), precision.reduce.bytes());
        let others = |bytes: usize, ranks: usize| bytes / ranks * (ranks - 1);
        if let Some((axis, bucket)) = summed_on_hosts(&plan.config, op) {
            let [near, sent, _] = of_hosts(plan, rank, axis, bucket);
            *self.reduced_mut(axis) += near + sent;
            return;
        }
        match op {
            Op::Gather { unit, .. } => {
                self.gather_bytes += others(plan.placements[unit].padded * params, mesh.zero);
            }
            Op::Reduce { bucket, .. } => {
                self.reduce_bytes += others(plan.buckets[bucket].elements * reduce, mesh.zero);
            }
            Op::Spread { bucket, axis: Axis::Zero } => {
                let elements = plan.tables().spread_elements(bucket, Axis::Zero);
                self.spread_bytes += others(elements * reduce, mesh.zero);
            }
            Op::Combine { bucket, .. } => {
                self.replica_reduce_bytes += others(plan.buckets[bucket].elements / mesh.zero * reduce, mesh.replica);
            }
            Op::Spread { bucket, .. } => {
                self.replica_spread_bytes += others(plan.buckets[bucket].elements / mesh.zero * reduce, mesh.replica);
            }
            Op::Send { parcel, unit, .. } => *self += carried(plan, parcel, unit, true),
            Op::Agree => self.agree_bytes += plan.agreed_values() * size_of::<f64>() * (mesh.ranks() - 1),
            _ => {}
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

    /// Bytes of parameters and gradients, which are what the published volumes count.
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

impl Traffic {
    /// `part` of `of` equal parts of it.
    fn share(self, part: usize, of: usize) -> Self {
        self.zip(self, |bytes, _| bytes / of * part)
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

    /// Each of four ranks has 128 of a unit's 512 parameters, in f32. It gives each of the two ranks on the other host
    /// its shard in each of two gathers, and their parts of its gradients in one reduction. It gives each of them all
    /// numbers, besides one message by MPI.
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
