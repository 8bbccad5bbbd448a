//! Prediction: figures for people and programs about a step of a plan on some hardware: times, shares, traffic and
//! links, the critical path, and the changes that would help. Only summarizes the simulation.

use serde::Serialize;
use zero_plan::{Axis, DeviceKind, Op, Plan, TierKind, TransportKind};

use super::offload::TierPrediction;
use super::{
    CriticalStretch, Impossible, LinkKind, PublicationPrediction, Route, Routes, StepPart, Timeline, threads_of_rank,
};
use super::{cost::Costs, run::SimulatedRun, run::is_straight, timeline::Cause, timeline::Flow, timeline::FlowBytes};
use crate::hardware::{Handover, Hardware, OpTime};

/// The name of the JSON's shape. A changed shape gets a new name.
pub const FORMAT: &str = "zero-simulate-2";
/// The factor by which a link or a rate is improved, to see the effect on a step.
pub const BETTER: f64 = 1.1;

/// A step in figures.
#[derive(Clone, Debug, Serialize)]
pub struct Prediction {
    /// `"zero-simulate-2"`.
    pub format: &'static str,
    /// The model.
    pub model: String,
    /// The hardware.
    pub hardware: String,
    /// The hardware's device, on which ranks compute.
    pub device: DeviceKind,
    /// How ranks reach one another.
    pub transport: TransportKind,
    /// Threads of a rank.
    pub threads: usize,
    /// Whether the times of all units were measured on this hardware; otherwise they follow from rates.
    pub units_are_measured: bool,
    /// Seconds of a step.
    pub step_s: f64,
    /// Tokens that all ranks train on in a step.
    pub tokens_per_step: usize,
    /// Tokens that all ranks train on in a second.
    pub tokens_per_s: f64,
    /// Share of the published peak, by [`Timeline::mfu`].
    pub mfu: f64,
    /// Time and memory of a rank of each pipeline stage.
    pub pipeline_stages: Vec<PipelineStagePrediction>,
    /// What a rank sends, by kind.
    pub sent: Vec<FlowBytes>,
    /// What links carry of it, by kind and link, with times.
    pub traffic: Vec<FlowPrediction>,
    /// The critical path by kind of op or transfer, the longest first.
    pub critical: Vec<Critical>,
    /// The same path in order; each segment begins when the one before it ends.
    pub path: Vec<PathSegment>,
    /// The effect of making one part of the hardware 10 % faster, the most helpful first.
    pub better: Vec<Better>,
    /// The cost of states on disk; `None` if there are none.
    pub disk: Option<TierPrediction>,
    /// The cost of states in host memory; `None` if there are none.
    pub host: Option<TierPrediction>,
    /// A version of published parameters; `None` if nothing is published.
    pub publication: Option<PublicationPrediction>,
}

/// A pipeline stage.
#[derive(Clone, Debug, Serialize)]
pub struct PipelineStagePrediction {
    /// Seconds of each part; they add up to the step.
    pub parts: Vec<(StepPart, f64)>,
    /// Seconds of communication that no computation hides.
    pub exposed_s: f64,
    /// Seconds in which it waits for other pipeline stages to compute.
    pub bubble_s: f64,
    /// Bytes that a rank plans for.
    pub memory_bytes: usize,
    /// Bytes that a rank may use on the hardware.
    pub budget_bytes: u64,
    /// At each change: seconds since the start of the step, and bytes of the arena in use from then on.
    pub in_use: Vec<(f64, usize)>,
    /// The peak of the bytes in use.
    pub peak: PeakPrediction,
}

/// The peak of the memory in use in an arena.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PeakPrediction {
    /// The first op at the peak, such as `backward blocks`.
    pub op: String,
    /// Seconds from the start of the step until the op begins.
    pub at_s: f64,
    /// Bytes.
    pub bytes: usize,
}

/// A kind of traffic over a kind of link, for a rank of the pipeline stage with the most such traffic.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FlowPrediction {
    /// The kind of traffic.
    pub flow: Flow,
    /// The kind of link.
    pub link: LinkKind,
    /// Bytes of a step that a rank sends over the link.
    pub bytes: usize,
    /// Bytes a second of the rank's share of the link.
    pub bandwidth: f64,
    /// Bytes divided by bandwidth, in seconds.
    pub busy_s: f64,
    /// Seconds that latencies add.
    pub latency_s: f64,
    /// Seconds, latencies included, that no computation hides.
    pub exposed_s: f64,
    /// Seconds that the collectives of a step take one after another on rings. None for flows that are not collectives
    /// along an axis, and if ranks send bytes directly to the ranks of other hosts that need them.
    pub ring_s: Option<f64>,
    /// The same on trees.
    pub tree_s: Option<f64>,
}

/// A kind of op or transfer on the critical path.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Critical {
    /// Its name, such as `backward blocks` or `all-gather (network)`.
    pub what: String,
    /// Its seconds.
    pub seconds: f64,
}

/// An op or a transfer on the critical path.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PathSegment {
    /// Its name, as in [`Critical`].
    pub what: String,
    /// The first rank of the pipeline stage that runs or sends it. All ranks of the pipeline stage do so at the same time.
    pub rank: usize,
    /// Its unit; none if it concerns several or all units.
    pub unit: Option<String>,
    /// Its micro-batch, if it concerns a single micro-batch.
    pub micro_batch: Option<usize>,
    /// Seconds since the start of the step at which it begins.
    pub start_s: f64,
    /// Seconds since the start of the step at which it ends.
    pub end_s: f64,
}

