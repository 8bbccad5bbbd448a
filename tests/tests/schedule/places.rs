//! Places: an op that looks a line too far, writes too little, or looks at another rank is noticed by the proof, whichever op it is and
//! whatever it reads or writes.

use std::cell::Cell;
use std::collections::BTreeMap;

use zero_plan::place::{Access, Content, Gradients, Value, accesses};
use zero_plan::{Axis, Coordinates, Home, Op, Pass, Plan, Position, prove_accesses};

use crate::model::small_models;

/// A way to get the place of an access wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Wrong {
    Shifted,
    Shortened,
    OtherRank(usize),
}

const WRONGS: [Wrong; 5] =
    [Wrong::Shifted, Wrong::Shortened, Wrong::OtherRank(0), Wrong::OtherRank(1), Wrong::OtherRank(2)];

impl Wrong {
    /// The access gone wrong; none where that would be the same access.
    fn of(self, plan: &Plan, access: Access) -> Option<Access> {
        let mut wrong = access;
        match self {
            Self::Shifted => wrong.place.offset_bytes += 64,
            // What is written too short is found where it is read; of a moment, what stood there before is one, too.
            Self::Shortened if access.writes && !matches!(access.content, Content::State { .. }) => {
                wrong.place.len_bytes -= 1;
            }
            Self::OtherRank(axis) => wrong.at = neighbour(plan, access, Axis::ALL[axis])?,
            Self::Shortened => return None,
        }
        Some(wrong)
    }
}

/// The next rank along an axis; none where there is no other, or where both have the place in common.
fn neighbour(plan: &Plan, Access { at, place, .. }: Access, axis: Axis) -> Option<Coordinates> {
    let mesh = &plan.config.mesh;
    let home = plan.places(at).memory.region(place.region).home;
    if mesh.len(axis) == 1 || axis == Axis::Zero && home == Home::Common {
        return None;
    }
    Some(match axis {
        Axis::Zero => Coordinates { zero: (at.zero + 1) % mesh.zero, ..at },
        Axis::Replica => Coordinates { replica: (at.replica + 1) % mesh.replica, ..at },
        Axis::Pipeline => Coordinates { pipeline: (at.pipeline + 1) % mesh.pipeline, ..at },
    })
}

/// The kind of an access: of which op, what it is about, and whether it is written.
fn kind(op: Op, access: &Access) -> String {
    let what = match access.content {
        Content::Nothing => "nothing",
        Content::Parameters { .. } => "parameters",
        Content::State { .. } => "a state",
        Content::Gradients { of: Gradients::Of(_), .. } => "local gradients",
        Content::Gradients { of: Gradients::OfReplica(_), .. } => "partial sums",
        Content::Gradients { .. } => "sums",
        Content::Activation { value: Value::Gradient, .. } => "a gradient",
        Content::Activation { value: Value::Saved, .. } => "what is saved",
        Content::Activation { .. } => "an activation",
    };
    format!("{} {} {what}", op.name(), if access.writes { "writes" } else { "reads" })
}

/// Every kind of access that a plan has.
fn kinds(plan: &Plan) -> Vec<String> {
    let found = std::cell::RefCell::new(std::collections::BTreeSet::new());
    let note = |plan: &Plan, pass: Pass, op: Op, position: &Position, at, visit: &mut dyn FnMut(Access)| {
        accesses(plan, pass, op, position, at, &mut |access| {
            found.borrow_mut().insert(kind(op, &access));
            visit(access);
        });
    };
    prove_accesses(plan, &note).unwrap_or_else(|flaw| panic!("{flaw}"));
    found.into_inner().into_iter().collect()
}

/// Each kind of access of each small model goes wrong once in each way, on one rank, the first time that it can.
#[test]
fn a_place_that_is_wrong_once_is_found() {
    let mut tried: BTreeMap<(String, Wrong), usize> = BTreeMap::new();
    for model in small_models() {
        model.plan().with(|plan| {
            for wrong_kind in kinds(plan) {
                // What nobody reads may lie anywhere in its region.
                if wrong_kind.ends_with("writes nothing") {
                    continue;
                }
                for wrong in WRONGS {
                    let is_done = Cell::new(false);
                    let mutated =
                        |plan: &Plan, pass, op: Op, position: &Position, at, visit: &mut dyn FnMut(Access)| {
                            accesses(plan, pass, op, position, at, &mut |access| {
                                let goes_wrong = !is_done.get() && kind(op, &access) == wrong_kind;
                                match wrong.of(plan, access).filter(|_| goes_wrong) {
                                    Some(access) => {
                                        is_done.set(true);
                                        visit(access);
                                    }
                                    None => visit(access),
                                }
                            });
                        };
                    let proof = prove_accesses(plan, &mutated);
                    if is_done.get() {
                        assert!(proof.is_err(), "{wrong_kind}, {wrong:?}: {:?}", plan.config);
                        *tried.entry((wrong_kind.clone(), wrong)).or_default() += 1;
                    }
                }
            }
        });
    }
    assert!(tried.len() > 80, "{tried:#?}");
}
