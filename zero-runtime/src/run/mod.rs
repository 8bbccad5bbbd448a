//! Run: what `main` of a generated program does: read arguments, become a launcher or a rank, train. Never knows what a
//! layer computes.

mod arguments;
mod learning_rate;
mod output;
mod sample;
mod threads;
mod train;

use std::ffi::OsString;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;

pub use arguments::{RunArguments, TextArguments};
pub use learning_rate::LearningRate;
pub use output::{StepLine, peak_resident_bytes};

use crate::arena::job_bytes;
use crate::data::{Dataset, Text, workspace_text};
use crate::error::Error;
use crate::launch::{self, EXIT_REPORTED, LaunchError, Role};
use crate::layer::{Tensors, Tokens};
use crate::model::Model;
use crate::plan::{Plan, Report, ScheduleText, Transport, prove};
use crate::profile::Machine;
use crate::transport::{local, shm};
use output::say;
use threads::Threads;
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
    let TextCommand { run, text } = parse::<M, _>(arguments);
    start::<M>(&run, |role| {
        let prompt = sample::prompt(text.prompt.as_deref(), M::HEAD.classes)?;
        let data = open::<M>(text.data.as_deref())?;
        let chosen = (&text.prompt, text.sample, text.temperature.to_bits());
        let agreement = hash_of(&(agreement::<M>(&run), chosen, data.fingerprint()));
        become_ranks::<M>(role, &run, agreement, &data, &|engine| sample::sample(engine, &prompt, &text, run.seed))
    })
}

/// `main` of a program that trains a model on a dataset of its own.
pub fn main_with<M: Model>(data: impl Dataset<Input = M::Input>) -> ExitCode {
    let DataCommand { run } = parse::<M, _>(std::env::args_os());
    start::<M>(&run, |role| become_ranks::<M>(role, &run, agreement::<M>(&run), &data, &|_| Ok(())))
}

/// Arguments, or the end of the process: told once, by rank 0 where all ranks are given the same.
fn parse<M: Model, C: Parser>(arguments: impl IntoIterator<Item = OsString>) -> C {
    C::try_parse_from(arguments).unwrap_or_else(|error| {
        if is_follower(&role::<M>()) {
            std::thread::sleep(GRACE);
            std::process::exit(error.exit_code());
        }
        error.exit()
    })
}

/// Text from `path`, or what the binary carries, or the sources of the workspace that the model is defined in.
fn open<M: Model>(path: Option<&Path>) -> Result<Text, Error> {
    let (length, classes) = (M::PLAN.config.length, M::HEAD.classes);
    Ok(match (path, M::TEXT) {
        (Some(path), _) => Text::open(path, length, classes)?,
        (None, Some(text)) => Text::in_memory(text, "the text in this binary", length, classes)?,
        (None, None) => {
            let sources = Path::new(M::DIRECTORY);
            if !sources.exists() {
                return Err(Error::Argument {
                    what: format!("this binary carries no text, and its sources, {}, are not here", sources.display()),
                    help: "give --data FILE_OR_DIRECTORY, or build it with `cargo zero build`".to_owned(),
                });
            }
            Text::in_memory(workspace_text(sources)?.into_bytes(), "the text of this workspace", length, classes)?
        }
    })
}

/// What all ranks must be given alike, beside the plan: the model's layers and the arguments, but for where results
/// go.
fn agreement<M: Model>(arguments: &RunArguments) -> u64 {
    let mut tensors = Tensors::default();
    M::CODE.iter().for_each(|code| (code.tensors)(&mut tensors));
    // Whether they profile is for all ranks to do alike; the name of the file is for rank 0 alone.
    let profile = arguments.profile.as_ref().map(|_| PathBuf::new());
    let arguments = RunArguments { metrics: None, profile, ..arguments.clone() };
    hash_of(&(std::any::type_name::<M>(), format!("{:?}", tensors.into_list()), format!("{arguments:?}")))
}

