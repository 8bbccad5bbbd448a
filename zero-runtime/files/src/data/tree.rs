//! Tree: the text files below a directory, in the same order on every host. Never follows a symbolic link to a directory.

use std::error::Error;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use ignore::gitignore::{Gitignore, gitconfig_excludes_path};
use ignore::{DirEntry, WalkBuilder};

use super::contents::TakenFiles;
use super::error::DataError;
use super::kind;
use super::scan::{Encoding, Scan};
use super::structured::{BEGINNING_BYTES, Structure};
use crate::Pointer;

/// The files of a tree that are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Files {
    /// Files that people write and share: all but those that ignore files name (`.gitignore` and `.ignore`, here and
    /// above, and the user's own for git) and those in a directory that is tagged as a cache.
    Shared,
    /// All files, for a directory that a user names as data, because git often ignores data. Files that begin like
    /// structured data are errors.
    All,
    /// All files, even those that begin like structured data.
    AsText,
}

/// Directories that tools fill, not people.
const GENERATED: [&str; 2] = ["target", "node_modules"];
/// The file by which tools mark a directory that they can fill again, as cargo marks its target directory.
const CACHE_TAG: &str = "CACHEDIR.TAG";
/// Files that name what is not shared.
const IGNORE_FILES: [&str; 2] = [".gitignore", ".ignore"];
/// Memory for a file beside the bytes of its path: an entry in the list of all files and one in the index of text
/// files, each in a vector with room for twice as many, and what the allocator adds to a path.
const ENTRY_BYTES: usize = 256;

/// Calls `visit` with the path and the scan of each text file below `root`, in the order of paths, if it is one of
/// `files` and its path is `wanted`. Text is UTF-8 without zero bytes, in a file whose name does not say that it is
/// something else. Hidden entries and generated directories are passed over. Returns the files that were taken.
/// A link to a file counts as that file, unless only [`Files::Shared`] are taken.
///
/// # Errors
/// Z0340 if an entry cannot be read, Z0344 if there was no text, Z0346 if an ignore file is not understood, Z0347 if one of [`Files::All`] begins like structured data, Z0349 if one of them is not the
/// text that its name promises, and those of `visit`.
pub(super) fn for_each_text(
    root: &Path,
    files: Files,
    wanted: impl Fn(&Path) -> bool,
    vocabulary: usize,
    mut visit: impl FnMut(PathBuf, Scan) -> Result<(), DataError>,
) -> Result<TakenFiles, DataError> {
    let (paths, mut taken) = walk(root, files)?;
    for path in paths {
        if let Some((kind, end)) = kind::of(&path) {
            taken.skip(&format!(".{end} ({})", kind.name));
            continue;
        }
        if !wanted(&path) {
            taken.skip("files of other kinds");
            continue;
        }
        let scan = File::open(&path).and_then(|mut file| Scan::text(&mut file, vocabulary));
        match scan.map_err(DataError::unreadable(&path))? {
            Ok(scan) => {
                if files == Files::All {
                    require_text(&path)?;
                }
                taken.files += 1;
                visit(path, scan)?;
            }
            Err(byte) if files != Files::Shared && kind::promises_documents(&path) => {
                return Err(DataError::no_text_at(&path, byte));
            }
            Err(_) => taken.skip("binary files"),
        }
    }
    found(root, files, taken)
}

/// Calls `visit` with the path of every file below `root`, whatever it holds, as [`for_each_text`] does.
///
/// # Errors
/// Those of [`for_each_text`].
pub(super) fn for_each_file(
    root: &Path,
    vocabulary: usize,
    mut visit: impl FnMut(PathBuf, Scan) -> Result<(), DataError>,
) -> Result<TakenFiles, DataError> {
    let (paths, mut taken) = walk(root, Files::All)?;
    for path in paths {
        let scan = File::open(&path).and_then(|mut file| Scan::file(&mut file, Encoding::Byte, vocabulary));
        taken.files += 1;
        visit(path.clone(), scan.map_err(DataError::unreadable(&path))?)?;
    }
    found(root, Files::All, taken)
}

/// The files with documents below `directory`, in the order of their paths: text files, as a run takes them, and those
/// whose names promise documents (`.txt`, `.jsonl`, `.ndjson`, `.parquet`), whatever they hold. Also returns what was
/// passed over.
///
/// # Errors
/// Z0340 if an entry cannot be read, Z0344 if there was none.
pub fn text_files(directory: &Path) -> Result<(Vec<PathBuf>, TakenFiles), DataError> {
    let (paths, mut taken) = walk(directory, Files::All)?;
    let mut files: Vec<PathBuf> = Vec::new();
    for path in paths {
        if !kind::promises_documents(&path) {
            if let Some((kind, end)) = kind::of(&path) {
                taken.skip(&format!(".{end} ({})", kind.name));
                continue;
            }
            let scan = File::open(&path).and_then(|mut file| Scan::text(&mut file, usize::from(u8::MAX) + 1));
            if scan.map_err(DataError::unreadable(&path))?.is_err() {
                taken.skip("binary files");
                continue;
            }
        }
        taken.files += 1;
        files.push(path);
    }
    Ok((files, found(directory, Files::All, taken)?))
}

