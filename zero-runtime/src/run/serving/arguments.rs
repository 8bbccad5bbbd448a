//! Arguments: options of a worker. Never acts on one.

use std::num::{NonZeroU64, NonZeroUsize};
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgGroup, Args, Parser, ValueEnum};
use zero_cpu::Bf16Products;
use zero_serve::OnUpdate;

use crate::run::arguments::{RunArguments, bf16_products};
use crate::run::range::{at_least_one, duration, threads};

const WEIGHTS: &str = "Weights";
const REQUESTS: &str = "Requests";

/// Answers requests as OpenAI's API does, with this binary's model. Learns nothing.
#[derive(Parser, Clone, Debug)]
#[command(version, max_term_width = 100)]
#[command(group(ArgGroup::new("what").required(true).args(["from", "init", "plan", "schedule", "prove", "sizes"])))]
pub struct ServeCommand {
    #[command(flatten)]
    pub serve: ServeArguments,
}

/// Arguments of a worker.
#[derive(Args, Clone, Debug)]
pub struct ServeArguments {
    /// Take the weights of a run that publishes at this address, and each newer version: http://HOST:PORT of its rank 0
    #[arg(long, value_name = "URL", conflicts_with = "init", help_heading = WEIGHTS)]
    pub from: Option<String>,
    /// Take the weights of a folder in Hugging Face's format, or of a checkpoint
    #[arg(long, value_name = "FOLDER", help_heading = WEIGHTS)]
    pub init: Option<PathBuf>,
    /// A file whose first line is the token of the run of --from
    #[arg(long, value_name = "FILE", requires = "from", help_heading = WEIGHTS)]
    pub from_token: Option<PathBuf>,
    /// How long to wait for the first version of --from
    #[arg(long, default_value = "60s", value_name = "TIME", value_parser = duration, help_heading = WEIGHTS)]
    pub patience: Duration,
    /// What becomes of answers when newer weights come: they go on (keep), after their caches are computed anew (recompute); they
    /// are finished first (wait), or end (abort)
    #[arg(long, default_value = "keep", value_name = "WHAT", help_heading = WEIGHTS)]
    pub on_update: UpdatePolicy,
    /// The address to answer at; without it, only programs of this host can ask
    #[arg(long, default_value = "127.0.0.1", value_name = "HOST", help_heading = REQUESTS)]
    pub host: String,
    /// The port to answer at; 0 for any
    #[arg(long, default_value_t = 8100, value_name = "PORT", help_heading = REQUESTS)]
    pub port: u16,
    /// A file whose first line clients must send as a token; without it, everyone who reaches the address may ask
    #[arg(long, value_name = "FILE", help_heading = REQUESTS)]
    pub token: Option<PathBuf>,
    /// The name of the model in requests and answers; without it, that of the model's struct
    #[arg(long, value_name = "NAME", help_heading = REQUESTS)]
    pub name: Option<String>,
    /// Sequences that may wait for a slot; without it, four for each slot
    #[arg(long, value_name = "N", value_parser = at_least_one, help_heading = REQUESTS)]
    pub queue: Option<NonZeroU64>,
    /// How long answers may go on once the worker is asked to end by SIGTERM
    #[arg(long, default_value = "10s", value_name = "TIME", value_parser = duration, help_heading = REQUESTS)]
    pub drain: Duration,
    /// Converts text to token ids and back: a tokenizer.json, or the folder of a model with one; without it, the tokenizer of the
    /// weights, and without one there, each byte is an id
    #[arg(long, value_name = "PATH", help_heading = REQUESTS)]
    pub tokenizer: Option<PathBuf>,
    /// Threads, at most 1024; without it, all cores of this host
    #[arg(long, value_name = "N", value_parser = threads)]
    pub threads: Option<NonZeroUsize>,
    /// Instructions that multiply bf16 on a processor; without it, the fastest of its kind. Others give other bits
    #[arg(long, value_name = "WHICH", value_parser = bf16_products())]
    pub bf16_products: Option<Bf16Products>,
    /// Print the plan instead of answering
    #[arg(long)]
    pub plan: bool,
    /// Print the plan and its schedule instead of answering
    #[arg(long)]
    pub schedule: bool,
    /// Prove the plan instead of answering
    #[arg(long)]
    pub prove: bool,
    /// Print the sizes of the model's units as JSON instead of answering
    #[arg(long, hide = true)]
    pub sizes: bool,
}

/// [`OnUpdate`], as an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum UpdatePolicy {
    Keep,
    Recompute,
    Wait,
    Abort,
}

impl UpdatePolicy {
    pub fn on_update(self) -> OnUpdate {
        match self {
            Self::Keep => OnUpdate::Keep,
            Self::Recompute => OnUpdate::Recompute,
            Self::Wait => OnUpdate::Wait,
            Self::Abort => OnUpdate::Abort,
        }
    }
}

impl ServeArguments {
    /// The arguments of a run that takes no step, which starts as this worker does.
    pub fn run(&self) -> RunArguments {
        let Self { init, threads, bf16_products, plan, schedule, prove, sizes, .. } = self.clone();
        let plain = RunArguments::plain();
        RunArguments { steps: 0, held_out: 0, init, threads, bf16_products, plan, schedule, prove, sizes, ..plain }
    }
}
