//! Carried: what goes from a device to another, where neither reaches memory of the other.

use super::Device;
use crate::view::{View, ViewMut};

/// Ranks that exchange bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// All of them, in an order that is the same for each.
    pub members: Vec<usize>,
    /// Which of them this rank is.
    pub own: usize,
    /// Which of the names this group has.
    pub name: usize,
    /// All that this rank does in it.
    pub parts: Vec<GroupPart>,
}

/// What a member of a group does there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupPart {
    /// It gives all others something, and takes something of each.
    Exchanges,
    /// It gives the other one something.
    Sends,
    /// It takes something of the other one.
    Receives,
    /// It gathers what all have, as they do.
    Gathers,
}

/// Bytes to another member of a group, or from others.
pub enum Carried<'a, D: Device> {
    /// These leave.
    Send {
        /// Which member gets them.
        to: usize,
        /// What it gets.
        bytes: View<'a, D, u8>,
    },
    /// These come.
    Receive {
        /// Which member they come from.
        from: usize,
        /// Where they go.
        bytes: ViewMut<'a, D, u8>,
    },
    /// All members gather what each has.
    Gather {
        /// What this rank has.
        own: View<'a, D, u8>,
        /// Where as much of each member goes, in their order. What this rank has may lie at its place there.
        all: ViewMut<'a, D, u8>,
    },
}
