//! Expanded: the step of a program as Rust, and its place below `target/zero/`. Never builds.

use std::path::Path;

use zero_plan::PlanBuf;
use zero_study::expand::Expanded;

use crate::binary::folder;
use crate::error::CommandError;
use crate::program::write_if_changed;
use crate::request::Request;
use crate::workspace::Workspace;

/// The step of a plan as Rust. The name of its spec is in the first line.
pub fn text(plan: &PlanBuf, spec: &str) -> String {
    plan.with(|plan| Expanded { plan, spec }.to_string())
}

/// Writes the step of a program that was built to its place below `target/zero/expanded/`.
pub fn keep(request: &Request, plan: &PlanBuf) -> Result<(), CommandError> {
    let target = Workspace::find()?.target;
    let target = target.canonicalize().unwrap_or(target);
    let spec = request.spec.canonicalize().unwrap_or(request.spec.clone());
    let chosen = [&request.program.bin, &request.program.size].into_iter().flatten();
    let name = chosen.fold(spec.file_stem().unwrap_or_default().to_owned(), |mut name, chosen| {
        name.push(format!("-{chosen}"));
        name
    });
    let path = folder(&target, "expanded", &spec).with_file_name(name).with_added_extension("rs");
    let parent = path.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(parent).map_err(|source| CommandError::Write { path: parent.to_owned(), source })?;
    write_if_changed(&path, text(plan, &request.spec.display().to_string()).as_bytes())
}
