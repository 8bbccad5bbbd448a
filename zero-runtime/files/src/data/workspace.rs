//! Workspace: text that is always available, the sources and documents of a cargo workspace. Never runs cargo.

use std::fs;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

use zero_plan::Bytes;
use zero_plan::footprint::DATA_BYTES;

use super::contents::{Skipped, TakenFiles};
use super::error::DataError;
use super::tree::{Files, for_each_text};

/// Extensions of the files that people write in a workspace.
const EXTENSIONS: [&str; 5] = ["rs", "md", "ron", "toml", "py"];

/// A vocabulary that has all bytes, so that no id is out of range.
const VOCABULARY: usize = 256;

/// The text of a workspace and the files that it is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkspaceText {
    /// The contents of all files, each after a line `==> path <==`.
    pub text: String,
    /// The files: path below the root and length in bytes, in the order in which they are joined.
    pub files: Vec<(PathBuf, usize)>,
    /// The files that were passed over. Those that ignore files name are not counted.
    pub skipped: Skipped,
    /// The files that no longer fit into [`DATA_BYTES`].
    pub beyond: usize,
}

impl WorkspaceText {
    /// All sources and documents (`.rs`, `.md`, `.ron`, `.toml`, `.py`) below `root`, in the order of their relative
    /// paths.
    ///
    /// Files that git would ignore are left out, in a repository or not: those that `.gitignore` and `.ignore` name in the workspace
    /// or above it, and those of the user's own excludes. Also left out are hidden entries, such as `.env`, directories
    /// that tools fill (`target`, `node_modules`, those with a `CACHEDIR.TAG`), symbolic links, files that are not UTF-8, and all
    /// files that no longer fit into 16 MiB. A file that git neither tracks nor ignores is taken. The same files give the same text,
    /// wherever they lie.
    ///
    /// # Errors
    /// Z0340 if something cannot be read, Z0344 if there is no text, Z0346 if an ignore file is not understood.
    pub fn below(root: &Path) -> Result<Self, DataError> {
        let root = root.canonicalize().map_err(DataError::unreadable(root))?;
        let written_by_people = |path: &Path| EXTENSIONS.iter().any(|&it| path.extension().is_some_and(|e| e == it));
        let mut joined = Self { text: String::new(), files: Vec::new(), skipped: Skipped::new(), beyond: 0 };
        let taken = for_each_text(&root, Files::Shared, written_by_people, VOCABULARY, |path, scan| {
            let name = path.strip_prefix(&root).expect("files lie below the root they were found from");
            let title = format!("==> {} <==\n", name.display());
            // Includes a line end, which a file may lack.
            if joined.text.len() + title.len() + scan.bytes + 1 > DATA_BYTES {
                joined.beyond += 1;
                return Ok(());
            }
            joined.text.push_str(&title);
            // The file is read into the joined text, because the plan has no room for a second copy.
            let read = fs::File::open(&path).and_then(|mut file| file.read_to_string(&mut joined.text));
            let read = read.map_err(DataError::unreadable(&path))?;
            if !joined.text.ends_with('\n') {
                joined.text.push('\n');
            }
            joined.files.push((name.to_owned(), read));
            Ok(())
        })?;
        joined.skipped = taken.skipped;
        Ok(joined)
    }

    /// The files that it was made of.
    pub fn taken(&self) -> TakenFiles {
        let mut skipped = self.skipped.clone();
        if self.beyond > 0 {
            skipped.insert(format!("beyond {} of text", Bytes(DATA_BYTES)), self.beyond);
        }
        TakenFiles { files: self.files.len(), skipped, ..TakenFiles::default() }
    }
}

/// The text of the cargo workspace around `start`, see [`WorkspaceText::below`]. Without a workspace, that of the
/// package.
///
/// # Errors
/// Those of [`WorkspaceText::below`], and Z0345 if no `Cargo.toml` is in `start` or above it.
pub fn workspace_text(start: &Path) -> Result<WorkspaceText, DataError> {
    WorkspaceText::below(&root(start)?)
}

/// The nearest directory from `start` upwards whose manifest is that of a workspace. If there is none, the nearest one
/// with a manifest.
fn root(start: &Path) -> Result<PathBuf, DataError> {
    // A relative path such as `.` has no directories above it.
    let start = start.canonicalize().map_err(DataError::unreadable(start))?;
    let mut package = None;
    for directory in start.ancestors() {
        let path = directory.join("Cargo.toml");
        match fs::read_to_string(&path) {
            Ok(manifest) if is_workspace(&manifest) => return Ok(directory.to_owned()),
            Ok(_) => package = package.or(Some(directory)),
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {}
            Err(source) => return Err(DataError::Unreadable { path, source }),
        }
    }
    package.map(Path::to_owned).ok_or(DataError::NoWorkspace { start })
}

