//! Pipeline: the units of each pipeline stage, and how long pipeline stages wait for one another. Never simulates.

use super::names::{Ranges, wrap};
use super::{WIDTH, counted, percent};
use crate::config::Order;
use crate::pipeline::cost;
use crate::plan::Plan;
use crate::states::Bubble;

/// The lines of the pipeline; empty if there is none.
pub fn lines(plan: &Plan) -> Vec<String> {
    let pipeline_stages = plan.config.mesh.pipeline;
    if pipeline_stages == 1 {
        return Vec::new();
    }
    let mut lines = vec![head(plan), bubble(plan)];
    let in_flight = match plan.config.chunks_per_rank() {
        1 => "in flight",
        _ => "chunks in flight",
    };
    lines.push(format!("  {:<10}{:>10}{:>14}{:>18}  units", "pipeline", "cost", "parameters", in_flight));
    let whole: usize = plan.units.iter().map(|unit| cost(&plan.config, unit)).sum();
    for pipeline in 0..pipeline_stages {
        let chunks: Vec<Vec<usize>> = (pipeline..plan.chunks.len())
            .step_by(pipeline_stages)
            .map(|chunk| (plan.chunks[chunk].first..plan.chunks[chunk].end).collect())
            .collect();
        let units = chunks.iter().flatten().map(|&unit| &plan.units[unit]);
        let (params, spent) =
            units.fold((0, 0), |(params, spent), unit| (params + unit.params, spent + cost(&plan.config, unit)));
        let slots = plan.tables().activation_slots(pipeline);
        let head = format!("  {pipeline:<10}{:>10}{params:>14}{slots:>18}  ", percent(spent, whole));
        lines.push(wrap(&head, head.len(), &names(plan, &chunks), " ", WIDTH));
    }
    lines
}

fn head(plan: &Plan) -> String {
    let pipeline_stages = plan.config.mesh.pipeline;
    match plan.config.order {
        Order::GPipe => format!("pipeline: GPipe over {pipeline_stages} pipeline stages"),
        Order::OneFOneB => format!("pipeline: 1F1B over {pipeline_stages} pipeline stages"),
        Order::Interleaved { chunks } => {
            format!(
                "pipeline: interleaved 1F1B over {pipeline_stages} pipeline stages with {} each",
                counted(chunks, "chunk", "chunks")
            )
        }
    }
}

/// The bubble as a share of the step and over the ideal time, for pipeline stages of equal cost. Neither depends on how
/// the time of a micro-batch is divided between forward and backward.
fn bubble(plan: &Plan) -> String {
    let bubble = Bubble::of(&plan.config);
    let all = match plan.config.order {
        Order::Interleaved { .. } => "v m",
        Order::GPipe | Order::OneFOneB => "m",
    };
    format!(
        "  bubble: {:.1} % of the step, (p-1)/({all}+p-1); {:.1} % over ideal time, (p-1)/{}",
        100.0 * bubble.of_step,
        100.0 * bubble.over_ideal,
        if all == "m" { "m" } else { "(v m)" },
    )
}

/// The units of chunks: a comma after each range of a chunk, a bar after each chunk, and nothing after the last.
fn names(plan: &Plan, chunks: &[Vec<usize>]) -> Vec<String> {
    let mut names = Vec::new();
    for (i, units) in chunks.iter().enumerate() {
        let ranges = Ranges(plan.units, units).to_strings();
        for (j, range) in ranges.iter().enumerate() {
            let after = match (j + 1 < ranges.len(), i + 1 < chunks.len()) {
                (true, _) => ",",
                (false, true) => " |",
                (false, false) => "",
            };
            names.push(format!("{range}{after}"));
        }
    }
    names
}
