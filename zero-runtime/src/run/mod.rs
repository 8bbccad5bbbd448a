//! Run: the `main` of a generated program. It reads arguments, becomes a launcher or a rank, and trains. Never
//! knows what a layer computes.
//!
//! An argument of a binary is a field in `arguments`, its range in `range`, and a line in `continuity` that says
//! whether a resumed run may change it. A fact about a run that checkpoints record is a field of their manifest, which
//! `manifest` fills.

mod alike;
mod arguments;
mod budget;
mod checkpoint_arguments;
mod command;
mod compare;
mod continuity;
mod date;
mod evaluate;
mod header;
mod learning_rate;
mod manifest;
mod offload;
mod output;
mod outputs;
#[cfg(feature = "publish")]
mod publish_address;
mod publish_arguments;
#[cfg(feature = "publish")]
mod publishing;
/// A program without the feature publishes nothing, which its build has made sure of.
#[cfg(not(feature = "publish"))]
#[path = "not_publishing.rs"]
mod publishing;
mod range;
mod ranks;
mod resume;
mod runs;
mod sample;
mod saving;
#[cfg(feature = "serve")]
mod serving;
mod sources;
mod text;
mod text_arguments;
mod threads;
mod token_arguments;
mod train;
mod weights;

use std::ffi::OsString;
use std::iter;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;

pub use arguments::RunArguments;
pub use checkpoint_arguments::run_folder;
pub use compare::compare;
pub use evaluate::summed_loss;
pub use runs::Runs;
pub use text_arguments::TextArguments;
pub use token_arguments::{Only, TokenArguments};

use crate::error::Error;
use budget::run_size;
use command::{DataCommand, TextCommand, TokensCommand};
use header::DataArguments;
use output::{outlive_output, say, say_table};
use ranks::become_ranks;
use resume::resumed_tokenizer;
use sample::SampledText;
use threads::Threads;
use train::{Finale, Job};
use weights::WeightFolders;
use zero_core::arena::job_bytes;
use zero_core::device::{Device, check_available_to_run};
use zero_core::layer::{Tensors, Tokens};
use zero_core::model::{DeviceOf, Model, Program, ShapeSizes, require_names, require_vocabulary};
use zero_files::data::{DataAs, Dataset, Draw, Ids, Sequences, TOKENIZER, Tokenizer};
use zero_plan::{Config, Fingerprint, Plan, Probe, Report, ScheduleText, Sizes, TransportKind, prove, unit_list};
use zero_ranks::launch::{self, JobPlace, LaunchError, Role};
use zero_ranks::stack::with_room;

/// `main` of a program that trains a model of tokens on the text of `--data`. Without that, a binary that `cargo zero` has
/// built trains on the text beside it, and any other on the sources of the workspace that the model is defined in.
///
/// A model whose head predicts more ids than its first field takes is refused when the program is built:
///
/// ```compile_fail,E0080
/// use zero_runtime::prelude::*;
///
/// #[zero(stage = 3)]
/// struct Gpt {
///     embed: Embedding<100, 256, 8>,
///     head: LmHead<8, 256>,
/// }
///
/// zero_runtime::main::<Gpt>();
/// ```
pub fn main<M: Model<Input = Tokens, Target = Tokens>>() -> ExitCode
where
    DeviceOf<M>: Runs,
{
    main_from::<M>(std::env::args_os())
}

/// [`main`] with given arguments instead of those of the process; the first is the program's name. Ranks are started
/// with the process's own arguments, so the given ones must depend on those alone.
pub fn main_from<M: Model<Input = Tokens, Target = Tokens>>(arguments: impl IntoIterator<Item = OsString>) -> ExitCode
where
    DeviceOf<M>: Runs,
{
    const { require_vocabulary(M::PROGRAM) };
    Runs::run(M::PROGRAM, arguments.into_iter().collect(), None)
}

/// `main` of a program that trains a model on a dataset of its own.
pub fn main_with<M: Model>(data: impl Dataset<Input = M::Input, Target = M::Target>) -> ExitCode
where
    DeviceOf<M>: Runs,
{
    Runs::run(M::PROGRAM, std::env::args_os().collect(), Some(&data))
}

