//! Step: what an expanded step is written in: places with names, and a trait with a method for each op. Never knows a plan.

use zero_plan::place::Place;
use zero_plan::{Axis, Home, Kind, Parcel};

/// A region of a rank's arena. If ranks hold it in common, it has the bytes of all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArenaRegion {
    /// Its contents.
    pub kind: Kind,
    /// The mapping that it lies in.
    pub home: Home,
    /// Start within its home, in bytes.
    pub offset: usize,
    /// Length, in bytes.
    pub bytes: usize,
}

impl ArenaRegion {
    /// Describes a region.
    pub const fn new(kind: Kind, home: Home, offset: usize, bytes: usize) -> Self {
        Self { kind, home, offset, bytes }
    }

    /// The `bytes` that begin `offset` bytes after its start.
    ///
    /// # Panics
    /// If the region has no such bytes. In a constant, that is an error of the build.
    pub const fn at(self, offset: usize, bytes: usize) -> Place {
        assert!(offset + bytes <= self.bytes, "a buffer beyond its region");
        Place { region: self.kind, offset_bytes: offset, len_bytes: bytes }
    }
}

/// The buffers of a unit. One that its pipeline stage does not have is [`UnitBuffers::NONE`]'s, without bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnitBuffers {
    /// Its number in the order of forward.
    pub number: usize,
    /// The parameters that a rank stores. If ranks along `zero` hold them in common, all of the flat buffer.
    pub parameters: Place,
    /// Parameters in the width that layers compute in, if they have a place of their own for it.
    pub converted: Place,
    /// Gradients of the rank's own micro-batches.
    pub gradients: Place,
    /// The rank's shard of the gradients, summed over its replica.
    pub partial: Place,
    /// The rank's shard of the gradients, summed over all ranks.
    pub reduced: Place,
    /// Parameters as the optimizer updates them, if they are a separate copy.
    pub master: Place,
    /// The optimizer's mean of gradients, or its momentum.
    pub first_moment: Place,
    /// The optimizer's mean of squares.
    pub second_moment: Place,
    /// The sums of gradients in their tier.
    pub sums: Place,
    /// The values that forward saves for backward. In a slot for activations they are those of slot 0.
    pub saved: Place,
    /// Its output, likewise.
    pub output: Place,
    /// Both of these in their tier.
    pub stored: Place,
}

impl UnitBuffers {
    /// No buffers.
    pub const NONE: Self = Self {
        number: 0,
        parameters: NOWHERE,
        converted: NOWHERE,
        gradients: NOWHERE,
        partial: NOWHERE,
        reduced: NOWHERE,
        master: NOWHERE,
        first_moment: NOWHERE,
        second_moment: NOWHERE,
        sums: NOWHERE,
        saved: NOWHERE,
        output: NOWHERE,
        stored: NOWHERE,
    };
}

const NOWHERE: Place = Place { region: Kind::Parameters, offset_bytes: 0, len_bytes: 0 };

/// A slot for gathered parameters, or for the activations of a micro-batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotBuffer {
    /// Its number.
    pub number: usize,
    /// Its place, without bytes where layers read parameters at their owners.
    pub place: Place,
}

impl SlotBuffer {
    /// A slot with a place of its own.
    pub const fn new(number: usize, place: Place) -> Self {
        Self { number, place }
    }

    /// A slot without one: the parameters stay where they are stored.
    pub const fn in_place(number: usize) -> Self {
        Self { number, place: NOWHERE }
    }
}

/// A slot of the window: where a piece of the states of a unit is worked on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowBuffer {
    /// Its number.
    pub number: usize,
    /// The parameters, if they are kept in a tier.
    pub parameters: Place,
    /// Parameters as the optimizer updates them, if they are a separate copy.
    pub master: Place,
    /// The optimizer's mean of gradients.
    pub first_moment: Place,
    /// The optimizer's mean of squares.
    pub second_moment: Place,
    /// The sums of gradients, if they are kept in a tier.
    pub sums: Place,
}

impl WindowBuffer {
    /// A slot without places.
    pub const NONE: Self = Self {
        number: 0,
        parameters: NOWHERE,
        master: NOWHERE,
        first_moment: NOWHERE,
        second_moment: NOWHERE,
        sums: NOWHERE,
    };
}

/// The number of a piece of a unit's states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnitPiece(pub usize);

/// A bucket: consecutive units whose gradients travel together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BucketBuffer {
    /// Its number.
    pub number: usize,
    /// The gradients of the rank's own micro-batches, which the ranks along `zero` exchange.
    pub gradients: Place,
}

impl BucketBuffer {
    /// Describes a bucket.
    pub const fn new(number: usize, gradients: Place) -> Self {
        Self { number, gradients }
    }
}

/// The number of a micro-batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MicroBatch(pub usize);

/// The number of a bucket's reduction in a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reduction(pub usize);

