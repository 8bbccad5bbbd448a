//! Choice: which spec a model is built with, read and checked: the attribute's own options, or a file that they agree
//! with. Never judges a spec: `zero_plan::spec` does.

use std::fs;
use std::path::{Path, PathBuf};

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
    let named = options.spec.as_ref().map(|path| environment.package.join(path.value()));
    if let Some(file) = environment.spec.clone().or(named) {
        return from_file(&file, options, environment);
    }
    match parse_inline(&options.pairs()) {
        Ok(spec) => Ok(Choice { config: spec.config(), file: None }),
        Err(problems) => Err(problems.iter().map(|problem| options.mistake(problem)).collect()),
    }
}

/// The spec of a file, and that the attribute's other options agree with it.
fn from_file(file: &Path, options: &Options, environment: &Environment) -> Checked<Choice> {
    // As absolute as `include_str!` wants it, and without the `..` of a path from another directory.
    let file = file.canonicalize().unwrap_or_else(|_| file.to_owned());
    let shown = environment.shown(&file);
    let text = fs::read_to_string(&file).map_err(|error| {
        let problem = Diagnostic::new("Z0110", "spec", format!("the spec {shown} cannot be read: {error}"));
        let help = "the path of a spec is relative to the directory of the package's Cargo.toml";
        vec![Mistake::at(options.place(), &problem.help(help))]
    })?;
    let spec = parse(&text).map_err(|problems| {
        let mistakes = problems.iter().map(|problem| Mistake::in_spec(options.place(), problem, &shown, &text));
        mistakes.collect::<Vec<_>>()
    })?;
    let disagreements = disagreements(&spec, &text, &options.pairs()).into_iter().map(|mut problem| {
        if problem.code == "Z0109" {
            problem.label = format!("the spec is {shown}");
        }
        options.mistake(&problem)
    });
    let mistakes: Vec<_> = disagreements.collect();
    if mistakes.is_empty() { Ok(Choice { config: spec.config(), file: Some(file) }) } else { Err(mistakes) }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use proc_macro2::TokenStream;
    use quote::quote;

    use super::*;

    /// A package in a directory of its own, with the specs `three.ron` and `bad.ron`.
    fn package(name: &str) -> Environment {
        let package = std::env::temp_dir().join(format!("zero-macros-{}-{name}", std::process::id()));
        fs::create_dir_all(&package).unwrap();
        fs::write(package.join("three.ron"), "(zero: (stage: 3))").unwrap();
        fs::write(package.join("bad.ron"), "(zero: (stage: 4, prefech: 1))").unwrap();
        let package = package.canonicalize().unwrap();
        Environment { directory: package.clone(), package, spec: None, text: None }
    }

    fn chosen(options: TokenStream, environment: &Environment) -> Checked<Choice> {
        choose(&Options::parse(options).unwrap(), environment)
    }

    fn mistakes(options: TokenStream, environment: &Environment) -> Vec<String> {
        chosen(options, environment).unwrap_err().into_iter().map(|mistake| mistake.text).collect()
    }

    #[test]
    fn options_are_a_spec_of_their_own() {
        let environment = Environment { package: PathBuf::new(), directory: PathBuf::new(), spec: None, text: None };
        let choice = chosen(quote!(stage = 3, prefetch = 2, memory = MiB(1)), &environment).unwrap();
        assert_eq!((choice.config.stage, choice.config.prefetch), (3, 2));
        assert_eq!((choice.config.memory_bytes, choice.file), (Some(1 << 20), None));
        assert_eq!(mistakes(quote!(stage = 4, prefech = 1), &environment).len(), 2);
    }

    #[test]
    fn a_file_is_read_from_the_package_and_its_mistakes_are_all_shown() {
        let package = package("file");
        let choice = chosen(quote!(spec = "three.ron", stage = 3), &package).unwrap();
        assert_eq!((choice.config.stage, choice.file), (3, Some(package.package.join("three.ron"))));
        let found = mistakes(quote!(spec = "bad.ron"), &package);
        assert_eq!(found.len(), 2);
        assert!(found[0].contains("\n --> bad.ron:1:16\n"), "{}", found[0]);
        assert!(mistakes(quote!(spec = "none.ron"), &package)[0].starts_with("[Z0110] the spec "));
        fs::remove_dir_all(package.package).unwrap();
    }

    #[test]
    fn the_environment_takes_the_place_of_the_file_and_options_must_agree_with_it() {
        let mut package = package("environment");
        package.spec = Some(package.package.join("three.ron"));
        for options in [quote!(spec = "bad.ron"), quote!(stage = 3), quote!()] {
            assert_eq!(chosen(options, &package).unwrap().config.stage, 3);
        }
        let found = mistakes(quote!(stage = 2), &package);
        assert!(found[0].starts_with("[Z0109] ") && found[0].contains("the spec is three.ron"), "{found:?}");
        fs::remove_dir_all(package.package).unwrap();
    }
}
