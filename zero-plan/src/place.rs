//! Place: the places of the bytes that an op reads and writes. The only module that adds offsets: engine, transport,
//! checks and proofs all ask it. Never knows the order of a step; a [`Position`] holds what earlier ops have decided.

mod access;
mod arrival;
mod position;
mod publish;
mod relay;
mod stretch;
mod subtotals;
mod tier;

pub use access::{Access, Accesses, Content, Gradients, Value, accesses, decoding_accesses};
pub(crate) use access::{published, sums_between_steps};
pub use arrival::{Arrival, are_counterparts, arrivals, arrivals_from, gathered, given_bytes};
pub use position::Position;
pub use stretch::{Place, Stretch};
pub use tier::{Kept, PieceOfState};

use crate::layout::{Kind, Memory, OUTGOING_SLOTS, Placement, Tables};
use crate::mesh::{Axis, Coordinates};
use crate::plan::Plan;
use crate::schedule::Parcel;
use crate::unit::Unit;

/// A kind of number that every parameter has, in its own place. A checkpoint of a run consists of all kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// The numbers that layers compute with.
    Parameters,
    /// The numbers that the optimizer updates, if they are a separate copy.
    Master,
    /// AdamW's mean of gradients; for matrices that are made orthogonal, Muon's momentum.
    FirstMoment,
    /// AdamW's mean of their squares; for matrices that are made orthogonal, 0.
    SecondMoment,
}

impl State {
    /// All of them.
    pub const ALL: [State; 4] = [State::Parameters, State::Master, State::FirstMoment, State::SecondMoment];
}

/// The places of one rank.
#[derive(Clone, Copy)]
pub struct Places<'a> {
    /// Configuration, units, chunks, placements and buckets.
    pub tables: Tables<'a>,
    /// The arena of the rank's pipeline stage.
    pub memory: &'a Memory,
    /// Where the rank lies in the mesh.
    pub at: Coordinates,
    /// Whether these are the places of a decoding walk. It keeps no activations: units take turns with one place for
    /// saved values, and with two for the values that pass between them.
    pub is_decoding: bool,
}

impl<'a> Plan<'a> {
    /// The places of the rank at these coordinates.
    pub const fn places(&'a self, at: Coordinates) -> Places<'a> {
        Places { tables: self.tables(), memory: &self.pipeline_stages[at.pipeline].memory, at, is_decoding: false }
    }
}

impl<'a> Places<'a> {
    /// These places in a decoding walk. If the model caches nothing, these are the places of an evaluation.
    pub const fn decoding(self) -> Self {
        Self { is_decoding: self.memory.decoding.boundary_bytes > 0, ..self }
    }

    /// The coordinates of the first of the ranks that hold memory in common with this one.
    pub const fn first_in_common(&self) -> Coordinates {
        let ranks = self.tables.config.in_common();
        Coordinates { zero: self.at.zero / ranks * ranks, ..self.at }
    }

    /// The places of another rank of the pipeline stage.
    pub const fn along(self, axis: Axis, index: usize) -> Self {
        assert!(!matches!(axis, Axis::Pipeline), "another pipeline stage has another arena");
        Self { at: self.at.with(axis, index), ..self }
    }

    /// The host peer that receives the bytes of the rank at `index` along an axis for this rank too, which copies them
    /// from that host peer. None if this rank receives them itself, or reads its owner's memory.
    pub const fn taker_of(self, axis: Axis, index: usize) -> Option<Self> {
        let own = self.at.along(axis);
        let receiver = self.tables.config.receiver(axis, own, index);
        if receiver == own || receiver == index { None } else { Some(self.along(axis, receiver)) }
    }

    /// The place from which a gather into `slot` reads the shard of a unit's parameters of the rank at `zero`, and the
    /// rank in whose memory it lies. Its numbers have the width in which parameters are stored.
    pub const fn gathered_from(self, unit: usize, zero: usize, slot: usize) -> (Self, Place) {
        let config = self.tables.config;
        match self.taker_of(Axis::Zero, zero) {
            None => {
                let owner = self.along(Axis::Zero, zero);
                (owner, owner.sent_shard(unit, slot))
            }
            Some(peer) if config.converts_gathers() => {
                (peer, peer.arrived_shards(unit, slot).share(zero, config.mesh.zero))
            }
            Some(peer) => (peer, peer.flat(unit).share(zero, config.mesh.zero)),
        }
    }

    const fn unit(&self, unit: usize) -> &'a Unit {
        &self.tables.units[unit]
    }

