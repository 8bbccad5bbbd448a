//! Op: one entry of a schedule. `traits` says what each kind is.

use serde::Serialize;

use crate::mesh::Axis;

/// One entry of a rank's schedule. Units, buckets and slots are indices into the plan's tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub enum Op {
    /// Starts to gather a unit's flat buffer along `zero`, into a slot if layers compute on slots.
    Gather {
        /// The unit.
        unit: usize,
        /// The slot.
        slot: usize,
    },
    /// Waits until a unit's flat buffer is whole.
    Wait {
        /// The unit.
        unit: usize,
    },
    /// Copies a unit's replicated flat buffer into a slot, in the type that layers compute in.
    Convert {
        /// The unit.
        unit: usize,
        /// The slot.
        slot: usize,
    },
    /// Releases a unit's gathered or converted flat buffer.
    Release {
        /// The unit.
        unit: usize,
    },
    /// Waits for a parcel of another pipeline stage and stores it: activations and their gradients where `unit` reads
    /// them, tied parameters in place of its own. Adds gradients of tied parameters to its sum.
    Receive {
        /// The kind of parcel.
        parcel: Parcel,
        /// The unit that needs it.
        unit: usize,
        /// The micro-batch that it belongs to; 0 for a parcel that is sent once in a step.
        micro_batch: usize,
        /// The slot for the activations of that micro-batch.
        slot: usize,
    },
    /// Waits until the slot for the next outgoing parcel of this kind is free: the receiver has read the parcel in it.
    Clear {
        /// The parcel that is to leave.
        parcel: Parcel,
    },
    /// Starts to send a parcel that `unit` has made to another pipeline stage. Never waits, as it has its own slot.
    Send {
        /// The kind of parcel.
        parcel: Parcel,
        /// The unit that made it.
        unit: usize,
        /// The micro-batch that it belongs to; 0 for a parcel that is sent once in a step.
        micro_batch: usize,
    },
    /// Runs a unit forward.
    Forward {
        /// The unit.
        unit: usize,
        /// The micro-batch.
        micro_batch: usize,
        /// The slot for its activations.
        slot: usize,
    },
    /// Runs a unit forward again, to compute the values that its backward needs and its forward has not kept.
    Recompute {
        /// The unit.
        unit: usize,
        /// The micro-batch.
        micro_batch: usize,
        /// The slot for its activations.
        slot: usize,
    },
    /// Runs a unit's vector-Jacobian product: gradients of its parameters and of its input.
    Backward {
        /// The unit.
        unit: usize,
        /// The micro-batch.
        micro_batch: usize,
        /// The slot for its activations.
        slot: usize,
    },
    /// Claims a bucket's staging: waits until peers have read its earlier content.
    Claim {
        /// The bucket.
        bucket: usize,
    },
    /// Offers a bucket's local gradients to its peers along `zero`: the start of a reduce-scatter.
    Reduce {
        /// The bucket.
        bucket: usize,
        /// The number of the bucket's reduction in this step: the first overwrites the sum, later ones add to it.
        round: usize,
    },
    /// Sums the terms of this host's ranks for a bucket, for this rank's counterparts on other hosts: the middle of a
    /// reduce-scatter between hosts.
    Subtotal {
        /// The bucket.
        bucket: usize,
        /// The number of its reduction in this step.
        round: usize,
        /// The axis.
        axis: Axis,
    },
    /// Sums this rank's shards of a bucket along `zero`: the end of a reduce-scatter. If there are replicas, also the
    /// start of their reduction.
    Settle {
        /// The bucket.
        bucket: usize,
        /// The number of its reduction in this step.
        round: usize,
    },
    /// Sums this rank's parts of a bucket along `replica`.
    Combine {
        /// The bucket.
        bucket: usize,
        /// The number of its reduction in this step.
        round: usize,
    },
    /// Adds the summed gradients of a tied unit to those of its owner, which lies on the same pipeline stage.
    Fold {
        /// The tied unit.
        unit: usize,
    },
    /// Gathers the sums of a bucket from the ranks along an axis: the second half of an all-reduce. After the
    /// agreement, gathers directions instead.
    Spread {
        /// The bucket.
        bucket: usize,
        /// The axis.
        axis: Axis,
    },
    /// Agrees on loss and gradient norm, over all ranks. After it, no rank reads this step's parameters any more.
    Agree,
    /// Adds the sums of gradients of a unit's matrices to their momentum, and replaces the sums by directions. Once
    /// these are orthogonal, they update the matrices.
    Momentum {
        /// The unit.
        unit: usize,
    },
    /// Updates the parameters whose optimizer state this rank keeps. Before that, makes directions orthogonal, for all
    /// matrices of which it updates a part.
    Update {
        /// The unit.
        unit: usize,
        /// The piece of them that it updates; none for all of them, if their state is on the device.
        #[serde(skip_serializing_if = "Option::is_none")]
        piece: Option<Piece>,
    },
    /// Starts to bring a piece of the optimizer state of a unit from its tier to the window.
    Fetch {
        /// The unit.
        unit: usize,
        /// The piece.
        piece: Piece,
    },
    /// Starts to take an updated piece from the window back to its tier.
    Store {
        /// The unit.
        unit: usize,
        /// The piece.
        piece: Piece,
    },
    /// Starts to bring the sums of a bucket so far from their tier to the slot where a reduction adds to them.
    FetchSums {
        /// The bucket.
        bucket: usize,
        /// The number of the reduction that adds to them.
        round: usize,
    },
    /// Starts to take the sums of a bucket from their slot to their tier.
    StoreSums {
        /// The bucket.
        bucket: usize,
        /// The number of the reduction that is the last in them.
        round: usize,
    },
    /// Starts to bring this rank's shard of a unit's parameters from its tier to a slot, from which it is gathered.
    FetchShard {
        /// The unit.
        unit: usize,
        /// The slot for fetched shards.
        slot: usize,
    },
    /// Starts to take the output of a unit, and the values that it saves, to their tier.
    StoreActivations {
        /// The unit.
        unit: usize,
        /// The micro-batch.
        micro_batch: usize,
        /// The slot for its activations.
        slot: usize,
    },
    /// Starts to bring them back to their place, for the backward of the unit and of the one after it.
    FetchActivations {
        /// The unit.
        unit: usize,
        /// The micro-batch.
        micro_batch: usize,
        /// The slot for its activations.
        slot: usize,
    },
    /// Copies what this rank offers of a unit's parameters to readers, in the type in which it is published.
    Offer {
        /// The unit.
        unit: usize,
    },
    /// Starts to take what it offers to a copy in the memory of the host. The next pass may begin meanwhile.
    StoreOffered {
        /// The unit.
        unit: usize,
    },
}

/// A piece of the states of a unit, on its way between a tier and the window, or in the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct Piece {
    /// Its number among the pieces of its unit.
    pub index: usize,
    /// The slot of the window.
    pub slot: usize,
}

/// A kind of data between pipeline stages. Each kind has its own channel, which keeps the order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub enum Parcel {
    /// The output of a chunk, to the next one.
    Activations,
    /// The gradient of a chunk's input, to the one before.
    Gradients,
    /// Summed gradients of tied parameters, to their owner.
    TiedGradients,
    /// Updated parameters, to the unit that is tied to them.
    TiedParameters,
}

impl Parcel {
    /// All kinds.
    pub const ALL: [Parcel; 4] =
        [Parcel::Activations, Parcel::Gradients, Parcel::TiedGradients, Parcel::TiedParameters];

    /// Its name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Parcel::Activations => "activations",
            Parcel::Gradients => "gradients",
            Parcel::TiedGradients => "tied gradients",
            Parcel::TiedParameters => "tied parameters",
        }
    }
}
