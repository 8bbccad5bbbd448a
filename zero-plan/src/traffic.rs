//! Traffic: bytes that a rank sends in one pass over a schedule, counted from its ops. Never measures.

use crate::plan::Plan;
use crate::schedule::Op;
use crate::unit::ELEMENT_BYTES;

/// Numbers on which the ranks agree in a step: the loss and the sum of squares of the gradients.
pub const AGREED_VALUES: usize = 2;

/// Bytes that one rank sends, by what they are for. A ring, or any algorithm that sends no byte twice, moves
/// (N-1)/N of a buffer for a gather and as much for a reduce-scatter; an all-reduce is one of each (ZeRO paper, section 7).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// All-gather of parameters.
    pub gather_bytes: usize,
    /// Reduce-scatter of gradients.
    pub reduce_bytes: usize,
    /// All-gather of summed gradients: the second half of an all-reduce.
    pub spread_bytes: usize,
    /// Loss and gradient norm.
    pub agree_bytes: usize,
}

impl Traffic {
    /// What one pass over `ops` sends under `plan`.
    pub fn of(plan: &Plan, ops: &[Op]) -> Self {
        let ranks = plan.config.ranks;
        let sent = |elements: usize| elements / ranks * (ranks - 1) * ELEMENT_BYTES;
        let mut traffic = Self::default();
        for &op in ops {
            match op {
                Op::Gather { unit, .. } => traffic.gather_bytes += sent(plan.placements[unit].padded),
                Op::Reduce { bucket, .. } => traffic.reduce_bytes += sent(plan.buckets[bucket].elements),
                Op::Spread { bucket } => traffic.spread_bytes += sent(plan.buckets[bucket].elements),
                Op::Agree => traffic.agree_bytes += AGREED_VALUES * size_of::<f64>() * (ranks - 1),
                _ => {}
            }
        }
        traffic
    }

    /// All bytes of parameters and gradients: what the published volumes count.
    pub fn payload_bytes(&self) -> usize {
        self.gather_bytes + self.reduce_bytes + self.spread_bytes
    }
}

impl core::ops::AddAssign for Traffic {
    fn add_assign(&mut self, other: Self) {
        self.gather_bytes += other.gather_bytes;
        self.reduce_bytes += other.reduce_bytes;
        self.spread_bytes += other.spread_bytes;
        self.agree_bytes += other.agree_bytes;
    }
}
