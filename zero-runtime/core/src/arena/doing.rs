//! Doing: shows other ranks which op a rank is in, at the cost of at most one store for each op. Never waits.
#![allow(unsafe_code)]

use zero_plan::{Op, Pass, Plan};

use super::Arena;
use crate::control::{Control, Doing};
use crate::device::{Device, Failure};
use crate::lost::Broken;

impl<D: Device> Arena<'_, D> {
    /// The control block of a rank.
    pub fn control(&self, rank: usize) -> &Control {
        assert!(rank < self.plan().config.mesh.ranks());
        // SAFETY: the segment starts with one block for each rank, was zero at first, and is mapped as long as the
        // arena is, which the result borrows; the blocks are used only through this type.
        unsafe { Control::of(self.segment_start(), rank) }
    }

    /// The error for a failure of this rank's device or tier.
    pub fn broken(&self, failure: Failure) -> Broken {
        let doing = op_words(self.plan(), self.rank(), self.control(self.rank()).doing());
        Broken { failure, rank: self.rank(), doing }
    }

    /// Records that this rank begins an op of its schedule, or that it is between two passes over the schedule (`None`).
    pub fn begin(&self, op: Option<(Pass, usize)>) {
        self.control(self.rank()).begin(op);
    }
}

/// The op that a rank is at.
pub fn op_words(plan: &Plan, rank: usize, doing: Doing) -> String {
    let Some((pass, index)) = doing.op() else {
        return "no op".to_owned();
    };
    let pipeline_stage = plan.of_rank(rank);
    let ops = pipeline_stage.ops(pass);
    let of = match pass {
        Pass::Train => "the step",
        Pass::Evaluate => "the evaluation",
        Pass::Publish => "the publication",
    };
    // Numbers from another process may have any value.
    let Some(&op) = ops.get(index) else {
        return format!("op {} of {of}", index + 1);
    };
    format!("op {} of {} of {of}, `{}`", index + 1, ops.len(), name(plan, op))
}

/// The name of an op, with its unit or bucket.
fn name(plan: &Plan, op: Op) -> String {
    if let (Some(unit), Some(piece)) = (op.unit(), op.traits().piece) {
        return format!("{} {} piece {piece}", op.name(), plan.units[unit]);
    }
    match (op.unit(), op.bucket()) {
        (Some(unit), _) => format!("{} {}", op.name(), plan.units[unit]),
        (None, Some(bucket)) => format!("{} bucket {bucket}", op.name()),
        (None, None) => op.name().to_owned(),
    }
}
