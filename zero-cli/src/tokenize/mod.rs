//! Tokenize: documents in, a token file out. A command that was built without the libraries for it rebuilds itself with them.

mod arguments;
#[cfg(feature = "tokenize")]
mod documents;
#[cfg(feature = "tokenize")]
mod encode;
#[cfg(feature = "tokenize")]
mod encoder;
#[cfg(feature = "tokenize")]
mod pages;
#[cfg(feature = "tokenize")]
mod passed;
#[cfg(feature = "tokenize")]
mod record;
#[cfg(feature = "tokenize")]
mod table;

pub use arguments::TokenizeArguments;
#[cfg(feature = "tokenize")]
pub use encode::tokenize;
#[cfg(all(test, feature = "tokenize"))]
pub use {documents::DocumentsReader, passed::PassedRecords};

/// Tokenizes with a command that can.
#[cfg(not(feature = "tokenize"))]
pub fn tokenize(_: &TokenizeArguments) -> Result<(), crate::error::CommandError> {
    crate::rebuild::rebuild_with("tokenize", "tokenizers and Parquet")
}
