//! Memory: the regions of a rank's arena, how ranks share them, and how much of them is in use during each op. Never
//! measures.

use serde::Serialize;
use zero_plan::{Config, Kind, Plan};

/// Kinds of memory that are drawn alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum MemoryGroup {
    /// Parameters as ranks store them.
    Parameters,
    /// Parameters that were gathered or converted for use.
    Gathered,
    /// Gradients of parameters, and their sums.
    Gradients,
    /// The optimizer's states, and copies for a checkpoint.
    Optimizer,
    /// Activations, and their gradients.
    Activations,
    /// Scratch, and parcels for other pipeline stages.
    Workspace,
}

impl MemoryGroup {
    /// All groups, in the order in which they are stacked.
    pub const ALL: [MemoryGroup; 6] = [
        MemoryGroup::Parameters,
        MemoryGroup::Optimizer,
        MemoryGroup::Gathered,
        MemoryGroup::Gradients,
        MemoryGroup::Activations,
        MemoryGroup::Workspace,
    ];

    /// The group of a kind.
    pub const fn of(kind: Kind) -> Self {
        match kind {
            Kind::Parameters | Kind::ParametersWindow | Kind::Shards | Kind::Published | Kind::PublishedWindow => {
                MemoryGroup::Parameters
            }
            Kind::Gathered => MemoryGroup::Gathered,
            Kind::Gradients | Kind::UnitGradients | Kind::Partial | Kind::Reduced => MemoryGroup::Gradients,
            Kind::Sums | Kind::SumsWindow => MemoryGroup::Gradients,
            Kind::Master | Kind::Optimizer | Kind::Snapshot => MemoryGroup::Optimizer,
            Kind::MasterWindow | Kind::OptimizerWindow => MemoryGroup::Optimizer,
            Kind::Activations | Kind::Recomputed | Kind::ActivationGradients => MemoryGroup::Activations,
            Kind::StoredActivations => MemoryGroup::Activations,
            Kind::Outgoing | Kind::Workspace | Kind::Subtotals | Kind::Inbox => MemoryGroup::Workspace,
            Kind::StepWords | Kind::Relay => MemoryGroup::Workspace,
            Kind::Staged => MemoryGroup::Parameters,
        }
    }

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            MemoryGroup::Parameters => "parameters",
            MemoryGroup::Gathered => "gathered parameters",
            MemoryGroup::Gradients => "gradients",
            MemoryGroup::Optimizer => "optimizer state",
            MemoryGroup::Activations => "activations",
            MemoryGroup::Workspace => "workspace and outgoing",
        }
    }
}

/// A kind of memory.
#[derive(Clone, Debug, Serialize)]
pub struct KindPicture {
    /// Its name.
    pub name: &'static str,
    /// The group in which it is drawn.
    pub group: MemoryGroup,
}

/// All kinds, by [`Kind::ALL`].
pub fn kinds() -> Vec<KindPicture> {
    Kind::ALL.map(|kind| KindPicture { name: kind.name(), group: MemoryGroup::of(kind) }).into()
}

/// How a rank's part of a region relates to the parts of other ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Holding {
    /// One of several shards, which together are one copy.
    Sharded,
    /// A copy that other ranks also have.
    Replicated,
    /// Whole, and on no other rank.
    Alone,
    /// Temporary, gathered from other ranks or converted.
    Gathered,
    /// For the rank's own micro-batches.
    Own,
    /// On its way to other ranks.
    Passing,
}

impl Holding {
    /// How ranks share a kind of memory under a configuration.
    pub const fn of(config: &Config, kind: Kind) -> Self {
        let (is_sharded, is_replicated) = match kind {
            Kind::Parameters => state_of(config, config.shards_parameters()),
            Kind::Master | Kind::Optimizer => state_of(config, config.shards_optimizer()),
            Kind::Reduced if config.offloads_gradients() => return Holding::Passing,
            Kind::Reduced | Kind::Sums | Kind::Snapshot | Kind::Published | Kind::PublishedWindow => {
                state_of(config, true)
            }
            Kind::Gathered => return Holding::Gathered,
            Kind::Gradients if config.shards_gradients() => return Holding::Passing,
            Kind::UnitGradients | Kind::Partial | Kind::Outgoing => return Holding::Passing,
            Kind::Subtotals | Kind::Inbox => return Holding::Passing,
            Kind::MasterWindow | Kind::OptimizerWindow | Kind::SumsWindow => return Holding::Passing,
            Kind::ParametersWindow | Kind::Shards => return Holding::Passing,
            Kind::Gradients | Kind::Activations | Kind::Recomputed => return Holding::Own,
            Kind::ActivationGradients | Kind::Workspace | Kind::StoredActivations => return Holding::Own,
            Kind::StepWords | Kind::Relay | Kind::Staged => return Holding::Own,
        };
        match (is_sharded, is_replicated) {
            (true, _) => Holding::Sharded,
            (false, true) => Holding::Replicated,
            (false, false) => Holding::Alone,
        }
    }
}

/// Whether a state is sharded, and whether several ranks have the same state if it is not.
const fn state_of(config: &Config, is_sharded: bool) -> (bool, bool) {
    (is_sharded && config.mesh.zero > 1, config.mesh.data_ranks() > 1)
}

/// The memory of a rank of a pipeline stage.
#[derive(Clone, Debug, Serialize)]
pub struct MemoryPicture {
    /// Bytes of each region of the arena, by [`Kind::ALL`]: 0 for what is kept in a tier.
    pub regions: [usize; Kind::ALL.len()],
    /// How ranks share each region.
    pub holdings: [Holding; Kind::ALL.len()],
    /// All regions together.
    pub arena_bytes: usize,
    /// The bytes in use during ops: for each kind, the numbers of the ops at which the bytes change, and the bytes from
    /// each change on. The first op is always included.
    pub in_use: Vec<Vec<(usize, usize)>>,
    /// The peak of the bytes in use.
    pub peak: PeakPicture,
}

/// The op during which most memory is in use.
#[derive(Clone, Debug, Serialize)]
pub struct PeakPicture {
    /// Number of the op; the first, if there are several.
    pub op: usize,
    /// Bytes in use during the op, by [`Kind::ALL`].
    pub bytes: [usize; Kind::ALL.len()],
    /// Their sum.
    pub total_bytes: usize,
}

impl MemoryPicture {
    pub(super) fn of(plan: &Plan, pipeline: usize) -> Self {
        let memory = &plan.pipeline_stages[pipeline].memory;
        let curve = plan.in_use(pipeline);
        let total = |op: usize| curve[op].iter().sum::<usize>();
        let peak = (0..curve.len()).rev().max_by_key(|&op| total(op)).unwrap_or(0);
        let changes = |kind: usize| {
            let is_change = |&op: &usize| op == 0 || curve[op][kind] != curve[op - 1][kind];
            (0..curve.len()).filter(is_change).map(|op| (op, curve[op][kind])).collect()
        };
        Self {
            regions: memory.regions.map(|region| if region.home.is_tier() { 0 } else { region.bytes }),
            holdings: Kind::ALL.map(|kind| Holding::of(&plan.config, kind)),
            arena_bytes: memory.bytes_per_rank(),
            in_use: (0..Kind::ALL.len()).map(changes).collect(),
            peak: PeakPicture { op: peak, bytes: curve[peak], total_bytes: total(peak) },
        }
    }
}
