//! Relay: the places in host memory through which bytes pass on their way between a disk and a GPU, a part at a time. Each
//! direction takes turns with two parts: the disk works on one while the GPU copies the other. Never says when they travel.

use super::{Place, Places};
use crate::config::{Config, TierKind};
use crate::layout::{Home, Kind};
use crate::lines::{BLOCK_BYTES, round_up};
use crate::schedule::{Op, Stream};

/// The two streams whose ops move bytes between a tier and the device.
const STREAMS: usize = 2;

impl Config {
    /// Whether bytes pass through host memory, because a GPU cannot reach the disk that keeps them.
    pub const fn relays(&self) -> bool {
        self.device.has_streams() && self.offload.uses(TierKind::Disk)
    }

    /// The most bytes that pass at a time: whole blocks.
    pub const fn relayed_bytes(&self) -> usize {
        let piece = round_up(self.offload.piece_bytes, BLOCK_BYTES);
        if piece == 0 { BLOCK_BYTES } else { piece }
    }

    /// Bytes of the region: first a block of counts, by which the GPU and the threads of the disk wait for each other.
    pub(crate) const fn relay_bytes(&self) -> usize {
        if self.relays() { BLOCK_BYTES + STREAMS * Places::RELAY_TURNS * self.relayed_bytes() } else { 0 }
    }
}

impl Places<'_> {
    /// Parts that a direction takes turns with.
    pub const RELAY_TURNS: usize = 2;

    /// The counts: for each stream of a tier, a line for what the GPU has asked for and one for what the disk has done.
    pub const fn relay_counts(&self) -> Place {
        self.place(Kind::Relay, 0, BLOCK_BYTES)
    }

    /// A part of the relay, of one of the streams of a tier.
    pub const fn relay(&self, stream: Stream, turn: usize) -> Place {
        let bytes = self.tables.config.relayed_bytes();
        let before = if matches!(stream, Stream::Store) { Self::RELAY_TURNS } else { 0 };
        self.place(Kind::Relay, BLOCK_BYTES + (before + turn % Self::RELAY_TURNS) * bytes, bytes)
    }

    /// Whether bytes of this place pass through the relay.
    pub const fn is_relayed(&self, kept: Place) -> bool {
        self.tables.config.relays() && matches!(self.memory.region(kept.region).home, Home::Disk)
    }

    /// The parts of all trips of an op that pass through the relay, one after another.
    pub fn relayed_by(&self, op: Op) -> impl Iterator<Item = (Place, Place)> {
        self.trips(op).filter(|(kept, _)| self.is_relayed(*kept)).flat_map(|trip| self.relayed(trip))
    }

    /// The parts of a trip.
    pub fn relayed(&self, (kept, window): (Place, Place)) -> impl Iterator<Item = (Place, Place)> + use<> {
        let most = self.tables.config.relayed_bytes();
        (0..kept.len_bytes).step_by(most).map(move |start| {
            let len = most.min(kept.len_bytes - start);
            (kept.cut(start, len), window.cut(start, len))
        })
    }
}
