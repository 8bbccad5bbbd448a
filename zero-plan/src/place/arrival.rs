//! Arrival: the places at which bytes of other ranks arrive on a rank that cannot read them in the others' memory.
//! Terms of sums, and parameters that are to be converted, arrive in the inbox; all other bytes arrive in their final
//! place. Bytes that a rank can read in the other's memory do not arrive.

use super::{Place, Places, Position};
use crate::config::Config;
use crate::layout::{Kind, arriving_bytes, terms_bytes, tied_bytes};
use crate::mesh::{Axis, Coordinates};
use crate::plan::Plan;
use crate::schedule::{Op, Parcel};
use crate::subtrees::Subtree;

/// Bytes that an op needs from another rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// The other rank.
    pub from: Coordinates,
    /// Their place there.
    pub source: Place,
    /// The place at which they arrive on the rank that runs the op.
    pub to: Place,
}

/// Calls back for all arrivals that `op` needs, on the rank with places `own`.
pub fn arrivals(plan: &Plan, op: Op, position: &Position, own: &Places, visit: &mut dyn FnMut(Arrival)) {
    if let Op::Receive { parcel, .. } = op {
        let from = Coordinates { pipeline: plan.parcel_sender(parcel, own.at.pipeline), ..own.at };
        arrivals_from(plan, op, position, own, from, visit);
    }
    let Some(axis) = op.traits().axis else { return };
    for index in 0..plan.config.mesh.len(axis) {
        arrivals_from(plan, op, position, own, own.along(axis, index).at, visit);
    }
}

/// Calls back for the arrivals from the rank at `from`, which must be a rank that sends to this one in such ops.
pub fn arrivals_from(
    plan: &Plan,
    op: Op,
    position: &Position,
    own: &Places,
    from: Coordinates,
    visit: &mut dyn FnMut(Arrival),
) {
    if reaches(plan, own.at, from) {
        return;
    }
    if let Op::Receive { parcel, unit, slot, .. } = op {
        visit(received(plan, from, parcel, unit, slot, position, own));
    } else if let (Some(axis), true) = (op.traits().axis, are_counterparts(&plan.config, op, own.at, from)) {
        let peer = own.along(axis, from.along(axis));
        each_of(plan, op, own, &peer, &mut |source, to| visit(Arrival { from, source, to }));
    }
}

/// Whether the rank at `own` can read the memory of the rank at `other`.
fn reaches(plan: &Plan, own: Coordinates, other: Coordinates) -> bool {
    let Config { mesh, .. } = plan.config;
    plan.config.reaches(mesh.rank(own), mesh.rank(other))
}

/// Whether two ranks of different hosts send one another bytes in an op along an axis. All do, unless host peers gather
/// or spread for one another, or hosts exchange their sums.
pub const fn are_counterparts(config: &Config, op: Op, own: Coordinates, other: Coordinates) -> bool {
    match op {
        Op::Gather { .. } => config.receiver(Axis::Zero, own.zero, other.zero) == own.zero,
        Op::Spread { axis, .. } => config.receiver(axis, own.along(axis), other.along(axis)) == own.along(axis),
        Op::Settle { .. } | Op::Reduce { .. } if config.sums_on_hosts(Axis::Zero) => {
            own.zero % config.ranks_per_host(Axis::Zero) == other.zero % config.ranks_per_host(Axis::Zero)
        }
        Op::Combine { .. } if config.sums_on_hosts(Axis::Replica) => {
            own.replica % config.ranks_per_host(Axis::Replica) == other.replica % config.ranks_per_host(Axis::Replica)
        }
        _ => true,
    }
}

