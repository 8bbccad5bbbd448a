//! Build: from a spec's path to a binary's: check the spec, find the model's package, put the workspace's text beside it,
//! let cargo compile, copy the result. Never decides what a plan is.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;
use zero_plan::spec::{self, Model, Spec};
use zero_runtime::data::workspace_text;

use crate::error::Error;

/// Compiles the spec at `path` with its model. The binary lies under `target/zero/` and is named after the spec.
pub fn build(path: &Path) -> Result<PathBuf, Error> {
    let spec = read(path)?;
    let model = match spec.model {
        Some(Model::Example(name) | Model::Package(name)) => name,
        None => return Err(Error::NoModel { spec: path.to_owned() }),
    };
    let workspace = Workspace::find()?;
    workspace.require(&model, path)?;
    let directory = workspace.target.join("zero");
    std::fs::create_dir_all(&directory).map_err(|source| Error::Write { path: directory.clone(), source })?;
    // Cargo builds every spec of a model to one place: another build must not replace it before it is copied.
    let lock_path = directory.join(".lock");
    let lock = File::create(&lock_path).and_then(|lock| lock.lock().map(|()| lock));
    let _lock = lock.map_err(|source| Error::Write { path: lock_path, source })?;
    let text = directory.join("workspace.txt");
    write_if_changed(&text, workspace_text(&workspace.root)?.as_bytes())?;
    let built = compile(&model, path, &text)?;
    let binary = directory.join(path.file_stem().unwrap_or_default());
    // A running copy cannot be overwritten, but it can be replaced.
    let fresh = binary.with_extension("new");
    let replaced = std::fs::copy(&built, &fresh).and_then(|_| std::fs::rename(&fresh, &binary));
    replaced.map_err(|source| Error::Write { path: binary.clone(), source })?;
    prove(&binary, path)?;
    Ok(binary)
}

/// Has the binary prove its plan over the ops of all ranks: whoever has built it can rely on that.
fn prove(binary: &Path, spec: &Path) -> Result<(), Error> {
    let status = Command::new(binary).arg("--prove").stdout(Stdio::null()).status();
    match status.map_err(|source| Error::Start { binary: binary.to_owned(), source })?.success() {
        true => Ok(()),
        false => Err(Error::Unproven { spec: spec.to_owned() }),
    }
}

fn read(path: &Path) -> Result<Spec, Error> {
    let text = std::fs::read_to_string(path).map_err(|source| Error::Unreadable { path: path.to_owned(), source })?;
    let name = path.display().to_string();
    spec::parse(&text).map_err(|errors| Error::Spec(errors.iter().map(|error| error.render(&name, &text)).collect()))
}

/// The cargo workspace around the current directory.
struct Workspace {
    root: PathBuf,
    target: PathBuf,
    /// Packages with a binary.
    packages: Vec<String>,
}

/// The cargo that runs this command, else the one on the path.
fn cargo() -> Command {
    Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

impl Workspace {
    fn find() -> Result<Self, Error> {
        let output = cargo()
            .args(["metadata", "--no-deps", "--format-version", "1"])
            .output()
            .map_err(|source| Error::Cargo { source })?;
        if !output.status.success() {
            return Err(Error::NoWorkspace { message: String::from_utf8_lossy(&output.stderr).into_owned() });
        }
        let metadata: Value =
            serde_json::from_slice(&output.stdout).map_err(|source| Error::Cargo { source: source.into() })?;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
        let has_binary = |package: &Value| {
            list(&package["targets"]).iter().any(|target| list(&target["kind"]).contains(&Value::from("bin")))
        };
        let packages = list(&metadata["packages"]);
        Ok(Self {
            root: text(&metadata["workspace_root"]).into(),
            target: text(&metadata["target_directory"]).into(),
            packages: packages
                .iter()
                .filter(|package| has_binary(package))
                .map(|package| text(&package["name"]))
                .collect(),
        })
    }

    fn require(&self, model: &str, spec: &Path) -> Result<(), Error> {
        if self.packages.iter().any(|name| name == model) {
            return Ok(());
        }
        Err(Error::UnknownModel {
            spec: spec.to_owned(),
            model: model.to_owned(),
            workspace: self.root.display().to_string(),
            candidates: self.packages.clone(),
        })
    }
}

/// Leaves the file alone where it has these contents, so that cargo does not take it for changed.
fn write_if_changed(path: &Path, contents: &[u8]) -> Result<(), Error> {
    if std::fs::read(path).is_ok_and(|found| found == contents) {
        return Ok(());
    }
    std::fs::write(path, contents).map_err(|source| Error::Write { path: path.to_owned(), source })
}

/// Runs cargo; the spec and the text reach the macro by its environment.
fn compile(model: &str, spec: &Path, text: &Path) -> Result<PathBuf, Error> {
    let absolute = std::path::absolute(spec).map_err(|source| Error::Unreadable { path: spec.to_owned(), source })?;
    let mut child = cargo()
        .args(["build", "--release", "--message-format", "json-render-diagnostics", "--package", model])
        .env("ZERO_SPEC", absolute)
        .env("ZERO_TEXT", text)
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|source| Error::Cargo { source })?;
    let messages = child.stdout.take().map(BufReader::new);
    let executables = messages.into_iter().flat_map(BufRead::lines).map_while(Result::ok).filter_map(|line| {
        let message: Value = serde_json::from_str(&line).ok()?;
        Some(PathBuf::from(message["executable"].as_str()?))
    });
    let mut executables: Vec<PathBuf> = executables.collect();
    let status = child.wait().map_err(|source| Error::Cargo { source })?;
    if executables.len() > 1 {
        let binaries = executables.iter().map(|path| path.display().to_string()).collect();
        executables.retain(|path| path.file_stem().is_some_and(|stem| stem == model));
        if executables.len() != 1 {
            return Err(Error::SeveralBinaries { model: model.to_owned(), binaries });
        }
    }
    executables.pop().filter(|_| status.success()).ok_or_else(|| Error::Build { spec: spec.to_owned() })
}
