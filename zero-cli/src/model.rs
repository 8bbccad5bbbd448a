//! Model: whether a binary was built from a spec. Never starts the binary, because a program without a model may do
//! anything.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use zero_plan::spec::ModelSize;

use crate::error::CommandError;

/// Checks that something in the binary at `built` is under `#[zero]`. The attribute makes the spec one of the program's
/// sources, and cargo lists the sources in a file beside the binary.
pub fn require(built: &Path, spec: &Path, model: &str) -> Result<(), CommandError> {
    let listed = std::fs::read_to_string(built.with_extension("d")).unwrap_or_default();
    let found = spec.canonicalize().is_ok_and(|path| lists(&listed, &path));
    if found { Ok(()) } else { Err(CommandError::WithoutModel { spec: spec.to_owned(), model: model.to_owned() }) }
}

/// Checks that the binary at `built` was built in the size that was asked for; otherwise the size would be ignored. Returns the
/// size in words, as far as it was asked for; none where nothing was.
pub fn require_size(built: &Path, model: &str, size: &ModelSize) -> Result<Option<String>, CommandError> {
    let [name, parts] = size.variables().map(|(variable, value)| (value, reads(built, variable)));
    let told = size.parts().map(|(part, n)| format!("{part} {n}")).collect::<Vec<_>>().join(", ");
    match (name, parts) {
        ((Some(size), Some(false)), _) => Err(CommandError::OneSize { model: model.to_owned(), size }),
        (_, (Some(_), Some(false))) => Err(CommandError::FixedParts { model: model.to_owned(), parts: told }),
        ((None, None | Some(false)), _) => Ok(None),
        ((name, _), _) => {
            let said = [name, Some(told).filter(|told| !told.is_empty()).map(|told| format!("with {told}"))];
            Ok(Some(said.into_iter().flatten().collect::<Vec<_>>().join(", ")).filter(|said| !said.is_empty()))
        }
    }
}

/// Whether the crate of the binary at `built` reads a variable when it is compiled. Beside its output, to which cargo's binary
/// is a hard link, the compiler writes a list of the variables; none if it is not there.
fn reads(built: &Path, variable: &str) -> Option<bool> {
    let inode = |path: &Path| std::fs::metadata(path).map(|metadata| metadata.ino()).ok();
    let entries = std::fs::read_dir(built.with_file_name("deps")).into_iter().flatten().flatten();
    let mut same = entries.map(|entry| entry.path()).filter(|path| inode(path) == inode(built));
    let listed = same.next().and_then(|path| std::fs::read_to_string(path.with_extension("d")).ok());
    let start = format!("# env-dep:{variable}");
    listed.map(|listed| listed.lines().any(|line| line.starts_with(&start)))
}

/// Whether a list of sources, `binary: source source`, contains a file. A space in a name has a backslash before it.
fn lists(listed: &str, file: &Path) -> bool {
    let sources = listed.replace("\\ ", "\0");
    // Cargo can be configured to write paths relative to some other directory.
    sources.split_whitespace().any(|source| file.ends_with(source.replace('\0', " ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_are_found_by_their_whole_name() {
        let listed = "/target/release/gpt: /gpt/src/main.rs /my\\ specs/a.ron specs/b.ron\n";
        assert!(lists(listed, Path::new("/my specs/a.ron")) && lists(listed, Path::new("/gpt/specs/b.ron")));
        for other in ["/specs/a.ron", "/my specs/aa.ron", "/b.ron", "/gpt/specs/bb.ron"] {
            assert!(!lists(listed, Path::new(other)), "{other}");
        }
        assert!(!lists("", Path::new("/my specs/a.ron")));
    }
}