/// If an op gathers along an axis, calls back with the place that the rank with places `of` sends, and with the place
/// on the rank with places `own` that receives the parts of all ranks, in their order.
pub fn gathered(plan: &Plan, op: Op, own: &Places, of: &Places, visit: &mut dyn FnMut(Place, Place)) {
    let config = &plan.config;
    match op {
        Op::Gather { unit, slot } => {
            let whole = match (config.shards_parameters(), config.converts_gathers()) {
                (true, true) => own.arrived_shards(unit, slot),
                (true, false) => own.computed_on(unit, slot),
                (false, _) => own.flat(unit),
            };
            visit(of.sent_shard(unit, slot), whole);
        }
        Op::Spread { bucket, axis: Axis::Replica } => {
            units_of(plan, bucket).for_each(|unit| visit(of.part(of.reduced(unit), of.at.replica), own.reduced(unit)))
        }
        Op::Spread { bucket, axis } => {
            let units = units_of(plan, bucket).filter(|&unit| plan.tables().is_spread(unit, axis));
            units.for_each(|unit| visit(of.reduced(unit), own.local_gradients(unit)));
        }
        _ => {}
    }
}

/// The units of a bucket that have parameters.
fn units_of(plan: &Plan, bucket: usize) -> impl Iterator<Item = usize> {
    let units = plan.buckets[bucket].first..=plan.buckets[bucket].last;
    units.filter(|&unit| plan.placements[unit].padded > 0)
}

/// The bytes that the rank with places `of` sends in an op to each rank that needs some, or the bytes of a parcel.
pub fn given_bytes(plan: &Plan, op: Op, of: &Places) -> usize {
    match op {
        Op::Send { parcel, unit, .. } => of.outgoing(parcel, unit, 0).len_bytes,
        Op::Receive { parcel, unit, slot, .. } => of.incoming(parcel, unit, slot).len_bytes,
        Op::Subtotal { bucket, axis, .. } => {
            units_of(plan, bucket).map(|unit| of.term(axis, unit, of.at.along(axis)).len_bytes).sum()
        }
        op => {
            let mut bytes = 0;
            each_of(plan, op, of, of, &mut |source, _| bytes += source.len_bytes);
            bytes
        }
    }
}

/// Calls back for the bytes that a collective reads from one peer, with their places there and here.
fn each_of(plan: &Plan, op: Op, own: &Places, peer: &Places, visit: &mut dyn FnMut(Place, Place)) {
    match op {
        Op::Settle { bucket, .. } => {
            units_of(plan, bucket).for_each(|unit| terms_of(Axis::Zero, unit, own, peer, visit));
        }
        Op::Combine { bucket, .. } => {
            units_of(plan, bucket).for_each(|unit| terms_of(Axis::Replica, unit, own, peer, visit));
        }
        op => {
            let Some(axis) = op.traits().axis else { return };
            let (index, ranks) = (peer.at.along(axis), plan.config.mesh.len(axis));
            gathered(plan, op, own, peer, &mut |source, whole| visit(source, whole.share(index, ranks)));
        }
    }
}

/// Calls back for the numbers that a peer adds to a sum along an axis: its own term, or the sums of its host.
fn terms_of(axis: Axis, unit: usize, own: &Places, peer: &Places, visit: &mut dyn FnMut(Place, Place)) {
    let config = own.tables.config;
    let [here, there] = [own.at, peer.at].map(|at| at.along(axis));
    if !config.sums_on_hosts(axis) {
        let to = own.arrived_terms(axis, unit).share(there, config.mesh.len(axis));
        return visit(peer.term(axis, unit, here), to);
    }
    for Subtree { first, .. } in config.subtrees(axis).of_host(there / config.ranks_per_host(axis)) {
        visit(peer.subtotal(axis, unit, here / config.ranks_per_host(axis), first), own.joined(axis, unit, first));
    }
}

/// The arrival of a parcel, with its places at the sender and here.
fn received(
    plan: &Plan,
    from: Coordinates,
    parcel: Parcel,
    unit: usize,
    slot: usize,
    position: &Position,
    own: &Places,
) -> Arrival {
    let made_by = match parcel {
        Parcel::Activations => unit - 1,
        Parcel::Gradients => unit + 1,
        Parcel::TiedGradients => plan.units.len() - 1,
        Parcel::TiedParameters => plan.units[unit].source,
    };
    let source = plan.places(from).outgoing(parcel, made_by, position.arriving(parcel));
    let to = match parcel {
        // It does not go to its final place, as it is added to the sum there.
        Parcel::TiedGradients => own.arrived_tied(),
        _ => own.incoming(parcel, unit, slot),
    };
    Arrival { from, source, to }
}

