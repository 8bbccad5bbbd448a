//! Tree: the text files below a directory, in one order on every host. Never follows a symbolic link.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use super::error::DataError;

/// How many entries of each kind were passed over.
type Skipped = BTreeMap<&'static str, usize>;

/// Directories that tools fill, not people.
const GENERATED: [&str; 2] = ["target", "node_modules"];
/// What is read of a file to see whether it is worth reading whole.
const PROBE_BYTES: u64 = 64 << 10;

/// Calls `visit` with the path and content of every text file below `root` whose path is `wanted`, in the order of
/// their paths. Text is UTF-8 without zero bytes; hidden entries and generated directories are passed over.
///
/// # Errors
/// Z0340 if an entry cannot be read, Z0344 if there was no text, and those of `visit`.
pub(super) fn for_each_text(
    root: &Path,
    wanted: impl Fn(&Path) -> bool,
    mut visit: impl FnMut(&Path, String) -> Result<(), DataError>,
) -> Result<(), DataError> {
    let mut skipped = Skipped::new();
    let mut found = false;
    for path in files(root, &mut skipped)?.into_iter().filter(|path| wanted(path)) {
        match read_text(&path).map_err(DataError::unreadable(&path))? {
            Some(text) => {
                found = true;
                visit(&path, text)?;
            }
            None => *skipped.entry("binary files").or_default() += 1,
        }
    }
    if found { Ok(()) } else { Err(DataError::NoText { directory: root.to_owned(), skipped: list(&skipped) }) }
}

/// All files below `root`, sorted.
fn files(root: &Path, skipped: &mut Skipped) -> Result<Vec<PathBuf>, DataError> {
    let mut files = Vec::new();
    let mut directories = vec![root.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(&directory).map_err(DataError::unreadable(&directory))? {
            let entry = entry.map_err(DataError::unreadable(&directory))?;
            let kind = entry.file_type().map_err(DataError::unreadable(&entry.path()))?;
            let name = entry.file_name();
            if name.as_encoded_bytes().starts_with(b".") {
                *skipped.entry("hidden entries").or_default() += 1;
            } else if kind.is_dir() && GENERATED.iter().any(|generated| name == *generated) {
                *skipped.entry("generated directories").or_default() += 1;
            } else if kind.is_dir() {
                directories.push(entry.path());
            } else if kind.is_file() {
                files.push(entry.path());
            } else {
                // Links could lead in a circle or out of the tree; pipes and devices have no content of their own.
                *skipped.entry("links and special files").or_default() += 1;
            }
        }
    }
    files.sort();
    Ok(files)
}

/// The file's text, or `None` if it is binary.
fn read_text(path: &Path) -> io::Result<Option<String>> {
    let mut file = File::open(path)?;
    let mut bytes = Vec::new();
    file.by_ref().take(PROBE_BYTES).read_to_end(&mut bytes)?;
    // Else checkpoints beside the text would be read whole only to be passed over.
    if !begins_text(&bytes) {
        return Ok(None);
    }
    file.read_to_end(&mut bytes)?;
    Ok(String::from_utf8(bytes).ok().filter(|text| !text.contains('\0')))
}

/// Whether more bytes could make this text: its last character may be cut.
fn begins_text(bytes: &[u8]) -> bool {
    let malformed = std::str::from_utf8(bytes).is_err_and(|error| error.error_len().is_some());
    !malformed && !bytes.contains(&0)
}

fn list(skipped: &Skipped) -> String {
    let kinds: Vec<String> = skipped.iter().map(|(kind, count)| format!("{kind}: {count}")).collect();
    if kinds.is_empty() { "nothing".to_owned() } else { kinds.join(", ") }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn names(root: &Path) -> Result<Vec<String>, DataError> {
        let mut names = Vec::new();
        let all = |_: &Path| true;
        for_each_text(root, all, |path, _| {
            names.push(path.strip_prefix(root).unwrap().display().to_string());
            Ok(())
        })?;
        Ok(names)
    }

    fn write(root: &Path, name: &str, content: &[u8]) {
        let path = root.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    #[test]
    fn paths_are_in_order_and_only_text_is_visited() {
        let root = tempfile::tempdir().unwrap();
        for name in ["b.txt", "a/z", "a/b/c.md", "a-b", "a/target.rs", "empty"] {
            write(root.path(), name, b"text");
        }
        for name in [".hidden", ".git/config", "a/target/x", "node_modules/x", "a/.x/y"] {
            write(root.path(), name, b"text");
        }
        write(root.path(), "latin1", b"\xe9t\xe9");
        write(root.path(), "zeros", b"a\0b");
        symlink(root.path().join("b.txt"), root.path().join("link")).unwrap();
        symlink(root.path(), root.path().join("circle")).unwrap();
        assert_eq!(names(root.path()).unwrap(), ["a/b/c.md", "a/target.rs", "a/z", "a-b", "b.txt", "empty"]);
    }

    #[test]
    fn a_character_across_the_probe_is_text_and_a_late_zero_is_not() {
        let root = tempfile::tempdir().unwrap();
        let probe = PROBE_BYTES as usize;
        write(root.path(), "text", format!("{}é", "x".repeat(probe - 1)).as_bytes());
        write(root.path(), "late zero", &[vec![b'x'; probe], vec![0]].concat());
        assert_eq!(names(root.path()).unwrap(), ["text"]);
    }

    #[test]
    fn no_text_is_z0344_and_says_what_was_skipped() {
        let root = tempfile::tempdir().unwrap();
        let error = names(root.path()).unwrap_err();
        assert_eq!(error.code(), "Z0344");
        assert!(error.to_string().ends_with("(skipped: nothing)"), "{error}");

        write(root.path(), ".x", b"text");
        write(root.path(), "target/x", b"text");
        write(root.path(), "x.bin", &[1, 0, 2, 0]);
        symlink("nowhere", root.path().join("link")).unwrap();
        let error = names(root.path()).unwrap_err();
        assert_eq!(error.code(), "Z0344");
        let skipped = "binary files: 1, generated directories: 1, hidden entries: 1, links and special files: 1";
        assert!(error.to_string().contains(skipped), "{error}");
    }

    #[test]
    fn an_absent_directory_is_z0340() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(names(&root.path().join("absent")).unwrap_err().code(), "Z0340");
    }
}
