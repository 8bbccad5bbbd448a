//! Offload: which states of parameters are kept outside the memory of the device, and how they travel there. Never says
//! where their bytes lie.

use serde::{Deserialize, Serialize};

use super::{Config, OptimizerKind, Width};
use crate::lines::BLOCK_ELEMENTS;
use crate::mesh::Axis;

/// Where a state is kept from one step to the next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum TierKind {
    /// In the memory of the device, where it is worked on.
    #[default]
    Device,
    /// In the memory of the host of a device that has its own.
    Host,
    /// In a file.
    Disk,
}

impl TierKind {
    /// Whether what is kept there is worked on where it lies.
    pub const fn is_device(&self) -> bool {
        matches!(self, TierKind::Device)
    }

    /// Where something is that is kept there, in words.
    pub const fn words(self) -> &'static str {
        match self {
            TierKind::Device => "on the device",
            TierKind::Host => "in host memory",
            TierKind::Disk => "on disk",
        }
    }

    /// The key of a spec that says how much a rank may keep there.
    pub const fn budget_key(self) -> &'static str {
        match self {
            TierKind::Device => "memory",
            TierKind::Host => "host",
            TierKind::Disk => "disk",
        }
    }
}

/// When parameters are updated by sums of gradients, if states are kept in a tier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum UpdateTime {
    /// At the end of a step, one unit after the other.
    #[default]
    AfterStep,
    /// In the next step, each unit before its first use there, while the units before it compute.
    AtUse,
}

impl UpdateTime {
    /// Whether a step ends with its own updates, as in plans of before there was a choice.
    pub const fn is_after_step(&self) -> bool {
        matches!(self, UpdateTime::AfterStep)
    }
}

/// What updates parameters whose optimizer states are kept in host memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum UpdatePlace {
    /// The device, in a window of its memory: states come to it, and go back.
    #[default]
    Device,
    /// The cores of the host, where the states lie: sums of gradients come to them, and new parameters go back.
    Host,
}

impl UpdatePlace {
    /// Whether the device updates, as in plans of before there was a choice.
    pub const fn is_device(&self) -> bool {
        matches!(self, UpdatePlace::Device)
    }
}

/// The states that are kept in a slower tier, and the pieces in which they travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct Offload {
    /// Where the moments and the master copy are kept.
    pub optimizer: TierKind,
    /// Where sums of gradients are kept, from the backward to the update.
    pub gradients: TierKind,
    /// Where shards of parameters are kept.
    #[serde(skip_serializing_if = "TierKind::is_device")]
    pub parameters: TierKind,
    /// Where activations are kept, from the forward of a unit to its backward.
    #[serde(skip_serializing_if = "TierKind::is_device")]
    pub activations: TierKind,
    /// Pieces that are fetched ahead of the one that is updated, and units whose activations are fetched ahead of the
    /// backward that reads them.
    pub prefetch: usize,
    /// The most bytes of one state that travel at once.
    pub piece_bytes: usize,
    /// When parameters are updated.
    #[serde(skip_serializing_if = "UpdateTime::is_after_step")]
    pub update: UpdateTime,
    /// What updates them.
    #[serde(skip_serializing_if = "UpdatePlace::is_device")]
    pub update_on: UpdatePlace,
}

impl Offload {
    /// Everything stays on the device.
    pub const NONE: Self = Self {
        optimizer: TierKind::Device,
        gradients: TierKind::Device,
        parameters: TierKind::Device,
        activations: TierKind::Device,
        prefetch: 0,
        piece_bytes: 0,
        update: UpdateTime::AfterStep,
        update_on: UpdatePlace::Device,
    };

    /// The largest `prefetch`.
    pub const PREFETCH_MAX: usize = 16;

    /// The most slots of a window, and places that units take turns with.
    pub const SLOTS_MAX: usize = Self::PREFETCH_MAX + 2;

    /// The most slots for sums.
    pub const SUM_SLOTS_MAX: usize = 6;

    /// Slots for fetched shards of parameters: one for the shard that is gathered, and one for the next.
    pub const SHARD_SLOTS: usize = 2;

    /// Slots of a window: one for each piece that is fetched ahead, one for the piece that is updated, and one for the piece
    /// that is stored. Units take turns with as many places for their activations: for those that are fetched ahead, for the
    /// unit in backward, and for the unit before it, whose output it reads.
    pub const fn slots(&self) -> usize {
        self.prefetch + 2
    }

    /// The states that may be kept elsewhere: their keys in a spec, and where they are kept.
    pub const fn states(&self) -> [(&'static str, TierKind); 4] {
        [
            ("optimizer", self.optimizer),
            ("gradients", self.gradients),
            ("parameters", self.parameters),
            ("activations", self.activations),
        ]
    }

    /// Whether everything stays on the device, as in plans of before there were tiers.
    pub const fn is_none(&self) -> bool {
        !self.uses(TierKind::Host) && !self.uses(TierKind::Disk)
    }

    /// The slowest tier in which something is kept.
    pub const fn tier(&self) -> TierKind {
        if self.uses(TierKind::Disk) {
            TierKind::Disk
        } else if self.uses(TierKind::Host) {
            TierKind::Host
        } else {
            TierKind::Device
        }
    }

    /// Whether some state is kept in this tier.
    pub const fn uses(&self, tier: TierKind) -> bool {
        let (states, mut state) = (self.states(), 0);
        while state < states.len() {
            if states[state].1 as u8 == tier as u8 {
                return true;
            }
            state += 1;
        }
        false
    }
}

impl Config {
    /// The budget of a rank for a tier, in bytes, if the spec sets one.
    pub const fn budget_bytes(&self, tier: TierKind) -> Option<usize> {
        match tier {
            TierKind::Device => self.memory_bytes,
            TierKind::Host => self.host_bytes,
            TierKind::Disk => self.disk_bytes,
        }
    }

