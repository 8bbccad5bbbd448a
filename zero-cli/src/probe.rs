//! Probe: the sizes of a model's units on micro-batches of any shape, as its program reports them without a spec. Never
//! computes a plan.

use std::path::Path;

use zero_plan::spec::{ModelSize, ModelSource};
use zero_plan::{Sizes, Width, shape_text};

use crate::binary::Binary;
use crate::error::CommandError;
use crate::program::{program, write_if_changed};
use crate::request::{ModelRequest, Purpose, Request};
use crate::workspace::Workspace;

/// The sizes of a model on micro-batches of some shapes: width, sequences, and tokens of a sequence.
pub fn of_model(
    model: &ModelSource,
    size: &ModelSize,
    bin: Option<&String>,
    shapes: &[(Width, usize, usize)],
) -> Result<Sizes, CommandError> {
    let workspace = Workspace::find()?;
    // A mistake is reported in the user's argument, not in the file below.
    workspace.program(model, bin.map(String::as_str), Path::new("--model"))?;
    let own = workspace.target.join("zero").join("build");
    std::fs::create_dir_all(&own).map_err(|source| CommandError::Write { path: own.clone(), source })?;
    let path = own.join("probe.ron");
    let length = shapes.first().map_or(1, |&(_, _, length)| length);
    let text = format!("(model: {}, zero: (stage: 0), batch: (sequences: 1, length: {length}))\n", size.entry(model));
    write_if_changed(&path, text.as_bytes())?;
    let shapes: Vec<String> = shapes.iter().map(|&(width, n, length)| shape_text(width, n, length)).collect();
    let request = Request { spec: path, program: ModelRequest { bin: bin.cloned(), ..ModelRequest::default() } };
    // Without a budget, no budget is exceeded.
    let binary = program(&request, Some(&shapes.join(",")), Purpose::Questions)?;
    let binary = binary.ok_or_else(|| CommandError::not_built(&request.spec))?;
    ask(&binary)
}

/// Asks a program for its sizes.
pub fn ask(binary: &Binary) -> Result<Sizes, CommandError> {
    let output = binary.command().arg("--sizes").output().map_err(|source| binary.not_started(source))?;
    let read = serde_json::from_slice(&output.stdout);
    read.map_err(|source| CommandError::NoSizes { binary: Path::new(binary.path()).to_owned(), source })
}