/// Z0347 if the file at `path` begins like structured data.
pub(super) fn require_text(path: &Path) -> Result<(), DataError> {
    let mut beginning = Vec::new();
    let file = File::open(path).map_err(DataError::unreadable(path))?;
    file.take(BEGINNING_BYTES as u64).read_to_end(&mut beginning).map_err(DataError::unreadable(path))?;
    Pointer::of(path, &beginning).map_or(Ok(()), Err)?;
    match Structure::of(path, &beginning) {
        None => Ok(()),
        Some(structure) => Err(DataError::Structured { path: path.to_owned(), structure }),
    }
}

fn found(root: &Path, files: Files, taken: TakenFiles) -> Result<TakenFiles, DataError> {
    if taken.files > 0 {
        return Ok(taken);
    }
    let mut skipped = taken.list();
    if files == Files::Shared {
        skipped.push_str("; and what ignore files name");
    }
    Err(DataError::NoText { directory: root.to_owned(), skipped })
}

/// The sorted paths of `files` below `root`, and the entries that were passed over.
fn walk(root: &Path, files: Files) -> Result<(Vec<PathBuf>, TakenFiles), DataError> {
    // The walker owns its filter, so the filter and this function count in one shared place.
    let skipped = Arc::new(Mutex::new(TakenFiles::default()));
    let mut walker = WalkBuilder::new(root);
    walker.standard_filters(false);
    if files == Files::Shared {
        ignore_as_git_does(&mut walker, root)?;
    }
    let by_filter = Arc::clone(&skipped);
    walker.filter_entry(move |entry| {
        let reason = passed_over(entry, files);
        reason.into_iter().for_each(|reason| count(&by_filter, reason));
        reason.is_none()
    });
    let (mut paths, mut index_bytes) = (Vec::new(), 0);
    for entry in walker.build() {
        let entry = entry.map_err(unusable)?;
        // A line that is not understood could let through a file that it was meant to keep back.
        if let Some(error) = entry.error() {
            return Err(DataError::IgnoreFile { source: error.clone() });
        }
        let kind = entry.file_type();
        if entry.depth() == 0 || kind.is_some_and(|kind| kind.is_dir()) {
            continue;
        } else if is_ignore_file(entry.file_name(), files) {
            check_ignore_file(entry.path())?;
        } else if kind.is_some_and(|kind| kind.is_file()) || files != Files::Shared && leads_to_a_file(entry.path())? {
            let path = entry.into_path();
            index_bytes += path.as_os_str().len() + ENTRY_BYTES;
            paths.push(path);
        } else {
            // A link to a directory could lead in a circle, and pipes and devices have no content of their own.
            count(&skipped, "links and special files");
        }
    }
    paths.sort();
    let taken = std::mem::take(&mut *skipped.lock().unwrap_or_else(PoisonError::into_inner));
    Ok((paths, TakenFiles { index_bytes, ..taken }))
}

/// Whether a link leads to a file, as those of caches do. One whose name promises documents must lead somewhere.
fn leads_to_a_file(path: &Path) -> Result<bool, DataError> {
    match fs::metadata(path) {
        Ok(found) => Ok(found.is_file()),
        Err(source) if kind::promises_documents(path) => Err(DataError::Unreadable { path: path.to_owned(), source }),
        Err(_) => Ok(false),
    }
}

fn count(skipped: &Mutex<TakenFiles>, reason: &str) {
    skipped.lock().unwrap_or_else(PoisonError::into_inner).skip(reason);
}

/// Leaves out what git would ignore, even outside of a repository.
fn ignore_as_git_does(walker: &mut WalkBuilder, root: &Path) -> Result<(), DataError> {
    if let Some(source) = Gitignore::global().1 {
        return Err(DataError::IgnoreFile { source });
    }
    gitconfig_excludes_path().map_or(Ok(()), |path| check_ignore_file(&path))?;
    let names = [".gitignore", ".ignore", ".git/info/exclude"];
    root.ancestors()
        .flat_map(|directory| names.map(|it| directory.join(it)))
        .try_for_each(|it| check_ignore_file(&it))?;
    // Ignore files above a repository do not count for it. Outside of a repository, all of them do.
    let in_repository = root.ancestors().any(|directory| directory.join(".git").exists());
    walker.parents(true).ignore(true).git_ignore(true).git_global(true).git_exclude(true);
    walker.require_git(in_repository).current_dir(root);
    Ok(())
}