/// An improvement.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Better {
    /// The part of the hardware that is 10 % faster.
    pub what: &'static str,
    /// Seconds of a step with this improvement.
    pub step_s: f64,
}

impl Prediction {
    /// The prediction for a plan, with this many threads a rank.
    ///
    /// # Errors
    /// If the hardware cannot run the plan.
    pub fn of(plan: &Plan, hardware: &Hardware, threads: Option<usize>) -> Result<Self, Impossible> {
        let threads = threads.unwrap_or_else(|| threads_of_rank(plan, hardware));
        let timeline = super::simulate_with(plan, hardware, threads)?;
        let budget_bytes = hardware.budget_bytes(plan.config.mesh.ranks_per_node());
        let pipeline_stage = |pipeline| {
            let parts = timeline.parts(plan, pipeline);
            let memory = plan.pipeline_stages[pipeline].memory.bytes_per_rank();
            let outside =
                plan.outside_bytes(&zero_plan::footprint::RunSize { threads, ..zero_plan::footprint::RunSize::LEAST });
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
        let mut better: Vec<Better> = improved(plan, hardware)
            .map(|(what, hardware)| {
                let costs = Costs::new(plan, &hardware, threads);
                Better { what, step_s: SimulatedRun::new(plan, &hardware, &costs).end().step_s }
            })
            .collect();
        better.sort_by(|a, b| a.step_s.total_cmp(&b.step_s));
        let segments = timeline.critical_path().into_iter();
        let path: Vec<_> = segments.filter_map(|segment| path_segment(plan, &timeline, segment)).collect();
        let in_tier = |tier| TierPrediction::of(plan, hardware, threads, &timeline, tier);
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
            sent: FlowBytes::of(plan),
            traffic: traffic(plan, hardware, &timeline, &pipeline_stages),
            pipeline_stages,
            critical: critical(&path),
            path,
            better,
            disk: in_tier(TierKind::Disk)?,
            host: in_tier(TierKind::Host)?,
            publication: PublicationPrediction::of(plan, hardware, threads),
        })
    }
}

/// The bytes in use in the arena of a rank of a pipeline stage, at each change. An op uses its memory from the end of
/// the previous op, so also while it waits.
fn in_use(plan: &Plan, timeline: &Timeline, pipeline: usize) -> Vec<(f64, usize)> {
    let lane = &timeline.lanes[pipeline];
    let bytes = plan.in_use(pipeline).into_iter().map(|regions| regions.iter().sum());
    let mut changes: Vec<(f64, usize)> = (0..).map(|op| lane.before_s(op)).zip(bytes).collect();
    changes.dedup_by_key(|(_, bytes)| *bytes);
    changes
}

fn peak(plan: &Plan, pipeline: usize, in_use: &[(f64, usize)]) -> PeakPrediction {
    // The first peak, if there are several.
    let &(at_s, bytes) = in_use.iter().rev().max_by_key(|(_, bytes)| *bytes).unwrap_or(&(0.0, 0));
    PeakPrediction { op: op_name(plan, plan.peak(pipeline).op), at_s, bytes }
}

/// Makes hardware compute faster, by [`BETTER`].
pub(crate) fn compute_faster(hardware: &mut Hardware) {
    hardware.device.matmul.f32 *= BETTER;
    hardware.device.matmul.bf16 *= BETTER;
    for unit in &mut hardware.measured {
        faster(&mut unit.forward);
        faster(&mut unit.backward);
    }
}

fn faster(time: &mut OpTime) {
    time.seconds /= BETTER;
    time.core_seconds /= BETTER;
}

/// The hardware with one improvement, for each possible improvement that a plan could notice.
fn improved(plan: &Plan, hardware: &Hardware) -> impl Iterator<Item = (&'static str, Hardware)> {
    let with = |change: fn(&mut Hardware)| {
        let mut better = hardware.clone();
        change(&mut better);
        (better != *hardware).then_some(better)
    };
    let tier = |tier: TierKind| {
        let mut better = hardware.clone();
        better.make_tier_faster(tier, BETTER);
        let is_used = plan.config.offload.uses(tier) || tier == TierKind::Host && plan.config.relays();
        (LinkKind::of_tier(tier).name(), Some(better).filter(|better| is_used && better != hardware))
    };
    let all: [(&'static str, Option<Hardware>); 8] = [
        ("computation", with(compute_faster)),
        (
            "memory bandwidth",
            with(|it| {
                it.device.bandwidth *= BETTER;
                it.device.sums = it.device.sums.map(|sums| sums * BETTER);
                // AdamW reads and writes its state, but computes very little.
                it.measured.iter_mut().for_each(|unit| faster(&mut unit.update));
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
        tier(TierKind::Disk),
        tier(TierKind::Host),
        (
            "updates by the host",
            with(|it| it.node.host_updates = it.node.host_updates.map(|rate| rate * BETTER))
                .filter(|_| plan.config.updates_on_host()),
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
                if let Some(direct) = it.node.disk.as_mut().and_then(|disk| disk.direct.as_mut()) {
                    direct.latency /= BETTER;
                }
                if let Some(link) = &mut it.node.host_link {
                    link.latency /= BETTER;
                }
                if let Some(Handover { apart, turns }) = &mut it.node.handover {
                    (*apart, *turns) = (*apart / BETTER, *turns / BETTER);
                }
            }),
        ),
    ];
    all.into_iter().filter_map(|(what, better)| Some((what, better?)))
}

/// The traffic of a rank over each link, for the pipeline stage that sends most.
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

/// A segment with its kind, its unit and its micro-batch. None for the start of a step.
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
