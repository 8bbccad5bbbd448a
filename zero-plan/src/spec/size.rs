//! Sizes as people write them, `MiB(25)`, and their bytes. Never prints and never rounds.

use serde::{Deserialize, Serialize};

/// An amount of memory with the unit it was written in: powers of 1024 (`KiB`) or of 1000 (`KB`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Size {
    /// Bytes.
    B(u64),
    /// 1024 bytes.
    KiB(u64),
    /// 1024^2 bytes.
    MiB(u64),
    /// 1024^3 bytes.
    GiB(u64),
    /// 1024^4 bytes.
    TiB(u64),
    /// 1000 bytes.
    KB(u64),
    /// 1000^2 bytes.
    MB(u64),
    /// 1000^3 bytes.
    GB(u64),
    /// 1000^4 bytes.
    TB(u64),
}

impl Default for Size {
    fn default() -> Self {
        Self::B(0)
    }
}

impl Size {
    /// The names of all units.
    pub(super) const UNITS: [&str; 9] = ["B", "KiB", "MiB", "GiB", "TiB", "KB", "MB", "GB", "TB"];

    /// The size in bytes, or none if it does not fit 64 bits.
    pub const fn checked_bytes(self) -> Option<u64> {
        let (count, unit_bytes) = match self {
            Self::B(count) => (count, 1),
            Self::KiB(count) => (count, 1 << 10),
            Self::MiB(count) => (count, 1 << 20),
            Self::GiB(count) => (count, 1 << 30),
            Self::TiB(count) => (count, 1 << 40),
            Self::KB(count) => (count, 1_000),
            Self::MB(count) => (count, 1_000_000),
            Self::GB(count) => (count, 1_000_000_000),
            Self::TB(count) => (count, 1_000_000_000_000),
        };
        u64::checked_mul(count, unit_bytes)
    }

    /// The size in bytes.
    ///
    /// # Panics
    ///
    /// If it does not fit 64 bits; the sizes of a checked spec do.
    pub const fn bytes(self) -> u64 {
        self.checked_bytes().expect("the sizes of a checked spec fit 64 bits")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_follow_the_unit() {
        assert_eq!(Size::B(7).bytes(), 7);
        assert_eq!(Size::KiB(3).bytes(), 3072);
        assert_eq!(Size::MiB(25).bytes(), 26_214_400);
        assert_eq!(Size::GiB(1).bytes(), 1_073_741_824);
        assert_eq!(Size::TiB(1).bytes(), 1_099_511_627_776);
        assert_eq!(Size::KB(3).bytes(), 3_000);
        assert_eq!(Size::MB(25).bytes(), 25_000_000);
        assert_eq!(Size::GB(1).bytes(), 1_000_000_000);
        assert_eq!(Size::TB(1).bytes(), 1_000_000_000_000);
    }

    #[test]
    fn the_largest_size_that_fits_is_the_last() {
        let gib_max = u64::MAX >> 30;
        assert_eq!(Size::GiB(gib_max).checked_bytes(), Some(gib_max << 30));
        assert_eq!(Size::GiB(gib_max + 1).checked_bytes(), None);
    }
}
