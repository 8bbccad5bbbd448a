//! Choice: the spec that a model is built with, read and checked: the attribute's own options, or a file with which they
//! agree. Never judges a spec: `zero_plan::spec` does.

use std::fs;
use std::path::{Path, PathBuf};

use proc_macro2::TokenStream;
use quote::ToTokens;
use syn::ext::IdentExt;
use zero_plan::diagnostic::{Diagnostic, line_column};
use zero_plan::spec::{Spec, decode, disagreements, locate, other_size, parse, parse_inline, unknown_fields};
use zero_plan::{Config, NAMED};

use crate::ast::ModelStruct;
use crate::attr::AttributeOptions;
use crate::environment::Environment;
use crate::mistake::{Checked, Mistake};

/// A spec without mistakes.
#[derive(Debug)]
pub struct Choice {
    /// The configuration that the spec describes.
    pub config: Config,
    /// The spec itself.
    pub spec: Spec,
    /// The path of the user's own device, which replaces the spec's device.
    pub device: Option<TokenStream>,
    /// The file that the spec was read from.
    pub file: Option<SpecFile>,
    /// The keys that errors of constants name, with the places at which they are given.
    pub given: Vec<ChosenKey>,
}

/// A key that is given.
#[derive(Debug)]
pub struct ChosenKey {
    /// Its path.
    pub path: &'static str,
    /// Its value, as written.
    pub value: String,
    /// Line and column of the key in the file; both are 0 for a key of the attribute.
    pub place: (usize, usize),
}

/// A spec's file.
#[derive(Debug)]
pub struct SpecFile {
    /// Its path.
    pub path: PathBuf,
    /// Its name in messages.
    pub shown: String,
    /// Its content.
    pub text: String,
}

/// The spec from `ZERO_SPEC`; otherwise from the attribute's `spec`; otherwise from its other options.
pub fn choose(options: &AttributeOptions, environment: &Environment) -> Checked<Choice> {
    let named = options.spec.as_ref().map(|path| environment.package.join(path.value()));
    if let Some(file) = environment.spec.clone().or(named) {
        return from_file(&file, options, environment);
    }
    match parse_inline(&options.pairs()) {
        Ok(spec) => {
            let (device, given) =
                (options.device.as_ref().map(ToTokens::to_token_stream), given_inline(&options.pairs()));
            Ok(Choice { config: environment.config(&spec), spec, device, file: None, given })
        }
        Err(problems) => Err(problems.iter().map(|problem| options.mistake(problem)).collect()),
    }
}

/// Reads the spec of a file, and checks that the attribute's other options agree with it.
fn from_file(path: &Path, options: &AttributeOptions, environment: &Environment) -> Checked<Choice> {
    // Absolute, because `include_str!` needs it, and without the `..` of a path from another directory.
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let shown = environment.shown(&path);
    let bytes = fs::read(&path).map_err(|error| {
        let problem = Diagnostic::new("Z0110", "spec", format!("the spec {shown} cannot be read: {error}"));
        let help = "the path of a spec is relative to the directory of the package's Cargo.toml";
        vec![Mistake::at(options.place(), &problem.help(help))]
    })?;
    let text = decode(&bytes).map_err(|problem| vec![Mistake::in_spec(options.place(), &problem, &shown, "")])?;
    let file = SpecFile { text: text.to_owned(), path, shown };
    let spec = parse(&file.text).map_err(|problems| file.mistakes(options, &problems))?;
    if let Some(problem) = other_size(&spec, &file.text, &environment.size) {
        return Err(file.mistakes(options, &[problem]));
    }
    let disagreements = disagreements(&spec, &file.text, &options.pairs()).into_iter().map(|mut problem| {
        if problem.code == "Z0109" {
            problem.label = format!("the spec is {}", file.shown);
        }
        options.mistake(&problem)
    });
    let mistakes: Vec<_> = disagreements.collect();
    if !mistakes.is_empty() {
        return Err(mistakes);
    }
    let (device, given) = (options.device.as_ref().map(ToTokens::to_token_stream), given_in(&file.text));
    Ok(Choice { config: environment.config(&spec), spec, device, file: Some(file), given })
}

/// The keys among these that a spec's text sets.
fn given_in(text: &str) -> Vec<ChosenKey> {
    let given = |path: &&'static str| {
        let spans = locate(text, path)?;
        let value = text[spans.value].split_whitespace().collect::<Vec<_>>().join(" ");
        Some(ChosenKey { path, value, place: line_column(text, spans.key.start) })
    };
    NAMED.iter().filter_map(given).collect()
}

