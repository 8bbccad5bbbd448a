//! Places: the proof notices every op that looks a line too far, writes too little, or looks at another rank, whatever
//! it reads or writes.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};

use zero_plan::place::{Access, Content, Gradients, Position, Value, accesses, decoding_accesses};
use zero_plan::{Axis, Coordinates, Flaw, Home, Kind, Op, Pass, Placement, Plan, prove_accesses, prove_decoding};

use crate::model::{
    Model, at_use, models_with_offloaded_activations, models_with_offloaded_parameters, offloaded_models, small_models,
};

/// A way in which the place of an access can be wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Wrong {
    Shifted,
    Shortened,
    OtherRank(usize),
}

const WRONGS: [Wrong; 5] =
    [Wrong::Shifted, Wrong::Shortened, Wrong::OtherRank(0), Wrong::OtherRank(1), Wrong::OtherRank(2)];

impl Wrong {
    /// The wrong access; none if it would be the same access.
    fn of(self, plan: &Plan, access: Access) -> Option<Access> {
        let mut wrong = access;
        match self {
            Self::Shifted => wrong.place.offset_bytes += 64,
            // A write that is too short is found when its bytes are read, except in a state, whose old bytes are a
            // state too.
            Self::Shortened if access.writes && !matches!(access.content, Content::State { .. }) => {
                wrong.place.len_bytes -= 1;
            }
            Self::OtherRank(axis) => wrong.at = neighbour(plan, access, Axis::ALL[axis])?,
            Self::Shortened => return None,
        }
        Some(wrong)
    }
}

/// The next rank along an axis; none if there is no other, or if both hold the place in common.
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

/// The first rank.
const ORIGIN: Coordinates = Coordinates { pipeline: 0, replica: 0, zero: 0 };

/// The kind of an access: its op, its content, and whether it is a write.
fn kind(op: Op, access: &Access) -> String {
    let what = match access.content {
        Content::Nothing => "nothing",
        Content::Parameters { .. } => "parameters",
        Content::Cache { .. } => "a cache",
        Content::Published { .. } => "a copy",
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

/// A function that gives the accesses of ops, and one that proves that all ops find what they need there.
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

/// In each small model, each kind of access goes wrong once in each way: on one rank, the first time that it can.
#[test]
fn a_place_that_is_wrong_once_is_found() {
    let tried = go_wrong(small_models(), accesses, prove_accesses);
    assert!(tried.len() > 80, "{tried:#?}");
}

/// The same where states are on disk: a piece that is read or written elsewhere, in the file or in the window.
#[test]
fn a_place_of_a_piece_that_is_wrong_once_is_found() {
    let tried = go_wrong(offloaded_models(), accesses, prove_accesses);
    for kind in ["fetch reads a state", "fetch writes a state", "store reads a state", "store writes a state"] {
        assert!(tried.contains_key(&(kind.to_owned(), Wrong::Shifted)), "{kind}: {tried:#?}");
    }
}

/// The same where shards of parameters are there.
#[test]
fn a_place_of_a_shard_that_is_wrong_once_is_found() {
    let models = [models_with_offloaded_parameters(), at_use(models_with_offloaded_parameters())].concat();
    let tried = go_wrong(models, accesses, prove_accesses);
    for kind in
        ["fetch reads parameters", "fetch writes parameters", "store reads parameters", "store writes parameters"]
    {
        assert!(tried.contains_key(&(kind.to_owned(), Wrong::Shifted)), "{kind}: {tried:#?}");
    }
}

/// The same where activations are there.
#[test]
fn a_place_of_activations_that_is_wrong_once_is_found() {
    let tried = go_wrong(models_with_offloaded_activations(), accesses, prove_accesses);
    for op in ["fetch", "store"] {
        for kind in ["reads what is saved", "writes what is saved", "reads an activation", "writes an activation"] {
            assert!(tried.contains_key(&(format!("{op} {kind}"), Wrong::Shifted)), "{op} {kind}: {tried:#?}");
        }
    }
}

/// The same in decoding walks.
#[test]
fn a_place_of_a_decoding_walk_that_is_wrong_once_is_found() {
    let models = small_models().into_iter().chain(models_with_offloaded_activations());
    let caching: Vec<Model> = models.map(Model::caching).collect();
    caching.iter().for_each(|model| model.plan().with(|plan| assert_eq!(plan.check(), Ok(()))));
    let tried = go_wrong(caching, decoding_accesses, prove_decoding);
    assert!(tried.keys().any(|(kind, _)| kind == "forward writes a cache"), "{tried:#?}");
    assert!(tried.len() > 12, "{tried:#?}");
}

/// A region of activations that is too short for the caches, or a cache that overlaps others, is refused before a run.
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
            assert_eq!(refused(first, 0), Err("a cache in the places that units take turns with"), "{:?}", plan.config);
            assert_eq!(refused(last, region), Err("a cache that does not fit its region"), "{:?}", plan.config);
            assert_eq!(refused(last, last_at + 4), Err("caches that overlap"), "a cache that lies on no line");
            if first != last {
                assert_eq!(refused(last, last_at - 64), Err("caches that overlap"), "{:?}", plan.config);
            }
        });
    }
}

/// [`Plan::in_use`], which explains a peak, counts each byte of its rank that an op touches.
#[test]
fn every_byte_that_an_op_touches_counts_as_in_use() {
    for model in small_models().into_iter().chain(offloaded_models()).chain(models_with_offloaded_activations()) {
        model.plan().with(|plan| {
            for (pipeline, stage) in plan.pipeline_stages.iter().enumerate() {
                let (at, mut position) = (Coordinates { pipeline, ..ORIGIN }, Position::new(plan.units.len()));
                for (&op, in_use) in stage.step.iter().zip(plan.in_use(pipeline)) {
                    let mut touched: BTreeMap<usize, BTreeSet<usize>> = BTreeMap::new();
                    accesses(plan, Pass::Train, op, &position, at, &mut |Access { at: whose, mut place, .. }| {
                        // The half of a batch that is not needed has more room than it takes.
                        if place == plan.places(at).unneeded() {
                            let (first, last) = (&plan.units[0], &plan.units[plan.units.len() - 1]);
                            place.len_bytes = if pipeline == 0 { last.targets_bytes } else { first.input_bytes };
                        }
                        // Ranks share the regions that they hold in common.
                        let home = stage.memory.region(place.region).home;
                        if whose == at && home != Home::Common && !home.is_tier() {
                            let bytes = place.offset_bytes..place.offset_bytes + place.len_bytes;
                            touched.entry(place.region as usize).or_default().extend(bytes);
                        }
                    });
                    for (region, bytes) in touched {
                        let (kind, bytes) = (Kind::ALL[region], bytes.len());
                        assert!(bytes <= in_use[region], "{op:?}: {bytes} bytes of {kind:?}, {:?}", plan.config);
                    }
                    position.pass(op);
                }
            }
        });
    }
}

fn go_wrong(models: Vec<Model>, looks: Looks, proves: Proves) -> BTreeMap<(String, Wrong), usize> {
    let mut tried: BTreeMap<(String, Wrong), usize> = BTreeMap::new();
    for model in models {
        model.plan().with(|plan| {
            for wrong_kind in kinds(plan, looks, proves) {
                // Bytes that no op reads may lie anywhere in their region.
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
