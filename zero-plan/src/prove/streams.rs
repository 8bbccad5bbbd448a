//! Streams: on a device with streams, any two accesses to one byte, of which one writes it, are in order, even if their
//! ops are on different ranks. Knows places, queues and counts, but not the rules by which queues are made.
//!
//! An op is after another if a chain of these pairs leads to it: ops of one stream in the order of the table; an op and
//! the event that it waits for; an op that raises a count, and any op that waits for that count; and ops before and
//! after the point between two passes at which the streams of a rank meet. One walk over the ops of all ranks finds
//! these chains (`walk`), with a clock for each stream of each rank that says how much of every stream is done
//! (`clock`). The chains do not depend on the order of the walk. The last accesses to every byte are kept with it
//! (`memory`).
//!
//! Several passes are walked one after another, so that each kind follows each, because ranks do not meet between
//! passes and one may be ahead. More passes are not needed: an op that comes before the same op of a later pass comes
//! before everything that is shown to come after the later op.

mod clock;
mod memory;
mod signals;
mod walk;

use super::{Flaw, Spot};
use crate::pipeline::Pass;
use crate::place::{Accesses, accesses, decoding_accesses};
use crate::plan::Plan;
use crate::unit::caches;

use walk::StreamsWalk;

/// Training steps and evaluations, so that each kind follows each; and then publications, which a plan without them skips.
const PASSES: [Pass; 12] = {
    use Pass::{Evaluate, Publish, Train};
    [Train, Train, Evaluate, Train, Evaluate, Evaluate, Publish, Publish, Train, Publish, Evaluate, Publish]
};
/// The passes of a plan that publishes nothing.
const UNPUBLISHED: usize = 6;

/// Proves this for a plan. Without queues, the ops of a rank run one after another, so there is nothing to prove.
pub(super) fn streams(plan: &Plan) -> Result<(), Flaw> {
    well_formed(plan)?;
    if !plan.config.has_queues() {
        return Ok(());
    }
    let passes = if plan.config.publishes() { &PASSES[..] } else { &PASSES[..UNPUBLISHED] };
    in_order(plan, passes, &accesses)?;
    if caches(plan.units) {
        // A decoding walk differs only in places of its own rank; it accesses places of other ranks as an evaluation does.
        in_order(plan, &[Pass::Evaluate; 2], &decoding_accesses)?;
    }
    Ok(())
}

fn in_order(plan: &Plan, passes: &[Pass], accesses: &Accesses) -> Result<(), Flaw> {
    StreamsWalk::new(plan, passes, accesses).run()
}

/// Proves that every op has an entry, and that an op can only wait for an earlier op in another stream.
fn well_formed(plan: &Plan) -> Result<(), Flaw> {
    for pass in Pass::ALL {
        for rank in 0..plan.config.mesh.ranks() {
            let pipeline_stage = plan.of_rank(rank);
            let (ops, queue) = (pipeline_stage.ops(pass), pipeline_stage.queue(pass));
            let expected = if plan.config.has_queues() { ops.len() } else { 0 };
            let flaw = |op, rule: &str| {
                Err(Flaw { pass, rule: rule.to_owned(), places: vec![spot(plan, pass, rank, op, "")] })
            };
            if queue.len() != expected {
                return flaw(queue.len().min(ops.len()), "queued ops and ops differ in number");
            }
            for (op, queued) in queue.iter().enumerate() {
                let Some(before) = queued.waits_for() else { continue };
                if before >= op {
                    return flaw(op, "an op that waits for one that is queued later");
                }
                if queue[before].stream == queued.stream {
                    return flaw(op, "an op that waits for one of its own stream");
                }
            }
        }
    }
    Ok(())
}

fn spot(plan: &Plan, pass: Pass, rank: usize, op: usize, note: impl Into<String>) -> Spot {
    let does = plan.of_rank(rank).ops(pass).get(op).copied();
    Spot { rank, at: plan.config.mesh.coordinates(rank), op, does, note: note.into() }
}

#[cfg(test)]
mod publish_tests;
#[cfg(test)]
mod relay_tests;
#[cfg(test)]
mod tests;
