//! Data: the sequences that a run trains on. A training sequence is a pure function of (seed, step, index). So every rank
//! draws its own sequences without asking another rank, any number of ranks trains on the same sequences, and a resumed
//! run continues where it was.
//!
//! Never knows ranks or devices, never allocates once a dataset is made, never prints.
//!
//! A dataset of your own:
//!
//! ```
//! use zero_files::data::{Dataset, Draw};
//! use zero_core::layer::{Features, Tokens};
//!
//! /// Tells which of two numbers is the larger.
//! struct Larger;
//!
//! impl Dataset for Larger {
//!     type Input = Features<2>;
//!     type Target = Tokens;
//!
//!     fn training(&self, draw: Draw, input: &mut [f32], targets: &mut [u32]) {
//!         for (row, (pair, target)) in input.chunks_exact_mut(2).zip(targets).enumerate() {
//!             let numbers = Draw { index: draw.hash() ^ row as u64, ..draw }.hash();
//!             let (first, second) = (numbers as u32, (numbers >> 32) as u32);
//!             pair.copy_from_slice(&[first as f32, second as f32]);
//!             *target = (second > first) as u32;
//!         }
//!     }
//!
//!     fn held_out(&self, index: usize, input: &mut [f32], targets: &mut [u32]) {
//!         // A step that no run reaches.
//!         self.training(Draw { seed: 0, step: u64::MAX, index: index as u64 }, input, targets);
//!     }
//!
//!     fn held_out_count(&self) -> usize {
//!         8
//!     }
//! }
//!
//! let (mut input, mut targets) = ([0.0; 6], [0; 3]);
//! Larger.training(Draw { seed: 0, step: 7, index: 1 }, &mut input, &mut targets);
//! assert_eq!(targets[2] == 1, input[5] > input[4]);
//! ```

mod bare;
mod beside;
mod contents;
mod corpus;
mod cut;
mod draw;
mod error;
mod kind;
mod long_word;
mod opened;
mod scan;
mod sequences;
mod speech;
mod split;
mod structured;
mod text;
// Not derived, because clap would take the docs of the variants, and show the whole help in its long form.
impl ValueEnum for DataAs {
    fn value_variants<'a>() -> &'a [Self] {
        &[DataAs::Text, DataAs::Bytes, DataAs::Ids, DataAs::Ids16, DataAs::Ids32]
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(PossibleValue::new(match self {
            DataAs::Text => "text",
            DataAs::Bytes => "bytes",
            DataAs::Ids => "ids",
            DataAs::Ids16 => "ids16",
            DataAs::Ids32 => "ids32",
        }))
    }
}

#[cfg(test)]
mod tiny_tokenizer;
mod tokenized;
mod tokenizer;
mod tokens;
mod tree;
#[cfg_attr(not(feature = "tokenizers"), path = "no_vocabulary.rs")]
mod vocabulary;
mod workspace;

pub use beside::{put_text_beside, text_beside, texts_beside};
pub use contents::{Contents, Skipped, TakenFiles};
pub use cut::Cuts;
pub use draw::Draw;
pub use error::DataError;
pub use long_word::{LongWord, encode_piece};
pub use opened::Changed;
pub use sequences::Sequences;
pub use speech::{Speech, Stops, is_text, text_ids};
pub use structured::{BEGINNING_BYTES, Structure};
pub use text::Text;
pub use text::require_fit;
pub use tokenizer::{TOKENIZER, TokenStream, Tokenizer};
pub use tokens::{TokenFileWriter, WrittenFile};
pub use tree::text_files;
pub use workspace::{WorkspaceText, workspace_text};

use clap::ValueEnum;
use clap::builder::PossibleValue;
use serde::Serialize;

use zero_core::layer::Activation;

/// Sequences to train on, and held-out ones to evaluate on. All have one length, which is fixed when the dataset is made.
pub trait Dataset: Sync {
    /// The input of the model.
    type Input: Activation;
    /// The targets of the model: [`zero_core::layer::Tokens`] if each token has a class, whose id is less than the head's
    /// number of classes, or [`zero_core::layer::Features`] if each token has numbers.
    type Target: Activation;

    /// One training sequence: `input` and `targets`, each (length, its WIDTH), are overwritten. Equal draws give equal
    /// sequences, in any process.
    fn training(
        &self,
        draw: Draw,
        input: &mut [<Self::Input as Activation>::Data],
        targets: &mut [<Self::Target as Activation>::Data],
    );

    /// Sequence `index`, less than [`Dataset::held_out_count`], of the held-out part, which no training sequence
    /// overlaps: `input` and `targets`, each (length, its WIDTH), are overwritten.
    fn held_out(
        &self,
        index: usize,
        input: &mut [<Self::Input as Activation>::Data],
        targets: &mut [<Self::Target as Activation>::Data],
    );

    /// Number of held-out sequences, 0 if nothing is held out.
    fn held_out_count(&self) -> usize;

    /// Bytes that it holds in memory, on each rank. They count against the budget of the spec, and a run that takes
    /// more than was declared ends with an error. A few MiB need not be counted.
    fn resident_bytes(&self) -> usize {
        0
    }

    /// Whether its sources are what they were when it was made. A run asks at the beginning of an epoch and of a checkpoint, and
    /// after a step that could not be done. So a dataset that can no longer read a sequence fills it with what no model takes,
    /// `u32::MAX` or NaN, and says here why: then the run writes a checkpoint of the step before, and ends with this error.
    ///
    /// # Errors
    /// The change.
    fn require_unchanged(&self) -> Result<(), DataError> {
        Ok(())
    }

    /// A description of its sources, which is printed before a run.
    fn contents(&self) -> Option<Contents> {
        None
    }

    /// What its ids stand for. If they are tokens, a run takes `--sample`, `--prompt` and `--tokenizer`, as it does for text.
    fn ids(&self) -> Ids<'_> {
        Ids::Other
    }
}

/// What the ids of a dataset stand for.
#[derive(Clone, Copy)]
pub enum Ids<'a> {
    /// Something other than tokens of a text; or there are no ids.
    Other,
    /// Tokens of a text, where each target is the next token: those of the tokenizer that the run is given or, without one,
    /// bytes.
    Tokens,
    /// Tokens of this tokenizer, whose memory the run counts.
    TokensOf(&'a Tokenizer),
}

/// How to read a file, whatever its name and content say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum DataAs {
    /// Text, even if it begins like JSON or CSV. In a directory, files that are not text are passed over.
    Text,
    /// Each byte is a token id; for a directory, each byte of all its files.
    Bytes,
    /// Little-endian token ids, each of two bytes, or of four if the vocabulary has more than 65,536.
    Ids,
    /// Each two bytes are a token id, little-endian.
    Ids16,
    /// Each four bytes are a token id, little-endian.
    Ids32,
}
