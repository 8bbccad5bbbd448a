//! Explain: turns findings into an answer: the best few layouts with their figures, the cost of each other choice, and
//! which layouts do not fit. The search itself is in `search`.

use serde::Serialize;
use zero_plan::spec::parse;
use zero_plan::states::StateBytes;
use zero_plan::{Plan, PlanBuf};

use super::candidate::{Candidate, Dimension};
use super::fit::Demand;
use super::least::UnitShapes;
use super::question::{NoAdvice, Question, Simulated};
use super::search::{Findings, TimedLayout, search};
use crate::simulate::{Flow, FlowBytes, LinkKind, TierPrediction, Timeline, simulate, threads_of_rank};

/// The number of layouts that are described in full.
const PICKS: usize = 3;
/// Times whose relative difference is smaller count as equal, and are printed as equal. Of these the lightest is taken.
const INDISTINCT: f64 = 5e-4;

/// The answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Advice {
    /// The best few layouts, fastest first. No two share a coarse layout.
    pub picks: Vec<Pick>,
    /// The cost of each choice that the best layout did not make.
    pub rivals: Vec<Rival>,
    /// The memory that each stage needs.
    pub stages: Vec<StageFit>,
    /// Number of layouts that were timed.
    pub timed: usize,
    /// Number of coarse layouts that fit, but not all of whose settings were timed.
    pub untimed: usize,
    /// Number of coarse layouts that do not fit.
    pub unfit: usize,
    /// Number of layouts whose specs were refused. It is 0 unless the search has a bug.
    pub refused: usize,
    /// Whether every untimed layout is certain to be no faster.
    pub is_exhaustive: bool,
}

/// A layout, and its figures.
#[derive(Clone, Debug, PartialEq)]
pub struct Pick {
    /// The layout.
    pub candidate: Candidate,
    /// How long a step takes, in seconds.
    pub step_s: f64,
    /// Tokens in one step of all ranks.
    pub tokens: usize,
    /// Tokens per second of all ranks together.
    pub tokens_per_s: f64,
    /// Model FLOPs utilization: operations that the model needs against the published rate.
    pub mfu: f64,
    /// The memory that a rank needs.
    pub need: Demand,
    /// The memory that a rank may take, in bytes.
    pub budget_bytes: usize,
    /// What a rank sends, by purpose.
    pub flows: Vec<FlowBytes>,
    /// What links carry of it, by purpose and link.
    pub sent: Vec<LinkUse>,
    /// Seconds that ranks of the busiest pipeline stage compute.
    pub compute_s: f64,
    /// Seconds of waiting for other pipeline stages, on the pipeline stage that waits most.
    pub bubble_s: f64,
    /// The cost of states in a tier; `None` if there are none.
    pub tier: Option<TierPrediction>,
}

/// Bytes on one kind of link, and how long they take.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct LinkUse {
    /// The purpose of the bytes.
    pub flow: Flow,
    /// The link that carries them.
    pub link: LinkKind,
    /// Bytes per step, of the rank that sends most.
    pub bytes: usize,
    /// Bytes over bandwidth, in seconds.
    pub busy_s: f64,
    /// Bytes over bandwidth plus latencies, in seconds: the time that the link is occupied.
    pub link_s: f64,
    /// The part of `link_s` that no computation hides, in seconds.
    pub exposed_s: f64,
}

/// A choice along one dimension that the best layout did not make.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Rival {
    /// The dimension.
    pub dimension: Dimension,
    /// The value that would replace the best layout's.
    pub value: String,
    /// Its cost.
    pub loss: Price,
}

/// The cost of a choice.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub enum Price {
    /// The best layout with this choice takes this many times as long per token.
    Slower(f64),
    /// Not all layouts with this choice were timed, and each takes at least this many times as long.
    AtLeast(f64),
    /// No layout with this choice was timed, and one might be faster: only this lower bound is known.
    Untimed(f64),
    /// No layout with this choice fits; at least this many bytes are missing.
    TooLarge(usize),
}

/// The memory that a stage needs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StageFit {
    /// The stage.
    pub stage: u8,
    /// Model states of a rank by the published formula, in the best layout's widths, with all devices along `zero`.
    pub states: StateBytes,
    /// The least memory that a rank needs in any layout at this stage without a pipeline, with everything in memory that
    /// may be, in bytes; `None` if no such
    /// layout was tried.
    pub least_bytes: Option<usize>,
    /// Whether some layout at this stage without a pipeline fits.
    pub fits: bool,
}

