//! Import: reads a configuration of DeepSpeed or accelerate and writes the equivalent spec, which `zero-study` derives.
//! Never builds.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Args;
use clap::builder::RangedU64ValueParser;
use clap::value_parser;
use zero_plan::spec::{ModelSource, decode};
use zero_study::import::{ImportOptions, ImportedSpec, import as to_spec};

use crate::error::CommandError;
use crate::say;

/// The file to import, and the values that it does not have.
#[derive(Args, Debug, PartialEq)]
pub struct ImportArguments {
    /// DeepSpeed's JSON, or the YAML that `accelerate config` writes
    pub file: PathBuf,
    /// A new file for the spec; without it, the spec is printed
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// The example that the spec trains
    #[arg(long, value_name = "EXAMPLE")]
    pub model: Option<String>,
    /// The number of all ranks
    #[arg(long, value_name = "N", value_parser = ranks())]
    pub ranks: Option<u32>,
    /// The number of nodes
    #[arg(long, value_name = "N", value_parser = ranks())]
    pub nodes: Option<u32>,
    /// Sequences in a micro-batch of a rank
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..))]
    pub sequences: Option<u32>,
    /// Tokens in a sequence
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..))]
    pub length: Option<u32>,
    /// Micro-batches of a step
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..=zero_plan::bounds::MICRO_BATCHES_MAX as i64))]
    pub micro_batches: Option<u32>,
}

fn ranks() -> RangedU64ValueParser<u32> {
    RangedU64ValueParser::new().range(1..=zero_plan::spec::RANKS_MAX.into())
}

/// Writes the spec, and lists on standard error the settings that it could not take over unchanged.
///
/// # Errors
/// Z0120 and Z0125 for files; Z0118 if the file is not text; Z0154 to Z0157 for mistakes in it.
pub fn import(arguments: &ImportArguments) -> Result<(), CommandError> {
    let ImportArguments { file, out, model, ranks, nodes, sequences, length, micro_batches } = arguments;
    let (ranks, nodes, sequences, length) = (*ranks, *nodes, *sequences, *length);
    let model = model.clone().map(ModelSource::Example);
    let options = ImportOptions { ranks, nodes, sequences, length, micro_batches: *micro_batches, model };
    let bytes =
        std::fs::read(file).map_err(|source| CommandError::UnreadableConfiguration { path: file.clone(), source })?;
    let text = decode(&bytes).map_err(|mistake| CommandError::mistakes(&[*mistake], file, ""))?;
    let imported = to_spec(text, &options).map_err(|mistakes| CommandError::mistakes(&mistakes, file, text))?;
    let name = file.file_name().unwrap_or(file.as_os_str()).to_string_lossy();
    let spec = imported.file(&name);
    match out {
        Some(path) => write_new(path, &spec)?,
        None => say::line(spec.trim_end()),
    }
    tell(&imported);
    Ok(())
}

fn tell(imported: &ImportedSpec) {
    for line in imported.remarks() {
        say::note(line);
    }
}

/// Writes a file that does not exist yet.
pub fn write_new(path: &Path, text: &str) -> Result<(), CommandError> {
    let write = || File::create_new(path)?.write_all(text.as_bytes());
    write().map_err(|source| CommandError::WriteNew { path: path.to_owned(), source })
}