/// Runs a program on its own data or, without any, on text.
fn run<D: Device>(program: &'static Program<D>, arguments: Vec<OsString>, data: Option<&dyn Sequences>) -> ExitCode {
    let ended = with_room(|| match data {
        #[cfg(feature = "serve")]
        _ if program.plan.config.serves() => serving::serve(program, arguments),
        Some(data) if matches!(data.ids(), Ids::Other) => run_on(program, arguments, data),
        Some(data) => run_on_tokens(program, arguments, data),
        None => run_on_text(program, arguments),
    });
    ended.unwrap_or_else(|error| {
        launch::print(&error.report());
        ExitCode::from(error.exit_code())
    })
}

fn run_on<D: Device>(program: &'static Program<D>, arguments: Vec<OsString>, data: &dyn Sequences) -> ExitCode {
    let DataCommand { run } = parse(program.plan, arguments);
    start(program, &run, run.steps > 0, |role, speaks| {
        let weights = &WeightFolders::open(program, &run, None)?;
        let agreement = Fingerprint::of(&(agreement(program, &run), weights.fingerprint()));
        let job = Job {
            program,
            arguments: &run,
            of_data: None,
            data,
            data_fingerprint: None,
            weights,
            tokenizer_bytes: 0,
            finale: Finale::None,
        };
        introduce_data(&job, speaks)?;
        become_ranks(role, speaks, agreement, &job)
    })
}

fn run_on_tokens<D: Device>(program: &'static Program<D>, arguments: Vec<OsString>, data: &dyn Sequences) -> ExitCode {
    let TokensCommand { run, tokens } = parse(program.plan, arguments);
    start(program, &run, tokens.only.is_none() && run.steps > 0, |role, speaks| {
        let run = tokens.without_steps(run.clone())?;
        text::require_own_tokens(program, &tokens)?;
        let given = match (data.ids(), &tokens.tokenizer) {
            (Ids::TokensOf(_), None) => None,
            _ => tokenizer(&run, &tokens, true)?,
        };
        let tokenizer = text::own_tokenizer(data.ids(), given.as_ref())?;
        let weights = &WeightFolders::open(program, &run, tokenizer)?;
        let chosen = format!("{:?}", TokenArguments { tokenizer: None, ..tokens.clone() });
        let agreement = (agreement(program, &run), chosen, tokenizer.map(Tokenizer::hash), weights.fingerprint());
        let job = Job {
            program,
            arguments: &run,
            of_data: Some(DataArguments::Tokens(&tokens)),
            data,
            data_fingerprint: None,
            weights,
            tokenizer_bytes: tokenizer.map_or(0, Tokenizer::resident_bytes),
            finale: Finale::Sample(SampledText::new(&tokens, tokenizer, run.seed, program.head.classes)?),
        };
        if tokens.only.is_none() {
            introduce_data(&job, speaks)?;
        } else if speaks {
            weights.introduce(&run);
        }
        become_ranks(role, speaks, Fingerprint::of(&agreement), &job)
    })
}

