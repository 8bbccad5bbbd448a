//! Compile: lets cargo compile one program under a spec. Never decides which program.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::Value;

use crate::error::Error;
use crate::workspace::{Program, cargo};

/// Runs cargo. The spec and the text reach the macro, and the size the model, through environment variables. The binary is opened as soon as
/// cargo names it, so that another build to the same path does not replace it.
pub fn compile(
    program: &Program,
    spec: &Path,
    text: &Path,
    size: Option<&str>,
    shapes: Option<&str>,
) -> Result<(File, PathBuf), Error> {
    let mut cargo = cargo();
    match shapes {
        Some(shapes) => cargo.env("ZERO_PROBE", shapes),
        None => cargo.env_remove("ZERO_PROBE"),
    };
    if let Some(size) = size {
        cargo.env("ZERO_SIZE", size);
    }
    let mut child = cargo
        .args(["build", "--release", "--message-format", "json-render-diagnostics"])
        .args(["--package", &program.package, program.kind, &program.name])
        .env("ZERO_SPEC", spec)
        .env("ZERO_TEXT", text)
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|source| Error::Cargo { source })?;
    let messages = child.stdout.take().map(BufReader::new);
    let mut built = None;
    for line in messages.into_iter().flat_map(BufRead::lines).map_while(Result::ok) {
        if let Some(path) = executable(&line, program) {
            let file = File::open(&path);
            let path = PathBuf::from(path);
            built = Some(match file {
                Ok(file) => Ok((file, path)),
                Err(source) => Err(Error::Start { binary: path, source }),
            });
        }
    }
    let status = child.wait().map_err(|source| Error::Cargo { source })?;
    built.filter(|_| status.success()).unwrap_or_else(|| Err(Error::Build { spec: spec.to_owned() }))
}

/// The path of the program's executable, if a message of cargo's names it.
fn executable(line: &str, program: &Program) -> Option<String> {
    let message: Value = serde_json::from_str(line).ok()?;
    let is_ours = message["target"]["name"] == program.name.as_str();
    Some(message["executable"].as_str().filter(|_| is_ours)?.to_owned())
}
