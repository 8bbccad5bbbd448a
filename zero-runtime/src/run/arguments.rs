//! Arguments: options of a binary that affect neither memory nor the order of ops. Options that do are in the spec and
//! are compiled in. Never acts on an argument.

use std::num::{NonZeroU64, NonZeroUsize};
use std::path::{Path, PathBuf};

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueEnum};
use serde::{Serialize, Serializer};
use zero_cpu::Bf16Products;
use zero_plan::{Config, DeviceKind, Width};

use super::checkpoint_arguments::{CheckpointArguments, Resume};
use super::learning_rate::{Fall, LearningRate};
use super::offload::contradiction;
use super::publish_arguments::PublishArguments;
use super::range::{at_least_one, below_one, not_negative, positive, share, threads, whole};
use crate::error::Error;
use zero_engine::Hyper;
use zero_files::weights::WeightType;

/// Steps before the first one that is profiled. They are left out because they touch memory for the first time. The
/// help of `--profile` says so.
pub const UNPROFILED_STEPS: u64 = 2;
/// The most steps that are profiled. The help of `--profile` says so.
pub const PROFILED_STEPS_MAX: u64 = 10;
/// About this many steps are printed, unless `--log-every` says otherwise. The help of `--log-every` says so.
const LINES: u64 = 100;
/// At least one step in this many is printed, however long a run is. The help of `--log-every` says so.
const LOG_EVERY_MAX: u64 = 1000;

/// The decay of momentum, as published (Jordan et al., 2024). The help of `--momentum` says so.
const MOMENTUM: f64 = 0.95;

/// The learning rate of the last step, as a share of the highest.
const LR_MIN_RATIO: f64 = 0.1;

/// How the learning rate continues after its rise, as an argument. [`Fall`] has the formulas.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum LrSchedule {
    /// [`Fall::Cosine`].
    Cosine,
    /// [`Fall::Linear`].
    Linear,
    /// [`Fall::Constant`].
    Constant,
    /// [`Fall::Late`].
    Wsd,
}

