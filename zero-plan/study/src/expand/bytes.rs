//! Bytes: the length of what an op is about on one rank, from its places. Never adds an offset.

use zero_plan::place::{Content, Place, Places, Position, State, accesses};
use zero_plan::{Axis, Op, Parcel, Pass, Plan};

/// The bytes of `op` on a rank of a pipeline stage, at a position in its table. Where hosts differ, those of the rank that
/// has most.
pub(super) fn of_op(plan: &Plan, pipeline: usize, pass: Pass, op: Op, position: &Position) -> usize {
    let own = plan.places(plan.config.mesh.coordinates(plan.busiest_rank(pipeline)));
    let sum = |places: &[Place]| places.iter().map(|place| place.len_bytes).sum();
    match op {
        Op::Gather { unit, slot } | Op::Convert { unit, slot } => own.computed_on(unit, slot).len_bytes,
        Op::Wait { unit } | Op::Release { unit } => own.computed_on(unit, position.slot(unit)).len_bytes,
        Op::Receive { parcel, unit, slot, .. } => own.incoming(parcel, unit, slot).len_bytes,
        Op::Clear { parcel: Parcel::Activations } => own.memory.outgoing_slot_bytes,
        Op::Clear { .. } => own.memory.returning_slot_bytes,
        Op::Send { parcel, unit, .. } => own.outgoing(parcel, unit, position.outgoing(parcel)).len_bytes,
        Op::Forward { unit, slot, .. } => {
            sum(&[own.saved(unit, slot), own.output(unit, slot, position.outgoing(Parcel::Activations))])
        }
        Op::Recompute { unit, slot, .. } => sum(&[own.saved(unit, slot), own.output_again(unit)]),
        Op::Backward { unit, .. } => {
            let input = own.input_gradient(unit, position.outgoing(Parcel::Gradients));
            input.map_or(0, |place| place.len_bytes) + own.local_gradients(unit).len_bytes
        }
        Op::Claim { bucket } | Op::Reduce { bucket, .. } => own.bucket_gradients(bucket).len_bytes,
        Op::Subtotal { .. } | Op::Settle { .. } | Op::Combine { .. } | Op::Fold { .. } => {
            written(plan, own, pass, op, position)
        }
        Op::Spread { bucket, axis } => {
            let whole = |unit| if axis == Axis::Zero { own.local_gradients(unit) } else { own.reduced(unit) };
            let units = plan.buckets[bucket].first..plan.buckets[bucket].last + 1;
            units.filter(|&unit| plan.tables().is_spread(unit, axis)).map(|unit| whole(unit).len_bytes).sum()
        }
        Op::Agree => plan.agreed_values() * size_of::<f64>(),
        Op::Momentum { unit } => own.sums(unit).len_bytes,
        Op::Update { unit, piece: None } => {
            let others = State::ALL.into_iter().filter(|&state| state != State::Parameters);
            let others = others.filter_map(|state| own.state(state, unit)).map(|(_, place)| place.len_bytes);
            own.updated(unit).len_bytes + others.sum::<usize>()
        }
        Op::Update { unit, piece: Some(piece) } => {
            let whole = State::ALL.into_iter().filter(|&state| state != State::Parameters);
            let whole = whole.filter_map(|state| own.state(state, unit)).map(|(_, place)| place);
            whole.chain([own.updated(unit)]).map(|place| own.of_piece(place, unit, piece.index).len_bytes).sum()
        }
        Op::Offer { unit } | Op::StoreOffered { unit } => own.published(unit, position.copy).len_bytes,
        Op::Fetch { .. }
        | Op::Store { .. }
        | Op::FetchSums { .. }
        | Op::StoreSums { .. }
        | Op::FetchShard { .. }
        | Op::StoreActivations { .. }
        | Op::FetchActivations { .. } => own.trips(op).map(|(kept, _)| kept.len_bytes).sum(),
    }
}

/// The bytes of content that an op writes on its own rank.
fn written(plan: &Plan, own: Places, pass: Pass, op: Op, position: &Position) -> usize {
    let mut bytes = 0;
    let at = own.at;
    accesses(plan, pass, op, position, at, &mut |access| {
        let is_kept = access.writes && access.at == at && access.content != Content::Nothing;
        bytes += if is_kept { access.place.len_bytes } else { 0 };
    });
    bytes
}
