//! Carried: bytes sent between devices that cannot reach each other's memory, and the communicator that carries them.
//! Never reads the bytes.

use std::time::Duration;

use super::{Device, DeviceError};
use crate::view::{View, ViewMut};

/// Ranks that exchange bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// All ranks of the group, in the same order on each.
    pub members: Vec<usize>,
    /// The index of this rank among the members.
    pub own: usize,
    /// The number of this group's name.
    pub name: usize,
    /// The roles of this rank in the group.
    pub parts: Vec<GroupPart>,
}

/// A role of a member of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupPart {
    /// It sends to all other members, and receives from each.
    Exchanges,
    /// It sends to the other member.
    Sends,
    /// It receives from the other member.
    Receives,
    /// It takes part in gathers of all members' bytes.
    Gathers,
}

/// Bytes sent to another member of a group, or received from other members.
pub enum Carried<'a, D: Device> {
    /// Bytes to send.
    Send {
        /// The member that receives the bytes.
        to: usize,
        /// The bytes.
        bytes: View<'a, D, u8>,
    },
    /// Bytes to receive.
    Receive {
        /// The member that sends the bytes.
        from: usize,
        /// The destination.
        bytes: ViewMut<'a, D, u8>,
    },
    /// All members gather the bytes of each member.
    Gather {
        /// The bytes of this rank.
        own: View<'a, D, u8>,
        /// The destination of all members' bytes, equally many from each, in the order of members. `own` may lie at its
        /// place there.
        all: ViewMut<'a, D, u8>,
    },
}

/// Asks whether a device should keep waiting, and passes how long it has slept since the last call.
pub type GoesOn<'a> = dyn Fn(Duration) -> bool + 'a;

/// Carries bytes between devices, as ops of their queues.
pub trait Communicator<D: Device> {
    /// Names for this many groups of ranks. One rank makes the names, all ranks receive them, and
    /// [`Communicator::connect`] joins the groups.
    ///
    /// # Errors
    /// If the device cannot reach other devices this way.
    fn name_groups(&self, count: usize) -> Result<Vec<u8>, DeviceError>;

    /// Joins groups of ranks, in the same order as their other members, so that [`Communicator::carry`] can carry bytes. It
    /// waits for those members as long as `goes_on` agrees, and passes it how long it has slept since it last asked.
    ///
    /// # Errors
    /// If the device cannot reach other devices this way, or the other members do not join.
    fn connect(&self, groups: &[Group], names: &[u8], goes_on: &GoesOn) -> Result<(), DeviceError>;

    /// Makes the queue do all these sends, receives and gathers at once, as one op, within the group that was joined
    /// with this number.
    ///
    /// # Safety
    /// Until the queue has done the op, nobody writes the bytes that are sent or touches the places that receive. All
    /// members of the group call this with matching sends and receives, in the same order for each pair of members.
    #[allow(unsafe_code)]
    unsafe fn carry(&self, group: usize, parcels: &mut dyn Iterator<Item = Carried<D>>, goes_on: &GoesOn);

    /// Leaves all groups. Exchanges that still wait for other members end, successful or not.
    fn disconnect(&self);
}