/// Arguments of every model.
#[derive(Args, Clone, Debug, Serialize)]
pub struct RunArguments {
    /// Steps to train
    #[arg(long, default_value_t = 2000, value_name = "N", value_parser = whole, help_heading = TRAINING)]
    pub steps: u64,
    /// Highest learning rate
    #[arg(long, default_value_t = 2e-3, value_name = "RATE", value_parser = positive, help_heading = TRAINING)]
    pub lr: f64,
    /// How the learning rate continues after --warmup: half a cosine or a line down to the last step, constant, or constant
    /// until the last --decay steps and then a line (wsd)
    #[arg(long, default_value = "cosine", value_name = "HOW", help_heading = TRAINING)]
    pub lr_schedule: LrSchedule,
    /// Steps over which --lr-schedule wsd falls at the end; without it, a tenth of --steps
    #[arg(long, value_name = "N", value_parser = at_least_one, help_heading = TRAINING)]
    pub decay: Option<NonZeroU64>,
    /// Learning rate of the last step, as a share of --lr
    #[arg(long, default_value_t = LR_MIN_RATIO, value_name = "SHARE", value_parser = share, help_heading = TRAINING)]
    pub lr_min_ratio: f64,
    /// Steps over which the learning rate rises to --lr; without it, a tenth of --steps, at most 100
    #[arg(long, value_name = "N", value_parser = whole, help_heading = TRAINING)]
    pub warmup: Option<u64>,
    /// Seed of parameters, data and sampling
    #[arg(long, default_value_t = 0, value_name = "SEED", value_parser = whole, help_heading = TRAINING)]
    pub seed: u64,
    /// Threads of each rank, at most 1024; without it, ranks share the cores of this host
    #[arg(long, value_name = "N", value_parser = threads, help_heading = TRAINING)]
    pub threads: Option<NonZeroUsize>,
    /// Instructions that multiply bf16 on a processor; without it, the fastest of its kind. Others give other bits
    #[arg(long, value_name = "WHICH", value_parser = bf16_products(), help_heading = TRAINING)]
    #[serde(serialize_with = "as_name")]
    pub bf16_products: Option<Bf16Products>,
    /// On a GPU, launch each step op by op instead of as a graph: slower, with the same bits
    #[arg(long, help_heading = TRAINING)]
    pub eager: bool,
    /// Folder on a disk in which each rank keeps the states that the spec's `offload` moves there; its file has no name, and
    /// is gone when the run ends
    #[arg(long, value_name = "FOLDER", help_heading = TRAINING)]
    #[serde(serialize_with = "as_text")]
    pub offload: Option<PathBuf>,
    /// Decoupled weight decay of matrices
    #[arg(long, default_value_t = 0.1, value_name = "RATE", value_parser = not_negative, help_heading = OPTIMIZER)]
    pub weight_decay: f64,
    /// No weight decay of embeddings, nor of a head that is tied to one
    #[arg(long, help_heading = OPTIMIZER)]
    pub no_decay_embeddings: bool,
    /// Decay of the first moment
    #[arg(long, default_value_t = 0.9, value_name = "RATE", value_parser = below_one, help_heading = OPTIMIZER)]
    pub beta1: f64,
    /// Decay of the second moment
    #[arg(long, default_value_t = 0.95, value_name = "RATE", value_parser = below_one, help_heading = OPTIMIZER)]
    pub beta2: f64,
    /// Decay of the momentum of matrices that Muon updates; without it, 0.95
    #[arg(long, value_name = "RATE", value_parser = below_one, help_heading = OPTIMIZER)]
    pub momentum: Option<f64>,
    /// Added to the root of the second moment
    #[arg(long, default_value_t = 1e-8, value_name = "VALUE", value_parser = positive, help_heading = OPTIMIZER)]
    pub epsilon: f64,
    /// Norm to which longer gradients are scaled down; 0 turns clipping off
    #[arg(long, default_value_t = 1.0, value_name = "NORM", value_parser = not_negative, help_heading = OPTIMIZER)]
    pub clip: f64,
    /// Sequences for the held-out loss, of all that are held out; 0 skips it
    #[arg(long, default_value_t = 128, value_name = "N", value_parser = whole, help_heading = OUTPUT)]
    pub held_out: u64,
    /// Print the held-out loss after every N steps, and not only at the end
    #[arg(long, value_name = "N", value_parser = at_least_one, help_heading = OUTPUT)]
    pub held_out_every: Option<NonZeroU64>,
    /// Print every Nth step, the first and the last; without it, about 100 steps, and at least one in 1000
    #[arg(long, value_name = "N", value_parser = at_least_one, help_heading = OUTPUT)]
    pub log_every: Option<NonZeroU64>,
    /// New file for lines of JSON: one about this run, then one for each step and each held-out loss
    #[arg(long, value_name = "FILE", help_heading = OUTPUT)]
    #[serde(serialize_with = "as_text")]
    pub metrics: Option<PathBuf>,
    /// Print where time goes in up to 10 steps from the third on, by op, unit and bucket, and write a trace of them for
    /// Perfetto to a new file [default: profile.json]
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "profile.json", help_heading = OUTPUT)]
    #[serde(serialize_with = "as_text")]
    pub profile: Option<PathBuf>,
    /// Folder of published weights to start from: config.json with model.safetensors, or with an index and its files
    #[arg(long, value_name = "FOLDER", help_heading = WEIGHTS)]
    #[serde(serialize_with = "as_text")]
    pub init: Option<PathBuf>,
    /// New folder for the weights at the end, as --init reads it
    #[arg(long, value_name = "FOLDER", help_heading = WEIGHTS)]
    #[serde(serialize_with = "as_text")]
    pub export: Option<PathBuf>,
    /// Type of exported numbers; without it, that of --init, or f32
    #[arg(long, value_name = "TYPE", requires = "export", help_heading = WEIGHTS)]
    pub export_dtype: Option<WeightType>,
    /// Arguments about checkpoints.
    #[command(flatten)]
    #[serde(flatten)]
    pub checkpoints: CheckpointArguments,
    /// Arguments about publications.
    #[command(flatten)]
    #[serde(flatten)]
    pub publishing: PublishArguments,
    /// Print the plan and end
    #[arg(long, help_heading = PLAN)]
    #[serde(skip)]
    pub plan: bool,
    /// Print the plan, the place of everything in memory and every op of every pipeline stage, and end
    #[arg(long, help_heading = PLAN)]
    #[serde(skip)]
    pub schedule: bool,
    /// Print the sizes of the model's units as JSON, and end
    #[arg(long, help_heading = PLAN)]
    #[serde(skip)]
    pub sizes: bool,
    /// Print the launcher's options for a run with these arguments as JSON, and end
    #[arg(long, hide = true)]
    #[serde(skip)]
    pub launch_options: bool,
    /// Prove the plan over the ops of all ranks, say what was proven, and end
    #[arg(long, help_heading = PLAN)]
    #[serde(skip)]
    pub prove: bool,
}

