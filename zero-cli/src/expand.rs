//! Expand: prints the step of a spec as Rust, or writes it to a file. Never trains.

use std::path::PathBuf;

use clap::Args;

use crate::error::CommandError;
use crate::request::Request;
use crate::{build, expanded, say};

/// Which step, and where to.
#[derive(Args, Debug, PartialEq)]
pub struct ExpandArguments {
    #[command(flatten)]
    pub request: Request,
    /// Write it to this file instead of standard output
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
}

/// Prints or writes it.
pub fn expand(arguments: &ExpandArguments) -> Result<(), CommandError> {
    let spec = &arguments.request.spec;
    let text = expanded::text(&build::sizes_of_spec(&arguments.request)?.plan(), &spec.display().to_string());
    match &arguments.out {
        Some(path) => std::fs::write(path, text).map_err(|source| CommandError::Out { path: path.clone(), source })?,
        None => say::line(text.trim_end()),
    }
    Ok(())
}
