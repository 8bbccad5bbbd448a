//! Rounds: measures everything once, then all of it again. The speed of a shared machine drifts, so programs that are
//! compared run one after another in every round, and ratios are only of figures of one round.

use std::path::PathBuf;

use zero_core::model::{Model, Program};
use zero_cpu::Bf16Products;
use zero_runtime::device::Device;
use zero_runtime::plan::Width;

use crate::Outcome;
use crate::checkpoints::{self, CHECKPOINT};
use crate::figures::{
    COLLECTIVES, Measured, Round, best, collective, gemm, median, op, ours, peak, peers, product, product_by, step,
};
use crate::flop::{fastest_bf16_product_s, fastest_product_s, gemm_peak_per_s};
use crate::models::{ROWS, Row};
use crate::processes::{self, Peer, Timed};
use crate::schedule::{self, Bare, Tiny};

/// Name of the measurement of matrix products.
pub const PRODUCTS: &str = "products";
/// Name of the measurement of ops that compute nothing.
pub const SCHEDULE: &str = "schedule";

/// Steps of a model that computes nothing: some 20 ms.
const EMPTY_STEPS: u64 = 500;

/// Number of our products, the same as the peer's. The fastest counts.
const PRODUCT_TIMES: usize = 100;

/// The widths of the matrices that are multiplied.
pub const WIDTHS: [Width; 2] = [Width::F32, Width::BF16];

/// What to measure.
pub struct Choice {
    /// A Python with torch.
    pub python: Option<PathBuf>,
    /// Rounds, at least 1.
    pub rounds: u32,
    /// Timed steps of a run, at least 1.
    pub steps: u32,
    /// Names of measurements; all where there is none.
    pub names: Vec<String>,
}

impl Choice {
    fn has(&self, name: &str) -> bool {
        self.names.is_empty() || self.names.iter().any(|chosen| chosen == name)
    }
}

/// All names of measurements.
pub fn names() -> Vec<&'static str> {
    ROWS.iter().map(|row| row.ours).chain([PRODUCTS, COLLECTIVES, SCHEDULE, CHECKPOINT]).collect()
}

/// Measures, and prints each figure on standard error as it comes.
///
/// # Errors
/// If something fails to run.
pub fn measure(choice: &Choice) -> Outcome<Measured> {
    let peer = choice.python.clone().map(|python| Peer { python });
    let version = peer.as_ref().map(Peer::version).transpose()?;
    let mut rounds = Vec::new();
    for number in 1..=choice.rounds {
        eprintln!("round {number} of {}", choice.rounds);
        rounds.push(measure_once(choice, peer.as_ref())?);
    }
    Ok(Measured { peer: version, rounds })
}

fn measure_once(choice: &Choice, peer: Option<&Peer>) -> Outcome<Round> {
    let mut round = Round::default();
    let rows = ROWS.iter().filter(|row| choice.has(row.ours));
    for (place, row) in rows.enumerate() {
        // The side that goes first alternates, so that our runs of two rows, which are also compared, follow one
        // another.
        if place % 2 == 1 {
            train_ours(row, choice.steps, &mut round)?;
        }
        if let (Some(peer), Some(mode)) = (peer, &row.peer) {
            let sample = peer.train(mode, [row.ranks(), row.threads], row.size, row.plan.params(), choice.steps)?;
            put(&mut round, &peers(&step(row.ours)), sample.step_s);
            put(&mut round, &peers(&best(row.ours)), sample.best_s);
            put(&mut round, &peers(&peak(row.ours)), sample.peak_bytes);
        }
        if place % 2 == 0 {
            train_ours(row, choice.steps, &mut round)?;
        }
    }
    if choice.has(CHECKPOINT) {
        checkpoints::measure(peer, &mut round)?;
    }
    if choice.has(PRODUCTS) {
        for width in WIDTHS {
            put(&mut round, &ours(&product(width.name())), fastest_product_s(width, PRODUCT_TIMES));
        }
        for one in Bf16Products::ALL.into_iter().filter(|one| one.is_there()) {
            put(&mut round, &ours(&product_by(one.name())), fastest_bf16_product_s(one, PRODUCT_TIMES));
        }
        for (name, seconds) in peer.map(Peer::time_products).transpose()?.unwrap_or_default() {
            put(&mut round, &peers(&product(&name)), seconds);
        }
    }
    if choice.has(COLLECTIVES) {
        let mut put_all = |side: fn(&str) -> String, all: Vec<Timed>| {
            all.iter().for_each(|one| put(&mut round, &side(&collective(&one.name, one.bytes)), one.seconds));
        };
        put_all(ours, processes::time_our_collectives()?);
        if let Some(peer) = peer {
            put_all(peers, peer.time_collectives()?);
        }
    }
    if choice.has(SCHEDULE) {
        time_ops(Bare::PROGRAM, 0, &mut round)?;
        time_ops(Tiny::PROGRAM, 0, &mut round)?;
        time_ops(Tiny::PROGRAM, 3, &mut round)?;
    }
    Ok(round)
}

fn train_ours(row: &Row, steps: u32, round: &mut Round) -> Outcome<()> {
    if row.ranks() == 1 && row.threads == 1 && row.peer.is_some() {
        let gemm = gemm(row.width());
        let peak = gemm_peak_per_s(row.width()).max(round.get(&gemm).unwrap_or(0.0));
        put(round, &gemm, peak);
    }
    let sample = processes::train_ours(row.ours, row.threads, if row.peer.is_some() { steps } else { 1 })?;
    put(round, &ours(&step(row.ours)), sample.step_s);
    put(round, &ours(&best(row.ours)), sample.best_s);
    put(round, &ours(&peak(row.ours)), sample.peak_bytes);
    Ok(())
}

fn time_ops<D: Device>(program: &'static Program<D>, stage: u8, round: &mut Round) -> Outcome<()> {
    let (plan, ops) = schedule::plan(program, stage);
    let step_s = median(schedule::time(program, &plan, EMPTY_STEPS)?);
    put(round, &op(program.plan.model, stage), step_s / ops as f64);
    Ok(())
}

fn put(round: &mut Round, name: &str, value: f64) {
    eprintln!("  {name}: {value:.4e}");
    round.put(name, value);
}
