//! Sent: bytes that a rank sends in a step, by purpose and by axis. Never measures.

use super::long_axes;
use super::memory::{figures, per_pipeline_stage};
use super::mesh::reach;
use crate::config::Config;
use crate::mesh::Axis;
use crate::plan::Plan;
use crate::schedule::Op;
use crate::states::Volume;
use crate::traffic::{Moved, Traffic};

pub fn lines(plan: &Plan) -> Vec<String> {
    let axes = long_axes(&plan.config);
    let is_grouped = axes.len() > 1;
    let most = if plan.sends_alike() { "" } else { ", at most" };
    let title = match plan.pipeline_stages {
        [only] => format!("sent per rank and step{most} ({} ops, {} buckets)", only.step.len(), plan.buckets.len()),
        _ => format!("sent per rank and step{most}"),
    };
    per_pipeline_stage(plan, &title, |table, pipeline_stages| {
        let of = |count: fn(&Plan, usize, &[Op]) -> Traffic| -> Vec<Traffic> {
            pipeline_stages
                .iter()
                .map(|&pipeline| count(plan, plan.busiest_rank(pipeline), plan.pipeline_stages[pipeline].step))
                .collect()
        };
        let traffic = of(Traffic::of);
        let count = |part: &dyn Fn(&Traffic) -> usize| traffic.iter().map(part).collect::<Vec<_>>();
        let mut row = |label: &str, part: &dyn Fn(&Traffic) -> usize| {
            let bytes = count(part);
            if bytes.iter().any(|&bytes| bytes > 0) {
                table.row(label, figures(&bytes));
            }
        };
        for &axis in &axes {
            if is_grouped {
                row(&heading(&plan.config, axis), &|traffic| traffic.on(axis));
            }
            for (label, part) in Traffic::parts(axis) {
                row(&format!("{}{label}", if is_grouped { "  " } else { "" }), part);
            }
        }
        row("loss and norm", &|traffic| traffic.agree_bytes);
        table.row("all", figures(&count(&Traffic::total_bytes)));
        let moved: Vec<_> = pipeline_stages
            .iter()
            .map(|&pipeline| Moved::sent(plan, plan.busiest_rank(pipeline), plan.pipeline_stages[pipeline].step))
            .collect();
        let total =
            |how: fn(&Moved) -> &Traffic| moved.iter().map(|moved| how(moved).total_bytes()).collect::<Vec<_>>();
        table.row("  copied", figures(&total(|moved| &moved.copied)));
        table.row("  read in place", figures(&total(|moved| &moved.in_place)));
        if plan.config.spans_hosts() {
            let crosses: Vec<_> = of(Traffic::between_hosts).iter().map(Traffic::total_bytes).collect();
            table.row("  between hosts", figures(&crosses));
        }
        if plan.config.mesh.zero > 1 {
            let published = Volume::of(&plan.config).total();
            let counted =
                pipeline_stages.iter().zip(&traffic).map(|(&pipeline, traffic)| volume(plan, pipeline, traffic));
            table.row(&format!("zero, in Psi ({published} published)"), counted.collect());
        }
        if pipeline_stages.len() > 1 {
            table.row(
                "ops",
                pipeline_stages.iter().map(|&pipeline| plan.pipeline_stages[pipeline].step.len().to_string()).collect(),
            );
            let buckets =
                |&pipeline: &usize| plan.buckets.iter().filter(|bucket| bucket.pipeline_stage == pipeline).count();
            table.row("buckets", pipeline_stages.iter().map(|pipeline| buckets(pipeline).to_string()).collect());
        }
    })
}

fn heading(config: &Config, axis: Axis) -> String {
    match config.mesh.nodes {
        1 => axis.name().to_owned(),
        _ => format!("{}, {}", axis.name(), reach(&config.mesh, axis)),
    }
}

/// How often the parameters of a pipeline stage travel along `zero`. It is less than the published volume if a unit
/// that is used twice in a row is gathered once, or has no matrices whose directions are gathered.
fn volume(plan: &Plan, pipeline: usize, traffic: &Traffic) -> String {
    let precision = &plan.config.precision;
    let ranks = plan.config.mesh.zero;
    let here = plan.placements.iter().filter(|place| place.pipeline_stage == pipeline && place.holds);
    let psi: usize = here.map(|place| place.padded).sum();
    let moved = traffic.gather_bytes / precision.params.bytes()
        + (traffic.reduce_bytes + traffic.spread_bytes) / precision.reduce.bytes();
    format!("{:.2}", (moved * ranks) as f64 / ((ranks - 1) * psi.max(1)) as f64)
}
