//! Traffic: bytes that a rank sends in one pass over a schedule, counted from its ops. Never measures.

use crate::mesh::Axis;
use crate::plan::Plan;
use crate::schedule::{Op, Parcel};
use crate::unit::ELEMENT_BYTES;

/// Bytes that one rank sends, by what they are for. A ring, or any algorithm that sends no byte twice, moves
/// (N-1)/N of a buffer for a gather and as much for a reduce-scatter; an all-reduce is one of each (ZeRO paper, section 7).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// All-gather of parameters along `zero`.
    pub gather_bytes: usize,
    /// Reduce-scatter of gradients along `zero`.
    pub reduce_bytes: usize,
    /// All-gather of summed gradients along `zero`: the second half of an all-reduce.
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

impl Traffic {
    /// What a rank sends in one pass over `ops`, which are of `plan`.
    pub fn of(plan: &Plan, ops: &[Op]) -> Self {
        ops.iter().fold(Self::default(), |mut traffic, &op| {
            traffic.add(plan, op);
            traffic
        })
    }

    fn add(&mut self, plan: &Plan, op: Op) {
        let (mesh, precision) = (&plan.config.mesh, &plan.config.precision);
        let (params, reduce) = (precision.params.bytes(), precision.reduce.bytes());
        let others = |bytes: usize, ranks: usize| bytes / ranks * (ranks - 1);
        match op {
            Op::Gather { unit, .. } => {
                self.gather_bytes += others(plan.placements[unit].padded * params, mesh.zero);
            }
            Op::Reduce { bucket, .. } => {
                self.reduce_bytes += others(plan.buckets[bucket].elements * reduce, mesh.zero);
            }
            Op::Spread { bucket, axis: Axis::Zero } => {
                self.spread_bytes += others(plan.buckets[bucket].elements * reduce, mesh.zero);
            }
            Op::Combine { bucket, .. } => {
                self.replica_reduce_bytes += others(plan.buckets[bucket].elements / mesh.zero * reduce, mesh.replica);
            }
            Op::Spread { bucket, .. } => {
                self.replica_spread_bytes += others(plan.buckets[bucket].elements / mesh.zero * reduce, mesh.replica);
            }
            Op::Send { parcel: Parcel::Activations, unit, .. } => {
                self.activation_bytes += plan.units[unit].output * ELEMENT_BYTES;
            }
            Op::Send { parcel: Parcel::Gradients, unit, .. } => {
                self.gradient_bytes += plan.units[unit].input * ELEMENT_BYTES;
            }
            Op::Send { parcel: Parcel::TiedGradients, unit, .. } => {
                self.tied_bytes += plan.placements[unit].part(&plan.config) * reduce;
            }
            Op::Send { parcel: Parcel::TiedParameters, unit, .. } => {
                let placement = &plan.placements[unit];
                let sharded = plan.config.shards_optimizer();
                self.tied_bytes += if sharded { placement.shard(&plan.config) } else { placement.padded } * params;
            }
            Op::Agree => self.agree_bytes += plan.agreed_values() * size_of::<f64>() * (mesh.ranks() - 1),
            _ => {}
        }
    }

    /// Bytes of parameters and gradients: what the published volumes count.
    pub fn payload_bytes(&self) -> usize {
        self.on(Axis::Zero) + self.on(Axis::Replica)
    }

    /// Bytes along an axis.
    pub fn on(&self, axis: Axis) -> usize {
        match axis {
            Axis::Zero => self.gather_bytes + self.reduce_bytes + self.spread_bytes,
            Axis::Replica => self.replica_reduce_bytes + self.replica_spread_bytes,
            Axis::Pipeline => self.activation_bytes + self.gradient_bytes + self.tied_bytes,
        }
    }

    /// All bytes.
    pub fn total_bytes(&self) -> usize {
        Axis::ALL.map(|axis| self.on(axis)).iter().sum::<usize>() + self.agree_bytes
    }
}

impl core::ops::AddAssign for Traffic {
    fn add_assign(&mut self, other: Self) {
        self.gather_bytes += other.gather_bytes;
        self.reduce_bytes += other.reduce_bytes;
        self.spread_bytes += other.spread_bytes;
        self.replica_reduce_bytes += other.replica_reduce_bytes;
        self.replica_spread_bytes += other.replica_spread_bytes;
        self.activation_bytes += other.activation_bytes;
        self.gradient_bytes += other.gradient_bytes;
        self.tied_bytes += other.tied_bytes;
        self.agree_bytes += other.agree_bytes;
    }
}
