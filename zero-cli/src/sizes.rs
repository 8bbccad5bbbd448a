//! Sizes: what a model's program says of its units, so that plans of it can be made here: under its spec, or under other
//! shapes of a micro-batch. Never makes a plan.

use std::path::{Path, PathBuf};

use zero_plan::spec::{self, ModelSource, Spec};
use zero_plan::{PlanBuf, Sizes, Width, shape_text};

use crate::arguments::Request;
use crate::binary::Binary;
use crate::build::{build, build_probe, write_if_changed};
use crate::error::CommandError;
use crate::workspace::Workspace;

/// A spec, and the sizes of its model under it.
pub struct SizedSpec {
    /// Where the spec lies.
    pub path: PathBuf,
    /// What it says.
    pub spec: Spec,
    /// The text that it was read from.
    pub text: String,
    /// The sizes.
    pub sizes: Sizes,
}

impl SizedSpec {
    /// The plan that the program runs.
    pub fn plan(&self) -> PlanBuf {
        PlanBuf::new(&self.sizes.model, self.spec.config(), &self.sizes.probes[0].units)
    }
}

/// Builds the program of a spec, and asks it. It proves nothing of the plan.
pub fn of_spec(request: &Request) -> Result<SizedSpec, CommandError> {
    sized(request, &build_probe(request, None)?)
}

/// The same, with a program whose plan is proven, so that it can be run.
pub fn binary_of_spec(request: &Request) -> Result<(Binary, SizedSpec), CommandError> {
    let binary = build(request)?;
    let sized = sized(request, &binary)?;
    Ok((binary, sized))
}

fn sized(request: &Request, binary: &Binary) -> Result<SizedSpec, CommandError> {
    let sizes = ask(binary)?;
    // What was built, which another process may have changed since.
    let text = sizes.spec.clone();
    let spec = spec::parse(&text).map_err(|errors| CommandError::mistakes(&errors, &request.spec, &text))?;
    Ok(SizedSpec { path: request.spec.clone(), spec, text, sizes })
}

/// The sizes of a model on micro-batches of other shapes: width, sequences, and tokens of a sequence. `request` names a file
/// that is written for it, and perhaps the binary and the size.
pub fn of_model(
    model: &ModelSource,
    request: &ModelRequest,
    shapes: &[(Width, usize, usize)],
) -> Result<Sizes, CommandError> {
    let own = Workspace::find()?.target.join("zero").join("build");
    std::fs::create_dir_all(&own).map_err(|source| CommandError::Write { path: own.clone(), source })?;
    let path = own.join("probe.ron");
    let length = shapes.first().map_or(1, |&(_, _, length)| length);
    let text = format!("(model: {model:?}, zero: (stage: 0), batch: (sequences: 1, length: {length}))\n");
    write_if_changed(&path, text.as_bytes())?;
    let shapes: Vec<String> = shapes.iter().map(|&(width, n, length)| shape_text(width, n, length)).collect();
    let spec = Request { spec: path, bin: request.bin.clone(), size: request.size.clone() };
    ask(&build_probe(&spec, Some(&shapes.join(",")))?)
}

/// Which program of a model is meant.
#[derive(clap::Args, Clone, Debug, PartialEq)]
pub struct ModelRequest {
    /// The binary of the model's package, where it has several
    #[arg(long, value_name = "NAME")]
    pub bin: Option<String>,
    /// The size of the model, where it comes in several; without it, the smallest
    #[arg(long, value_name = "NAME")]
    pub size: Option<String>,
}

fn ask(binary: &Binary) -> Result<Sizes, CommandError> {
    let output = binary.command().arg("--sizes").output().map_err(|source| binary.not_started(source))?;
    let read = serde_json::from_slice(&output.stdout);
    read.map_err(|source| CommandError::NoSizes { binary: Path::new(binary.path()).to_owned(), source })
}