/// Checks that a file, if it is there, can be read to its end. The walker would treat an unreadable file as empty.
fn check_ignore_file(path: &Path) -> Result<(), DataError> {
    match fs::read_to_string(path) {
        Err(source) if source.kind() == ErrorKind::InvalidData => {
            let err = Box::new(ignore::Error::Io(source));
            Err(DataError::IgnoreFile { source: ignore::Error::WithPath { path: path.to_owned(), err } })
        }
        Err(source) if !matches!(source.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            Err(DataError::Unreadable { path: path.to_owned(), source })
        }
        _ => Ok(()),
    }
}

fn is_ignore_file(name: &OsStr, files: Files) -> bool {
    files == Files::Shared && IGNORE_FILES.iter().any(|it| name == *it)
}

/// Why an entry is passed over, with all that lies below it.
fn passed_over(entry: &DirEntry, files: Files) -> Option<&'static str> {
    let name = entry.file_name();
    if name.as_encoded_bytes().starts_with(b".") {
        return (!is_ignore_file(name, files)).then_some("hidden entries");
    }
    if !entry.file_type().is_some_and(|kind| kind.is_dir()) {
        return None;
    }
    let is_cache = || files == Files::Shared && entry.path().join(CACHE_TAG).exists();
    (GENERATED.iter().any(|it| name == *it) || is_cache()).then_some("generated directories")
}

/// An error of the walker, about an entry or about ignore files above the root.
fn unusable(error: ignore::Error) -> DataError {
    let ignore::Error::WithPath { path, .. } = &error else {
        return DataError::IgnoreFile { source: error };
    };
    let (path, source) = (path.clone(), error.clone());
    match error.into_io_error() {
        Some(source) => DataError::Unreadable { path, source: plain(source) },
        None => DataError::IgnoreFile { source },
    }
}

