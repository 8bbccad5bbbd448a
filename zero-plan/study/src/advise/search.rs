//! Search: finds the layouts that fit, and times some of them. Never explains the result.

use zero_plan::spec::{RANKS_MAX, parse};
use zero_plan::{Axis, Kind, Mesh, Often, PlanBuf, TransportKind, Unit, Width};

use super::candidate::{Candidate, Dimension};
use super::fit::Demand;
use super::question::{Judge, NoAdvice, Question, gb};
use super::space::{coarse, fine, with_nodes};

/// A layout that fits, and was timed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TimedLayout {
    /// The layout.
    pub candidate: Candidate,
    /// The memory that a rank needs, in bytes.
    pub bytes: usize,
    /// How long a step takes, in seconds.
    pub step_s: f64,
    /// Seconds per token, by which layouts are compared.
    pub token_s: f64,
}

/// The result of a search.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Findings {
    /// The layouts that were timed, fastest first.
    pub timed: Vec<TimedLayout>,
    /// Coarse layouts that fit but were not timed in all settings, with a lower bound of their seconds per token and
    /// the least memory that they need, in bytes.
    pub untimed: Vec<(Candidate, f64, usize)>,
    /// Coarse layouts that do not fit, with the least memory that they need, in bytes.
    pub unfit: Vec<(Candidate, usize)>,
    /// Whether every untimed layout is certain to be no faster than the fastest timed one.
    pub is_exhaustive: bool,
    /// Number of specs that were refused. It is 0 unless the search has a bug.
    pub refused: usize,
}

/// A coarse layout that fits.
struct CoarseLayout {
    coarse: Candidate,
    /// A lower bound of its time, in seconds per token.
    least_s: f64,
    /// The least memory that it needs, in bytes.
    bytes: usize,
    /// Settings that fit and have not been timed. The setting that is likely fastest comes last.
    left: Vec<Candidate>,
    /// The best time so far, in seconds per token.
    best_s: f64,
}

/// A width and the sequences of a micro-batch, with the units if they are known.
type KnownUnits = ((Width, usize), Option<Vec<Unit>>);

/// Units by width and sequences. Each shape is asked for once.
pub(super) struct UnitShapes<'q, 'a> {
    question: &'q Question<'a>,
    known: Vec<KnownUnits>,
}

impl<'q, 'a> UnitShapes<'q, 'a> {
    pub(super) fn new(question: &'q Question<'a>) -> Self {
        Self { question, known: Vec::new() }
    }

    pub(super) fn of(&mut self, candidate: &Candidate) -> Option<&[Unit]> {
        let shape = (candidate.precision.compute, candidate.sequences);
        if !self.known.iter().any(|(known, _)| *known == shape) {
            self.known.push((shape, (self.question.units)(shape.0, shape.1)));
        }
        self.known.iter().find(|(known, _)| *known == shape)?.1.as_deref()
    }
}

/// The fine settings of a coarse layout that need the least memory: one if it reduces in every micro-batch, and one if
/// it reduces once a step.
fn lightest(question: &Question, coarse: Candidate) -> Vec<Candidate> {
    let (pins, given) = (&question.pins, &question.pins.spec.zero);
    let shares = coarse.stage == 3 && coarse.mesh.zero > 1;
    let prefetch = if shares { pins.numbers("zero.prefetch", &[0])[0] } else { 1 };
    let bucket = pins.or("zero.bucket", given.bucket, &[coarse.bucket])[0];
    let gather = if shares { pins.or("zero.gather", given.gather, &[Often::PerMicroBatch])[0] } else { coarse.gather };
    let reduce = if coarse.micro_batches > 1 { pins.often("zero.reduce") } else { vec![Often::PerMicroBatch] };
    let light = Candidate { prefetch: coarse.prefetch.map(|_| prefetch), bucket, gather, ..coarse };
    reduce.into_iter().map(|reduce| Candidate { reduce, ..light }).collect()
}

