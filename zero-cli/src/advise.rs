//! Advise: the best layout of a model on some machines. Builds the model once to ask for its sizes, and prints or writes the
//! answer of `zero-study`. Never searches by itself.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Args;
use zero_plan::Width;
use zero_plan::spec::{self, ModelSource};
use zero_study::advise::{
    Advice, Effort, OffloadUse, Pins, Question, advise as search, answer, comment, json, memo, probes,
};

use crate::error::CommandError;
use crate::hardware::OnHardware;
use crate::probe;
use crate::request::ModelRequest;
use crate::say;

/// The longest sequence for a question, in tokens: a micro-batch of 16 such sequences is one that a spec may have.
const LENGTH_MAX: i64 = 1 << 24;

/// The question.
#[derive(Args, Debug, PartialEq)]
pub struct AdviseArguments {
    /// The model: an example of this workspace, or a package
    #[arg(long, value_name = "EXAMPLE")]
    pub model: String,
    #[command(flatten)]
    pub program: ModelRequest,
    #[command(flatten)]
    pub on: OnHardware,
    /// Number of nodes
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub nodes: usize,
    /// Tokens of a step of all ranks; without it, each data-parallel rank has the fastest number of tokens
    #[arg(long, value_name = "T")]
    pub tokens_per_step: Option<usize>,
    /// Tokens of a sequence
    #[arg(long, value_name = "L", default_value = "256", value_parser = clap::value_parser!(u32).range(1..=LENGTH_MAX))]
    pub length: u32,
    /// A key of the spec with a fixed value, such as `zero.stage=3`; may be repeated
    #[arg(long = "pin", value_name = "KEY=VALUE")]
    pub pins: Vec<String>,
    /// Also try everything in bf16, including the optimizer's copy and moments, which changes the result of training
    #[arg(long)]
    pub pure_bf16: bool,
    /// Also try to keep states and activations on disk, or of GPUs in host memory, where layouts without that fit
    #[arg(long)]
    pub offload: bool,
    /// The most plans that are timed
    #[arg(long, value_name = "N", default_value_t = Effort::default().plans)]
    pub plans: usize,
    /// Write the specs of the best layouts to this folder, as best-1.ron and so on
    #[arg(long, value_name = "DIR")]
    pub write: Option<PathBuf>,
    /// Write the memo to this file: memory, traffic and times, the choice, and what would change it
    #[arg(long, value_name = "FILE.md")]
    pub memo: Option<PathBuf>,
    /// Print the answer as JSON, as described in docs/json.md
    #[arg(long)]
    pub json: bool,
}

/// Searches, prints the answer, and writes the requested files.
pub fn advise(arguments: &AdviseArguments) -> Result<(), CommandError> {
    let hardware = arguments.on.read()?;
    let pins = Pins::read(&arguments.pins)?;
    let unknown = |_: Width, _: usize| None;
    let mut question = Question {
        model: ModelSource::Example(arguments.model.clone()),
        size: arguments.program.size.given(),
        name: &arguments.model,
        hardware: &hardware,
        nodes: arguments.nodes,
        length: arguments.length as usize,
        tokens_per_step: arguments.tokens_per_step,
        pins,
        pure_bf16: arguments.pure_bf16,
        effort: Effort { plans: arguments.plans.max(1) },
        offload: if arguments.offload { OffloadUse::Tried } else { OffloadUse::IfNeeded },
        units: &unknown,
    };
    // Impossible questions are rejected before anything is built.
    question.require_machines()?;
    let shapes = probes(&question);
    let sizes = probe::of_model(&question.model, &question.size, arguments.program.bin.as_ref(), &shapes)?;
    let units = |width, sequences| sizes.units(width, sequences, arguments.length as usize).map(<[_]>::to_vec);
    question.name = &sizes.model;
    question.units = &units;
    let advice = search(&question)?;
    match arguments.json {
        true => say::line(json(&question, &advice)),
        false => say::line(answer(&question, &advice).trim_end()),
    }
    if let Some(folder) = &arguments.write {
        write_specs(&question, &advice, folder)?;
    }
    if let Some(path) = &arguments.memo {
        write(path, &memo(&question, &advice))?;
    }
    Ok(())
}

/// Writes the spec of each layout in the answer, for any command to use.
fn write_specs(question: &Question, advice: &Advice, folder: &Path) -> Result<(), CommandError> {
    std::fs::create_dir_all(folder).map_err(|source| CommandError::Advice { path: folder.to_owned(), source })?;
    for (i, pick) in advice.picks.iter().enumerate() {
        let path = folder.join(format!("best-{}.ron", i + 1));
        let text = pick.candidate.text(question, &comment(question, advice, pick));
        spec::parse(&text).map_err(|mistakes| CommandError::mistakes(&mistakes, &path, &text))?;
        write(&path, &text)?;
    }
    Ok(())
}

/// Writes a new file. An existing file is not overwritten, so that no changes in it are lost.
fn write(path: &Path, text: &str) -> Result<(), CommandError> {
    let failed = |source| CommandError::Advice { path: path.to_owned(), source };
    let mut file = File::create_new(path).map_err(failed)?;
    file.write_all(text.as_bytes()).map_err(failed)?;
    say::note(format_args!("wrote {}", path.display()));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn z0166_advice_that_cannot_be_written() {
        let folder = tempfile::tempdir().unwrap();
        let error = write(&folder.path().join("none/memo.md"), "x").unwrap_err().to_string();
        assert!(error.starts_with("error[Z0166]: cannot write ") && error.contains("none/memo.md"), "{error}");
        let memo = folder.path().join("memo.md");
        write(&memo, "x").unwrap();
        let again = write(&memo, "y").unwrap_err().to_string();
        assert!(again.starts_with("error[Z0166]: cannot write "), "{again}");
        assert_eq!(std::fs::read_to_string(&memo).unwrap(), "x", "the existing file is kept");
    }
}
