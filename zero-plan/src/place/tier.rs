//! Tier: where pieces of states are kept, and where they are worked on. Never says when they travel.

use super::{Place, Places, State, Stretch};
use crate::layout::{Bucket, Kind};
use crate::lines::{BLOCK_BYTES, BLOCK_ELEMENTS, STEP_WORDS, round_up};
use crate::schedule::{Op, Piece};

/// What can be kept in a tier, and travels in pieces. Each piece of a unit has its own part of all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// A state that lasts from one step to the next.
    State(State),
    /// Summed gradients, which last from the backward to the update.
    Sums,
}

impl Kept {
    /// All of it.
    pub const ALL: [Kept; 5] = [
        Kept::State(State::Parameters),
        Kept::State(State::Master),
        Kept::State(State::FirstMoment),
        Kept::State(State::SecondMoment),
        Kept::Sums,
    ];
}

/// A piece of one of them: its elements, where it is kept, and where it is worked on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PieceOfState {
    /// What it is a part of.
    pub of: Kept,
    /// Its elements, in the flat buffer of the unit.
    pub stretch: Stretch,
    /// Its place in the tier.
    pub kept: Place,
    /// Its place in the window.
    pub window: Place,
}

impl PieceOfState {
    /// The places in the tier and in the window between which bytes travel: whole blocks, the last of which may end
    /// after the piece.
    pub const fn blocks(&self) -> (Place, Place) {
        let len_bytes = round_up(self.kept.len_bytes, BLOCK_BYTES);
        (Place { len_bytes, ..self.kept }, Place { len_bytes, ..self.window })
    }
}

