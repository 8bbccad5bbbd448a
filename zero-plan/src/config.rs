//! Config: the part of a spec that decides layout and order, as plain constants. `spec` parses and rejects; this module
//! never does.

mod device;
mod offload;
mod precision;
mod publish;
mod serve;

use serde::{Deserialize, Serialize};

pub use self::offload::{Offload, TierKind, UpdatePlace, UpdateTime};
pub use self::precision::{Precision, Width};
pub use self::publish::Publish;
pub use self::serve::Serve;

use crate::mesh::{Axis, Mesh};
use crate::subtrees::Subtrees;

/// How a transport hands out the gathered parameters of a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Gather {
    /// Shards are copied into a slot of the rank's own arena.
    Copied,
    /// All shards lie contiguous in one mapping: the gather is a wait and a view, and needs no slot.
    Mapped,
}

/// A built-in device on which ranks compute.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum DeviceKind {
    /// The processor, with its memory.
    #[default]
    Cpu,
    /// NVIDIA GPUs, each for one rank or for several.
    Cuda,
}

impl DeviceKind {
    /// The device of that name.
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "Cpu" => Some(Self::Cpu),
            "Cuda" => Some(Self::Cuda),
            _ => None,
        }
    }

    /// Whether ranks on it can use this transport.
    pub const fn has(self, transport: TransportKind) -> bool {
        matches!((self, transport), (DeviceKind::Cuda, TransportKind::Peer | TransportKind::Nccl))
            || matches!(
                (self, transport),
                (DeviceKind::Cpu, TransportKind::Local | TransportKind::Shm | TransportKind::Cluster)
            )
    }

    /// The transport between ranks on it, unless a spec says otherwise.
    pub const fn transport(self) -> TransportKind {
        match self {
            DeviceKind::Cpu => TransportKind::Shm,
            DeviceKind::Cuda => TransportKind::Peer,
        }
    }

    /// The same if each node of a mesh is a host: between hosts, MPI or NCCL carries the bytes.
    pub const fn transport_of_hosts(self, nodes: usize) -> TransportKind {
        match self {
            _ if nodes == 1 => self.transport(),
            DeviceKind::Cpu => TransportKind::Cluster,
            DeviceKind::Cuda => TransportKind::Nccl,
        }
    }
}

/// How ranks run, and what carries bytes between them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum TransportKind {
    /// Threads of one process that behave as if memory were not shared.
    Local,
    /// Processes of one host over a shared mapping.
    #[default]
    Shm,
    /// Processes of one host, each with device memory that the others can copy from.
    Peer,
    /// Processes of one or several hosts, whose devices cannot read each other's memory: NCCL carries the bytes.
    Nccl,
    /// Processes of several hosts. Those of one host share memory, and MPI carries bytes between hosts.
    Cluster,
}

/// The optimizer of the matrices of hidden layers. AdamW (Loshchilov and Hutter, 2019) updates all other parameters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum OptimizerKind {
    /// AdamW, as for all other parameters.
    #[default]
    AdamW,
    /// Muon (Jordan et al., 2024): momentum, made orthogonal.
    Muon,
}

impl OptimizerKind {
    /// Whether this is the default, which older plans and checkpoints do not name.
    pub const fn is_usual(&self) -> bool {
        matches!(self, OptimizerKind::AdamW)
    }

    /// Whether it makes matrices of hidden layers orthogonal, for which it needs each matrix as a whole.
    pub const fn orthogonalizes(self) -> bool {
        matches!(self, OptimizerKind::Muon)
    }
}

/// How often bytes are sent that could also be held from one micro-batch of a step to the next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Often {
    /// In every micro-batch: more bytes on the wire, less memory.
    #[default]
    PerMicroBatch,
    /// Once a step, and held meanwhile: fewer bytes on the wire, more memory.
    PerStep,
}

/// The order in which a pipeline stage works through the micro-batches of a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Order {
    /// All forward passes, then all backward passes (Huang et al., 2019).
    GPipe,
    /// One forward, one backward once the pipeline is full (Narayanan et al., 2019). Without a pipeline axis, each
    /// micro-batch goes forward and back before the next.
    #[default]
    OneFOneB,
    /// The same with several chunks of the model on each rank (Narayanan et al., 2021).
    Interleaved {
        /// Chunks on each rank, at least 2.
        chunks: usize,
    },
}

/// The assignment of units to pipeline stages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize)]
pub enum Split {
    /// Minimizes the cost of the most expensive chunk.
    #[default]
    Balanced,
    /// The same number of units in each chunk.
    Even,
    /// The number of units of each chunk, in the order of forward.
    Units(&'static [usize]),
}

/// The units that keep only their input for backward, and run forward again before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize)]
pub enum Recompute {
    /// None: everything is kept.
    #[default]
    None,
    /// Units number k - 1, 2 k - 1, and so on, but never the last of the model, whose backward follows at once.
    Every(usize),
    /// All units of these fields.
    Fields(&'static [&'static str]),
}

