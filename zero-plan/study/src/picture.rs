//! Picture: the numbers and texts of a plan's drawing: mesh, schedule over time, memory over time, traffic, and the
//! lines of the spec that decide them. Only summarizes; never draws, and never changes a plan.

mod flights;
mod memory;
mod mesh;
mod operations;
mod ops;
mod source;
mod traffic;

use serde::Serialize;
use zero_plan::footprint::RunSize;
use zero_plan::{Config, Plan, Ranges, publication_line, work_lines};

use crate::simulate::Timeline;

pub use flights::Flights;
pub use memory::{Holding, KindPicture, MemoryGroup, MemoryPicture, PeakPicture};
pub use mesh::{AxisPicture, MeshPicture, StatePicture};
pub use operations::operations;
pub use ops::{About, OpColumns, OpVerb, TimePart, WaitPicture};
pub use source::{KeyPicture, SourcePicture};
pub use traffic::TrafficPart;

/// The shape of a picture as JSON. Its number changes if a reader of the earlier shape would misread the new one.
pub const FORMAT: &str = "zero-picture-2";

/// The unit of the time axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum TimeAxis {
    /// Nanoseconds on a machine.
    #[serde(rename = "ns")]
    Nanoseconds,
    /// Floating-point operations; only computation takes time.
    #[serde(rename = "operations")]
    Operations,
}

impl TimeAxis {
    /// A time of a [`Timeline`] on the axis.
    fn ticks(self, time: f64) -> u64 {
        match self {
            TimeAxis::Nanoseconds => (time * 1e9).round() as u64,
            TimeAxis::Operations => time.round() as u64,
        }
    }
}

/// The times at which the ops of a plan run, and the machine.
#[derive(Clone, Copy, Debug)]
pub struct Timed<'a> {
    /// The times.
    pub timeline: &'a Timeline,
    /// The unit of its times.
    pub clock: TimeAxis,
    /// The machine; none if times are operations.
    pub hardware: Option<&'a str>,
    /// Memory that a rank may use on the machine, in bytes.
    pub memory_bytes: Option<usize>,
}

