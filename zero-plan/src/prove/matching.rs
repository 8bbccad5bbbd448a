//! Matching: members of a communicator issue the same collectives in the same order, and sent parcels are received.

use super::{Flaw, Ranks};
use crate::config::Width;
use crate::groups::Scope;
use crate::layout::Kind;
use crate::mesh::Axis;
use crate::plan::Plan;
use crate::schedule::{Op, Parcel};

/// The facts on which ranks must agree to take part in a collective.
#[derive(Debug, PartialEq, Eq)]
struct Collective {
    kind: &'static str,
    /// The unit or bucket, and the number of its reduction in the step.
    of: usize,
    round: usize,
    /// Element type; `None` is f64.
    width: Option<Width>,
    elements: usize,
}

impl Collective {
    /// The collective that an op issues in a scope, if it issues one there.
    fn of(plan: &Plan, scope: Scope, op: Op) -> Option<Self> {
        let precision = &plan.config.precision;
        let zero = plan.config.mesh.zero;
        let carries = plan.config.transport.carries();
        let sums = |kind, bucket: usize, round, parts| Self {
            kind,
            of: bucket,
            round,
            width: Some(precision.reduce),
            elements: plan.buckets[bucket].elements / parts,
        };
        match (scope, op) {
            (Scope::Zero, Op::Gather { unit, .. }) => Some(Self {
                kind: "all-gather of a unit",
                of: unit,
                round: 0,
                width: Some(precision.params),
                elements: plan.placements[unit].padded,
            }),
            // If the transport carries terms, each rank reads them in its own settle.
            (Scope::Zero, Op::Reduce { bucket, round }) if !carries => {
                Some(sums("reduce-scatter of a bucket", bucket, round, 1))
            }
            (Scope::Zero, Op::Subtotal { bucket, round, axis: Axis::Zero }) => {
                Some(sums("sum of a bucket over hosts", bucket, round, 1))
            }
            (Scope::Replica, Op::Subtotal { bucket, round, axis: Axis::Replica }) => {
                Some(sums("sum of a shard of a bucket over hosts", bucket, round, zero))
            }
            (Scope::Zero, Op::Settle { bucket, round }) if carries => {
                Some(sums("reduce-scatter of a bucket", bucket, round, 1))
            }
            (Scope::Replica, Op::Combine { bucket, round }) if carries => {
                Some(sums("reduce-scatter of a shard of a bucket", bucket, round, zero))
            }
            (Scope::Zero, Op::Spread { bucket, axis: Axis::Zero }) => Some(Self {
                elements: plan.tables().spread_elements(bucket, Axis::Zero),
                ..sums("all-gather of a bucket", bucket, 0, 1)
            }),
            // The reduction over replicas begins where the one over `zero` ends.
            (Scope::Replica, Op::Settle { bucket, round }) if plan.config.mesh.replica > 1 && !carries => {
                Some(sums("reduce-scatter of a shard of a bucket", bucket, round, zero))
            }
            (Scope::Replica, Op::Spread { bucket, axis: Axis::Replica }) => {
                Some(sums("all-gather of a shard of a bucket", bucket, 0, zero))
            }
            (Scope::World, Op::Agree) => Some(Self {
                kind: "all-reduce of loss and norm",
                of: 0,
                round: 0,
                width: None,
                elements: plan.agreed_values(),
            }),
            _ => None,
        }
    }
}

/// Proves that collectives match, and returns their number on communicators that have more than one member.
pub(super) fn collectives(ranks: &Ranks) -> Result<usize, Flaw> {
    let mut count = 0;
    for scope in Scope::ALL {
        for (communicator, members) in ranks.groups.members.iter().enumerate() {
            let [first, others @ ..] = members.as_slice() else { continue };
            if ranks.groups.communicator(*first, scope) != communicator {
                continue;
            }
            for &other in others {
                same(ranks, scope, *first, other)?;
            }
            count += if others.is_empty() { 0 } else { issued(ranks, scope, *first).count() };
        }
    }
    Ok(count)
}

/// The collectives of a rank in a scope, each with the op that issues it.
fn issued<'a>(ranks: &'a Ranks, scope: Scope, rank: usize) -> impl Iterator<Item = (usize, Collective)> + 'a {
    let ops = ranks.ops[rank].iter().enumerate();
    ops.filter_map(move |(at, &op)| Some((at, Collective::of(ranks.plan, scope, op)?)))
}

fn same(ranks: &Ranks, scope: Scope, one: usize, other: usize) -> Result<(), Flaw> {
    let (mut ones, mut others) = (issued(ranks, scope, one), issued(ranks, scope, other));
    for nth in 0.. {
        let pair = (ones.next(), others.next());
        match &pair {
            (None, None) => break,
            (Some((_, a)), Some((_, b))) if a == b => {}
            (a, b) => {
                let place = |rank: usize, issued: &Option<(usize, Collective)>| {
                    let op = issued.as_ref().map_or(ranks.ops[rank].len(), |(op, _)| *op);
                    let what = issued.as_ref().map(|(_, collective)| collective);
                    ranks.spot(
                        rank,
                        op,
                        format!("issues {}", what.map_or("none".to_owned(), |what| format!("{what:?}"))),
                    )
                };
                let rule = format!("ranks issue another collective {nth} on their {} communicator", scope.name());
                return Err(ranks.flaw(rule, vec![place(one, a), place(other, b)]));
            }
        }
    }
    Ok(())
}

