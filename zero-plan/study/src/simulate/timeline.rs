//! Timeline: when ops of a step run and transfers travel, in seconds since the step began. Never computes a time.

use serde::Serialize;
use zero_plan::{Plan, TierBytes, TierKind, Traffic};

/// A step on some hardware.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Timeline {
    /// One lane for each pipeline stage, whose ranks all do the same at the same time.
    pub lanes: Vec<Lane>,
    /// How long a step takes, in seconds.
    pub step_s: f64,
}

/// The ops and transfers of a rank of a pipeline stage.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Lane {
    /// When each op of its step runs.
    pub spans: Vec<OpSpan>,
    /// Its transfers, in the order in which they were begun. For a collective, this rank's share.
    pub transfers: Vec<Transfer>,
}

impl Lane {
    /// When its last op is over, in seconds.
    pub fn end_s(&self) -> f64 {
        self.spans.last().map_or(0.0, |span| span.end_s)
    }

    /// When its last op is over and nothing travels to a tier or from it, in seconds: then the next step can begin.
    pub fn stored_s(&self) -> f64 {
        self.last_of_tier().map_or(0.0, |last| self.transfers[last].end_s).max(self.end_s())
    }

    /// The number of the last transfer to a tier or from it.
    pub(super) fn last_of_tier(&self) -> Option<usize> {
        let all = (0..self.transfers.len()).filter(|&it| self.transfers[it].flow.is_of_tier());
        all.max_by(|&a, &b| self.transfers[a].end_s.total_cmp(&self.transfers[b].end_s))
    }

    /// When the op before this one is over, in seconds.
    pub fn before_s(&self, op: usize) -> f64 {
        op.checked_sub(1).map_or(0.0, |before| self.spans[before].end_s)
    }
}

/// When an op runs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct OpSpan {
    /// When it begins its work, after waiting.
    pub start_s: f64,
    /// When its work is done.
    pub end_s: f64,
    /// How long its rank waited in it before `start_s`.
    pub waited_s: f64,
    /// The end that it waited for, or that it followed.
    pub cause: Cause,
}

/// The end of an op or transfer, after which another op or transfer could begin. The causes from the end of a step back
/// are its critical path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Cause {
    /// The start of the step.
    Start,
    /// The end of an op of a lane.
    Op {
        /// The lane.
        lane: usize,
        /// The number of the op in the lane.
        op: usize,
    },
    /// The end of a transfer of a lane; as the cause of another transfer, the time at which it has left the link.
    Transfer {
        /// The lane that sends it.
        lane: usize,
        /// The number of the transfer in the lane.
        transfer: usize,
    },
}

/// Bytes sent over a link.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Transfer {
    /// The op that began it.
    pub op: usize,
    /// Its purpose.
    pub flow: Flow,
    /// The link that carries it.
    pub link: LinkKind,
    /// Bytes that the rank sends.
    pub bytes: usize,
    /// When it could have begun, if the link had been free.
    pub asked_s: f64,
    /// When its first byte leaves.
    pub start_s: f64,
    /// When its last byte has left, and the link is free for the next.
    pub free_s: f64,
    /// When it has arrived.
    pub end_s: f64,
    /// The end that it followed.
    pub cause: Cause,
}

/// The purpose of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub enum Flow {
    /// Parameters, gathered along `zero`.
    Gather,
    /// Gradients, reduced and scattered along `zero`.
    Reduce,
    /// Shards of gradients, reduced and scattered along `replica`.
    ReplicaReduce,
    /// Summed gradients, gathered by all: the second half of an all-reduce.
    Spread,
    /// Parcels between pipeline stages.
    Parcel,
    /// The numbers that all ranks agree on.
    Agreement,
    /// Pieces of states, from the tier where they are kept.
    Fetch,
    /// Updated pieces, back to their tier.
    Store,
}