fn hash_of(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// How long a rank that leaves an error to rank 0 stays, so that its end is not what stops rank 0 from telling it.
const GRACE: Duration = Duration::from_secs(2);

/// Finds out what this process is, runs `body`, and tells an error once: by rank 0 where all ranks find the same.
fn start<M: Model>(arguments: &RunArguments, body: impl FnOnce(Role) -> Result<ExitCode, Error>) -> ExitCode {
    let role = role::<M>();
    let is_follower = is_follower(&role);
    // The one process that speaks for all before there are ranks.
    let speaks = !matches!(&role, Ok(Role::Rank(place)) if place.rank > 0 || place.launcher_pid.is_some());
    let result = if arguments.only_shows() {
        // Whatever the environment says about ranks: there will be none.
        if speaks { introduce(M::PLAN, arguments) } else { Ok(()) }.map(|()| ExitCode::SUCCESS)
    } else {
        role.and_then(|role| {
            arguments.check()?;
            if speaks {
                introduce(M::PLAN, arguments)?;
                say(&format!("{}\n\n", Threads::new(arguments.threads, M::PLAN.config.mesh.ranks())));
                // Each rank asks for its own part again; together they may still be too many.
                let measuring = if arguments.profile.is_some() { Machine::BYTES } else { 0 };
                launch::check_available(job_bytes(M::PLAN) + M::PLAN.config.mesh.ranks() * measuring)?;
            }
            body(role)
        })
    };
    result.unwrap_or_else(|error| {
        if is_follower && error.is_common() {
            std::thread::sleep(GRACE);
        } else if !error.is_echo() {
            eprintln!("{error}");
        }
        ExitCode::from(EXIT_REPORTED)
    })
}

/// Proves the plan over all ranks, and prints it as far as it is asked for.
fn introduce(plan: &Plan, arguments: &RunArguments) -> Result<(), Error> {
    let proof = prove(plan)?;
    if arguments.prove {
        say(&format!("proven: {proof}\n"));
        return Ok(());
    }
    say(&format!("{}\n\nproven: {proof}\n\n", Report(plan)));
    if arguments.schedule {
        say(&format!("{}\n", ScheduleText(plan)));
    }
    Ok(())
}

fn is_follower(role: &Result<Role, Error>) -> bool {
    matches!(role, Ok(Role::Rank(place)) if place.rank > 0)
}

/// Processes that a run of a plan consists of: where ranks are threads, one.
fn processes(plan: &Plan) -> usize {
    match plan.config.transport {
        Transport::Shm => plan.config.mesh.ranks(),
        Transport::Local => 1,
    }
}

fn role<M: Model>() -> Result<Role, Error> {
    launch::role(processes(M::PLAN)).map_err(|error| match (&error, M::PLAN.config.transport) {
        (LaunchError::WorldNotPlanned { world, .. }, Transport::Local) => Error::Argument {
            what: format!("the ranks of this plan are threads of one process, but a launcher has started {world}"),
            help: "start it once, or build it from a spec with `transport: Shm`".to_owned(),
        },
        _ => error.into(),
    })
}

fn become_ranks<M: Model>(
    role: Role,
    arguments: &RunArguments,
    agreement: u64,
    data: &dyn Dataset<Input = M::Input>,
    finale: Finale<M>,
) -> Result<ExitCode, Error> {
    let plan = M::PLAN;
    let processes = processes(plan);
    match role {
        Role::Launcher if processes > 1 => Ok(launch::launch(processes)),
        Role::Rank(place) if processes > 1 => {
            let (transport, watch) = shm::join(plan, &place, agreement)?;
            let result = train::train(transport, arguments, data, finale);
            // What all ranks find ends all of them: nobody has been lost.
            if result.as_ref().map_or_else(Error::is_common, |()| true) {
                watch.goodbye();
            }
            result.map(|()| ExitCode::SUCCESS)
        }
        Role::Launcher | Role::Rank(_) => {
            let ranks = local::run(plan, Result::is_err, |transport| train::train(transport, arguments, data, finale))?;
            // An echo of another rank's error is worth telling only if there is nothing else.
            let mut errors: Vec<Error> = ranks.into_iter().filter_map(Result::err).collect();
            errors.sort_by_key(Error::is_echo);
            errors.into_iter().next().map_or(Ok(ExitCode::SUCCESS), Err)
        }
    }
}