/// The facts about a parcel on which sender and receiver must agree.
#[derive(Debug, PartialEq, Eq)]
struct SentParcel {
    /// The unit that needs it.
    unit: usize,
    micro_batch: usize,
    bytes: usize,
}

impl SentParcel {
    /// The parcel of a kind that an op sends, as its receiver has to expect it.
    fn by(plan: &Plan, kind: Parcel, op: Op) -> Option<Self> {
        let Op::Send { parcel, unit, micro_batch } = op else { return None };
        let (to, bytes) = match parcel {
            Parcel::Activations => (unit + 1, plan.units[unit].output_bytes),
            Parcel::Gradients => (unit - 1, plan.units[unit].input_bytes),
            Parcel::TiedGradients => (plan.units[unit].source, tied_bytes(plan, parcel, unit)),
            Parcel::TiedParameters => (plan.tables().tied_to(unit)?, tied_bytes(plan, parcel, unit)),
        };
        (parcel == kind).then_some(Self { unit: to, micro_batch, bytes })
    }

    /// The parcel of a kind that an op expects.
    fn to(plan: &Plan, kind: Parcel, op: Op) -> Option<Self> {
        let Op::Receive { parcel, unit, micro_batch, .. } = op else { return None };
        let bytes = match parcel {
            Parcel::Activations => plan.units[unit].input_bytes,
            Parcel::Gradients => plan.units[unit].output_bytes,
            Parcel::TiedGradients | Parcel::TiedParameters => tied_bytes(plan, parcel, unit),
        };
        (parcel == kind).then_some(Self { unit, micro_batch, bytes })
    }
}

/// The bytes of the flat buffer of the tied unit `unit` that one rank sends.
fn tied_bytes(plan: &Plan, parcel: Parcel, unit: usize) -> usize {
    let (config, placement) = (&plan.config, &plan.placements[unit]);
    match parcel {
        Parcel::TiedGradients => Kind::Reduced.bytes(config, placement.part(config)),
        _ if config.shards_optimizer() => Kind::Parameters.bytes(config, placement.shard(config)),
        _ => Kind::Parameters.bytes(config, placement.padded),
    }
}

/// Proves that parcels pair, and returns their number.
pub(super) fn parcels(ranks: &Ranks) -> Result<usize, Flaw> {
    let mut count = 0;
    for parcel in Parcel::ALL {
        for rank in 0..ranks.ops.len() {
            let receiver = ranks.groups.receiver(rank, parcel);
            let is_answered = ranks.groups.sender(receiver, parcel) == rank;
            // Parcels of ties concern only the ranks of two pipeline stages.
            if is_answered {
                count += pair(ranks, parcel, rank, receiver)?;
            }
        }
    }
    Ok(count)
}

fn pair(ranks: &Ranks, parcel: Parcel, sender: usize, receiver: usize) -> Result<usize, Flaw> {
    let plan = ranks.plan;
    let found = |rank: usize, see: fn(&Plan, Parcel, Op) -> Option<SentParcel>| {
        let ops = ranks.ops[rank].iter().enumerate();
        ops.filter_map(move |(at, &op)| Some((at, see(plan, parcel, op)?)))
    };
    let (mut sent, mut received) = (found(sender, SentParcel::by), found(receiver, SentParcel::to));
    for nth in 0.. {
        match (sent.next(), received.next()) {
            (None, None) => return Ok(nth),
            (Some((_, a)), Some((_, b))) if a == b => {}
            (a, b) => {
                let place = |rank: usize, verb: &str, other: Option<(usize, SentParcel)>| match other {
                    Some((op, what)) => ranks.spot(rank, op, format!("{verb} {what:?}")),
                    None => ranks.spot(rank, ranks.ops[rank].len(), format!("{verb} none")),
                };
                let rule = format!("parcel {nth} of {parcel:?} is not what its receiver expects");
                let places = vec![place(sender, "sends", a), place(receiver, "expects", b)];
                return Err(ranks.flaw(rule, places));
            }
        }
    }
    unreachable!("a loop without end")
}

#[cfg(test)]
mod tests {
    use crate::build::PlanBuf;
    use crate::config::Config;
    use crate::mesh::Mesh;
    use crate::prove::prove;
    use crate::unit::Unit;

    #[test]
    fn a_parcel_of_another_size_than_expected_is_found() {
        let config = Config { mesh: Mesh { pipeline: 2, ..Mesh::of_zero(1) }, ..Config::PLAIN };
        let unit = |source, input_bytes, output_bytes| Unit { source, input_bytes, output_bytes, ..Unit::NONE };
        let proof = |input| PlanBuf::new("Two", config, &[unit(0, 1, 5), unit(1, input, 1)]).with(prove);
        assert!(proof(5).is_ok());
        let flaw = proof(6).unwrap_err();
        assert_eq!(flaw.rule, "parcel 0 of Activations is not what its receiver expects");
        assert!(flaw.places[0].note.contains("bytes: 5") && flaw.places[1].note.contains("bytes: 6"), "{flaw}");
    }
}
