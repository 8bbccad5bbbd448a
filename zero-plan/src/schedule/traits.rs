//! Traits: the one table that says what each kind of op is: its word, the class as which it is counted and drawn, the
//! queue of a device in which it lies, and what it is about. What it reads and writes is in `place`; its sentence and
//! the key that decides it are in `explain`. Never looks at a plan.

use serde::Serialize;

use super::{Op, Parcel, Piece};
use crate::config::Config;
use crate::mesh::Axis;

/// A class as which an op is counted and drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Class {
    /// Computation of activations.
    Forward,
    /// The same once more, before a backward.
    Recompute,
    /// Computation of gradients.
    Backward,
    /// The optimizer.
    Update,
    /// Parameters on their way to the place where layers compute with them.
    Gather,
    /// Gradients on their way to their sums.
    Reduce,
    /// Parcels between pipeline stages.
    Parcel,
    /// The exchange of loss and norm among all ranks.
    Agree,
    /// States, in pieces or whole, on their way between a tier and the device, and copies of parameters for readers.
    Tier,
}

impl Class {
    /// All of them, in the order of a legend.
    pub const ALL: [Class; 9] = [
        Class::Forward,
        Class::Recompute,
        Class::Backward,
        Class::Update,
        Class::Gather,
        Class::Reduce,
        Class::Parcel,
        Class::Agree,
        Class::Tier,
    ];

    /// Whether a device computes in an op of this class.
    pub const fn computes(self) -> bool {
        matches!(self, Class::Forward | Class::Recompute | Class::Backward | Class::Update)
    }

    /// Its name in a legend.
    pub const fn name(self) -> &'static str {
        match self {
            Class::Forward => "forward",
            Class::Recompute => "recompute",
            Class::Backward => "backward",
            Class::Update => "update",
            Class::Gather => "parameters",
            Class::Reduce => "gradients",
            Class::Parcel => "parcels",
            Class::Agree => "agreement",
            Class::Tier => "offload",
        }
    }
}

/// A queue in which ops run in order: of a device, or of what carries bytes between a tier and the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub enum Stream {
    /// Layers and the optimizer; the ops that wait for their inputs; and the ops that offer or send their results,
    /// which other ranks may read as soon as they are there.
    Compute,
    /// Gathers of parameters.
    Gather,
    /// Sums of gradients.
    Reduce,
    /// Parcels from other pipeline stages.
    Copy,
    /// Pieces of states from a tier.
    Fetch,
    /// Pieces of states to a tier.
    Store,
}

impl Stream {
    /// All of them.
    pub const ALL: [Stream; 6] =
        [Stream::Compute, Stream::Gather, Stream::Reduce, Stream::Copy, Stream::Fetch, Stream::Store];

    /// Those of every device that runs ops asynchronously.
    pub const OF_DEVICE: [Stream; 4] = [Stream::Compute, Stream::Gather, Stream::Reduce, Stream::Copy];

    /// Whether it carries bytes between a tier and the device.
    pub const fn is_of_tier(self) -> bool {
        matches!(self, Stream::Fetch | Stream::Store)
    }

    /// Its name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Stream::Compute => "compute",
            Stream::Gather => "gather",
            Stream::Reduce => "reduce",
            Stream::Copy => "copy",
            Stream::Fetch => "fetch",
            Stream::Store => "store",
        }
    }
}

/// The traits of an op.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpTraits {
    /// A word for what it does.
    pub name: &'static str,
    /// Its class.
    pub class: Class,
    /// Its queue on a device that has several.
    pub stream: Stream,
    /// The unit that it is about, if it is about one.
    pub unit: Option<usize>,
    /// The bucket that it is about, if it is about one.
    pub bucket: Option<usize>,
    /// The kind of parcel that it is about, if it is about one.
    pub parcel: Option<Parcel>,
    /// The micro-batch that it works on, if it works on one.
    pub micro_batch: Option<usize>,
    /// The slot for activations, for gathered parameters or of the window that it works in, if there is one.
    pub slot: Option<usize>,
    /// The number of the piece of its unit's states that it is about, if it is about one.
    pub piece: Option<usize>,
    /// The number of its bucket's reduction that it belongs to, if it belongs to one.
    pub round: Option<usize>,
    /// The axis along which ranks send one another the bytes that it needs, if there is one.
    pub axis: Option<Axis>,
}

