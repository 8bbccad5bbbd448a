//! Changes: what happens to a file on its way. Bits flip, parts are cut off, left out, repeated, or come from another file, and numbers
//! say far too much. A file of random bytes would be refused at its first byte, so each begins as one that can be read.

use std::sync::Arc;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};

/// The longest file, so that each of them is read in a moment.
const BYTES_MAX: usize = 64 << 10;

/// Numbers that formats count bytes and elements by, at the ends of what their types have.
const NUMBERS: [u64; 14] = [
    0,
    1,
    0x7f,
    0xff,
    0x7fff,
    0xffff,
    1 << 31,
    (1 << 31) - 1,
    u32::MAX as u64,
    1 << 32,
    1 << 40,
    1 << 63,
    i64::MAX as u64,
    u64::MAX,
];

/// What a text may have in place of a number or of a word.
const WORDS: [&str; 16] = [
    "0",
    "-1",
    "4294967296",
    "9223372036854775807",
    "18446744073709551615",
    "18446744073709551616",
    "1e308",
    "1e999",
    "0.5",
    "null",
    "true",
    "[]",
    "{}",
    "\"\"",
    "\"\u{fffd}é\"",
    "\n",
];

/// One change of a file.
#[derive(Clone, Debug)]
enum Change {
    Flip {
        at: Index,
        bit: u8,
    },
    Write {
        at: Index,
        bytes: Vec<u8>,
    },
    Insert {
        at: Index,
        bytes: Vec<u8>,
    },
    Remove {
        at: Index,
        len: Index,
    },
    Repeat {
        at: Index,
        len: usize,
        times: usize,
    },
    /// A part of another file.
    Splice {
        at: Index,
        file: Index,
        from: Index,
        len: Index,
    },
    /// A word in place of a number of digits, or of a name.
    Word {
        at: Index,
        word: &'static str,
    },
    End {
        at: Index,
    },
}

fn change() -> impl Strategy<Value = Change> {
    let at = any::<Index>;
    let number = (select(&NUMBERS), 1..=8usize, any::<bool>()).prop_map(|(number, width, is_big)| match is_big {
        true => number.to_be_bytes()[8 - width..].to_vec(),
        false => number.to_le_bytes()[..width].to_vec(),
    });
    // Thrift and others write numbers as seven bits in each byte.
    let packed = select(&NUMBERS).prop_map(|mut number| {
        let mut bytes = Vec::new();
        while number > 0x7f {
            bytes.push(number as u8 | 0x80);
            number >>= 7;
        }
        bytes.push(number as u8);
        bytes
    });
    let bytes = prop_oneof![vec(any::<u8>(), 1..8), number, packed].boxed();
    prop_oneof![
        3 => (at(), 0..8u8).prop_map(|(at, bit)| Change::Flip { at, bit }),
        3 => (at(), bytes.clone()).prop_map(|(at, bytes)| Change::Write { at, bytes }),
        1 => (at(), bytes).prop_map(|(at, bytes)| Change::Insert { at, bytes }),
        1 => (at(), at()).prop_map(|(at, len)| Change::Remove { at, len }),
        1 => (at(), 1..64usize, 1..4000usize).prop_map(|(at, len, times)| Change::Repeat { at, len, times }),
        1 => (at(), at(), at(), at()).prop_map(|(at, file, from, len)| Change::Splice { at, file, from, len }),
        3 => (at(), select(&WORDS)).prop_map(|(at, word)| Change::Word { at, word }),
        1 => at().prop_map(|at| Change::End { at }),
    ]
}

/// A file that was changed a few times; it was one of `files` before.
pub fn changed(files: Vec<Vec<u8>>) -> impl Strategy<Value = Vec<u8>> {
    let files = Arc::new(files);
    (any::<Index>(), vec(change(), 1..4)).prop_map(move |(first, changes)| {
        let mut file = first.get(&files).clone();
        for change in changes {
            apply(&change, &mut file, &files);
            file.truncate(BYTES_MAX);
        }
        file
    })
}

fn apply(change: &Change, file: &mut Vec<u8>, others: &[Vec<u8>]) {
    let len = file.len();
    let place = |index: &Index| index.index(len + 1);
    match change {
        Change::Flip { at, bit } if len > 0 => file[at.index(len)] ^= 1 << bit,
        Change::Flip { .. } => {}
        Change::Write { at, bytes } => {
            let at = place(at);
            let end = len.min(at + bytes.len());
            file.splice(at..end, bytes.iter().copied());
        }
        Change::Insert { at, bytes } => _ = file.splice(place(at)..place(at), bytes.iter().copied()),
        Change::Remove { at, len: taken } => {
            let at = place(at);
            file.drain(at..at + taken.index(len - at + 1));
        }
        Change::Repeat { at, len: taken, times } => {
            let at = place(at);
            let part = file[at..len.min(at + taken)].repeat(*times);
            file.splice(at..at, part.into_iter().take(BYTES_MAX));
        }
        Change::Splice { at, file: other, from, len: taken } => {
            let other = other.get(others);
            let from = from.index(other.len() + 1);
            let part = &other[from..from + taken.index(other.len() - from + 1)];
            file.splice(place(at)..place(at), part.iter().copied());
        }
        Change::Word { at, word } => {
            let is_word = |byte: &u8| byte.is_ascii_alphanumeric() || b"._-+".contains(byte);
            let at = place(at);
            let start = at + file[at..].iter().position(is_word).unwrap_or(0);
            let end = start + file[start..].iter().position(|byte| !is_word(byte)).unwrap_or(len - start);
            file.splice(start..end, word.bytes());
        }
        Change::End { at } => file.truncate(place(at)),
    }
}