/// The keys among these that an attribute's options set.
fn given_inline(options: &[(String, String)]) -> Vec<ChosenKey> {
    let given = |path: &&'static str| {
        let (name, _) = zero_plan::spec::options().find(|(_, key)| key.path == *path)?;
        let (_, value) = options.iter().find(|(option, _)| option == name)?;
        Some(ChosenKey { path, value: value.replace(" (", "("), place: (0, 0) })
    };
    NAMED.iter().filter_map(given).collect()
}

impl SpecFile {
    /// Mistakes in the file, placed at the tokens that choose it.
    fn mistakes(&self, options: &AttributeOptions, problems: &[Diagnostic]) -> Vec<Mistake> {
        let in_spec = |problem| Mistake::in_spec(options.place(), problem, &self.shown, &self.text);
        problems.iter().map(in_spec).collect()
    }
}

impl Choice {
    /// Checks that the model has the fields that the spec names.
    pub fn names_fields_of(&self, model: &ModelStruct, options: &AttributeOptions) -> Checked<()> {
        let fields: Vec<_> = model.fields.iter().map(|field| field.name.unraw().to_string()).collect();
        let text = self.file.as_ref().map(|file| file.text.as_str());
        let problems = unknown_fields(&self.spec, text, &fields);
        let mistakes = match &self.file {
            Some(file) => file.mistakes(options, &problems),
            None => problems.iter().map(|problem| options.mistake(problem)).collect(),
        };
        if mistakes.is_empty() { Ok(()) } else { Err(mistakes) }
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use quote::quote;
    use zero_plan::spec::ModelSize;

    use super::*;

    /// A package in its own directory, with the specs `three.ron` and `bad.ron`.
    fn package(name: &str) -> Environment {
        let package = std::env::temp_dir().join(format!("zero-macros-{}-{name}", std::process::id()));
        fs::create_dir_all(&package).unwrap();
        fs::write(package.join("three.ron"), "(zero: (stage: 3))").unwrap();
        fs::write(package.join("bad.ron"), "(zero: (stage: 4, prefech: 1))").unwrap();
        fs::write(package.join("fields.ron"), "(zero: (stage: 1), recompute: Fields([\"block\", \"head\"]))").unwrap();
        let package = package.canonicalize().unwrap();
        Environment {
            directory: package.clone(),
            package,
            spec: None,
            has_text: false,
            serves: false,
            size: ModelSize::default().variables(),
            shapes: vec![],
        }
    }

    fn chosen(options: TokenStream, environment: &Environment) -> Checked<Choice> {
        choose(&AttributeOptions::parse(options).unwrap(), environment)
    }

    fn mistakes(options: TokenStream, environment: &Environment) -> Vec<String> {
        chosen(options, environment).unwrap_err().into_iter().map(|mistake| mistake.text).collect()
    }

    #[test]
    fn a_worker_has_constants_of_its_own() {
        let environment = Environment { serves: true, ..package("worker") };
        for options in [quote!(spec = "three.ron"), quote!(stage = 3)] {
            let choice = chosen(options, &environment).unwrap();
            assert!(choice.config.serves() && choice.config == choice.spec.serving());
        }
    }

    #[test]
    fn options_are_a_spec_of_their_own() {
        let environment = Environment {
            package: PathBuf::new(),
            directory: PathBuf::new(),
            spec: None,
            has_text: false,
            serves: false,
            size: ModelSize::default().variables(),
            shapes: vec![],
        };
        let choice = chosen(quote!(stage = 3, prefetch = 2, memory = MiB(1)), &environment).unwrap();
        assert_eq!((choice.config.stage, choice.config.prefetch), (3, 2));
        assert_eq!((choice.config.memory_bytes, choice.file.is_none()), (Some(1 << 20), true));
        let given: Vec<_> = choice.given.iter().map(|given| (given.path, &*given.value, given.place)).collect();
        let expected = [("zero.stage", "3"), ("zero.prefetch", "2"), ("memory", "MiB(1)")];
        assert_eq!(given, expected.map(|(path, value)| (path, value, (0, 0))));
        assert_eq!(mistakes(quote!(stage = 4, prefech = 1), &environment).len(), 2);
    }

    #[test]
    fn a_file_is_read_from_the_package_and_its_mistakes_are_all_shown() {
        let package = package("file");
        let choice = chosen(quote!(spec = "three.ron", stage = 3), &package).unwrap();
        assert_eq!((choice.config.stage, choice.file.unwrap().path), (3, package.package.join("three.ron")));
        let choice = chosen(quote!(spec = "three.ron"), &package).unwrap();
        let given: Vec<_> = choice.given.iter().map(|given| (given.path, &*given.value, given.place)).collect();
        assert_eq!(given, [("zero.stage", "3", (1, 9))]);
        let found = mistakes(quote!(spec = "bad.ron"), &package);
        assert_eq!(found.len(), 2);
        assert!(found[0].contains("\n --> bad.ron:1:16\n"), "{}", found[0]);
        assert!(mistakes(quote!(spec = "none.ron"), &package)[0].starts_with("[Z0110] the spec "));
        fs::write(package.package.join("marked.ron"), "\u{feff}(zero: (stage: 2))").unwrap();
        assert_eq!(chosen(quote!(spec = "marked.ron", stage = 2), &package).unwrap().config.stage, 2);
        fs::write(package.package.join("latin.ron"), b"(zero: (stage: 2)) // caf\xE9").unwrap();
        let found = mistakes(quote!(spec = "latin.ron"), &package);
        let start =
            "[Z0118] the spec is not UTF-8 text: the byte 0xE9 at 1:26 is not part of a character\n--> latin.ron\n";
        assert!(found.len() == 1 && found[0].starts_with(start), "{found:#?}");
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

    /// Any other option that differs from the file would be a Z0109.
    #[test]
    fn a_device_of_ones_own_takes_the_place_of_the_spec_s() {
        let package = package("device");
        for spec in ["three.ron", "built_in.ron"] {
            fs::write(package.package.join("built_in.ron"), "(zero: (stage: 3), device: Cpu)").unwrap();
            let choice = chosen(quote!(spec = #spec, device = crate::naive::Naive), &package).unwrap();
            let own = quote!(crate::naive::Naive).to_string();
            assert_eq!((choice.device.unwrap().to_string(), choice.config.stage), (own, 3));
        }
        assert!(chosen(quote!(spec = "three.ron", device = Cpu), &package).unwrap().device.is_none());
        assert!(chosen(quote!(stage = 3, device = Naive), &package).unwrap().device.is_some());
        fs::remove_dir_all(package.package).unwrap();
    }

    #[test]
    fn z0137_spec_in_another_size_than_the_build() {
        let mut package = package("size");
        let text = "(model: Example(\"a\", size: \"8B\"), zero: (stage: 1))";
        fs::write(package.package.join("sized.ron"), text).unwrap();
        let found = mistakes(quote!(spec = "sized.ron"), &package);
        let start = "[Z0137] the model is built in another size than that of its spec\n --> sized.ron:1:9\n";
        assert!(found.len() == 1 && found[0].starts_with(start), "{found:#?}");
        package.size = ModelSize { size: Some("8B".to_owned()), ..ModelSize::default() }.variables();
        for spec in ["sized.ron", "three.ron"] {
            assert!(chosen(quote!(spec = #spec), &package).is_ok(), "{spec}");
        }
        fs::remove_dir_all(package.package).unwrap();
    }

    #[test]
    fn z0116_unknown_field() {
        let package = package("fields");
        let item = syn::parse_quote! { struct Gpt { embed: E, r#blocks: [B; 2], head: H } };
        let model = crate::valid::model(&item).unwrap();
        let unknown = |tokens: TokenStream| {
            let options = AttributeOptions::parse(tokens).unwrap();
            let fit = choose(&options, &package).unwrap().names_fields_of(&model, &options);
            fit.err().unwrap_or_default().into_iter().map(|mistake| mistake.text).collect::<Vec<_>>()
        };
        let in_file = unknown(quote!(spec = "fields.ron"));
        assert_eq!(in_file.len(), 1, "{in_file:?}");
        let start =
            "[Z0116] `recompute` names the field `block`, which the model does not have\n --> fields.ron:1:39\n";
        assert!(in_file[0].starts_with(start) && in_file[0].contains("did you mean `blocks`?"), "{}", in_file[0]);
        let inline = unknown(quote!(stage = 1, recompute = Fields(["blocks", "tail"])));
        assert_eq!(inline.len(), 1, "{inline:?}");
        assert!(
            inline[0].contains("\n = help: the fields of the model are `embed`, `blocks`, `head`"),
            "{}",
            inline[0]
        );
        assert!(unknown(quote!(stage = 1, recompute = Fields(["embed"]))).is_empty());
        fs::remove_dir_all(package.package).unwrap();
    }
}