/// Something that does the ops of a rank, one after another. `bytes` is the length of what the op is about on one rank.
pub trait StepOps {
    /// Starts to gather a unit's flat buffer, of `bytes`, from the ranks along `zero`: the start of an all-gather.
    fn gather(&mut self, unit: UnitBuffers, slot: SlotBuffer, bytes: usize);
    /// Waits until a unit's flat buffer, of `bytes`, is whole: the end of an all-gather.
    fn wait(&mut self, unit: UnitBuffers, bytes: usize);
    /// Casts a unit's flat buffer to `bytes` in the width that layers compute in.
    fn convert(&mut self, unit: UnitBuffers, slot: SlotBuffer, bytes: usize);
    /// Gives up a unit's gathered or converted flat buffer, of `bytes`: a reshard.
    fn release(&mut self, unit: UnitBuffers, bytes: usize);
    /// Waits for a parcel of `bytes` from another pipeline stage.
    fn receive(&mut self, parcel: Parcel, unit: UnitBuffers, batch: MicroBatch, slot: SlotBuffer, bytes: usize);
    /// Waits until the place of `bytes` that the next parcel of this kind leaves from is free.
    fn clear(&mut self, parcel: Parcel, bytes: usize);
    /// Starts to send a parcel of `bytes` to another pipeline stage.
    fn send(&mut self, parcel: Parcel, unit: UnitBuffers, batch: MicroBatch, bytes: usize);
    /// Runs a unit forward, which writes `bytes` of saved values and output.
    fn forward(&mut self, unit: UnitBuffers, batch: MicroBatch, slot: SlotBuffer, bytes: usize);
    /// Runs a unit forward again, which writes `bytes` of saved values and output.
    fn recompute(&mut self, unit: UnitBuffers, batch: MicroBatch, slot: SlotBuffer, bytes: usize);
    /// Runs a unit's vector-Jacobian product, which writes `bytes` of gradients: of its parameters and of its input.
    fn backward(&mut self, unit: UnitBuffers, batch: MicroBatch, slot: SlotBuffer, bytes: usize);
    /// Waits until peers have read what a bucket's gradients, of `bytes`, overwrite.
    fn claim(&mut self, bucket: BucketBuffer, bytes: usize);
    /// Offers a bucket's gradients, of `bytes`, to the ranks along `zero`: the start of a reduce-scatter.
    fn reduce_scatter(&mut self, bucket: BucketBuffer, reduction: Reduction, bytes: usize);
    /// Writes `bytes` of sums over the ranks of this host, for ranks of other hosts: the middle of a reduce-scatter.
    fn subtotal(&mut self, bucket: BucketBuffer, reduction: Reduction, axis: Axis, bytes: usize);
    /// Writes `bytes` of sums over the ranks along `zero`: the end of a reduce-scatter.
    fn settle(&mut self, bucket: BucketBuffer, reduction: Reduction, bytes: usize);
    /// Writes `bytes` of sums over the replicas: a reduce-scatter along `replica`.
    fn combine(&mut self, bucket: BucketBuffer, reduction: Reduction, bytes: usize);
    /// Adds `bytes` of the sums of a tied unit to those of its owner.
    fn fold(&mut self, unit: UnitBuffers, bytes: usize);
    /// Gathers a bucket's sums, of `bytes`, along an axis: the second half of an all-reduce.
    fn spread(&mut self, bucket: BucketBuffer, axis: Axis, bytes: usize);
    /// Exchanges loss and gradient norms, `bytes` from each rank: an all-reduce.
    fn agree(&mut self, bytes: usize);
    /// Replaces the sums of a unit's matrices, of `bytes`, by their directions.
    fn momentum(&mut self, unit: UnitBuffers, bytes: usize);
    /// Updates `bytes` of a unit's parameters and optimizer states.
    fn update(&mut self, unit: UnitBuffers, bytes: usize);
    /// Starts to bring `bytes` of a unit's parameters from their tier, to be gathered.
    fn fetch_shard(&mut self, unit: UnitBuffers, slot: SlotBuffer, bytes: usize);
    /// Starts to bring `bytes` of a bucket's sums so far from their tier.
    fn fetch_sums(&mut self, bucket: BucketBuffer, reduction: Reduction, bytes: usize);
    /// Starts to take `bytes` of a bucket's sums to their tier.
    fn store_sums(&mut self, bucket: BucketBuffer, reduction: Reduction, bytes: usize);
    /// Starts to take `bytes` of a unit's activations to their tier.
    fn store_activations(&mut self, unit: UnitBuffers, batch: MicroBatch, slot: SlotBuffer, bytes: usize);
    /// Starts to bring `bytes` of a unit's activations back from their tier.
    fn fetch_activations(&mut self, unit: UnitBuffers, batch: MicroBatch, slot: SlotBuffer, bytes: usize);
    /// Copies `bytes` of a unit's parameters for readers outside of the run.
    fn offer(&mut self, unit: UnitBuffers, bytes: usize);
    /// Starts to take `bytes` of them to a copy in the memory of the host. The next pass may begin meanwhile.
    fn store_offered(&mut self, unit: UnitBuffers, bytes: usize);
    /// Starts to bring `bytes` of a unit's states from their tiers to the window.
    fn fetch(&mut self, unit: UnitBuffers, piece: UnitPiece, slot: WindowBuffer, bytes: usize);
    /// Updates `bytes` of a unit's parameters and optimizer states, with those that are in the window.
    fn update_piece(&mut self, unit: UnitBuffers, piece: UnitPiece, slot: WindowBuffer, bytes: usize);
    /// Starts to take `bytes` of a unit's optimizer states from the window back to their tier.
    fn store(&mut self, unit: UnitBuffers, piece: UnitPiece, slot: WindowBuffer, bytes: usize);
}
