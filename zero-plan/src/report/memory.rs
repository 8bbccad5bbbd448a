//! Memory: the bytes of ranks, by part of their arenas and outside of them, and the peak of an arena's use. Never
//! measures.

use super::percent;
use super::table::Table;
use crate::config::TierKind;
use crate::footprint::RunSize;
use crate::layout::Kind;
use crate::mesh::Coordinates;
use crate::message::{Bytes, Message};
use crate::plan::Plan;
use crate::states::StateBytes;
use crate::traffic::{TierBytes, published_bytes};

/// The most columns. If there are more pipeline stages, those with the largest and the smallest arena stand for all.
const PIPELINE_STAGES_MAX: usize = 8;

/// A table with a column for each pipeline stage, or for the two whose arenas are the largest and the smallest.
pub fn per_pipeline_stage(plan: &Plan, title: &str, fill: impl FnOnce(&mut Table, &[usize])) -> Vec<String> {
    let mut pipeline_stages: Vec<usize> = (0..plan.pipeline_stages.len()).collect();
    if pipeline_stages.len() > PIPELINE_STAGES_MAX {
        pipeline_stages.sort_by_key(|&pipeline| (usize::MAX - arena(plan, pipeline), pipeline));
        pipeline_stages = vec![pipeline_stages[0], pipeline_stages[pipeline_stages.len() - 1]];
    }
    let heading = |&pipeline: &usize| match plan.pipeline_stages.len() {
        1 => String::new(),
        _ => format!("pipeline {pipeline}"),
    };
    let mut table = Table::new(title, pipeline_stages.iter().map(heading).collect());
    fill(&mut table, &pipeline_stages);
    table.merged().lines()
}

pub fn lines(plan: &Plan) -> Vec<String> {
    let title = match plan.pipeline_stages.len() {
        ..=PIPELINE_STAGES_MAX => "memory per rank",
        _ => "memory per rank, most and least",
    };
    let mut lines = per_pipeline_stage(plan, title, |table, pipeline_stages| {
        let regions = |kind| move |&pipeline: &usize| plan.pipeline_stages[pipeline].memory.region(kind);
        for kind in Kind::ALL {
            let of_kind = pipeline_stages.iter().map(regions(kind)).filter(|region| !region.home.is_tier());
            let bytes: Vec<_> = of_kind.map(|region| region.bytes).collect();
            if bytes.iter().any(|&bytes| bytes > 0) {
                table.row(kind.name(), figures(&bytes));
            }
        }
        table.row("arena", figures(&pipeline_stages.iter().map(|&pipeline| arena(plan, pipeline)).collect::<Vec<_>>()));
        let outside = plan.outside_bytes(&RunSize::LEAST);
        table.row("outside, at most", figures(&vec![outside; pipeline_stages.len()]));
        table.row(
            "total",
            figures(&pipeline_stages.iter().map(|&pipeline| arena(plan, pipeline) + outside).collect::<Vec<_>>()),
        );
        if let Some(budget) = plan.config.memory_bytes {
            table.row("budget", figures(&vec![budget; pipeline_stages.len()]));
        }
        tiers(plan, table, pipeline_stages);
    });
    lines.extend(offloaded(plan));
    lines.push(match plan.thread_bytes() {
        0 => "  outside: words of a step, and whole pages; not what the driver and its libraries take".to_owned(),
        thread => {
            format!("  outside: program, data, what a thread works in; {} for each further thread", Bytes(thread))
        }
    });
    if plan.config.serves() {
        return lines;
    }
    lines.push(peak(plan));
    lines.push(most_padding(plan));
    lines.push(checkpoint(plan));
    lines.extend(publication_line(plan).map(|line| format!("  {line}")));
    if plan.config.shards_parameters() && !plan.config.uses_slots() {
        lines.push("  gathered parameters: views of the shared mapping, no copies".to_owned());
    }
    lines
}

/// Rows of the bytes that ranks keep in tiers, and of the budget for them.
fn tiers(plan: &Plan, table: &mut Table, pipeline_stages: &[usize]) {
    let bytes_of = |home| pipeline_stages.iter().map(|&at| plan.pipeline_stages[at].memory.bytes_of(home)).collect();
    for tier in [TierKind::Host, TierKind::Disk] {
        let bytes: Vec<usize> = tier.home().map(bytes_of).unwrap_or_default();
        if bytes.iter().any(|&bytes| bytes > 0) {
            table.row(tier.words(), figures(&bytes));
        }
        if let Some(budget) = plan.config.budget_bytes(tier) {
            table.row(&format!("budget {}", tier.words()), figures(&vec![budget; pipeline_stages.len()]));
        }
    }
}

