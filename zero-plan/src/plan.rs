//! Plan: the tables of one model under one configuration, all that is constant about a run. `build` makes them.

use serde::Serialize;

use crate::config::Config;
use crate::fingerprint::Fingerprint;
use crate::layout::{Bucket, Memory, Placement, Tables};
use crate::mesh::Coordinates;
use crate::pipeline::{Chunk, Pass};
use crate::schedule::{Op, Stream};
use crate::streams::Queued;
use crate::unit::{OrthogonalCost, Unit};

/// Everything that is constant about a run. A generated program has its plan in a `static`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct Plan<'a> {
    /// Name of the model.
    pub model: &'a str,
    /// The configuration from which the tables were computed.
    pub config: Config,
    /// The units, in the order of forward.
    pub units: &'a [Unit],
    /// The chunks, in the order of forward.
    pub chunks: &'a [Chunk],
    /// A placement for each unit.
    pub placements: &'a [Placement],
    /// The buckets, in the order of backward.
    pub buckets: &'a [Bucket],
    /// The schedules and the arena of each pipeline stage.
    #[serde(rename = "stages")]
    pub pipeline_stages: &'a [PipelineStage<'a>],
}

/// The tables that all ranks of a pipeline stage share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct PipelineStage<'a> {
    /// The ops of a training step.
    pub step: &'a [Op],
    /// The ops of a forward pass without a backward pass.
    pub evaluation: &'a [Op],
    /// The ops of a publication; empty if nothing is published.
    #[serde(skip_serializing_if = "<[Op]>::is_empty")]
    pub publication: &'a [Op],
    /// Where each op of the step is queued; empty if the plan has no queues.
    #[serde(skip_serializing_if = "is_empty")]
    pub step_queue: &'a [Queued],
    /// Where each op of the evaluation is queued; empty if the plan has no queues.
    #[serde(skip_serializing_if = "is_empty")]
    pub evaluation_queue: &'a [Queued],
    /// Where each op of a publication is queued; empty if the plan has no queues.
    #[serde(skip_serializing_if = "is_empty")]
    pub publication_queue: &'a [Queued],
    /// The arena of each rank.
    pub memory: Memory,
}

/// Plans without queues are written without these tables.
fn is_empty(queue: &&[Queued]) -> bool {
    queue.is_empty()
}

impl<'a> PipelineStage<'a> {
    /// Events by which streams meet between passes, one for each stream. The events of ops come after them.
    pub const JOINS: usize = Stream::ALL.len();

    /// Events that a device needs for a pass; none if the plan has no queues.
    pub fn events(&self) -> usize {
        let ops = Pass::ALL.map(|pass| self.queue(pass).len()).into_iter().max().unwrap_or(0);
        if ops > 0 { Self::JOINS + ops } else { 0 }
    }

    /// The ops of a pass.
    pub const fn ops(&self, pass: Pass) -> &'a [Op] {
        match pass {
            Pass::Train => self.step,
            Pass::Evaluate => self.evaluation,
            Pass::Publish => self.publication,
        }
    }

    /// Where each op of a pass is queued; empty if the plan has no queues.
    pub const fn queue(&self, pass: Pass) -> &'a [Queued] {
        match pass {
            Pass::Train => self.step_queue,
            Pass::Evaluate => self.evaluation_queue,
            Pass::Publish => self.publication_queue,
        }
    }
}

impl<'a> Plan<'a> {
    /// Parameters of the model, padding not counted.
    pub const fn params(&self) -> usize {
        let (mut sum, mut i) = (0, 0);
        while i < self.units.len() {
            sum += self.units[i].params;
            i += 1;
        }
        sum
    }

    /// Elements of all flat buffers that have their own parameters, padding counted.
    pub const fn padded(&self) -> usize {
        let (mut sum, mut i) = (0, 0);
        while i < self.units.len() {
            sum += if self.units[i].params > 0 { self.placements[i].padded } else { 0 };
            i += 1;
        }
        sum
    }

    /// The streams that are queues of the device; none if its ops run one after another. The device itself carries what its
    /// host keeps, or what passes there on its way to a disk.
    pub const fn streams_of_device(&self) -> &'static [Stream] {
        match self.config.device.has_streams() {
            false => &[],
            true if self.config.offloads() || self.config.publishes() => &Stream::ALL,
            true => &Stream::OF_DEVICE,
        }
    }

    /// The tables of the pipeline stage of `rank`.
    pub const fn of_rank(&self, rank: usize) -> &'a PipelineStage<'a> {
        &self.pipeline_stages[self.config.mesh.coordinates(rank).pipeline]
    }

    /// The first rank of a pipeline stage.
    pub const fn first_rank(&self, pipeline: usize) -> usize {
        self.config.mesh.rank(Coordinates { zero: 0, replica: 0, pipeline })
    }

    /// The tables that layout and schedules are made of.
    pub const fn tables(&self) -> Tables<'_> {
        Tables {
            config: &self.config,
            units: self.units,
            chunks: self.chunks,
            placements: self.placements,
            buckets: self.buckets,
        }
    }

    /// Bytes of a rank's arena on the pipeline stage where arenas are largest.
    pub const fn bytes_per_rank_max(&self) -> usize {
        let (mut most, mut pipeline) = (0, 0);
        while pipeline < self.pipeline_stages.len() {
            let bytes = self.pipeline_stages[pipeline].memory.bytes_per_rank();
            most = if bytes > most { bytes } else { most };
            pipeline += 1;
        }
        most
    }

    /// Numbers on which the ranks agree in a step: the loss, and the sum of squares of each unit's gradients.
    pub const fn agreed_values(&self) -> usize {
        1 + self.units.len()
    }

    /// A number that differs if plans differ, and is the same in every build. Ranks compare it before their first
    /// collective, and a checkpoint records it to say which plan wrote it.
    pub fn fingerprint(&self) -> u64 {
        if self.config.optimizer.orthogonalizes() {
            return Fingerprint::of(self);
        }
        // Without orthogonalization, matrices have no effect.
        let units: Vec<Unit> = self.units.iter().map(|&unit| Unit { matrices: OrthogonalCost::NONE, ..unit }).collect();
        Fingerprint::of(&Plan { units: &units, ..*self })
    }
}
