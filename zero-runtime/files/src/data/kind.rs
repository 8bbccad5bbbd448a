//! Kind: files that hold something other than text, recognised by their extensions. Never looks into a file: even one
//! that happens to be valid UTF-8 is not text to learn.

use std::ffi::OsStr;
use std::path::Path;

/// The contents of a file, and how to get text from it that a model can learn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileKind {
    /// The name of one such file, in a word or two.
    pub(super) name: &'static str,
    /// The advice to the user.
    pub(super) remedy: &'static str,
}

/// The advice for most of them.
pub(super) const WRITE: &str =
    "write its text to a text file, or its token ids to a `.bin` file as little-endian u16 or u32";
/// The advice for a table whose rows can be encoded.
const TOKENIZE: &str = "write the token ids of its text to a file, by `cargo zero tokenize`";
const UNPACK: &str = "unpack it, and give what was in it";
const NOT_DATA: &str = "give the text that a model is to learn";

/// Everything that is known not to be text, with the extensions of such files.
const KINDS: &[(FileKind, &[&str])] = &[
    (FileKind { name: "a table", remedy: TOKENIZE }, &["parquet"]),
    (FileKind { name: "token ids", remedy: "give it by its own path" }, &["bin"]),
    (FileKind { name: "a table", remedy: WRITE }, &["arrow", "feather", "ipc", "orc", "avro", "xls", "xlsx", "ods"]),
    (
        FileKind { name: "an array", remedy: WRITE },
        &["npy", "npz", "h5", "hdf5", "mat", "mds", "tfrecord", "tfrecords", "idx", "zarr", "nc"],
    ),
    (FileKind { name: "a database", remedy: WRITE }, &["db", "sqlite", "sqlite3", "duckdb", "mdb", "lmdb"]),
    (
        FileKind { name: "a checkpoint", remedy: NOT_DATA },
        &["safetensors", "pt", "pth", "ckpt", "gguf", "ggml", "onnx", "pb", "tflite"],
    ),
    (FileKind { name: "a pickle", remedy: WRITE }, &["pkl", "pickle", "joblib", "msgpack"]),
    (
        FileKind { name: "an archive", remedy: UNPACK },
        &["zip", "tar", "tgz", "gz", "bz2", "xz", "lz4", "lzma", "zst", "br", "7z", "rar", "iso", "deb", "rpm", "whl"],
    ),
    (
        FileKind { name: "a document", remedy: WRITE },
        &["pdf", "doc", "docx", "odt", "ppt", "pptx", "epub", "djvu", "ps"],
    ),
    (
        FileKind { name: "an image", remedy: NOT_DATA },
        &["png", "jpg", "jpeg", "gif", "webp", "bmp", "tif", "tiff", "ico", "heic", "avif"],
    ),
    (
        FileKind { name: "sound or film", remedy: NOT_DATA },
        &["wav", "mp3", "flac", "ogg", "opus", "m4a", "mp4", "mkv", "webm", "avi", "mov"],
    ),
    (
        FileKind { name: "a program", remedy: NOT_DATA },
        &["exe", "dll", "so", "dylib", "a", "o", "rlib", "rmeta", "wasm", "class", "jar", "pyc"],
    ),
    (FileKind { name: "a font", remedy: NOT_DATA }, &["ttf", "otf", "woff", "woff2"]),
];

/// The ends of names that promise documents. Such a file is never passed over as one that may hold anything.
const DOCUMENTS: [&str; 4] = ["txt", "jsonl", "ndjson", "parquet"];

/// Whether the name of a file says that it holds documents.
pub(super) fn promises_documents(path: &Path) -> bool {
    path.extension().is_some_and(|end| DOCUMENTS.iter().any(|it| end.eq_ignore_ascii_case(it)))
}

/// The kind and the extension of a file, if the extension says that it is not text.
pub(super) fn of(path: &Path) -> Option<(FileKind, &'static str)> {
    let extension = path.extension().and_then(OsStr::to_str)?;
    KINDS.iter().find_map(|(kind, extensions)| {
        let known = extensions.iter().find(|known| known.eq_ignore_ascii_case(extension))?;
        Some((*kind, *known))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_says_what_is_no_text() {
        for (name, kind, extension) in [
            ("a/x.parquet", "a table", "parquet"),
            ("X.NPY", "an array", "npy"),
            ("x.tar.gz", "an archive", "gz"),
            ("ids.bin", "token ids", "bin"),
        ] {
            let (found, end) = of(name.as_ref()).expect(name);
            assert_eq!((found.name, end), (kind, extension));
        }
        for text in ["x.txt", "x.md", "x.jsonl", "x.csv", "x", "parquet", "x.parquet.txt", ".bin", "x."] {
            assert_eq!(of(text.as_ref()), None, "{text}");
        }
    }

    #[test]
    fn each_end_of_a_name_stands_once() {
        let mut all: Vec<_> = KINDS.iter().flat_map(|(_, extensions)| extensions.iter()).collect();
        let count = all.len();
        all.sort();
        all.dedup();
        assert_eq!(all.len(), count);
        assert!(all.iter().all(|extension| extension.bytes().all(|byte| !byte.is_ascii_uppercase())));
    }
}
