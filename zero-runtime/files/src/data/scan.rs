//! Scan: one pass over a file, a buffer at a time: checks whether it is text, and finds its ids and its hash. So a file of
//! any size takes only a buffer of memory. Never keeps what it reads.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;

use zero_plan::Fingerprint;

/// Bytes that are read at a time.
const BUFFER_BYTES: usize = 64 << 10;
/// The most bytes that a buffer can have of a character that it cuts in two.
const CUT_BYTES_MAX: usize = 3;
/// Bytes that are read at a time when tokens are drawn, into a buffer on the stack.
const DRAWN_BYTES: usize = 4 << 10;

/// How a token is stored in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Encoding {
    /// A byte.
    Byte,
    /// A little-endian u16.
    Pair,
    /// A little-endian u32.
    Quad,
}

impl Encoding {
    /// The shorter of `Pair` and `Quad` that can hold all ids of a vocabulary.
    pub const fn of(vocabulary: usize) -> Self {
        if vocabulary <= 1 << 16 { Encoding::Pair } else { Encoding::Quad }
    }

    pub const fn bytes(self) -> usize {
        match self {
            Encoding::Byte => 1,
            Encoding::Pair => 2,
            Encoding::Quad => 4,
        }
    }

    /// Calls `each` with the number and the id of every token in `bytes`.
    pub fn decode(self, bytes: &[u8], mut each: impl FnMut(usize, u32)) {
        match self {
            Encoding::Byte => bytes.iter().enumerate().for_each(|(i, &id)| each(i, u32::from(id))),
            Encoding::Pair => {
                let pairs = bytes.as_chunks().0.iter();
                pairs.enumerate().for_each(|(i, &id)| each(i, u32::from(u16::from_le_bytes(id))));
            }
            Encoding::Quad => {
                let quads = bytes.as_chunks().0.iter();
                quads.enumerate().for_each(|(i, &id)| each(i, u32::from_le_bytes(id)));
            }
        }
    }

    /// Copies the tokens from number `start` on into all of `out`, where the first one is at byte `base` of the file. Fails with the byte
    /// from which on it could not read.
    pub fn copy(self, file: &File, base: usize, start: usize, out: &mut [u32]) -> Result<(), (u64, io::Error)> {
        let mut buffer = [0; DRAWN_BYTES];
        let mut at = base + start * self.bytes();
        for piece in out.chunks_mut(DRAWN_BYTES / self.bytes()) {
            let bytes = &mut buffer[..piece.len() * self.bytes()];
            file.read_exact_at(bytes, at as u64).map_err(|source| (at as u64, source))?;
            at += bytes.len();
            self.decode(bytes, |i, id| piece[i] = id);
        }
        Ok(())
    }
}

/// The result of a pass.
pub(super) struct Scan {
    encoding: Encoding,
    vocabulary: usize,
    fingerprint: Fingerprint,
    /// Bytes so far.
    pub bytes: usize,
    /// The largest id.
    pub largest: u32,
    /// All bits of the ids at the first, second, third and fourth place of every four.
    pub by_place: [u32; 4],
    /// The first token whose id is not less than the vocabulary: its number, and its id.
    pub beyond: Option<(usize, u32)>,
}

impl Scan {
    pub fn new(encoding: Encoding, vocabulary: usize) -> Self {
        let fingerprint = Fingerprint::default();
        Self { encoding, vocabulary, fingerprint, bytes: 0, largest: 0, by_place: [0; 4], beyond: None }
    }

    /// A hash of all bytes so far.
    pub fn hash(&self) -> u64 {
        self.fingerprint.finish()
    }

    /// Continues with `bytes`, which begin at a token.
    pub fn add(&mut self, bytes: &[u8]) {
        let first = self.bytes / self.encoding.bytes();
        self.fingerprint.add(bytes);
        self.bytes += bytes.len();
        // No byte can be beyond the vocabulary.
        if self.encoding == Encoding::Byte && self.vocabulary > usize::from(u8::MAX) {
            return;
        }
        self.encoding.decode(bytes, |i, id| {
            self.largest = self.largest.max(id);
            self.by_place[(first + i) % 4] |= id;
            if id as usize >= self.vocabulary && self.beyond.is_none() {
                self.beyond = Some((first + i, id));
            }
        });
    }

