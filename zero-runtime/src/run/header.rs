//! Header: the first line of a metrics file, with everything that distinguishes one run from another. Never repeats the
//! contents of a step's line.

use serde::Serialize;

use super::Job;
use super::arguments::RunArguments;
use super::date;
use super::text_arguments::TextArguments;
use super::threads::Threads;
use super::token_arguments::TokenArguments;
use zero_core::device::Device;
use zero_files::data::Contents;

/// The first line of the metrics of a run.
#[derive(Serialize)]
pub struct RunHeader<'a> {
    kind: &'static str,
    model: &'static str,
    spec: &'static str,
    /// The hash of the plan that ranks compare, in hexadecimal.
    plan: String,
    parameters: usize,
    ranks: usize,
    threads_per_rank: usize,
    tokens_per_step: usize,
    seed: u64,
    /// Steps that were done by the run that this one continues.
    steps_done: u64,
    arguments: GivenArguments<'a>,
    data: Option<Contents>,
    versions: Versions,
    /// When the first step began, in RFC 3339 and UTC; the `time_s` of other lines are seconds since then.
    started: String,
}

/// The arguments as they were given, or their defaults. Null if there is no default, or if it depends on other
/// arguments.
#[derive(Serialize)]
pub struct GivenArguments<'a> {
    /// Those of every model.
    #[serde(flatten)]
    pub run: &'a RunArguments,
    /// Those of a model of text or of tokens.
    #[serde(flatten)]
    pub of_data: Option<DataArguments<'a>>,
}

/// The arguments that depend on the data.
#[derive(Clone, Copy, Serialize)]
#[serde(untagged)]
pub enum DataArguments<'a> {
    /// It is a text.
    Text(&'a TextArguments),
    /// It is the program's own, whose ids are tokens.
    Tokens(&'a TokenArguments),
}

#[derive(Serialize)]
struct Versions {
    zero: &'static str,
    build: &'static str,
    target: String,
}

impl<'a> RunHeader<'a> {
    /// The header of a run that begins now, after `steps_done` steps.
    pub fn new<D: Device>(job: &Job<'a, D>, steps_done: u64) -> Self {
        let (plan, arguments) = (job.program.plan, job.arguments);
        let ranks = plan.config.mesh.ranks();
        Self {
            kind: "header",
            model: plan.model,
            spec: job.program.spec,
            plan: format!("{:016x}", plan.fingerprint()),
            parameters: plan.params(),
            ranks,
            threads_per_rank: Threads::new(arguments.threads, plan).per_rank.get(),
            tokens_per_step: plan.config.tokens_per_step(),
            seed: arguments.seed,
            steps_done,
            arguments: GivenArguments { run: arguments, of_data: job.of_data },
            data: job.data.contents(),
            versions: Versions {
                zero: env!("CARGO_PKG_VERSION"),
                build: if cfg!(debug_assertions) { "debug" } else { "release" },
                target: target(),
            },
            started: date::now(),
        }
    }
}

/// The machine that this binary was compiled for.
pub fn target() -> String {
    format!("{}-{}", std::env::consts::ARCH, std::env::consts::OS)
}
