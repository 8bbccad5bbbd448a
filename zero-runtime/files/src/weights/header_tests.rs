//! Tests of headers that match their files, of headers that do not, and of bytes that are not a header.

use proptest::prelude::*;
use safetensors::SafeTensors;

use super::*;

/// A file of `header` and `data_bytes` bytes of data.
fn file(header: &str, data_bytes: usize) -> Vec<u8> {
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend(header.bytes());
    file.resize(file.len() + data_bytes, 7);
    file
}

fn read_all(file: &[u8]) -> Result<FileHeader, HeaderError> {
    read(&mut &file[..], file.len() as u64)
}

const TWO: &str = r#"{"__metadata__":{"format":"pt"},"b":{"dtype":"BF16","shape":[2,3],"data_offsets":[4,16]},"a":{"dtype":"F32","shape":[],"data_offsets":[0,4]}}"#;

#[test]
fn a_header_says_where_tensors_lie() {
    let FileHeader { entries, bytes } = read_all(&file(TWO, 16)).expect("a true header");
    assert_eq!(bytes, TWO.as_bytes());
    let first = 8 + TWO.len() as u64;
    let expected = [
        ("a".to_owned(), TensorEntry { dtype: Dtype::F32, shape: vec![], start_bytes: first }),
        ("b".to_owned(), TensorEntry { dtype: Dtype::BF16, shape: vec![2, 3], start_bytes: first + 4 }),
    ];
    assert!(entries.into_iter().eq(expected));
    assert_eq!(read_all(&file("{}", 0)).expect("no tensors").entries.len(), 0);
}

/// The fault of a file, in words.
fn fault(file: &[u8]) -> String {
    match read_all(file) {
        Err(HeaderError::Malformed(what)) => what,
        other => panic!("{other:?}"),
    }
}

#[test]
fn z0361_what_a_header_says_must_be_true() {
    let one = |dtype: &str, shape: &str, offsets: &str| {
        format!(r#"{{"a":{{"dtype":"{dtype}","shape":{shape},"data_offsets":{offsets}}}}}"#)
    };
    let many = format!("[{}]", ["1"; 9].join(","));
    for (header, data_bytes, words) in [
        (one("F32", "[2]", "[0,8]"), 7, "`a` at bytes 0 to 8, expected 0 to 8: of 7"),
        (one("F32", "[2]", "[0,8]"), 9, "has 9 bytes of data, expected 8"),
        (one("F32", "[2]", "[4,12]"), 12, "`a` at bytes 4 to 12, expected 0 to 8"),
        (one("F32", "[2]", "[8,0]"), 8, "`a` at bytes 8 to 0"),
        (one("F32", "[2]", "[0,4]"), 4, "`a` in 4 bytes, expected 8 for F32 of shape [2]"),
        (one("F32", "[2]", "[0,18446744073709551615]"), 8, "expected 0 to 8: of 8"),
        (one("F32", "[4294967296,4294967296]", "[0,0]"), 0, "makes no number of bytes"),
        (one("F32", "[18446744073709551615]", "[0,0]"), 0, "makes no number of bytes"),
        (one("F4", "[1]", "[0,0]"), 0, "makes no number of bytes"),
        (one("F32", "[-1]", "[0,4]"), 4, "is not understood"),
        (one("F32", &many, "[0,4]"), 4, "at most 8 dims"),
        (one("Q8", "[1]", "[0,1]"), 1, "has `a` of type \"Q8\", which is unknown"),
        (TWO.replace("[4,16]", "[2,14]"), 16, "`b` at bytes 2 to 14, expected 4 to 16"),
        (TWO.replace("\"b\"", "\"a\""), 16, "has `a` twice"),
        (TWO.replace("\"shape\"", "\"form\""), 16, "is not understood"),
        ("[]".to_owned(), 0, "is not understood"),
        ("".to_owned(), 0, "is not understood"),
        ("[".repeat(100_000), 0, "is not understood"),
    ] {
        let told = fault(&file(&header, data_bytes));
        assert!(told.contains(words), "{header}: {told}");
    }
    assert!(fault(&[0; 7]).contains("has 7 bytes, expected at least 8"));
    for length in [1, 100_000_001, u64::MAX] {
        let told = fault(&length.to_le_bytes());
        assert!(told.contains(&format!("its header has {length} bytes")), "{told}");
    }
}

/// A header of tensors of these types and shapes, one after another, and the number of bytes of their data.
fn header(tensors: &[(Dtype, Vec<usize>)]) -> (String, usize) {
    let mut end = 0;
    let entry = |(i, (dtype, shape)): (usize, &(Dtype, Vec<usize>))| {
        let start = end;
        end += shape.iter().product::<usize>() * dtype.bitsize() / 8;
        format!(r#""t{i}":{{"dtype":"{dtype}","shape":{shape:?},"data_offsets":[{start},{end}]}}"#)
    };
    let entries: Vec<String> = tensors.iter().enumerate().map(entry).collect();
    (format!("{{{}}}", entries.join(",")), end)
}

fn tensors() -> impl Strategy<Value = Vec<(Dtype, Vec<usize>)>> {
    let dtype = prop::sample::select(vec![Dtype::F32, Dtype::BF16, Dtype::F16, Dtype::U8, Dtype::I64]);
    prop::collection::vec((dtype, prop::collection::vec(0usize..5, 0..4)), 0..6)
}

/// Tensors that are read must be those that the crate `safetensors` reads.
fn assert_true_or_refused(bytes: &[u8]) {
    let Ok(FileHeader { entries, .. }) = read_all(bytes) else { return };
    let other = SafeTensors::deserialize(bytes).expect("the reader of the format takes it too");
    assert_eq!(entries.len(), other.len());
    for (name, TensorEntry { dtype, shape, start_bytes }) in entries {
        let tensor = other.tensor(&name).expect("the same name");
        assert_eq!((tensor.dtype(), tensor.shape()), (dtype, &shape[..]));
        let start = start_bytes as usize;
        assert_eq!(tensor.data().as_ptr(), bytes[start..].as_ptr());
        assert!(start + tensor.data().len() <= bytes.len());
    }
}

proptest! {
    #[test]
    fn any_true_header_is_read(tensors in tensors()) {
        let (header, data_bytes) = header(&tensors);
        let file = file(&header, data_bytes);
        prop_assert_eq!(read_all(&file).expect("a true header").entries.len(), tensors.len());
        assert_true_or_refused(&file);
    }

    #[test]
    fn any_bytes_are_true_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        assert_true_or_refused(&bytes);
        assert_true_or_refused(&file(&String::from_utf8_lossy(&bytes), 8));
    }

    #[test]
    fn any_change_of_a_header_is_true_or_refused(
        tensors in tensors(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), prop::sample::select(b"0123456789[]{},:\"-eFB16\x00\xff".to_vec())), 1..4),
        cut in any::<prop::sample::Index>(),
        is_cut: bool,
    ) {
        let (header, data_bytes) = header(&tensors);
        let mut file = file(&header, data_bytes);
        for (index, byte) in changes {
            let index = index.index(8 + header.len());
            file[index] = byte;
        }
        if is_cut {
            file.truncate(cut.index(file.len()));
        }
        assert_true_or_refused(&file);
    }
}