// Not derived, because clap would take the docs of the variants, and show the whole help in its long form.
impl ValueEnum for LrSchedule {
    fn value_variants<'a>() -> &'a [Self] {
        &[LrSchedule::Cosine, LrSchedule::Linear, LrSchedule::Constant, LrSchedule::Wsd]
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(PossibleValue::new(match self {
            LrSchedule::Cosine => "cosine",
            LrSchedule::Linear => "linear",
            LrSchedule::Constant => "constant",
            LrSchedule::Wsd => "wsd",
        }))
    }
}

const TRAINING: &str = "Training";
const OPTIMIZER: &str = "Optimizer";
const OUTPUT: &str = "Output";
const WEIGHTS: &str = "Published weights";
pub(super) const PLAN: &str = "Instead of a run";

/// A path as text; bytes that are not UTF-8 are replaced.
pub(super) fn as_text<S: Serializer>(path: &Option<PathBuf>, serializer: S) -> Result<S::Ok, S::Error> {
    path.as_deref().map(Path::to_string_lossy).serialize(serializer)
}

/// One of the instructions that multiply bf16.
pub fn bf16_products() -> impl TypedValueParser<Value = Bf16Products> {
    let all = Bf16Products::ALL;
    PossibleValuesParser::new(all.map(Bf16Products::name))
        .map(move |name| all.into_iter().find(|one| one.name() == name).expect("one of the possible values"))
}

fn as_name<S: Serializer>(products: &Option<Bf16Products>, serializer: S) -> Result<S::Ok, S::Error> {
    products.map(Bf16Products::name).serialize(serializer)
}

impl RunArguments {
    /// Those of a run to which nothing is said.
    #[cfg(feature = "serve")]
    pub fn plain() -> Self {
        super::command::read::<super::command::DataCommand>(["".into()]).expect("no argument is required").run
    }

    /// Whether something is to be shown or proven instead of starting ranks.
    pub fn only_shows(&self) -> bool {
        self.plan || self.schedule || self.prove || self.sizes || self.launch_options
    }

    /// Whether the run is to leave anything but its output.
    pub fn leaves_files(&self) -> bool {
        [&self.checkpoints.checkpoint, &self.export, &self.metrics, &self.profile].into_iter().any(Option::is_some)
    }

    /// Rejects arguments that contradict one another, or the configuration that the program is built for.
    ///
    /// # Errors
    /// Z0350.
    pub fn check(&self, config: &Config) -> Result<(), Error> {
        let contradictions = [
            self.momentum.filter(|_| !config.optimizer.orthogonalizes()).map(|momentum| {
                let what = format!("--momentum {momentum} is about Muon, and this program is built for AdamW");
                (what, "leave it out, or build from a spec with `optimizer: Muon`")
            }),
            (self.eager && config.device != DeviceKind::Cuda).then(|| {
                let what = "--eager is about steps on GPUs, and this program is built for the processor".to_owned();
                (what, "leave it out")
            }),
            self.bf16_products.and_then(|products| {
                let what = match config {
                    Config { device: DeviceKind::Cuda, .. } => {
                        "is about processors, and this program is built for GPUs"
                    }
                    _ if config.precision.compute != Width::BF16 => {
                        "is about computing in bf16, and this program is built to compute in f32"
                    }
                    _ if !products.is_there() => "names instructions that this processor does not have",
                    _ => return None,
                };
                Some((format!("--bf16-products {} {what}", products.name()), "leave it out"))
            }),
            self.warmup.filter(|&warmup| warmup >= self.steps && self.steps > 0).map(|warmup| {
                let what = format!("--warmup {warmup} is not shorter than the run: --steps {}", self.steps);
                (what, "lower --warmup, or raise --steps")
            }),
            (self.lr * self.weight_decay >= 1.0).then(|| {
                let what = format!("--lr {} times --weight-decay {} is 1 or more", self.lr, self.weight_decay);
                (what + ", so one step would decay parameters to zero or beyond", "lower one of them")
            }),
            (self.profile.is_some() && self.profiled_steps() == 0).then(|| {
                let first = UNPROFILED_STEPS + 1;
                let what = format!("--profile begins at step {first}, but the run has --steps {}", self.steps);
                (what, "raise --steps, or leave --profile out")
            }),
            (self.checkpoints.resume == Some(Resume::Newest) && self.checkpoints.checkpoint.is_none()).then(|| {
                let what = "--resume asks for the newest checkpoint, but there is no --checkpoint".to_owned();
                (what, "name the folder by --checkpoint, or the checkpoint by --resume PATH")
            }),
            self.held_out_every.filter(|_| self.held_out == 0).map(|every| {
                let what = format!("--held-out-every {every} asks for a loss that --held-out 0 skips");
                (what, "leave one of them out")
            }),
        ];
        let others = || {
            let of_offload = || contradiction(self.offload.as_deref(), config);
            let of_publish = || self.publishing.contradiction(config);
            self.learning_rate_contradiction().or_else(of_offload).or_else(of_publish)
        };
        match contradictions.into_iter().flatten().next().or_else(others) {
            Some((what, help)) => Err(Error::Argument { what, help: help.to_owned() }),
            None => Ok(()),
        }
    }

