//! Search: finds the layouts that fit, and times some of them. Never explains the result.

use zero_plan::spec::parse;
use zero_plan::{Offload, PlanBuf, Unit};

use super::candidate::{Candidate, Dimension};
use super::fit::Demand;
use super::least::{LeastBytes, UnitShapes};
use super::question::{Judge, NoAdvice, Question};
use super::space::{bounded_alike, coarse, fine};
use super::ways::nothing_fits;

/// The most plans that are timed to find the cost of a value that the best layout does not have.
const RIVAL_PLANS: usize = 16;

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
    /// A lower bound of its time in any setting, in seconds per token.
    least_s: f64,
    /// The least memory that it needs, in bytes.
    bytes: usize,
    /// Settings that fit and have not been timed, each with a lower bound of its time. The setting with the lowest bound
    /// comes last, and of several the one that is likely fastest. None until the first of them is timed.
    left: Option<Vec<(f64, Candidate)>>,
    /// The best time so far, in seconds per token.
    best_s: f64,
}

impl CoarseLayout {
    /// A lower bound of the settings that have not been timed; infinite if all have.
    fn left_s(&self) -> f64 {
        let last = self.left.as_ref().map(|left| left.last().map_or(f64::INFINITY, |(least_s, _)| *least_s));
        last.unwrap_or(self.least_s)
    }
}

/// Looks for the layouts with the fewest seconds per token.
///
/// # Errors
/// If the machines or the tokens are impossible, or nothing fits.
pub fn search(question: &Question, judge: &dyn Judge) -> Result<Findings, NoAdvice> {
    question.require_machines()?;
    let mut shapes = UnitShapes::new(question);
    let (mut groups, mut found) = (Vec::new(), Findings::default());
    for (level, offloads) in question.offloads().iter().enumerate() {
        match fitting(question, offloads, &mut shapes, judge) {
            Ok((fit, unfit)) => {
                found.unfit.extend(unfit);
                groups = fit;
            }
            Err(none) if level == 0 => return Err(none),
            // If none of these has a plan, the answer is about the others.
            Err(_) => {}
        }
        if !groups.is_empty() {
            break;
        }
    }
    if groups.is_empty() {
        return Err(nothing_fits(question, &found.unfit));
    }
    groups.sort_by(|a, b| a.least_s.total_cmp(&b.least_s));
    let mut timing = Stopwatch { question, judge, shapes, found: &mut found, plans: 0 };
    let all: Vec<usize> = (0..groups.len()).collect();
    timing.find_best(&mut groups, &all, question.effort.plans);
    timing.time_rivals(&mut groups);
    found.timed.sort_by(|a, b| a.token_s.total_cmp(&b.token_s));
    let Some(best_s) = found.timed.first().map(|timed| timed.token_s) else {
        return Err(NoAdvice::Nothing("no layout that fits can run on this hardware".to_owned()));
    };
    let open = groups.iter().filter(|group| group.left_s().is_finite());
    found.untimed = open.map(|group| (group.coarse, group.left_s(), group.bytes)).collect();
    found.is_exhaustive = found.refused == 0 && found.untimed.iter().all(|&(_, least_s, _)| least_s >= best_s);
    Ok(found)
}

/// Coarse layouts that fit, and coarse layouts that do not, each with the fewest bytes that it needs.
type Sorted = (Vec<CoarseLayout>, Vec<(Candidate, usize)>);

fn fitting(
    question: &Question,
    offloads: &[Offload],
    shapes: &mut UnitShapes,
    judge: &dyn Judge,
) -> Result<Sorted, NoAdvice> {
    let all = coarse(question, offloads);
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
    let mut least = LeastBytes::default();
    for coarse in all {
        let Some(units) = shapes.of(&coarse) else { continue };
        let Some(bytes) = least.of(question, coarse, units) else { continue };
        if bytes > question.budget(coarse.mesh.ranks_per_node()) {
            unfit.push((coarse, bytes));
            continue;
        }
        let settings = bounded_alike(question, coarse, units).into_iter();
        let least_s = settings.map(|it| least_token_s(question, judge, &it, units)).fold(f64::INFINITY, f64::min);
        groups.push(CoarseLayout { coarse, least_s, bytes, left: None, best_s: f64::INFINITY });
    }
    if groups.is_empty() && unfit.is_empty() {
        return Err(NoAdvice::Nothing("no plan can be made of any layout with the values that are given".to_owned()));
    }
    Ok((groups, unfit))
}