fn run_on_text<D: Device>(program: &'static Program<D>, arguments: Vec<OsString>) -> ExitCode {
    let TextCommand { run, text } = parse(program.plan, arguments);
    start(program, &run, text.tokens.only.is_none() && run.steps > 0, |role, speaks| {
        let tokens = &text.tokens;
        let run = tokens.without_steps(run.clone())?;
        text.check()?;
        let tokenizer = &tokenizer(&run, tokens, text.data_as != Some(DataAs::Bytes))?;
        let tokenizer = tokenizer.as_ref();
        let weights = &WeightFolders::open(program, &run, tokenizer)?;
        let chosen = TokenArguments { tokenizer: None, ..tokens.clone() };
        let chosen = format!("{:?}", TextArguments { data: None, data_as: text.data_as, tokens: chosen });
        let agreement = (agreement(program, &run), chosen, tokenizer.map(Tokenizer::hash), weights.fingerprint());
        let agreement = Fingerprint::of(&agreement);
        let sample = SampledText::new(tokens, tokenizer, run.seed, program.head.classes)?;
        let (arguments, text) = (&run, &text);
        let job = |data, data_fingerprint, finale| Job {
            program,
            arguments,
            of_data: Some(DataArguments::Text(text)),
            data,
            data_fingerprint,
            weights,
            tokenizer_bytes: 0,
            finale,
        };
        if tokens.only == Some(Only::Sample) {
            if speaks {
                weights.introduce(arguments);
            }
            let tokenizer_bytes = tokenizer.map_or(0, Tokenizer::resident_bytes);
            let job = Job { tokenizer_bytes, ..job(&NoText, None, Finale::Sample(sample)) };
            return become_ranks(role, speaks, agreement, &job);
        }
        let data = &text::open(program, arguments, text, tokenizer)?;
        if run.steps > 0 || run.held_out > 0 {
            data.require_sequences()?;
        }
        let fingerprint = data.fingerprint();
        let agreement = Fingerprint::of(&(agreement, fingerprint));
        let is_evaluated = tokens.only == Some(Only::Evaluate);
        let finale = if is_evaluated { Finale::Evaluation(data) } else { Finale::Sample(sample) };
        let job = job(data, Some(fingerprint), finale);
        introduce_data(&job, speaks)?;
        become_ranks(role, speaks, agreement, &job)
    })
}

/// A dataset without sequences, for a run that only samples.
struct NoText;

impl Dataset for NoText {
    type Input = Tokens;
    type Target = Tokens;

    fn training(&self, _: Draw, _: &mut [u32], _: &mut [u32]) {
        unreachable!("a run without steps");
    }

    fn held_out(&self, _: usize, _: &mut [u32], _: &mut [u32]) {
        unreachable!("nothing is held out");
    }

    fn held_out_count(&self) -> usize {
        0
    }
}

/// The tokenizer that a run is given or, if one `may_be_beside`, that lies with the weights of `--init`, or in the
/// checkpoint that it continues from.
fn tokenizer(run: &RunArguments, tokens: &TokenArguments, may_be_beside: bool) -> Result<Option<Tokenizer>, Error> {
    let of_weights = || run.init.as_ref().map(|folder| folder.join(TOKENIZER)).filter(|path| path.exists());
    let beside = || of_weights().or_else(|| resumed_tokenizer(run));
    let path = tokens.tokenizer.clone().or_else(|| if may_be_beside { beside() } else { None });
    Ok(path.as_deref().map(Tokenizer::open).transpose()?)
}

/// Reads the arguments. If they ask for help, or are wrong, prints the help or the error once for all ranks and ends the
/// process.
fn parse<C: Parser>(plan: &Plan, arguments: Vec<OsString>) -> C {
    command::read(arguments).unwrap_or_else(|error| {
        match company(plan) {
            Some(company) if error.use_stderr() => tell(&company, command::with_code(&error).trim_end()),
            Some(company) if company.rank > 0 => {}
            _ => command::tell(&error),
        }
        std::process::exit(error.exit_code())
    })
}

/// The place of this rank among the ranks that it meets on its host.
fn company(plan: &Plan) -> Option<JobPlace> {
    let company = launch::company(processes(plan))?;
    let (first, end) = plan.config.sharing(company.rank.min(plan.config.mesh.ranks() - 1));
    let is_apart = plan.config.spans_hosts();
    Some(if is_apart { company.in_company((first, end)) } else { company })
}

/// Prints an error that this rank has found before it met the others, unless another rank does.
fn tell(company: &JobPlace, error: &str) {
    if let Some(error) = launch::fail(company, error) {
        launch::print(&error.report());
    }
}