impl OpTraits {
    const fn unit(self, unit: usize) -> Self {
        Self { unit: Some(unit), ..self }
    }

    const fn bucket(self, bucket: usize) -> Self {
        Self { bucket: Some(bucket), ..self }
    }

    const fn parcel(self, parcel: Parcel) -> Self {
        Self { parcel: Some(parcel), ..self }
    }

    const fn slot(self, slot: usize) -> Self {
        Self { slot: Some(slot), ..self }
    }

    const fn micro_batch(self, micro_batch: usize) -> Self {
        Self { micro_batch: Some(micro_batch), ..self }
    }

    const fn round(self, round: usize) -> Self {
        Self { round: Some(round), ..self }
    }

    const fn piece(self, piece: Piece) -> Self {
        Self { piece: Some(piece.index), slot: Some(piece.slot), ..self }
    }

    const fn axis(self, axis: Axis) -> Self {
        Self { axis: Some(axis), ..self }
    }
}

impl Op {
    /// The table.
    pub const fn traits(self) -> OpTraits {
        const fn it(name: &'static str, class: Class, stream: Stream) -> OpTraits {
            let (unit, bucket, parcel, micro_batch, slot) = (None, None, None, None, None);
            let (piece, round, axis) = (None, None, None);
            OpTraits { name, class, stream, unit, bucket, parcel, micro_batch, slot, piece, round, axis }
        }
        use Stream::Compute;
        match self {
            Op::Gather { unit, slot } => {
                it("gather", Class::Gather, Stream::Gather).unit(unit).slot(slot).axis(Axis::Zero)
            }
            Op::Wait { unit } => it("wait", Class::Gather, Compute).unit(unit),
            Op::Convert { unit, slot } => it("convert", Class::Gather, Compute).unit(unit).slot(slot),
            Op::Release { unit } => it("release", Class::Gather, Compute).unit(unit),
            Op::Receive { parcel, unit, micro_batch, slot } => it("receive", Class::Parcel, parcel.taken_in())
                .parcel(parcel)
                .unit(unit)
                .micro_batch(micro_batch)
                .slot(slot),
            Op::Clear { parcel } => it("clear", Class::Parcel, Compute).parcel(parcel),
            Op::Send { parcel, unit, micro_batch } => {
                it("send", Class::Parcel, parcel.sent_in()).parcel(parcel).unit(unit).micro_batch(micro_batch)
            }
            Op::Forward { unit, micro_batch, slot } => {
                it("forward", Class::Forward, Compute).unit(unit).micro_batch(micro_batch).slot(slot)
            }
            Op::Recompute { unit, micro_batch, slot } => {
                it("recompute", Class::Recompute, Compute).unit(unit).micro_batch(micro_batch).slot(slot)
            }
            Op::Backward { unit, micro_batch, slot } => {
                it("backward", Class::Backward, Compute).unit(unit).micro_batch(micro_batch).slot(slot)
            }
            Op::Claim { bucket } => it("claim", Class::Reduce, Compute).bucket(bucket),
            Op::Reduce { bucket, round } => it("reduce", Class::Reduce, Compute).bucket(bucket).round(round),
            Op::Subtotal { bucket, round, .. } => {
                it("subtotal", Class::Reduce, Stream::Reduce).bucket(bucket).round(round)
            }
            Op::Settle { bucket, round } => {
                it("settle", Class::Reduce, Stream::Reduce).bucket(bucket).round(round).axis(Axis::Zero)
            }
            Op::Combine { bucket, round } => {
                it("combine", Class::Reduce, Stream::Reduce).bucket(bucket).round(round).axis(Axis::Replica)
            }
            Op::Fold { unit } => it("fold", Class::Reduce, Stream::Reduce).unit(unit),
            Op::Spread { bucket, axis } => it("spread", Class::Reduce, Stream::Reduce).bucket(bucket).axis(axis),
            Op::Agree => it("agree", Class::Agree, Compute),
            Op::Momentum { unit } => it("momentum", Class::Update, Compute).unit(unit),
            Op::Update { unit, piece: None } => it("update", Class::Update, Compute).unit(unit),
            Op::Update { unit, piece: Some(piece) } => it("update", Class::Update, Compute).unit(unit).piece(piece),
            Op::Fetch { unit, piece } => it("fetch", Class::Tier, Stream::Fetch).unit(unit).piece(piece),
            Op::Store { unit, piece } => it("store", Class::Tier, Stream::Store).unit(unit).piece(piece),
            Op::FetchSums { bucket, round } => it("fetch", Class::Tier, Stream::Fetch).bucket(bucket).round(round),
            Op::FetchShard { unit, slot } => it("fetch", Class::Tier, Stream::Fetch).unit(unit).slot(slot),
            Op::StoreSums { bucket, round } => it("store", Class::Tier, Stream::Store).bucket(bucket).round(round),
            Op::StoreActivations { unit, micro_batch, slot } => {
                it("store", Class::Tier, Stream::Store).unit(unit).micro_batch(micro_batch).slot(slot)
            }
            Op::FetchActivations { unit, micro_batch, slot } => {
                it("fetch", Class::Tier, Stream::Fetch).unit(unit).micro_batch(micro_batch).slot(slot)
            }
            Op::Offer { unit } => it("offer", Class::Tier, Compute).unit(unit),
            Op::StoreOffered { unit } => it("store", Class::Tier, Stream::Store).unit(unit),
        }
    }

