//! Contents: the sources of a dataset as text for a person: how much was read, of what kind, and what was left out. Never
//! reads a file.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;
use zero_plan::counted;
use zero_plan::footprint::DATA_BYTES;

/// Number of entries that were passed over, by reason.
pub type Skipped = BTreeMap<String, usize>;

/// Number of files of a directory that were taken, and the entries that were not.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TakenFiles {
    /// Files that were taken.
    pub files: usize,
    /// The files that were passed over.
    pub skipped: Skipped,
    /// Bytes of memory that a list of the files takes.
    #[serde(skip)]
    pub(super) index_bytes: usize,
}

impl TakenFiles {
    /// One file that was given by its own path.
    pub(super) fn one() -> Self {
        Self { files: 1, ..Self::default() }
    }

    /// Bytes of its list of files beyond the room that a plan has for data.
    pub(super) fn resident_bytes(&self) -> usize {
        self.index_bytes.saturating_sub(DATA_BYTES)
    }

    /// One more entry was passed over.
    pub(super) fn skip(&mut self, reason: &str) {
        *self.skipped.entry(reason.to_owned()).or_default() += 1;
    }

    /// Each reason with its count; "nothing" where there is none.
    pub(super) fn list(&self) -> String {
        let reasons: Vec<String> = self.skipped.iter().map(|(reason, count)| format!("{reason}: {count}")).collect();
        if reasons.is_empty() { "nothing".to_owned() } else { reasons.join(", ") }
    }
}

impl fmt::Display for TakenFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&counted(self.files, "file", "files"))?;
        if self.skipped.is_empty() { Ok(()) } else { write!(f, "\n  skipped: {}", self.list()) }
    }
}

/// The data on which a run trains.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Contents {
    /// Where it comes from, as errors name it.
    pub origin: String,
    /// The files. None for text in memory.
    #[serde(flatten)]
    pub taken: Option<TakenFiles>,
    /// All tokens.
    pub tokens: usize,
    /// Tokens of the sequences that are held out, each with one more to predict.
    pub held_out_tokens: usize,
    /// Sequences that are held out.
    pub held_out_sequences: usize,
    /// The ids of the model, if bytes are taken for ids and the model has many more.
    #[serde(skip)]
    pub bytes_of: Option<usize>,
}

impl fmt::Display for Contents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "data: {}", self.origin)?;
        if let Some(taken) = &self.taken {
            write!(f, ", {}", counted(taken.files, "file", "files"))?;
        }
        let sequences = counted(self.held_out_sequences, "sequence", "sequences");
        write!(f, ", {} tokens, {} of them held out as {sequences}", self.tokens, self.held_out_tokens)?;
        if let Some(taken) = self.taken.as_ref().filter(|taken| !taken.skipped.is_empty()) {
            write!(f, "\n  skipped: {}", taken.list())?;
        }
        let note =
            |ids| write!(f, "\n  note: without --tokenizer each byte is a token id, and the model has {ids} of them");
        self.bytes_of.map_or(Ok(()), note)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contents_are_told_with_what_was_skipped_and_why() {
        let mut taken = TakenFiles::one();
        let held_out = |taken| Contents {
            origin: "`text`".to_owned(),
            taken,
            tokens: 100,
            held_out_tokens: 17,
            held_out_sequences: 1,
            bytes_of: None,
        };
        let told = |taken: &TakenFiles| held_out(Some(taken.clone())).to_string();
        assert_eq!(told(&taken), "data: `text`, 1 file, 100 tokens, 17 of them held out as 1 sequence");
        ["hidden", ".npy (an array)", "hidden"].into_iter().for_each(|reason| taken.skip(reason));
        taken.files = 2;
        let expected = "data: `text`, 2 files, 100 tokens, 17 of them held out as 1 sequence\n  \
                        skipped: .npy (an array): 1, hidden: 2";
        assert_eq!(told(&taken), expected);
        assert_eq!(held_out(None).to_string(), "data: `text`, 100 tokens, 17 of them held out as 1 sequence");
    }
}
