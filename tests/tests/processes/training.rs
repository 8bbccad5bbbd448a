//! `main` follows its arguments: its training is compared, to the bit, with an engine that the test drives itself, on ranks that
//! are threads.

use std::fs;
use std::str::FromStr;

use zero_core::model::Model;
use zero_core::random::uniform;
use zero_engine::{Engine, Evaluated, Hyper, RunError};
use zero_plan::{Config, PlanBuf, TransportKind};
use zero_ranks::transport::{Shared, local};
use zero_runtime::data::{Dataset, Draw, Text};
use zero_runtime::device::Cpu;
use zero_tests::tiny::{BYTES, Piped};

use crate::run::program;

/// A text that is long enough to hold out several micro-batches.
const TEXT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/README.md");
const STEPS: u64 = 7;
const WARMUP: u64 = 3;
const LR: f64 = 0.02;
const LR_MIN: f64 = LR * 0.3;
const SEED: u64 = 11;
const TEMPERATURE: f64 = 0.9;
/// Longer than a sequence, so that its first bytes are dropped.
const PROMPT: &str = "pub fn sample(";
const SAMPLED: u64 = 24;
/// Sequences for a held-out loss, which fill no whole number of micro-batches, and the steps between two held-out losses.
const HELD_OUT: usize = 7;
const HELD_OUT_EVERY: u64 = 3;

const ARGUMENTS: &str = "--steps 7 --warmup 3 --lr 0.02 --lr-min-ratio 0.3 --beta1 0.8 --beta2 0.7 --epsilon 1e-3 \
    --weight-decay 0.5 --clip 0.05 --seed 11 --temperature 0.9 --sample 24 --held-out 7 --held-out-every 3 --log-every 5";

/// A straight rise that reaches its top with the last step of the warm-up, then half a turn of a cosine.
fn learning_rate(step: u64) -> f64 {
    if step < WARMUP {
        return LR * (step + 1) as f64 / WARMUP as f64;
    }
    let turn = (step - WARMUP) as f64 / (STEPS - 1 - WARMUP) as f64;
    LR_MIN + (LR - LR_MIN) * (0.5 * (1.0 + (std::f64::consts::PI * turn).cos()))
}

/// The numbers that a run reports.
#[derive(Debug, Default, PartialEq)]
struct Told {
    /// Loss, norm of the gradient and learning rate of each step.
    steps: Vec<[f64; 3]>,
    /// A number of completed steps, and the held-out loss at that time.
    held_out: Vec<(u64, f64)>,
}

/// The place of a micro-batch's n-th sequence in the global batch, which is ordered by micro-batch, then data rank, then sequence.
fn place(config: &Config, micro_batch: usize, data_rank: usize, sequence: usize) -> usize {
    sequence + config.sequences * (data_rank + config.mesh.data_ranks() * micro_batch)
}

/// Trains one rank by hand.
fn rank_main(transport: Shared<Cpu>, text: &Text) -> Result<(Told, Vec<u8>), RunError> {
    let mut engine = Engine::new(Piped::PROGRAM, transport);
    let config = engine.plan().config;
    let data_rank = engine.arena().coordinates().data_rank(&config.mesh);
    engine.initialize(SEED);
    let mut told = Told::default();
    for step in 0..STEPS {
        let lr = learning_rate(step);
        let hyper =
            Hyper { lr, beta1: 0.8, beta2: 0.7, momentum: 0.95, epsilon: 1e-3, weight_decay: 0.5, clip: Some(0.05) };
        let report = engine.step(&hyper, |micro_batch, ids, targets| {
            let sequences = ids.chunks_mut(config.length).zip(targets.chunks_mut(config.length));
            for (sequence, (ids, targets)) in sequences.enumerate() {
                let index = place(&config, micro_batch, data_rank, sequence) as u64;
                text.training(Draw { seed: SEED, step, index }, ids, targets);
            }
        })?;
        told.steps.push([report.loss, report.gradient_norm, lr]);
        assert!(report.gradient_norm > 0.1, "clipping does nothing");
        if (step + 1).is_multiple_of(HELD_OUT_EVERY) || step + 1 == STEPS {
            told.held_out.push((step + 1, held_out(&mut engine, text, data_rank)?));
        }
    }
    Ok((told, sample(&mut engine)?))
}

/// The loss of a sequence in each micro-batch; the others in it are padding.
fn held_out<'p>(engine: &mut Engine<'p, Cpu, Shared<'p, Cpu>>, text: &Text, data_rank: usize) -> Result<f64, RunError> {
    let config = engine.plan().config;
    let (mut so_far, mut summed) = (Evaluated::default(), (0.0, 0));
    for turn in 0..HELD_OUT.div_ceil(config.mesh.data_ranks()) {
        let index = turn * config.mesh.data_ranks() + data_rank;
        let counted = if index < HELD_OUT { config.length } else { 0 };
        summed = engine.evaluate_first(&mut so_far, counted, |_, ids, targets| {
            for (ids, targets) in ids.chunks_mut(config.length).zip(targets.chunks_mut(config.length)) {
                text.held_out(index, ids, targets);
            }
        })?;
    }
    let (sum, tokens) = summed;
    assert_eq!(tokens, HELD_OUT * config.length);
    Ok(sum / tokens as f64)
}

