//! Token arguments: options of a binary whose model's ids are tokens, whatever data it trains on, besides those of every
//! model. Never acts on one.

use std::num::{NonZeroU64, NonZeroUsize};
use std::path::PathBuf;

use clap::builder::PossibleValue;
use clap::{Args, ValueEnum};
use serde::Serialize;

use super::arguments::{PLAN, RunArguments, as_text};
use super::range::{at_least_one, not_negative, share_above_zero, whole};
use super::text_arguments::DATA;
use crate::error::Error;
use zero_core::sampling::Sampling;

const SAMPLE: &str = "Sample of what was learned";

/// Arguments of models of tokens.
#[derive(Args, Clone, Debug, Serialize)]
pub struct TokenArguments {
    /// Converts text to token ids and back: a tokenizer.json, or the folder of a model with one; without it, the tokenizer of
    /// --init, and without one there, each byte is an id
    #[arg(long, value_name = "PATH", help_heading = DATA)]
    #[serde(serialize_with = "as_text")]
    pub tokenizer: Option<PathBuf>,
    /// Instead of training, do this with the initial parameters: sample, or evaluate all of --data
    #[arg(long, value_name = "WHAT", help_heading = PLAN)]
    pub only: Option<Only>,
    /// Tokens to generate at the end
    #[arg(long, default_value_t = 200, value_name = "N", value_parser = whole, help_heading = SAMPLE)]
    pub sample: u64,
    /// Beginning of the generated text; without it, one that fits the sources of this repository
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true, help_heading = SAMPLE)]
    pub prompt: Option<String>,
    /// Randomness of sampling: 0 always takes the likeliest token
    #[arg(long, default_value_t = 0.7, value_name = "VALUE", value_parser = not_negative, help_heading = SAMPLE)]
    pub temperature: f64,
    /// Draw from the N likeliest tokens alone
    #[arg(long, value_name = "N", value_parser = at_least_one, help_heading = SAMPLE)]
    pub top_k: Option<NonZeroU64>,
    /// Draw from the fewest likeliest tokens whose probabilities come to this share
    #[arg(long, default_value_t = 1.0, value_name = "SHARE", value_parser = share_above_zero, help_heading = SAMPLE)]
    pub top_p: f64,
    /// End the sample after this text, or before this token: its name or its id; may be given several times
    #[arg(long, value_name = "TEXT_OR_ID", allow_hyphen_values = true, help_heading = SAMPLE)]
    pub stop: Vec<String>,
}

/// The task instead of training.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Only {
    /// Tokens are generated.
    Sample,
    /// The loss of all of a text is computed.
    Evaluate,
}

// Not derived, because clap would take the docs of the variants, and show the whole help in its long form.
impl ValueEnum for Only {
    fn value_variants<'a>() -> &'a [Self] {
        &[Only::Sample, Only::Evaluate]
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(PossibleValue::new(match self {
            Only::Sample => "sample",
            Only::Evaluate => "evaluate",
        }))
    }
}

impl TokenArguments {
    /// How freely tokens are chosen.
    pub fn sampling(&self) -> Sampling {
        // A number larger than the vocabulary means all tokens.
        let top_k = self.top_k.map(|k| NonZeroUsize::try_from(k).unwrap_or(NonZeroUsize::MAX));
        Sampling { temperature: self.temperature, top_k, top_p: self.top_p }
    }

    /// The arguments of a run without steps, if --only asks for one.
    ///
    /// # Errors
    /// Z0350 for arguments that are about steps.
    pub fn without_steps(&self, run: RunArguments) -> Result<RunArguments, Error> {
        let Some(only) = self.only else { return Ok(run) };
        let name = only.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned());
        let about_steps = [
            run.profile.is_some().then_some("--profile"),
            run.held_out_every.map(|_| "--held-out-every"),
            run.warmup.map(|_| "--warmup"),
            run.checkpoints.checkpoint.as_ref().map(|_| "--checkpoint"),
            run.checkpoints.resume.as_ref().map(|_| "--resume"),
        ];
        if let Some(argument) = about_steps.into_iter().flatten().next() {
            let what = format!("{argument} is about steps of training, and --only {name} does none");
            return Err(Error::Argument { what, help: "leave one of them out".to_owned() });
        }
        if only == Only::Sample && self.sample == 0 {
            let what = "--only sample asks for the sample that --sample 0 skips".to_owned();
            return Err(Error::Argument { what, help: "leave one of them out".to_owned() });
        }
        Ok(RunArguments { steps: 0, held_out: 0, ..run })
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser, Debug)]
    struct TokensCommand {
        #[command(flatten)]
        run: RunArguments,
        #[command(flatten)]
        tokens: TokenArguments,
    }

    #[test]
    fn z0350_arguments_about_steps_where_there_are_none() {
        let run = |arguments: &[&str]| {
            let TokensCommand { run, tokens } = TokensCommand::parse_from(["train"].iter().chain(arguments));
            tokens.without_steps(run).map_err(|error| error.to_string())
        };
        for only in ["--only=sample", "--only=evaluate"] {
            assert_eq!(run(&[only]).map(|run| (run.steps, run.held_out)), Ok((0, 0)));
            for about_steps in ["--profile", "--held-out-every=3", "--warmup=1"] {
                let error = run(&[only, about_steps]).expect_err("a contradiction");
                let argument = about_steps.split('=').next().unwrap_or_default();
                assert!(error.starts_with(&format!("error[Z0350]: {argument} is about steps of training")), "{error}");
            }
        }
        assert!(run(&["--only=sample", "--sample=0"]).is_err_and(|error| error.contains("--sample 0 skips")));
        assert_eq!(run(&["--steps=7"]).map(|run| run.steps), Ok(7));
    }
}
