//! Wait: how ranks wait for one another, by counts that each rank shows and that only grow. Never touches memory.

use zero_plan::{Axis, OUTGOING_SLOTS, Op, Parcel, Plan};

use super::{Done, World, require};

/// The counts that a rank shows, and those that it remembers to compare with others'. Numbers begin at 1; 0 means none.
pub(super) struct Counts {
    gathers: usize,
    offered: usize,
    settled: usize,
    combined: usize,
    spread_zero: usize,
    spread_replica: usize,
    agreed: usize,
    pub sent: [usize; Parcel::ALL.len()],
    pub taken: [usize; Parcel::ALL.len()],
    /// For each unit, the number of its newest gather.
    gather_of: Vec<usize>,
    /// For each bucket, the numbers of its newest offer and settle.
    offer_of: Vec<usize>,
    settle_of: Vec<usize>,
}

/// The nth op of a kind that a group of ranks does together. The group is named by its first rank.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Together {
    first: usize,
    kind: u8,
    nth: usize,
}

impl Counts {
    pub fn new(plan: &Plan) -> Self {
        Self {
            gathers: 0,
            offered: 0,
            settled: 0,
            combined: 0,
            spread_zero: 0,
            spread_replica: 0,
            agreed: 0,
            sent: [0; Parcel::ALL.len()],
            taken: [0; Parcel::ALL.len()],
            gather_of: vec![0; plan.units.len()],
            offer_of: vec![0; plan.buckets.len()],
            settle_of: vec![0; plan.buckets.len()],
        }
    }
}

