//! Token files: ids on disk with a header that says what they are. [`TokenFileWriter`] writes files of our own format;
//! those of llm.c can be read too. Never encodes text.
//!
//! A file of ours, all numbers little-endian:
//!
//! | bytes | what |
//! |---|---|
//! | 0..8 | `ZEROTOKS` |
//! | 8..12 | version, 1 |
//! | 12..16 | bytes of an id, 2 or 4 |
//! | 16..24 | vocabulary: every id is less |
//! | 24..32 | number of ids |
//! | 32..40 | number of documents |
//! | 40..72 | SHA-256 of the `tokenizer.json` |
//! | 72.. | the ids, then zeros up to a multiple of 8 |
//! | to the end | for each document the number of ids up to its end, 8 bytes each |

mod header;
#[cfg(test)]
mod tests;
mod writer;

pub(super) use header::{TokenHeader, recognise};
pub use writer::{TokenFileWriter, WrittenFile};

/// The first bytes of a hash for a message, as `sha256sum` prints them.
pub(super) fn short(hash: &[u8; 32]) -> String {
    hash[..6].iter().map(|byte| format!("{byte:02x}")).collect()
}
