//! Bare: files of token ids without a header, whose width follows from the vocabulary or is said. A file that cannot have
//! that width is refused. Never draws from one.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::DataAs;
use super::error::DataError;
use super::opened::OpenedFile;
use super::scan::{Encoding, Scan};

/// The first bytes of files of other formats, none of which begins bare ids in practice.
const FORMATS: [(&[u8], &str); 12] = [
    (b"\x93NUMPY", "an array of NumPy"),
    (b"PK\x03\x04", "a zip archive, as those of NumPy and PyTorch"),
    (b"\x89HDF", "HDF5"),
    (b"PAR1", "a table of Parquet"),
    (b"ARROW1", "a table of Arrow"),
    (b"GGUF", "a checkpoint of GGUF"),
    (b"\x7fELF", "a program"),
    (b"\x1f\x8b\x08", "an archive of gzip"),
    (b"BZh", "an archive of bzip2"),
    (b"\xfd7zXZ", "an archive of xz"),
    (b"\x28\xb5\x2f\xfd", "an archive of zstd"),
    (b"\x80\x04\x95", "a pickle"),
];

/// Bytes of the beginning that are looked at.
const BEGINNING_BYTES: usize = 4 << 10;
/// Fewer bytes than this could be letters by chance, and fewer ids zero.
const CHANCE: usize = 16;
/// Ids of a wide file beyond 65,535 leave numbers below this at the places of their upper halves.
const UPPER: u32 = 4;

/// Opens and scans the file at `path`, whose ids have the width that `data_as` says, or that `vocabulary` needs.
///
/// # Errors
/// Z0340 if it cannot be read, Z0343 if it ends within an id, Z0348 if it looks like something else than ids of that width.
pub(super) fn scan_ids(
    path: &Path,
    data_as: Option<DataAs>,
    vocabulary: usize,
) -> Result<(OpenedFile, Scan, Encoding), DataError> {
    let (encoding, is_said) = match data_as {
        Some(DataAs::Ids16) => (Encoding::Pair, true),
        Some(DataAs::Ids32) => (Encoding::Quad, true),
        Some(DataAs::Bytes) => (Encoding::Byte, true),
        None | Some(DataAs::Ids | DataAs::Text) => (Encoding::of(vocabulary), false),
    };
    let file = OpenedFile::open(path)?;
    let no_ids = |what| DataError::NoIds { path: path.to_owned(), what, width: encoding.bytes() };
    if encoding != Encoding::Byte {
        beginning(file.file(), is_said)
            .map_err(DataError::unreadable(path))?
            .map_or(Ok(()), |what| Err(no_ids(what)))?;
    }
    let scan = Scan::file(&mut file.file(), encoding, vocabulary).map_err(DataError::unreadable(path))?;
    if !scan.bytes.is_multiple_of(encoding.bytes()) {
        return Err(DataError::OddSize { path: path.to_owned(), bytes: scan.bytes, width: encoding.bytes() });
    }
    if let Some(width) = width_by_zeros(&scan, encoding).filter(|_| !is_said) {
        let at = encoding.bytes();
        let others = if width == 2 * at { "every second one" } else { "three of every four" };
        let what = format!("has only small numbers at token 1 (byte {at}) and {others}, as ids of {width} bytes have");
        return Err(no_ids(what));
    }
    Ok((file, scan, encoding))
}

/// What a file is by its first bytes, if it is no ids. Whether they are text does not matter for a width that was said.
fn beginning(file: &File, is_said: bool) -> std::io::Result<Option<String>> {
    let mut bytes = [0; BEGINNING_BYTES];
    let length = file.read_at(&mut bytes, 0)?;
    let bytes = &bytes[..length];
    if let Some((_, name)) = FORMATS.iter().find(|(start, _)| bytes.starts_with(start)) {
        return Ok(Some(format!("begins like {name}")));
    }
    let text = match std::str::from_utf8(bytes) {
        Ok(text) => text,
        // The end of the beginning may be within a character.
        Err(error) if error.error_len().is_none() => std::str::from_utf8(&bytes[..error.valid_up_to()]).unwrap_or(""),
        Err(_) => return Ok(None),
    };
    let is_letter = |letter: char| !letter.is_control() || "\n\r\t".contains(letter);
    Ok((text.len() >= CHANCE && text.chars().all(is_letter) && !is_said).then(|| "begins with text".to_owned()))
}

