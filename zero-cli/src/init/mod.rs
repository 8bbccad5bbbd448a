//! Init: creates a crate with a model, a spec, a CI workflow and a README, which compiles and trains immediately. Never
//! builds it, and never writes into a folder that has files.

mod name;
mod runtime;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use clap::Args;

use crate::error::CommandError;
use crate::say;
use runtime::Clone;

/// The crate to create.
#[derive(Args, Debug, PartialEq)]
pub struct InitArguments {
    /// The name of the package, and of its folder
    pub name: String,
    /// A clone of zero's repository to depend on; without it, the clone that this command was built from
    #[arg(long, value_name = "PATH")]
    pub zero: Option<PathBuf>,
}

/// The files of a crate, with the placeholders `@NAME@`, `@CLONE@` and `@RUNTIME@`.
const FILES: [(&str, &str); 6] = [
    ("Cargo.toml", include_str!("template/Cargo.toml.txt")),
    ("src/main.rs", include_str!("template/main.rs.txt")),
    ("spec.ron", include_str!("template/spec.ron.txt")),
    (".github/workflows/ci.yml", include_str!("template/ci.yml.txt")),
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
    let clone = Clone::find(zero.as_deref())?;
    let folder = Path::new(name);
    require_empty(folder, name)?;
    for (path, template) in FILES {
        let text = template.replace("@NAME@", name);
        let text = text.replace("@CLONE@", &clone.root()).replace("@RUNTIME@", &clone.runtime());
        write(&folder.join(path), text.as_bytes())?;
    }
    // The versions that the runtime is tested with; cargo adds the new package to them.
    if let Ok(lock) = fs::read(clone.path.join("Cargo.lock")) {
        write(&folder.join("Cargo.lock"), &lock)?;
    }
    say::line(format_args!("{name}: a crate of your own, in {}", folder.join("").display()));
    say::line(format_args!("zero-runtime: {}, {}", clone.runtime(), clone.origin.words()));
    say::line(format_args!("next: cd {name} && cargo zero run spec.ron -- --steps 300"));
    Ok(())
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

    #[test]
    fn each_file_says_what_it_stands_for() {
        let spec = FILES.iter().find(|(path, _)| *path == "spec.ron").expect("a spec").1.replace("@NAME@", "mine");
        let spec = parse(&spec).expect("a valid spec");
        assert_eq!(spec.model, Some(zero_plan::spec::ModelSource::Package("mine".to_owned())));
        for (path, template) in FILES {
            let rest =
                ["@NAME@", "@CLONE@", "@RUNTIME@"].iter().fold(template.to_owned(), |text, it| text.replace(it, ""));
            assert!(!rest.contains("@NAME") && !rest.contains("RUNTIME@"), "{path}");
        }
    }

    #[test]
    fn ci_says_which_variable_is_missing_before_it_does_anything() {
        let ci = FILES.iter().find(|(path, _)| path.ends_with("ci.yml")).expect("a workflow").1;
        let (_, steps) = ci.split_once("    steps:\n").expect("steps");
        let mut steps = steps.split("\n      - ").skip(1);
        let first = steps.next().expect("a step");
        for line in ["if: vars.ZERO_REPOSITORY == ''", "echo \"::error title=ZERO_REPOSITORY is not set::", "exit 1"] {
            assert!(first.contains(line), "{first}");
        }
        assert!(steps.any(|step| step.contains("git clone --depth 1 \"${{ vars.ZERO_REPOSITORY }}\"")), "{ci}");
    }
}
