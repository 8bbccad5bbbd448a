//! Publish: the copies of parameters that readers outside of the run can have while training goes on. Never says where they
//! lie.

use serde::{Deserialize, Serialize};

use super::{Config, Width};

/// What each rank copies of its parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Publish {
    /// The type in which they are published.
    pub dtype: Width,
    /// Copies that there is room for; 0 if nothing is published. Versions take turns with them.
    pub copies: usize,
}

impl Publish {
    /// Nothing is published.
    pub const NONE: Self = Self { dtype: Width::F32, copies: 0 };

    /// Whether nothing is published.
    pub const fn is_none(&self) -> bool {
        self.copies == 0
    }
}

impl Config {
    /// Whether ranks copy parameters for readers.
    pub const fn publishes(&self) -> bool {
        !self.publish.is_none()
    }

    /// Whether they copy the parameters that the optimizer updates, because those that layers read have fewer bits than are published.
    pub const fn publishes_master(&self) -> bool {
        self.precision.has_master_copy() && self.publish.dtype.bytes() > self.precision.params.bytes()
    }

    /// Whether the shards that a rank copies come from a tier first.
    pub const fn fetches_published(&self) -> bool {
        self.publishes() && self.offloads_parameters() && !self.publishes_master()
    }

    /// Whether copies lie in the memory of the host, which the device takes them to while the next step has begun. What it offers
    /// waits for that in a window.
    pub const fn stores_published(&self) -> bool {
        self.publishes() && self.device.has_streams()
    }

    /// Elements of a copy of this many elements. Each copy begins on a line.
    pub const fn copy_of(&self, elements: usize) -> usize {
        let element = self.publish.dtype.bytes();
        self.whole_lines(elements * element) / element
    }

    /// Elements of the region for all copies of this many elements. If a device takes them there, a line follows in which it says how
    /// many have arrived.
    pub const fn copies_of(&self, elements: usize) -> usize {
        let line = if self.stores_published() { self.copy_of(1) } else { 0 };
        self.publish.copies * self.copy_of(elements) + line
    }

    /// Whether a spec may publish beside its other keys: otherwise it is refused (Z0114).
    pub const fn can_publish(&self) -> bool {
        self.publish.is_none() || !self.publishes_master() || !self.offloads_optimizer()
    }
}
