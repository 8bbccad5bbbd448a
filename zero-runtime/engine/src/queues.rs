//! Queues: lets a device that has queues follow the streams of a plan. Each op goes to the queue of its stream, after
//! the op that it waits for in the plan. Never decides an order.

use zero_plan::{Pass, PipelineStage, Plan, Queued, Stream};

use zero_core::device::Device;

/// Whether other ops wait for an op, for each op of the tables of a pipeline stage.
pub(super) struct AwaitedOps([Vec<bool>; Pass::ALL.len()]);

impl AwaitedOps {
    /// The ops that other ops wait for on a pipeline stage.
    pub fn new(pipeline_stage: &PipelineStage) -> Self {
        Self(Pass::ALL.map(|pass| {
            let queue = pipeline_stage.queue(pass);
            let mut awaited = vec![false; queue.len()];
            queue.iter().filter_map(Queued::waits_for).for_each(|op| awaited[op] = true);
            awaited
        }))
    }

    fn is_awaited(&self, pass: Pass, op: usize) -> bool {
        self.0[pass as usize].get(op).is_some_and(|awaited| *awaited)
    }

    /// Begins a pass: no queue continues before all queues have done all earlier work.
    pub fn begin_pass<D: Device>(&self, plan: &Plan, device: &D) {
        let Some((_, others)) = plan.streams_of_device().split_first() else { return };
        // At the end of the last pass, this stream waited for all others.
        device.enter(Stream::Compute as usize);
        device.record(Stream::Compute as usize);
        for &stream in others {
            device.enter(stream as usize);
            device.wait(Stream::Compute as usize);
        }
        device.enter(Stream::Compute as usize);
    }

    /// Ends a pass: the compute stream continues after all of it.
    pub fn end_pass<D: Device>(&self, plan: &Plan, device: &D) {
        self.join(plan.streams_of_device().iter().skip(1), device);
    }

    /// Ends a publication: the compute stream continues after all of it but what goes to the memory of the host.
    pub fn end_publication<D: Device>(&self, plan: &Plan, device: &D) {
        self.join(plan.streams_of_device().iter().skip(1).filter(|stream| **stream != Stream::Store), device);
    }

    fn join<'s, D: Device>(&self, streams: impl Iterator<Item = &'s Stream>, device: &D) {
        for &stream in streams {
            device.enter(stream as usize);
            device.record(stream as usize);
            device.enter(Stream::Compute as usize);
            device.wait(stream as usize);
        }
    }

    /// Chooses the queue of the next op, after the events that it waits for.
    pub fn enter<D: Device>(&self, pipeline_stage: &PipelineStage, pass: Pass, op: usize, device: &D) {
        if let Some(queued) = pipeline_stage.queue(pass).get(op) {
            device.enter(queued.stream as usize);
            queued.waits_for().into_iter().for_each(|before| device.wait(PipelineStage::JOINS + before));
        }
    }

    /// Records that the op is queued, so that other ops can wait for it.
    pub fn leave<D: Device>(&self, pass: Pass, op: usize, device: &D) {
        if self.is_awaited(pass, op) {
            device.record(PipelineStage::JOINS + op);
        }
    }
}
