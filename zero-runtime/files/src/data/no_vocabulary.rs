//! No vocabulary: the same calls in a program without the library, whose values cannot exist. Never returns from one.

use super::cut::{Cuts, PlacedIds};

/// Whether this program can read a `tokenizer.json`.
pub(super) const IS_THERE: bool = false;

pub(super) enum Vocabulary {}

pub(super) struct Unencoded {
    pub byte: usize,
    pub what: String,
}

impl Vocabulary {
    pub(super) fn parse(_: &str) -> Result<Self, String> {
        Err("cannot be read by this program".to_owned())
    }

    pub(super) fn ids(&self) -> usize {
        match *self {}
    }

    pub(super) fn encode(&self, _: &str) -> Result<Vec<u32>, Unencoded> {
        match *self {}
    }

    pub(super) fn decode(&self, _: &[u32]) -> String {
        match *self {}
    }

    pub(super) fn id(&self, _: &str) -> Option<u32> {
        match *self {}
    }

    pub(super) fn encode_with_places(&self, _: &str) -> Result<PlacedIds, Unencoded> {
        match *self {}
    }

    pub(super) fn cuts(&self) -> Option<Cuts> {
        match *self {}
    }
}
