//! Command: reads the arguments of a binary with clap, and reports errors in them. Never acts on an argument.

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, Error, Parser};

use super::arguments::RunArguments;
use super::text_arguments::TextArguments;
use super::token_arguments::TokenArguments;
use zero_plan::spec::key_called;
use zero_ranks::terminal::write_error;

/// Trains this binary's model. Started alone, it starts its own ranks on this host; started by a launcher that sets
/// RANK and WORLD_SIZE (torchrun), or the variables of Slurm or Open MPI, it is one rank.
#[derive(Parser, Clone, Debug)]
#[command(version, max_term_width = 100)]
pub struct TextCommand {
    /// Those of every model.
    #[command(flatten)]
    pub run: RunArguments,
    /// Those of models of text.
    #[command(flatten)]
    pub text: TextArguments,
}

/// Trains this binary's model. Started alone, it starts its own ranks on this host; started by a launcher that sets
/// RANK and WORLD_SIZE (torchrun), or the variables of Slurm or Open MPI, it is one rank.
#[derive(Parser, Clone, Debug)]
#[command(version, max_term_width = 100)]
pub struct DataCommand {
    /// Those of every model.
    #[command(flatten)]
    pub run: RunArguments,
}

/// Trains this binary's model. Started alone, it starts its own ranks on this host; started by a launcher that sets
/// RANK and WORLD_SIZE (torchrun), or the variables of Slurm or Open MPI, it is one rank.
#[derive(Parser, Clone, Debug)]
#[command(version, max_term_width = 100)]
pub struct TokensCommand {
    /// Those of every model.
    #[command(flatten)]
    pub run: RunArguments,
    /// Those of models of tokens.
    #[command(flatten)]
    pub tokens: TokenArguments,
}

/// Reads arguments. The first one is the program's name.
///
/// # Errors
/// The error, or the requested text: [`tell`] prints both.
pub fn read<C: Parser>(arguments: impl IntoIterator<Item = OsString>) -> Result<C, Error> {
    let mut command = C::command().mut_args(takes_negative_numbers);
    let matches = command.try_get_matches_from_mut(arguments).map_err(with_key)?;
    C::from_arg_matches(&matches).map_err(|error| error.format(&mut command))
}

/// Says of an unknown argument that it is a key of the spec, if it is one.
fn with_key(mut error: Error) -> Error {
    let Some(ContextValue::String(argument)) = error.get(ContextKind::InvalidArg) else { return error };
    let name = argument.strip_prefix("--").filter(|_| error.kind() == ErrorKind::UnknownArgument);
    if let Some(key) = name.and_then(key_called) {
        let tip = format!(
            "`{}` in the spec decides this when the program is built: {}. `cargo zero explain {0}` says more",
            key.path, key.expects
        );
        error.remove(ContextKind::SuggestedArg);
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
    }
    error
}

/// The names of numbers in the help.
const NUMBERS: [&str; 6] = ["N", "RATE", "SHARE", "SEED", "NORM", "VALUE"];

/// Lets the value of a number begin with a minus. Otherwise clap would call `-1` in `--lr -1` an unknown argument.
fn takes_negative_numbers(argument: Arg) -> Arg {
    let is_number = argument.get_value_names().is_some_and(|names| NUMBERS.contains(&names[0].as_str()));
    if is_number { argument.allow_hyphen_values(true) } else { argument }
}

/// Prints an error, or the text of `--help` or `--version`.
pub fn tell(error: &Error) {
    match code(error.kind()) {
        // This fails only if the output is closed; then there is nowhere to report it.
        None => drop(error.print()),
        Some(_) => write_error(&with_code(error)),
    }
}

/// The error in clap's words and colours, with its code.
pub fn with_code(error: &Error) -> String {
    let text = error.render().ansi().to_string();
    match code(error.kind()) {
        Some(code) => text.replacen("error:", &format!("error[{code}]:"), 1),
        None => text,
    }
}

