//! Explain: what was found as an answer: the best few with their figures, what each other choice would cost, and what does not
//! fit. Never searches by itself.

use serde::Serialize;

use super::candidate::{Candidate, Dimension};
use super::fit::Demand;
use super::question::{NoAdvice, Question, Simulated};
use super::search::{Findings, TimedLayout, UnitShapes, search};
use crate::build::PlanBuf;
use crate::plan::Plan;
use crate::simulate::{Flow, LinkKind, Timeline, simulate};
use crate::spec::parse;
use crate::states::StateBytes;

/// Layouts that are told in full.
const PICKS: usize = 3;
/// Times that differ by less, as a share, are the same.
const INDISTINCT: f64 = 1e-3;

/// The answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Advice {
    /// The best few, fastest first; each has another coarse layout.
    pub picks: Vec<Pick>,
    /// For the best of them, what each other choice would cost.
    pub rivals: Vec<Rival>,
    /// What each stage needs.
    pub stages: Vec<StageFit>,
    /// Layouts that were timed.
    pub timed: usize,
    /// Coarse layouts that fit and were not timed, or not in all of their settings.
    pub untimed: usize,
    /// Coarse layouts that do not fit.
    pub unfit: usize,
    /// Layouts that a spec may not say, though all that are tried should be such.
    pub refused: usize,
    /// Whether nothing that was not timed can be faster.
    pub is_exhaustive: bool,
}

/// A layout, and its figures.
#[derive(Clone, Debug, PartialEq)]
pub struct Pick {
    /// The layout.
    pub candidate: Candidate,
    /// How long a step takes, in seconds.
    pub step_s: f64,
    /// Tokens of a step of all ranks.
    pub tokens: usize,
    /// Tokens a second of all ranks.
    pub tokens_per_s: f64,
    /// Model FLOPs utilization: operations that the model needs against the published rate.
    pub mfu: f64,
    /// What a rank needs.
    pub need: Demand,
    /// What it may take, in bytes.
    pub budget_bytes: usize,
    /// What it sends, by flow and link.
    pub sent: Vec<LinkUse>,
    /// Seconds in which ranks compute, on the busiest pipeline stage.
    pub compute_s: f64,
    /// Seconds in which a rank waits for another pipeline stage, on the one that waits most.
    pub bubble_s: f64,
}

/// Bytes on one kind of link, and how long they take.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct LinkUse {
    /// Their purpose.
    pub flow: Flow,
    /// The link on which they travel.
    pub link: LinkKind,
    /// Bytes that the rank that sends most sends in a step.
    pub bytes: usize,
    /// Bytes over bandwidth, in seconds.
    pub busy_s: f64,
    /// The same with latencies: how long the link is busy with them, in seconds.
    pub link_s: f64,
    /// What of it nothing hides, in seconds.
    pub exposed_s: f64,
}

/// Another choice along one dimension.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Rival {
    /// The dimension.
    pub dimension: Dimension,
    /// The value in place of the best layout's.
    pub value: String,
    /// What it would cost.
    pub loss: Price,
}

/// What a choice would cost.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub enum Price {
    /// The best layout with it takes so many times as long for a token.
    Slower(f64),
    /// Any layout with it takes at least so many times as long.
    AtLeast(f64),
    /// Of some layouts with it nothing is known but that they take at least so many times as long.
    Untimed(f64),
    /// No layout with it fits; so many bytes are missing at least.
    TooLarge(usize),
}

/// What a stage needs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StageFit {
    /// The stage.
    pub stage: u8,
    /// Model states of a rank by the published formula, in the best layout's widths, with all devices along `zero`.
    pub states: StateBytes,
    /// The least that a rank of any layout at this stage without a pipeline needs, in bytes; none where none was tried.
    pub least_bytes: Option<usize>,
    /// Whether some layout at this stage without a pipeline fits.
    pub fits: bool,
}

/// Searches, and explains what was found.
///
/// # Errors
/// Those of [`search`].
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

/// The lightest of the settings of a layout that are as fast as this one, as far as a simulation can tell.
fn lightest_of_the_fast<'f>(found: &'f Findings, timed: &'f TimedLayout) -> &'f TimedLayout {
    let is_as_fast = |it: &&TimedLayout| {
        is_alike(&it.candidate, &timed.candidate) && it.token_s <= timed.token_s * (1.0 + INDISTINCT)
    };
    found.timed.iter().filter(is_as_fast).min_by_key(|it| it.bytes).unwrap_or(timed)
}

/// Whether two layouts differ in fine settings alone.
fn is_alike(a: &Candidate, b: &Candidate) -> bool {
    use Dimension::{Mesh, MicroBatches, Nodes, Recompute, Stage, Widths};
    [Mesh, Nodes, Stage, Recompute, MicroBatches, Widths]
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
            sent: sent(plan, &timeline),
            compute_s: most(&|i| timeline.step_s - parts[i].exposed_s() - parts[i].bubble_s()),
            bubble_s: most(&|i| parts[i].bubble_s()),
        })
    })
}

/// What the rank that sends most sends, by flow and link.
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

/// Smaller is better; what does not fit comes last.
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
    let is_it = |candidate: &Candidate| candidate.stage == stage && candidate.mesh.pipeline == 1;
    let timed = found.timed.iter().filter(|it| is_it(&it.candidate)).map(|it| it.bytes);
    let untimed = found.untimed.iter().filter(|it| is_it(&it.0)).map(|it| it.2);
    let unfit = found.unfit.iter().filter(|it| is_it(&it.0)).map(|it| it.1);
    let fits = timed.chain(untimed).min();
    StageFit { stage, states, least_bytes: fits.or_else(|| unfit.min()), fits: fits.is_some() }
}
