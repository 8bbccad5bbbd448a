//! Sizes: the sums and maxima over the units of a pipeline stage that determine the sizes of regions: parameters and
//! gradients in elements, activations in bytes.

use super::activations::PlacesInTurn;
use super::{Bucket, Decoding, Kind, OUTGOING_SLOTS, STAGING_SLOTS, Tables, arriving_bytes, entering_bytes, min};
use crate::config::{Config, Offload};
use crate::lines::{BLOCK_ELEMENTS, STEP_WORDS, round_up};
use crate::mesh::Axis;
use crate::unit::max;

pub(super) struct RegionSizes {
    pipeline: usize,
    /// Flat buffers of the parameters that the pipeline stage holds, mirrors included.
    held: usize,
    /// Flat buffers of the parameters that it updates.
    owned: usize,
    /// Flat buffers of all gradients, and the largest of them.
    pub(super) gradients: usize,
    gradients_max: usize,
    pub(super) flat_max: usize,
    holders: usize,
    pub(super) bucket_max: usize,
    /// Buckets with parameters, and the most units of one.
    buckets: usize,
    bucket_units_max: usize,
    /// Staging slots that buckets take in turn (stages 2 and 3).
    pub(super) staging_slots: usize,
    /// One slot for the activations of one chunk of one micro-batch.
    pub(super) activation_slot_bytes: usize,
    activation_slots: usize,
    /// The region of activations during decoding.
    pub(super) decoding: Decoding,
    recomputed_bytes_max: usize,
    boundary_bytes_max: usize,
    pub(super) outgoing_bytes_max: usize,
    pub(super) incoming_bytes_max: usize,
    workspace_bytes_max: usize,
}

impl RegionSizes {
    pub(super) const fn of(tables: &Tables, pipeline: usize) -> Self {
        let mut sizes = RegionSizes {
            pipeline,
            held: 0,
            owned: 0,
            gradients: 0,
            gradients_max: 0,
            flat_max: 0,
            holders: 0,
            bucket_max: 0,
            buckets: 0,
            bucket_units_max: 0,
            staging_slots: 0,
            activation_slot_bytes: 0,
            activation_slots: tables.activation_slots(pipeline),
            decoding: Decoding::of(tables, pipeline),
            recomputed_bytes_max: 0,
            boundary_bytes_max: 0,
            outgoing_bytes_max: 0,
            incoming_bytes_max: 0,
            workspace_bytes_max: 0,
        };
        let mut chunk = pipeline;
        while chunk < tables.chunks.len() {
            sizes.add_chunk(tables, chunk);
            chunk += tables.config.mesh.pipeline;
        }
        sizes.workspace_bytes_max = max(sizes.workspace_bytes_max, spare_batch_bytes(tables, pipeline));
        sizes
    }

    const fn add_chunk(&mut self, tables: &Tables, chunk: usize) {
        let (first, end) = (tables.chunks[chunk].first, tables.chunks[chunk].end);
        let mut activations = entering_bytes(tables, chunk);
        let mut i = first;
        while i < end {
            activations += self.add_unit(tables, i);
            i += 1;
        }
        if tables.config.offloads_activations() {
            activations = PlacesInTurn::of(tables).end();
        }
        self.activation_slot_bytes = max(self.activation_slot_bytes, activations);
        if first > 0 {
            self.incoming_bytes_max =
                max(self.incoming_bytes_max, tables.config.whole_lines(tables.units[first].input_bytes));
        }
        while i > first {
            let bucket = Bucket::ending_at(tables, i - 1);
            self.bucket_max = max(self.bucket_max, bucket.elements);
            // A bucket without parameters has nothing to stage.
            self.buckets += (bucket.elements > 0) as usize;
            self.bucket_units_max = max(self.bucket_units_max, i - bucket.first);
            i = bucket.first;
        }
        self.staging_slots = min(self.buckets, STAGING_SLOTS);
    }

