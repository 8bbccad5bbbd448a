//! What a device asks of a plan: where places may begin, how long mappings are, whether its ops run in streams. Never
//! decides an order.

use super::{Config, Device};
use crate::footprint::PAGE_BYTES;
use crate::unit::{ALIGNMENT, LINE_BYTES, round_up};

/// What loads of a GPU and its libraries ask of an address at most.
const SEGMENT_BYTES: usize = 256;
/// Elements of the narrowest width that fill such a stretch.
const SEGMENT_ELEMENTS: usize = SEGMENT_BYTES / 2;
/// What memory of a GPU is mapped in.
const GRANULE_BYTES: usize = 2 << 20;
/// What a library of matrix products may split sums in.
const PRODUCT_BYTES: usize = 32 << 20;

impl Device {
    /// What every place and region begins at a multiple of, in bytes.
    pub const fn line_bytes(self) -> usize {
        match self {
            Device::Cpu => LINE_BYTES,
            Device::Cuda => SEGMENT_BYTES,
        }
    }

    /// What the parts of a flat buffer are whole multiples of, in elements.
    pub const fn alignment(self) -> usize {
        match self {
            Device::Cpu => ALIGNMENT,
            Device::Cuda => SEGMENT_ELEMENTS,
        }
    }

    /// What the mappings of its memory are whole multiples of, in bytes.
    pub const fn page_bytes(self) -> usize {
        match self {
            Device::Cpu => PAGE_BYTES,
            Device::Cuda => GRANULE_BYTES,
        }
    }

    /// What its library of matrix products works in besides the workspace of a layer, in bytes.
    pub const fn product_bytes(self) -> usize {
        match self {
            Device::Cpu => 0,
            Device::Cuda => PRODUCT_BYTES,
        }
    }

    /// Whether it does the ops of a rank behind the host's back, in [streams](crate::streams).
    pub const fn has_streams(self) -> bool {
        matches!(self, Device::Cuda)
    }
}

impl Config {
    /// So many bytes, and the rest of the last line.
    pub const fn whole_lines(&self, bytes: usize) -> usize {
        round_up(bytes, self.device.line_bytes())
    }

    /// Whether ops have streams. There a gather copies as soon as its slot is free, and a wait only makes layers wait for that;
    /// without streams, a wait is what copies.
    pub const fn has_streams(&self) -> bool {
        self.device.has_streams()
    }
}
