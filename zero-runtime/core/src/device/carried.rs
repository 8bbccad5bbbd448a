//! Carried: bytes that go from one device to another, where neither reaches the other's memory.

use super::Device;
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