    /// Adds a unit, and returns the bytes that it needs in a slot for activations.
    const fn add_unit(&mut self, tables: &Tables, i: usize) -> usize {
        let unit = &tables.units[i];
        let padded = tables.padded(i);
        self.gradients += padded;
        self.gradients_max = max(self.gradients_max, padded);
        if tables.holds(i) {
            self.held += padded;
            self.holders += 1;
            self.flat_max = max(self.flat_max, padded);
        }
        if unit.params > 0 {
            self.owned += padded;
        }
        let boundary = tables.config.whole_lines(max(unit.input_bytes, unit.output_bytes));
        self.boundary_bytes_max = max(self.boundary_bytes_max, boundary);
        self.workspace_bytes_max = max(self.workspace_bytes_max, unit.workspace_bytes);
        if tables.is_orthogonalized(i) {
            self.workspace_bytes_max = max(self.workspace_bytes_max, unit.matrices.room_bytes);
        }
        let (saved, output) =
            (tables.config.whole_lines(unit.saved_bytes), tables.config.whole_lines(unit.output_bytes));
        if tables.config.recomputes(tables.units, i) {
            self.recomputed_bytes_max = max(self.recomputed_bytes_max, saved + output);
        }
        if tables.leaves(i) {
            self.outgoing_bytes_max = max(self.outgoing_bytes_max, output);
        }
        let (saved, output) = tables.kept_activations(i);
        saved + output
    }

    /// Slots for gathered or converted parameters: one for the unit in use, and those gathered ahead.
    const fn slots(&self, tables: &Tables) -> usize {
        let ahead = if tables.config.shards_parameters() { tables.config.prefetch } else { 0 };
        // There are no more slots than units, because a unit is never gathered twice at one time.
        min(ahead.saturating_add(1), self.holders)
    }

    /// All slots together: those that units take turns with, or one for each unit.
    const fn gathered(&self, tables: &Tables) -> usize {
        if tables.config.holds_parameters() { self.held } else { self.slots(tables) * self.flat_max }
    }

    /// Slots that buckets take in turn for sums that are kept in a tier.
    pub(super) const fn sum_slots(&self, config: &Config) -> usize {
        min(self.buckets, config.sum_slots())
    }

    /// Elements of such a slot. Its units begin on blocks.
    pub(super) const fn sum_slot(&self, tables: &Tables) -> usize {
        let blocks = self.bucket_units_max + 1;
        round_up(self.bucket_max / tables.config.mesh.zero, BLOCK_ELEMENTS) + blocks * BLOCK_ELEMENTS
    }

    /// Elements of a slot for a fetched shard: whole blocks of the largest, if shards are kept in a tier.
    pub(super) const fn shard_slot(&self, tables: &Tables) -> usize {
        let largest = round_up(self.flat_max / tables.config.mesh.zero, BLOCK_ELEMENTS);
        if tables.config.offloads_parameters() { largest } else { 0 }
    }

    /// Elements of one state in all slots of the window.
    const fn window(&self, tables: &Tables) -> usize {
        tables.window_slots(self.pipeline) * tables.window_slot(self.pipeline)
    }

    /// Room for the terms that are added up here, and after it, slot by slot, for the shards of units that gathers
    /// convert.
    const fn inbox_bytes(&self, tables: &Tables) -> usize {
        let config = tables.config;
        let shards =
            if config.has_carried_along(Axis::Zero) && config.converts_gathers() { self.gathered(tables) } else { 0 };
        arriving_bytes(tables, self.pipeline, self.bucket_max) + shards * config.precision.params.bytes()
    }

