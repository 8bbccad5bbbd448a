//! Serve: plans of workers, which have no step: what they have room for, and that their walks are proven.

use zero_plan::place::State;
use zero_plan::{Config, Home, Kind, Op, Pass, Placement, Report, Serve, prove, prove_ranks};

use crate::model::{Model, small_models};

const SERVE: Serve = Serve { slots: 3, staged: true };

/// Workers for models whose layers cache, and for others.
fn models(serve: Serve) -> Vec<Model> {
    let caching = small_models().into_iter().map(Model::caching);
    let all = small_models().into_iter().chain(caching);
    all.map(|model| Model { config: model.config.serving(serve), ..model }).collect()
}

#[test]
fn a_worker_has_parameters_and_caches_and_no_step() {
    for model in models(SERVE) {
        model.plan().with(|plan| {
            prove(plan).unwrap_or_else(|flaw| panic!("{flaw}: {:?}", plan.config));
            assert_eq!(plan.check(), Ok(()));
            let [stage] = plan.pipeline_stages else { panic!("one rank") };
            assert!(stage.step.is_empty() && stage.publication.is_empty());
            let forwards = stage.evaluation.iter().filter(|op| matches!(op, Op::Forward { .. })).count();
            assert_eq!(forwards, plan.units.len());
            let bytes = |kind| stage.memory.region(kind).bytes;
            let held: usize = plan.placements.iter().filter(|at| at.holds).map(|at| at.padded).sum();
            let parameters = plan.config.whole_lines(held * plan.config.precision.compute.bytes());
            assert_eq!((bytes(Kind::Parameters), bytes(Kind::Staged)), (parameters, parameters));
            let used = [Kind::Parameters, Kind::Staged, Kind::Activations, Kind::Recomputed, Kind::Workspace];
            let others = stage.memory.regions.iter().filter(|region| !used.contains(&region.kind) && region.bytes > 0);
            assert_eq!(others.count(), 0, "{:?}", stage.memory);
            assert_eq!(stage.memory.home_bytes[Home::Private as usize], stage.memory.bytes_per_rank());
            let places = plan.places(plan.config.mesh.coordinates(0));
            for unit in 0..plan.units.len() {
                assert_eq!(places.cache(unit).len_bytes, SERVE.slots * plan.units[unit].cache_bytes);
                let states = State::ALL.into_iter().filter_map(|state| places.state(state, unit));
                assert_eq!(states.count(), usize::from(plan.placements[unit].holds));
            }
        });
    }
}

/// A worker without room for newer parameters has none, and one slot needs a cache of one sequence.
#[test]
fn a_worker_has_room_for_what_it_is_asked_for() {
    for (all, one) in models(SERVE).into_iter().zip(models(Serve { slots: 1, staged: false })) {
        let memory = |model: &Model| model.plan().with(|plan| plan.pipeline_stages[0].memory);
        let (all, one) = (memory(&all), memory(&one));
        assert_eq!(one.region(Kind::Staged).bytes, 0);
        assert_eq!(all.region(Kind::Parameters).bytes, one.region(Kind::Parameters).bytes);
        assert!(all.decoding.caches_bytes >= one.decoding.caches_bytes);
        assert_eq!(all.decoding.caches_bytes > one.decoding.caches_bytes, one.decoding.caches_bytes > 0);
    }
}

/// A plan that trains pays nothing for workers.
#[test]
fn a_plan_that_trains_has_one_cache_and_nothing_staged() {
    for model in small_models() {
        model.plan().with(|plan| {
            assert_eq!(plan.config.slots(), 1);
            assert_eq!(plan.pipeline_stages[0].memory.region(Kind::Staged).bytes, 0);
            let text = serde_json::to_string(plan).expect("a plan");
            assert!(!text.contains("serve") && !text.contains("Staged"), "{text}");
        });
    }
}

/// Caches of one sequence, where three are decoded, and a step are refused.
#[test]
fn faults_in_the_plan_of_a_worker_are_found() {
    let mut refused = 0;
    for model in models(SERVE) {
        model.plan().with(|plan| {
            let one = Config { serve: Serve { slots: 1, ..SERVE }, ..plan.config };
            for unit in (0..plan.units.len()).filter(|&unit| plan.units[unit].cache_bytes > 0) {
                let next = (unit + 1..plan.units.len()).find(|&unit| plan.units[unit].cache_bytes > 0);
                let Some(next) = next else { continue };
                let mut placements = plan.placements.to_vec();
                let end = plan.placements[unit].cache_bytes + one.whole_lines(plan.units[unit].cache_bytes);
                placements[next] = Placement { cache_bytes: end, ..placements[next] };
                let wrong = zero_plan::Plan { placements: &placements, ..*plan };
                assert_eq!(wrong.check().expect_err("an overlap").rule, "caches that overlap");
                refused += 1;
            }
            let ops = [Op::Forward { unit: 0, micro_batch: 0, slot: 0 }];
            assert!(prove_ranks(plan, Pass::Train, &[&ops]).is_err());
        });
    }
    assert!(refused > 0);
}

/// Its report has no step, no batch and no checkpoint.
#[test]
fn a_report_of_a_worker_is_about_what_it_decodes() {
    for model in models(SERVE) {
        model.plan().with(|plan| {
            let text = Report(plan).to_string();
            assert!(text.contains("a worker that decodes in") && text.contains("sequences: 3 slots of "), "{text}");
            for word in ["step", "batch", "checkpoint", "ZeRO", "sent per rank"] {
                let of_words = "outside: words of a step";
                assert!(!text.replace(of_words, "").contains(word), "`{word}`: {text}");
            }
        });
    }
}
