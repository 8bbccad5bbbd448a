//! Run: what `main` of a generated program does: read arguments, become a launcher or a rank, train. Never knows what a
//! layer computes.

mod arguments;
mod learning_rate;
mod output;
mod sample;
mod train;

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use clap::Parser;

pub use arguments::{RunArguments, TextArguments};
pub use learning_rate::LearningRate;
pub use output::{StepLine, peak_resident_bytes};

use crate::data::{Dataset, Text, workspace_text};
use crate::error::Error;
use crate::launch::{self, EXIT_REPORTED, Role};
use crate::layer::Tokens;
use crate::model::Model;
use crate::plan::{Report, Transport};
use crate::transport::{local, shm};
use train::Finale;

/// Trains this binary's model. Started alone, it starts its own ranks on this host; started by a launcher that sets
/// RANK and WORLD_SIZE (torchrun), or the like of Slurm or Open MPI, it is one rank.
#[derive(Parser, Clone, Debug)]
#[command(version, max_term_width = 100)]
struct TextCommand {
    #[command(flatten)]
    run: RunArguments,
    #[command(flatten)]
    text: TextArguments,
}

/// Trains this binary's model. Started alone, it starts its own ranks on this host; started by a launcher that sets
/// RANK and WORLD_SIZE (torchrun), or the like of Slurm or Open MPI, it is one rank.
#[derive(Parser, Clone, Debug)]
#[command(version, max_term_width = 100)]
struct DataCommand {
    #[command(flatten)]
    run: RunArguments,
}

/// `main` of a program that trains a model of tokens on text: the data of `--data`, or else the text that is in the
/// binary, or else the sources of the workspace that the model is defined in.
pub fn main<M: Model<Input = Tokens>>() -> ExitCode {
    main_from::<M>(std::env::args_os())
}

/// [`main`] with other arguments than those of the process; the first is the program's name. Ranks are started with the
/// process's own, so it must come here with the same ones from those.
pub fn main_from<M: Model<Input = Tokens>>(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let command = TextCommand::parse_from(arguments);
    let text = match text::<M>(command.text.data.as_deref()) {
        Ok(text) => text,
        Err(error) => return fail(&error),
    };
    let seed = command.run.seed;
    run::<M>(&command.run, &text, &|engine| sample::sample(engine, &command.text, seed))
}

/// `main` of a program that trains a model on a dataset of its own.
pub fn main_with<M: Model>(data: impl Dataset<Input = M::Input>) -> ExitCode {
    let command = DataCommand::parse();
    run::<M>(&command.run, &data, &|_| Ok(()))
}

fn text<M: Model>(path: Option<&Path>) -> Result<Text, Error> {
    let (length, classes) = (M::PLAN.config.length, M::HEAD.classes);
    Ok(match (path, M::TEXT) {
        (Some(path), _) => Text::open(path, length, classes)?,
        (None, Some(text)) => Text::embedded(text, length, classes)?,
        (None, None) => {
            let text = workspace_text(Path::new(M::DIRECTORY))?;
            Text::embedded(text.into_bytes().leak(), length, classes)?
        }
    })
}

/// Whether this process speaks for all where all find the same: alone, or rank 0.
fn speaks_for_all() -> bool {
    !matches!(launch::role_from(usize::MAX, |name| std::env::var(name).ok()), Ok(Role::Rank(place)) if place.rank > 0)
}

fn fail(error: &Error) -> ExitCode {
    if !(error.is_echo() || error.is_common() && !speaks_for_all()) {
        eprintln!("{error}");
    }
    ExitCode::from(EXIT_REPORTED)
}

fn run<M: Model>(arguments: &RunArguments, data: &dyn Dataset<Input = M::Input>, finale: Finale<M>) -> ExitCode {
    match become_ranks::<M>(arguments, data, finale) {
        Ok(code) => code,
        Err(error) => fail(&error),
    }
}

fn become_ranks<M: Model>(
    arguments: &RunArguments,
    data: &dyn Dataset<Input = M::Input>,
    finale: Finale<M>,
) -> Result<ExitCode, Error> {
    arguments.check()?;
    let plan = M::PLAN;
    // Where ranks are threads, one process is the whole world.
    let processes = match plan.config.transport {
        Transport::Shm => plan.config.ranks,
        Transport::Local => 1,
    };
    let role = launch::role(processes)?;
    if !matches!(&role, Role::Rank(place) if place.rank > 0 || place.launcher_pid.is_some()) {
        println!("{}\n", Report(plan));
    }
    if arguments.plan {
        return Ok(ExitCode::SUCCESS);
    }
    match role {
        Role::Launcher if processes > 1 => Ok(launch::launch(processes)),
        Role::Rank(place) if processes > 1 => {
            let (arena, watch) = shm::join(plan, &place)?;
            train::train(arena, arguments, data, finale)?;
            watch.goodbye();
            Ok(ExitCode::SUCCESS)
        }
        Role::Launcher | Role::Rank(_) => {
            let ranks = local::run(plan, Result::is_err, |arena| train::train(arena, arguments, data, finale))?;
            // An echo of another rank's error is worth telling only if there is nothing else.
            let mut errors: Vec<Error> = ranks.into_iter().filter_map(Result::err).collect();
            errors.sort_by_key(Error::is_echo);
            errors.into_iter().next().map_or(Ok(ExitCode::SUCCESS), Err)
        }
    }
}