/// Whether a manifest has the table `workspace`, or a table inside of it.
fn is_workspace(manifest: &str) -> bool {
    fn after_workspace(line: &str) -> Option<&str> {
        line.trim_start().strip_prefix('[')?.trim_start().strip_prefix("workspace")
    }
    manifest.lines().filter_map(after_workspace).any(|rest| rest.trim_start().starts_with([']', '.']))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(root: &Path, name: &str, content: &str) {
        let path = root.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    fn workspace() -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        write(root.path(), "Cargo.toml", "[workspace]\n");
        write(root.path(), "member/Cargo.toml", "[package]\nversion.workspace = true\n");
        write(root.path(), "member/src/lib.rs", "//! No last newline");
        write(root.path(), "README.md", "# é\n");
        write(root.path(), "Cargo.lock", "generated\n");
        write(root.path(), "target/debug/generated.rs", "generated\n");
        write(root.path(), ".hidden/x.rs", "hidden\n");
        root
    }

    #[test]
    fn what_git_ignores_is_left_out_and_the_files_are_listed() {
        let root = workspace();
        write(root.path(), "secret.toml", "token = 1\n");
        write(root.path(), "member/notes.md", "private\n");
        write(root.path(), ".env", "TOKEN=1\n");
        write(root.path(), ".gitignore", "secret.toml\nnotes.md\n");
        let found = WorkspaceText::below(root.path()).unwrap();
        assert_eq!(found.text, EXPECTED);
        let files = [("Cargo.toml", 12), ("README.md", 5), ("member/Cargo.toml", 35), ("member/src/lib.rs", 19)];
        assert_eq!(found.files, files.map(|(name, bytes)| (PathBuf::from(name), bytes)));
    }

    const EXPECTED: &str = "==> Cargo.toml <==\n[workspace]\n\
                            ==> README.md <==\n# é\n\
                            ==> member/Cargo.toml <==\n[package]\nversion.workspace = true\n\
                            ==> member/src/lib.rs <==\n//! No last newline\n";

    #[test]
    fn is_the_same_from_anywhere_inside() {
        let root = workspace();
        for start in ["", "member", "member/src", "member/src/lib.rs", "member/../target"] {
            assert_eq!(workspace_text(&root.path().join(start)).unwrap().text, EXPECTED, "from `{start}`");
        }
    }

    #[test]
    fn what_was_taken_and_what_was_not_is_told() {
        let root = workspace();
        write(root.path(), "table.parquet", "text");
        let taken = workspace_text(root.path()).unwrap().taken();
        let skipped = ".parquet (a table): 1, files of other kinds: 1, generated directories: 1, hidden entries: 1";
        assert_eq!((taken.files, taken.list().as_str()), (4, skipped));
    }

    #[test]
    fn what_no_longer_fits_is_left_out_and_told() {
        let root = workspace();
        write(root.path(), "large.md", &"x".repeat(DATA_BYTES - 10));
        let found = workspace_text(root.path()).unwrap();
        assert_eq!((found.text.as_str(), found.beyond), (EXPECTED, 1));
        assert!(found.taken().list().contains("beyond 16.0 MiB of text: 1"), "{}", found.taken().list());
    }

    #[test]
    fn is_the_nearest_package_without_a_workspace() {
        let root = workspace();
        write(root.path(), "Cargo.toml", "[package]\nname = \"outer\"\n");
        let text = workspace_text(&root.path().join("member/src")).unwrap().text;
        assert!(text.starts_with("==> Cargo.toml <==\n[package]\nversion"), "{text}");
    }

    #[test]
    fn a_workspace_is_known_by_its_tables() {
        for yes in ["[workspace]", "[package]\n  [ workspace ] # root", "[workspace.package]", "[workspace . lints]"] {
            assert!(is_workspace(yes), "{yes}");
        }
        for no in ["[package]\nworkspace = \"..\"", "# [workspace]", "[workspaces]", "[package.workspace]", ""] {
            assert!(!is_workspace(no), "{no}");
        }
    }

    #[test]
    fn no_manifest_is_z0345_and_no_directory_z0340() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(workspace_text(root.path()).unwrap_err().code(), "Z0345");
        assert_eq!(workspace_text(&root.path().join("absent")).unwrap_err().code(), "Z0340");
    }
}
