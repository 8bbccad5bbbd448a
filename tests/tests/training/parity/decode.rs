//! Decoding: token by token with a cache, a sequence continues as if each prediction read all of it anew, on every mesh and at
//! every stage, even if it is longer than the context of the model; and a text has the loss of its tokens.

use std::panic::{AssertUnwindSafe, catch_unwind};

use zero_core::model::{Model, Program};
use zero_core::random::uniform;
use zero_engine::Engine;
use zero_plan::{Config, Kind, Order, PlanBuf, Precision, Recompute, TransportKind, Width};
use zero_ranks::transport::{Shared, local};
use zero_runtime::__tests::summed_loss;
use zero_runtime::__tests::{Sampler, Sampling, Window};
use zero_runtime::data::Text;
use zero_runtime::device::Cpu;
use zero_tests::tiny::{InBothWidths, Tied, Untied, VOCAB};
use zero_tests::training::{CONFIG, HYPER, mesh, noise};

use super::meshes::stages;

const PROMPT: [u32; 5] = [3, 1, 4, 1, 5];

/// More than twice the context of the tiny models.
const GENERATED: usize = 25;

/// Tokens, and the logits from which each was chosen.
type Generated = (Vec<u32>, Vec<Vec<f32>>);

/// A rank on threads.
pub type Ranks<'p> = Engine<'p, Cpu, Shared<'p, Cpu>>;

/// An engine with parameters that distinguish tokens.
pub fn loaded<'p>(program: &'static Program<Cpu>, transport: Shared<'p, Cpu>) -> Ranks<'p> {
    let mut engine = Engine::new(program, transport);
    for (unit, sizes) in engine.plan().units.iter().enumerate() {
        engine.load(unit, &flat_buffer(unit as u64, sizes.params));
    }
    engine
}

/// Parameters that distinguish tokens.
pub fn flat_buffer(seed: u64, params: usize) -> Vec<f32> {
    (0..params as u64).map(|i| uniform(seed, i) as f32 - 0.5).collect()
}

/// The likeliest tokens after the prompt, with a cache or without.
fn greedy<'p>(engine: &mut Ranks<'p>, caches: bool) -> Generated {
    let mut window = Window::new(&PROMPT, engine.plan().config.length);
    let (mut sampler, mut logits) = (Sampler::new(Sampling::GREEDY, VOCAB), vec![f32::NAN; VOCAB]);
    let (mut tokens, mut all) = (Vec::new(), Vec::new());
    for _ in 0..GENERATED {
        let has_logits = if caches {
            let has_logits = engine.decode(window.uncached(), window.cached(), &mut logits);
            window.is_cached();
            has_logits
        } else {
            engine.predict(window.ids(), &mut logits)
        };
        let has_logits = has_logits.expect("a prediction");
        let choice = if has_logits { sampler.choose(&logits, 0.5).expect("finite logits") } else { 0 };
        let id = engine.from_last_pipeline_stage(f64::from(choice)).expect("a number") as u32;
        window.push(id);
        tokens.push(id);
        all.extend(has_logits.then(|| logits.clone()));
    }
    (tokens, all)
}

/// The tokens that all ranks of a plan generate, which must be the same, with the logits of the last pipeline stage.
fn generated(program: &'static Program<Cpu>, config: &Config, caches: bool) -> Generated {
    let ranks = PlanBuf::new("", *config, program.plan.units).with(|plan| {
        zero_plan::prove(plan).unwrap_or_else(|flaw| panic!("{flaw}"));
        local::run(plan, |_| false, |transport| greedy(&mut loaded(program, transport), caches))
    });
    let ranks = ranks.expect("the memory of a tiny model");
    assert!(ranks.iter().all(|rank| rank.0 == ranks[0].0), "ranks choose differently: {config:?}");
    ranks.into_iter().rfind(|rank| !rank.1.is_empty()).expect("a last pipeline stage")
}

/// The largest difference of logits.
fn difference(one: &Generated, other: &Generated) -> f32 {
    assert_eq!((one.1.len(), other.1.len()), (GENERATED, GENERATED));
    let logits = |generated: &Generated| generated.1.concat();
    logits(one).iter().zip(logits(other)).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
}

/// A third of the variants of these meshes, a different third each time.
fn configs() -> impl Iterator<Item = Config> {
    let interleaved = Order::Interleaved { chunks: 2 };
    let of_meshes = [
        (1, 1, 1, Order::OneFOneB),
        (1, 1, 3, Order::OneFOneB),
        (1, 2, 1, Order::OneFOneB),
        (2, 1, 1, Order::GPipe),
        (2, 1, 2, Order::OneFOneB),
        (2, 1, 1, interleaved),
        (4, 1, 1, Order::OneFOneB),
    ];
    of_meshes.into_iter().enumerate().flat_map(|(i, (pipeline, replica, zero, order))| {
        let micro_batches = if pipeline > 1 { 4 } else { 1 };
        let config = Config { mesh: mesh(pipeline, replica, zero), order, micro_batches, ..CONFIG };
        stages(config).into_iter().skip(i % 5).step_by(5)
    })
}

