//! Head: the version of a spec in git's HEAD, as a file to build from. Only asks git.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::CommandError;
use crate::program::write_if_changed;
use crate::workspace::Workspace;

/// Writes the version of a spec in HEAD to a separate file, below cargo's target directory.
///
/// # Errors
/// Z0120 if git has no such file, with git's output.
pub fn committed(spec: &Path) -> Result<PathBuf, CommandError> {
    let text = show(spec).map_err(|source| CommandError::Uncommitted { spec: spec.to_owned(), source })?;
    let folder = Workspace::find()?.target.join("zero").join("head");
    std::fs::create_dir_all(&folder).map_err(|source| CommandError::Write { path: folder.clone(), source })?;
    // At its own path, so that its binary does not replace the binary of the spec itself.
    let path = folder.join(spec.file_name().unwrap_or(spec.as_os_str()));
    write_if_changed(&path, &text)?;
    Ok(path)
}

fn show(spec: &Path) -> io::Result<Vec<u8>> {
    let folder = spec.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let name = spec.file_name().ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
    // `./` makes git resolve the path from the folder that it runs in.
    let object = format!("HEAD:./{}", name.to_string_lossy());
    let output = Command::new("git").arg("-C").arg(folder).args(["show", &object]).output()?;
    match output.status.success() {
        true => Ok(output.stdout),
        false => Err(io::Error::other(String::from_utf8_lossy(&output.stderr).trim().to_owned())),
    }
}
