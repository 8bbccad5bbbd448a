//! Relay: passes bytes between a disk and a GPU through the memory of the host, a part at a time. In a pass, the queue of the
//! device and the thread of the tier wait for each other by two counts, so that a captured pass can do it too: the device asks
//! for the next parts, and the thread tells when each is done. Never decides what travels.
#![allow(unsafe_code)]

use std::sync::atomic::AtomicU32;

use zero_plan::place::{Place, Places};
use zero_plan::{Op, Stream};

use super::Engine;
use super::tier::TierOfRank;
use zero_core::device::Device;
use zero_core::lost::Lost;
use zero_core::tier::{After, Direction, Request};
use zero_core::transport::Transport;

/// Bytes between two counts.
const COUNT_BYTES: usize = 64;

const fn stream(direction: Direction) -> Stream {
    match direction {
        Direction::Fetch => Stream::Fetch,
        Direction::Store => Stream::Store,
    }
}

impl<'p, D: Device> TierOfRank<'p, D> {
    /// A request of the device for an order of a queue.
    fn request(&self, direction: Direction, number: u32) -> Request {
        // SAFETY: nothing is read or written here.
        let counts = unsafe { self.arena.bytes_mut(self.arena.places().relay_counts()) }.address();
        let count =
            |index: usize| counts.wrapping_add((2 * direction as usize + index) * COUNT_BYTES).cast_const().cast();
        Request { asked: count(0), done: count(1), number }
    }

    /// Lets the entered queue of the device, and the tier, move all parts of an op. Everything has arrived once the queue has
    /// done this.
    ///
    /// # Safety
    /// The op is the next of this rank's table, which has been proven, and its stream is entered.
    pub unsafe fn relay(&self, device: &D, direction: Direction, op: Op) {
        let places = self.arena.places();
        let first = self.given(direction).wrapping_add(1) as u32;
        let Some(last) = places.relayed_by(op).count().checked_sub(1) else { return };
        let request = |part: usize| self.request(direction, first.wrapping_add(part as u32));
        let counts = device.counts().expect("the counts of a device with queues");
        // SAFETY: counts are in the memory of the host, which the arena keeps.
        let count = |count: *const AtomicU32| unsafe { &*count };
        let tell = |part: usize| counts.tell(count(request(part).asked), request(part).number);
        let wait = |part: usize| counts.await_count(count(request(part).done), request(part).number);
        let turns = Places::RELAY_TURNS;
        if direction == Direction::Fetch {
            // All that this queue copied before has left the relay.
            tell(last.min(turns - 1));
        }
        for (part, (kept, window)) in places.relayed_by(op).enumerate() {
            let relay = places.relay(stream(direction), part).first(window.len_bytes);
            // SAFETY: by the caller's promise. The tier has the relay from the request to its answer, and the queue otherwise.
            unsafe {
                self.give(direction, &[self.transfer((kept, relay))], After::Request(request(part)));
                match direction {
                    Direction::Fetch => {
                        wait(part);
                        device.copy(self.arena.bytes_mut(window), self.arena.bytes(relay));
                        if part + turns <= last {
                            tell(part + turns);
                        }
                    }
                    Direction::Store => {
                        if let Some(before) = part.checked_sub(turns) {
                            wait(before);
                        }
                        device.copy(self.arena.bytes_mut(relay), self.arena.bytes(window));
                        tell(part);
                    }
                }
            }
        }
        if direction == Direction::Store {
            wait(last);
        }
    }

    /// Moves a trip between passes, part by part, and waits for it.
    ///
    /// # Safety
    /// No pass is under way, and nobody uses these places.
    pub(super) unsafe fn relay_now(&self, device: &D, direction: Direction, trip: (Place, Place)) -> Result<(), Lost> {
        let places = self.arena.places();
        for (kept, window) in places.relayed(trip) {
            let relay = places.relay(stream(direction), 0).first(window.len_bytes);
            let order = || {
                // SAFETY: by the caller's promise; the order ends before anybody touches these bytes.
                unsafe { self.give(direction, &[self.transfer((kept, relay))], After::Orders(0)) };
                self.wait_for_end(direction, self.given(direction))
            };
            // SAFETY: as above.
            let copy = |to: Place, from: Place| unsafe {
                device.copy(self.arena.bytes_mut(to), self.arena.bytes(from));
                // This waits for the copy.
                device.read(self.arena.bytes(relay.first(1)), &mut [0u8]);
            };
            match direction {
                Direction::Fetch => {
                    order()?;
                    copy(window, relay);
                }
                Direction::Store => {
                    copy(relay, window);
                    order()?;
                }
            }
        }
        Ok(())
    }

    /// Whether an order that the device has asked for is open. Without queues, the rank itself waits for all it orders.
    pub(super) fn owes(&self) -> bool {
        !D::QUEUES
            || Direction::ALL.into_iter().any(|direction| {
                // SAFETY: the counts are in the memory of the host, which the arena keeps.
                unsafe { self.request(direction, 0).is_open() }
            })
    }

    /// Lets the device go on in place of a tier that will not answer, so that it can be released. Nobody uses what it does then.
    pub(super) fn answer_device(&self) {
        if D::QUEUES {
            for direction in Direction::ALL {
                // SAFETY: the counts are in the memory of the host, which the arena keeps.
                unsafe { self.request(direction, self.given(direction) as u32).answer() };
            }
        }
    }
}

impl<'p, D: Device, T: Transport<'p, D>> Engine<'p, D, T> {
    /// Waits until the device has done all that it was asked for, and the tier all that the device asks of it.
    ///
    /// # Errors
    /// [`Lost`] if the device or the tier has failed, or another rank has ended.
    pub(super) fn finish(&mut self) -> Result<(), Lost> {
        if D::QUEUES
            && let Some(tier) = &self.tier
        {
            let device = &self.ranks.device;
            let ended = tier.end_pass(&|| device.failure().is_some());
            self.unless_tier_failed(ended)?;
        }
        self.require_device()?;
        self.ranks.finish()
    }

    /// Passes on what is known of the tier. If it has failed, the device may wait for it, and is let go on.
    pub(super) fn unless_tier_failed(&mut self, known: Result<(), Lost>) -> Result<(), Lost> {
        if D::QUEUES && known.is_err() {
            self.tier.iter().for_each(TierOfRank::answer_device);
            self.ranks.transport.give_up_device(&self.ranks.device);
        }
        known
    }

    /// Checks that nothing is known to have failed on the device.
    pub(super) fn require_device(&mut self) -> Result<(), Lost> {
        if self.ranks.device.failure().is_some() {
            self.tier.iter().for_each(TierOfRank::answer_device);
        }
        self.ranks.require_device()
    }
}
