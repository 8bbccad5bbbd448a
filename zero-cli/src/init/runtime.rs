//! Runtime: what a new crate depends on: a clone of this project's repository, or the release that the command is of. Never
//! clones.

use std::path::{Path, PathBuf};

use crate::error::CommandError;
use crate::origin::IN_CLONE;

/// The folder in which the command was compiled. If it is in a clone, its parent is the clone.
const BUILT_FROM: &str = env!("CARGO_MANIFEST_DIR");

/// The version of the command, which is also that of the runtime.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// What a new crate depends on.
#[derive(Debug)]
pub enum Runtime {
    /// A clone of the repository.
    Clone {
        /// Its root, an absolute path.
        path: PathBuf,
        /// How it was chosen.
        origin: CloneChoice,
    },
    /// The release of the command.
    Release,
}

/// How a clone was chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CloneChoice {
    /// The command was built from this clone.
    OfTheCommand,
    /// By `--zero`.
    Given,
}

impl Runtime {
    /// The clone at `given`. Otherwise the clone that the command was built from, or its release if it was built from a package.
    ///
    /// # Errors
    /// Z0159 if there is no clone.
    pub fn find(given: Option<&Path>) -> Result<Self, CommandError> {
        match given {
            Some(path) => Self::clone_at(path, CloneChoice::Given),
            None if IN_CLONE => Self::clone_at(&Path::new(BUILT_FROM).join(".."), CloneChoice::OfTheCommand),
            None => Ok(Self::Release),
        }
    }

    fn clone_at(asked: &Path, origin: CloneChoice) -> Result<Self, CommandError> {
        let missing = |what: &str| CommandError::NoRuntime { path: asked.to_owned(), what: what.to_owned() };
        let path = asked.canonicalize().map_err(|error| missing(&error.to_string()))?;
        // The runtime's own folder is accepted in place of its clone.
        let path = if path.ends_with("zero-runtime") { path.join("..") } else { path };
        let path = path.canonicalize().map_err(|error| missing(&error.to_string()))?;
        if path.to_str().is_none_or(|path| path.contains(['"', '\\'])) {
            return Err(missing("its path has characters that a manifest cannot have"));
        }
        match path.join("zero-runtime/Cargo.toml").is_file() {
            true => Ok(Self::Clone { path, origin }),
            false => Err(missing("there is no `zero-runtime/Cargo.toml` in it")),
        }
    }

    /// In words, for the person who makes a crate.
    pub fn words(&self) -> String {
        match self {
            Self::Clone { path, origin } => {
                let how = match origin {
                    CloneChoice::OfTheCommand => "which this command was built from; `--zero PATH` uses another clone",
                    CloneChoice::Given => "as given by `--zero`",
                };
                format!("{}, {how}", path.join("zero-runtime").display())
            }
            Self::Release => format!("version {VERSION}, that of this command; `--zero PATH` uses a clone"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn z0159_clone_without_a_runtime() {
        let folder = tempfile::tempdir().expect("a folder");
        let error = Runtime::find(Some(folder.path())).expect_err("no clone").to_string();
        assert!(error.starts_with("error[Z0159]: no zero-runtime in "), "{error}");
        let error = Runtime::find(Some(&folder.path().join("nowhere"))).expect_err("no folder").to_string();
        assert!(error.starts_with("error[Z0159]: ") && error.contains("--zero"), "{error}");
    }

    #[test]
    fn the_clone_is_that_of_the_command_or_the_one_given() {
        let clone = |given: Option<&Path>| match Runtime::find(given).expect("a clone") {
            Runtime::Clone { path, origin } => (path, origin),
            Runtime::Release => panic!("this command is built in a clone"),
        };
        let (own, origin) = clone(None);
        assert_eq!(origin, CloneChoice::OfTheCommand);
        for given in [&own, &own.join("zero-runtime")] {
            assert_eq!(clone(Some(given)), (own.clone(), CloneChoice::Given));
        }
    }
}
