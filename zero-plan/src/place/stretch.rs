//! Stretch: bytes of a region, and elements of a flat buffer, from a start on. Never knows whose they are.

use crate::layout::Kind;

/// A stretch of a region of one rank's arena. Memory that ranks hold in common is one region, which begins with the
/// share of the first of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    /// The region.
    pub region: Kind,
    /// Start within the region, in bytes.
    pub offset_bytes: usize,
    /// Length, in bytes.
    pub len_bytes: usize,
}

impl Place {
    /// Part `index` of `parts` equal ones.
    pub const fn share(self, index: usize, parts: usize) -> Self {
        let len_bytes = self.len_bytes / parts;
        Self { offset_bytes: self.offset_bytes + index * len_bytes, len_bytes, ..self }
    }

    /// The `len_bytes` that begin at `start_bytes`.
    pub const fn cut(self, start_bytes: usize, len_bytes: usize) -> Self {
        assert!(start_bytes + len_bytes <= self.len_bytes, "a cut beyond the place");
        Self { offset_bytes: self.offset_bytes + start_bytes, len_bytes, ..self }
    }

    /// The first `len_bytes` of it.
    pub const fn first(self, len_bytes: usize) -> Self {
        self.cut(0, len_bytes)
    }

    /// Where it ends in its region.
    pub const fn end_bytes(self) -> usize {
        self.offset_bytes + self.len_bytes
    }

    /// Whether it has no byte in common with `other`.
    pub const fn is_apart_from(self, other: Self) -> bool {
        self.region as usize != other.region as usize
            || self.end_bytes() <= other.offset_bytes
            || other.end_bytes() <= self.offset_bytes
    }
}

/// A stretch of the flat buffer of a unit, in elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Stretch {
    /// Its first element.
    pub start: usize,
    /// Number of elements.
    pub len: usize,
}

impl Stretch {
    /// Its elements.
    pub const fn elements(self) -> core::ops::Range<usize> {
        self.start..self.start + self.len
    }
}
