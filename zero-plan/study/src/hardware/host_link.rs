//! Host link: how fast a device with its own memory reads and writes that of its host. Never knows what travels.

use serde::{Deserialize, Serialize};

use super::{DirectRates, one_device};

/// The link of a device to the memory of its host, in bytes per second, for memory that the system cannot move.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostLink {
    /// Rate from the host to the device while nothing goes back.
    pub read: f64,
    /// Rate from the device to the host while nothing goes the other way.
    pub write: f64,
    /// The sum of both rates while bytes go both ways; at most `read` + `write`, which is the default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub both: Option<f64>,
    /// Seconds of a copy, in addition to those of its bytes.
    #[serde(default)]
    pub latency: f64,
    /// Devices that share the link when all copy at once.
    #[serde(default = "one_device")]
    pub shared_by: usize,
}

impl HostLink {
    /// The rates of one device while all copy at once.
    pub fn of_device(&self) -> DirectRates {
        let Self { read, write, both, latency, shared_by } = *self;
        let share = |rate: f64| rate / shared_by as f64;
        DirectRates { read: share(read), write: share(write), both: Some(share(both.unwrap_or(read + write))), latency }
    }

    /// A link that is this many times as fast, with the same latency.
    pub(crate) fn faster(&self, times: f64) -> Self {
        Self { read: self.read * times, write: self.write * times, both: self.both.map(|both| both * times), ..*self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_that_share_a_link_have_their_part_of_it() {
        let link = HostLink { read: 8.0, write: 6.0, both: None, latency: 0.5, shared_by: 2 };
        assert_eq!(link.of_device(), DirectRates { read: 4.0, write: 3.0, both: Some(7.0), latency: 0.5 });
        let half = HostLink { both: Some(10.0), ..link };
        assert_eq!(half.of_device().at_once(), [2.5, 2.5]);
        assert_eq!(half.faster(2.0).of_device().at_once(), [5.0, 5.0]);
    }
}