impl TransportKind {
    /// Whether all bytes from other ranks are carried to memory of the rank that needs them, because it cannot read
    /// them where they lie.
    pub const fn carries(self) -> bool {
        matches!(self, TransportKind::Nccl)
    }
}

/// The constants that layout, schedule and memory are computed from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct Config {
    /// The ranks, and how they divide the work.
    pub mesh: Mesh,
    /// ZeRO stage, 0 to 3.
    pub stage: u8,
    /// Gathers kept in flight ahead of the unit that computes (stage 3).
    pub prefetch: usize,
    /// Consecutive units share a bucket as long as their gradients fit this many bytes.
    pub bucket_bytes: usize,
    /// How often parameters are gathered (stage 3): for every use, or once a step.
    pub gather: Often,
    /// How often gradients are reduced: in every micro-batch, or once a step after a local sum.
    pub reduce: Often,
    /// The order of micro-batches.
    pub order: Order,
    /// The assignment of units to pipeline stages.
    pub split: Split,
    /// The units that recompute their saved values instead of keeping them.
    pub recompute: Recompute,
    /// Widths in which states are stored.
    pub precision: Precision,
    /// Sequences in one micro-batch of one rank.
    pub sequences: usize,
    /// Tokens in a sequence.
    pub length: usize,
    /// Micro-batches of one step, of each replica and each rank along `zero`.
    pub micro_batches: usize,
    /// Whether each rank has room for a copy of the states that it writes to a checkpoint, so that training continues
    /// during the write.
    pub snapshot: bool,
    /// The device on which ranks compute: it decides where places may begin, and whether ops have streams.
    pub device: DeviceKind,
    /// The transport between ranks.
    pub transport: TransportKind,
    /// The optimizer of the matrices of hidden layers.
    #[serde(skip_serializing_if = "OptimizerKind::is_usual")]
    pub optimizer: OptimizerKind,
    /// The budget of a rank for the memory in its arena and outside it, if the spec sets one.
    pub memory_bytes: Option<usize>,
    /// The states that are kept outside the device.
    #[serde(skip_serializing_if = "Offload::is_none")]
    pub offload: Offload,
    /// The budget of a rank for what it keeps in the memory of its host, if the spec sets one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_bytes: Option<usize>,
    /// The budget of a rank for its file, if the spec sets one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk_bytes: Option<usize>,
    /// What is copied of parameters for readers outside of the run.
    #[serde(skip_serializing_if = "Publish::is_none")]
    pub publish: Publish,
    /// What a worker has room for, if this is the plan of one.
    #[serde(skip_serializing_if = "Serve::is_none")]
    pub serve: Serve,
}

impl Config {
    /// One rank, stage 0, one micro-batch of one token: the base that other configurations start from.
    pub const PLAIN: Self = Self {
        mesh: Mesh::of_zero(1),
        stage: 0,
        prefetch: 0,
        bucket_bytes: usize::MAX,
        gather: Often::PerMicroBatch,
        reduce: Often::PerMicroBatch,
        order: Order::OneFOneB,
        split: Split::Balanced,
        recompute: Recompute::None,
        precision: Precision {
            compute: Width::F32,
            params: Width::F32,
            reduce: Width::F32,
            master: Width::F32,
            moments: Width::F32,
        },
        sequences: 1,
        length: 1,
        micro_batches: 1,
        snapshot: false,
        device: DeviceKind::Cpu,
        transport: TransportKind::Shm,
        optimizer: OptimizerKind::AdamW,
        memory_bytes: None,
        offload: Offload::NONE,
        host_bytes: None,
        disk_bytes: None,
        publish: Publish::NONE,
        serve: Serve::NONE,
    };

    /// How ranks gather.
    pub const fn gather(&self) -> Gather {
        match self.transport {
            TransportKind::Local | TransportKind::Peer | TransportKind::Nccl => Gather::Copied,
            TransportKind::Shm => Gather::Mapped,
            // Memory of another host cannot be part of a mapping.
            TransportKind::Cluster if self.mesh.crosses_nodes(Axis::Zero) => Gather::Copied,
            TransportKind::Cluster => Gather::Mapped,
        }
    }

    /// Whether one rank can read the memory of another directly.
    pub const fn reaches(&self, rank: usize, other: usize) -> bool {
        match self.transport {
            TransportKind::Nccl => rank == other,
            TransportKind::Cluster => self.mesh.node(rank) == self.mesh.node(other),
            TransportKind::Local | TransportKind::Shm | TransportKind::Peer => true,
        }
    }