    const fn placement(&self, unit: usize) -> &'a Placement {
        &self.tables.placements[unit]
    }

    /// Bytes of a region that this rank can address as its own: its share, or all the memory that ranks hold in common.
    pub const fn region_bytes(&self, region: Kind) -> usize {
        let region = self.memory.region(region);
        region.bytes * region.home.holders(self.tables.config)
    }

    /// A place, with start and length in elements of its region's width, or in bytes if the region has no single width.
    const fn place(&self, region: Kind, start: usize, len: usize) -> Place {
        let config = self.tables.config;
        Place { region, offset_bytes: region.bytes(config, start), len_bytes: region.bytes(config, len) }
    }
}

/// Parameters and their states.
impl Places<'_> {
    /// The unit under which this pipeline stage holds the parameters of `unit`: itself, or its owner.
    pub const fn holder(&self, unit: usize) -> usize {
        if self.placement(unit).holds { unit } else { self.unit(unit).source }
    }

    /// A unit's whole flat buffer in the region of parameters, which is replicated or in common.
    pub const fn flat(&self, unit: usize) -> Place {
        self.place(Kind::Parameters, self.placement(unit).start, self.placement(unit).padded)
    }

    /// Room for the parameters of a unit that a worker is to use next.
    pub const fn staged(&self, unit: usize) -> Place {
        Place { region: Kind::Staged, ..self.flat(unit) }
    }

    /// This rank's shard of a unit's parameters, where it is kept.
    pub const fn shard(&self, unit: usize) -> Place {
        let (config, zero) = (self.tables.config, self.tables.config.mesh.zero);
        let is_common = self.memory.region(Kind::Parameters).home.is_common();
        if config.shards_parameters() && !is_common {
            let len = self.placement(unit).padded / zero;
            let start = self.placement(unit).start / zero;
            let start = if config.offloads_parameters() { self.tables.kept_start(unit, start) } else { start };
            return self.place(Kind::Parameters, start, len);
        }
        self.flat(unit).share(self.at.zero, zero)
    }

    /// Where layers compute on the parameters that are held under `unit`: in a slot, or where they lie.
    pub const fn computed_on(&self, unit: usize, slot: usize) -> Place {
        let (config, placement) = (self.tables.config, self.placement(unit));
        if !config.uses_slots() {
            return self.flat(unit);
        }
        if config.holds_parameters() {
            return self.place(Kind::Gathered, placement.start, placement.padded);
        }
        Place { len_bytes: Kind::Gathered.bytes(config, placement.padded), ..self.gathered_slot(slot) }
    }

    /// A whole slot for gathered parameters, if units take turns with slots.
    pub const fn gathered_slot(&self, slot: usize) -> Place {
        let elements = self.memory.gathered_slot;
        self.place(Kind::Gathered, slot * elements, elements)
    }

    /// This rank's share of a unit's flat buffer, when it is sharded along `zero`.
    pub const fn shared_out(&self, unit: usize) -> Stretch {
        let len = self.placement(unit).padded / self.tables.config.mesh.zero;
        Stretch { start: self.at.zero * len, len }
    }

    /// The stretch of a unit's flat buffer whose gradients this rank sums: its share is divided among the replicas.
    pub const fn summed(&self, unit: usize) -> Stretch {
        let mesh = &self.tables.config.mesh;
        let len = self.placement(unit).padded / mesh.data_ranks();
        Stretch { start: self.at.part(mesh) * len, len }
    }

    /// The stretch of a unit's flat buffer whose optimizer state this rank keeps, and which it updates.
    pub const fn owned(&self, unit: usize) -> Stretch {
        if self.tables.config.shards_optimizer() {
            return self.shared_out(unit);
        }
        Stretch { start: 0, len: self.placement(unit).padded }
    }

    /// The parameters that this rank updates, where they are kept.
    pub const fn updated(&self, unit: usize) -> Place {
        if self.tables.config.shards_optimizer() { self.shard(unit) } else { self.flat(unit) }
    }

    /// The sums of gradients by which it updates them. For matrices that are made orthogonal, directions replace the sums.
    pub const fn sums(&self, unit: usize) -> Place {
        if self.tables.config.shards_optimizer() { self.reduced(unit) } else { self.local_gradients(unit) }
    }

    /// The stretch of a unit's flat buffer for which this rank has a state, and the place where that state is kept; none
    /// if there is no such state. For parameters, the stretch is all that the rank stores.
    pub const fn state(&self, state: State, unit: usize) -> Option<(Stretch, Place)> {
        let config = self.tables.config;
        let placement = self.placement(unit);
        if placement.pipeline_stage != self.at.pipeline || !placement.holds {
            return None;
        }
        if let State::Parameters = state {
            let whole = Stretch { start: 0, len: placement.padded };
            let stored = if config.shards_parameters() {
                (self.owned(unit), self.shard(unit))
            } else {
                (whole, self.flat(unit))
            };
            return Some(stored);
        }
        if config.serves() {
            return None;
        }
        let owned = self.owned(unit);
        let start = if config.shards_optimizer() { placement.start / config.mesh.zero } else { placement.start };
        let start = if config.offloads_optimizer() { self.tables.kept_start(unit, start) } else { start };
        let place = match state {
            State::Master if config.precision.has_master_copy() => self.place(Kind::Master, start, owned.len),
            State::FirstMoment => self.place(Kind::Optimizer, start, owned.len),
            State::SecondMoment => {
                let first = self.place(Kind::Optimizer, start, owned.len);
                Place { offset_bytes: self.memory.region(Kind::Optimizer).bytes / 2 + first.offset_bytes, ..first }
            }
            _ => return None,
        };
        // A mirror has only parameters; its owner has all other states.
        if self.unit(unit).params > 0 { Some((owned, place)) } else { None }
    }

    /// The stretch of a state of a unit that this rank writes to a checkpoint, and its place. A rank writes the
    /// elements whose gradients it sums, so that all ranks together write every element once.
    pub const fn checkpointed(&self, state: State, unit: usize) -> Option<(Stretch, Place)> {
        if self.unit(unit).params == 0 {
            // The owner writes the parameters of a mirror.
            return None;
        }
        let Some((stored, place)) = self.state(state, unit) else { return None };
        let (saved, element) = (self.summed(unit), place.len_bytes / stored.len);
        Some((saved, place.cut((saved.start - stored.start) * element, saved.len * element)))
    }

    /// All bytes that this rank writes to a checkpoint.
    pub fn checkpoint_bytes(&self) -> usize {
        let pairs =
            State::ALL.into_iter().flat_map(|state| (0..self.tables.units.len()).map(move |unit| (state, unit)));
        pairs.filter_map(|(state, unit)| self.checkpointed(state, unit)).map(|(_, place)| place.len_bytes).sum()
    }

    /// The place of the copy of such a stretch while it is written: state by state, and in each state unit by unit.
    pub const fn snapshot(&self, state: State, unit: usize) -> Option<Place> {
        let config = self.tables.config;
        let Some((_, place)) = self.checkpointed(state, unit) else { return None };
        let parts = config.mesh.data_ranks();
        let precision = &config.precision;
        let element = place.len_bytes / (self.placement(unit).padded / parts);
        let before = match state {
            State::Parameters => 0,
            State::Master => precision.params.bytes(),
            State::FirstMoment => precision.state_bytes() - 2 * precision.moments.bytes(),
            State::SecondMoment => precision.state_bytes() - precision.moments.bytes(),
        };
        let of_a_byte = self.memory.region(Kind::Snapshot).bytes / precision.state_bytes();
        let offset_bytes = before * of_a_byte + self.placement(unit).start / parts * element;
        Some(Place { region: Kind::Snapshot, offset_bytes, len_bytes: place.len_bytes })
    }
}