/// A plan as it is drawn. Times are in the unit of `clock`, sizes in bytes.
#[derive(Clone, Debug, Serialize)]
pub struct Picture {
    /// [`FORMAT`].
    pub format: &'static str,
    /// The model.
    pub model: String,
    /// The number of its parameters.
    pub params: usize,
    /// Model, batch and widths in words, as at the beginning of a report.
    pub summary: Vec<String>,
    /// The unit of time.
    pub clock: TimeAxis,
    /// The machine of the times.
    pub hardware: Option<String>,
    /// How long a step takes.
    pub end: u64,
    /// Gathers ahead of computation, if the plan gathers parameters for use.
    pub prefetch: Option<usize>,
    /// ZeRO stage.
    pub stage: u8,
    /// Micro-batches of a step.
    pub micro_batches: usize,
    /// Tokens of a step of all ranks.
    pub tokens: usize,
    /// The ranks.
    pub mesh: MeshPicture,
    /// The units, in the order of forward.
    pub units: Vec<UnitPicture>,
    /// The buckets, in the order of backward.
    pub buckets: Vec<BucketPicture>,
    /// The kinds of ops; [`OpColumns::verb`] has indices of these.
    pub verbs: Vec<OpVerb>,
    /// Kinds of memory, by [`zero_plan::Kind::ALL`].
    pub kinds: Vec<KindPicture>,
    /// The most bytes that a rank uses outside its arena.
    pub outside_bytes: usize,
    /// Limits of the memory of a rank, each with its name.
    pub limits: Vec<(&'static str, usize)>,
    /// The pipeline stages. All ranks of a pipeline stage do the same.
    pub pipeline_stages: Vec<PipelineStagePicture>,
    /// The spec.
    pub source: SourcePicture,
}

/// A unit.
#[derive(Clone, Debug, Serialize)]
pub struct UnitPicture {
    /// Its name.
    pub name: String,
    /// The number of its own parameters.
    pub params: usize,
    /// Operations of a forward pass over one micro-batch.
    pub operations: usize,
    /// Its pipeline stage.
    pub pipeline: usize,
    /// The bucket of its gradients.
    pub bucket: usize,
    /// Whether it runs forward again before its backward.
    pub recomputed: bool,
}

/// A bucket.
#[derive(Clone, Debug, Serialize)]
pub struct BucketPicture {
    /// Its units: the first and the last in the order of forward.
    pub units: [usize; 2],
    /// Bytes of its gradients, including padding.
    pub bytes: usize,
}

/// The memory, ops and traffic of each rank of a pipeline stage.
#[derive(Clone, Debug, Serialize)]
pub struct PipelineStagePicture {
    /// Its units, such as `embed, blocks[0..2]`.
    pub units: String,
    /// Its ops, in order of the schedule.
    pub ops: OpColumns,
    /// The transfers.
    pub flights: Flights,
    /// The parts of the step's time; they add up to the step.
    pub time: Vec<TimePart>,
    /// The memory of a rank.
    pub memory: MemoryPicture,
    /// The bytes that a rank sends in a step.
    pub traffic: Vec<TrafficPart>,
}

impl Picture {
    /// The picture of a plan whose spec is the `text` of a file called `name`.
    pub fn of(plan: &Plan, timed: Timed, name: &str, text: &str) -> Self {
        let config = &plan.config;
        let verbs = ops::verbs(plan);
        let pipeline_stage = |pipeline: usize| PipelineStagePicture {
            units: units_of(plan, pipeline),
            ops: OpColumns::of(plan, pipeline, &verbs, timed),
            flights: Flights::of(plan, pipeline, timed),
            time: ops::time(plan, pipeline, timed),
            memory: MemoryPicture::of(plan, pipeline),
            traffic: traffic::parts_of(plan, pipeline),
        };
        let budget = config.memory_bytes.map(|bytes| ("memory of the spec", bytes));
        let device = timed.memory_bytes.map(|bytes| ("memory of the device", bytes));
        Self {
            format: FORMAT,
            model: plan.model.to_owned(),
            params: plan.params(),
            summary: work_lines(plan)
                .iter()
                .map(|line| on_one_line(line))
                .chain(publication_line(plan))
                .chain(timed.hardware.map(|_| runs_by(config)))
                .collect(),
            clock: timed.clock,
            hardware: timed.hardware.map(str::to_owned),
            end: timed.clock.ticks(timed.timeline.step_s),
            prefetch: config.shards_parameters().then_some(config.prefetch),
            stage: config.stage,
            micro_batches: config.micro_batches,
            tokens: config.tokens_per_step(),
            mesh: MeshPicture::of(config),
            units: (0..plan.units.len()).map(|unit| unit_of(plan, unit)).collect(),
            buckets: plan.buckets.iter().map(|bucket| bucket_of(plan, bucket)).collect(),
            pipeline_stages: (0..plan.pipeline_stages.len()).map(pipeline_stage).collect(),
            verbs,
            kinds: memory::kinds(),
            outside_bytes: plan.outside_bytes(&RunSize::LEAST),
            limits: budget.into_iter().chain(device).collect(),
            source: SourcePicture::of(plan, name, text),
        }
    }
}

/// The device and transport, which the hardware may decide in place of the spec.
fn runs_by(config: &Config) -> String {
    format!("here with device {:?}, transport {:?}", config.device, config.transport)
}

/// A line of a report that may have been wrapped. Additions to the widths of numbers are on lines of their own there.
fn on_one_line(line: &str) -> String {
    let between = if line.starts_with("precision") { "; " } else { " " };
    line.lines().map(str::trim).collect::<Vec<_>>().join(between)
}

fn units_of(plan: &Plan, pipeline: usize) -> String {
    let units: Vec<usize> =
        (0..plan.units.len()).filter(|&unit| plan.placements[unit].pipeline_stage == pipeline).collect();
    Ranges(plan.units, &units).to_strings().join(", ")
}

fn unit_of(plan: &Plan, unit: usize) -> UnitPicture {
    UnitPicture {
        name: plan.units[unit].to_string(),
        params: plan.units[unit].params,
        operations: plan.units[unit].operations,
        pipeline: plan.placements[unit].pipeline_stage,
        bucket: plan.placements[unit].bucket,
        recomputed: plan.config.recomputes(plan.units, unit),
    }
}

fn bucket_of(plan: &Plan, bucket: &zero_plan::Bucket) -> BucketPicture {
    let bytes = bucket.elements * plan.config.precision.reduce.bytes();
    BucketPicture { units: [bucket.first, bucket.last], bytes }
}

#[cfg(test)]
mod tests;