fn code(kind: ErrorKind) -> Option<&'static str> {
    match kind {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => None,
        ErrorKind::ValueValidation => Some("Z0353"),
        _ => Some("Z0354"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The error for bad arguments, without colour.
    fn told(arguments: &[&str]) -> String {
        let arguments = ["train"].iter().chain(arguments).map(OsString::from);
        let error = read::<TextCommand>(arguments).expect_err("arguments that cannot be");
        anstream::adapter::strip_str(&with_code(&error)).to_string()
    }

    #[test]
    fn z0353_argument_out_of_range() {
        let numbers = [
            "lr",
            "beta1",
            "beta2",
            "momentum",
            "lr-min-ratio",
            "clip",
            "weight-decay",
            "epsilon",
            "temperature",
            "top-p",
        ];
        for name in numbers {
            for value in ["-1", "-1e-3", "-inf", "NaN", "inf", "x", "1e-400", "1e300"] {
                let told = told(&[&format!("--{name}"), value]);
                assert!(told.starts_with(&format!("error[Z0353]: invalid value '{value}' for '--{name} <")), "{told}");
                assert!(told.contains(": expected a number"), "{told}");
            }
        }
        let whole =
            ["steps", "warmup", "seed", "threads", "held-out", "held-out-every", "log-every", "sample", "top-k"];
        for name in whole {
            for value in ["-1", "1.5", "x", "18446744073709551616", "1e3"] {
                let told = told(&[&format!("--{name}"), value]);
                assert!(told.starts_with(&format!("error[Z0353]: invalid value '{value}' for '--{name} <")), "{told}");
                assert!(told.contains(": expected a whole number from "), "{told}");
            }
        }
        for (name, bad) in [
            ("lr", "0"),
            ("epsilon", "0"),
            ("beta1", "1"),
            ("beta2", "1"),
            ("momentum", "1"),
            ("lr-min-ratio", "1.1"),
            ("top-p", "0"),
        ] {
            assert!(told(&[&format!("--{name}={bad}")]).starts_with("error[Z0353]: "), "{name}");
        }
        for name in ["threads", "held-out-every", "log-every", "top-k"] {
            assert!(told(&[&format!("--{name}=0")]).contains("expected a whole number from 1 to "), "{name}");
        }
        assert!(
            told(&["--threads", "100000"]).contains("expected a whole number from 1 to 1024: no host has more cores")
        );
    }

    #[test]
    fn z0354_arguments_that_cannot_be_read() {
        for (arguments, words) in [
            (&["--stage", "3"][..], "unexpected argument '--stage' found"),
            (&["3"], "unexpected argument '3' found"),
            (&["--lr"], "a value is required for '--lr <RATE>'"),
            (&["--metrics", "--plan"], "a value is required for '--metrics <FILE>'"),
            (&["--metrics="], "a value is required for '--metrics <FILE>'"),
            (&["--data="], "a value is required for '--data <PATH>'"),
            (&["--lr", "1", "--lr", "2"], "the argument '--lr <RATE>' cannot be used multiple times"),
            (&["--data", "x", "--data-as", "parquet"], "invalid value 'parquet' for '--data-as <WHAT>'"),
            (&["--data-as", "bytes"], "--data <PATH>"),
            (&["--only", "train"], "invalid value 'train' for '--only <WHAT>'"),
            (&["--every", "5"], "--checkpoint <FOLDER>"),
            (&["--restarts", "5"], "--checkpoint <FOLDER>"),
            (&["--plan=yes"], "unexpected value 'yes' for '--plan' found"),
        ] {
            let told = told(arguments);
            assert!(told.starts_with("error[Z0354]: ") && told.contains(words), "{told}");
        }
    }

    #[test]
    fn z0354_an_argument_that_is_a_key_of_the_spec_says_so() {
        for (argument, key) in [
            ("--stage", "zero.stage"),
            ("--batch-size=8", "batch.sequences"),
            ("--per_device_train_batch_size", "batch.sequences"),
            ("--bf16", "precision.compute"),
            ("--gradient-checkpointing", "recompute"),
            ("--micro-batches", "batch.micro_batches"),
            ("--optimizer", "optimizer"),
        ] {
            let told = told(&[argument]);
            assert!(
                told.starts_with("error[Z0354]: ") && told.contains(&format!("tip: `{key}` in the spec")),
                "{told}"
            );
            assert_eq!(told.matches("tip:").count(), 1, "{told}");
        }
        assert!(told(&["--step", "3"]).contains("a similar argument exists: '--steps'"));
    }

    #[test]
    fn help_is_no_error() {
        for arguments in [["train", "--help"], ["train", "--version"]] {
            let error = read::<TextCommand>(arguments.map(OsString::from)).expect_err("something to print");
            assert_eq!(code(error.kind()), None);
        }
    }
}