    /// Whether it is the last op of a rank that reads a shard in the slot that it was fetched to, so that peers may count it.
    pub const fn leaves_fetched(self, config: &Config) -> bool {
        match self {
            Op::Gather { .. } => config.gathers_fetched(),
            Op::Offer { .. } => config.gathers_fetched() && config.fetches_published(),
            _ => false,
        }
    }

    /// The `name` of its [`OpTraits`].
    pub const fn name(self) -> &'static str {
        self.traits().name
    }

    /// The `class` of its [`OpTraits`].
    pub const fn class(self) -> Class {
        self.traits().class
    }

    /// The `unit` of its [`OpTraits`].
    pub const fn unit(self) -> Option<usize> {
        self.traits().unit
    }

    /// The `bucket` of its [`OpTraits`].
    pub const fn bucket(self) -> Option<usize> {
        self.traits().bucket
    }

    /// The `micro_batch` of its [`OpTraits`].
    pub const fn micro_batch(self) -> Option<usize> {
        self.traits().micro_batch
    }

    /// The `slot` of its [`OpTraits`].
    pub const fn slot(self) -> Option<usize> {
        self.traits().slot
    }

    /// The `round` of its [`OpTraits`].
    pub const fn round(self) -> Option<usize> {
        self.traits().round
    }
}

impl Parcel {
    /// The queue in which a parcel is received.
    const fn taken_in(self) -> Stream {
        match self {
            Parcel::Activations | Parcel::Gradients => Stream::Copy,
            Parcel::TiedGradients => Stream::Reduce,
            // Tied parameters are published like updated ones, and publications are counted in one order.
            Parcel::TiedParameters => Stream::Compute,
        }
    }

    /// The queue in which a parcel is sent.
    const fn sent_in(self) -> Stream {
        match self {
            Parcel::TiedGradients => Stream::Reduce,
            Parcel::Activations | Parcel::Gradients | Parcel::TiedParameters => Stream::Compute,
        }
    }
}