impl Places<'_> {
    /// The elements of a piece, counted from the start of what this rank owns of a unit.
    pub const fn piece(&self, unit: usize, index: usize) -> Stretch {
        let (most, len) = (self.tables.config.piece_elements(), self.owned(unit).len);
        let start = index * most;
        assert!(start < len, "a piece beyond the end of its unit");
        Stretch { start, len: if len - start < most { len - start } else { most } }
    }

    /// The part of a place that a piece covers, if the place has what this rank owns of a unit.
    pub const fn of_piece(&self, place: Place, unit: usize, index: usize) -> Place {
        let Stretch { start, len } = self.piece(unit, index);
        let element = place.len_bytes / self.owned(unit).len;
        place.cut(start * element, len * element)
    }

    /// The place of a state in a slot of the window; none if it is not worked on there. Like the moments themselves,
    /// all first moments lie before all second ones.
    pub const fn window_slot(&self, kept: Kept, slot: usize) -> Option<Place> {
        let window = match kept {
            Kept::State(State::Parameters) => Kind::ParametersWindow,
            Kept::State(State::Master) => Kind::MasterWindow,
            Kept::State(State::FirstMoment | State::SecondMoment) => Kind::OptimizerWindow,
            Kept::Sums => Kind::SumsWindow,
        };
        let bytes = self.memory.region(window).bytes;
        let place = self.place(window, slot * self.memory.window_slot, self.memory.window_slot);
        let before = if let Kept::State(State::SecondMoment) = kept { bytes / 2 } else { 0 };
        if bytes > 0 { Some(Place { offset_bytes: before + place.offset_bytes, ..place }) } else { None }
    }

    /// The stretch of a unit's flat buffer of which this rank has a state or sums, and the place where they are kept; none
    /// if there are none, or if sums stay on the device.
    pub const fn kept(&self, kept: Kept, unit: usize) -> Option<(Stretch, Place)> {
        let is_here =
            self.tables.placements[unit].pipeline_stage == self.at.pipeline && self.tables.units[unit].params > 0;
        match kept {
            Kept::State(state) => self.state(state, unit),
            Kept::Sums if is_here && self.tables.config.offloads_gradients() => {
                let owned = self.owned(unit);
                Some((owned, self.place(Kind::Sums, self.kept_sums_start(unit), owned.len)))
            }
            Kept::Sums => None,
        }
    }

    /// A piece of what is kept in a tier and comes to the device; none if this rank has no such state, has it on the device, or
    /// works on it in the tier.
    pub const fn piece_of(&self, of: Kept, unit: usize, piece: Piece) -> Option<PieceOfState> {
        if self.tables.config.updates_on_host() {
            return None;
        }
        let (Some((owned, place)), Some(slot)) = (self.kept(of, unit), self.window_slot(of, piece.slot)) else {
            return None;
        };
        let part = self.piece(unit, piece.index);
        let stretch = Stretch { start: owned.start + part.start, len: part.len };
        let kept = self.of_piece(place, unit, piece.index);
        Some(PieceOfState { of, stretch, kept, window: slot.first(kept.len_bytes) })
    }

    /// The places in the memory of the host and on the device between which a piece of sums or of parameters travels, if the
    /// host updates it and the device has it; otherwise none.
    pub const fn handed_over(&self, of: Kept, unit: usize, piece: Piece) -> Option<(Place, Place)> {
        let config = self.tables.config;
        let here = match of {
            Kept::Sums if config.updates_on_host() && !config.offloads_gradients() => self.sums(unit),
            Kept::State(State::Parameters) if config.takes_back_pieces() => self.updated(unit),
            _ => return None,
        };
        let here = self.of_piece(here, unit, piece.index);
        match self.window_slot(of, piece.slot) {
            Some(slot) => Some((slot.first(here.len_bytes), here)),
            None => None,
        }
    }

    /// Where an update works on a piece: in the window, or where the piece is kept; none if this rank has no such state.
    pub const fn worked_on(&self, of: Kept, unit: usize, piece: Piece) -> Option<Place> {
        if let Some((there, _)) = self.handed_over(of, unit, piece) {
            return Some(there);
        }
        if let Some(part) = self.piece_of(of, unit, piece) {
            return Some(part.window);
        }
        let place = match of {
            Kept::Sums if !self.tables.config.offloads_gradients() => self.sums(unit),
            // Below stage 3, the state is all that the rank stores, and more than it updates.
            Kept::State(State::Parameters) => self.updated(unit),
            _ => match self.kept(of, unit) {
                Some((_, place)) => place,
                None => return None,
            },
        };
        Some(self.of_piece(place, unit, piece.index))
    }

    /// The settings and the report of a step, if an update on the host reads them.
    pub const fn step_words(&self) -> Place {
        let words = if self.tables.config.updates_on_host() { STEP_WORDS } else { 0 };
        self.place(Kind::StepWords, 0, words * size_of::<u64>())
    }

    /// All that an update on the host needs of the device: sums, and parameters of which the host has no master copy.
    pub(super) fn given_to_host(&self, unit: usize, piece: Piece) -> impl Iterator<Item = (Kept, Place, Place)> {
        let has_copy = self.tables.config.precision.has_master_copy();
        let needs = move |of: &Kept| *of == Kept::Sums || !has_copy;
        let each = move |of| self.handed_over(of, unit, piece).map(|(there, here)| (of, there, here));
        Kept::ALL.into_iter().filter(needs).filter_map(each)
    }

    /// All states of a piece that are fetched.
    pub fn states_of(&self, unit: usize, piece: Piece) -> impl Iterator<Item = PieceOfState> {
        Kept::ALL.into_iter().filter_map(move |of| self.piece_of(of, unit, piece))
    }

    /// Those that an update changes, so that they are stored.
    pub fn updated_states_of(&self, unit: usize, piece: Piece) -> impl Iterator<Item = PieceOfState> {
        self.states_of(unit, piece).filter(|part| part.of != Kept::Sums)
    }

    /// The places outside of the device and on it between which an op moves bytes, at most one for each state.
    pub fn trips(&self, op: Op) -> impl Iterator<Item = (Place, Place)> {
        let (mut fetched, mut stored, mut given, mut whole) = (None, None, None, None);
        let on_host = self.tables.config.updates_on_host();
        match op {
            Op::Fetch { unit, piece } if on_host => {
                whole = self.handed_over(Kept::State(State::Parameters), unit, piece)
            }
            Op::Store { unit, piece } if on_host => given = Some((unit, piece)),
            Op::Fetch { unit, piece } => fetched = Some((unit, piece)),
            Op::Store { unit, piece } => stored = Some((unit, piece)),
            Op::FetchSums { bucket, .. } | Op::StoreSums { bucket, .. } => {
                whole = Some((self.kept_sums(bucket), self.sums_in_turn(bucket)));
            }
            Op::FetchShard { unit, slot } => whole = Some(self.shard_blocks(unit, slot)),
            Op::FetchActivations { unit, slot, .. } | Op::StoreActivations { unit, slot, .. } => {
                whole = self.activation_blocks(unit, slot);
            }
            _ => {}
        }
        let fetched = fetched.into_iter().flat_map(|(unit, piece)| self.states_of(unit, piece));
        let stored = stored.into_iter().flat_map(|(unit, piece)| self.updated_states_of(unit, piece));
        let given = given.into_iter().flat_map(|(unit, piece)| self.given_to_host(unit, piece));
        fetched.chain(stored).map(|part| part.blocks()).chain(given.map(|(_, there, here)| (there, here))).chain(whole)
    }

    /// The place of a shard that was fetched into a slot, to be gathered.
    pub const fn fetched_shard(&self, unit: usize, slot: usize) -> Place {
        let len = self.placement(unit).padded / self.tables.config.mesh.zero;
        Place { len_bytes: Kind::Shards.bytes(self.tables.config, len), ..self.shard_slot(slot) }
    }

    /// This rank's shard as a gather gives it to a slot in common: where it is kept, or from the slot that it was fetched to.
    pub const fn given_shard(&self, unit: usize, slot: usize) -> Place {
        if self.tables.config.offloads_parameters() { self.fetched_shard(unit, slot) } else { self.shard(unit) }
    }

    /// This rank's shard as others gather it into `slot`: where it is kept, or where it was fetched to for that.
    pub const fn sent_shard(&self, unit: usize, slot: usize) -> Place {
        if self.tables.config.gathers_fetched() { self.fetched_shard(unit, slot) } else { self.shard(unit) }
    }

    /// Slots for fetched shards.
    pub const fn shard_slots(&self) -> usize {
        match self.place(Kind::Shards, 0, self.memory.shard_slot).len_bytes {
            0 => 0,
            bytes => self.memory.region(Kind::Shards).bytes / bytes,
        }
    }

    /// A whole slot for fetched shards.
    pub const fn shard_slot(&self, slot: usize) -> Place {
        self.place(Kind::Shards, slot * self.memory.shard_slot, self.memory.shard_slot)
    }

    /// The blocks of a shard where it is kept, and in the slot.
    pub const fn shard_blocks(&self, unit: usize, slot: usize) -> (Place, Place) {
        let (kept, fetched) = (self.shard(unit), self.fetched_shard(unit, slot));
        let len_bytes = round_up(kept.len_bytes, BLOCK_BYTES);
        (Place { len_bytes, ..kept }, Place { len_bytes, ..fetched })
    }

    /// The blocks of the activations of a unit in their tier and in the place that it takes in turn; none if they stay on
    /// the device.
    pub const fn activation_blocks(&self, unit: usize, slot: usize) -> Option<(Place, Place)> {
        let Some(start) = self.placement(unit).stored_bytes else { return None };
        let output = self.output(unit, slot, 0);
        let first =
            if self.tables.config.recomputes(self.tables.units, unit) { output } else { self.saved(unit, slot) };
        let len = round_up(output.end_bytes() - first.offset_bytes, BLOCK_BYTES);
        let (kept, here) = (Kind::StoredActivations, first.region);
        Some((self.place(kept, start, len), self.place(here, first.offset_bytes, len)))
    }

    /// The sums of a bucket where they are kept, if that is in a tier: whole blocks, with gaps between units.
    pub const fn kept_sums(&self, bucket: usize) -> Place {
        let (start, len) = self.kept_sums_of(bucket);
        self.place(Kind::Sums, start, len)
    }

    /// The same blocks in the slot in which these sums are made.
    pub const fn sums_in_turn(&self, bucket: usize) -> Place {
        self.place(Kind::Reduced, self.slot_start(bucket), self.kept_sums_of(bucket).1)
    }

    /// Where the sum of a unit begins in that slot, in elements of its region. A bucket without parameters has no slot, so
    /// its empty sums begin with the region.
    pub(super) const fn sum_in_turn(&self, unit: usize) -> usize {
        let bucket = self.tables.placements[unit].bucket;
        match self.tables.buckets[bucket].sums {
            Some(_) => self.slot_start(bucket) + self.kept_sums_start(unit) - self.kept_sums_of(bucket).0,
            None => 0,
        }
    }

    /// Where the slot of a bucket begins. One without parameters has none, so its empty sums lie in the first.
    const fn slot_start(&self, bucket: usize) -> usize {
        match self.tables.buckets[bucket].sums {
            Some(slot) => slot * self.memory.sum_slot,
            None => 0,
        }
    }

    /// Where the sums of a bucket begin in their tier, and their length, in elements.
    const fn kept_sums_of(&self, bucket: usize) -> (usize, usize) {
        let Bucket { first, last, .. } = self.tables.buckets[bucket];
        let (start, end) = (self.kept_sums_start(first), self.kept_sums_start(last) + self.owned(last).len);
        (start, round_up(end, BLOCK_ELEMENTS) - start)
    }

    /// Where the sums of a unit begin in their tier, in elements.
    const fn kept_sums_start(&self, unit: usize) -> usize {
        self.tables.kept_start(unit, self.tables.placements[unit].start / self.tables.config.mesh.zero)
    }
}
