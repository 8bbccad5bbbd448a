//! Op: one entry of a schedule.

use serde::Serialize;

use crate::mesh::Axis;

/// One entry of a rank's schedule. Units, buckets and slots are indices into the plan's tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub enum Op {
    /// Starts to gather a unit's flat buffer along `zero`, into a slot where layers compute on slots.
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
    /// Gives up a unit's gathered or converted flat buffer.
    Release {
        /// The unit.
        unit: usize,
    },
    /// Waits for what another pipeline stage has sent, and takes it: activations and their gradients to where `unit` reads
    /// them, gradients of tied parameters into its sum, tied parameters in place of its own.
    Receive {
        /// What it is.
        parcel: Parcel,
        /// The unit that needs it.
        unit: usize,
        /// The micro-batch that it is of; 0 for what there is one of in a step.
        micro_batch: usize,
        /// The slot for the activations of that micro-batch.
        slot: usize,
    },
    /// Waits until a slot for the next outgoing parcel of this kind is free: its receiver has taken what lay there.
    Clear {
        /// What is to leave.
        parcel: Parcel,
    },
    /// Starts to send what `unit` has made to another pipeline stage. Never waits: it lies in a slot of its own.
    Send {
        /// What it is.
        parcel: Parcel,
        /// The unit that made it.
        unit: usize,
        /// The micro-batch that it is of; 0 for what there is one of in a step.
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
    /// Runs a unit forward once more, for what its backward needs and its forward has not kept.
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
    /// Takes a bucket's staging: waits until peers have read what lay there.
    Claim {
        /// The bucket.
        bucket: usize,
    },
    /// Offers a bucket's local gradients to its peers along `zero`: the start of a reduce-scatter.
    Reduce {
        /// The bucket.
        bucket: usize,
        /// Which of the bucket's reductions in this step it is: the first overwrites the sum, later ones add to it.
        round: usize,
    },
    /// Sums what the ranks of this host have of a bucket, for this rank's counterparts on other hosts: the middle of a
    /// reduce-scatter between hosts.
    Subtotal {
        /// The bucket.
        bucket: usize,
        /// Which of its reductions.
        round: usize,
        /// The axis.
        axis: Axis,
    },
    /// Sums this rank's shards of a bucket along `zero`: the end of a reduce-scatter. Where there are replicas, also the
    /// start of their reduction.
    Settle {
        /// The bucket.
        bucket: usize,
        /// Which of its reductions.
        round: usize,
    },
    /// Sums this rank's parts of a bucket along `replica`.
    Combine {
        /// The bucket.
        bucket: usize,
        /// Which of its reductions.
        round: usize,
    },
    /// Adds the summed gradients of a tied unit to those of its owner, which lies on the same pipeline stage.
    Fold {
        /// The tied unit.
        unit: usize,
    },
    /// Gathers what the ranks along an axis have summed of a bucket: the second half of an all-reduce. After the agreement,
    /// gathers their directions.
    Spread {
        /// The bucket.
        bucket: usize,
        /// The axis.
        axis: Axis,
    },
    /// Agrees on loss and gradient norm, over all ranks. Also the point after which no rank reads this step's parameters
    /// any more.
    Agree,
    /// Adds the sums of gradients of a unit's matrices to their momentum, and puts in place of these sums what the matrices are
    /// updated by once that is orthogonal: their direction.
    Momentum {
        /// The unit.
        unit: usize,
    },
    /// Updates what this rank keeps the optimizer state of. Matrices of which it updates a part it first makes orthogonal.
    Update {
        /// The unit.
        unit: usize,
    },
}

impl Op {
    /// What it does, in a word.
    pub const fn name(self) -> &'static str {
        match self {
            Op::Gather { .. } => "gather",
            Op::Wait { .. } => "wait",
            Op::Convert { .. } => "convert",
            Op::Release { .. } => "release",
            Op::Receive { .. } => "receive",
            Op::Clear { .. } => "clear",
            Op::Send { .. } => "send",
            Op::Forward { .. } => "forward",
            Op::Recompute { .. } => "recompute",
            Op::Backward { .. } => "backward",
            Op::Claim { .. } => "claim",
            Op::Reduce { .. } => "reduce",
            Op::Subtotal { .. } => "subtotal",
            Op::Settle { .. } => "settle",
            Op::Combine { .. } => "combine",
            Op::Fold { .. } => "fold",
            Op::Spread { .. } => "spread",
            Op::Agree => "agree",
            Op::Momentum { .. } => "momentum",
            Op::Update { .. } => "update",
        }
    }

    /// The unit that it is about, if it is about one.
    pub const fn unit(self) -> Option<usize> {
        match self {
            Op::Gather { unit, .. }
            | Op::Wait { unit }
            | Op::Convert { unit, .. }
            | Op::Release { unit }
            | Op::Receive { unit, .. }
            | Op::Send { unit, .. }
            | Op::Forward { unit, .. }
            | Op::Recompute { unit, .. }
            | Op::Backward { unit, .. }
            | Op::Fold { unit }
            | Op::Momentum { unit }
            | Op::Update { unit } => Some(unit),
            Op::Clear { .. }
            | Op::Claim { .. }
            | Op::Reduce { .. }
            | Op::Subtotal { .. }
            | Op::Settle { .. }
            | Op::Combine { .. }
            | Op::Spread { .. }
            | Op::Agree => None,
        }
    }

    /// The bucket that it is about, if it is about one.
    pub const fn bucket(self) -> Option<usize> {
        match self {
            Op::Claim { bucket }
            | Op::Reduce { bucket, .. }
            | Op::Subtotal { bucket, .. }
            | Op::Settle { bucket, .. }
            | Op::Combine { bucket, .. }
            | Op::Spread { bucket, .. } => Some(bucket),
            _ => None,
        }
    }

    /// The micro-batch that it works on, if it works on one.
    pub const fn micro_batch(self) -> Option<usize> {
        match self {
            Op::Forward { micro_batch, .. }
            | Op::Recompute { micro_batch, .. }
            | Op::Backward { micro_batch, .. }
            | Op::Receive { micro_batch, .. }
            | Op::Send { micro_batch, .. } => Some(micro_batch),
            _ => None,
        }
    }

    /// The slot for activations or for gathered parameters that it works in, if there is one.
    pub const fn slot(self) -> Option<usize> {
        match self {
            Op::Forward { slot, .. }
            | Op::Recompute { slot, .. }
            | Op::Backward { slot, .. }
            | Op::Receive { slot, .. }
            | Op::Gather { slot, .. }
            | Op::Convert { slot, .. } => Some(slot),
            _ => None,
        }
    }

    /// Which reduction of its bucket it belongs to, if it belongs to one.
    pub const fn round(self) -> Option<usize> {
        match self {
            Op::Reduce { round, .. }
            | Op::Subtotal { round, .. }
            | Op::Settle { round, .. }
            | Op::Combine { round, .. } => Some(round),
            _ => None,
        }
    }
}

/// What travels from one pipeline stage to another. Each kind has a channel of its own in which order is kept.
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