impl Places<'_> {
    /// Where the terms of a unit's gradients for sums along an axis arrive. Buckets take turns with this place. Terms
    /// along `replica` lie after those along `zero`, because one bucket may be summed along `zero` while the bucket
    /// before it is summed along `replica`.
    pub(super) const fn arrived_terms(&self, axis: Axis, unit: usize) -> Place {
        let (config, placement) = (self.tables.config, self.placement(unit));
        let start = placement.start - self.tables.buckets[placement.bucket].start;
        let before = match axis {
            Axis::Zero => 0,
            Axis::Replica | Axis::Pipeline => terms_bytes(config, Axis::Zero, self.memory.bucket_slot),
        };
        let (offset_bytes, len_bytes) =
            (before + terms_bytes(config, axis, start), terms_bytes(config, axis, placement.padded));
        Place { region: Kind::Inbox, offset_bytes, len_bytes }
    }

    /// Where the gradients of a tied unit arrive from another pipeline stage, after all terms.
    const fn arrived_tied(&self) -> Place {
        let len_bytes = tied_bytes(&self.tables, self.at.pipeline);
        Place { region: Kind::Inbox, offset_bytes: self.arriving_bytes() - len_bytes, len_bytes }
    }

    const fn arriving_bytes(&self) -> usize {
        arriving_bytes(&self.tables, self.at.pipeline, self.memory.bucket_slot)
    }

    /// Where shards of a unit arrive if they are converted into a slot, after everything that is added up.
    pub(super) const fn arrived_shards(&self, unit: usize, slot: usize) -> Place {
        let (config, placement) = (self.tables.config, self.placement(unit));
        let start = if config.holds_parameters() { placement.start } else { slot * self.memory.gathered_slot };
        let width = config.precision.params.bytes();
        let offset_bytes = self.arriving_bytes() + start * width;
        Place { region: Kind::Inbox, offset_bytes, len_bytes: placement.padded * width }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::PlanBuf;
    use crate::config::{DeviceKind, TransportKind};
    use crate::mesh::Mesh;
    use crate::unit::Unit;

    /// Otherwise bytes of one rank would overwrite those of another.
    #[test]
    fn what_arrives_for_an_op_has_a_place_for_each_rank_it_comes_from() {
        let unit = |source, params| Unit { source, position: source, params, takes: params, ..Unit::NONE };
        let units = [unit(0, 40), unit(1, 90), unit(2, 7)];
        let mut found = 0;
        for stage in 0..=3 {
            let mesh = Mesh { replica: 2, ..Mesh::of_zero(3) };
            let config = Config { mesh, device: DeviceKind::Cuda, transport: TransportKind::Nccl, ..Config::PLAIN };
            PlanBuf::new("Three", config.at_stage(stage), &units).with(|plan| {
                let (own, mut position) = (plan.places(mesh.coordinates(4)), Position::new(units.len()));
                for &op in plan.pipeline_stages[0].step {
                    let mut all = Vec::new();
                    arrivals(plan, op, &position, &own, &mut |arrival| all.push(arrival));
                    for (at, one) in all.iter().enumerate() {
                        assert_eq!(one.source.len_bytes, one.to.len_bytes, "{op:?}: {one:?}");
                        let end = |place: Place| place.offset_bytes + place.len_bytes;
                        for other in &all[at + 1..] {
                            let is_apart = one.to.region != other.to.region
                                || end(one.to) <= other.to.offset_bytes
                                || end(other.to) <= one.to.offset_bytes;
                            assert!(is_apart, "{op:?}: {one:?} and {other:?}");
                        }
                    }
                    found += all.len();
                    position.pass(op);
                }
            });
        }
        assert!(found > 20, "{found}");
    }
}