impl World<'_> {
    /// Shows the others that a rank has reached an op. Ranks that do an op together must do the same.
    pub(super) fn enter(&mut self, rank: usize, op: Op) -> Done {
        let (zero, replica) = (self.zero_peers(rank)[0], self.replica_peers(rank)[0]);
        let counts = &mut self.ranks[rank].counts;
        let (first, kind, count, same) = match op {
            // Each rank has its own slots.
            Op::Gather { unit, .. } => (zero, 0, &mut counts.gathers, Op::Gather { unit, slot: 0 }),
            Op::Reduce { .. } => (zero, 1, &mut counts.offered, op),
            Op::Spread { axis: Axis::Replica, .. } => (replica, 2, &mut counts.spread_replica, op),
            Op::Spread { .. } => (zero, 3, &mut counts.spread_zero, op),
            Op::Agree => (0, 4, &mut counts.agreed, op),
            _ => return Ok(()),
        };
        *count += 1;
        let nth = *count;
        match op {
            Op::Gather { unit, .. } => counts.gather_of[unit] = nth,
            Op::Reduce { bucket, .. } => counts.offer_of[bucket] = nth,
            _ => {}
        }
        let agreed = *self.together.entry(Together { first, kind, nth }).or_insert(same);
        require(agreed == same, || format!("a peer does {agreed:?} instead"))
    }

    /// Whether no peer keeps `rank` from entering an op, or from ending it.
    pub(super) fn is_ready(&self, rank: usize, op: Op) -> bool {
        let own = &self.ranks[rank].counts;
        let is_inside = self.ranks[rank].is_inside;
        let all = |peers: Vec<usize>, reached: &dyn Fn(&Counts) -> bool| {
            peers.into_iter().all(|peer| reached(&self.ranks[peer].counts))
        };
        let along_zero = |reached: &dyn Fn(&Counts) -> bool| all(self.zero_peers(rank), reached);
        let along_replica = |reached: &dyn Fn(&Counts) -> bool| all(self.replica_peers(rank), reached);
        match op {
            Op::Wait { unit } => along_zero(&|peer| peer.gathers >= own.gather_of[unit]),
            Op::Claim { bucket } => {
                let offer = self.newest_offer(rank, bucket);
                along_zero(&|peer| peer.settled >= offer)
            }
            Op::Settle { bucket, .. } => {
                let before = self.newest_partial(rank, bucket);
                along_zero(&|peer| peer.offered >= own.offer_of[bucket])
                    && along_replica(&|peer| peer.combined >= before)
            }
            Op::Combine { bucket, .. } => along_replica(&|peer| peer.settled >= own.settle_of[bucket]),
            Op::Spread { bucket, axis: Axis::Replica } => {
                let has_entered = along_replica(&|peer| peer.spread_replica >= own.spread_replica);
                let has_combined = along_replica(&|peer| peer.combined >= own.settle_of[bucket]);
                !is_inside || if self.is_in_tie(bucket) { has_entered } else { has_combined }
            }
            Op::Spread { .. } => !is_inside || along_zero(&|peer| peer.spread_zero >= own.spread_zero),
            Op::Agree => !is_inside || self.ranks.iter().all(|peer| peer.counts.agreed >= own.agreed),
            Op::Clear { parcel } => {
                let receiver = self.ranks.iter().position(|other| {
                    // Activations go to the next pipeline stage, and gradients to the one before.
                    let pipeline_stages = self.plan.config.mesh.pipeline;
                    let own = self.ranks[rank].at;
                    let (from, to) = match parcel {
                        Parcel::Activations => (own.pipeline, other.at.pipeline),
                        _ => (other.at.pipeline, own.pipeline),
                    };
                    (from + 1) % pipeline_stages == to && (own.zero, own.replica) == (other.at.zero, other.at.replica)
                });
                let receiver = receiver.expect("a pipeline stage before and behind");
                self.ranks[receiver].counts.taken[parcel as usize] + OUTGOING_SLOTS > own.sent[parcel as usize]
            }
            Op::Receive { parcel, unit, .. } => {
                let sender = self.other_end(rank, parcel, unit, false);
                self.ranks[sender].counts.sent[parcel as usize] > own.taken[parcel as usize]
            }
            _ => true,
        }
    }

    /// Counts a sum along `zero`. Peers see its number, but not its bucket.
    pub(super) fn count_settle(&mut self, rank: usize, bucket: usize) {
        let counts = &mut self.ranks[rank].counts;
        counts.settled += 1;
        counts.settle_of[bucket] = counts.settled;
    }

    pub(super) fn count_combine(&mut self, rank: usize) {
        self.ranks[rank].counts.combined += 1;
    }

    /// The newest offer from the slot of a bucket.
    fn newest_offer(&self, rank: usize, bucket: usize) -> usize {
        let buckets = self.plan.buckets;
        let is_shared = |other: usize| {
            let is_slot = buckets[bucket].slot.is_some() && buckets[bucket].slot == buckets[other].slot;
            other == bucket || is_slot && buckets[other].pipeline_stage == buckets[bucket].pipeline_stage
        };
        let offers = (0..buckets.len()).filter(|&other| is_shared(other));
        offers.map(|other| self.ranks[rank].counts.offer_of[other]).max().unwrap_or(0)
    }

    /// The newest sum over one replica in the place of that of a bucket.
    fn newest_partial(&self, rank: usize, bucket: usize) -> usize {
        if self.plan.config.reduces_in_place() || self.plan.config.mesh.replica == 1 {
            return 0;
        }
        let (buckets, counts) = (self.plan.buckets, &self.ranks[rank].counts);
        let is_shared = |other: &usize| {
            buckets[*other].pipeline_stage == buckets[bucket].pipeline_stage
                && buckets[*other].partial == buckets[bucket].partial
        };
        (0..buckets.len()).filter(is_shared).map(|other| counts.settle_of[other]).max().unwrap_or(0)
    }

    /// Whether a bucket has an owner to which gradients of tied parameters are added.
    fn is_in_tie(&self, bucket: usize) -> bool {
        let tied = self.plan.units.len() - 1;
        let owner = self.plan.units[tied].source;
        owner != tied && self.plan.placements[owner].bucket == bucket
    }
}