/// A hash of everything that must be equal on all ranks in addition to the plan: the model's layers, and the arguments
/// except those that name the places of results.
fn agreement<D>(program: &Program<D>, arguments: &RunArguments) -> u64 {
    let mut tensors = Tensors::default();
    program.code.iter().for_each(|code| code.tensors(&mut tensors));
    // Either all ranks profile or none, but only rank 0 needs the name of the file.
    let profile = arguments.profile.as_ref().map(|_| PathBuf::new());
    // Only rank 0 prints steps.
    // Hosts may keep states in folders of different names.
    let offload = arguments.offload.as_ref().map(|_| PathBuf::new());
    let arguments = RunArguments { metrics: None, profile, log_every: None, offload, ..arguments.clone() };
    Fingerprint::of(&(program.name, format!("{:?}", tensors.into_list()), format!("{arguments:?}")))
}

/// Determines the role of this process, runs `body`, which trains or not, and prints an error once, whichever ranks find it.
fn start<D: Device>(
    program: &Program<D>,
    arguments: &RunArguments,
    trains: bool,
    body: impl FnOnce(Role, bool) -> Result<ExitCode, Error>,
) -> ExitCode {
    let plan = program.plan;
    let role = role(plan);
    if plan.config.transport == TransportKind::Nccl {
        launch::keep_launch_order();
    }
    // Before there are ranks, one process prints for all.
    let speaks = !matches!(&role, Ok(Role::Rank(place)) if place.rank > 0 || place.launcher_pid.is_some());
    if trains && !arguments.only_shows() {
        let restarts = arguments.checkpoints.restarts;
        let has_ranks = matches!(&role, Ok(Role::Launcher)) && (processes(plan) > 1 || restarts > 0);
        outlive_output(arguments.leaves_files(), !has_ranks);
    }
    let result = if arguments.only_shows() {
        // No rank will start, so what the environment says about ranks does not matter.
        let shown = if speaks { show(program, arguments) } else { Ok(()) };
        shown.map(|()| ExitCode::SUCCESS)
    } else {
        role.and_then(|role| {
            arguments.check(&plan.config)?;
            if trains {
                arguments.publishing.require_address(&plan.config)?;
            }
            arguments.bf16_products.iter().for_each(|products| products.choose());
            require_restarts(&role, arguments.checkpoints.restarts)?;
            require_names(program)?;
            if speaks {
                introduce(plan, arguments)?;
                say(&format!("{}\n\n", Threads::new(arguments.threads, plan)));
                if cfg!(debug_assertions) {
                    say(DEBUG_BUILD);
                }
                // Each rank checks its own part again, but only here are all parts counted together.
                check_available_to_run(job_bytes(plan, 0, &run_size(plan, arguments, 0)))?;
            }
            body(role, speaks)
        })
    };
    result.unwrap_or_else(|error| {
        match company(plan) {
            Some(company) => tell(&company, &error.to_string()),
            None => launch::print(&error.to_string()),
        }
        ExitCode::from(launch::exit_code(error.exit_code(arguments.checkpoints.rollback)))
    })
}

/// Shows the output that was requested instead of a run.
fn show<D: Device>(program: &Program<D>, arguments: &RunArguments) -> Result<(), Error> {
    if arguments.launch_options {
        let answer = arguments.checkpoints.launch_answer(arguments.steps);
        say(&format!("{}\n", serde_json::to_string(&answer).expect("options can be written")));
    } else if arguments.sizes {
        say(&format!("{}\n", sizes(program)));
    } else {
        if let Some(size) = program.size.filter(|_| !arguments.prove) {
            say(&format!("size: {size}, the first of the model's sizes\n"));
        }
        introduce(program.plan, arguments)?;
    }
    Ok(())
}

/// Refuses `--restarts` on a rank that no launcher would restart.
fn require_restarts(role: &Role, restarts: u64) -> Result<(), LaunchError> {
    match role {
        Role::Rank(_) if restarts > 0 && !launch::has_restarts() => Err(LaunchError::NoRestarts { restarts }),
        _ => Ok(()),
    }
}

/// Proves the plan over all ranks, and prints the requested parts of it.
fn introduce(plan: &Plan, arguments: &RunArguments) -> Result<(), Error> {
    let proof = prove(plan)?;
    if arguments.prove {
        say(&format!("proven: {proof}\n"));
        return Ok(());
    }
    say_table(&format!("{}\n\nproven: {proof}\n\n", Report(plan)));
    if arguments.schedule {
        say_table(&format!("{}\n", ScheduleText(plan)));
    }
    Ok(())
}

