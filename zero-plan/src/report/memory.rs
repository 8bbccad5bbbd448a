//! Memory: what ranks take, by part of their arenas and outside of them, and when most of an arena is in use. Never
//! measures.

use super::percent;
use super::table::Table;
use crate::footprint::RunSize;
use crate::layout::Kind;
use crate::mesh::Coordinates;
use crate::message::{Bytes, Message};
use crate::plan::Plan;
use crate::states::StateBytes;

/// The most columns. Where there are more pipeline stages, those with the largest and the smallest arena stand for all.
const STAGES: usize = 8;

/// A table with a column for each pipeline stage, or for the two whose arenas are the largest and the smallest.
pub fn per_pipeline_stage(plan: &Plan, title: &str, fill: impl FnOnce(&mut Table, &[usize])) -> Vec<String> {
    let mut stages: Vec<usize> = (0..plan.pipeline_stages.len()).collect();
    if stages.len() > STAGES {
        stages.sort_by_key(|&stage| (usize::MAX - arena(plan, stage), stage));
        stages = vec![stages[0], stages[stages.len() - 1]];
    }
    let heading = |&stage: &usize| match plan.pipeline_stages.len() {
        1 => String::new(),
        _ => format!("pipeline {stage}"),
    };
    let mut table = Table::new(title, stages.iter().map(heading).collect());
    fill(&mut table, &stages);
    table.merged().lines()
}

pub fn lines(plan: &Plan) -> Vec<String> {
    let title = match plan.pipeline_stages.len() {
        ..=STAGES => "memory per rank",
        _ => "memory per rank, most and least",
    };
    let mut lines = per_pipeline_stage(plan, title, |table, stages| {
        for kind in Kind::ALL {
            let bytes: Vec<_> =
                stages.iter().map(|&stage| plan.pipeline_stages[stage].memory.region(kind).bytes).collect();
            if bytes.iter().any(|&bytes| bytes > 0) {
                table.row(kind.name(), figures(&bytes));
            }
        }
        table.row("arena", figures(&stages.iter().map(|&stage| arena(plan, stage)).collect::<Vec<_>>()));
        let outside = plan.outside_bytes(&RunSize::LEAST);
        table.row("outside, at most", figures(&vec![outside; stages.len()]));
        table.row("total", figures(&stages.iter().map(|&stage| arena(plan, stage) + outside).collect::<Vec<_>>()));
        if let Some(budget) = plan.config.memory_bytes {
            table.row("budget", figures(&vec![budget; stages.len()]));
        }
    });
    lines.push(match plan.thread_bytes() {
        0 => "  outside: words of a step, and whole pages; not what the driver and its libraries take".to_owned(),
        thread => {
            format!("  outside: program, data, what a thread works in; {} for each further thread", Bytes(thread))
        }
    });
    lines.push(peak(plan));
    lines.push(most_padding(plan));
    lines.push(checkpoint(plan));
    if plan.config.shards_parameters() && !plan.config.uses_slots() {
        lines.push("  gathered parameters: views of the shared mapping, no copies".to_owned());
    }
    lines
}

pub fn figures(bytes: &[usize]) -> Vec<String> {
    bytes.iter().map(|&bytes| Bytes(bytes).to_string()).collect()
}

fn arena(plan: &Plan, stage: usize) -> usize {
    plan.pipeline_stages[stage].memory.bytes_per_rank()
}

fn most_padding(plan: &Plan) -> String {
    let paddings = (0..plan.pipeline_stages.len()).map(|stage| (padding(plan, stage), stage)).rev();
    let ((padding, states), stage) = paddings.max_by_key(|((padding, _), _)| *padding).unwrap_or_default();
    format!("  padding: {}, {} of model states{}", Bytes(padding), percent(padding, states), on_pipeline(plan, stage))
}

/// Bytes of parameters, gradients and optimizer state of an average rank: those that only pad flat buffers, and all.
fn padding(plan: &Plan, stage: usize) -> (usize, usize) {
    let here =
        plan.units.iter().zip(plan.placements).filter(|(unit, place)| place.pipeline_stage == stage && unit.params > 0);
    let (params, padded) =
        here.fold((0, 0), |(params, padded), (unit, place)| (params + unit.params, padded + place.padded));
    let config = &plan.config;
    let states =
        |params| StateBytes::of_param(&config.precision).per_rank(params, config.mesh.zero, config.stage).total();
    (states(padded - params), states(padded))
}

/// What the rank that writes the most adds to a checkpoint, and what training does meanwhile.
fn checkpoint(plan: &Plan) -> String {
    let stages = 0..plan.pipeline_stages.len();
    let of_stage = |pipeline| plan.places(Coordinates { pipeline, ..plan.config.mesh.coordinates(0) });
    let most = stages.map(|pipeline| of_stage(pipeline).checkpoint_bytes()).max().unwrap_or(0);
    let meanwhile = match plan.config.snapshot {
        true => "of a copy, while training goes on",
        false => "while training waits",
    };
    format!("  checkpoint: a rank writes up to {} {meanwhile}", Bytes(most))
}

fn peak(plan: &Plan) -> String {
    let largest = (0..plan.pipeline_stages.len()).rev().max_by_key(|&stage| arena(plan, stage)).unwrap_or(0);
    let peak = plan.peak(largest);
    let told = peak.tell(Message::new(), &plan.tables(), "");
    format!("  {}{}: {}", told.as_str(), on_pipeline(plan, largest), Bytes(peak.total_bytes()))
}

fn on_pipeline(plan: &Plan, stage: usize) -> String {
    if plan.pipeline_stages.len() > 1 { format!(" on pipeline {stage}") } else { String::new() }
}