    /// The length of a region, which [`Kind::bytes`] turns into bytes.
    pub(super) const fn len(&self, tables: &Tables, kind: Kind) -> usize {
        let config = tables.config;
        let zero = config.mesh.zero;
        let owned = if config.shards_optimizer() { self.owned / zero } else { self.owned };
        let states = if config.offloads_optimizer() { tables.kept(owned) } else { owned };
        let comes = config.offloads_optimizer() && !config.updates_on_host();
        let window = if comes { self.window(tables) } else { 0 };
        match kind {
            kind if config.serves() && kind.is_of_training() => 0,
            Kind::Staged if config.serve.staged => self.held,
            Kind::Staged => 0,
            Kind::Parameters if config.offloads_parameters() => tables.kept(self.held / zero),
            Kind::Parameters if config.shards_parameters() => self.held / zero,
            Kind::Parameters => self.held,
            Kind::Gathered if !config.uses_slots() => 0,
            Kind::Gathered => self.gathered(tables) / config.sharers(),
            Kind::Gradients if config.shards_gradients() => self.staging_slots * self.bucket_max,
            Kind::Gradients => self.gradients,
            Kind::UnitGradients if config.precision.reduce.is_narrow() => self.gradients_max,
            Kind::UnitGradients => 0,
            Kind::Partial if config.has_partials() => STAGING_SLOTS * (self.bucket_max / zero),
            Kind::Partial => 0,
            Kind::Reduced if config.reduces_in_place() => 0,
            Kind::Reduced if config.offloads_gradients() => self.sum_slots(config) * self.sum_slot(tables),
            Kind::Reduced => self.gradients / zero,
            Kind::Master | Kind::MasterWindow if !config.precision.has_master_copy() => 0,
            Kind::Master => states,
            Kind::Optimizer => 2 * states,
            Kind::MasterWindow => window,
            Kind::OptimizerWindow => 2 * window,
            Kind::Sums if !config.offloads_gradients() => 0,
            Kind::Sums => tables.kept(owned),
            // Either the sums or their updates come from a tier.
            Kind::SumsWindow if config.offloads_gradients() == config.updates_on_host() => 0,
            Kind::SumsWindow => self.window(tables),
            // Likewise of parameters.
            Kind::ParametersWindow if config.offloads_parameters() == config.updates_on_host() => 0,
            Kind::ParametersWindow => self.window(tables),
            Kind::Shards if config.gathers_fetched() => self.slots(tables) * self.shard_slot(tables),
            Kind::Shards => Offload::SHARD_SLOTS * self.shard_slot(tables),
            Kind::Snapshot if config.snapshot => self.owned / config.mesh.data_ranks() * config.precision.state_bytes(),
            Kind::Snapshot => 0,
            Kind::Activations => max(self.activation_slots * self.activation_slot_bytes, self.decoding.bytes()),
            Kind::StoredActivations => tables.stored_activations(),
            Kind::StepWords if config.updates_on_host() => STEP_WORDS * size_of::<u64>(),
            Kind::StepWords => 0,
            Kind::Relay => config.relay_bytes(),
            Kind::Published => config.copies_of(self.owned / config.mesh.data_ranks()),
            Kind::PublishedWindow if !config.stores_published() => 0,
            Kind::PublishedWindow => config.copy_of(self.owned / config.mesh.data_ranks()),
            Kind::Recomputed => self.recomputed_bytes_max,
            Kind::ActivationGradients => 2 * self.boundary_bytes_max,
            Kind::Outgoing => OUTGOING_SLOTS * (self.outgoing_bytes_max + self.incoming_bytes_max),
            Kind::Subtotals => match config.subtotal_axis() {
                None => 0,
                Some(axis) => {
                    let sums = config.hosts_along(axis) * config.subtrees(axis).most();
                    STAGING_SLOTS * (self.bucket_max / config.mesh.summed_parts(axis) * sums)
                }
            },
            Kind::Inbox => self.inbox_bytes(tables),
            Kind::Workspace => config.whole_lines(self.workspace_bytes_max) + config.device.product_bytes(),
        }
    }
}

/// Room in the workspace for a part of a batch. The inputs and targets of a micro-batch arrive together, so a pipeline
/// stage that needs only one of them leaves the other there. Inputs that are converted for storage lie there until
/// then.
pub(crate) const fn spare_batch_bytes(tables: &Tables, pipeline: usize) -> usize {
    let (first, last) = (&tables.units[0], &tables.units[tables.units.len() - 1]);
    let staged = if pipeline == 0 { tables.config.whole_lines(first.given_bytes) } else { 0 };
    if tables.chunks.len() > 1 && (pipeline == 0 || pipeline + 1 == tables.config.mesh.pipeline) {
        staged + max(max(first.input_bytes, first.given_bytes), last.targets_bytes)
    } else {
        staged
    }
}
