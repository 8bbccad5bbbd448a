//! Compile: lets cargo compile one program under a spec, or the program that measures GPUs. Never chooses the program.

use std::fs::File;
use std::io::{BufRead, BufReader, IsTerminal};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;
use zero_plan::DeviceKind;
use zero_plan::spec::ModelSize;

use crate::error::CommandError;
use crate::request::Purpose;
use crate::say;
use crate::workspace::{Program, Workspace, cargo};

/// The result of a build.
pub enum Compiled {
    /// A binary, open, and its path.
    Binary(File, PathBuf),
    /// Nothing, because a rank would need more than the budget of the spec; cargo has printed this.
    OverBudget,
    /// Nothing, because the model does not come in this size. The message of the compiler, which has not been printed.
    NotInSize(String),
    /// Nothing; cargo has printed why.
    Nothing,
}

/// The program that measures GPUs.
const GPUS: &str = "zero-gpus";
/// The beginning of the compiler's message about a budget.
const OVER_BUDGET: &str = "[Z0201] a rank";
/// The beginnings of its messages about a size: one that the model does not have, and parts that it lacks or that do not fit.
const NOT_IN_SIZE: [&str; 3] = ["[Z0214]", "[Z0216]", "[Z0217]"];

/// Runs cargo. Environment variables tell the macro the spec and whether a text will lie beside the binary, and the model its
/// size. The binary is opened as soon as cargo names it, so that another build to the same path does not replace it.
pub fn compile(
    program: &Program,
    spec: &Path,
    size: &ModelSize,
    shapes: Option<&str>,
    (device, publishes): (DeviceKind, bool),
    purpose: Purpose,
) -> Result<Compiled, CommandError> {
    // Only a program for GPUs contains the code for GPUs, and only one that publishes or answers requests contains a server.
    let cuda = (device == DeviceKind::Cuda).then_some("zero-runtime/cuda");
    let serves = purpose == Purpose::Serving;
    let over_http = match (serves, publishes) {
        (true, _) => Some("zero-runtime/serve"),
        (false, true) => Some("zero-runtime/publish"),
        (false, false) => None,
    };
    let features = cuda.into_iter().chain(over_http);
    let features: Vec<&str> = features.flat_map(|feature| ["--features", feature]).collect();
    // Only the package itself is not optimised, so that its dependencies are compiled once for both purposes.
    let unoptimised = format!("profile.release.package.{:?}.opt-level=0", program.package);
    let profile: &[&str] = match purpose {
        Purpose::Training | Purpose::Serving => &[],
        Purpose::Questions => &["--config", &unoptimised],
    };
    let mut cargo = cargo();
    let of_build = [("ZERO_PROBE", shapes.map(str::to_owned)), ("ZERO_SERVE", serves.then(|| "1".to_owned()))];
    let variables = size.variables().into_iter().chain(of_build);
    for (variable, value) in variables {
        match value {
            Some(value) => cargo.env(variable, value),
            None => cargo.env_remove(variable),
        };
    }
    // The compiler's messages are read as JSON, so that they can be examined, and then shown as cargo would show them.
    let format = if std::io::stderr().is_terminal() { "json,json-diagnostic-rendered-ansi" } else { "json" };
    cargo
        .args(["build", "--release", "--message-format", format])
        .args(profile)
        .args(features)
        .args(["--package", &program.package, program.kind, &program.name])
        .env("ZERO_SPEC", spec)
        .env("ZERO_TEXT", "beside");
    compiled(cargo, &program.name)
}

/// Runs cargo with messages in JSON, and shows the compiler's messages.
fn compiled(mut cargo: Command, name: &str) -> Result<Compiled, CommandError> {
    let mut child = cargo.stdout(Stdio::piped()).spawn().map_err(|source| CommandError::Cargo { source })?;
    let messages = child.stdout.take().map(BufReader::new);
    let (mut built, mut is_over_budget, mut not_in_size) = (None, false, None);
    for line in messages.into_iter().flat_map(BufRead::lines).map_while(Result::ok) {
        // Each use of the size fails too, which says nothing more.
        not_in_size = not_in_size.or_else(|| about_size(&line));
        if let Some(message) = rendered(&line).filter(|_| not_in_size.is_none()) {
            say::note(message.trim_end());
            is_over_budget |= message.contains(OVER_BUDGET);
        }
        if let Some(path) = executable(&line, name) {
            let file = File::open(&path);
            let path = PathBuf::from(path);
            built = Some(match file {
                Ok(file) => Ok(Compiled::Binary(file, path)),
                Err(source) => Err(CommandError::Start { binary: path, source }),
            });
        }
    }
    let status = child.wait().map_err(|source| CommandError::Cargo { source })?;
    let nothing = match not_in_size {
        Some(message) => Compiled::NotInSize(message),
        None if is_over_budget => Compiled::OverBudget,
        None => Compiled::Nothing,
    };
    built.filter(|_| status.success()).unwrap_or(Ok(nothing))
}

/// Lets cargo compile the program that measures GPUs, from the `zero-cuda` on which the program of a model depends. Cargo
/// finds this crate, so it may lie in a clone, in a checkout of git or in a registry.
pub fn compile_gpus(workspace: &Workspace, program: &Program) -> Result<Option<PathBuf>, CommandError> {
    let manifest = workspace.manifest_below(program, "zero-cuda", "zero-runtime/cuda")?;
    let Some(manifest) = manifest else { return Ok(None) };
    let mut command = cargo();
    command.args(["build", "--release", "--message-format", "json", "--manifest-path"]).arg(manifest);
    command.arg("--target-dir").arg(&workspace.target).args(["--bin", GPUS]);
    match compiled(command, GPUS)? {
        Compiled::Binary(_, path) => Ok(Some(path)),
        _ => Ok(None),
    }
}

/// The compiler's text, if a message from cargo contains it.
fn rendered(line: &str) -> Option<String> {
    let message: Value = serde_json::from_str(line).ok()?;
    message["message"]["rendered"].as_str().filter(|_| message["reason"] == "compiler-message").map(str::to_owned)
}

/// What the compiler says about a size in a message from cargo, from its code on.
fn about_size(line: &str) -> Option<String> {
    let message: Value = serde_json::from_str(line).ok()?;
    let text = message["message"]["message"].as_str()?;
    NOT_IN_SIZE.iter().find_map(|code| text.find(code)).map(|start| text[start..].to_owned())
}

/// The path of the executable `name`, if a message from cargo names it.
fn executable(line: &str, name: &str) -> Option<String> {
    let message: Value = serde_json::from_str(line).ok()?;
    let is_ours = message["target"]["name"] == name;
    Some(message["executable"].as_str().filter(|_| is_ours)?.to_owned())
}
