//! Carried: bytes that go from one device to another, where neither reaches the other's memory, and what carries them. Never
//! reads them.

use std::time::Duration;

use super::{Device, DeviceError};
use crate::view::{View, ViewMut};

/// Ranks that exchange bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// All of them, in an order that is the same for each.
    pub members: Vec<usize>,
    /// The place of this rank among them.
    pub own: usize,
    /// The number of this group's name.
    pub name: usize,
    /// The roles that this rank has in it.
    pub parts: Vec<GroupPart>,
}

/// A role of a member of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupPart {
    /// It sends to all others, and receives from each.
    Exchanges,
    /// It sends to the other member.
    Sends,
    /// It receives from the other member.
    Receives,
    /// It gathers what all members have, as they do.
    Gathers,
}

/// Bytes that go to another member of a group, or come from others.
pub enum Carried<'a, D: Device> {
    /// These leave.
    Send {
        /// The member that gets them.
        to: usize,
        /// The bytes.
        bytes: View<'a, D, u8>,
    },
    /// These come.
    Receive {
        /// The member that they come from.
        from: usize,
        /// Where they go.
        bytes: ViewMut<'a, D, u8>,
    },
    /// All members gather what each has.
    Gather {
        /// The bytes of this rank.
        own: View<'a, D, u8>,
        /// Where the bytes of all members go, equally many of each, in the order of members. `own` may lie at its place
        /// there.
        all: ViewMut<'a, D, u8>,
    },
}

/// Asks whether a device should keep waiting, and passes how long it has slept since the last call.
pub type GoesOn<'a> = dyn Fn(Duration) -> bool + 'a;

/// What carries bytes between devices, as ops of their queues.
pub trait Communicator<D: Device> {
    /// Names for this many groups of ranks. One rank makes them, all ranks receive them, and [`Communicator::connect`] joins
    /// groups by them.
    ///
    /// # Errors
    /// If the device cannot reach others so.
    fn name_groups(&self, count: usize) -> Result<Vec<u8>, DeviceError>;

    /// Joins groups of ranks, in the same order as their other members, so that [`Communicator::carry`] can carry bytes. It
    /// waits for those members as long as `goes_on` agrees, and passes it how long it has slept since it last asked.
    ///
    /// # Errors
    /// If the device cannot reach others this way, or they do not come.
    fn connect(&self, groups: &[Group], names: &[u8], goes_on: &GoesOn) -> Result<(), DeviceError>;

    /// Makes the queue send, receive and gather all these at once, as one op, within the group that was joined with
    /// this number.
    ///
    /// # Safety
    /// Until the queue has done it, nobody writes the bytes that are sent or touches the places that receive. All members
    /// of the group call this with matching sends and receives, in the same order for each pair of members.
    #[allow(unsafe_code)]
    unsafe fn carry(&self, group: usize, parcels: &mut dyn Iterator<Item = Carried<D>>, goes_on: &GoesOn);

    /// Leaves all groups. Exchanges that still wait for others end, successful or not.
    fn disconnect(&self);
}
