//! Init: creates a crate with a model, a spec, a CI workflow and a README, which compiles and trains immediately. Never
//! builds it, and never writes into a folder that has files.

mod name;
mod runtime;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use clap::Args;

use crate::completions::ALIAS;
use crate::error::CommandError;
use crate::say;
use runtime::{Runtime, VERSION};

/// The crate to create.
#[derive(Args, Debug, PartialEq)]
pub struct InitArguments {
    /// The name of the package, and of its folder
    pub name: String,
    /// A clone of zero's repository to depend on; without it, the clone that this command was built from, or its release
    #[arg(long, value_name = "PATH")]
    pub zero: Option<PathBuf>,
}

/// The files of a crate, with the placeholders `@NAME@`, `@CLONE@` and `@VERSION@`. A line after `@clone|` is only for a crate that
/// depends on a clone, and one after `@release|` for a crate that depends on a release.
const FILES: [(&str, &str); 7] = [
    ("Cargo.toml", include_str!("template/Cargo.toml.txt")),
    ("src/main.rs", include_str!("template/main.rs.txt")),
    ("spec.ron", include_str!("template/spec.ron.txt")),
    (".github/workflows/ci.yml", include_str!("template/ci.yml.txt")),
    (".cargo/config.toml", ALIAS),
    (".gitignore", include_str!("template/gitignore.txt")),
    ("README.md", include_str!("template/README.md.txt")),
];

/// Creates the crate, and prints its dependencies.
///
/// # Errors
/// Z0158 for a name or a folder that cannot be used, Z0159 if there is no runtime, Z0125 if nothing can be written.
pub fn init(arguments: &InitArguments) -> Result<(), CommandError> {
    let InitArguments { name, zero } = arguments;
    name::check(name).map_err(|why| CommandError::NewCrate { name: name.clone(), why })?;
    let runtime = Runtime::find(zero.as_deref())?;
    let folder = Path::new(name);
    require_empty(folder, name)?;
    for (path, template) in FILES {
        write(&folder.join(path), filled(template, name, &runtime).as_bytes())?;
    }
    // The versions that the runtime is tested with; cargo adds the new package to them.
    if let Runtime::Clone { path, .. } = &runtime
        && let Ok(lock) = fs::read(path.join("Cargo.lock"))
    {
        write(&folder.join("Cargo.lock"), &lock)?;
    }
    say::line(format_args!("{name}: a crate of your own, in {}", folder.join("").display()));
    say::line(format_args!("zero-runtime: {}", runtime.words()));
    say::line(format_args!("next: cd {name} && cargo zero run spec.ron -- --steps 300"));
    Ok(())
}

/// A file of the crate `name`.
fn filled(template: &str, name: &str, runtime: &Runtime) -> String {
    let (kept, left_out, clone) = match runtime {
        Runtime::Clone { path, .. } => ("@clone|", "@release|", path.display().to_string()),
        Runtime::Release => ("@release|", "@clone|", String::new()),
    };
    let lines = template.split_inclusive('\n').filter(|line| !line.starts_with(left_out));
    let text: String = lines.map(|line| line.strip_prefix(kept).unwrap_or(line)).collect();
    text.replace("@NAME@", name).replace("@CLONE@", &clone).replace("@VERSION@", VERSION)
}

/// Refuses a folder that has files, because they are somebody's.
fn require_empty(folder: &Path, name: &str) -> Result<(), CommandError> {
    let refused = |why: &str| CommandError::NewCrate { name: name.to_owned(), why: why.to_owned() };
    match fs::read_dir(folder) {
        Ok(mut entries) => match entries.next() {
            Some(_) => Err(refused("there is a folder of that name with files in it")),
            None => Ok(()),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => Err(refused("there is a file of that name")),
        Err(source) => Err(CommandError::WriteNew { path: folder.to_owned(), source }),
    }
}

fn write(path: &Path, contents: &[u8]) -> Result<(), CommandError> {
    let write = || {
        path.parent().map_or(Ok(()), fs::create_dir_all)?;
        fs::write(path, contents)
    };
    write().map_err(|source| CommandError::WriteNew { path: path.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use zero_plan::spec::parse;

    use super::*;

    /// The file of the template, for a crate that depends on a clone, and for one that depends on a release.
    fn both(path: &str) -> [String; 2] {
        let template = FILES.iter().find(|(name, _)| *name == path).expect("a file").1;
        let clone = Runtime::Clone { path: "/at/zero".into(), origin: runtime::CloneChoice::Given };
        [clone, Runtime::Release].map(|runtime| filled(template, "mine", &runtime))
    }

    #[test]
    fn no_file_has_a_placeholder_left() {
        for (path, _) in FILES {
            for text in both(path) {
                let left = ["@NAME", "@CLONE", "@VERSION", "@clone", "@release"].map(|it| text.contains(it));
                assert_eq!(left, [false; 5], "{path}: {text}");
            }
        }
        let [spec, _] = both("spec.ron");
        let spec = parse(&spec).expect("a valid spec");
        assert_eq!(spec.model, Some(zero_plan::spec::ModelSource::Package("mine".to_owned())));
    }

    #[test]
    fn a_crate_depends_on_a_clone_or_on_a_release() {
        let release = format!("zero-command@{VERSION}");
        for (path, of_clone, of_release) in [
            ("Cargo.toml", "path = \"/at/zero/zero-runtime\"", &*format!("zero-runtime = {{ version = \"{VERSION}\"")),
            (".github/workflows/ci.yml", "cargo install --locked --path \"/at/zero/zero-cli\"", &release),
            ("README.md", "cargo install --locked --path /at/zero/zero-cli", &release),
        ] {
            let [clone, release] = both(path);
            assert!(clone.contains(of_clone) && !clone.contains(of_release), "{clone}");
            assert!(release.contains(of_release), "{release}");
            assert!(
                !["path", "at/zero", "clone", "ZERO_REPOSITORY"].iter().any(|it| release.contains(it)),
                "{release}"
            );
        }
    }

    #[test]
    fn ci_says_which_variable_is_missing_before_it_does_anything() {
        let [ci, of_release] = both(".github/workflows/ci.yml");
        let (_, steps) = ci.split_once("    steps:\n").expect("steps");
        let mut steps = steps.split("\n      - ").skip(1);
        let first = steps.next().expect("a step");
        for line in ["if: vars.ZERO_REPOSITORY == ''", "echo \"::error title=ZERO_REPOSITORY is not set::", "exit 1"] {
            assert!(first.contains(line), "{first}");
        }
        assert!(steps.any(|step| step.contains("git clone --depth 1 \"${{ vars.ZERO_REPOSITORY }}\"")), "{ci}");
        // Everything else is the same, but for the source of the command.
        let commands = |ci: &str| -> Vec<String> {
            let commands = ci.lines().filter_map(|line| line.strip_prefix("      - run: "));
            commands.filter(|command| !command.starts_with("cargo install")).map(str::to_owned).collect()
        };
        assert_eq!((commands(&ci).len(), commands(&of_release)), (5, commands(&ci)));
    }
}
