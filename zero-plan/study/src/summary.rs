//! Summary: the figures of a report as data for programs, in bytes. Only summarizes; never formats.

use serde::Serialize;
use zero_plan::footprint::RunSize;
use zero_plan::states::StateBytes;
use zero_plan::{Axis, Config, Flaw, Home, Kind, Message, Moved, NamedBytes, Op, Plan, Proof, Traffic, prove};

/// The name of the JSON's shape. A changed shape gets a new name.
pub const FORMAT: &str = "zero-plan-2";

/// A plan in figures.
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    /// [`FORMAT`].
    pub format: &'static str,
    /// The model.
    pub model: String,
    /// The plan's fingerprint in hexadecimal; it differs if plans differ.
    pub fingerprint: String,
    /// The number of parameters, without padding.
    pub params: usize,
    /// The configuration from which layout and order were computed.
    pub config: Config,
    /// Ranks of the whole mesh.
    pub ranks: usize,
    /// Tokens that all ranks train on in a step.
    pub tokens_per_step: usize,
    /// Bytes of model states for one parameter.
    pub bytes_per_param: StateBytes,
    /// The units, in the order of forward.
    pub units: Vec<UnitSummary>,
    /// Memory, traffic and ops of a rank of each pipeline stage.
    pub pipeline_stages: Vec<PipelineStageSummary>,
    /// The pipeline stage whose ranks need the most memory.
    pub largest: usize,
    /// The proof over the ops of all ranks.
    pub proof: Proof,
}

/// A unit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct UnitSummary {
    /// Its name, such as `blocks[3]`.
    pub name: String,
    /// Its parameters.
    pub params: usize,
    /// Its pipeline stage.
    pub pipeline_stage: usize,
    /// Whether it runs forward again before its backward.
    pub is_recomputed: bool,
}

/// A rank of a pipeline stage.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PipelineStageSummary {
    /// The regions of its arena, except empty ones.
    pub memory: Vec<RegionBytes>,
    /// The whole arena.
    pub arena_bytes: usize,
    /// The most bytes that it uses outside of the arena, in a run of the smallest size.
    pub outside_bytes: usize,
    /// Arena and outside together.
    pub total_bytes: usize,
    /// The peak of the memory in use in the arena.
    pub peak: PeakSummary,
    /// The kinds of bytes that it sends in a step, except kinds of which it sends nothing.
    pub sent: Vec<SentBytes>,
    /// All bytes that it sends in a step.
    pub sent_bytes: usize,
    /// The part of `sent_bytes` that is copied if ranks share memory; the rest is read in place.
    pub copied_bytes: usize,
    /// Ops of a step, by name.
    pub ops: Vec<OpCount>,
}

/// A region of an arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct RegionBytes {
    /// The kind of its content.
    pub what: &'static str,
    /// The mapping that contains it.
    pub home: Home,
    /// The rank's share.
    pub bytes: usize,
}

/// The peak of the memory in use in an arena.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PeakSummary {
    /// The op at the peak.
    pub op: String,
    /// Bytes in use.
    pub bytes: usize,
    /// The parts of the peak that are not empty.
    pub parts: Vec<(&'static str, usize)>,
}

/// Bytes that a rank sends for one purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct SentBytes {
    /// The axis along which they are sent; none if they are sent to all ranks.
    pub axis: Option<&'static str>,
    /// The purpose of the bytes.
    pub what: &'static str,
    /// Bytes in a step.
    pub bytes: usize,
}

/// How often a rank runs a kind of op in a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct OpCount {
    /// The op.
    pub op: &'static str,
    /// How often the op runs in a step.
    pub count: usize,
}

impl Summary {
    /// The figures of a plan.
    ///
    /// # Errors
    /// The first flaw of a plan that is not sound, which is a bug in this crate.
    pub fn of(plan: &Plan) -> Result<Self, Flaw> {
        let proof = prove(plan)?;
        let units = plan.units.iter().zip(plan.placements).enumerate().map(|(i, (unit, place))| UnitSummary {
            name: unit.to_string(),
            params: unit.params,
            pipeline_stage: place.pipeline_stage,
            is_recomputed: plan.config.recomputes(plan.units, i),
        });
        let pipeline_stages: Vec<_> =
            (0..plan.pipeline_stages.len()).map(|pipeline| PipelineStageSummary::of(plan, pipeline)).collect();
        // The first of equal pipeline stages, as everywhere else.
        let largest =
            (0..pipeline_stages.len()).rev().max_by_key(|&pipeline| pipeline_stages[pipeline].arena_bytes).unwrap_or(0);
        Ok(Self {
            format: FORMAT,
            model: plan.model.to_owned(),
            fingerprint: format!("{:016x}", plan.fingerprint()),
            params: plan.params(),
            config: plan.config,
            ranks: plan.config.mesh.ranks(),
            tokens_per_step: plan.config.tokens_per_step(),
            bytes_per_param: StateBytes::of_param(&plan.config.precision),
            units: units.collect(),
            pipeline_stages,
            largest,
            proof,
        })
    }
}

