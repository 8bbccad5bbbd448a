//! Serve: the plan of a worker, which decodes several sequences at a time and learns nothing. Never says how requests reach it.

use serde::{Deserialize, Serialize};

use super::{Config, Precision, Recompute};

/// What a worker has room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Serve {
    /// Sequences that are decoded at a time, each with a cache of its own; 0 if the plan trains.
    pub slots: usize,
    /// Whether newer parameters arrive beside those in use.
    pub staged: bool,
}

impl Serve {
    /// A plan that trains.
    pub const NONE: Self = Self { slots: 0, staged: false };

    /// Whether the plan trains.
    pub const fn is_none(&self) -> bool {
        self.slots == 0
    }
}

impl Config {
    /// Whether it is the plan of a worker, which has no step.
    pub const fn serves(&self) -> bool {
        !self.serve.is_none()
    }

    /// Sequences that decoding has caches for.
    pub const fn slots(&self) -> usize {
        if self.serves() { self.serve.slots } else { 1 }
    }

    /// The plan of a worker for the model that this one trains: one rank with the parameters as layers read them. Its walks
    /// go forward only, so no unit keeps what it saves.
    pub const fn serving(&self, serve: Serve) -> Self {
        let Self { length, device, memory_bytes, host_bytes, .. } = *self;
        let compute = self.precision.compute;
        let precision = Precision { compute, params: compute, master: compute, ..Self::PLAIN.precision };
        let recompute = Recompute::Every(1);
        Self {
            precision,
            length,
            device,
            transport: device.transport(),
            memory_bytes,
            host_bytes,
            recompute,
            serve,
            ..Self::PLAIN
        }
    }
}
