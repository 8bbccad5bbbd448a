//! Arguments: the command line, and the error for an invalid command line. Never builds.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, Parser, Subcommand};
use zero_ranks::terminal;

use crate::advise::AdviseArguments;
use crate::checkpoint::{ExportArguments, VerifyArguments};
use crate::completions::CompletionsArguments;
use crate::diff::DiffArguments;
use crate::expand::ExpandArguments;
use crate::follow::FollowArguments;
use crate::import::ImportArguments;
use crate::init::InitArguments;
use crate::launch::LaunchArguments;
use crate::measure::MeasureArguments;
use crate::plan::PlanArguments;
use crate::request::{ModelRequest, Request};
use crate::simulate::SimulateArguments;
use crate::tokenize::TokenizeArguments;
use crate::view::ViewArguments;

/// Compiles a parallelism spec and a model into a training binary.
#[derive(Parser, Debug)]
#[command(name = "cargo zero", bin_name = "cargo zero", version, max_term_width = 100)]
struct CommandLine {
    #[command(subcommand)]
    verb: Verb,
}

/// The command to run.
#[derive(Subcommand, Debug, PartialEq)]
pub enum Verb {
    /// Build the binary and start its ranks
    Run {
        #[command(flatten)]
        request: Request,
        /// Arguments of the binary; `-- --help` lists them
        #[arg(last = true)]
        arguments: Vec<OsString>,
    },
    /// Build the binary, and generate text with its model, without training
    Sample {
        #[command(flatten)]
        request: Request,
        /// Arguments of the binary, such as `--prompt` and `--sample`; `-- --help` lists them
        #[arg(last = true)]
        arguments: Vec<OsString>,
    },
    /// Build the binary, and print the loss and the perplexity of its model on a whole text, without training
    Evaluate {
        #[command(flatten)]
        request: Request,
        /// Arguments of the binary, such as `--data`; `-- --help` lists them
        #[arg(last = true)]
        arguments: Vec<OsString>,
    },
    /// Build a worker that generates text with the model of a spec, and answers requests over HTTP as OpenAI's API does
    Serve {
        #[command(flatten)]
        request: Request,
        /// Arguments of the worker, such as `--from` or `--init`, and `--port`; `-- --help` lists them
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
    /// Build the binary, and print its path: under target/zero/, in a folder for its spec
    #[command(group(clap::ArgGroup::new("what").required(true).args(["spec", "list"])))]
    Build {
        /// The spec, a RON file; it names the model
        spec: Option<PathBuf>,
        #[command(flatten)]
        program: ModelRequest,
        /// Only print the files of this workspace whose text would be put beside the binary, with their sizes in bytes
        #[arg(long, conflicts_with_all = ["spec", "ModelRequest", "SizeArguments"])]
        list: bool,
    },
    /// Build the binary, copy it to several hosts and start its ranks there by mpirun; or write a Slurm job
    Launch(LaunchArguments),
    /// Build the binary and print its plan
    Plan(PlanArguments),
    /// Build the binary, and write the step of its plan as Rust, to read in a review: buffers, and a line for each op
    Expand(ExpandArguments),
    /// Build the binary, and print how long a step of its plan would take on some hardware, and why
    Simulate(SimulateArguments),
    /// Build the binary, and draw its plan: mesh, schedule, memory and traffic, as a page that opens in a browser
    View(ViewArguments),
    /// Measure the processor of this machine, and write its description as a hardware file for `--on`
    Measure(MeasureArguments),
    /// Search for the fastest layout of a model on some machines, and explain why other layouts are slower
    Advise(AdviseArguments),
    /// Write the token ids of text to a file, on which `--data` trains a text model
    Tokenize(TokenizeArguments),
    /// Read every byte of a checkpoint, or of all checkpoints of a run, and report every change since it was written
    Verify(VerifyArguments),
    /// Print the contents of a checkpoint, or a list of the checkpoints of a run
    Inspect {
        /// A checkpoint, or the folder of a run
        path: PathBuf,
    },
    /// Compare two specs, or a spec with its version in git's HEAD: keys, memory, traffic, ops, time, and where schedules first
    /// differ. Or compare two checkpoints, whose layouts and widths may differ: which tensors differ, by how much, and all other
    /// differences. The exit code is 0 if nothing differs, 1 if something does, and 2 if one of the two cannot be read
    Diff(DiffArguments),
    /// Write the parameters of a checkpoint to a folder in Hugging Face's format
    Export(ExportArguments),
    /// Follow a run that publishes its parameters: keep a folder in Hugging Face's format that always has one version, whole
    Follow(FollowArguments),
    /// Explain the code of a message, a word of the field, a key of a spec, or a name of FSDP or DeepSpeed
    Explain {
        /// The code, such as Z0107, the word, such as reduce-scatter, or the key, such as zero.prefetch; without it, all are
        /// listed
        words: Vec<String>,
    },
    /// Convert a configuration of DeepSpeed or accelerate to a spec, and list its settings without a counterpart
    Import(ImportArguments),
    /// Create a crate of your own, with a model and a spec, that compiles and trains immediately
    Init(InitArguments),
    /// Print a script that completes this command in a shell
    Completions(CompletionsArguments),
}

/// The command as clap knows it.
pub fn command() -> clap::Command {
    CommandLine::command()
}

/// Reads the command line. If it asks for help or is wrong, prints the help or an error and ends the process.
pub fn read(arguments: impl IntoIterator<Item = OsString>) -> Verb {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    match CommandLine::try_parse_from(&arguments) {
        Ok(CommandLine { verb }) => verb,
        Err(error) if is_help(&error) => error.exit(),
        Err(error) => {
            let exit_code = error.exit_code();
            let rendered = with_tip(error, &arguments).render().ansi().to_string();
            terminal::tell(&with_code(&rendered).trim_end());
            std::process::exit(exit_code)
        }
    }
}

fn is_help(error: &clap::Error) -> bool {
    use ErrorKind::{DisplayHelp, DisplayHelpOnMissingArgumentOrSubcommand, DisplayVersion};
    matches!(error.kind(), DisplayHelp | DisplayHelpOnMissingArgumentOrSubcommand | DisplayVersion)
}

/// Replaces clap's suggestion if there is a better suggestion.
fn with_tip(mut error: clap::Error, arguments: &[OsString]) -> clap::Error {
    if let Some(tip) = tip(&error, arguments) {
        for kind in [ContextKind::SuggestedSubcommand, ContextKind::SuggestedArg, ContextKind::SuggestedValue] {
            error.remove(kind);
        }
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
    }
    error
}

fn tip(error: &clap::Error, arguments: &[OsString]) -> Option<String> {
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.clone()),
        _ => None,
    };
    match error.kind() {
        ErrorKind::InvalidSubcommand => {
            let verb = text(ContextKind::InvalidSubcommand)?;
            let is_spec = Path::new(&verb).extension().is_some() || Path::new(&verb).exists();
            if is_spec {
                return Some(format!("to train what a spec says, run `cargo zero run {}`", shown(&arguments[1..])));
            }
            let has_near = error.get(ContextKind::SuggestedSubcommand).is_some();
            (!has_near).then(|| format!("the commands are {}", commands()))
        }
        ErrorKind::UnknownArgument if arguments.get(1).is_some_and(starts_a_binary) => {
            tip_for_run(&text(ContextKind::InvalidArg)?, &arguments[1..])
        }
        _ => None,
    }
}