/// Looks for the layouts with the fewest seconds per token.
///
/// # Errors
/// If the machines or the tokens are impossible, or nothing fits.
pub fn search(question: &Question, judge: &dyn Judge) -> Result<Findings, NoAdvice> {
    question.require_machines()?;
    let mut shapes = UnitShapes::new(question);
    let (mut found, mut groups) = (Findings::default(), fitting(question, &mut shapes, judge)?);
    found.unfit = std::mem::take(&mut groups.1);
    let mut groups = groups.0;
    if groups.is_empty() {
        return Err(nothing_fits(question, &found.unfit));
    }
    groups.sort_by(|a, b| a.least_s.total_cmp(&b.least_s));
    let mut known = 0;
    for group in &mut groups {
        if known <= question.effort.plans {
            group.left = settings(question, &mut shapes, group.coarse);
            known += group.left.len();
        }
    }
    let is_small = known <= question.effort.plans;
    let mut timing = Stopwatch { question, judge, best_s: f64::INFINITY, found: &mut found, plans: 0 };
    let first = if is_small { usize::MAX } else { question.effort.plans.div_ceil(2) };
    // One setting of each coarse layout, or all of them if the effort allows.
    for group in &mut groups {
        if !is_small && (timing.plans >= first || group.least_s >= timing.best_s) {
            continue;
        }
        if group.left.is_empty() {
            group.left = settings(question, &mut shapes, group.coarse);
        }
        timing.time(group, &mut shapes, if is_small { usize::MAX } else { 1 });
    }
    groups.sort_by(|a, b| a.best_s.total_cmp(&b.best_s).then(a.least_s.total_cmp(&b.least_s)));
    for group in groups.iter_mut().filter(|group| group.best_s.is_finite()) {
        if group.least_s >= timing.best_s {
            continue;
        }
        let left = question.effort.plans.saturating_sub(timing.plans);
        timing.time(group, &mut shapes, if is_small { 0 } else { left });
    }
    let best_s = timing.best_s;
    let is_open = |group: &&CoarseLayout| group.best_s.is_infinite() || !group.left.is_empty();
    found.untimed = groups.iter().filter(is_open).map(|group| (group.coarse, group.least_s, group.bytes)).collect();
    found.is_exhaustive = found.refused == 0 && found.untimed.iter().all(|&(_, least_s, _)| least_s >= best_s);
    found.timed.sort_by(|a, b| a.token_s.total_cmp(&b.token_s));
    if found.timed.is_empty() {
        return Err(NoAdvice::Nothing("no layout that fits can run on this hardware".to_owned()));
    }
    Ok(found)
}

/// Coarse layouts that fit, and coarse layouts that do not, each with the fewest bytes that it needs.
type Sorted = (Vec<CoarseLayout>, Vec<(Candidate, usize)>);

fn fitting(question: &Question, shapes: &mut UnitShapes, judge: &dyn Judge) -> Result<Sorted, NoAdvice> {
    let all = coarse(question);
    if all.is_empty() {
        return Err(match question.tokens_per_step {
            Some(asked) => {
                let ranks = question.nodes * question.hardware.node.devices;
                NoAdvice::TokensPerStep { asked, length: question.length, ranks }
            }
            None => NoAdvice::Nothing("no layout has the values that are given".to_owned()),
        });
    }
    let (mut groups, mut unfit) = (Vec::new(), Vec::new());
    // If every rank can read every other rank's memory, numbering changes no size, so neighbouring layouts that differ
    // only in numbering share a result.
    let mut last: Option<(Candidate, Option<usize>)> = None;
    for coarse in all {
        let Some(units) = shapes.of(&coarse) else { continue };
        let alike = match coarse.config(question).transport {
            TransportKind::Cluster => coarse,
            _ => Candidate { mesh: Mesh { order: Axis::ALL, ..coarse.mesh }, within: &[], ..coarse },
        };
        let bytes = match last {
            Some((other, bytes)) if other == alike => bytes,
            _ => {
                let light = lightest(question, coarse).into_iter();
                light.filter_map(|light| Demand::of(&light.config(question), units)).map(|need| need.bytes).min()
            }
        };
        last = Some((alike, bytes));
        let Some(bytes) = bytes else { continue };
        if bytes > question.budget(coarse.mesh.ranks_per_node()) {
            unfit.push((coarse, bytes));
            continue;
        }
        let config = coarse.config(question);
        let least_s = judge.least_s(&config, units) / config.tokens_per_step() as f64;
        groups.push(CoarseLayout { coarse, least_s, bytes, left: Vec::new(), best_s: f64::INFINITY });
    }
    if groups.is_empty() && unfit.is_empty() {
        return Err(NoAdvice::Nothing("no plan can be made of any layout with the values that are given".to_owned()));
    }
    Ok((groups, unfit))
}

/// The settings of a coarse layout that fit. The setting that is likely fastest comes last.
fn settings(question: &Question, shapes: &mut UnitShapes, coarse: Candidate) -> Vec<Candidate> {
    let budget = question.budget(coarse.mesh.ranks_per_node());
    let Some(units) = shapes.of(&coarse) else { return Vec::new() };
    let all = fine(question, coarse, units).into_iter().rev();
    all.filter(|it| Demand::of(&it.config(question), units).is_some_and(|need| need.bytes <= budget)).collect()
}

/// Times layouts, and keeps count.
struct Stopwatch<'t, 'a> {
    question: &'t Question<'a>,
    judge: &'t dyn Judge,
    best_s: f64,
    found: &'t mut Findings,
    plans: usize,
}