/// Gradients of parameters.
impl Places<'_> {
    /// The gradients of a unit from this rank's own micro-batches.
    pub const fn local_gradients(&self, unit: usize) -> Place {
        let placement = self.placement(unit);
        let bucket = &self.tables.buckets[placement.bucket];
        self.place(Kind::Gradients, bucket.staging + placement.start - bucket.start, placement.padded)
    }

    /// The same of all units of a bucket, which lie one after another.
    pub const fn bucket_gradients(&self, bucket: usize) -> Place {
        let bucket = &self.tables.buckets[bucket];
        self.place(Kind::Gradients, bucket.staging, bucket.elements)
    }

    /// The gradients of the unit in backward, before they are narrowed.
    pub const fn wide_gradients(&self, unit: usize) -> Place {
        self.place(Kind::UnitGradients, 0, self.placement(unit).padded)
    }

    /// The part of this rank's local gradients that the rank at `zero` sums.
    pub const fn local_share(&self, unit: usize, zero: usize) -> Place {
        self.local_gradients(unit).share(zero, self.tables.config.mesh.zero)
    }

    /// This rank's shard of a unit's gradients, summed over all ranks with their own data.
    pub const fn reduced(&self, unit: usize) -> Place {
        let (config, placement) = (self.tables.config, self.placement(unit));
        if config.reduces_in_place() {
            return self.local_share(unit, self.at.zero);
        }
        let zero = config.mesh.zero;
        if config.offloads_gradients() {
            return self.place(Kind::Reduced, self.sum_in_turn(unit), placement.padded / zero);
        }
        self.place(Kind::Reduced, placement.start / zero, placement.padded / zero)
    }

    /// The same shard, summed over its replica. Lies where the whole sum does, unless replicas still have to be added.
    pub const fn partial(&self, unit: usize) -> Place {
        let (config, placement) = (self.tables.config, self.placement(unit));
        if !config.has_partials() {
            return self.reduced(unit);
        }
        let (zero, bucket) = (config.mesh.zero, &self.tables.buckets[placement.bucket]);
        let start = bucket.partial + (placement.start - bucket.start) / zero;
        self.place(Kind::Partial, start, placement.padded / zero)
    }

    /// The sum of a unit that this rank receives in a spread from the rank at `index` along an axis: the rank in whose
    /// memory it lies, its place there, and its place here. Replicas send parts of this rank's shard, ranks along
    /// `zero` their shards.
    pub const fn spread_from(self, unit: usize, axis: Axis, index: usize) -> (Self, Place, Place) {
        let to = self.spread_to(unit, axis, index);
        match (axis, self.taker_of(axis, index)) {
            (_, Some(peer)) => (peer, peer.spread_to(unit, axis, index), to),
            (Axis::Zero, None) => (self.along(axis, index), self.along(axis, index).reduced(unit), to),
            (_, None) => (self.along(axis, index), self.along(axis, index).spread_to(unit, axis, index), to),
        }
    }

    const fn spread_to(&self, unit: usize, axis: Axis, index: usize) -> Place {
        match axis {
            Axis::Zero => self.local_share(unit, index),
            _ => self.part(self.reduced(unit), index),
        }
    }

    /// The part of a shard that the rank at `replica` sums.
    pub const fn part(&self, shard: Place, replica: usize) -> Place {
        shard.share(replica, self.tables.config.mesh.replica)
    }
}

