//! Expanded: the step of a program as Rust, and its place below `target/zero/`. Never builds.

use std::path::Path;

use zero_plan::PlanBuf;
use zero_study::expand::Expanded;

use crate::binary::folder;
use crate::error::CommandError;
use crate::program::write_if_changed;
use crate::request::{ModelRequest, Request, size_suffix};
use crate::sizes::SizedSpec;
use crate::workspace::Workspace;

/// The step of a plan as Rust. The name of its spec is in the first line.
pub fn text(plan: &PlanBuf, spec: &str) -> String {
    plan.with(|plan| Expanded { plan, spec }.to_string())
}

/// Writes the step of a program that was built to its place below `target/zero/expanded/`.
pub fn keep(request: &Request, sized: &SizedSpec) -> Result<(), CommandError> {
    let target = Workspace::find()?.target;
    let target = target.canonicalize().unwrap_or(target);
    let spec = request.spec.canonicalize().unwrap_or(request.spec.clone());
    let ModelRequest { bin, size } = &request.program;
    let bin = bin.as_ref().map_or(String::new(), |bin| format!("-{bin}"));
    let mut name = spec.file_stem().unwrap_or_default().to_owned();
    name.push(bin + &size_suffix(&size.agreed(&sized.spec, &request.spec)?));
    let path = folder(&target, "expanded", &spec).with_file_name(name).with_added_extension("rs");
    let parent = path.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(parent).map_err(|source| CommandError::Write { path: parent.to_owned(), source })?;
    write_if_changed(&path, text(&sized.plan(), &request.spec.display().to_string()).as_bytes())
}