/// The system's error, without the path that the walker adds to it.
fn plain(error: io::Error) -> io::Error {
    let cause = error.source().and_then(|cause| cause.downcast_ref::<io::Error>());
    cause.and_then(io::Error::raw_os_error).map_or(error, io::Error::from_raw_os_error)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use zero_plan::footprint::DATA_BYTES;

    use super::*;

    fn names(root: &Path) -> Result<Vec<String>, DataError> {
        names_of(root, Files::All)
    }

    fn names_of(root: &Path, files: Files) -> Result<Vec<String>, DataError> {
        let mut names = Vec::new();
        let all = |_: &Path| true;
        let taken = for_each_text(root, files, all, 256, |path, _| {
            names.push(path.strip_prefix(root).unwrap().display().to_string());
            Ok(())
        })?;
        assert_eq!(taken.files, names.len());
        Ok(names)
    }

    fn write(root: &Path, name: &str, content: &[u8]) {
        let path = root.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    #[test]
    fn paths_are_in_order_and_only_text_and_links_to_it_are_visited() {
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
        assert_eq!(names(root.path()).unwrap(), ["a/b/c.md", "a/target.rs", "a/z", "a-b", "b.txt", "empty", "link"]);
        assert!(
            !names_of(root.path(), Files::Shared).unwrap().contains(&"link".to_owned()),
            "it could lead to a secret"
        );
    }

    /// By their own paths they are errors, so they are not passed over in a directory.
    #[test]
    fn z0349_and_z0340_files_that_do_not_hold_what_their_names_promise() {
        for name in ["latin1.txt", "a/b.jsonl", "c.NDJSON"] {
            let root = tempfile::tempdir().unwrap();
            write(root.path(), "text", b"text");
            write(root.path(), name, b"caf\xe9");
            let refused = names(root.path()).unwrap_err();
            assert_eq!(refused.code(), "Z0349", "{name}");
            assert!(refused.to_string().contains("is not text: its byte 3 is zero, or not UTF-8"), "{refused}");
            fs::remove_file(root.path().join(name)).unwrap();
            symlink("nowhere", root.path().join(name)).unwrap();
            assert_eq!(names(root.path()).unwrap_err().code(), "Z0340", "{name}");
        }
    }

    #[test]
    fn a_character_across_the_probe_is_text_and_a_late_zero_is_not() {
        let root = tempfile::tempdir().unwrap();
        let looked_at = 64 << 10;
        write(root.path(), "text", format!("{}é", "x".repeat(looked_at - 1)).as_bytes());
        write(root.path(), "late zero", &[vec![b'x'; looked_at], vec![0]].concat());
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
        let skipped = ".bin (token ids): 1, generated directories: 1, hidden entries: 1, links and special files: 1";
        assert!(error.to_string().contains(skipped), "{error}");
    }

    #[test]
    fn the_index_of_many_files_is_counted() {
        let root = tempfile::tempdir().unwrap();
        let bytes = |name: &str| root.path().join(name).as_os_str().len() + ENTRY_BYTES;
        ["a", "b/c"].iter().for_each(|name| write(root.path(), name, b"text"));
        let (_, taken) = walk(root.path(), Files::All).unwrap();
        assert_eq!(taken.index_bytes, bytes("a") + bytes("b/c"));
        // The plan has room for an index of this size.
        assert_eq!(taken.resident_bytes(), 0);
        let many = TakenFiles { index_bytes: DATA_BYTES + 7, ..taken };
        assert_eq!(many.resident_bytes(), 7);
    }

    #[test]
    fn an_absent_directory_is_z0340() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(names(&root.path().join("absent")).unwrap_err().code(), "Z0340");
    }

    #[test]
    fn what_ignore_files_name_is_not_shared_in_a_repository_or_without_one() {
        for (repository, above) in [(None, true), (Some("."), true), (Some("root"), false)] {
            let outer = tempfile::tempdir().unwrap();
            let root = outer.path().join("root");
            write(&root, "kept", b"text");
            for name in ["secret", "a/secret", "a/own", "b/own", "a/deep/whole/x", "ignored"] {
                write(&root, name, b"text");
            }
            write(&root, ".gitignore", b"secret\n/a/deep/whole/\n");
            write(&root, "a/.gitignore", b"own\n");
            write(&root, ".ignore", b"ignored\n");
            write(&root, "below the outer", b"text");
            write(outer.path(), ".gitignore", b"below*\n");
            if let Some(repository) = repository {
                write(&outer.path().join(repository), ".git/info/exclude", b"kept by name\n");
                write(&root, "kept by name", b"text");
            }
            let mut expected = vec!["b/own", "below the outer", "kept"];
            if above {
                // Ignore files above a repository do not count in it.
                expected.remove(1);
            }
            assert_eq!(names_of(&root, Files::Shared).unwrap(), expected, "{repository:?}");
            let all = names_of(&root, Files::All).unwrap();
            assert!(all.len() >= 8 && all.contains(&"secret".to_owned()), "{all:?}");
        }
    }

    #[test]
    fn a_tagged_cache_is_not_shared_but_is_data() {
        let root = tempfile::tempdir().unwrap();
        write(root.path(), "kept", b"text");
        write(root.path(), "out/CACHEDIR.TAG", b"Signature: 8a477f597d28d172789f06886806bc55\n");
        write(root.path(), "out/release/generated.rs", b"text");
        assert_eq!(names_of(root.path(), Files::Shared).unwrap(), ["kept"]);
        assert_eq!(names(root.path()).unwrap(), ["kept", "out/CACHEDIR.TAG", "out/release/generated.rs"]);
    }

    #[test]
    fn z0346_ignore_file_that_is_not_understood_lets_nothing_through() {
        for bad in ["a/.gitignore", ".gitignore", ".ignore", "../.gitignore"] {
            let outer = tempfile::tempdir().unwrap();
            let root = outer.path().join("root");
            write(&root, "a/text", b"text");
            for (lines, line) in [(&b"ok\n[z-a]\n"[..], "line 2"), (b"\xff\nsecret\n", "UTF-8")] {
                write(&root, bad, lines);
                let error = names_of(&root, Files::Shared).unwrap_err();
                assert_eq!(error.code(), "Z0346", "{error}");
                let said = error.to_string();
                assert!(said.contains(".gitignore") || said.contains(".ignore"), "{said}");
                assert!(said.contains(line), "{said}");
                assert!(names(&root).is_ok());
            }
        }
    }

    #[test]
    fn nothing_shared_says_that_ignore_files_count() {
        let root = tempfile::tempdir().unwrap();
        write(root.path(), ".gitignore", b"*\n");
        write(root.path(), "x", b"text");
        let error = names_of(root.path(), Files::Shared).unwrap_err();
        assert_eq!(error.code(), "Z0344");
        assert!(error.to_string().ends_with("and what ignore files name)"), "{error}");
    }

    #[test]
    fn the_directory_itself_may_be_a_link_and_hidden() {
        let outer = tempfile::tempdir().unwrap();
        write(outer.path(), ".data/x", b"text");
        symlink(outer.path().join(".data"), outer.path().join("link")).unwrap();
        for root in [".data", "link"] {
            assert_eq!(names(&outer.path().join(root)).unwrap(), ["x"], "{root}");
        }
    }
}