impl PipelineStageSummary {
    /// The figures of a rank of pipeline stage `pipeline`.
    pub fn of(plan: &Plan, pipeline: usize) -> Self {
        let schedule = &plan.pipeline_stages[pipeline];
        let regions = schedule.memory.regions.iter().filter(|region| region.bytes > 0);
        let traffic = Traffic::of(plan, plan.busiest_rank(pipeline), schedule.step);
        let arena_bytes = schedule.memory.bytes_per_rank();
        let outside_bytes = plan.outside_bytes(&RunSize::LEAST);
        let most = plan.peak(pipeline);
        let parts = Kind::ALL.iter().zip(most.bytes).filter(|(_, bytes)| *bytes > 0);
        Self {
            memory: regions
                .map(|region| RegionBytes { what: region.kind.name(), home: region.home, bytes: region.bytes })
                .collect(),
            arena_bytes,
            outside_bytes,
            total_bytes: arena_bytes + outside_bytes,
            peak: PeakSummary {
                op: most.name(Message::new(), &plan.tables(), "").as_str().to_owned(),
                bytes: most.total_bytes(),
                parts: parts.map(|(kind, bytes)| (kind.name(), bytes)).collect(),
            },
            sent: sent(&traffic),
            sent_bytes: traffic.total_bytes(),
            copied_bytes: Moved::sent(plan, plan.busiest_rank(pipeline), schedule.step).copied.total_bytes(),
            ops: counts(schedule.step),
        }
    }
}

fn sent(traffic: &Traffic) -> Vec<SentBytes> {
    let along = Axis::ALL.into_iter().flat_map(|axis| {
        let part =
            move |&(what, bytes): &NamedBytes| SentBytes { axis: Some(axis.name()), what, bytes: bytes(traffic) };
        Traffic::parts(axis).iter().map(part)
    });
    let agreed = SentBytes { axis: None, what: "loss and norm", bytes: traffic.agree_bytes };
    along.chain([agreed]).filter(|sent| sent.bytes > 0).collect()
}

/// Counts of ops, in the order in which they first occur.
fn counts(ops: &[Op]) -> Vec<OpCount> {
    let mut counts: Vec<OpCount> = Vec::new();
    for op in ops.iter().map(|op| op.name()) {
        match counts.iter_mut().find(|count| count.op == op) {
            Some(count) => count.count += 1,
            None => counts.push(OpCount { op, count: 1 }),
        }
    }
    counts
}

#[cfg(test)]
mod tests {
    use zero_plan::{Mesh, PlanBuf, Report, Unit};

    use super::*;

    fn summary(config: Config) -> (Summary, String) {
        let unit = |field, params| Unit {
            field,
            params,
            takes: params,
            saved_bytes: 64,
            input_bytes: 256,
            output_bytes: 256,
            operations: 100,
            ..Unit::NONE
        };
        let units = [unit("embed", 1000), unit("blocks", 3001), unit("head", 1000)];
        let units: Vec<_> = units.into_iter().enumerate().map(|(source, unit)| Unit { source, ..unit }).collect();
        PlanBuf::new("Tiny", config, &units)
            .with(|plan| (Summary::of(plan).expect("a sound plan"), Report(plan).to_string()))
    }

    #[test]
    fn parts_add_up_and_are_what_the_report_says() {
        let mesh = Mesh { pipeline: 2, replica: 2, ..Mesh::of_zero(2) };
        let config = Config { mesh, stage: 2, micro_batches: 4, bucket_bytes: 4000, ..Config::PLAIN };
        let (summary, report) = summary(config);
        assert_eq!((summary.ranks, summary.params, summary.pipeline_stages.len()), (8, 5001, 2));
        for pipeline_stage in &summary.pipeline_stages {
            assert_eq!(
                pipeline_stage.memory.iter().map(|region| region.bytes).sum::<usize>(),
                pipeline_stage.arena_bytes
            );
            assert_eq!(pipeline_stage.sent.iter().map(|sent| sent.bytes).sum::<usize>(), pipeline_stage.sent_bytes);
            assert_eq!(
                pipeline_stage.peak.parts.iter().map(|(_, bytes)| bytes).sum::<usize>(),
                pipeline_stage.peak.bytes
            );
            assert!(
                pipeline_stage.peak.bytes <= pipeline_stage.arena_bytes
                    && pipeline_stage.copied_bytes <= pipeline_stage.sent_bytes
            );
            assert_eq!(pipeline_stage.total_bytes, pipeline_stage.arena_bytes + pipeline_stage.outside_bytes);
            for region in &pipeline_stage.memory {
                assert!(report.contains(region.what), "{}: {report}", region.what);
            }
            for sent in &pipeline_stage.sent {
                assert!(report.contains(sent.what), "{}: {report}", sent.what);
            }
        }
        let arenas: Vec<_> = summary.pipeline_stages.iter().map(|pipeline_stage| pipeline_stage.arena_bytes).collect();
        assert_eq!(arenas.iter().max(), Some(&arenas[summary.largest]));
        assert!(report.contains(&summary.pipeline_stages[summary.largest].peak.op), "{report}");
        let forwards = summary
            .pipeline_stages
            .iter()
            .flat_map(|pipeline_stage| &pipeline_stage.ops)
            .filter(|count| count.op == "forward");
        assert_eq!(forwards.map(|count| count.count).sum::<usize>(), 3 * 4);
    }

    #[test]
    fn the_json_begins_with_its_format() {
        let (summary, _) = summary(Config { mesh: Mesh::of_zero(2), stage: 3, ..Config::PLAIN });
        let json = serde_json::to_string(&summary).expect("figures");
        assert!(json.starts_with("{\"format\":\"zero-plan-2\",\"model\":\"Tiny\",\"fingerprint\":\""), "{json}");
        crate::documented::assert_documented(&serde_json::to_value(&summary).expect("figures"));
    }
}
