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
    /// What this rank does in it.
    pub part: GroupPart,
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
    /// It gathers what all have, as they do: see [`Device::all_gather`].
    Gathers,
}

/// Bytes to another member of a group, or from it.
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
}
