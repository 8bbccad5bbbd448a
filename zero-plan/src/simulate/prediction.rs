//! Prediction: what a step under a plan would be like on some hardware, as figures for people and programs: times, shares, traffic
//! against links, the critical path, and what would help. Only sums up what the simulation says.

use serde::Serialize;

use super::{CriticalStretch, Impossible, LinkKind, Route, Routes, StepPart, Timeline, threads_of_rank};
use super::{cost::Costs, run::SimulatedRun, run::is_straight, timeline::Cause, timeline::Flow};
use crate::config::{DeviceKind, TransportKind};
use crate::hardware::{Handover, Hardware};
use crate::mesh::Axis;
use crate::plan::Plan;
use crate::schedule::Op;

/// The shape of the JSON: a change of it is a new name.
pub const FORMAT: &str = "zero-simulate-2";
/// How much better a link or a rate is taken to be, to see what depends on it.
pub const BETTER: f64 = 1.1;

/// What a step would be like.
#[derive(Clone, Debug, Serialize)]
pub struct Prediction {
    /// `"zero-simulate-2"`.
    pub format: &'static str,
    /// The model.
    pub model: String,
    /// The hardware.
    pub hardware: String,
    /// What ranks compute on there.
    pub device: DeviceKind,
    /// And how they reach one another.
    pub transport: TransportKind,
    /// Threads of a rank.
    pub threads: usize,
    /// Whether the times of all units were measured on that machine; otherwise they follow from rates.
    pub units_are_measured: bool,
    /// Seconds of a step.
    pub step_s: f64,
    /// Tokens that all ranks train on in a step.
    pub tokens_per_step: usize,
    /// And in a second.
    pub tokens_per_s: f64,
    /// Share of the published peak, by [`Timeline::mfu`].
    pub mfu: f64,
    /// What a rank of each pipeline stage does with its time, and needs.
    pub pipeline_stages: Vec<PipelineStagePrediction>,
    /// What travels, by kind and link.
    pub traffic: Vec<FlowPrediction>,
    /// The critical path by kind of op or transfer, the longest first.
    pub critical: Vec<Critical>,
    /// The same path in its order; each begins where the one before it ends.
    pub path: Vec<PathSegment>,
    /// What would change if something were 10 % faster, the most helpful first.
    pub better: Vec<Better>,
}

/// A pipeline stage.
#[derive(Clone, Debug, Serialize)]
pub struct PipelineStagePrediction {
    /// Seconds of each part; they add up to the step.
    pub parts: Vec<(StepPart, f64)>,
    /// Seconds of communication that nothing hides.
    pub exposed_s: f64,
    /// Seconds in which it waits for other pipeline stages to compute.
    pub bubble_s: f64,
    /// Bytes that a rank plans for.
    pub memory_bytes: usize,
    /// Bytes that a rank may take on the hardware.
    pub budget_bytes: u64,
    /// Seconds since the start of the step, and bytes of the arena that are in use from then on: at each change.
    pub in_use: Vec<(f64, usize)>,
    /// When that is most.
    pub peak: PeakPrediction,
}

/// When most of an arena is in use.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PeakPrediction {
    /// The first op that needs it, such as `backward blocks`.
    pub op: String,
    /// Seconds since the start of the step at which that begins.
    pub at_s: f64,
    /// Bytes.
    pub bytes: usize,
}

/// A kind of traffic over a kind of link, of a rank of the pipeline stage that has the most of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FlowPrediction {
    /// What travels.
    pub flow: Flow,
    /// On what.
    pub link: LinkKind,
    /// Bytes that a rank sends in a step.
    pub bytes: usize,
    /// Bytes a second of its share of the link.
    pub bandwidth: f64,
    /// Bytes divided by bandwidth, in seconds.
    pub busy_s: f64,
    /// Seconds that latencies add.
    pub latency_s: f64,
    /// Seconds of it, latencies included, that no computation hides.
    pub exposed_s: f64,
    /// Seconds that the collectives of a step take one after another on rings; none for all but collectives along an axis,
    /// and where ranks send directly what those of other hosts need.
    pub ring_s: Option<f64>,
    /// And by trees.
    pub tree_s: Option<f64>,
}

/// A kind of op or transfer on the critical path.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Critical {
    /// Which, such as `backward blocks` or `all-gather (network)`.
    pub what: String,
    /// Its seconds.
    pub seconds: f64,
}

/// An op or a transfer on the critical path.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PathSegment {
    /// Which, as [`Critical`] says.
    pub what: String,
    /// The first rank of the pipeline stage that does or sends it: all of its ranks do so at the same time.
    pub rank: usize,
    /// The unit that it is about; none where that is several, or all.
    pub unit: Option<String>,
    /// The micro-batch that it is about, if it is about one.
    pub micro_batch: Option<usize>,
    /// Seconds since the start of the step at which it begins.
    pub start_s: f64,
    /// And at which it ends.
    pub end_s: f64,
}