    /// Whether two ranks are on one host, where they map the same memory and see one another's processes.
    pub const fn shares_host(&self, rank: usize, other: usize) -> bool {
        let (first, end) = self.sharing(rank);
        first <= other && other < end
    }

    /// Whether ranks are on several hosts, one for each node of the mesh. They meet by MPI.
    pub const fn spans_hosts(&self) -> bool {
        matches!(self.transport, TransportKind::Cluster | TransportKind::Nccl) && self.mesh.nodes > 1
    }

    /// Whether MPI carries the bytes that ops need from other hosts. Between devices, NCCL does.
    pub const fn sends_messages(&self) -> bool {
        self.spans_hosts() && !self.transport.carries()
    }

    /// How many ranks of a host lie along an axis, if they divide the incoming bytes among themselves: each receives
    /// those of its counterparts, the ranks at the same position on the other hosts. 1 if every rank receives all that
    /// it needs by itself. At most one axis has more than 1, because the ranks of a host are consecutive.
    pub const fn ranks_per_host(&self, axis: Axis) -> usize {
        match (self.transport, self.mesh.per_node(axis)) {
            (TransportKind::Cluster, Some(per_host)) if per_host < self.mesh.len(axis) => per_host,
            _ => 1,
        }
    }

    /// The parts of a sum along an axis that the ranks of each host can add by themselves without changing its bits.
    pub const fn subtrees(&self, axis: Axis) -> Subtrees {
        Subtrees { ranks: self.mesh.len(axis), per_host: self.ranks_per_host(axis) }
    }

    /// Whether the ranks of a host sum their terms of a bucket before they send it to other hosts along an axis. They
    /// do if the sums, which are f32, need no more bytes than the terms. For terms in bf16 they may need more, as with
    /// three ranks a host, which have two sums.
    pub const fn sums_on_hosts(&self, axis: Axis) -> bool {
        let (reduce, subtrees) = (self.precision.reduce, self.subtrees(axis));
        subtrees.per_host > 1
            && (!reduce.is_narrow() || subtrees.count() * Width::F32.bytes() <= subtrees.ranks * reduce.bytes())
    }

    /// The axis along which [`Config::sums_on_hosts`] holds, if there is one.
    pub const fn subtotal_axis(&self) -> Option<Axis> {
        if self.sums_on_hosts(Axis::Zero) {
            Some(Axis::Zero)
        } else if self.sums_on_hosts(Axis::Replica) {
            Some(Axis::Replica)
        } else {
            None
        }
    }

    /// The number of parts that hosts cut a sum along an axis into.
    pub const fn hosts_along(&self, axis: Axis) -> usize {
        self.mesh.len(axis) / self.ranks_per_host(axis)
    }

    /// How many ranks along `zero` gather parameters together: those of a host if others are elsewhere, or all if each
    /// fetches its shard from a tier.
    pub const fn gatherers(&self) -> usize {
        if self.gives_fetched() { self.mesh.zero } else { self.ranks_per_host(Axis::Zero) }
    }

    /// Whether host peers read the parameters that one of them gathers. It may overwrite them only after all released them.
    pub const fn shares_gathers(&self) -> bool {
        (self.gatherers() > 1 || self.gives_fetched()) && self.shards_parameters()
    }

    /// Whether the ranks of a host gather into common slots. If they convert gathered parameters, they read them from
    /// the inbox of the rank that received them instead.
    pub const fn shares_slots(&self) -> bool {
        self.shares_gathers() && !self.converts_gathers()
    }

    /// The number of ranks that share one slot for gathered parameters.
    pub const fn sharers(&self) -> usize {
        if self.shares_slots() { self.gatherers() } else { 1 }
    }

    /// How many ranks along `zero` hold one [`Home::Common`](crate::Home::Common) together: all, or those of a host.
    pub const fn in_common(&self) -> usize {
        if self.shares_slots() { self.sharers() } else { self.mesh.zero }
    }

    /// The rank along an axis that receives, for the host of the rank at `own`, the parameters of a unit that the rank
    /// at `other` holds, or the sums of its gradients.
    pub const fn receiver(&self, axis: Axis, own: usize, other: usize) -> usize {
        let per_host = if let Axis::Zero = axis { self.gatherers() } else { self.ranks_per_host(axis) };
        if other / per_host == own / per_host { other } else { own / per_host * per_host + other % per_host }
    }

    /// The ranks that map the same memory as `rank`, itself included: from the first number up to, but without, the
    /// second.
    pub const fn sharing(&self, rank: usize) -> (usize, usize) {
        if !self.spans_hosts() {
            return (0, self.mesh.ranks());
        }
        let first = self.mesh.node(rank) * self.mesh.ranks_per_node();
        (first, first + self.mesh.ranks_per_node())
    }