impl Flow {
    /// All flows.
    pub const ALL: [Flow; 8] = [
        Flow::Gather,
        Flow::Reduce,
        Flow::ReplicaReduce,
        Flow::Spread,
        Flow::Parcel,
        Flow::Agreement,
        Flow::Fetch,
        Flow::Store,
    ];

    /// Whether it goes to a tier or comes from it, and not to another rank.
    pub const fn is_of_tier(self) -> bool {
        matches!(self, Flow::Fetch | Flow::Store)
    }

    /// Its name, a word or two.
    pub const fn name(self) -> &'static str {
        match self {
            Flow::Gather => "all-gather",
            Flow::Reduce => "reduce-scatter",
            Flow::ReplicaReduce => "reduce-scatter of replicas",
            Flow::Spread => "all-gather of sums",
            Flow::Parcel => "parcels",
            Flow::Agreement => "agreement",
            Flow::Fetch => "fetches",
            Flow::Store => "stores",
        }
    }

    /// Its bytes in what a rank sends, or moves from and to its tier.
    const fn bytes(self, (traffic, tier): &(Traffic, TierBytes)) -> usize {
        match self {
            Flow::Gather => traffic.gather_bytes,
            Flow::Reduce => traffic.reduce_bytes,
            Flow::ReplicaReduce => traffic.replica_reduce_bytes,
            Flow::Spread => traffic.spread_bytes + traffic.replica_spread_bytes,
            Flow::Parcel => traffic.activation_bytes + traffic.gradient_bytes + traffic.tied_bytes,
            Flow::Agreement => traffic.agree_bytes,
            Flow::Fetch => tier.read,
            Flow::Store => tier.written,
        }
    }
}

/// What a rank sends for a purpose, or moves from or to its tier, as the plan counts it. A link may carry a part of it: where ranks send directly to those of
/// other hosts, the network carries only what goes there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct FlowBytes {
    /// The purpose.
    pub flow: Flow,
    /// The bytes of a step, of a rank of the pipeline stage that sends most.
    pub bytes: usize,
}

impl FlowBytes {
    /// Those of a plan, for all purposes for which it sends something.
    pub fn of(plan: &Plan) -> Vec<Self> {
        let stages = plan.pipeline_stages.iter().enumerate();
        let of_stages = stages.map(|(pipeline, stage)| {
            let sent = Traffic::of(plan, plan.busiest_rank(pipeline), stage.step);
            (sent, TierBytes::of(plan, plan.first_rank(pipeline)))
        });
        let of_stages: Vec<_> = of_stages.collect();
        let most = |flow: Flow| of_stages.iter().map(|moved| flow.bytes(moved)).max().unwrap_or(0);
        let all = Flow::ALL.into_iter().map(|flow| Self { flow, bytes: most(flow) });
        all.filter(|sent| sent.bytes > 0).collect()
    }
}

/// A link that carries transfers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub enum LinkKind {
    /// Memory that ranks share: peers read it in place, so nothing is sent.
    Memory,
    /// The links within a node.
    Node,
    /// The network between nodes.
    Network,
    /// The disk of a node, which its ranks share.
    Disk,
    /// The link of a device to the memory of its host.
    Host,
}

impl LinkKind {
    /// All kinds of links.
    pub const ALL: [LinkKind; 5] =
        [LinkKind::Memory, LinkKind::Node, LinkKind::Network, LinkKind::Disk, LinkKind::Host];

    /// The link over which states travel that are kept in a tier.
    pub(super) const fn of_tier(tier: TierKind) -> Self {
        match tier {
            TierKind::Device => LinkKind::Memory,
            TierKind::Host => LinkKind::Host,
            TierKind::Disk => LinkKind::Disk,
        }
    }

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            LinkKind::Memory => "shared memory",
            LinkKind::Node => "node",
            LinkKind::Network => "network",
            LinkKind::Disk => "disk",
            LinkKind::Host => "host link",
        }
    }
}
