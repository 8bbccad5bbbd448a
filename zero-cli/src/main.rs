//! `cargo zero`: compiles a parallelism spec and a model into a training binary, and runs it. Knows cargo and files;
//! never interprets a spec or a code: `zero-plan` does.
//!
//! - `program` checks a spec and lets cargo compile its model; `request` and `workspace` find the model; `probe` and
//!   `sizes` ask the built program for the sizes of its units; `build` lets it prove its plan, and `expanded` writes
//!   that as Rust.
//! - `plan`, `simulate`, `advise`, `diff`, `explain`, `import` and `hardware` print the results of `zero-study`. `view`
//!   draws them, as a page or as a figure, with one palette for both, and computes no number. A page is one file that
//!   loads nothing.
//! - `launch` starts ranks on several hosts; `measure` describes this machine; `tokenize` writes token files;
//!   `follow` keeps a folder of published weights; `checkpoint` reads checkpoints; `init` creates a crate; `origin` knows whether the command is a clone's or a package's;
//!   `rebuild` builds a clone's command with the libraries that a verb needs.
//!
//! The command depends on neither the engine nor `zero-runtime`: a built program itself reports the options for its
//! launcher. Training always runs the program that was built and proven: the command starts it from the file that it
//! has open.
//!
//! A new command is a variant of `arguments::Verb` and a file here; its JSON has its own `format`, and a section in
//! `docs/json.md`.

// `say` is the only door, because these panic where nothing can be written.
#![deny(clippy::print_stdout, clippy::print_stderr)]
// What serves only verbs that this command was built without stays, unused.
#![cfg_attr(not(all(feature = "follow", feature = "tokenize", feature = "view")), allow(dead_code, unused_imports))]

mod advise;
mod arguments;
mod binary;
mod build;
mod checkpoint;
mod compile;
mod completions;
mod diff;
mod error;
mod expand;
mod expanded;
mod explain;
mod follow;
mod hardware;
mod import;
mod init;
mod launch;
mod measure;
mod model;
mod offers;
mod origin;
mod plan;
mod probe;
mod program;
#[cfg(all(test, feature = "tokenize", feature = "view"))]
mod reader_tests;
#[cfg(not(all(feature = "follow", feature = "tokenize", feature = "view")))]
mod rebuild;
mod request;
mod saving;
mod say;
mod simulate;
mod sizes;
mod tokenize;
mod view;
mod workspace;

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::ExitCode;

use zero_files::data::WorkspaceText;
use zero_ranks::launch::take_signals;
use zero_ranks::stack::with_room;
use zero_ranks::terminal;

use arguments::Verb;
use error::CommandError;
use request::{Purpose, Request};
use workspace::Workspace;

fn main() -> ExitCode {
    // First, so that all programs that this one starts are told of signals, and can be ended by them.
    let taken = take_signals().map_err(CommandError::from);
    match taken.and_then(|()| with_room(|| execute(arguments::read(std::env::args_os())))?) {
        Ok(code) => code,
        Err(error) => {
            terminal::tell(&error);
            ExitCode::FAILURE
        }
    }
}

fn execute(verb: Verb) -> Result<ExitCode, CommandError> {
    match verb {
        Verb::Run { request, arguments } => become_binary(&request, Purpose::Training, &arguments)?,
        Verb::Sample { request, arguments } => become_only("sample", &request, arguments)?,
        Verb::Evaluate { request, arguments } => become_only("evaluate", &request, arguments)?,
        Verb::Serve { request, arguments } => become_binary(&request, Purpose::Serving, &arguments)?,
        Verb::Build { list: true, .. } => list()?,
        Verb::Build { spec, program, .. } => {
            // Without `--list` there is a spec, because the command line would have been rejected otherwise.
            let binary = spec.map(|spec| build::build(&Request { spec, program }, Purpose::Training)).transpose()?;
            binary.iter().for_each(|binary| say::line(binary.path().display()));
        }
        Verb::Launch(arguments) => return launch::launch(&arguments),
        Verb::Plan(arguments) => plan::plan(&arguments)?,
        Verb::Expand(arguments) => expand::expand(&arguments)?,
        Verb::Simulate(arguments) => simulate::simulate(&arguments)?,
        Verb::View(arguments) => view::view(&arguments)?,
        Verb::Measure(arguments) => measure::measure(&arguments)?,
        Verb::Advise(arguments) => advise::advise(&arguments)?,
        Verb::Tokenize(arguments) => tokenize::tokenize(&arguments)?,
        Verb::Verify(arguments) => checkpoint::verify(&arguments)?,
        Verb::Inspect { path } => checkpoint::inspect(&path)?,
        Verb::Diff(arguments) => return Ok(diff::diff(&arguments)),
        Verb::Export(arguments) => checkpoint::export(&arguments)?,
        Verb::Follow(arguments) => follow::follow(&arguments)?,
        Verb::Explain { words } => say::line(explain::explain(&words)?),
        Verb::Import(arguments) => import::import(&arguments)?,
        Verb::Init(arguments) => init::init(&arguments)?,
        Verb::Completions(arguments) => completions::completions(&arguments, arguments::command()),
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints each file whose text is put beside a binary of this workspace, with its length in bytes.
fn list() -> Result<(), CommandError> {
    for (path, bytes) in WorkspaceText::below(&Workspace::find()?.root)?.files {
        say::line(format_args!("{bytes:>10}  {}", path.display()));
    }
    Ok(())
}

/// [`become_binary`], but the binary does `what` instead of training.
fn become_only(what: &str, request: &Request, mut arguments: Vec<OsString>) -> Result<(), CommandError> {
    arguments.insert(0, format!("--only={what}").into());
    become_binary(request, Purpose::Training, &arguments)
}

/// Builds the binary of a spec and runs it in place of this process, so that signals and the exit code are the binary's.
fn become_binary(request: &Request, purpose: Purpose, arguments: &[OsString]) -> Result<(), CommandError> {
    let binary = build::build(request, purpose)?;
    Err(binary.not_started(binary.command().args(arguments).exec()))
}