/// Searches, and explains what was found.
///
/// # Errors
/// The errors of [`search`].
pub fn advise(question: &Question) -> Result<Advice, NoAdvice> {
    let found = search(question, &Simulated(question.hardware))?;
    let mut shapes = UnitShapes::new(question);
    let mut picks: Vec<Pick> = Vec::new();
    for timed in &found.timed {
        if picks.len() < PICKS && !picks.iter().any(|pick| is_alike(&pick.candidate, &timed.candidate)) {
            picks.extend(pick(question, &mut shapes, lightest_of_the_fast(&found, timed)));
        }
    }
    let best = lightest_of_the_fast(&found, &found.timed[0]);
    let params: usize = shapes.of(&best.candidate).map_or(0, |units| units.iter().map(|unit| unit.params).sum());
    let stages = [0, 1, 2, 3].map(|stage| stage_fit(question, &found, params, stage));
    Ok(Advice {
        rivals: rivals(question, &found),
        stages: stages.to_vec(),
        timed: found.timed.len(),
        untimed: found.untimed.len(),
        unfit: found.unfit.len(),
        refused: found.refused,
        is_exhaustive: found.is_exhaustive,
        picks,
    })
}

/// The setting of this coarse layout that needs the least memory, among those whose simulated speed is
/// indistinguishable from this one's.
fn lightest_of_the_fast<'f>(found: &'f Findings, timed: &'f TimedLayout) -> &'f TimedLayout {
    let is_as_fast = |it: &&TimedLayout| {
        is_alike(&it.candidate, &timed.candidate) && it.token_s <= timed.token_s * (1.0 + INDISTINCT)
    };
    found.timed.iter().filter(is_as_fast).min_by_key(|it| it.bytes).unwrap_or(timed)
}

/// Whether two layouts differ only in fine settings.
fn is_alike(a: &Candidate, b: &Candidate) -> bool {
    use Dimension::{Mesh, MicroBatches, Nodes, Offload, Recompute, Stage, Widths};
    [Mesh, Nodes, Stage, Recompute, MicroBatches, Widths, Offload]
        .iter()
        .all(|&dimension| a.value(dimension) == b.value(dimension))
}

fn pick(question: &Question, shapes: &mut UnitShapes, timed: &TimedLayout) -> Option<Pick> {
    let candidate = timed.candidate;
    let config = parse(&candidate.text(question, &[])).ok()?.config();
    let units = shapes.of(&candidate)?;
    let need = Demand::of(&config, units)?;
    PlanBuf::new(question.name, config, units).with(|plan| {
        let timeline = simulate(plan, question.hardware).ok()?;
        let lanes = 0..timeline.lanes.len();
        let parts: Vec<_> = lanes.map(|pipeline| timeline.parts(plan, pipeline)).collect();
        let most = |seconds: &dyn Fn(usize) -> f64| (0..parts.len()).map(seconds).fold(0.0, f64::max);
        Some(Pick {
            candidate,
            step_s: timeline.step_s,
            tokens: config.tokens_per_step(),
            tokens_per_s: timeline.tokens_per_s(plan),
            mfu: timeline.mfu(plan, question.hardware),
            need,
            budget_bytes: question.budget(config.mesh.ranks_per_node()),
            flows: FlowBytes::of(plan),
            sent: sent(plan, &timeline),
            compute_s: most(&|i| timeline.step_s - parts[i].exposed_s() - parts[i].bubble_s()),
            bubble_s: most(&|i| parts[i].bubble_s()),
            tier: TierPrediction::of(
                plan,
                question.hardware,
                threads_of_rank(plan, question.hardware),
                &timeline,
                plan.config.offload.tier(),
            )
            .ok()?,
        })
    })
}