/// The names of all commands, as a list in a sentence.
fn commands() -> String {
    let names: Vec<_> = command().get_subcommands().map(|it| format!("`{}`", it.get_name())).collect();
    match names.split_last() {
        Some((last, others)) => format!("{} and {last}", others.join(", ")),
        None => String::new(),
    }
}

/// Whether a verb takes arguments of the binary.
fn starts_a_binary(verb: &OsString) -> bool {
    ["run", "sample", "evaluate"].iter().any(|starts| verb == starts)
}

/// The tip for an argument that `run`, `sample` or `evaluate` does not have. `arguments` starts with the verb.
fn tip_for_run(unknown: &str, arguments: &[OsString]) -> Option<String> {
    if unknown == "--release" {
        return Some("a binary is always built with `--release`; leave it out".to_owned());
    }
    // For `--steps=5` clap reports `--steps`, and for `-steps` it reports `-s`.
    let at = arguments.iter().position(|argument| argument.to_string_lossy().starts_with(unknown))?;
    let (before, after) = arguments.split_at(at);
    let has_spec = before.len() > 1;
    Some(match (unknown.starts_with('-'), has_spec) {
        (false, _) => "a command takes one spec; give arguments of the binary after `--`".to_owned(),
        (true, true) => {
            let (before, after) = (shown(before), shown(after));
            format!("arguments of the binary come after `--`: `cargo zero {before} -- {after}`")
        }
        (true, false) => {
            let verb = arguments[0].to_string_lossy();
            format!("arguments of the binary come after the spec and `--`: `cargo zero {verb} SPEC -- {unknown} ...`")
        }
    })
}

fn shown(arguments: &[OsString]) -> String {
    let words: Vec<_> = arguments.iter().map(|argument| argument.to_string_lossy()).collect();
    words.join(" ")
}