/// Activations, and their gradients.
impl Places<'_> {
    const fn is_chunk_first(&self, unit: usize) -> bool {
        self.tables.chunks[self.placement(unit).chunk].first == unit
    }

    /// A place in a slot for activations.
    const fn in_slot(&self, slot: usize, start: usize, len: usize) -> Place {
        self.place(Kind::Activations, slot * self.memory.activation_slot_bytes + start, len)
    }

    /// A whole slot for activations.
    pub const fn slot(&self, slot: usize) -> Place {
        self.in_slot(slot, 0, self.memory.activation_slot_bytes)
    }

    /// One of the two places that units take turns with in a decoding walk: a unit writes its output to one, and the
    /// next unit reads it there.
    const fn in_turn(&self, turn: usize, len: usize) -> Place {
        let decoding = &self.memory.decoding;
        self.place(Kind::Activations, decoding.saved_bytes + turn % 2 * decoding.boundary_bytes, len)
    }

    /// The caches of a unit, in which decoding keeps the earlier tokens of each sequence from one walk to the next.
    pub const fn cache(&self, unit: usize) -> Place {
        let bytes = self.tables.config.slots() * self.unit(unit).cache_bytes;
        self.place(Kind::Activations, self.placement(unit).cache_bytes, bytes)
    }

    /// The input of a unit: that of its chunk, or the output of the unit before it.
    pub const fn input(&self, unit: usize, slot: usize) -> Place {
        if self.is_decoding {
            return self.in_turn(unit + 1, self.unit(unit).input_bytes);
        }
        let start = if self.is_chunk_first(unit) { 0 } else { self.placement(unit - 1).output_bytes };
        self.in_slot(slot, start, self.unit(unit).input_bytes)
    }

    /// The targets, which are to be predicted, in a slot of the model's last chunk, after the chunk's input.
    pub const fn targets(&self, slot: usize) -> Place {
        let first = self.tables.chunks[self.tables.chunks.len() - 1].first;
        let targets = self.unit(self.tables.units.len() - 1).targets_bytes;
        self.in_slot(slot, self.tables.config.whole_lines(self.unit(first).input_bytes), targets)
    }

    /// The output of a unit: for the next one, or to leave from slot `outgoing`.
    pub const fn output(&self, unit: usize, slot: usize, outgoing: usize) -> Place {
        if self.tables.leaves(unit) {
            return self.outgoing(Parcel::Activations, unit, outgoing);
        }
        if self.is_decoding {
            return self.in_turn(unit, self.unit(unit).output_bytes);
        }
        self.in_slot(slot, self.placement(unit).output_bytes, self.unit(unit).output_bytes)
    }

    /// The values that a unit saves for its backward.
    pub const fn saved(&self, unit: usize, slot: usize) -> Place {
        let saved = self.unit(unit).saved_bytes;
        if self.is_decoding && !self.tables.saves_apart(unit) {
            return self.place(Kind::Activations, 0, saved);
        }
        if self.tables.config.recomputes(self.tables.units, unit) {
            return self.place(Kind::Recomputed, self.placement(unit).saved_bytes, saved);
        }
        self.in_slot(slot, self.placement(unit).saved_bytes, saved)
    }

    /// The output of a unit's second forward, which repeats the first output. Lies after its saved values.
    pub const fn output_again(&self, unit: usize) -> Place {
        let Unit { saved_bytes, output_bytes, .. } = *self.unit(unit);
        let start = self.placement(unit).saved_bytes + self.tables.config.whole_lines(saved_bytes);
        self.place(Kind::Recomputed, start, output_bytes)
    }

    /// The gradient of a unit's output. Units take turns with the two halves of the region.
    pub const fn output_gradient(&self, unit: usize) -> Place {
        let half = self.memory.region(Kind::ActivationGradients).bytes / 2;
        self.place(Kind::ActivationGradients, unit % 2 * half, self.unit(unit).output_bytes)
    }

    /// The gradient of a unit's input: for the unit before it, or to leave from slot `outgoing`. Unit 0 has none.
    pub const fn input_gradient(&self, unit: usize, outgoing: usize) -> Option<Place> {
        if unit == 0 {
            None
        } else if self.is_chunk_first(unit) {
            Some(self.outgoing(Parcel::Gradients, unit, outgoing))
        } else {
            Some(self.output_gradient(unit - 1))
        }
    }

    /// Scratch of a unit's calls.
    pub const fn workspace(&self, unit: usize) -> Place {
        self.place(Kind::Workspace, 0, self.unit(unit).workspace_bytes)
    }

    /// Scratch in which the matrices of a unit are made orthogonal.
    pub const fn orthogonal_room(&self, unit: usize) -> Place {
        self.place(Kind::Workspace, 0, self.unit(unit).matrices.room_bytes)
    }

    /// The place of a micro-batch's inputs that have to be converted before they are stored.
    pub const fn given(&self) -> Place {
        self.place(Kind::Workspace, 0, self.unit(0).given_bytes)
    }

    /// The place of inputs or targets that this pipeline stage does not need, after the inputs that it converts.
    pub const fn unneeded(&self) -> Place {
        let start = if self.at.pipeline == 0 { self.tables.config.whole_lines(self.given().len_bytes) } else { 0 };
        self.place(Kind::Workspace, start, self.product_workspace().offset_bytes - start)
    }

    /// Scratch of the device's library of matrix products, if it needs any. Lies after the scratch of all layers.
    pub const fn product_workspace(&self) -> Place {
        let bytes = self.tables.config.device.product_bytes();
        self.place(Kind::Workspace, self.memory.region(Kind::Workspace).bytes - bytes, bytes)
    }

    /// The parcel that `unit` has made for another pipeline stage, in the slot that it leaves from. Parcels of ties
    /// leave from their usual place: sums of gradients from `reduced`, and parameters from `updated`.
    pub const fn outgoing(&self, parcel: Parcel, unit: usize, slot: usize) -> Place {
        let Memory { outgoing_slot_bytes, returning_slot_bytes, .. } = *self.memory;
        match parcel {
            Parcel::Activations => self.place(Kind::Outgoing, slot * outgoing_slot_bytes, self.unit(unit).output_bytes),
            Parcel::Gradients => {
                let start = OUTGOING_SLOTS * outgoing_slot_bytes + slot * returning_slot_bytes;
                self.place(Kind::Outgoing, start, self.unit(unit).input_bytes)
            }
            Parcel::TiedGradients => self.part(self.reduced(unit), self.at.replica),
            Parcel::TiedParameters => self.updated(unit),
        }
    }

    /// The place at which a parcel for `unit` arrives.
    pub const fn incoming(&self, parcel: Parcel, unit: usize, slot: usize) -> Place {
        match parcel {
            Parcel::Activations => self.input(unit, slot),
            Parcel::Gradients => self.output_gradient(unit),
            Parcel::TiedGradients => self.part(self.reduced(unit), self.at.replica),
            Parcel::TiedParameters => self.updated(unit),
        }
    }
}

#[cfg(test)]
#[path = "place/checkpoint_tests.rs"]
mod checkpoint_tests;