/// The sizes of a model as JSON of [`Sizes`].
fn sizes<D>(program: &Program<D>) -> String {
    let plan = program.plan;
    let Config { precision, sequences, length, .. } = plan.config;
    let own = Probe { compute: precision.compute, sequences, length, units: plan.units.to_vec() };
    let others = program.probes.iter().map(|&ShapeSizes { compute, sequences, length, fields }| Probe {
        compute,
        sequences,
        length,
        units: unit_list(fields),
    });
    let probes = iter::once(own).chain(others).collect();
    let sizes = Sizes { model: plan.model.to_owned(), spec: program.spec_text.to_owned(), probes };
    serde_json::to_string(&sizes).expect("sizes can be written")
}

const DEBUG_BUILD: &str = "this is a debug build, made to find mistakes, and slow: build with --release to train\n\n";

/// Prints what a run trains on.
fn introduce_data<D: Device>(job: &Job<D>, speaks: bool) -> Result<(), Error> {
    let held_out = job.data.held_out_count();
    if let Some(every) = job.arguments.held_out_every.filter(|_| held_out == 0) {
        return Err(Error::Argument {
            what: format!(
                "--held-out-every {every} asks for a loss on held-out data, and this program's data has none"
            ),
            help: "leave it out".to_owned(),
        });
    }
    if speaks {
        let own = || format!("data: this program's own, {held_out} sequences of it held out");
        say(&format!("{}\n\n", job.data.contents().map_or_else(own, |contents| contents.to_string())));
        job.weights.introduce(job.arguments);
    }
    Ok(())
}

/// The number of processes of a run: one if ranks are threads.
fn processes(plan: &Plan) -> usize {
    match plan.config.transport {
        TransportKind::Shm | TransportKind::Peer | TransportKind::Nccl | TransportKind::Cluster => {
            plan.config.mesh.ranks()
        }
        TransportKind::Local => 1,
    }
}

fn role(plan: &Plan) -> Result<Role, Error> {
    let role = launch::role(processes(plan));
    if matches!(role, Ok(Role::Launcher)) && plan.config.spans_hosts() {
        return Err(LaunchError::NoHosts { nodes: plan.config.mesh.nodes }.into());
    }
    role.map_err(|error| match (&error, plan.config.transport) {
        (LaunchError::WorldNotPlanned { world, .. }, TransportKind::Local) => Error::Argument {
            what: format!("the ranks of this plan are threads of one process, but a launcher has started {world}"),
            help: "start it once, or build it from a spec with `transport: Shm`".to_owned(),
        },
        _ => error.into(),
    })
}

#[cfg(test)]
mod tests {
    use zero_plan::{Config, Mesh, Op, PipelineStage, PlanBuf, Unit};

    use super::*;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        run: RunArguments,
    }

    #[test]
    fn a_plan_is_proven_whatever_is_shown_of_it() {
        let unit = Unit { field: "only", params: 8, takes: 8, input_bytes: 16, output_bytes: 16, ..Unit::NONE };
        let config = Config { mesh: Mesh::of_zero(2), ..Config::PLAIN.at_stage(3) };
        PlanBuf::new("", config, &[unit, Unit { source: 1, ..unit }]).with(|plan| {
            let without_first: Vec<Op> = plan.pipeline_stages[0].step[1..].to_vec();
            let pipeline_stages = [PipelineStage { step: &without_first, ..plan.pipeline_stages[0] }];
            let unsound = Plan { pipeline_stages: &pipeline_stages, ..*plan };
            for asked in [&["run"][..], &["run", "--plan"], &["run", "--prove"], &["run", "--schedule"]] {
                let arguments = Command::parse_from(asked).run;
                assert!(introduce(plan, &arguments).is_ok(), "{asked:?}");
                assert!(matches!(introduce(&unsound, &arguments), Err(Error::Unsound(_))), "{asked:?}");
            }
        });
    }
}
