//! Word: an element of data, an id or a number: 4 bytes, so that code that holds data of any model need not know which.
//! Never holds a value.

use super::Activation;
use crate::checked::product;

/// An element of data.
pub trait Word: bytemuck::Pod {
    /// Its kind.
    const KIND: WordKind;
}

impl Word for u32 {
    const KIND: WordKind = WordKind::Id;
}

impl Word for f32 {
    const KIND: WordKind = WordKind::Number;
}

/// What a word of data is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WordKind {
    /// A u32.
    Id,
    /// An f32.
    Number,
}

/// The words of data for each token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenWords {
    /// Their number.
    pub count: usize,
    /// Their kind.
    pub kind: WordKind,
}

impl TokenWords {
    /// The words of an activation.
    pub const fn of<X: Activation>() -> Self {
        const { assert!(size_of::<X::Data>() == size_of::<u32>() && align_of::<X::Data>() == align_of::<u32>()) };
        Self { count: X::WIDTH, kind: <X::Data as Word>::KIND }
    }

    /// The bytes of this many tokens.
    pub const fn bytes(self, tokens: usize) -> usize {
        product(&[tokens, self.count, size_of::<u32>()])
    }
}