fn decodes_as_it_predicts(program: &'static Program<Cpu>) {
    let predicted = generated(program, &CONFIG.at_stage(0), false);
    // A tied model repeats its last token.
    let is_tied = program.plan.units.iter().any(|unit| unit.takes > unit.params);
    assert!(is_tied || predicted.0.iter().any(|&id| id != predicted.0[0]), "one token: {:?}", predicted.0);
    for config in configs() {
        let decoded = generated(program, &config, true);
        assert_eq!(decoded.0, predicted.0, "{config:?}");
        assert!(difference(&decoded, &predicted) < 1e-4, "{config:?}");
    }
}

#[test]
fn greedy_tokens_are_the_same_with_a_cache_on_every_mesh() {
    decodes_as_it_predicts(Untied::PROGRAM);
}

#[test]
fn greedy_tokens_are_the_same_with_a_cache_and_tied_weights() {
    decodes_as_it_predicts(Tied::PROGRAM);
}

/// In bf16, cached values are rounded like recomputed ones, so logits differ only by roundings.
#[test]
fn logits_in_bf16_are_the_same_to_rounding() {
    type Narrow = <Untied as InBothWidths>::Narrow;
    let precision = Precision { compute: Width::BF16, ..Precision::default() };
    for (pipeline, zero) in [(1, 1), (1, 2), (2, 1)] {
        let micro_batches = if pipeline > 1 { 2 } else { 1 };
        let config = Config { mesh: mesh(pipeline, 1, zero), micro_batches, precision, ..CONFIG.at_stage(3) };
        let main = |transport: Shared<'_, Cpu>| {
            let mut engine = loaded(Narrow::PROGRAM, transport);
            let (mut decoded, mut predicted) = (vec![0.0; VOCAB], vec![0.0; VOCAB]);
            let ids: Vec<u32> = (0..11).map(|i| 7 * i % VOCAB as u32).collect();
            let mut both = Vec::new();
            for before in 0..ids.len() {
                let has_logits = engine.decode(&ids[before..=before], before, &mut decoded).expect("logits");
                both.extend(has_logits.then(|| decoded.clone()));
            }
            for end in 1..=ids.len() {
                engine.predict(&ids[..end], &mut predicted).expect("logits");
                if let Some(decoded) = both.get(end - 1) {
                    let largest = predicted.iter().fold(0f32, |most, logit| most.max(logit.abs()));
                    let off = predicted.iter().zip(decoded).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
                    assert!(off <= 0.03 * largest, "{off} of {largest} after {end} tokens: {config:?}");
                }
            }
        };
        let plan = PlanBuf::new("", config, Narrow::PLAN.units);
        plan.with(|plan| local::run(plan, |()| false, main)).expect("the memory of a tiny model");
    }
}

/// For any number of calls that supply its tokens, and also if it continues from fewer of them.
#[test]
fn a_sequence_is_decoded_in_any_number_of_calls() {
    let main = |transport: Shared<'_, Cpu>| {
        let mut engine = loaded(Untied::PROGRAM, transport);
        let ids: Vec<u32> = (0..11).map(|i| 5 * i % VOCAB as u32).collect();
        let mut expected = vec![0.0; VOCAB];
        engine.predict(&ids, &mut expected).expect("logits");
        for calls in [&[11][..], &[1; 11], &[4, 7], &[10, 1], &[2, 3, 1, 5]] {
            let (mut before, mut logits) = (0, vec![0.0; VOCAB]);
            for &len in calls {
                engine.decode(&ids[before..before + len], before, &mut logits).expect("logits");
                before += len;
            }
            assert!(expected.iter().zip(&logits).all(|(a, b)| (a - b).abs() < 1e-4), "{calls:?}");
            // The same beginning with another end, and then this end again.
            engine.decode(&[1, 2, 3], 7, &mut logits).expect("logits");
            engine.decode(&ids[7..], 7, &mut logits).expect("logits");
            assert!(expected.iter().zip(&logits).all(|(a, b)| (a - b).abs() < 1e-4), "{calls:?}, again");
        }
    };
    let plan = PlanBuf::new("", CONFIG, Untied::PLAN.units);
    plan.with(|plan| local::run(plan, |()| false, main)).expect("the memory of a tiny model");
}

/// If activations are not kept, the region for them is too short for the caches, and grows.
#[test]
fn caches_have_room_where_activations_have_none() {
    let region = |recompute| {
        let config = Config { recompute, ..CONFIG };
        PlanBuf::new("", config, Untied::PLAN.units).with(|plan| {
            let memory = plan.pipeline_stages[0].memory;
            (memory.region(Kind::Activations).bytes, memory.activation_slot_bytes, memory.decoding.bytes())
        })
    };
    let (all, slot, decoding) = region(Recompute::None);
    assert!(all == slot && slot > decoding, "{all}, {slot}, {decoding}");
    let (all, slot, decoding) = region(Recompute::Every(1));
    assert!(all == decoding && slot < decoding, "{all}, {slot}, {decoding}");
    let config = Config { recompute: Recompute::Every(1), ..CONFIG };
    assert_eq!(generated(Untied::PROGRAM, &config, true).0, generated(Untied::PROGRAM, &config, false).0);
}

