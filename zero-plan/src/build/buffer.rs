//! Buffer: a plan made at run time, by the functions that the compiler runs. Never checks their results.

use crate::config::Config;
use crate::layout::{Bucket, Memory, Placement, Tables, bucket_count, fill_buckets, fill_placements};
use crate::origin::Origin;
use crate::pipeline::{Chunk, Pass, fill_chunks, require_placeable};
use crate::plan::{PipelineStage, Plan};
use crate::schedule::{Op, ScheduleScratch, Stream, fill_ops, ops_max};
use crate::streams::{Queued, Seen, fill_queue};
use crate::unit::Unit;

/// A plan made at run time, by the functions that make one at compile time.
#[derive(Clone, Debug)]
pub struct PlanBuf {
    model: String,
    config: Config,
    units: Vec<Unit>,
    chunks: Vec<Chunk>,
    placements: Vec<Placement>,
    buckets: Vec<Bucket>,
    pipeline_stages: Vec<PipelineStageBuf>,
}

/// Training step, evaluation, publication and arena of a pipeline stage.
#[derive(Clone, Debug)]
struct PipelineStageBuf {
    step: QueuedTable,
    evaluation: QueuedTable,
    publication: QueuedTable,
    memory: Memory,
}

/// Ops, and the queue that each lies in.
type QueuedTable = (Vec<Op>, Vec<Queued>);

impl PlanBuf {
    /// Computes all tables, without a limit on their size.
    ///
    /// # Panics
    /// Z0206, where the units cannot be placed on the pipeline.
    pub fn new(model: &str, config: Config, units: &[Unit]) -> Self {
        require_placeable(&config, units, &Origin::UNKNOWN);
        let mut chunks = vec![Chunk::NONE; config.chunks()];
        fill_chunks(&config, units, &mut chunks);
        let tables = Tables { config: &config, units, chunks: &chunks, placements: &[], buckets: &[] };
        let mut buckets = vec![Bucket::NONE; bucket_count(&tables)];
        fill_buckets(&tables, &mut buckets);
        let tables = Tables { buckets: &buckets, ..tables };
        let mut placements = vec![Placement::NONE; units.len()];
        fill_placements(&tables, &mut placements);
        let tables = Tables { placements: &placements, ..tables };
        let ops = |pass, pipeline| {
            let mut ops = vec![Op::Agree; ops_max(pass, &tables, pipeline)];
            let taken = ScheduleScratch {
                slots: &mut vec![0; tables.activation_slots(pipeline)],
                gathered: &mut vec![false; units.len()],
            };
            let len = fill_ops(pass, &tables, pipeline, taken, &mut ops);
            ops.truncate(len);
            ops
        };
        let table = |pass, pipeline| {
            let ops = ops(pass, pipeline);
            let queue = if config.has_queues() { queue(pass, &tables, pipeline, &ops) } else { Vec::new() };
            (ops, queue)
        };
        let pipeline_stage = |pipeline| PipelineStageBuf {
            step: table(Pass::Train, pipeline),
            evaluation: table(Pass::Evaluate, pipeline),
            publication: table(Pass::Publish, pipeline),
            memory: Memory::of(&tables, pipeline),
        };
        let pipeline_stages = (0..config.mesh.pipeline).map(pipeline_stage).collect();
        Self { model: model.to_owned(), config, units: units.to_vec(), chunks, placements, buckets, pipeline_stages }
    }

    /// The tables of each pipeline stage, for [`PlanBuf::as_plan`].
    pub fn pipeline_stages(&self) -> Vec<PipelineStage<'_>> {
        fn of(pipeline_stage: &PipelineStageBuf) -> PipelineStage<'_> {
            let PipelineStageBuf { step, evaluation, publication, memory } = pipeline_stage;
            PipelineStage {
                step: &step.0,
                evaluation: &evaluation.0,
                publication: &publication.0,
                step_queue: &step.1,
                evaluation_queue: &evaluation.1,
                publication_queue: &publication.1,
                memory: *memory,
            }
        }
        self.pipeline_stages.iter().map(of).collect()
    }

    /// The plan, with `pipeline_stages` from [`PlanBuf::pipeline_stages`].
    pub fn as_plan<'a>(&'a self, pipeline_stages: &'a [PipelineStage<'a>]) -> Plan<'a> {
        Plan {
            model: &self.model,
            config: self.config,
            units: &self.units,
            chunks: &self.chunks,
            placements: &self.placements,
            buckets: &self.buckets,
            pipeline_stages,
        }
    }

    /// The plan, for the length of a call.
    pub fn with<R>(&self, use_plan: impl FnOnce(&Plan) -> R) -> R {
        use_plan(&self.as_plan(&self.pipeline_stages()))
    }
}

fn queue(pass: Pass, tables: &Tables, pipeline: usize, ops: &[Op]) -> Vec<Queued> {
    let (units, buckets) = (tables.units.len(), tables.buckets.len());
    let mut queue = vec![Queued::of(Stream::Compute); ops.len()];
    let seen = Seen {
        known: &mut vec![Default::default(); ops.len()],
        gathers: &mut vec![None; units],
        releases: &mut vec![None; units],
        slots: &mut vec![None; tables.activation_slots(pipeline)],
        offers: &mut vec![None; buckets],
        settles: &mut vec![None; buckets],
        spreads: &mut vec![None; buckets],
    };
    fill_queue(pass, tables, ops, seen, &mut queue);
    queue
}
