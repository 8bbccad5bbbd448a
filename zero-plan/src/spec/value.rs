//! Value: the operations of the value of any key: reading it from text, and its number if it has one. Never knows its
//! key.

use std::ops::RangeInclusive;

use ron::error::Error;
use serde::de::DeserializeOwned;

use super::parse::ron;
use super::{ModelSource, RecomputedUnits, Schedule, Size, Stage, TransportKind, Units};
use crate::config::{DeviceKind, Often, OptimizerKind, TierKind, UpdatePlace, UpdateTime, Width};
use crate::mesh::Axis;

/// A value that can be read.
pub(super) trait Readable: Number {
    /// Reads it from RON. Refuses a number outside the range like a number that the type cannot hold.
    fn read(&mut self, text: &str, range: &RangeInclusive<u64>) -> Result<(), Error>;
}

impl<T: Number + DeserializeOwned> Readable for T {
    fn read(&mut self, text: &str, range: &RangeInclusive<u64>) -> Result<(), Error> {
        let value: T = ron().from_str(text).map_err(|error| error.code)?;
        if value.number().is_some_and(|number| !range.contains(&number)) {
            return Err(Error::IntegerOutOfBounds);
        }
        *self = value;
        Ok(())
    }
}

/// A value that may stand for a number, which is compared with the range of its key. Two spellings of one number agree.
pub(super) trait Number {
    /// The number; none if the value is more than a number.
    fn number(&self) -> Option<u64> {
        None
    }
}

impl Number for DeviceKind {}
impl Number for ModelSource {}
impl Number for Often {}
impl Number for OptimizerKind {}
impl Number for Schedule {}
impl Number for Stage {}
impl Number for String {}
impl Number for TierKind {}
impl Number for TransportKind {}
impl Number for Units {}
impl Number for UpdateTime {}
impl Number for UpdatePlace {}
impl Number for Width {}
impl Number for bool {}

impl Number for u32 {
    fn number(&self) -> Option<u64> {
        Some((*self).into())
    }
}

impl<T: Number> Number for Option<T> {
    fn number(&self) -> Option<u64> {
        self.as_ref().and_then(T::number)
    }
}

impl Number for Size {
    /// Bytes. A size that 64 bits cannot hold counts as 0 bytes, which is out of range too.
    fn number(&self) -> Option<u64> {
        Some(self.checked_bytes().unwrap_or(0))
    }
}

impl Number for RecomputedUnits {
    /// For a list of fields, 0 if it is empty and otherwise none.
    fn number(&self) -> Option<u64> {
        match self {
            Self::Every(units) => Some((*units).into()),
            Self::Fields(fields) => fields.is_empty().then_some(0),
        }
    }
}

impl Number for Vec<Axis> {
    /// A bit for each axis, because their order does not matter.
    fn number(&self) -> Option<u64> {
        Some(self.iter().fold(0, |axes, axis| axes | 1 << *axis as u32))
    }
}
