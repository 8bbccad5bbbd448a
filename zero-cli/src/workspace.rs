//! Workspace: cargo's description of the workspace around the current directory, and the program that a spec names. Never
//! builds.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;
use zero_plan::spec::ModelSource;

use crate::error::CommandError;

/// The cargo that runs this command or, if no cargo does, the cargo on the path.
pub fn cargo() -> Command {
    Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

/// The output of `cargo metadata`.
fn metadata(arguments: &[&str]) -> Result<Output, CommandError> {
    let mut command = cargo();
    command.args(["metadata", "--format-version", "1"]).args(arguments);
    command.output().map_err(|source| CommandError::Cargo { source })
}

fn read(output: &Output) -> Result<Value, CommandError> {
    serde_json::from_slice(&output.stdout).map_err(|source| CommandError::Cargo { source: source.into() })
}

/// The cargo workspace around the current directory.
pub struct Workspace {
    /// The directory of its manifest.
    pub root: PathBuf,
    /// The directory in which cargo builds.
    pub target: PathBuf,
    packages: Vec<Package>,
}

struct Package {
    /// Cargo's id of the package, because a dependency may have the same `name`.
    id: String,
    name: String,
    manifest: String,
    default_run: Option<String>,
    binaries: Vec<String>,
    examples: Vec<String>,
}

/// The program that cargo is asked to build.
#[derive(Debug, PartialEq)]
pub struct Program {
    /// The package, as cargo identifies it.
    pub package: String,
    /// `--bin` or `--example`.
    pub kind: &'static str,
    /// Its name.
    pub name: String,
}

impl Workspace {
    /// Asks cargo for the workspace.
    pub fn find() -> Result<Self, CommandError> {
        let output = metadata(&["--no-deps"])?;
        if !output.status.success() {
            let message = String::from_utf8_lossy(&output.stderr).into_owned();
            let here = std::env::current_dir().unwrap_or_default();
            let has_manifest = here.ancestors().any(|directory| directory.join("Cargo.toml").exists());
            return Err(if has_manifest {
                CommandError::BadWorkspace { message }
            } else {
                CommandError::NoWorkspace { message }
            });
        }
        Ok(Self::of(&read(&output)?))
    }

    /// The manifest of the package `name`, on which the package of a program depends if a feature is on; none if it does
    /// not.
    pub fn manifest_below(
        &self,
        program: &Program,
        name: &str,
        feature: &str,
    ) -> Result<Option<PathBuf>, CommandError> {
        let own = self.packages.iter().find(|package| package.id == program.package).map(|package| &package.manifest);
        let own = own.map_or("Cargo.toml", String::as_str);
        let platform = ["--filter-platform", "host-tuple"];
        let output = metadata(&[&["--manifest-path", own, "--features", feature], &platform[..]].concat())?;
        if !output.status.success() {
            return Err(CommandError::BadWorkspace { message: String::from_utf8_lossy(&output.stderr).into_owned() });
        }
        let metadata = read(&output)?;
        let found = list(&metadata["packages"]).iter().find(|package| package["name"] == name);
        Ok(found.map(|package| text(&package["manifest_path"]).into()))
    }

    fn of(metadata: &Value) -> Self {
        let packages = list(&metadata["packages"]).iter().map(|package| Package {
            id: text(&package["id"]),
            name: text(&package["name"]),
            manifest: text(&package["manifest_path"]),
            default_run: package["default_run"].as_str().map(str::to_owned),
            binaries: programs(package, "bin"),
            examples: programs(package, "example"),
        });
        Self {
            root: text(&metadata["workspace_root"]).into(),
            target: text(&metadata["target_directory"]).into(),
            packages: packages.collect(),
        }
    }

    /// The program that the `model` of the spec at `path` names and, if given, the `bin` of the command line.
    pub fn program(&self, model: &ModelSource, bin: Option<&str>, path: &Path) -> Result<Program, CommandError> {
        let name = match model {
            ModelSource::Example(name) | ModelSource::Package(name) => name,
        };
        let owners = self.packages.iter().filter(|package| {
            let has_example = package.examples.contains(name);
            matches!(model, ModelSource::Example(_)) && bin.is_none() && has_example
        });
        match owners.collect::<Vec<_>>()[..] {
            [owner] => Ok(Program { package: owner.id.clone(), kind: "--example", name: name.clone() }),
            [] => self.binary(name, bin, path),
            ref several => {
                let packages = several.iter().map(|package| package.name.clone()).collect();
                Err(CommandError::SeveralExamples { example: name.clone(), packages })
            }
        }
    }

    /// A binary of the package `name`.
    fn binary(&self, name: &str, bin: Option<&str>, path: &Path) -> Result<Program, CommandError> {
        let package = self.packages.iter().find(|package| package.name == name && !package.binaries.is_empty());
        let package = package.ok_or_else(|| CommandError::UnknownModel {
            spec: path.to_owned(),
            model: name.to_owned(),
            workspace: self.root.display().to_string(),
            candidates: self.models(),
        })?;
        let binaries = || package.binaries.clone();
        let chosen = match (bin, &package.binaries[..]) {
            (Some(bin), all) if all.iter().any(|it| it == bin) => bin,
            (Some(bin), _) => {
                return Err(CommandError::UnknownBinary {
                    model: name.to_owned(),
                    bin: bin.to_owned(),
                    binaries: binaries(),
                });
            }
            (None, [only]) => only,
            (None, all) => match &package.default_run {
                Some(default) => default,
                None if all.iter().any(|it| it == name) => name,
                None => return Err(CommandError::SeveralBinaries { model: name.to_owned(), binaries: binaries() }),
            },
        };
        Ok(Program { package: package.id.clone(), kind: "--bin", name: chosen.to_owned() })
    }

    /// The models that a spec can name.
    fn models(&self) -> Vec<String> {
        let with_binary = self.packages.iter().filter(|package| !package.binaries.is_empty());
        let examples = self.packages.iter().flat_map(|package| &package.examples);
        with_binary.map(|package| &package.name).chain(examples).cloned().collect()
    }
}

/// The names of a package's programs of a kind. An example that is a library is not a program.
fn programs(package: &Value, kind: &str) -> Vec<String> {
    let is = |target: &&Value| {
        list(&target["kind"]).contains(&Value::from(kind)) && list(&target["crate_types"]).contains(&Value::from("bin"))
    };
    list(&package["targets"]).iter().filter(is).map(|target| text(&target["name"])).collect()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn target(kind: &str, crate_type: &str, name: &str) -> Value {
        json!({ "kind": [kind], "crate_types": [crate_type], "name": name })
    }

    fn package(name: &str, default_run: Option<&str>, targets: &[Value]) -> Value {
        json!({ "id": format!("id of {name}"), "name": name, "default_run": default_run, "targets": targets })
    }

    fn workspace() -> Workspace {
        let bin = |name: &str| target("bin", "bin", name);
        let example = |name: &str| target("example", "bin", name);
        let packages = [
            package("one", None, &[target("lib", "lib", "one"), bin("only"), example("shared"), example("tour")]),
            package("named", None, &[bin("named"), bin("other"), example("shared"), target("example", "lib", "part")]),
            package("default", Some("b"), &[bin("a"), bin("b"), bin("default")]),
            package("open", None, &[bin("a"), bin("b"), example("one")]),
            package("library", None, &[target("lib", "lib", "library")]),
        ];
        Workspace::of(&json!({ "packages": packages, "workspace_root": "/w", "target_directory": "/w/target" }))
    }

    fn chosen(model: ModelSource, bin: Option<&str>) -> String {
        match workspace().program(&model, bin, Path::new("x.ron")) {
            Ok(program) => format!("{}: {} {}", program.package, program.kind, program.name),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn a_package_has_one_binary_or_a_default_or_one_of_its_name() {
        for (name, bin, expected) in [
            ("one", None, "id of one: --bin only"),
            ("named", None, "id of named: --bin named"),
            ("named", Some("other"), "id of named: --bin other"),
            ("default", None, "id of default: --bin b"),
            ("default", Some("a"), "id of default: --bin a"),
            ("open", Some("b"), "id of open: --bin b"),
        ] {
            assert_eq!(chosen(ModelSource::Package(name.to_owned()), bin), expected);
        }
        let example = |name: &str| chosen(ModelSource::Example(name.to_owned()), None);
        assert_eq!(example("tour"), "id of one: --example tour");
        assert_eq!(example("named"), "id of named: --bin named");
        // `Example` names the example, even if a package has the same name.
        assert_eq!(example("one"), "id of open: --example one");
    }

    #[test]
    fn what_cannot_be_chosen_says_what_can() {
        let package = |name: &str, bin| chosen(ModelSource::Package(name.to_owned()), bin);
        let several = package("open", None);
        assert!(several.starts_with("error[Z0128]: ") && several.contains("binaries: a, b\n"), "{several}");
        let unknown = package("open", Some("c"));
        assert!(unknown.starts_with("error[Z0131]: ") && unknown.contains("a, b"), "{unknown}");
        let library = package("library", None);
        assert!(library.starts_with("error[Z0122]: ") && library.contains("one, named, default, open, "), "{library}");
        let shared = chosen(ModelSource::Example("shared".to_owned()), None);
        assert!(shared.starts_with("error[Z0134]: ") && shared.contains("one, named"), "{shared}");
        assert!(chosen(ModelSource::Example("part".to_owned()), None).starts_with("error[Z0122]: "));
    }
}