    /// Whether anything is kept in a tier.
    pub const fn offloads(&self) -> bool {
        !self.offload.is_none()
    }

    /// Whether an update works on something that is kept in a tier, so that parameters are updated piece by piece.
    pub const fn updates_in_pieces(&self) -> bool {
        self.offloads_optimizer() || self.offloads_gradients() || self.offloads_parameters()
    }

    /// Whether a step begins with the updates of the step before it, each before the first use of its unit.
    pub const fn updates_at_use(&self) -> bool {
        !self.offload.update.is_after_step()
    }

    /// Whether the cores of the host update parameters, where their optimizer states are kept.
    pub const fn updates_on_host(&self) -> bool {
        !self.offload.update_on.is_device()
    }

    /// Whether the host needs a piece of something from the device before it updates it: sums of gradients, or parameters of
    /// which it has no master copy.
    pub const fn hands_over_pieces(&self) -> bool {
        self.updates_on_host()
            && (!self.offloads_gradients() || !self.precision.has_master_copy() && !self.offloads_parameters())
    }

    /// Whether the device needs parameters back that the host has updated, because it keeps them itself.
    pub const fn takes_back_pieces(&self) -> bool {
        self.updates_on_host() && !self.offloads_parameters()
    }

    /// Whether moments and master copies are kept in a tier.
    pub const fn offloads_optimizer(&self) -> bool {
        !self.offload.optimizer.is_device()
    }

    /// Whether sums of gradients are kept in a tier, so that buckets take turns with slots for theirs.
    pub const fn offloads_gradients(&self) -> bool {
        !self.offload.gradients.is_device()
    }

    /// Whether shards of parameters are kept in a tier, so that each is fetched before its unit is gathered.
    pub const fn offloads_parameters(&self) -> bool {
        !self.offload.parameters.is_device()
    }

    /// Whether activations are kept in a tier, so that units take turns with places for theirs.
    pub const fn offloads_activations(&self) -> bool {
        !self.offload.activations.is_device()
    }

    /// Whether ranks give fetched shards to slots that they have in common.
    pub const fn gives_fetched(&self) -> bool {
        self.offloads_parameters() && !self.device.has_streams()
    }

    /// Whether devices gather shards from the slots to which their owners fetched them. Each slot belongs to a slot for gathered
    /// parameters, and a shard is fetched right before its gather: the release of what was gathered there shows that this rank
    /// no longer reads either, so each of the two ops has one event.
    pub const fn gathers_fetched(&self) -> bool {
        self.offloads_parameters() && self.device.has_streams()
    }

    /// Whether shards in a tier would be gathered on other hosts by MPI. Specs may not ask for it, because no wait of a rank
    /// shows that they have left the slot that the next shard takes.
    pub const fn sends_fetched_shards(&self) -> bool {
        self.gives_fetched() && self.has_carried_along(Axis::Zero)
    }

    /// Whether parts of sums would be sent to replicas on other hosts from slots that other buckets take next. Specs may not ask
    /// for it, because no wait of a rank shows that they have left.
    pub const fn sends_from_slots(&self) -> bool {
        self.offloads_gradients() && self.has_carried_along(Axis::Replica)
    }

    /// Whether a spec may keep in tiers what this one does, beside its other keys: otherwise it is refused (Z0114).
    pub const fn can_offload(&self) -> bool {
        let is_piecewise = !matches!(self.optimizer, OptimizerKind::Muon) && !self.snapshot;
        let sums_leave = self.shards_gradients()
            && !self.sends_from_slots()
            && (self.mesh.replica == 1 || self.chunks_per_rank() == 1);
        let shards_leave = self.shards_parameters()
            && !self.holds_parameters()
            && !self.converts_gathers()
            && !self.sends_fetched_shards();
        (is_piecewise || !self.updates_in_pieces())
            && (sums_leave || !self.offloads_gradients())
            && (shards_leave || !self.offloads_parameters())
            && (self.mesh.pipeline == 1 || !self.offloads_activations())
    }

    /// Slots in which sums of buckets are made, if they are kept in a tier: for a bucket in backward, whose sum so far is
    /// fetched; for one that waits for other ranks; for those between a sum within a host or a replica and the whole sum;
    /// and for one that is stored.
    pub const fn sum_slots(&self) -> usize {
        let has_replicas = self.mesh.replica > 1;
        3 + self.subtotal_axis().is_some() as usize + 2 * has_replicas as usize
    }

    /// The most elements of a piece: whole blocks of the widest state.
    pub const fn piece_elements(&self) -> usize {
        let precision = &self.precision;
        let is_wide = self.offloads_optimizer()
            && (matches!(precision.moments, Width::F32)
                || precision.has_master_copy() && matches!(precision.master, Width::F32))
            || self.offloads_gradients() && matches!(precision.reduce, Width::F32)
            || self.offloads_parameters() && matches!(precision.params, Width::F32);
        let width = if is_wide { Width::F32 } else { Width::BF16 };
        let blocks = self.offload.piece_bytes / width.bytes() / BLOCK_ELEMENTS;
        if blocks == 0 { BLOCK_ELEMENTS } else { blocks * BLOCK_ELEMENTS }
    }
}
