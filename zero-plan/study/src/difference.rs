//! Difference: the changes between the plans of two specs: keys, memory by part, traffic by kind, ops by
//! name, and the first op at which schedules differ. Only compares plans; never computes one.

mod text;

use serde::Serialize;
use zero_plan::spec::{KeyChange, Spec, changes};
use zero_plan::{Plan, op_text};

use crate::summary::PipelineStageSummary;

pub use text::DifferenceText;

/// The name of the JSON's shape. A changed shape gets a new name.
pub const FORMAT: &str = "zero-diff-1";

/// One of the two plans.
#[derive(Clone, Copy, Debug)]
pub struct PlanSide<'a> {
    /// The plan's name: the path of its spec.
    pub name: &'a str,
    /// The spec.
    pub spec: &'a Spec,
    /// Its plan.
    pub plan: &'a Plan<'a>,
    /// Seconds of a step, if they were predicted.
    pub step_s: Option<f64>,
}

/// The differences between two plans.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Difference {
    /// [`FORMAT`].
    pub format: &'static str,
    /// The names of both plans.
    pub specs: [String; 2],
    /// The models of both plans.
    pub models: [String; 2],
    /// Whether the plans are identical.
    pub is_equal: bool,
    /// Keys whose values differ between the specs.
    pub keys: Vec<KeyChange>,
    /// Bytes of a rank of the pipeline stage that needs the most: by region of the arena, then the whole arena, the
    /// maximum outside it, and the total.
    pub memory: Vec<Figures>,
    /// Bytes that a rank of the pipeline stage that sends most sends in a step: by kind, then in total.
    pub sent: Vec<Figures>,
    /// Ops of a step, summed over one rank of each pipeline stage: by name, then in total.
    pub ops: Vec<Figures>,
    /// Seconds of a step, if they were predicted.
    pub step_s: Option<[f64; 2]>,
    /// Where the schedules of each pipeline stage first differ; equal schedules are left out.
    pub schedules: Vec<Departure>,
}

/// A quantity that is counted in both plans.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Figures {
    /// The quantity's name.
    pub what: String,
    /// Its value in the first plan.
    pub first: usize,
    /// Its value in the second plan.
    pub second: usize,
}

/// Where two schedules of a pipeline stage diverge.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Departure {
    /// The pipeline stage.
    pub pipeline_stage: usize,
    /// Number of the op, from 0.
    pub op: usize,
    /// The op of the first plan; `None` if its schedule ends before this op, or if it has no such pipeline stage.
    pub first: Option<String>,
    /// The op of the second plan.
    pub second: Option<String>,
}

impl Difference {
    /// Compares two plans.
    pub fn of(first: &PlanSide, second: &PlanSide) -> Self {
        let both = [first, second];
        let [a, b] = both.map(|side| pipeline_stages(side.plan));
        let keys = changes(first.spec, second.spec);
        // A model's name does not affect what it does, but models with different names count as different.
        let is_equal = keys.is_empty() && first.plan == second.plan;
        Self {
            format: FORMAT,
            specs: both.map(|side| side.name.to_owned()),
            models: both.map(|side| side.plan.model.to_owned()),
            is_equal,
            keys,
            memory: merged(memory(&a), memory(&b)),
            sent: merged(sent(&a), sent(&b)),
            ops: merged(ops(&a), ops(&b)),
            step_s: first.step_s.zip(second.step_s).map(|(first, second)| [first, second]),
            schedules: departures(first.plan, second.plan),
        }
    }
}

fn pipeline_stages(plan: &Plan) -> Vec<PipelineStageSummary> {
    (0..plan.pipeline_stages.len()).map(|pipeline| PipelineStageSummary::of(plan, pipeline)).collect()
}

/// Named figures of one plan, the total last.
type NamedFigures = Vec<(String, usize)>;

fn memory(pipeline_stages: &[PipelineStageSummary]) -> NamedFigures {
    let Some(largest) = pipeline_stages.iter().rev().max_by_key(|pipeline_stage| pipeline_stage.arena_bytes) else {
        return Vec::new();
    };
    let regions = largest.memory.iter().map(|region| (region.what.to_owned(), region.bytes));
    let all =
        [("arena", largest.arena_bytes), ("outside, at most", largest.outside_bytes), ("total", largest.total_bytes)];
    regions.chain(all.map(|(what, bytes)| (what.to_owned(), bytes))).collect()
}

fn sent(pipeline_stages: &[PipelineStageSummary]) -> NamedFigures {
    let Some(most) = pipeline_stages.iter().rev().max_by_key(|pipeline_stage| pipeline_stage.sent_bytes) else {
        return Vec::new();
    };
    let named = most.sent.iter().map(|sent| match sent.axis {
        Some(axis) => (format!("{axis}: {}", sent.what), sent.bytes),
        None => (sent.what.to_owned(), sent.bytes),
    });
    named.chain([("total".to_owned(), most.sent_bytes)]).collect()
}

fn ops(pipeline_stages: &[PipelineStageSummary]) -> NamedFigures {
    let mut named = NamedFigures::new();
    for count in pipeline_stages.iter().flat_map(|pipeline_stage| &pipeline_stage.ops) {
        match named.iter_mut().find(|(op, _)| op == count.op) {
            Some((_, total)) => *total += count.count,
            None => named.push((count.op.to_owned(), count.count)),
        }
    }
    let total = named.iter().map(|(_, count)| count).sum();
    named.push(("total".to_owned(), total));
    named
}

/// Figures of the same name side by side. A figure that only the second plan has follows its predecessor there.
fn merged(first: NamedFigures, second: NamedFigures) -> Vec<Figures> {
    let of =
        |named: &NamedFigures, what: &str| named.iter().find(|(name, _)| name == what).map_or(0, |(_, figure)| *figure);
    let mut names: Vec<&String> = first.iter().map(|(name, _)| name).collect();
    let mut place = 0;
    for (name, _) in &second {
        match names.iter().position(|known| *known == name) {
            Some(known) => place = known + 1,
            None => {
                names.insert(place, name);
                place += 1;
            }
        }
    }
    names
        .iter()
        .map(|what| Figures { what: (*what).clone(), first: of(&first, what), second: of(&second, what) })
        .collect()
}

/// Where the steps of each pipeline stage first differ.
fn departures(first: &Plan, second: &Plan) -> Vec<Departure> {
    let pipeline_stages = first.pipeline_stages.len().max(second.pipeline_stages.len());
    let of_pipeline_stage = |pipeline: usize| {
        let [a, b] = [first, second]
            .map(|plan| plan.pipeline_stages.get(pipeline).map_or(&[][..], |pipeline_stage| pipeline_stage.step));
        let same = a.iter().zip(b).take_while(|(one, other)| one == other).count();
        let text = |plan, op: Option<&_>| op.map(|op| op_text(plan, *op));
        let departure = Departure {
            pipeline_stage: pipeline,
            op: same,
            first: text(first, a.get(same)),
            second: text(second, b.get(same)),
        };
        (same < a.len().max(b.len())).then_some(departure)
    };
    (0..pipeline_stages).filter_map(of_pipeline_stage).collect()
}

#[cfg(test)]
mod tests;
