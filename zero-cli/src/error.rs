//! Error: what keeps a spec from becoming a binary, or a code from being explained, as a person should see it. Never
//! prints.

use std::path::PathBuf;

use zero_plan::diagnostic;

/// Why the command did not do what it was asked to.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("error[Z0120]: cannot read the spec {}: {source}\n  = help: give the path of a RON file, such as specs/zero3.ron", path.display())]
    Unreadable { path: PathBuf, source: std::io::Error },
    /// Diagnostics of the spec, each rendered with its place.
    #[error("{}", .0.join("\n\n"))]
    Spec(Vec<String>),
    #[error("error[Z0121]: {} names no model\n  = help: add `model: Example(\"gpt\")`, or `model: Package(\"...\")` for a package of your workspace", spec.display())]
    NoModel { spec: PathBuf },
    #[error("error[Z0122]: {} names the model `{model}`, but {workspace} has no such package with a binary\n  = help: expected one of: {}", spec.display(), candidates.join(", "))]
    UnknownModel { spec: PathBuf, model: String, workspace: String, candidates: Vec<String> },
    #[error(
        "error[Z0123]: cannot run cargo: {source}\n  = help: the command needs the cargo that built it, and a workspace around the current directory"
    )]
    Cargo { source: std::io::Error },
    #[error(
        "error[Z0127]: no cargo workspace or package around the current directory\n{message}  = help: go into the directory of your workspace"
    )]
    NoWorkspace { message: String },
    #[error("error[Z0128]: the package `{model}` has several binaries: {}\n  = help: name one of them `{model}`", binaries.join(", "))]
    SeveralBinaries { model: String, binaries: Vec<String> },
    /// Cargo has told why.
    #[error("error[Z0124]: the model does not compile under {}; what rustc says is above", spec.display())]
    Build { spec: PathBuf },
    /// The binary has told why.
    #[error("error[Z0130]: the plan of {} is not sound; what the binary says is above", spec.display())]
    Unproven { spec: PathBuf },
    #[error("error[Z0125]: cannot write {}: {source}\n  = help: the target directory must be writable and have space", path.display())]
    Write { path: PathBuf, source: std::io::Error },
    #[error("error[Z0126]: cannot start {}: {source}", binary.display())]
    Start { binary: PathBuf, source: std::io::Error },
    #[error("error[Z0129]: no message has the code `{code}`\n  = help: {}", nearest_help(code))]
    UnknownCode { code: String },
    #[error("{}", .0.report())]
    Text(#[from] zero_runtime::data::DataError),
}

fn nearest_help(code: &str) -> String {
    match diagnostic::nearest(code) {
        Some(near) => format!("did you mean {}, {}? `cargo zero explain` lists all codes", near.code, near.title),
        None => "`cargo zero explain` lists all codes".to_owned(),
    }
}