/// The bytes of an id by the places at which numbers are zero or small, if those are the upper parts of wider ids.
fn width_by_zeros(scan: &Scan, encoding: Encoding) -> Option<usize> {
    let [first, second, third, fourth] = scan.by_place;
    let (upper, tokens) = (second | fourth, scan.bytes / encoding.bytes());
    let is_wide = match upper {
        0 => tokens >= CHANCE && first | third > 0,
        // All ids of a tiny vocabulary are small.
        _ => {
            encoding == Encoding::Pair && upper < UPPER && tokens >= 4 * CHANCE && (first | third) > u32::from(u8::MAX)
        }
    };
    let parts = if third == 0 && upper == 0 && encoding == Encoding::Pair { 4 } else { 2 };
    is_wide.then_some(parts * encoding.bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scan(bytes: &[u8], data_as: Option<DataAs>, vocabulary: usize) -> Result<Encoding, DataError> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ids.bin");
        std::fs::write(&path, bytes).unwrap();
        scan_ids(&path, data_as, vocabulary).map(|(_, _, encoding)| encoding)
    }

    fn bytes<const N: usize>(bytes: impl Fn(u32) -> [u8; N]) -> Vec<u8> {
        (0..400u32).map(|i| i * 7 % 320).flat_map(bytes).collect()
    }

    #[test]
    fn z0348_ids_of_another_width_are_refused_unless_the_width_is_said() {
        let pairs = bytes(|id| (id as u16).to_le_bytes());
        let quads = bytes(u32::to_le_bytes);
        let wide = bytes(|id| (id * 300).to_le_bytes());
        let longs = bytes(|id| i64::from(id).to_le_bytes());
        for (content, vocabulary, words) in [
            (&quads, 320, "at token 1 (byte 2) and every second one, as ids of 4 bytes have"),
            (&wide, 50_257, "at token 1 (byte 2) and every second one, as ids of 4 bytes have"),
            (&longs, 320, "at token 1 (byte 2) and three of every four, as ids of 8 bytes have"),
            (&longs, 100_000, "at token 1 (byte 4) and every second one, as ids of 8 bytes have"),
        ] {
            for data_as in [None, Some(DataAs::Ids)] {
                let refused = scan(content, data_as, vocabulary).expect_err(words);
                assert_eq!(refused.code(), "Z0348");
                assert!(refused.to_string().contains(words), "{refused}");
            }
        }
        assert_eq!(scan(&pairs, None, 320).unwrap(), Encoding::Pair);
        assert_eq!(scan(&quads, None, 100_000).unwrap(), Encoding::Quad);
        assert_eq!(scan(&quads, Some(DataAs::Ids32), 320).unwrap(), Encoding::Quad);
        assert_eq!(scan(&quads, Some(DataAs::Ids16), 320).unwrap(), Encoding::Pair);
        assert_eq!(scan(&pairs, Some(DataAs::Ids16), 100_000).unwrap(), Encoding::Pair);
        // Ids of a few letters are small at every place.
        let letter = |i: u32| (i.wrapping_mul(2_654_435_761) >> 30) as u16;
        let few: Vec<u8> = (0..4000).flat_map(|i| letter(i).to_le_bytes()).collect();
        assert!(scan(&few, None, 5).is_ok());
    }

    #[test]
    fn z0348_files_of_other_formats_are_no_ids() {
        let numbers = bytes(|id| (id as u16).to_le_bytes());
        for (start, name) in FORMATS {
            let refused = scan(&[start, &numbers].concat(), Some(DataAs::Ids16), 320).expect_err(name);
            assert_eq!(refused.code(), "Z0348");
            assert!(refused.to_string().contains(&format!("begins like {name}")), "{refused}");
        }
        let text = "Words, é and\tmore\n".repeat(300);
        let refused = scan(text.as_bytes(), None, 50_257).expect_err("text");
        assert!(refused.to_string().contains("begins with text"), "{refused}");
        assert!(scan(text.as_bytes(), Some(DataAs::Ids16), 50_257).is_ok());
    }

    #[test]
    fn z0343_a_file_ends_with_a_whole_id() {
        let refused = scan(&[3; 42], None, 1 << 20).expect_err("half an id");
        assert_eq!(refused.code(), "Z0343");
        assert!(refused.to_string().contains("has 42 bytes, expected a multiple of 4"), "{refused}");
        assert!(refused.to_string().contains("the last one begins at byte 40"), "{refused}");
    }
}