/// What travels between a tier and the device in a step, if anything does.
fn offloaded(plan: &Plan) -> Option<String> {
    let ranks = (0..plan.pipeline_stages.len()).map(|pipeline| TierBytes::of(plan, plan.first_rank(pipeline)));
    let most = ranks.max_by_key(|bytes| bytes.read)?;
    let text = |home: &str| {
        let (read, written) = (Bytes(most.read), Bytes(most.written));
        format!("  {home}: a rank reads up to {read} in a step, and writes up to {written}")
    };
    plan.config.offload.homes().next().filter(|_| most.read > 0).map(|home| text(home.name()))
}

pub fn figures(bytes: &[usize]) -> Vec<String> {
    bytes.iter().map(|&bytes| Bytes(bytes).to_string()).collect()
}

fn arena(plan: &Plan, pipeline: usize) -> usize {
    plan.pipeline_stages[pipeline].memory.bytes_per_rank()
}

fn most_padding(plan: &Plan) -> String {
    let paddings = (0..plan.pipeline_stages.len()).map(|pipeline| (padding(plan, pipeline), pipeline)).rev();
    let ((padding, states), pipeline) = paddings.max_by_key(|((padding, _), _)| *padding).unwrap_or_default();
    format!(
        "  padding: {}, {} of model states{}",
        Bytes(padding),
        percent(padding, states),
        on_pipeline(plan, pipeline)
    )
}

/// Bytes of parameters, gradients and optimizer state of an average rank: of padding only, and in all.
fn padding(plan: &Plan, pipeline: usize) -> (usize, usize) {
    let here = plan
        .units
        .iter()
        .zip(plan.placements)
        .filter(|(unit, place)| place.pipeline_stage == pipeline && unit.params > 0);
    let (params, padded) =
        here.fold((0, 0), |(params, padded), (unit, place)| (params + unit.params, padded + place.padded));
    let config = &plan.config;
    let states =
        |params| StateBytes::of_param(&config.precision).per_rank(params, config.mesh.zero, config.stage).total();
    (states(padded - params), states(padded))
}

/// The bytes that the rank that writes the most adds to a checkpoint, and whether training continues meanwhile.
fn checkpoint(plan: &Plan) -> String {
    let pipeline_stages = 0..plan.pipeline_stages.len();
    let places = |pipeline| plan.places(Coordinates { pipeline, ..plan.config.mesh.coordinates(0) });
    let most = pipeline_stages.map(|pipeline| places(pipeline).checkpoint_bytes()).max().unwrap_or(0);
    let meanwhile = match plan.config.snapshot {
        true => "of a copy, while training goes on",
        false => "while training waits",
    };
    format!("  checkpoint: a rank writes up to {} {meanwhile}", Bytes(most))
}

/// The bytes of a version that is published, and of the rank that copies most of it; `None` if the plan publishes nothing.
pub fn publication_line(plan: &Plan) -> Option<String> {
    let of_rank = |rank| published_bytes(plan, rank);
    let all = (0..plan.config.mesh.ranks()).map(of_rank);
    let (version, most) = (Bytes(all.clone().sum()), Bytes(all.max().unwrap_or(0)));
    let meanwhile = match plan.config.stores_published() {
        true => "on the device while training waits, and then to host memory",
        false => "while training waits",
    };
    let line = format!("publication: a version has {version}, of which a rank copies up to {most} {meanwhile}");
    plan.config.publishes().then_some(line)
}

fn peak(plan: &Plan) -> String {
    let largest = (0..plan.pipeline_stages.len()).rev().max_by_key(|&pipeline| arena(plan, pipeline)).unwrap_or(0);
    let peak = plan.peak(largest);
    let told = peak.tell(Message::new(), &plan.tables(), "");
    format!("  {}{}: {}", told.as_str(), on_pipeline(plan, largest), Bytes(peak.total_bytes()))
}

fn on_pipeline(plan: &Plan, pipeline: usize) -> String {
    if plan.pipeline_stages.len() > 1 { format!(" on pipeline {pipeline}") } else { String::new() }
}