/// The settings of a coarse layout that fit, with their bounds, the most promising last.
fn settings(question: &Question, judge: &dyn Judge, coarse: Candidate, units: &[Unit]) -> Vec<(f64, Candidate)> {
    let budget = question.budget(coarse.mesh.ranks_per_node());
    let all = fine(question, coarse, units).into_iter().rev();
    let fit = all.filter(|it| Demand::of(&it.config(question), units).is_some_and(|need| need.bytes <= budget));
    let mut fit: Vec<_> = fit.map(|it| (least_token_s(question, judge, &it, units), it)).collect();
    fit.sort_by(|a, b| b.0.total_cmp(&a.0));
    fit
}

/// A lower bound of the seconds per token of a layout.
fn least_token_s(question: &Question, judge: &dyn Judge, candidate: &Candidate, units: &[Unit]) -> f64 {
    let config = candidate.config(question);
    judge.least_s(&config, units) / config.tokens_per_step() as f64
}

/// Times layouts, and keeps count.
struct Stopwatch<'t, 'a> {
    question: &'t Question<'a>,
    judge: &'t dyn Judge,
    shapes: UnitShapes<'t, 'a>,
    found: &'t mut Findings,
    plans: usize,
}

impl Stopwatch<'_, '_> {
    /// Looks for the best layout among the groups with these indices, whose bounds ascend, and stops once no layout that
    /// is left can be better, or after this many plans: first times a setting of each group, then the settings of the best
    /// groups.
    fn find_best(&mut self, groups: &mut [CoarseLayout], chosen: &[usize], plans: usize) {
        let end = self.plans.saturating_add(plans).min(self.question.effort.plans);
        let mut best_s = chosen.iter().map(|&i| groups[i].best_s).fold(f64::INFINITY, f64::min);
        loop {
            let before = self.plans;
            let half = before + (end - before).div_ceil(2);
            for &i in chosen {
                let group = &mut groups[i];
                if group.least_s >= best_s || self.plans >= half {
                    break;
                }
                if group.best_s.is_infinite() {
                    best_s = best_s.min(self.time_one(group, best_s));
                }
            }
            let mut timed: Vec<usize> = chosen.iter().copied().filter(|&i| groups[i].best_s.is_finite()).collect();
            timed.sort_by(|&a, &b| groups[a].best_s.total_cmp(&groups[b].best_s));
            for i in timed {
                while self.plans < end && groups[i].left_s() < best_s {
                    best_s = best_s.min(self.time_one(&mut groups[i], best_s));
                }
            }
            if self.plans == before || self.plans >= end {
                return;
            }
        }
    }

    /// Times the next setting of a group, if its bound is below a time. Returns its time, in seconds per token; infinite if
    /// it has none.
    fn time_one(&mut self, group: &mut CoarseLayout, below_s: f64) -> f64 {
        let (question, judge) = (self.question, self.judge);
        let Some(units) = self.shapes.of(&group.coarse) else { return f64::INFINITY };
        let left = group.left.get_or_insert_with(|| settings(question, judge, group.coarse, units));
        let Some((_, candidate)) = left.pop_if(|(least_s, _)| *least_s < below_s) else { return f64::INFINITY };
        self.plans += 1;
        // Reading the spec checks that it is allowed.
        let Ok(spec) = parse(&candidate.text(question, &[])) else {
            self.found.refused += 1;
            return f64::INFINITY;
        };
        let config = spec.config();
        let Some(need) = Demand::of(&config, units) else { return f64::INFINITY };
        let step_s = PlanBuf::new(question.name, config, units).with(|plan| judge.step_s(plan));
        let Some(step_s) = step_s else { return f64::INFINITY };
        let token_s = step_s / config.tokens_per_step() as f64;
        self.found.timed.push(TimedLayout { candidate, bytes: need.bytes, step_s, token_s });
        group.best_s = group.best_s.min(token_s);
        token_s
    }

    /// Times all settings of the best group, and for each value of each dimension of coarse layouts some layouts that have
    /// it, so that the answer can say what that value costs.
    fn time_rivals(&mut self, groups: &mut [CoarseLayout]) {
        let Some(best) = (0..groups.len()).min_by(|&a, &b| groups[a].best_s.total_cmp(&groups[b].best_s)) else {
            return;
        };
        while self.plans < self.question.effort.plans && groups[best].left_s().is_finite() {
            self.time_one(&mut groups[best], f64::INFINITY);
        }
        for dimension in Dimension::ALL.into_iter().filter(|dimension| dimension.is_coarse()) {
            let values: Vec<Option<String>> = groups.iter().map(|group| group.coarse.value(dimension)).collect();
            let mut distinct: Vec<&String> = values.iter().flatten().collect();
            distinct.sort();
            distinct.dedup();
            for value in distinct.into_iter().filter(|value| Some(*value) != values[best].as_ref()) {
                let having: Vec<usize> = (0..groups.len()).filter(|&i| values[i].as_ref() == Some(value)).collect();
                self.find_best(groups, &having, RIVAL_PLANS);
            }
        }
    }
}
