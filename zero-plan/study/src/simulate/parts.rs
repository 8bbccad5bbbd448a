//! Parts: how a rank spends the time of a step: work by kind, communication that no computation hides, and the rest, in
//! which it waits for other ranks to compute. Never runs a step.

use serde::Serialize;
use zero_plan::{Class, Mesh, Op, Plan, Width};

use super::timeline::{Cause, Flow, LinkKind, OpSpan, Timeline};
use crate::hardware::{Hardware, Processor};

/// A kind of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub enum StepPart {
    /// Forward passes.
    Forward,
    /// Backward passes.
    Backward,
    /// Forward passes that run again.
    Recompute,
    /// The optimizer.
    Update,
    /// Sums over ranks, copies, conversions, and the start of ops that compute nothing.
    Memory,
    /// Waiting for a transfer.
    Exposed(Flow, LinkKind),
    /// Waiting for another pipeline stage to compute.
    Bubble,
}

/// The parts of a step of one lane, in seconds. They add up to the step.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct StepParts(pub Vec<(StepPart, f64)>);

impl StepParts {
    /// Seconds of the chosen parts.
    pub fn sum(&self, chosen: impl Fn(StepPart) -> bool) -> f64 {
        self.0.iter().filter(|(part, _)| chosen(*part)).fold(0.0, |sum, (_, seconds)| sum + seconds)
    }

    /// Seconds of communication that no computation hides.
    pub fn exposed_s(&self) -> f64 {
        self.sum(|part| matches!(part, StepPart::Exposed(..)))
    }

    /// Seconds in which a rank waits for another pipeline stage.
    pub fn bubble_s(&self) -> f64 {
        self.sum(|part| part == StepPart::Bubble)
    }

    fn add(&mut self, part: StepPart, seconds: f64) {
        match self.0.iter_mut().find(|(other, _)| *other == part) {
            Some((_, sum)) => *sum += seconds,
            None if seconds > 0.0 => self.0.push((part, seconds)),
            None => {}
        }
    }
}

/// The kind of an op's work.
const fn kind(op: Op) -> StepPart {
    match op.class() {
        Class::Forward => StepPart::Forward,
        Class::Backward => StepPart::Backward,
        Class::Recompute => StepPart::Recompute,
        Class::Update => StepPart::Update,
        Class::Gather | Class::Reduce | Class::Parcel | Class::Agree | Class::Tier => StepPart::Memory,
    }
}

impl Timeline {
    /// How the ranks of a pipeline stage spend their time.
    pub fn parts(&self, plan: &Plan, pipeline: usize) -> StepParts {
        let (lane, mut parts) = (&self.lanes[pipeline], StepParts::default());
        for (span, &op) in lane.spans.iter().zip(plan.pipeline_stages[pipeline].step) {
            parts.add(kind(op), span.end_s - span.start_s);
            self.add_wait(span, &mut parts);
        }
        // The next step begins only when nothing travels.
        if let Some(last) = lane.last_of_tier().map(|last| &lane.transfers[last]) {
            parts.add(StepPart::Exposed(last.flow, last.link), lane.stored_s() - lane.end_s());
        }
        parts.add(StepPart::Bubble, self.step_s - lane.stored_s());
        parts.0.sort_by_key(|&(part, _)| part);
        parts
    }

    /// Divides the wait of an op: the rank waits for the sender until the transfer could begin, and then for the link.
    fn add_wait(&self, span: &OpSpan, parts: &mut StepParts) {
        match span.cause {
            Cause::Transfer { lane, transfer } => {
                let transfer = &self.lanes[lane].transfers[transfer];
                let travels = (span.start_s - transfer.asked_s).clamp(0.0, span.waited_s);
                parts.add(StepPart::Exposed(transfer.flow, transfer.link), travels);
                parts.add(StepPart::Bubble, span.waited_s - travels);
            }
            _ => parts.add(StepPart::Bubble, span.waited_s),
        }
    }

    /// Tokens that all ranks together train on in a second.
    pub fn tokens_per_s(&self, plan: &Plan) -> f64 {
        plan.config.tokens_per_step() as f64 / self.step_s
    }

    /// Share of the peak: the operations that a step needs, a forward pass and a backward pass with twice as many,
    /// divided by the operations that all devices could do in this time at the published rate of matrix products.
    /// Recomputation does not count, because it is not needed (model FLOPs utilization; Chowdhery et al., PaLM, 2022,
    /// appendix B, who count only products; here the other operations of layers count too, a few percent).
    pub fn mfu(&self, plan: &Plan, hardware: &Hardware) -> f64 {
        needed_operations(plan) as f64
            / (self.step_s * peak_rate(&plan.config.mesh, hardware, plan.config.precision.compute))
    }
}

/// Operations that a step of all ranks needs.
fn needed_operations(plan: &Plan) -> u128 {
    let forward: u128 = plan.units.iter().map(|unit| unit.operations as u128).sum();
    3 * forward * (plan.config.micro_batches * plan.config.mesh.data_ranks()) as u128
}

/// Published operations a second of all devices that ranks run on. For a processor, all cores of its node count,
/// however many threads ranks have.
fn peak_rate(mesh: &Mesh, hardware: &Hardware, compute: Width) -> f64 {
    let devices = match hardware.device.kind {
        Processor::Gpu => mesh.ranks(),
        Processor::Cpu => mesh.nodes * hardware.node.devices,
    };
    devices as f64 * hardware.device.matmul.of(compute)
}
