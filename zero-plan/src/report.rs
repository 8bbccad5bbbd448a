//! Report: a plan as a person reads it before a run, and as text to compare. Only summarizes and formats; never changes
//! a plan.

mod held;
mod memory;
mod mesh;
mod names;
mod pipeline;
mod sent;
mod table;
mod text;

use core::fmt;

use crate::config::{Config, Precision};
use crate::mesh::Axis;
use crate::message::Bytes;
use crate::plan::Plan;
use crate::states::StateBytes;
use names::wrap;

pub use memory::publication_line;
pub use names::{Ranges, counted};
pub use table::Table;
pub use text::{LineTurn, ScheduleText, op_text, turns};

/// The most columns of a line.
const WIDTH: usize = 100;

/// Prints how a plan divides model and work among ranks, and the memory and traffic of each rank. Sections that do not
/// apply are left out.
pub struct Report<'a>(pub &'a Plan<'a>);

impl fmt::Display for Report<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Report(plan) = self;
        if plan.config.serves() {
            let blocks = [worker_lines(plan), memory::lines(plan)];
            return f.write_str(&blocks.map(|lines| lines.join("\n")).join("\n\n"));
        }
        let mut blocks = vec![work_lines(plan)];
        blocks.extend([mesh::lines(plan), pipeline::lines(plan), memory::lines(plan)]);
        blocks.extend([sent::lines(plan), held::lines(plan)]);
        let blocks: Vec<_> = blocks.iter().filter(|lines| !lines.is_empty()).map(|lines| lines.join("\n")).collect();
        f.write_str(&blocks.join("\n\n"))
    }
}

/// The model, the batch, the types of numbers, and the recomputed units.
pub fn work_lines(plan: &Plan) -> Vec<String> {
    let config = &plan.config;
    let (zero, ranks) = (config.mesh.zero, config.mesh.ranks());
    let all = if ranks > zero { format!(", {} in all", counted(ranks, "rank", "ranks")) } else { String::new() };
    let mut lines = vec![
        format!(
            "{}: {} parameters in {}, ZeRO stage {} over {}{all}",
            plan.model,
            plan.params(),
            counted(plan.units.len(), "unit", "units"),
            config.stage,
            counted(zero, "rank", "ranks"),
        ),
        format!(
            "batch: {} x {} tokens, {} a rank; {} tokens a step",
            counted(config.sequences, "sequence", "sequences"),
            config.length,
            counted(config.micro_batches, "micro-batch", "micro-batches"),
            config.tokens_per_step(),
        ),
    ];
    if config.precision != Precision::default() {
        lines.push(precision(&config.precision));
    }
    lines.extend(recompute(plan));
    lines.extend(optimizer(plan));
    lines
}

/// The model and what a worker decodes, which has no step.
fn worker_lines(plan: &Plan) -> Vec<String> {
    let config = &plan.config;
    let Precision { compute, .. } = config.precision;
    let slots = counted(config.slots(), "slot", "slots");
    let caches = Bytes(plan.pipeline_stages.iter().map(|stage| stage.memory.decoding.caches_bytes).sum());
    let units = counted(plan.units.len(), "unit", "units");
    vec![
        format!("{}: {} parameters in {units}, a worker that decodes in {compute:?}", plan.model, plan.params()),
        format!("sequences: {slots} of {} tokens at most, whose caches take {caches} of activations", config.length),
    ]
}

/// The units that Muon updates, if there are any.
fn optimizer(plan: &Plan) -> Option<String> {
    let orthogonalized: Vec<_> = (0..plan.units.len()).filter(|&unit| plan.tables().is_orthogonalized(unit)).collect();
    let units = Ranges(plan.units, &orthogonalized).to_strings();
    let text = || wrap("optimizer: AdamW, and Muon for matrices of ", 2, &units, ", ", WIDTH);
    (!orthogonalized.is_empty()).then(text)
}

fn precision(precision: &Precision) -> String {
    let Precision { compute, params, reduce, master, moments } = precision;
    let master = if precision.has_master_copy() { format!(", master {master:?}") } else { String::new() };
    let StateBytes { params_bytes, gradients_bytes, optimizer_bytes } = StateBytes::of_param(precision);
    format!(
        "precision: compute {compute:?}, parameters {params:?}, gradients {reduce:?}{master}, moments {moments:?}\n  \
         {params_bytes} + {gradients_bytes} + {optimizer_bytes} bytes a parameter"
    )
}

fn recompute(plan: &Plan) -> Option<String> {
    let recomputed: Vec<_> = (0..plan.units.len()).filter(|&unit| plan.config.recomputes(plan.units, unit)).collect();
    if recomputed.is_empty() {
        return None;
    }
    let again: usize = recomputed.iter().map(|&unit| plan.units[unit].forward_operations()).sum();
    // A backward pass does twice the work of a forward pass.
    let operations: usize = plan.units.iter().map(|unit| 3 * unit.operations).sum();
    let more = percent(again, operations);
    let units = Ranges(plan.units, &recomputed).to_strings();
    Some(wrap(&format!("recompute: {more} more operations; "), 2, &units, ", ", WIDTH))
}

/// A share with one decimal.
fn percent(part: usize, whole: usize) -> String {
    format!("{:.1} %", 100.0 * part as f64 / whole.max(1) as f64)
}

/// Axes with more than one rank, in the order of the mesh.
fn long_axes(config: &Config) -> Vec<Axis> {
    config.mesh.order.into_iter().filter(|&axis| config.mesh.len(axis) > 1).collect()
}

#[cfg(test)]
mod tests;