    /// Scans a file, or a part of one, to its end.
    pub fn file(file: &mut impl Read, encoding: Encoding, vocabulary: usize) -> io::Result<Self> {
        let mut scan = Self::new(encoding, vocabulary);
        let mut buffer = vec![0; BUFFER_BYTES];
        loop {
            match fill(file, &mut buffer)? {
                0 => return Ok(scan),
                len => scan.add(&buffer[..len]),
            }
        }
    }

    /// Scans a whole file if it is text, which is UTF-8 without zero bytes. Otherwise reads no further than it must,
    /// and returns the place of the first byte that is not text.
    pub fn text(file: &mut impl Read, vocabulary: usize) -> io::Result<Result<Self, usize>> {
        let mut scan = Self::new(Encoding::Byte, vocabulary);
        let mut buffer = vec![0; CUT_BYTES_MAX + BUFFER_BYTES];
        let mut cut = 0;
        loop {
            let len = fill(file, &mut buffer[cut..cut + BUFFER_BYTES])?;
            let read = &buffer[..cut + len];
            let (whole, is_text) = match std::str::from_utf8(read) {
                Ok(text) => (text.len(), true),
                // The next buffer has the rest of the character, if there is one.
                Err(error) => (error.valid_up_to(), error.error_len().is_none() && len > 0),
            };
            let zero = read[..whole].iter().position(|byte| *byte == 0);
            if let Some(at) = zero.or((!is_text).then_some(whole)) {
                return Ok(Err(scan.bytes + at));
            }
            if len == 0 {
                return Ok(Ok(scan));
            }
            scan.add(&read[..whole]);
            cut = read.len() - whole;
            buffer.copy_within(whole..whole + cut, 0);
        }
    }
}

/// Reads until the buffer is full or the file ends.
fn fill(file: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut len = 0;
    while len < buffer.len() {
        match file.read(&mut buffer[len..]) {
            Ok(0) => break,
            Ok(read) => len += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(len)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_many_buffers_is_as_if_it_were_read_at_once() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("text");
        // Characters of three bytes are cut at every place by some buffer.
        let text = "é€x".repeat(2 * BUFFER_BYTES / 6 + 1);
        std::fs::write(&path, &text).unwrap();
        let mut whole = Scan::new(Encoding::Byte, 200);
        whole.add(text.as_bytes());
        let parts = Scan::text(&mut File::open(&path).unwrap(), 200).unwrap().expect("text");
        let found = |scan: &Scan| (scan.bytes, scan.hash(), scan.largest, scan.beyond);
        assert_eq!(found(&parts), found(&whole));
        assert_eq!((whole.bytes, whole.beyond), (text.len(), Some((2, 226))));
        let bytes = Scan::file(&mut File::open(&path).unwrap(), Encoding::Byte, 200).unwrap();
        assert_eq!(found(&bytes), found(&whole));
    }

    /// The byte lies in the first buffer, in a later one, or in a character that the end of the file cuts.
    #[test]
    fn the_first_byte_that_is_no_text_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("text");
        for start in [0, 3, BUFFER_BYTES + 5] {
            for none in [&b"\0\xff"[..], b"\xff\0", b"\xe2\x82"] {
                std::fs::write(&path, [&vec![b'x'; start], none].concat()).unwrap();
                let found = Scan::text(&mut File::open(&path).unwrap(), 256).unwrap();
                assert_eq!(found.err(), Some(start), "{none:?}");
            }
        }
    }

    #[test]
    fn tokens_are_copied_across_buffers_from_any_place() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ids");
        let ids: Vec<u16> = (0..10_000).collect();
        std::fs::write(&path, ids.iter().flat_map(|id| id.to_le_bytes()).collect::<Vec<u8>>()).unwrap();
        let file = File::open(&path).unwrap();
        for (start, len) in [(0, 1), (1, 5000), (4999, 5001)] {
            let mut out = vec![0; len];
            Encoding::Pair.copy(&file, 0, start, &mut out).unwrap();
            assert!(out.iter().copied().eq(start as u32..(start + len) as u32), "{len} from {start}");
        }
        assert!(Encoding::Pair.copy(&file, 0, 9_999, &mut [0; 2]).is_err());
        let mut quads = [0; 3];
        Encoding::Quad.copy(&file, 2, 1, &mut quads).unwrap();
        assert_eq!(quads, [3 | 4 << 16, 5 | 6 << 16, 7 | 8 << 16], "from the second pair on");
    }
}