/// Something that is better.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Better {
    /// What is 10 % faster.
    pub what: &'static str,
    /// Seconds of a step then.
    pub step_s: f64,
}

impl Prediction {
    /// What a step would be like, with so many threads a rank.
    ///
    /// # Errors
    /// Where the hardware cannot run it.
    pub fn of(plan: &Plan, hardware: &Hardware, threads: Option<usize>) -> Result<Self, Impossible> {
        let threads = threads.unwrap_or_else(|| threads_of_rank(plan, hardware));
        let timeline = super::simulate_with(plan, hardware, threads)?;
        let budget_bytes = hardware.budget_bytes(plan.config.mesh.ranks_per_node());
        let pipeline_stage = |pipeline| {
            let parts = timeline.parts(plan, pipeline);
            let memory = plan.pipeline_stages[pipeline].memory.bytes_per_rank();
            let outside =
                plan.outside_bytes(&crate::footprint::RunSize { threads, ..crate::footprint::RunSize::LEAST });
            let in_use = in_use(plan, &timeline, pipeline);
            PipelineStagePrediction {
                exposed_s: parts.exposed_s(),
                bubble_s: parts.bubble_s(),
                parts: parts.0,
                memory_bytes: memory + outside,
                budget_bytes,
                peak: peak(plan, pipeline, &in_use),
                in_use,
            }
        };
        let pipeline_stages: Vec<_> = (0..timeline.lanes.len()).map(pipeline_stage).collect();
        let mut better: Vec<Better> = improved(hardware)
            .map(|(what, hardware)| {
                let costs = Costs::new(plan, &hardware, threads);
                Better { what, step_s: SimulatedRun::new(plan, &hardware, &costs).end().step_s }
            })
            .collect();
        better.sort_by(|a, b| a.step_s.total_cmp(&b.step_s));
        let segments = timeline.critical_path().into_iter();
        let path: Vec<_> = segments.filter_map(|segment| path_segment(plan, &timeline, segment)).collect();
        Ok(Self {
            format: FORMAT,
            model: plan.model.to_owned(),
            hardware: hardware.name.clone(),
            device: plan.config.device,
            transport: plan.config.transport,
            threads,
            units_are_measured: Costs::new(plan, hardware, threads).are_measured(),
            step_s: timeline.step_s,
            tokens_per_step: plan.config.tokens_per_step(),
            tokens_per_s: timeline.tokens_per_s(plan),
            mfu: timeline.mfu(plan, hardware),
            traffic: traffic(plan, hardware, &timeline, &pipeline_stages),
            pipeline_stages,
            critical: critical(&path),
            path,
            better,
        })
    }
}

/// The bytes in use in the arena of a rank of a pipeline stage, at each change: an op has what it needs from the end of the op
/// before it on, so also while it waits.
fn in_use(plan: &Plan, timeline: &Timeline, pipeline: usize) -> Vec<(f64, usize)> {
    let lane = &timeline.lanes[pipeline];
    let bytes = plan.in_use(pipeline).into_iter().map(|regions| regions.iter().sum());
    let mut changes: Vec<(f64, usize)> = (0..).map(|op| lane.before_s(op)).zip(bytes).collect();
    changes.dedup_by_key(|(_, bytes)| *bytes);
    changes
}

fn peak(plan: &Plan, pipeline: usize, in_use: &[(f64, usize)]) -> PeakPrediction {
    // The first of several.
    let &(at_s, bytes) = in_use.iter().rev().max_by_key(|(_, bytes)| *bytes).unwrap_or(&(0.0, 0));
    PeakPrediction { op: op_name(plan, plan.peak(pipeline).op), at_s, bytes }
}

/// Lets hardware compute faster, by [`BETTER`].
pub(crate) fn compute_faster(hardware: &mut Hardware) {
    hardware.device.matmul.f32 *= BETTER;
    hardware.device.matmul.bf16 *= BETTER;
    for unit in &mut hardware.measured {
        unit.forward /= BETTER;
        unit.backward /= BETTER;
    }
}

