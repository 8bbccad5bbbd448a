//! Program: from the path of a spec to the program of its model. Checks the spec, finds the program, lets cargo compile, and
//! keeps the result, with the text of the workspace beside it. Never runs the program.

use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};

use zero_files::data::{WorkspaceText, put_text_beside, text_beside};
use zero_plan::spec::{self, Spec};

use crate::binary::{Binary, place};
use crate::compile::{Compiled, compile};
use crate::error::CommandError;
use crate::model;
use crate::request::{ModelRequest, Purpose, Request, size_suffix};
use crate::say;
use crate::workspace::Workspace;

/// Compiles a spec with its model, and puts the text of the workspace beside a binary that trains. With `shapes`, in the form
/// that [`zero_plan::shapes`] reads, the program can be asked for its sizes under other shapes. Returns none if a rank
/// would need more than the budget of the spec, which the compiler has reported.
pub fn program(request: &Request, shapes: Option<&str>, purpose: Purpose) -> Result<Option<Binary>, CommandError> {
    let Request { spec: path, program: ModelRequest { bin, size } } = request;
    let spec = read(path)?;
    let size = size.agreed(&spec, path)?;
    let model = spec.model.clone().ok_or_else(|| CommandError::NoModel { spec: path.clone() })?;
    let workspace = Workspace::find()?;
    let program = workspace.program(&model, bin.as_deref(), path)?;
    let absolute = path.canonicalize().map_err(|source| CommandError::Unreadable { path: path.clone(), source })?;
    if absolute.to_str().is_none() {
        return Err(CommandError::NotUnicode { path: absolute });
    }
    // Cargo builds every spec of a model to the same path, so no other build may run until the binary has been copied.
    let own = workspace.target.join("zero").join("build");
    std::fs::create_dir_all(&own).map_err(|source| CommandError::Write { path: own.clone(), source })?;
    let lock = lock(own.join("lock"))?;
    let (built, at) =
        match compile(&program, &absolute, &size, shapes, (spec.device, !spec.publish.is_none()), purpose)? {
            Compiled::Binary(built, at) => (built, at),
            Compiled::OverBudget => return Ok(None),
            Compiled::NotInSize(message) => return Err(CommandError::NoSize { message }),
            Compiled::Nothing => return Err(CommandError::not_built(path)),
        };
    model::require(&at, path, &program.name)?;
    let told = model::require_size(&at, &program.name, &size)?;
    let target = workspace.target.canonicalize().unwrap_or(workspace.target);
    let name = program.name.clone() + &size_suffix(&size);
    let name = match purpose {
        Purpose::Training => name,
        Purpose::Serving => format!("worker/{name}"),
        Purpose::Questions => format!("asked/{name}"),
    };
    let at = place(&target, &absolute, &name);
    if purpose == Purpose::Training {
        put_text(&workspace.root, &at)?;
    }
    let binary = Binary::keep(built, at, &own.join("fresh"))?.in_size(told);
    drop(lock);
    Ok(Some(binary))
}

/// Puts the text of the workspace beside the binary `at`, and reports this on standard error.
fn put_text(root: &Path, at: &Path) -> Result<(), CommandError> {
    let path = text_beside(at);
    let found = match WorkspaceText::below(root) {
        Ok(found) => found,
        Err(error) => {
            say::note(format_args!("note: {} is left as it is: {error}; --data chooses another text", path.display()));
            return Ok(());
        }
    };
    put_text_beside(at, &found.text).map_err(|source| CommandError::Write { path: path.clone(), source })?;
    let (files, bytes, path) = (found.files.len(), found.text.len(), path.display());
    let beyond = if found.beyond > 0 { format!("; {} more do not fit", found.beyond) } else { String::new() };
    say::note(format_args!(
        "{path}: {files} files of the workspace, {bytes} bytes of text: `cargo zero build --list` names them{beyond}"
    ));
    Ok(())
}

/// Waits until no other command builds in this target directory.
fn lock(path: PathBuf) -> Result<File, CommandError> {
    let lock = || {
        let file = File::create(&path)?;
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => {
                say::note("waiting for another `cargo zero` to build");
                file.lock()?;
            }
            Err(TryLockError::Error(error)) => return Err(error),
            Ok(()) => {}
        }
        Ok(file)
    };
    lock().map_err(|source| CommandError::Write { path: path.clone(), source })
}

/// Reads and parses a spec.
pub fn read(path: &Path) -> Result<Spec, CommandError> {
    let bytes = std::fs::read(path).map_err(|source| CommandError::Unreadable { path: path.to_owned(), source })?;
    let name = path.display().to_string();
    let text = spec::decode(&bytes).map_err(|error| CommandError::Spec(vec![error.render(&name, "")]))?;
    spec::parse(text).map_err(|errors| CommandError::mistakes(&errors, path, text))
}

/// Writes a file, unless it already has these contents, so that cargo does not regard it as changed.
pub fn write_if_changed(path: &Path, contents: &[u8]) -> Result<(), CommandError> {
    if std::fs::read(path).is_ok_and(|found| found == contents) {
        return Ok(());
    }
    std::fs::write(path, contents).map_err(|source| CommandError::Write { path: path.to_owned(), source })
}