/// Prompt and sample.
fn sample<'p>(engine: &mut Engine<'p, Cpu, Shared<'p, Cpu>>) -> Result<Vec<u8>, RunError> {
    let length = engine.plan().config.length;
    let mut bytes = PROMPT.as_bytes().to_vec();
    let mut first = bytes.len().saturating_sub(length);
    for i in 0..SAMPLED {
        // When all places are full, the newest half is kept.
        if bytes.len() - first > length {
            first = bytes.len() - 1 - length / 2;
        }
        let seen: Vec<u32> = bytes[first..].iter().copied().map(u32::from).collect();
        let mut logits = [0.0; BYTES];
        let has_logits = engine.predict(&seen, &mut logits)?;
        let drawn = if has_logits { drawn(&logits, uniform(SEED, i)) } else { 0 };
        bytes.push(engine.from_last_pipeline_stage(drawn as f64)? as u8);
    }
    Ok(bytes)
}

/// The first id up to which softmax(logits / temperature) sums to more than `place`.
fn drawn(logits: &[f32], place: f64) -> usize {
    let weights: Vec<f64> = logits.iter().map(|&logit| (f64::from(logit) / TEMPERATURE).exp()).collect();
    let all: f64 = weights.iter().sum();
    let mut sum = 0.0;
    weights
        .iter()
        .position(|weight| {
            sum += weight;
            sum > place * all
        })
        .expect("a place below 1")
}

/// The number of a key, with all printed digits.
fn number<T: FromStr>(line: &str, key: &str) -> T {
    let (_, rest) = line.split_once(&format!("\"{key}\":")).unwrap_or_else(|| panic!("no `{key}` in {line}"));
    let number = rest.split([',', '}']).next().unwrap();
    number.parse().ok().unwrap_or_else(|| panic!("`{key}` is {number}"))
}

#[test]
fn main_trains_to_the_bits_of_the_engine() {
    let config = Config { transport: TransportKind::Local, ..Piped::PLAN.config };
    assert!((config.mesh.pipeline, config.mesh.data_ranks(), config.micro_batches) == (2, 2, 3));
    let text = Text::open(TEXT.as_ref(), None, config.length, BYTES).unwrap();
    assert!(text.held_out_count() > HELD_OUT && !HELD_OUT.is_multiple_of(config.mesh.data_ranks() * config.sequences));
    let ranks = PlanBuf::new(Piped::PLAN.model, config, Piped::PLAN.units)
        .with(|plan| local::run(plan, Result::is_err, |transport| rank_main(transport, &text)))
        .expect("the memory of a tiny model");
    let (expected, bytes) = ranks.into_iter().map(|rank| rank.expect("a run without faults")).next().unwrap();
    assert_eq!(expected.held_out.iter().map(|(step, _)| *step).collect::<Vec<_>>(), [3, 6, 7]);

    let directory = tempfile::tempdir().unwrap();
    let metrics = directory.path().join("metrics.jsonl");
    let mut command = program(env!("CARGO_BIN_EXE_piped"));
    command.args(["--data", TEXT, "--prompt", PROMPT]).args(ARGUMENTS.split_whitespace());
    let output = command.arg("--metrics").arg(&metrics).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));

    let mut told = Told::default();
    for line in fs::read_to_string(&metrics).unwrap().lines() {
        if line.contains("\"kind\":\"step\"") {
            told.steps.push(["loss", "gradient_norm", "lr"].map(|key| number(line, key)));
        } else if line.contains("\"kind\":\"held_out\"") {
            told.held_out.push((number(line, "step"), number(line, "held_out_loss")));
        }
    }
    assert_eq!(told, expected);
    let said = String::from_utf8(output.stdout).unwrap();
    let (_, sampled) = said.split_once("\nsample:\n").expect("a sample");
    let expected = String::from_utf8_lossy(&bytes);
    assert!(sampled.starts_with(&format!("{expected}\n")), "expected {expected:?}, found {sampled:?}");
    for line in ["step    1/7  ", "step    5/7  ", "step    7/7  ", "held-out loss "] {
        assert!(said.contains(&format!("\n{line}")), "no `{line}` in {said}");
    }
    assert_eq!(said.matches("\nstep ").count(), 3, "{said}");
    let (after, nats) = told.held_out[0];
    assert!(said.contains(&format!("\nheld-out loss {nats:.4} nats after step {after}\n")), "{said}");
}
