//! Held: the memory that holding gradients or gathered parameters from one micro-batch to the next costs, and the bytes
//! on the wire that it saves. Never chooses.

use super::table::Table;
use crate::build::PlanBuf;
use crate::config::{Config, Often};
use crate::message::Bytes;
use crate::plan::Plan;
use crate::traffic::Traffic;

/// The table; empty if nothing could be held.
pub fn lines(plan: &Plan) -> Vec<String> {
    let config = &plan.config;
    let both = [Often::PerMicroBatch, Often::PerStep];
    // What is kept in a tier cannot be held.
    let gathers = config.shards_parameters() && !config.offloads_parameters();
    let reduces = config.micro_batches > 1 && !config.offloads_gradients();
    if !gathers && !reduces {
        return Vec::new();
    }
    let mut table = Table::new("held or sent again", ["arena", "sent", ""].map(str::to_owned).to_vec());
    for gather in both.into_iter().filter(|&gather| gathers || gather == config.gather) {
        for reduce in both.into_iter().filter(|&reduce| reduces || reduce == config.reduce) {
            let choice = Config { gather, reduce, ..*config };
            let (arena, sent) = PlanBuf::new(plan.model, choice, plan.units).with(needs);
            let mark = if choice == *config { "this plan" } else { "" };
            let figures = vec![Bytes(arena).to_string(), Bytes(sent).to_string(), mark.to_owned()];
            table.row(&label(&choice, gathers, reduces), figures);
        }
    }
    table.lines()
}

fn label(choice: &Config, gathers: bool, reduces: bool) -> String {
    let gather = gathers.then(|| format!("gather: {:?}", choice.gather));
    let reduce = reduces.then(|| format!("reduce: {:?}", choice.reduce));
    gather.into_iter().chain(reduce).collect::<Vec<_>>().join(", ")
}

/// The largest arena, and the most that a rank sends in a step, in bytes.
fn needs(plan: &Plan) -> (usize, usize) {
    let of_pipeline_stage = |pipeline: usize| {
        Traffic::of(plan, plan.busiest_rank(pipeline), plan.pipeline_stages[pipeline].step).total_bytes()
    };
    let sent = (0..plan.pipeline_stages.len()).map(of_pipeline_stage);
    (plan.bytes_per_rank_max(), sent.max().unwrap_or(0))
}