    /// Whether any rank needs bytes of another rank that it cannot reach.
    pub const fn has_carried(&self) -> bool {
        match self.transport {
            TransportKind::Nccl => self.mesh.ranks() > 1,
            _ => self.spans_hosts(),
        }
    }

    /// The same for ranks that differ only along this axis.
    pub const fn has_carried_along(&self, axis: Axis) -> bool {
        match self.transport {
            TransportKind::Nccl => self.mesh.len(axis) > 1,
            _ => self.spans_hosts() && self.mesh.crosses_nodes(axis),
        }
    }

    /// Whether a rank keeps only 1/N of the optimizer state.
    pub const fn shards_optimizer(&self) -> bool {
        self.stage >= 1
    }

    /// Whether a spread along an axis exchanges directions of updates after the agreement, instead of sums of gradients
    /// before it.
    pub const fn spreads_directions(&self, axis: Axis) -> bool {
        matches!(axis, Axis::Zero) && self.optimizer.orthogonalizes() && self.shards_optimizer()
    }

    /// Whether MPI would have to send directions from host to host. Specs may not ask for it, because no wait of a rank
    /// shows that the directions have left.
    pub const fn sends_directions(&self) -> bool {
        self.spreads_directions(Axis::Zero) && self.sends_messages() && self.mesh.crosses_nodes(Axis::Zero)
    }

    /// Whether a rank keeps only 1/N of the gradients from one micro-batch to the next, so that buckets share a few
    /// staging slots.
    pub const fn shards_gradients(&self) -> bool {
        self.stage >= 2 && !self.holds_gradients()
    }

    /// Whether a rank keeps only 1/N of the parameters and gathers a unit for each use.
    pub const fn shards_parameters(&self) -> bool {
        self.stage >= 3
    }

    /// Whether micro-batches add to local gradients that are reduced once a step.
    pub const fn holds_gradients(&self) -> bool {
        matches!(self.reduce, Often::PerStep) && self.micro_batches > 1
    }

    /// Reductions of one bucket in a step.
    pub const fn reductions(&self) -> usize {
        if self.holds_gradients() { 1 } else { self.micro_batches }
    }

    /// Whether gathered parameters stay until the end of the step.
    pub const fn holds_parameters(&self) -> bool {
        self.shards_parameters() && matches!(self.gather, Often::PerStep)
    }

    /// Whether layers compute on a copy of the parameters in a slot, which is made for each use and then released.
    pub const fn uses_slots(&self) -> bool {
        self.precision.params.bytes() != self.precision.compute.bytes()
            || self.shards_parameters() && (matches!(self.gather(), Gather::Copied) || self.offloads_parameters())
    }

    /// Whether a gather converts the parameters that it gathers.
    pub const fn converts_gathers(&self) -> bool {
        self.shards_parameters() && self.precision.params.bytes() != self.precision.compute.bytes()
    }

    /// Whether the sum over ranks overwrites the rank's own slice of its local gradients. It may if local gradients are
    /// kept for every unit and nothing is added to the sum later.
    pub const fn reduces_in_place(&self) -> bool {
        !self.shards_gradients() && self.reductions() == 1
    }

    /// Whether the sum over one replica has its own place, where it stays until the sum over replicas.
    pub const fn has_partials(&self) -> bool {
        self.mesh.replica > 1 && !self.reduces_in_place()
    }

    /// Chunks of the model on each rank.
    pub const fn chunks_per_rank(&self) -> usize {
        match self.order {
            Order::Interleaved { chunks } => chunks,
            Order::GPipe | Order::OneFOneB => 1,
        }
    }

    /// Chunks of the model; chunk c lies on pipeline stage c mod p.
    pub const fn chunks(&self) -> usize {
        self.mesh.pipeline * self.chunks_per_rank()
    }

    /// Tokens in one micro-batch of one rank.
    pub const fn tokens(&self) -> usize {
        self.sequences * self.length
    }

    /// Tokens in one step of all ranks.
    pub const fn tokens_per_step(&self) -> usize {
        self.tokens() * self.micro_batches * self.mesh.data_ranks()
    }

    /// The same configuration at another stage, to compare the needs of stages.
    pub const fn at_stage(mut self, stage: u8) -> Self {
        self.stage = stage;
        self
    }
}

/// Whether two texts are equal, in constants.
pub const fn is_same_text(a: &str, b: &str) -> bool {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    let mut i = 0;
    while i < a.len() && i < b.len() && a[i] == b[i] {
        i += 1;
    }
    i == a.len() && i == b.len()
}
