//! Header: the tensors that a safetensors file declares, once the whole header is known to match the file. Never reads
//! an element, and allocates no more than the header's length, times a small constant.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Read};

use safetensors::Dtype;
use serde::Deserialize;
use serde::de::value::StrDeserializer;
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// The bytes that hold the length of the header.
pub(crate) const LENGTH_BYTES: u64 = 8;
/// The longest header, as in the crate `safetensors`.
const HEADER_BYTES_MAX: u64 = 100_000_000;
/// The most dims of a tensor.
const DIMS_MAX: usize = 8;
/// The name under which a header keeps data other than tensors.
const METADATA: &str = "__metadata__";

/// A tensor of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorEntry {
    /// The type of its elements.
    pub dtype: Dtype,
    /// Its dims.
    pub shape: Vec<usize>,
    /// Where its bytes begin in the file.
    pub start_bytes: u64,
}

/// The tensors of a file, by name, and the bytes of its header.
#[derive(Debug)]
pub struct FileHeader {
    /// All tensors.
    pub entries: BTreeMap<String, TensorEntry>,
    /// The header as it lies in the file.
    pub bytes: Vec<u8>,
}

/// Why a header was not read.
#[derive(Debug)]
pub enum HeaderError {
    /// The file could not be read.
    Io(io::Error),
    /// The header is malformed; this text follows the name of the file.
    Malformed(String),
}

impl From<io::Error> for HeaderError {
    fn from(error: io::Error) -> Self {
        HeaderError::Io(error)
    }
}

fn malformed<T>(what: impl Into<String>) -> Result<T, HeaderError> {
    Err(HeaderError::Malformed(what.into()))
}

/// Reads the header of a file of `file_bytes` bytes.
///
/// # Errors
/// If the file cannot be read, or if its header does not match it: tensors must lie one after another without holes, as
/// long as their type and shape say, to the end of the file.
pub fn read(file: &mut impl Read, file_bytes: u64) -> Result<FileHeader, HeaderError> {
    if file_bytes < LENGTH_BYTES {
        return malformed(format!(
            "has {file_bytes} bytes, expected at least {LENGTH_BYTES} for the length of its header"
        ));
    }
    let mut length = [0; LENGTH_BYTES as usize];
    file.read_exact(&mut length)?;
    let length = u64::from_le_bytes(length);
    let left = file_bytes - LENGTH_BYTES;
    if length > HEADER_BYTES_MAX.min(left) {
        return malformed(format!(
            "says that its header has {length} bytes, expected at most {HEADER_BYTES_MAX} and no more than the {left} that \
             follow"
        ));
    }
    let mut bytes = vec![0; length as usize];
    file.read_exact(&mut bytes)?;
    let raw: Raw = match serde_json::from_slice(&bytes) {
        Ok(raw) => raw,
        Err(error) => return malformed(format!("has a header that is not understood: {error}")),
    };
    let entries = check(raw.0, LENGTH_BYTES + length, left - length)?;
    Ok(FileHeader { entries, bytes })
}

/// Checks tensors that lie in `data_bytes` bytes, which begin at `first`.
fn check(
    mut raw: Vec<(String, RawEntry)>,
    first: u64,
    data_bytes: u64,
) -> Result<BTreeMap<String, TensorEntry>, HeaderError> {
    raw.sort_by_key(|(_, entry)| entry.data_offsets);
    let mut entries = BTreeMap::new();
    let mut expected = 0;
    for (name, RawEntry { dtype, shape, data_offsets: (start, end) }) in raw {
        let dtype_of = Dtype::deserialize(StrDeserializer::<serde::de::value::Error>::new(&dtype));
        let Ok(dtype) = dtype_of else {
            return malformed(format!("has `{name}` of type {dtype:?}, which is unknown"));
        };
        let elements = shape.0.iter().try_fold(1u64, |elements, &dim| elements.checked_mul(dim as u64));
        let bits = elements.and_then(|elements| elements.checked_mul(dtype.bitsize() as u64));
        let Some(bytes) = bits.filter(|bits| bits.is_multiple_of(8)).map(|bits| bits / 8) else {
            return malformed(format!(
                "has `{name}` of shape {:?}, of which {dtype} makes no number of bytes",
                shape.0
            ));
        };
        if start != expected || end < start || end > data_bytes {
            return malformed(format!(
                "has `{name}` at bytes {start} to {end}, expected {expected} to {}: of {data_bytes}, one tensor after another",
                expected.saturating_add(bytes)
            ));
        }
        if end - start != bytes {
            return malformed(format!(
                "has `{name}` in {} bytes, expected {bytes} for {dtype} of shape {:?}",
                end - start,
                shape.0
            ));
        }
        expected = end;
        if entries.contains_key(&name) {
            return malformed(format!("has `{name}` twice"));
        }
        entries.insert(name, TensorEntry { dtype, shape: shape.0, start_bytes: first + start });
    }
    if expected != data_bytes {
        return malformed(format!("has {data_bytes} bytes of data, expected {expected}: where its last tensor ends"));
    }
    Ok(entries)
}

/// The entry of a tensor in a header.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawEntry {
    dtype: String,
    shape: Dims,
    data_offsets: (u64, u64),
}

/// Dims, of which a malicious header could have millions.
struct Dims(Vec<usize>);

impl<'de> Deserialize<'de> for Dims {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(DimsVisitor)
    }
}

struct DimsVisitor;

impl<'de> Visitor<'de> for DimsVisitor {
    type Value = Dims;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "at most {DIMS_MAX} dims")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Dims, A::Error> {
        let mut dims = Vec::new();
        while let Some(dim) = seq.next_element()? {
            if dims.len() == DIMS_MAX {
                return Err(serde::de::Error::invalid_length(DIMS_MAX + 1, &self));
            }
            dims.push(dim);
        }
        Ok(Dims(dims))
    }
}

/// All tensors of a header, in its order; its metadata is ignored.
struct Raw(Vec<(String, RawEntry)>);

impl<'de> Deserialize<'de> for Raw {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(RawVisitor)
    }
}

struct RawVisitor;

impl<'de> Visitor<'de> for RawVisitor {
    type Value = Raw;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("tensors by name")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Raw, A::Error> {
        let mut entries = Vec::new();
        while let Some(name) = map.next_key::<String>()? {
            if name == METADATA {
                map.next_value::<IgnoredAny>()?;
            } else {
                entries.push((name, map.next_value()?));
            }
        }
        Ok(Raw(entries))
    }
}

#[cfg(test)]
#[path = "header_tests.rs"]
mod tests;
