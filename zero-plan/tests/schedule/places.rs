//! Places: an op that looks a line too far, writes too little, or looks at another rank is noticed by the proof, whichever op it is and
//! whatever it reads or writes.

use std::cell::Cell;
use std::collections::BTreeMap;

use zero_plan::place::{Access, Content, Gradients, Position, Value, accesses, decoding_accesses};
use zero_plan::{Axis, Coordinates, Flaw, Home, Kind, Op, Pass, Placement, Plan, prove_accesses, prove_decoding};

use crate::model::{Model, small_models};

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
        Content::Cache { .. } => "a cache",
        Content::State { .. } => "a state",
        Content::Gradients { of: Gradients::Of(_), .. } => "local gradients",
        Content::Direction { .. } => "directions",
        Content::Gradients { of: Gradients::OfReplica(_), .. } => "partial sums",
        Content::Gradients { .. } => "sums",
        Content::Activation { value: Value::Gradient, .. } => "a gradient",
        Content::Activation { value: Value::Saved, .. } => "what is saved",
        Content::Activation { .. } => "an activation",
    };
    format!("{} {} {what}", op.name(), if access.writes { "writes" } else { "reads" })
}

/// What says where ops look, and what proves that all of them find what they need there.
type Looks = fn(&Plan, Pass, Op, &Position, Coordinates, &mut dyn FnMut(Access));
type Proves = fn(&Plan, &zero_plan::place::Accesses) -> Result<(), Flaw>;

/// Every kind of access that a plan has.
fn kinds(plan: &Plan, looks: Looks, proves: Proves) -> Vec<String> {
    let found = std::cell::RefCell::new(std::collections::BTreeSet::new());
    let note = |plan: &Plan, pass: Pass, op: Op, position: &Position, at, visit: &mut dyn FnMut(Access)| {
        looks(plan, pass, op, position, at, &mut |access| {
            found.borrow_mut().insert(kind(op, &access));
            visit(access);
        });
    };
    proves(plan, &note).unwrap_or_else(|flaw| panic!("{flaw}"));
    found.into_inner().into_iter().collect()
}

/// Each kind of access of each small model goes wrong once in each way, on one rank, the first time that it can.
#[test]
fn a_place_that_is_wrong_once_is_found() {
    let tried = go_wrong(small_models(), accesses, prove_accesses);
    assert!(tried.len() > 80, "{tried:#?}");
}

/// The same in decoding walks.
#[test]
fn a_place_of_a_decoding_walk_that_is_wrong_once_is_found() {
    let caching: Vec<Model> = small_models().into_iter().map(Model::caching).collect();
    caching.iter().for_each(|model| model.plan().with(|plan| assert_eq!(plan.check(), Ok(()))));
    let tried = go_wrong(caching, decoding_accesses, prove_decoding);
    assert!(tried.keys().any(|(kind, _)| kind == "forward writes a cache"), "{tried:#?}");
    assert!(tried.len() > 12, "{tried:#?}");
}

/// A region of activations that is too short for the caches, or a cache where others work, is refused before a run.
#[test]
fn decoding_that_does_not_fit_is_refused() {
    for model in small_models().into_iter().map(Model::caching) {
        model.plan().with(|plan| {
            let pipeline = (0..plan.pipeline_stages.len())
                .find(|&pipeline| plan.pipeline_stages[pipeline].memory.decoding.caches_bytes > 0);
            let pipeline = pipeline.expect("a cache");
            let caches =
                |&unit: &usize| plan.units[unit].cache_bytes > 0 && plan.placements[unit].pipeline_stage == pipeline;
            let refused = |unit: usize, cache_bytes: usize| {
                let mut placements = plan.placements.to_vec();
                placements[unit] = Placement { cache_bytes, ..placements[unit] };
                let plan = Plan { placements: &placements, ..*plan };
                plan.check().map_err(|fault| fault.rule)
            };
            let first = (0..plan.units.len()).find(caches).expect("a first cache");
            let last = (0..plan.units.len()).rfind(caches).expect("a last cache");
            let last_at = plan.placements[last].cache_bytes;
            let region = plan.pipeline_stages[pipeline].memory.region(Kind::Activations).bytes;
            assert_eq!(refused(last, last_at), Ok(()));
            assert_eq!(refused(first, 0), Err("a cache where units take turns"), "{:?}", plan.config);
            assert_eq!(refused(last, region), Err("a cache that does not fit its region"), "{:?}", plan.config);
            assert_eq!(refused(last, last_at + 4), Err("caches that overlap"), "a cache that lies on no line");
            if first != last {
                assert_eq!(refused(last, last_at - 64), Err("caches that overlap"), "{:?}", plan.config);
            }
        });
    }
}

fn go_wrong(models: Vec<Model>, looks: Looks, proves: Proves) -> BTreeMap<(String, Wrong), usize> {
    let mut tried: BTreeMap<(String, Wrong), usize> = BTreeMap::new();
    for model in models {
        model.plan().with(|plan| {
            for wrong_kind in kinds(plan, looks, proves) {
                // What nobody reads may lie anywhere in its region.
                if wrong_kind.ends_with("writes nothing") {
                    continue;
                }
                for wrong in WRONGS {
                    let is_done = Cell::new(false);
                    let mutated =
                        |plan: &Plan, pass, op: Op, position: &Position, at, visit: &mut dyn FnMut(Access)| {
                            looks(plan, pass, op, position, at, &mut |access| {
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
                    let proof = proves(plan, &mutated);
                    if is_done.get() {
                        assert!(proof.is_err(), "{wrong_kind}, {wrong:?}: {:?}", plan.config);
                        *tried.entry((wrong_kind.clone(), wrong)).or_default() += 1;
                    }
                }
            }
        });
    }
    tried
}
