//! Arguments of a binary: all that shapes neither memory nor order. What shapes those is in the spec and is compiled in.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::Args;

use super::learning_rate::LearningRate;
use crate::engine::Hyper;
use crate::error::Error;

/// Steps before the first that is profiled: they touch memory for the first time. The help of `--profile` says so.
pub const UNPROFILED_STEPS: u64 = 2;
/// The most steps that are profiled. The help of `--profile` says so.
pub const PROFILED_STEPS_MAX: u64 = 10;

/// Arguments of every model.
#[derive(Args, Clone, Debug)]
pub struct RunArguments {
    /// Steps to train
    #[arg(long, default_value_t = 2000, value_name = "N")]
    pub steps: u64,
    /// Highest learning rate
    #[arg(long, default_value_t = 2e-3, value_name = "RATE", value_parser = positive)]
    pub lr: f64,
    /// Learning rate of the last step, as a share of --lr: the end of the cosine
    #[arg(long, default_value_t = 0.1, value_name = "SHARE", value_parser = share)]
    pub lr_min_ratio: f64,
    /// Steps over which the learning rate rises to --lr; without it, a tenth of --steps, 100 at most
    #[arg(long, value_name = "N")]
    pub warmup: Option<u64>,
    /// Decoupled weight decay of matrices (AdamW)
    #[arg(long, default_value_t = 0.1, value_name = "RATE", value_parser = not_negative)]
    pub weight_decay: f64,
    /// Decay of AdamW's first moment
    #[arg(long, default_value_t = 0.9, value_name = "RATE", value_parser = below_one)]
    pub beta1: f64,
    /// Decay of AdamW's second moment
    #[arg(long, default_value_t = 0.95, value_name = "RATE", value_parser = below_one)]
    pub beta2: f64,
    /// Added to the root of AdamW's second moment
    #[arg(long, default_value_t = 1e-8, value_name = "VALUE", value_parser = positive)]
    pub epsilon: f64,
    /// Norm to which longer gradients are scaled down; 0 turns clipping off
    #[arg(long, default_value_t = 1.0, value_name = "NORM", value_parser = not_negative)]
    pub clip: f64,
    /// Seed of parameters, data and sampling
    #[arg(long, default_value_t = 0, value_name = "SEED")]
    pub seed: u64,
    /// Threads of each rank; without it, ranks share the cores of this host
    #[arg(long, value_name = "N", value_parser = at_least_one)]
    pub threads: Option<NonZeroUsize>,
    /// Micro-batches a rank that the held-out loss is the mean of; 0 skips it
    #[arg(long, default_value_t = 16, value_name = "N")]
    pub held_out: usize,
    /// New file that takes a line of JSON for each step
    #[arg(long, value_name = "FILE")]
    pub metrics: Option<PathBuf>,
    /// Say where time goes in up to 10 steps from the third on, by op and by unit, and write a trace of them that Perfetto
    /// opens to a new file [default: profile.json]
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "profile.json")]
    pub profile: Option<PathBuf>,
    /// Print the plan and end
    #[arg(long)]
    pub plan: bool,
    /// Print the plan, where everything lies and every op of every pipeline stage, and end
    #[arg(long)]
    pub schedule: bool,
    /// Prove the plan over the ops of all ranks, say what was proven, and end
    #[arg(long)]
    pub prove: bool,
}

/// Arguments of models of text.
#[derive(Args, Clone, Debug)]
pub struct TextArguments {
    /// Text to learn: a file, a directory, or a .bin file of u16 token ids; without it, the workspace's own sources
    #[arg(long, value_name = "PATH")]
    pub data: Option<PathBuf>,
    /// Tokens to generate at the end
    #[arg(long, default_value_t = 200, value_name = "N")]
    pub sample: usize,
    /// What the generated text begins with; without it, something that fits this repository's sources
    #[arg(long, value_name = "TEXT")]
    pub prompt: Option<String>,
    /// How bold sampling is: 0 always takes the likeliest token
    #[arg(long, default_value_t = 0.7, value_name = "VALUE", value_parser = not_negative)]
    pub temperature: f64,
}

impl RunArguments {
    /// Whether the plan is all that is asked for.
    pub fn only_shows(&self) -> bool {
        self.plan || self.schedule || self.prove
    }

    /// Rejects what contradicts itself.
    ///
    /// # Errors
    /// Z0350.
    pub fn check(&self) -> Result<(), Error> {
        if let Some(warmup) = self.warmup
            && warmup >= self.steps
            && self.steps > 0
        {
            return Err(Error::Argument {
                what: format!("--warmup {warmup} is not shorter than the run: --steps {}", self.steps),
                help: "lower --warmup, or raise --steps".to_owned(),
            });
        }
        if self.profile.is_some() && self.profiled_steps() == 0 {
            return Err(Error::Argument {
                what: format!(
                    "--profile is of step {} and those after it, but the run has --steps {}",
                    UNPROFILED_STEPS + 1,
                    self.steps
                ),
                help: "raise --steps, or leave --profile out".to_owned(),
            });
        }
        Ok(())
    }