    /// The argument that contradicts --lr-schedule, and the way out.
    fn learning_rate_contradiction(&self) -> Option<(String, &'static str)> {
        if let Some(decay) = self.decay.filter(|_| self.lr_schedule != LrSchedule::Wsd) {
            let what = format!("--decay {decay} is about the last steps of --lr-schedule wsd, which was not asked for");
            return Some((what, "leave one of them out"));
        }
        if self.lr_schedule == LrSchedule::Constant && self.lr_min_ratio != LR_MIN_RATIO {
            let what = format!("--lr-min-ratio {} is the end of a falling rate", self.lr_min_ratio);
            return Some((what + ", but --lr-schedule constant never falls", "leave one of them out"));
        }
        let LearningRate { warmup, steps, fall: Fall::Late { steps: decay }, .. } = self.learning_rate() else {
            return None;
        };
        let does_not_fit = steps > 0 && decay > steps.saturating_sub(warmup);
        does_not_fit.then(|| {
            let what = format!("--decay {decay} does not fit after --warmup {warmup} into --steps {steps}");
            (what, "lower one of the two, or raise --steps")
        })
    }

    /// Whether step `number`, counted from 1, is printed.
    pub fn tells_of(&self, number: u64) -> bool {
        let every = self.log_every.map_or(self.steps.div_ceil(LINES).min(LOG_EVERY_MAX), NonZeroU64::get);
        number == 1 || number == self.steps || number.is_multiple_of(every)
    }

    /// Whether to compute the held-out loss after step `number`, counted from 1. It is always computed after the last
    /// step, which does not count here.
    pub fn evaluates_after(&self, number: u64) -> bool {
        self.held_out_every.is_some_and(|every| number.is_multiple_of(every.get())) && number < self.steps
    }

    /// How many steps are profiled, if any are.
    pub fn profiled_steps(&self) -> usize {
        self.steps.saturating_sub(UNPROFILED_STEPS).min(PROFILED_STEPS_MAX) as usize
    }

    /// The learning rate of each step.
    pub fn learning_rate(&self) -> LearningRate {
        let warmup = self.warmup.unwrap_or((self.steps / 10).min(100));
        let fall = match self.lr_schedule {
            LrSchedule::Cosine => Fall::Cosine,
            LrSchedule::Linear => Fall::Linear,
            LrSchedule::Constant => Fall::Constant,
            LrSchedule::Wsd => Fall::Late { steps: self.decay.map_or((self.steps / 10).max(1), NonZeroU64::get) },
        };
        LearningRate { max: self.lr, min: self.lr * self.lr_min_ratio, warmup, steps: self.steps, fall }
    }