/// Clap's message with the code.
fn with_code(rendered: &str) -> String {
    rendered.replacen("error:", "error[Z0132]:", 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::SizeArguments;

    fn parsed(line: &str) -> Result<Verb, String> {
        let arguments: Vec<_> = ["zero"].into_iter().chain(line.split(' ')).map(OsString::from).collect();
        let parsed = CommandLine::try_parse_from(&arguments);
        let told = |error| with_code(&with_tip(error, &arguments).render().to_string());
        parsed.map(|arguments| arguments.verb).map_err(told)
    }

    #[test]
    fn what_follows_two_dashes_is_for_the_binary() {
        let run = parsed("run x.ron --bin b --size 4B --key-heads 2 -- --steps 5").expect("a command");
        let size = SizeArguments { size: Some("4B".to_owned()), key_heads: Some(2), ..SizeArguments::default() };
        let request = Request { spec: "x.ron".into(), program: ModelRequest { bin: Some("b".to_owned()), size } };
        assert_eq!(run, Verb::Run { request, arguments: vec!["--steps".into(), "5".into()] });
        assert!(
            parsed("run zero")
                .is_ok_and(|verb| matches!(verb, Verb::Run { request, .. } if request.spec == Path::new("zero")))
        );
    }

    #[test]
    fn z0132_command_line_that_is_not_understood() {
        for (line, expected) in [
            ("run x.ron --steps 5", "arguments of the binary come after `--`: `cargo zero run x.ron -- --steps 5`"),
            ("run x.ron --lr=5 --seed 1", "come after `--`: `cargo zero run x.ron -- --lr=5 --seed 1`"),
            ("run x.ron -steps 5", "come after `--`: `cargo zero run x.ron -- -steps 5`"),
            ("run --steps 5 x.ron", "come after the spec and `--`: `cargo zero run SPEC -- --steps ...`"),
            ("run x.ron --release", "always built with `--release`"),
            ("train x.ron", "the commands are `run`, `sample`, `evaluate`, `serve`, `build`, `launch`, "),
            ("simulate x.ron", "--on <HARDWARE>"),
            ("simulate x.ron --on a --threads 0", "invalid value '0'"),
            ("measure --threads 1,x", "invalid value 'x'"),
            ("export a b --dtype f64", "[possible values: bf16, f16, f32]"),
            ("diff", "<FIRST>"),
            ("diff a.ron b.ron --network n", "--on <HARDWARE>"),
            ("plan x.ron --json --schedule", "cannot be used with"),
            ("import a.json --ranks 0", "invalid value '0'"),
            ("import a.json --micro-batches 8193", "invalid value '8193'"),
            ("completions csh", "[possible values: bash, elvish, fish, powershell, zsh, cargo]"),
            ("init", "<NAME>"),
            ("verify a --threads 0", "invalid value '0'"),
            ("sample x.ron --prompt a", "come after `--`: `cargo zero sample x.ron -- --prompt a`"),
            ("evaluate --data a x.ron", "come after the spec and `--`: `cargo zero evaluate SPEC -- --data ...`"),
            ("sample", "<SPEC>"),
            ("run a.ron b.ron", "a command takes one spec"),
            ("specs/a.ron", "run `cargo zero run specs/a.ron`"),
            ("buidl x.ron", "a similar subcommand exists: 'build'"),
            ("run", "<SPEC>"),
            ("build", "SPEC"),
            ("build x.ron --list", "cannot be used with"),
            ("build --list --layers 3", "cannot be used with"),
            ("plan x.ron --layers 0", "invalid value '0'"),
            ("plan x.ron --schedul", "--schedule"),
            ("plan x.ron --steps 5", "unexpected argument '--steps'"),
            ("view x.ron --network hdr-8x200", "--on <HARDWARE>"),
            ("view x.ron y.ron --svg", "cannot be used with"),
            ("view x.ron --svg --profile p.json", "cannot be used with"),
            ("run x.ron --bin", "a value is required for '--bin <NAME>'"),
        ] {
            let error = parsed(line).expect_err(line);
            assert!(error.starts_with("error[Z0132]: ") && error.contains(expected), "{line}: {error}");
            assert_eq!(error.matches("tip:").count(), usize::from(error.contains("tip:")), "{error}");
        }
        let serve = |line: &str| match parsed(line) {
            Ok(Verb::Serve { request, arguments }) => Some((request.spec, request.program.size.size, arguments)),
            _ => None,
        };
        let asked = ["--from", "http://a:1", "--size", "4B"].map(OsString::from);
        assert_eq!(
            serve("serve x.ron --size 1B --from http://a:1 --size 4B"),
            Some(("x.ron".into(), Some("1B".to_owned()), asked.to_vec()))
        );
        assert_eq!(serve("serve x.ron -- --port 0"), Some(("x.ron".into(), None, vec!["--port".into(), "0".into()])));
        for line in ["view x.ron", "view x.ron y.ron", "view x.ron --svg", "view x.ron --on a100-80 --profile p.json"] {
            assert!(matches!(parsed(line), Ok(Verb::View(_))), "{line}");
        }
        let build = |line: &str| match parsed(line) {
            Ok(Verb::Build { spec, program: ModelRequest { bin, size }, list }) => Some((spec, bin, size.size, list)),
            _ => None,
        };
        assert_eq!(build("build --list"), Some((None, None, None, true)));
        let [spec, bin] = ["x.ron", "b"].map(str::to_owned);
        assert_eq!(build("build x.ron --bin b"), Some((Some(spec.into()), Some(bin), None, false)));
    }
}
