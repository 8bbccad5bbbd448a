//! Workspace: the text everybody has, the sources and documents of the cargo workspace. Never runs cargo.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::error::DataError;
use super::tree::for_each_text;

/// What people write in a workspace.
const EXTENSIONS: [&str; 5] = ["rs", "md", "ron", "toml", "py"];

/// All sources and documents (`.rs`, `.md`, `.ron`, `.toml`, `.py`) of the cargo workspace around `start`, in the order
/// of their relative paths, each after a line `==> path <==`. Without a workspace, those of the package.
///
/// Hidden entries, `target`, `node_modules`, symbolic links and what is not UTF-8 are left out. The same files give the
/// same text, wherever they lie.
///
/// # Errors
/// Z0340 if something cannot be read, Z0345 if no `Cargo.toml` is in `start` or above it.
pub fn workspace_text(start: &Path) -> Result<String, DataError> {
    let root = root(start)?;
    let written_by_people = |path: &Path| EXTENSIONS.iter().any(|&it| path.extension().is_some_and(|e| e == it));
    let mut joined = String::new();
    for_each_text(&root, written_by_people, |path, text| {
        let name = path.strip_prefix(&root).expect("files lie below the root they were found from");
        joined.push_str(&format!("==> {} <==\n{text}", name.display()));
        if !joined.ends_with('\n') {
            joined.push('\n');
        }
        Ok(())
    })?;
    Ok(joined)
}

/// The nearest directory from `start` upwards whose manifest is a workspace's, else the nearest with a manifest.
fn root(start: &Path) -> Result<PathBuf, DataError> {
    // Else `.` would have nothing above it.
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

/// Whether a manifest has the table `workspace`, or one in it.
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

    const EXPECTED: &str = "==> Cargo.toml <==\n[workspace]\n\
                            ==> README.md <==\n# é\n\
                            ==> member/Cargo.toml <==\n[package]\nversion.workspace = true\n\
                            ==> member/src/lib.rs <==\n//! No last newline\n";

    #[test]
    fn is_the_same_from_anywhere_inside() {
        let root = workspace();
        for start in ["", "member", "member/src", "member/src/lib.rs", "member/../target"] {
            assert_eq!(workspace_text(&root.path().join(start)).unwrap(), EXPECTED, "from `{start}`");
        }
    }

    #[test]
    fn is_the_nearest_package_without_a_workspace() {
        let root = workspace();
        write(root.path(), "Cargo.toml", "[package]\nname = \"outer\"\n");
        let text = workspace_text(&root.path().join("member/src")).unwrap();
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