    /// The numbers that the optimizer uses at `step`, counted from 0.
    pub fn hyper(&self, step: u64) -> Hyper {
        Hyper {
            lr: self.learning_rate().at(step),
            beta1: self.beta1,
            beta2: self.beta2,
            momentum: self.momentum.unwrap_or(MOMENTUM),
            epsilon: self.epsilon,
            weight_decay: self.weight_decay,
            clip: (self.clip > 0.0).then_some(self.clip),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use zero_plan::{OptimizerKind, Precision};

    use super::*;

    #[derive(Parser, Debug)]
    struct Command {
        #[command(flatten)]
        run: RunArguments,
    }

    fn parsed(arguments: &[&str]) -> Result<RunArguments, String> {
        let parsed = Command::try_parse_from(["train"].iter().chain(arguments)).map_err(|error| error.to_string())?;
        parsed.run.check(&Config::PLAIN).map_err(|error| error.to_string())?;
        Ok(parsed.run)
    }

    #[test]
    fn momentum_is_for_muon() {
        let muon = Config { optimizer: OptimizerKind::Muon, ..Config::PLAIN };
        let of = |arguments: &[&str]| Command::try_parse_from(["train"].iter().chain(arguments)).expect("numbers").run;
        let given = of(&["--momentum=0.8"]);
        assert!(given.check(&muon).is_ok());
        assert_eq!((given.hyper(0).momentum, of(&[]).hyper(0).momentum), (0.8, 0.95));
    }

    #[test]
    fn arguments_reach_the_optimizer() {
        let run = parsed(&[
            "--lr=0.5",
            "--lr-min-ratio=0.25",
            "--warmup=2",
            "--steps=9",
            "--beta1=0.8",
            "--beta2=0.7",
            "--epsilon=1e-3",
            "--weight-decay=0.3",
            "--clip=0.6",
        ]);
        let run = run.unwrap();
        let (beta1, beta2, momentum) = (0.8, 0.7, 0.95);
        let expected = Hyper { lr: 0.5, beta1, beta2, momentum, epsilon: 1e-3, weight_decay: 0.3, clip: Some(0.6) };
        assert_eq!(run.hyper(2), expected);
        assert_eq!((run.hyper(0).lr, run.hyper(8).lr), (0.25, 0.125));
        assert_eq!(parsed(&["--clip=0"]).unwrap().hyper(0).clip, None);
    }

    #[test]
    fn without_a_number_the_warm_up_is_a_tenth_of_the_steps() {
        for (steps, warmup) in [("0", 0), ("9", 0), ("50", 5), ("1000", 100), ("18446744073709551615", 100)] {
            assert_eq!(parsed(&["--steps", steps]).unwrap().learning_rate().warmup, warmup, "{steps} steps");
        }
    }

    #[test]
    fn a_schedule_reaches_the_learning_rate() {
        let fall = |arguments: &[&str]| parsed(arguments).unwrap().learning_rate().fall;
        assert_eq!(fall(&[]), Fall::Cosine);
        assert_eq!(fall(&["--lr-schedule=linear"]), Fall::Linear);
        assert_eq!(fall(&["--lr-schedule=constant"]), Fall::Constant);
        assert_eq!(fall(&["--lr-schedule=wsd", "--steps=500"]), Fall::Late { steps: 50 });
        assert_eq!(fall(&["--lr-schedule=wsd", "--decay=7"]), Fall::Late { steps: 7 });
    }

    #[test]
    fn about_a_hundred_steps_are_told_of() {
        let told = |arguments: &[&str]| {
            let run = parsed(arguments).unwrap();
            (1..=run.steps).filter(|&number| run.tells_of(number)).collect::<Vec<_>>()
        };
        assert_eq!(told(&["--steps=0"]), [0; 0]);
        assert_eq!(told(&["--steps=100"]), (1..=100).collect::<Vec<_>>());
        let of_2000 = told(&["--steps=2000"]);
        assert_eq!((of_2000.len(), &of_2000[..3], of_2000.last()), (101, &[1, 20, 40][..], Some(&2000)));
        let of_a_million = told(&["--steps=1000001"]);
        assert_eq!((of_a_million.len(), of_a_million[1]), (1002, 1000));
        assert_eq!(told(&["--steps=10", "--log-every=4"]), [1, 4, 8, 10]);
        assert_eq!(told(&["--steps=3", "--log-every=18446744073709551615"]), [1, 3]);
    }

    #[test]
    fn held_out_data_is_looked_at_between_steps_on_request() {
        let after = |arguments: &[&str]| {
            let run = parsed(arguments).unwrap();
            (1..=run.steps).filter(|&number| run.evaluates_after(number)).collect::<Vec<_>>()
        };
        assert_eq!(after(&["--steps=9"]), [0; 0]);
        assert_eq!(after(&["--steps=9", "--held-out-every=4"]), [4, 8]);
        assert_eq!(after(&["--steps=8", "--held-out-every=4"]), [4]);
    }

    #[test]
    fn z0350_arguments_that_contradict_one_another() {
        for (arguments, words) in [
            (&["--steps=10", "--warmup=10"][..], "--warmup 10 is not shorter than the run: --steps 10"),
            (&["--warmup=18446744073709551615"], "--warmup 18446744073709551615 is not shorter than the run"),
            (&["--steps=2", "--profile"], "--profile begins at step 3, but the run has --steps 2"),
            (&["--lr=10", "--weight-decay=0.1"], "--lr 10 times --weight-decay 0.1 is 1 or more"),
            (&["--offload=a"], "--offload a is for states on disk, and this program keeps all of them in memory"),
            (&["--decay=3"], "--decay 3 is about the last steps of --lr-schedule wsd, which was not asked for"),
            (&["--lr-schedule=linear", "--decay=3"], "--decay 3 is about the last steps of --lr-schedule wsd"),
            (&["--lr-schedule=constant", "--lr-min-ratio=0.2"], "--lr-min-ratio 0.2 is the end of a falling rate"),
            (
                &["--lr-schedule=wsd", "--steps=10", "--warmup=4", "--decay=7"],
                "--decay 7 does not fit after --warmup 4 into --steps 10",
            ),
            (
                &["--lr-schedule=wsd", "--steps=100", "--warmup=95"],
                "--decay 10 does not fit after --warmup 95 into --steps 100",
            ),
            (&["--held-out=0", "--held-out-every=3"], "--held-out-every 3 asks for a loss that --held-out 0 skips"),
            (&["--momentum=0.9"], "--momentum 0.9 is about Muon, and this program is built for AdamW"),
            (&["--eager"], "--eager is about steps on GPUs, and this program is built for the processor"),
            (
                &["--bf16-products=widened"],
                "--bf16-products widened is about computing in bf16, and this program is built to compute in f32",
            ),
        ] {
            let error = parsed(arguments).expect_err("a contradiction");
            assert!(error.starts_with(&format!("error[Z0350]: {words}")), "{error}");
        }
        for possible in [
            &["--steps=10", "--warmup=9"][..],
            &["--steps=0", "--warmup=9"],
            &["--steps=3", "--profile"],
            &["--lr=9", "--weight-decay=0.1"],
            &["--metrics=a", "--profile=b"],
            &["--held-out-every=3"],
            &["--lr-schedule=wsd", "--steps=10", "--warmup=4", "--decay=6"],
            &["--lr-schedule=wsd", "--steps=0"],
            &["--lr-schedule=wsd", "--steps=1"],
            &["--lr-schedule=constant"],
            &["--lr-schedule=linear", "--lr-min-ratio=0"],
        ] {
            assert!(parsed(possible).is_ok(), "{possible:?}");
        }
    }

    #[test]
    fn z0350_instructions_must_be_there_and_have_products() {
        let refused = |device, products: Bf16Products| {
            let precision = Precision { compute: Width::BF16, ..Precision::default() };
            let run = Command::parse_from(["train", "--bf16-products", products.name()]).run;
            run.check(&Config { device, precision, ..Config::PLAIN }).err().map(|error| error.to_string())
        };
        for products in Bf16Products::ALL {
            let error = refused(DeviceKind::Cpu, products);
            assert_eq!(error.is_none(), products.is_there(), "{error:?}");
            let what =
                format!("--bf16-products {} names instructions that this processor does not have", products.name());
            assert!(error.is_none_or(|error| error.contains(&what)));
            let of_gpu = refused(DeviceKind::Cuda, products).expect("a contradiction");
            assert!(of_gpu.contains("is about processors, and this program is built for GPUs"), "{of_gpu}");
        }
    }

    #[test]
    fn up_to_ten_steps_are_profiled() {
        let run = parsed(&["--steps=3", "--profile"]).expect("one step to profile");
        assert_eq!((run.profiled_steps(), run.profile), (1, Some("profile.json".into())));
        let run = parsed(&["--profile", "a/b.json", "--steps=99"]).expect("steps to profile");
        assert_eq!((run.profiled_steps(), run.profile), (10, Some("a/b.json".into())));
    }
}