/// The hardware with one thing better, for each that it has.
fn improved(hardware: &Hardware) -> impl Iterator<Item = (&'static str, Hardware)> {
    let with = |change: fn(&mut Hardware)| {
        let mut better = hardware.clone();
        change(&mut better);
        (better != *hardware).then_some(better)
    };
    let all: [(&'static str, Option<Hardware>); 5] = [
        ("computation", with(compute_faster)),
        (
            "memory bandwidth",
            with(|it| {
                it.device.bandwidth *= BETTER;
                it.device.sums = it.device.sums.map(|sums| sums * BETTER);
                // AdamW reads and writes its state, and computes next to nothing.
                it.measured.iter_mut().for_each(|unit| unit.update /= BETTER);
            }),
        ),
        (
            "links of a node",
            with(|it| {
                if let Some(link) = &mut it.node.link {
                    link.bandwidth *= BETTER;
                }
            }),
        ),
        (
            "network",
            with(|it| {
                if let Some(network) = &mut it.network {
                    network.bandwidth *= BETTER;
                }
            }),
        ),
        (
            "latencies",
            with(|it| {
                it.device.op /= BETTER;
                if let Some(link) = &mut it.node.link {
                    link.latency /= BETTER;
                }
                if let Some(network) = &mut it.network {
                    network.latency /= BETTER;
                }
                if let Some(Handover { apart, turns }) = &mut it.node.handover {
                    (*apart, *turns) = (*apart / BETTER, *turns / BETTER);
                }
            }),
        ),
    ];
    all.into_iter().filter_map(|(what, better)| Some((what, better?)))
}

/// What a rank sends over each link. Of the pipeline stages, the one that sends most.
fn traffic(
    plan: &Plan,
    hardware: &Hardware,
    timeline: &Timeline,
    pipeline_stages: &[PipelineStagePrediction],
) -> Vec<FlowPrediction> {
    let routes = Routes::new(hardware, &plan.config.mesh);
    let mut flows = Vec::new();
    for flow in Flow::ALL {
        for link in LinkKind::ALL {
            let of_pipeline_stage = |pipeline: usize| {
                let own = timeline.lanes[pipeline].transfers.iter().filter(|it| it.flow == flow && it.link == link);
                let own: Vec<_> = own.copied().collect();
                (own.iter().map(|it| it.bytes).sum::<usize>(), own, pipeline)
            };
            let Some((bytes, own, pipeline)) = (0..timeline.lanes.len()).map(of_pipeline_stage).max_by_key(|it| it.0)
            else {
                continue;
            };
            let latency_s: f64 = own.iter().map(|it| it.end_s - it.free_s).sum();
            if bytes == 0 && latency_s == 0.0 {
                continue;
            }
            let is_direct = |op: usize| {
                link == LinkKind::Network && is_straight(&plan.config, plan.pipeline_stages[pipeline].step[op])
            };
            let busy_s: f64 = own.iter().map(|it| it.free_s - it.start_s).sum();
            let exposed =
                pipeline_stages[pipeline].parts.iter().filter(|(part, _)| *part == StepPart::Exposed(flow, link));
            let collective = |each: fn(&Route, usize) -> f64| {
                let seconds = own.iter().map(|it| {
                    let route = routes.collective(axis(plan, pipeline, it.op).filter(|_| !is_direct(it.op))?, pipeline);
                    Some(each(&route, it.bytes * route.ranks / (route.ranks - 1).max(1)))
                });
                seconds.sum::<Option<f64>>()
            };
            flows.push(FlowPrediction {
                flow,
                link,
                bytes,
                bandwidth: bytes as f64 / busy_s,
                busy_s,
                latency_s,
                exposed_s: exposed.fold(0.0, |sum, (_, seconds)| sum + seconds),
                ring_s: collective(Route::ring_s),
                tree_s: collective(Route::tree_s),
            });
        }
    }
    flows
}

/// The axis of the collective that an op begins; none if it begins no collective.
fn axis(plan: &Plan, pipeline: usize, op: usize) -> Option<Axis> {
    match plan.pipeline_stages[pipeline].step[op] {
        Op::Gather { .. } | Op::Reduce { .. } => Some(Axis::Zero),
        Op::Settle { .. } => Some(Axis::Replica),
        Op::Subtotal { axis, .. } | Op::Spread { axis, .. } => Some(axis),
        _ => None,
    }
}

/// The critical path by kind.
fn critical(path: &[PathSegment]) -> Vec<Critical> {
    let mut kinds: Vec<Critical> = Vec::new();
    for PathSegment { what, start_s, end_s, .. } in path {
        match kinds.iter_mut().find(|kind| kind.what == *what) {
            Some(kind) => kind.seconds += end_s - start_s,
            None => kinds.push(Critical { what: what.clone(), seconds: end_s - start_s }),
        }
    }
    kinds.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
    kinds
}

fn op_name(plan: &Plan, op: Op) -> String {
    op.unit().map_or(op.name().to_owned(), |unit| format!("{} {}", op.name(), plan.units[unit].field))
}

/// A segment's kind, without the numbers of its unit and micro-batch, and these. None for the start of a step.
fn path_segment(plan: &Plan, timeline: &Timeline, segment: CriticalStretch) -> Option<PathSegment> {
    let CriticalStretch { what, start_s, end_s } = segment;
    let (lane, op, name) = match what {
        Cause::Start => return None,
        Cause::Op { lane, op } => (lane, op, None),
        Cause::Transfer { lane, transfer } => {
            let transfer = &timeline.lanes[lane].transfers[transfer];
            (lane, transfer.op, Some(format!("{} ({})", transfer.flow.name(), transfer.link.name())))
        }
    };
    let op = plan.pipeline_stages[lane].step[op];
    Some(PathSegment {
        what: name.unwrap_or_else(|| op_name(plan, op)),
        rank: plan.first_rank(lane),
        unit: op.unit().map(|unit| plan.units[unit].to_string()),
        micro_batch: op.micro_batch(),
        start_s,
        end_s,
    })
}