/// A step, an evaluation or a prediction may use the memory of caches.
#[test]
fn caches_end_with_any_other_walk() {
    let panics = |other: &(dyn for<'p> Fn(&mut Ranks<'p>) + Sync)| {
        let main = |transport: Shared<'_, Cpu>| {
            let (mut engine, mut logits) = (loaded(Untied::PROGRAM, transport), vec![0.0; VOCAB]);
            engine.decode(&PROMPT, 0, &mut logits).expect("logits");
            other(&mut engine);
            let next = AssertUnwindSafe(|| engine.decode(&[1], PROMPT.len(), &mut logits).map(drop));
            catch_unwind(next).err().and_then(|panic| panic.downcast_ref::<String>().cloned())
        };
        let plan = PlanBuf::new("", CONFIG, Untied::PLAN.units);
        plan.with(|plan| local::run(plan, |_| false, main)).expect("the memory of a tiny model").remove(0)
    };
    assert_eq!(panics(&|_| ()), None);
    assert_eq!(panics(&|engine| drop(engine.gather_numbers(&[1.0]).map(<[f64]>::to_vec))), None);
    let expected = Some("5 tokens come before, but 0 are cached: decode those first".to_owned());
    let batch = |_: usize, ids: &mut [u32], targets: &mut [u32]| noise(CONFIG)(0, 0, 0, ids, targets);
    assert_eq!(panics(&|engine| drop(engine.step(&HYPER, batch))), expected);
    assert_eq!(panics(&|engine| assert!(engine.predict(&[1], &mut [0.0; VOCAB]).is_ok())), expected);
    assert_eq!(panics(&|engine| drop(engine.evaluate(batch))), expected);
}

/// Every token but the first is predicted once, for any mesh and any amount of padding in the last micro-batch.
#[test]
fn the_loss_of_a_text_is_that_of_its_tokens() {
    for tokens in [24, 60, 133, 265] {
        let bytes: Vec<u8> = (0..tokens).map(|i| (i * i % 7 + i % VOCAB) as u8 % VOCAB as u8).collect();
        let text = |length| Text::in_memory(bytes.clone(), "a test", length, VOCAB).expect("a text");
        let of = |config: Config| {
            let text = text(config.length);
            let main = |transport: Shared<'_, Cpu>| {
                summed_loss(&mut loaded(Untied::PROGRAM, transport), &text).expect("a loss")
            };
            let plan = PlanBuf::new("", config, Untied::PLAN.units);
            let ranks = plan.with(|plan| local::run(plan, |_| false, main)).expect("the memory of a tiny model");
            assert!(ranks.iter().all(|rank| *rank == ranks[0]), "ranks find other losses");
            ranks[0]
        };
        let (sum, counted) = of(CONFIG.at_stage(0));
        assert_eq!(counted, tokens - 1);
        assert!((sum - one_by_one(&text(11), tokens)).abs() < 1e-3 * sum, "{tokens} tokens: {sum}");
        for (pipeline, replica, zero) in [(1, 1, 1), (1, 1, 3), (1, 2, 2), (2, 1, 2)] {
            let micro_batches = if pipeline > 1 { 2 } else { 1 };
            let transport = TransportKind::Local;
            let config = Config { mesh: mesh(pipeline, replica, zero), micro_batches, transport, ..CONFIG.at_stage(3) };
            let (on_mesh, counted) = of(config);
            assert_eq!(counted, tokens - 1, "{config:?}");
            assert!((on_mesh - sum).abs() < 1e-6 * sum, "{on_mesh}, not {sum}: {config:?}");
        }
    }
}

/// The same sum from predictions of each token.
fn one_by_one(text: &Text, tokens: usize) -> f64 {
    let main = |transport: Shared<'_, Cpu>| {
        let (mut engine, mut logits, mut sum) = (loaded(Untied::PROGRAM, transport), vec![0.0; VOCAB], 0.0);
        let (mut input, mut targets) = ([0; 11], [0; 11]);
        for window in 0..(tokens - 1).div_ceil(11) {
            text.window(window, &mut input, &mut targets);
            for last in 0..text.window_tokens(window) {
                engine.predict(&input[..=last], &mut logits).expect("logits");
                let exp = |logit: f32| f64::from(logit).exp();
                let target = logits[targets[last] as usize];
                sum += logits.iter().map(|&logit| exp(logit)).sum::<f64>().ln() - f64::from(target);
            }
        }
        sum
    };
    let config = CONFIG.at_stage(0);
    let plan = PlanBuf::new("", config, Untied::PLAN.units);
    plan.with(|plan| local::run(plan, |_| false, main)).expect("the memory of a tiny model")[0]
}
