//! Disk: how fast a node writes and reads checkpoints, and how fast its ranks fetch and store states that are kept on its
//! disk. Never knows which ranks do so.

use serde::{Deserialize, Serialize};
use zero_plan::spec::Size;

/// The disk of a node, in bytes per second.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DiskRates {
    /// Rate at which a checkpoint is read.
    pub read: f64,
    /// Rate at which a checkpoint is written, including the flush.
    pub write: f64,
    /// Rates past the system's cache, at which states travel that are kept on the disk; `None` if they are not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub direct: Option<DirectRates>,
    /// Bytes that may be written to the disk in its life; `None` if that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endurance: Option<Size>,
}

/// Rates of direct reads and writes of some MiB each, in bytes per second. All ranks of a node share them.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DirectRates {
    /// Rate of reads while nothing is written.
    pub read: f64,
    /// Rate of writes while nothing is read.
    pub write: f64,
    /// The sum of both rates while the disk reads and writes; at most `read` + `write`. By default, that of a disk that does one
    /// of the two at a time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub both: Option<f64>,
    /// Seconds of a read or a write, in addition to those of its bytes.
    #[serde(default)]
    pub latency: f64,
}

impl DirectRates {
    /// The sum of both rates while the disk reads and writes.
    pub fn both(&self) -> f64 {
        self.both.unwrap_or(2.0 / (1.0 / self.read + 1.0 / self.write))
    }

    /// The rates of reads and of writes while the disk does both: half of the sum each, unless one of them cannot be so
    /// fast. The other then has the rest.
    pub fn at_once(&self) -> [f64; 2] {
        let Self { read, write, .. } = *self;
        let both = self.both();
        [read.min((both / 2.0).max(both - write)), write.min((both / 2.0).max(both - read))]
    }

    /// A disk that is this many times as fast, with the same latency.
    pub(crate) fn faster(&self, times: f64) -> Self {
        let Self { read, write, both, latency } = *self;
        Self { read: read * times, write: write * times, both: both.map(|both| both * times), latency }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_and_writes_share_what_a_disk_does_at_once() {
        let of = |read, write, both| DirectRates { read, write, both, latency: 0.0 };
        for (rates, at_once) in [
            (of(4.0, 4.0, Some(5.0)), [2.5, 2.5]),
            (of(4.0, 4.0, Some(8.0)), [4.0, 4.0]),
            // The slower direction does what it can.
            (of(1.0, 3.0, Some(3.0)), [1.0, 2.0]),
            (of(3.0, 1.0, Some(3.0)), [2.0, 1.0]),
            // One byte of each takes 1/6 + 1/3 of a second, one after the other.
            (of(6.0, 3.0, None), [2.0, 2.0]),
        ] {
            assert_eq!(rates.at_once(), at_once, "{rates:?}");
            assert_eq!(rates.faster(2.0).at_once(), at_once.map(|rate| 2.0 * rate), "{rates:?}");
        }
    }
}
