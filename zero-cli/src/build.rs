//! Build: a program for a spec, with its plan proven. If a rank needs more than the spec's budget, lists layouts that fit.

use std::path::Path;
use std::process::Stdio;

use crate::binary::Binary;
use crate::error::CommandError;
use crate::expanded;
use crate::offers::offers;
use crate::program::{program, read};
use crate::request::{Purpose, Request};
use crate::sizes::{self, SizedSpec};

/// The program of a spec, whose plan is proven. If it is to train, its step is written as code, too.
pub fn build(request: &Request, purpose: Purpose) -> Result<Binary, CommandError> {
    match purpose {
        Purpose::Training => Ok(build_with_sizes(request)?.0),
        Purpose::Serving | Purpose::Questions => build_proven(request, purpose),
    }
}

/// The program of a spec to train, and the sizes of its model.
pub fn build_with_sizes(request: &Request) -> Result<(Binary, SizedSpec), CommandError> {
    let binary = build_proven(request, Purpose::Training)?;
    let sized = sizes::of_binary(request, &binary)?;
    expanded::keep(request, &sized)?;
    Ok((binary, sized))
}

fn build_proven(request: &Request, purpose: Purpose) -> Result<Binary, CommandError> {
    let binary = build_unproven(request, purpose)?;
    prove(&binary, &request.spec)?;
    Ok(binary)
}

/// The sizes of a spec's model, as its program reports them. The plan is not proven.
pub fn sizes_of_spec(request: &Request) -> Result<SizedSpec, CommandError> {
    sizes::of_binary(request, &build_unproven(request, Purpose::Questions)?)
}

/// The program of a spec without a proof of its plan, because a proof takes long for thousands of ranks: for questions about
/// its sizes.
pub fn build_unproven(request: &Request, purpose: Purpose) -> Result<Binary, CommandError> {
    match program(request, None, purpose)? {
        Some(binary) => Ok(binary),
        None => {
            let offers = read(&request.spec).map(|spec| offers(&spec, &request.spec, &request.program));
            Err(CommandError::Build { spec: request.spec.clone(), offers: offers.unwrap_or_default() })
        }
    }
}

/// Lets the binary prove its plan over the ops of all ranks, so that the plan of a successful build is sound.
fn prove(binary: &Binary, spec: &Path) -> Result<(), CommandError> {
    let status = binary.command().arg("--prove").stdout(Stdio::null()).status();
    match status.map_err(|source| binary.not_started(source))?.success() {
        true => Ok(()),
        false => Err(CommandError::Unproven { spec: spec.to_owned() }),
    }
}
