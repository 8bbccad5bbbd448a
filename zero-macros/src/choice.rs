//! Choice: which spec a model is built with, read and checked: the attribute's own options, or a file that they agree
//! with. Never judges a spec: `zero_plan::spec` does.

use std::fs;
use std::path::{Path, PathBuf};

use quote::ToTokens;
use syn::LitStr;
use zero_plan::Config;
use zero_plan::diagnostic::Diagnostic;
use zero_plan::spec::{disagreements, parse, parse_inline};

use crate::attr::Options;
use crate::environment::Environment;
use crate::mistake::{Checked, Mistake};

/// A spec that holds no mistake.
#[derive(Debug)]
pub struct Choice {
    /// What it says.
    pub config: Config,
    /// The file that says so.
    pub file: Option<PathBuf>,
}

/// The spec of `ZERO_SPEC`, else of the attribute's `spec`, else of its other options.
pub fn choose(options: &Options, environment: &Environment) -> Checked<Choice> {
    let named = options.spec.as_ref().map(LitStr::value);
    match (&environment.spec, named) {
        (Some(file), _) => from_file(file, None, options, environment),
        (None, Some(path)) => from_file(&environment.package.join(path), options.spec.as_ref(), options, environment),
        (None, None) => match parse_inline(&options.pairs()) {
            Ok(spec) => Ok(Choice { config: spec.config(), file: None }),
            Err(problems) => Err(problems.iter().map(|problem| options.mistake(problem)).collect()),
        },
    }
}

/// The spec of a file that `place` names.
fn from_file(file: &Path, place: Option<&LitStr>, options: &Options, environment: &Environment) -> Checked<Choice> {
    // The compiler looks for a relative path beside the source, and shows `..` as it is.
    let file = file.canonicalize().unwrap_or_else(|_| file.to_owned());
    let shown = environment.shown(&file);
    let text = fs::read_to_string(&file).map_err(|error| vec![unreadable(place, &shown, &error)])?;
    let spec = parse(&text).map_err(|problems| {
        let mistakes = problems.iter().map(|problem| Mistake::in_spec(place, problem, &shown, &text));
        mistakes.collect::<Vec<_>>()
    })?;
    let mistakes: Vec<_> = disagreements(&spec, &text, &options.pairs())
        .into_iter()
        .map(|mut problem| {
            if problem.code == "Z0109" {
                problem.label = format!("the spec is {shown}");
            }
            options.mistake(&problem)
        })
        .collect();
    if mistakes.is_empty() { Ok(Choice { config: spec.config(), file: Some(file) }) } else { Err(mistakes) }
}

fn unreadable(place: impl ToTokens, shown: &str, error: &std::io::Error) -> Mistake {
    let problem = Diagnostic::new("Z0110", "spec", format!("the spec {shown} cannot be read: {error}"));
    Mistake::at(place, &problem.help("the path is relative to the directory of the package's Cargo.toml"))
}
