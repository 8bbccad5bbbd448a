//! Wire: the documents that ranks send to readers, as JSON, and the limits of a request. `docs/publish.md` describes them.

use serde::{Deserialize, Serialize};

use blake3::Hash;

/// Bytes of a piece, each of which has its own hash.
pub const PIECE_BYTES: usize = 1 << 20;

/// Bytes of a hash.
pub const HASH_BYTES: usize = blake3::OUT_LEN;

/// The newest version, or another one: what a reader begins with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// The version.
    pub version: Version,
    /// Steps that its parameters have had.
    pub step: u64,
    /// The run.
    pub run: String,
    /// The hash of the bytes of the layout, in hexadecimal digits.
    pub layout: String,
    /// Bytes of a piece.
    pub piece_bytes: usize,
    /// For each rank, the hash of the bytes of its list of hashes, in hexadecimal digits.
    pub roots: Vec<String>,
}

/// A name for the parameters after a step of a run: `7-3f2a9c1d5e6f7081`. Another run, and this one after a resume, has other names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Version(pub String);

impl Version {
    /// The version after a step of a run.
    pub fn of(step: u64, run: &str) -> Self {
        Self(format!("{step}-{run}"))
    }

    /// The step, if it is a version of this run.
    pub fn step_in(&self, run: &str) -> Option<u64> {
        let (step, of) = self.0.split_once('-')?;
        if of == run { step.parse().ok() } else { None }
    }
}

/// What stays the same in all versions of a run: where each tensor lies, and the files beside the tensors.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layout {
    /// The name of the model.
    pub model: String,
    /// The type of all numbers, which are little-endian: `f32` or `bf16`.
    pub dtype: String,
    /// The ranks, in order.
    pub ranks: Vec<RankAddress>,
    /// The tensors.
    pub tensors: Vec<PublishedTensor>,
    /// The files beside them.
    pub files: Vec<FileEntry>,
}

/// Where a rank serves its bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankAddress {
    /// Its URL; none if it is on the host of rank 0, which a reader knows already.
    pub url: Option<String>,
    /// Its port.
    pub port: u16,
    /// Bytes that it serves of a version.
    pub bytes: usize,
}

/// A tensor, by its name on the Hugging Face hub.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PublishedTensor {
    /// The name.
    pub name: String,
    /// Its dims as published.
    pub shape: Vec<usize>,
    /// Whether its elements are served in the order of the transposed matrix.
    pub transposed: bool,
    /// Where its elements are: each element once, in order.
    pub parts: Vec<Part>,
}

/// Elements of a tensor that one rank serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// The rank.
    pub rank: usize,
    /// Where they begin in its bytes.
    pub offset: usize,
    /// The first, in the order in which they are served.
    pub start: usize,
    /// How many.
    pub len: usize,
}

/// A file beside the tensors.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileEntry {
    /// Its name.
    pub name: String,
    /// Its length.
    pub bytes: usize,
    /// Its hash, in hexadecimal digits.
    pub blake3: String,
}

/// A reader that joins.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Joining {
    /// Its name in reports.
    pub name: String,
}

/// The answer to a reader that joins.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Joined {
    /// By which it acknowledges and leaves.
    pub id: String,
    /// The newest version, if there is one.
    pub newest: Option<Version>,
}

/// What a reader says about a version.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Acknowledged {
    /// The version.
    pub version: Version,
    /// Why it was refused; none if it was applied.
    pub error: Option<String>,
}

/// The newest version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Newest {
    /// It, if there is one.
    pub newest: Option<Version>,
}

/// Why a request failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// A sentence.
    pub error: String,
    /// The newest version, if there is one.
    pub newest: Option<Version>,
}

/// Hexadecimal digits of the hash of some bytes.
pub fn hex_hash(bytes: &[u8]) -> String {
    blake3::hash(bytes).to_hex().to_string()
}

/// The hashes of the pieces of some bytes, one after another, as a rank serves them.
pub fn list(hashes: &[Hash]) -> Vec<u8> {
    hashes.iter().flat_map(|hash| hash.as_bytes()).copied().collect()
}