/// The bytes of the rank that sends most, by flow and link.
fn sent(plan: &Plan, timeline: &Timeline) -> Vec<LinkUse> {
    use crate::simulate::StepPart;
    let mut all = Vec::new();
    for (flow, link) in Flow::ALL.into_iter().flat_map(|flow| LinkKind::ALL.map(|link| (flow, link))) {
        let of_lane = |pipeline: usize| {
            let transfers = timeline.lanes[pipeline].transfers.iter().filter(|it| (it.flow, it.link) == (flow, link));
            let none = LinkUse { flow, link, bytes: 0, busy_s: 0.0, link_s: 0.0, exposed_s: 0.0 };
            let all = transfers.fold(none, |all, it| LinkUse {
                bytes: all.bytes + it.bytes,
                busy_s: all.busy_s + it.free_s - it.start_s,
                link_s: all.link_s + it.end_s - it.start_s,
                ..all
            });
            LinkUse {
                exposed_s: timeline.parts(plan, pipeline).sum(|part| part == StepPart::Exposed(flow, link)),
                ..all
            }
        };
        let lanes = (0..timeline.lanes.len()).map(of_lane);
        all.extend(lanes.max_by(|a, b| (a.bytes, a.exposed_s).partial_cmp(&(b.bytes, b.exposed_s)).expect("times")));
    }
    all.retain(|sent: &LinkUse| sent.bytes > 0);
    all
}

/// The cost of each value of each dimension, except those of the best layout.
fn rivals(question: &Question, found: &Findings) -> Vec<Rival> {
    let best = lightest_of_the_fast(found, &found.timed[0]);
    let mut rivals = Vec::new();
    for dimension in Dimension::ALL {
        let own = best.candidate.value(dimension);
        let timed = found.timed.iter().map(|it| it.candidate);
        let others = timed.chain(found.untimed.iter().map(|it| it.0)).chain(found.unfit.iter().map(|it| it.0));
        let mut values: Vec<String> = others.filter_map(|it| it.value(dimension)).collect();
        values.sort();
        values.dedup();
        let others = values.into_iter().filter(|value| Some(value) != own.as_ref());
        let mut of_dimension: Vec<Rival> =
            others.map(|value| Rival { loss: loss(question, found, dimension, &value), dimension, value }).collect();
        of_dimension.sort_by(|a, b| rank(a.loss).total_cmp(&rank(b.loss)));
        rivals.extend(of_dimension);
    }
    rivals
}

/// A key to sort by: smaller is better, and choices that do not fit come last.
fn rank(loss: Price) -> f64 {
    match loss {
        Price::Slower(factor) | Price::AtLeast(factor) | Price::Untimed(factor) => factor,
        Price::TooLarge(bytes) => 1e12 + bytes as f64,
    }
}

fn loss(question: &Question, found: &Findings, dimension: Dimension, value: &str) -> Price {
    let best_s = found.timed[0].token_s;
    let has = |candidate: &Candidate| candidate.value(dimension).as_deref() == Some(value);
    let timed = found.timed.iter().find(|it| has(&it.candidate)).map(|it| it.token_s);
    let untimed = found.untimed.iter().filter(|it| has(&it.0)).map(|it| it.1).reduce(f64::min);
    match (timed, untimed) {
        // An untimed layout with this choice may be faster than those that were timed, but not than the best.
        (Some(token_s), Some(least_s)) if (best_s..token_s).contains(&least_s) => Price::AtLeast(least_s / best_s),
        (Some(token_s), _) => Price::Slower(token_s / best_s),
        (None, Some(least_s)) if least_s >= best_s => Price::AtLeast(least_s / best_s),
        (None, Some(least_s)) => Price::Untimed(least_s / best_s),
        (None, None) => {
            let over = |&(it, bytes): &(Candidate, usize)| bytes - question.budget(it.mesh.ranks_per_node());
            Price::TooLarge(found.unfit.iter().filter(|(it, _)| has(it)).map(over).min().unwrap_or(0))
        }
    }
}

fn stage_fit(question: &Question, found: &Findings, params: usize, stage: u8) -> StageFit {
    let ranks = question.nodes * question.hardware.node.devices;
    let states = StateBytes::of_param(&found.timed[0].candidate.precision).per_rank(params, ranks, stage);
    let offload = question.offloads()[0][0];
    let is_it = |it: &Candidate| it.stage == stage && it.mesh.pipeline == 1 && it.offload == offload;
    let timed = found.timed.iter().filter(|it| is_it(&it.candidate)).map(|it| it.bytes);
    let untimed = found.untimed.iter().filter(|it| is_it(&it.0)).map(|it| it.2);
    let unfit = found.unfit.iter().filter(|it| is_it(&it.0)).map(|it| it.1);
    let fits = timed.chain(untimed).min();
    StageFit { stage, states, least_bytes: fits.or_else(|| unfit.min()), fits: fits.is_some() }
}
