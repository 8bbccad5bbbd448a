//! Runtime: the clone of this project's repository that a new crate depends on, because no registry has the runtime.
//! Never clones.

use std::path::{Path, PathBuf};

use crate::error::CommandError;

/// The folder in which the command was compiled; its parent is the clone.
const BUILT_FROM: &str = env!("CARGO_MANIFEST_DIR");

/// A clone of the repository.
#[derive(Debug)]
pub struct Clone {
    /// Its root, an absolute path.
    pub path: PathBuf,
    /// How it was chosen.
    pub origin: CloneChoice,
}

/// How a clone was chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CloneChoice {
    /// The command was built from this clone.
    OfTheCommand,
    /// By `--zero`.
    Given,
}

impl CloneChoice {
    /// In words, to follow a path.
    pub const fn words(self) -> &'static str {
        match self {
            Self::OfTheCommand => "which this command was built from; `--zero PATH` uses another clone",
            Self::Given => "as given by `--zero`",
        }
    }
}

impl Clone {
    /// The clone at `given`, or the clone that the command was built from.
    ///
    /// # Errors
    /// Z0159 if there is no clone.
    pub fn find(given: Option<&Path>) -> Result<Self, CommandError> {
        let origin = if given.is_some() { CloneChoice::Given } else { CloneChoice::OfTheCommand };
        let asked = given.map_or_else(|| Path::new(BUILT_FROM).join(".."), Path::to_owned);
        let missing = |what: &str| CommandError::NoRuntime { path: asked.clone(), what: what.to_owned() };
        let path = asked.canonicalize().map_err(|error| missing(&error.to_string()))?;
        // The runtime's own folder is accepted in place of its clone.
        let path = if path.ends_with("zero-runtime") { path.join("..") } else { path };
        let path = path.canonicalize().map_err(|error| missing(&error.to_string()))?;
        if path.to_str().is_none_or(|path| path.contains(['"', '\\'])) {
            return Err(missing("its path has characters that a manifest cannot have"));
        }
        match path.join("zero-runtime/Cargo.toml").is_file() {
            true => Ok(Self { path, origin }),
            false => Err(missing("there is no `zero-runtime/Cargo.toml` in it")),
        }
    }

    /// The path of its root.
    pub fn root(&self) -> String {
        self.path.display().to_string()
    }

    /// The path of the runtime in it.
    pub fn runtime(&self) -> String {
        self.path.join("zero-runtime").display().to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn z0159_clone_without_a_runtime() {
        let folder = tempfile::tempdir().expect("a folder");
        let error = Clone::find(Some(folder.path())).expect_err("no clone").to_string();
        assert!(error.starts_with("error[Z0159]: no zero-runtime in "), "{error}");
        let error = Clone::find(Some(&folder.path().join("nowhere"))).expect_err("no folder").to_string();
        assert!(error.starts_with("error[Z0159]: ") && error.contains("--zero"), "{error}");
    }

    #[test]
    fn the_clone_is_that_of_the_command_or_the_one_given() {
        let own = Clone::find(None).expect("this one");
        assert_eq!(own.origin, CloneChoice::OfTheCommand);
        for given in [&own.path, &own.path.join("zero-runtime")] {
            let found = Clone::find(Some(given)).expect("a clone");
            assert_eq!((&found.path, found.origin), (&own.path, CloneChoice::Given));
        }
    }
}
