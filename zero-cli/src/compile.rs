//! Compile: lets cargo compile one program under a spec. Never decides which program.

use std::fs::File;
use std::io::{BufRead, BufReader, IsTerminal};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::Value;
use zero_plan::DeviceKind;

use crate::error::CommandError;
use crate::request::Purpose;
use crate::workspace::{Program, cargo};

/// The result of a build.
pub enum Compiled {
    /// A binary, open, and its path.
    Binary(File, PathBuf),
    /// Nothing; cargo has printed why.
    Nothing {
        /// Whether a rank would need more than the budget of the spec.
        is_over_budget: bool,
    },
}

/// How the compiler's message about a budget begins.
const OVER_BUDGET: &str = "[Z0201] a rank";

/// Runs cargo. Environment variables tell the macro the spec, and that a text will lie beside the binary, and the model its size. The binary is opened
/// as soon as cargo names it, so that another build to the same path does not replace it.
pub fn compile(
    program: &Program,
    spec: &Path,
    size: Option<&str>,
    shapes: Option<&str>,
    device: DeviceKind,
    purpose: Purpose,
) -> Result<Compiled, CommandError> {
    // Only a program for GPUs contains the code that uses them.
    let features: &[&str] = match device {
        DeviceKind::Cpu => &[],
        DeviceKind::Cuda => &["--features", "zero-runtime/cuda"],
    };
    // Only the package itself is not optimised, so that its dependencies are compiled once for both purposes.
    let unoptimised = format!("profile.release.package.{:?}.opt-level=0", program.package);
    let profile: &[&str] = match purpose {
        Purpose::Training => &[],
        Purpose::Questions => &["--config", &unoptimised],
    };
    let mut cargo = cargo();
    match shapes {
        Some(shapes) => cargo.env("ZERO_PROBE", shapes),
        None => cargo.env_remove("ZERO_PROBE"),
    };
    if let Some(size) = size {
        cargo.env("ZERO_SIZE", size);
    }
    // The compiler's messages come as JSON, so that they can be examined, and are then shown as cargo would show them.
    let format = if std::io::stderr().is_terminal() { "json,json-diagnostic-rendered-ansi" } else { "json" };
    let mut child = cargo
        .args(["build", "--release", "--message-format", format])
        .args(profile)
        .args(features)
        .args(["--package", &program.package, program.kind, &program.name])
        .env("ZERO_SPEC", spec)
        .env("ZERO_TEXT", "beside")
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|source| CommandError::Cargo { source })?;
    let messages = child.stdout.take().map(BufReader::new);
    let (mut built, mut is_over_budget) = (None, false);
    for line in messages.into_iter().flat_map(BufRead::lines).map_while(Result::ok) {
        if let Some(message) = rendered(&line) {
            eprint!("{message}");
            is_over_budget |= message.contains(OVER_BUDGET);
        }
        if let Some(path) = executable(&line, program) {
            let file = File::open(&path);
            let path = PathBuf::from(path);
            built = Some(match file {
                Ok(file) => Ok(Compiled::Binary(file, path)),
                Err(source) => Err(CommandError::Start { binary: path, source }),
            });
        }
    }
    let status = child.wait().map_err(|source| CommandError::Cargo { source })?;
    built.filter(|_| status.success()).unwrap_or(Ok(Compiled::Nothing { is_over_budget }))
}

/// The compiler's text, if a message of cargo's contains it.
fn rendered(line: &str) -> Option<String> {
    let message: Value = serde_json::from_str(line).ok()?;
    message["message"]["rendered"].as_str().filter(|_| message["reason"] == "compiler-message").map(str::to_owned)
}

/// The path of the program's executable, if a message of cargo's names it.
fn executable(line: &str, program: &Program) -> Option<String> {
    let message: Value = serde_json::from_str(line).ok()?;
    let is_ours = message["target"]["name"] == program.name.as_str();
    Some(message["executable"].as_str().filter(|_| is_ours)?.to_owned())
}
