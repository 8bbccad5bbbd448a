//! Environment: the variables that describe a build. Never reads a file.

use std::env;
use std::path::{Path, PathBuf};

use zero_plan::spec::{ModelSize, SizeVariables, Spec};
use zero_plan::{Config, Width, shapes};

/// The settings of an expansion from cargo and the command line.
pub struct Environment {
    /// The package that is being compiled.
    pub package: PathBuf,
    /// The directory in which the compiler runs; its messages name files relative to this directory.
    pub directory: PathBuf,
    /// `ZERO_SPEC`: the spec to build with.
    pub spec: Option<PathBuf>,
    /// `ZERO_TEXT`: whether text will lie beside the binary.
    pub has_text: bool,
    /// `ZERO_SERVE`: whether the program is a worker, which generates and does not train.
    pub serves: bool,
    /// `ZERO_SIZE` and `ZERO_PARTS`: the size of the model.
    pub size: SizeVariables,
    /// `ZERO_PROBE`: other shapes of a micro-batch whose sizes the binary can report.
    pub shapes: Vec<(Width, usize, usize)>,
}

impl Environment {
    /// The environment of this process. The `ZERO_` variables apply to the packages that cargo was asked to build, so a
    /// model among their dependencies keeps its own spec and text.
    pub fn of_cargo() -> Self {
        let path = |name| env::var_os(name).map(PathBuf::from);
        let asked_for = |name| path("CARGO_PRIMARY_PACKAGE").and_then(|_| path(name));
        let directory = env::current_dir().unwrap_or_default();
        Self {
            package: path("CARGO_MANIFEST_DIR").unwrap_or_else(|| directory.clone()),
            directory,
            spec: asked_for("ZERO_SPEC"),
            has_text: asked_for("ZERO_TEXT").is_some(),
            serves: asked_for("ZERO_SERVE").is_some(),
            // `option_env!` reads these in every package.
            size: ModelSize::default().variables().map(|(name, _)| (name, env::var(name).ok())),
            shapes: asked_for("ZERO_PROBE").map_or(Vec::new(), |text| probed(&text)),
        }
    }

    /// The constants that a spec stands for in this build.
    pub fn config(&self, spec: &Spec) -> Config {
        if self.serves { spec.serving() } else { spec.config() }
    }

    /// A file as the compiler would name it.
    pub fn shown(&self, file: &Path) -> String {
        file.strip_prefix(&self.directory).unwrap_or(file).display().to_string()
    }
}

/// The shapes in `ZERO_PROBE`.
fn probed(text: &Path) -> Vec<(Width, usize, usize)> {
    text.to_str().and_then(shapes).unwrap_or_else(|| {
        let text = text.display();
        panic!("ZERO_PROBE is `{text}`, expected shapes such as `BF16/4x256`, separated by commas; unset it: `cargo zero` sets it")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_are_read() {
        assert_eq!(probed(Path::new("F32/1x8,BF16/4x256")), [(Width::F32, 1, 8), (Width::BF16, 4, 256)]);
    }

    #[test]
    #[should_panic(expected = "ZERO_PROBE is `4x256`")]
    fn what_cannot_be_read_is_not_passed_over() {
        probed(Path::new("4x256"));
    }
}