impl Stopwatch<'_, '_> {
    /// Times at most this many settings of a group.
    fn time(&mut self, group: &mut CoarseLayout, shapes: &mut UnitShapes, most: usize) {
        for _ in 0..most {
            let Some(candidate) = group.left.pop() else { return };
            let Some(units) = shapes.of(&candidate) else { return };
            self.plans += 1;
            // Reading the spec checks that it is allowed.
            let Ok(spec) = parse(&candidate.text(self.question, &[])) else {
                self.found.refused += 1;
                continue;
            };
            let config = spec.config();
            let Some(need) = Demand::of(&config, units) else { continue };
            let step_s = PlanBuf::new(self.question.name, config, units).with(|plan| self.judge.step_s(plan));
            let Some(step_s) = step_s else { continue };
            let token_s = step_s / config.tokens_per_step() as f64;
            self.found.timed.push(TimedLayout { candidate, bytes: need.bytes, step_s, token_s });
            group.best_s = group.best_s.min(token_s);
            self.best_s = self.best_s.min(token_s);
        }
    }
}

/// The error if nothing fits: the layout that needs the least memory, and what would make it fit.
fn nothing_fits(question: &Question, unfit: &[(Candidate, usize)]) -> NoAdvice {
    let over = |&(candidate, bytes): &(Candidate, usize)| bytes - question.budget(candidate.mesh.ranks_per_node());
    let least = unfit.iter().min_by_key(|it| over(it)).expect("nothing fits, so something does not");
    let (candidate, bytes) = *least;
    let per_node = candidate.mesh.ranks_per_node();
    let budget = question.budget(per_node);
    let told = format!(
        "the smallest layout needs {} a rank, and a rank has {} ({} less {} reserved): {}",
        gb(bytes),
        gb(budget),
        question.hardware.device.name,
        gb(question.hardware.device.reserved.bytes() as usize),
        sketch(&candidate),
    );
    let needed = bytes + question.hardware.device.reserved.bytes() as usize;
    let mut would = vec![format!("it fits if a rank has {} of memory", gb(needed))];
    let is_given = ["mesh.zero", "mesh.replica", "mesh.pipeline"].iter().all(|key| question.pins.has(key));
    match more_nodes(question) {
        MoreNodes::Help(nodes, candidate) => {
            let ranks = nodes * candidate.mesh.ranks_per_node();
            let network = if question.hardware.network.is_none() { " with a network between them" } else { "" };
            would.push(format!("or on {nodes} nodes{network} ({ranks} ranks): {}", sketch(&candidate)));
        }
        MoreNodes::Unknown => {}
        MoreNodes::DoNotHelp if is_given => {}
        MoreNodes::DoNotHelp => would.push(format!("no number of nodes up to {RANKS_MAX} ranks helps: one unit, gathered and with its gradients, is too large by itself")),
    }
    let mut shapes = UnitShapes::new(question);
    if let Some(need) = shapes.of(&candidate).and_then(|units| Demand::of(&candidate.config(question), units)) {
        let kinds = [Kind::Activations, Kind::Recomputed, Kind::ActivationGradients, Kind::Workspace];
        let kept = need.of_kinds(&kinds);
        let how = match (candidate.recompute, candidate.sequences) {
            (Some(1), 1) => "shorter sequences reduce them",
            (Some(1), _) => "smaller micro-batches or shorter sequences reduce them",
            _ => "`recompute: Every(1)`, smaller micro-batches or shorter sequences reduce them",
        };
        would.push(format!("activations and workspace are {} of it: {how}", gb(kept)));
    }
    NoAdvice::NothingFits { least: told, would }
}

/// A layout in one line.
pub(super) fn sketch(candidate: &Candidate) -> String {
    let words = Dimension::ALL.iter().filter_map(|&dimension| candidate.value(dimension));
    words.collect::<Vec<_>>().join(", ")
}

/// The effect of more nodes.
enum MoreNodes {
    /// The smallest number of nodes, by doubling, on which a layout fits.
    Help(usize, Candidate),
    DoNotHelp,
    /// For some numbers of nodes, no layout has the given values.
    Unknown,
}

fn more_nodes(question: &Question) -> MoreNodes {
    let (mut nodes, mut none) = (question.nodes, MoreNodes::DoNotHelp);
    loop {
        nodes *= 2;
        if nodes * question.hardware.node.devices > RANKS_MAX as usize {
            return none;
        }
        let more = with_nodes(question, nodes);
        let mut shapes = UnitShapes::new(&more);
        let least = |coarse: Candidate| {
            let units = shapes.of(&coarse)?;
            let needs = lightest(&more, coarse).into_iter().filter_map(|it| Demand::of(&it.config(&more), units));
            let bytes = needs.map(|need| need.bytes).min()?;
            (bytes <= more.budget(coarse.mesh.ranks_per_node())).then_some((bytes, coarse))
        };
        let all = coarse(&more);
        if all.is_empty() {
            none = MoreNodes::Unknown;
        }
        if let Some((_, candidate)) = all.into_iter().filter_map(least).min_by_key(|(bytes, _)| *bytes) {
            return MoreNodes::Help(nodes, candidate);
        }
    }
}
