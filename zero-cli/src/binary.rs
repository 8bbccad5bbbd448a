//! Binary: the path of a built binary, and a way to start exactly this binary. Never builds.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::CommandError;

/// A binary as it was built. Exactly this binary is started, even if another build has replaced the file at its path.
#[derive(Debug)]
pub struct Binary {
    path: PathBuf,
    file: File,
    /// The size of its model in words, if it has several.
    pub size: Option<String>,
}

impl Binary {
    /// Copies what cargo has built to `path`. `fresh` is a path in the same file system that no other process writes
    /// to.
    pub fn keep(mut built: File, path: PathBuf, fresh: &Path) -> Result<Self, CommandError> {
        // A running copy cannot be overwritten, but it can be replaced.
        let mut replace = || {
            let mut copy = File::create(fresh)?;
            io::copy(&mut built, &mut copy)?;
            copy.set_permissions(built.metadata()?.permissions())?;
            // A file that is open for writing cannot be started.
            drop(copy);
            let file = File::open(fresh)?;
            path.parent().map_or(Ok(()), fs::create_dir_all)?;
            fs::rename(fresh, &path).map(|()| file)
        };
        match replace() {
            Ok(file) => Ok(Self { path, file, size: None }),
            Err(source) => Err(CommandError::Write { path, source }),
        }
    }

    /// The binary, whose model has this size.
    pub fn in_size(self, size: Option<String>) -> Self {
        Self { size, ..self }
    }

    /// The binary's path, until another build of the same spec replaces the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A path by which this process finds it, even if another build has replaced the file at its own path.
    pub fn own_path(&self) -> PathBuf {
        format!("/proc/self/fd/{}", self.file.as_raw_fd()).into()
    }

    /// The command that starts it, with its path as its name.
    pub fn command(&self) -> Command {
        let mut command = Command::new(self.own_path());
        command.arg0(&self.path);
        command
    }

    /// The error if the binary does not start.
    pub fn not_started(&self, source: io::Error) -> CommandError {
        CommandError::Start { binary: self.path.clone(), source }
    }
}

/// The path of the binary `name` of a spec: `target/zero/bin/`, then the spec's path below the directory that contains
/// `target`, then the name. For a spec elsewhere: `target/zero/elsewhere/`, then its whole path and the name. So no two
/// specs share a binary, even if workspaces share a target directory.
pub fn place(target: &Path, spec: &Path, name: &str) -> PathBuf {
    folder(target, "bin", spec).join(name)
}

/// The place of a spec in a folder `kind` below `target/zero/`, or below `target/zero/elsewhere/`.
pub fn folder(target: &Path, kind: &str, spec: &Path) -> PathBuf {
    let zero = target.join("zero");
    match target.parent().and_then(|around| spec.strip_prefix(around).ok()) {
        Some(path) => zero.join(kind).join(path),
        None => zero.join("elsewhere").join(spec.strip_prefix("/").unwrap_or(spec)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_spec_and_name_has_a_place_of_its_own_and_none_is_ours() {
        let at = |spec: &str, name: &str| place(Path::new("/w/target"), Path::new(spec), name).display().to_string();
        assert_eq!(at("/w/specs/zero3.ron", "gpt"), "/w/target/zero/bin/specs/zero3.ron/gpt");
        assert_eq!(at("/home/me/x.ron", "gpt"), "/w/target/zero/elsewhere/home/me/x.ron/gpt");
        let specs =
            ["/w/a/x.ron", "/w/b/x.ron", "/w/x.ron", "/w/x", "/w/x.txt", "/w/build/lock", "/w2/x.ron", "/x.ron"];
        let mut places: Vec<_> = specs.iter().flat_map(|spec| ["train", "x"].map(|name| at(spec, name))).collect();
        places.sort();
        places.dedup();
        assert_eq!(places.len(), 2 * specs.len());
        assert!(!places.iter().any(|place| place.starts_with("/w/target/zero/build")), "{places:?}");
        // Two workspaces may share a target directory.
        let shared = |spec: &str| place(Path::new("/cache"), Path::new(spec), "gpt");
        assert_ne!(shared("/one/x.ron"), shared("/two/x.ron"));
    }
}