    /// How many steps a profile is of.
    pub fn profiled_steps(&self) -> usize {
        self.steps.saturating_sub(UNPROFILED_STEPS).min(PROFILED_STEPS_MAX) as usize
    }

    /// The learning rate of each step.
    pub fn learning_rate(&self) -> LearningRate {
        let warmup = self.warmup.unwrap_or((self.steps / 10).min(100));
        LearningRate { max: self.lr, min: self.lr * self.lr_min_ratio, warmup, steps: self.steps }
    }

    /// What the optimizer does at `step`, counted from 0.
    pub fn hyper(&self, step: u64) -> Hyper {
        Hyper {
            lr: self.learning_rate().at(step),
            beta1: self.beta1,
            beta2: self.beta2,
            epsilon: self.epsilon,
            weight_decay: self.weight_decay,
            clip: (self.clip > 0.0).then_some(self.clip),
        }
    }
}

fn number(text: &str, expected: &str, holds: impl Fn(f64) -> bool) -> Result<f64, String> {
    let value: f64 = text.parse().map_err(|_| format!("[Z0353] expected {expected}"))?;
    if value.is_finite() && holds(value) { Ok(value) } else { Err(format!("[Z0353] expected {expected}")) }
}

fn at_least_one(text: &str) -> Result<NonZeroUsize, String> {
    text.parse().map_err(|_| "[Z0353] expected a whole number, 1 or above".to_owned())
}

fn positive(text: &str) -> Result<f64, String> {
    number(text, "a number above 0", |value| value > 0.0)
}

fn not_negative(text: &str) -> Result<f64, String> {
    number(text, "a number, 0 or above", |value| value >= 0.0)
}

fn below_one(text: &str) -> Result<f64, String> {
    number(text, "a number from 0 up to, but not, 1", |value| (0.0..1.0).contains(&value))
}

fn share(text: &str) -> Result<f64, String> {
    number(text, "a number from 0 to 1", |value| (0.0..=1.0).contains(&value))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser, Debug)]
    struct Command {
        #[command(flatten)]
        run: RunArguments,
    }

    fn parsed(arguments: &[&str]) -> Result<RunArguments, String> {
        let parsed = Command::try_parse_from(["train"].iter().chain(arguments)).map_err(|error| error.to_string())?;
        parsed.run.check().map_err(|error| error.to_string())?;
        Ok(parsed.run)
    }

    #[test]
    fn z0353_argument_out_of_range() {
        for (name, values) in [
            ("--lr", ["NaN", "0", "inf", "x"]),
            ("--beta1", ["1", "1.5", "NaN", "-0.1"]),
            ("--beta2", ["1", "2", "NaN", ""]),
            ("--lr-min-ratio", ["1.1", "-1", "NaN", "x"]),
            ("--clip", ["-1", "NaN", "inf", "x"]),
        ] {
            for value in values {
                let error = parsed(&[&format!("{name}={value}")]).expect_err(value);
                assert!(error.contains("[Z0353] expected a number") && error.contains(name), "{error}");
            }
        }
        assert!(parsed(&["--lr=1e-3", "--beta1=0", "--lr-min-ratio=1", "--clip=0"]).is_ok());
    }

    #[test]
    fn z0353_threads_are_one_or_more() {
        for value in ["0", "-1", "1.5", "x", ""] {
            let error = parsed(&[&format!("--threads={value}")]).expect_err(value);
            assert!(error.contains("[Z0353] expected a whole number, 1 or above"), "{error}");
        }
        assert_eq!(parsed(&["--threads=3"]).unwrap().threads, NonZeroUsize::new(3));
    }

    #[test]
    fn z0350_profile_of_a_run_without_a_profiled_step() {
        assert!(parsed(&["--steps=2"]).is_ok_and(|run| run.profile.is_none()));
        let run = parsed(&["--steps=3", "--profile"]).expect("one step to profile");
        assert_eq!((run.profiled_steps(), run.profile), (1, Some("profile.json".into())));
        let run = parsed(&["--profile", "a/b.json", "--steps=99"]).expect("steps to profile");
        assert_eq!((run.profiled_steps(), run.profile), (10, Some("a/b.json".into())));
        let error = parsed(&["--steps=2", "--profile"]).expect_err("nothing to profile");
        assert!(error.starts_with("error[Z0350]: --profile is of step 3 and those after it"), "{error}");
    }

    #[test]
    fn z0350_warm_up_longer_than_the_run() {
        assert!(parsed(&["--steps=10", "--warmup=9"]).is_ok());
        let error = parsed(&["--steps=10", "--warmup=10"]).expect_err("no steps after the warm-up");
        assert!(error.starts_with("error[Z0350]: --warmup 10 is not shorter than the run"), "{error}");
    }
}
