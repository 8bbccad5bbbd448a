//! Error: why the command failed, as text for a person. Never prints.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use zero_core::device::DeviceError;
use zero_files::checkpoint::{CheckpointError, PublishError};
use zero_files::data::Structure;
use zero_files::weights::WeightsError;
use zero_plan::Flaw;
use zero_plan::diagnostic::{self, Diagnostic};
use zero_ranks::launch::LaunchError;
use zero_study::glossary;
use zero_study::hardware::Hardware;
use zero_study::simulate::Impossible;

/// The most mistakes of a file that are shown.
const MISTAKES_MAX: usize = 50;

/// Why the command failed.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    #[error("error[Z0120]: cannot read the spec {}: {source}\n  = help: {}", path.display(), spec_help(path, source))]
    Unreadable { path: PathBuf, source: io::Error },
    #[error("error[Z0120]: cannot read {}: {source}\n  = help: give the path of DeepSpeed's JSON, or of the YAML that `accelerate config` writes", path.display())]
    UnreadableConfiguration { path: PathBuf, source: io::Error },
    #[error("error[Z0120]: git has no {} to compare with: {source}\n  = help: commit the spec, or compare two files: `cargo zero diff FIRST SECOND`", spec.display())]
    Uncommitted { spec: PathBuf, source: io::Error },
    #[error("error[Z0120]: {} is not a spec to compare\n  = help: specs are files that end in `.ron`; checkpoints are folders, and take neither `--on` nor `--json`", first.display())]
    NoSpecs { first: PathBuf },
    #[error("error[Z0138]: {what}\n  = help: {help}")]
    Follow { what: String, help: &'static str },
    /// The mistakes of the spec, each rendered with its place.
    #[error("{}", .0.join("\n\n"))]
    Spec(Vec<String>),
    #[error("error[Z0121]: {} names no model\n  = help: add `model: Example(\"gpt\")`, or `model: Package(\"...\")` for a package of your workspace", spec.display())]
    NoModel { spec: PathBuf },
    #[error("error[Z0122]: {} names the model `{model}`, but {workspace} has no such package with a binary\n  = help: {}", spec.display(), candidates_help(candidates))]
    UnknownModel { spec: PathBuf, model: String, workspace: String, candidates: Vec<String> },
    #[error(
        "error[Z0123]: cannot run cargo: {source}\n  = help: the command needs the cargo that built it, and a workspace around the current directory"
    )]
    Cargo { source: io::Error },
    #[error(
        "error[Z0127]: no cargo workspace or package around the current directory\n{message}  = help: go into the directory of your workspace"
    )]
    NoWorkspace { message: String },
    #[error("error[Z0128]: the package `{model}` has several binaries: {}\n  = help: choose one by `--bin NAME`, or by `default-run` in the package's Cargo.toml", binaries.join(", "))]
    SeveralBinaries { model: String, binaries: Vec<String> },
    /// Cargo has printed why.
    #[error("error[Z0124]: the model does not compile under {}; see cargo's output above{offers}", spec.display())]
    Build { spec: PathBuf, offers: String },
    #[error("error[Z0148]: {} names the model `{model}`, but nothing in the binary of that package is under `#[zero]`\n  = help: write `#[zero]` on the struct of its model, or name a package that has a model", spec.display())]
    WithoutModel { spec: PathBuf, model: String },
    /// The binary has printed why.
    #[error("error[Z0130]: the plan of {} is not sound; see the binary's output above", spec.display())]
    Unproven { spec: PathBuf },
    #[error("error[Z0125]: cannot write {}: {source}\n  = help: the target directory must be writable and have space", path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error("error[Z0125]: cannot write {}: {source}\n  = help: name a file that does not exist yet, in a writable directory", path.display())]
    WriteNew { path: PathBuf, source: io::Error },
    #[error("error[Z0126]: cannot start {}: {source}\n  = help: check whether the target directory is on a file system that forbids programs", binary.display())]
    Start { binary: PathBuf, source: io::Error },
    #[error(
        "error[Z0129]: `{asked}` is not known: it is neither the code of a message nor a word\n  = help: {}",
        nearest_help(asked)
    )]
    Unexplained { asked: String },
    #[error("error[Z0131]: the package `{model}` has no binary `{bin}`\n  = help: it has {}", binaries.join(", "))]
    UnknownBinary { model: String, bin: String, binaries: Vec<String> },
    #[error("error[Z0133]: the path {} is not UTF-8, but the compiler requires UTF-8\n  = help: rename the file or the directory", path.display())]
    NotUnicode { path: PathBuf },
    #[error(
        "error[Z0133]: the variable {name} is not UTF-8, so it cannot be given to ranks on other hosts\n  = help: correct it or unset it"
    )]
    NotUnicodeVariable { name: String },
    #[error("error[Z0134]: several packages have an example `{example}`: {}\n  = help: rename all but one of them", packages.join(", "))]
    SeveralExamples { example: String, packages: Vec<String> },
    #[error(
        "error[Z0135]: cargo cannot read the workspace around the current directory\n{message}  = help: correct it until `cargo metadata` succeeds"
    )]
    BadWorkspace { message: String },
    #[error(
        "error[Z0136]: the size {size} was asked for, but the model `{model}` comes in one size\n  = help: leave it out, or choose the size of the model by `zero_runtime::chosen`"
    )]
    OneSize { model: String, size: String },
    #[error(
        "error[Z0136]: {parts} was asked for, but no part of the sizes of the model `{model}` can be changed\n  = help: leave it out, or list the parts that can be changed in `zero_runtime::resized`"
    )]
    FixedParts { model: String, parts: String },
    #[error(
        "error[Z0137]: `{asked}` was given, but {} has `model: {model}`\n  = help: leave `{asked}` out, or change the size in the spec",
        spec.display()
    )]
    OtherSize { asked: String, spec: PathBuf, model: String },
    /// What the compiler says about a size, in the form of an error of the command.
    #[error("error{}", .message.replacen("\n  fix: ", "\n  = help: ", 1).replacen("] ", "]: ", 1))]
    NoSize { message: String },
    #[error(
        "error[Z0158]: cannot create the crate `{name}` here: {why}\n  = help: choose another name: letters, digits, `-` and `_`, for a folder that does not exist or is empty"
    )]
    NewCrate { name: String, why: String },
    #[error("error[Z0159]: no zero-runtime in {}: {what}\n  = help: give a clone of zero's repository by `--zero PATH`", path.display())]
    NoRuntime { path: PathBuf, what: String },
    #[error(
        "error[Z0160]: no {kind} `{asked}`: it is neither a known name nor a readable file: {source}\n  = help: {}the names are {names}; a path must be of a RON file",
        meant(nearest)
    )]
    UnknownHardware { kind: &'static str, asked: String, source: io::Error, nearest: Option<String>, names: String },
    #[error("error[Z0166]: cannot write {}: {source}\n  = help: name a new file, or another folder, in a writable folder that has space", path.display())]
    Advice { path: PathBuf, source: io::Error },
    #[error("{0}")]
    NoAdvice(#[from] zero_study::advise::NoAdvice),
    #[error("{0}")]
    Pin(#[from] zero_study::advise::BadPin),
    #[error(
        "error[Z0375]: {place} {what}\n  = help: correct it, or leave the file out, or pass over bad lines and rows by `--skip-bad`; the end of its name decides how a file is read: .jsonl, .parquet, and otherwise text"
    )]
    Input { place: String, what: String },
    #[error("error[Z0347]: `{}` begins like {}, and a model would learn its marks and the names of its fields\n  = help: {}", path.display(), structure.name(), structured_help(*structure))]
    Structured { path: PathBuf, structure: Structure },
    #[error("error[Z0376]: {place} has {what} `{name}`\n  = help: {}", has_help(has))]
    NoText { place: String, what: &'static str, name: String, has: Vec<String> },
    #[error("error[Z0378]: the tokenizer `{}` {what}\n  = help: name the token after each document by `--separator TOKEN`, or give `--separator none`", tokenizer.display())]
    Separator { tokenizer: PathBuf, what: String },
    #[error("{}", .0.report())]
    Text(#[from] zero_files::data::DataError),
    /// The faults of checkpoints.
    #[error("{}", .0.iter().map(CheckpointError::report).collect::<Vec<_>>().join("\n\n"))]
    Faults(Vec<CheckpointError>),
    #[error("error[Z0458]: {} is for {nodes} hosts, but {hosts} were named\n  = help: name `mesh.nodes` hosts by `--hosts`, or change `mesh.nodes`", spec.display())]
    OtherHosts { spec: PathBuf, nodes: usize, hosts: usize },
    #[error("error[Z0458]: {} has `transport: {transport}`, whose ranks are all on one host\n  = help: write `transport: Cluster`, or `Nccl` for GPUs, and `mesh: (nodes: ...)`", spec.display())]
    OneHost { spec: PathBuf, transport: String },
    #[error("error[Z0459]: cannot read the hosts in {}: {source}\n  = help: give a file with a host in each line", path.display())]
    NoHostfile { path: PathBuf, source: io::Error },
    #[error("error[Z0459]: {place} names the host `{name}`\n  = help: {why}")]
    NoHost { place: String, name: String, why: &'static str },
    #[error(
        "error[Z0459]: cannot copy the binary to {host}: {why}\n  = help: check that `ssh {host} true` works without a prompt, and that the folder of `--folder` is writable there"
    )]
    NotCopied { host: String, why: String },
    #[error("error[Z0459]: cannot start {}: {source}\n  = help: install Open MPI or MPICH on all hosts, or name its launcher by `--launcher`", launcher.display())]
    NoLauncher { launcher: PathBuf, source: io::Error },
    #[error("error[Z0459]: {} is not a known launcher: asked for its version it prints `{}`\n  = help: name the mpirun of Open MPI, or the mpiexec of MPICH, by `--launcher`", launcher.display(), said.lines().next().unwrap_or_default())]
    OtherLauncher { launcher: PathBuf, said: String },
    #[error("error[Z0170]: cannot read the profile {}: {what}\n  = help: give the file that a run with `--profile` has written", path.display())]
    Profile { path: PathBuf, what: String },
    #[error("error[Z0171]: the profile {} is not of this plan: {what}\n  = help: give the spec that the run was built from, with the same `--size` and `--bin`", path.display())]
    OtherProfile { path: PathBuf, what: String },
    #[error("error[Z0172]: cannot write {}: {source}\n  = help: name a file by `--out` in a directory that exists and can be written to", path.display())]
    Out { path: PathBuf, source: io::Error },
    #[error("error[Z0178]: {} does not report its sizes: {source}\n  = help: its `main` should call `zero_runtime::main`, or `main_with`", binary.display())]
    NoSizes { binary: PathBuf, source: serde_json::Error },
    #[error("error[Z0177]: {} cannot run on {hardware}: {reason}\n  = help: {}", spec.display(), reason.help())]
    Impossible { spec: PathBuf, hardware: String, reason: Impossible },
    #[error(
        "error[Z0179]: cannot {what}: {source}\n  = help: describe the machine by hand, as the files of `hardware/` do"
    )]
    Measure { what: &'static str, source: io::Error },
    #[error("error[Z0179]: the units of {} cannot be measured: {what}\n  = help: try `cargo zero run` with --profile; the spec must train on text, without arguments of its own", spec.display())]
    NotMeasured { spec: PathBuf, what: String },
    #[error("error[Z0179]: {gpu} has `device: Cuda` and {other} has not, but a description is of one kind of device\n  = help: measure GPUs and the processor separately, into two files", gpu = gpu.display(), other = other.display())]
    OfTwoKinds { gpu: PathBuf, other: PathBuf },
    #[error("error[Z0179]: --threads is for ranks on a processor, but {} has `device: Cuda`\n  = help: leave it out", spec.display())]
    ThreadsOnGpus { spec: PathBuf },
    #[error("error[Z0179]: the GPUs of this machine cannot be measured for {}: {what}\n  = help: see the output above; `cargo zero run` of this spec must work", spec.display())]
    NoGpusMeasured { spec: PathBuf, what: String },
    #[error(
        "error[Z0179]: the network cannot be measured: {what}\n  = help: see the output of the ranks; `cargo zero launch SPEC` with the same options must work"
    )]
    NoNetworkMeasured { what: String },
    #[error("error[Z0180]: cannot write {}: {source}\n  = help: name a new file in a folder that exists", path.display())]
    Output { path: PathBuf, source: io::Error },
    #[error("error[Z0130]: the plan of {} is not sound: {flaw}", spec.display())]
    Flawed { spec: PathBuf, flaw: Flaw },
    #[error("{}", .0.report())]
    Launch(#[from] LaunchError),
    #[error("{}", .0.report())]
    Weights(#[from] WeightsError),
    #[error("{}", .0.report())]
    Checkpoint(CheckpointError),
}

impl From<PublishError> for CommandError {
    fn from(error: PublishError) -> Self {
        match error {
            PublishError::Checkpoint(error) => CommandError::Checkpoint(error),
            PublishError::Weights(error) => CommandError::Weights(error),
        }
    }
}

impl From<DeviceError> for CommandError {
    fn from(error: DeviceError) -> Self {
        CommandError::Launch(error.into())
    }
}

impl From<CheckpointError> for CommandError {
    fn from(error: CheckpointError) -> Self {
        CommandError::Faults(vec![error])
    }
}

impl CommandError {
    /// A spec has no program; cargo has printed why.
    pub fn not_built(spec: &Path) -> Self {
        CommandError::Build { spec: spec.to_owned(), offers: String::new() }
    }

    /// The mistakes in the text of a file, each with its place. A file of another kind may have thousands, of which nobody reads more
    /// than the first.
    pub fn mistakes(mistakes: &[Diagnostic], path: &Path, text: &str) -> Self {
        let name = path.display().to_string();
        let shown = mistakes.iter().take(MISTAKES_MAX).map(|mistake| mistake.render(&name, text));
        let more = mistakes.len().saturating_sub(MISTAKES_MAX);
        CommandError::Spec(shown.chain((more > 0).then(|| format!("and {more} more mistakes in {name}"))).collect())
    }

    /// Hardware cannot run a spec.
    pub fn impossible(spec: &Path, hardware: &Hardware, reason: &Impossible) -> Self {
        CommandError::Impossible { spec: spec.to_owned(), hardware: hardware.name.clone(), reason: reason.clone() }
    }

    /// The system does not provide the requested number of threads.
    #[cfg(feature = "tokenize")]
    pub fn threads(error: rayon::ThreadPoolBuildError) -> Self {
        CommandError::Input {
            place: "--threads".to_owned(),
            what: format!("is more than the system provides: {error}"),
        }
    }
}

fn meant(nearest: &Option<String>) -> String {
    nearest.as_ref().map_or_else(String::new, |name| format!("did you mean `{name}`? "))
}

fn has_help(has: &[String]) -> String {
    match has {
        [] => "every document must have text: leave out those without, or pass over them by `--skip-bad`".to_owned(),
        some => format!(
            "name another by `--field` or `--column`, or pass over such records by `--skip-bad`; it has {}",
            some.join(", ")
        ),
    }
}

fn structured_help(structure: Structure) -> String {
    match structure {
        Structure::Lines => {
            "`--as jsonl` takes the text in a field of each line, `--as text` the file as it is".to_owned()
        }
        other => format!("{}; `--as text` takes the file as it is", other.remedy()),
    }
}

/// The extension of specs.
const RON: &str = "ron";

fn spec_help(path: &Path, source: &io::Error) -> String {
    match source.kind() {
        ErrorKind::IsADirectory => match specs_in(path)[..] {
            [] => "this is a directory without specs; give the path of a RON file".to_owned(),
            ref specs => format!("this is a directory; give one of its specs: {}", specs.join(", ")),
        },
        ErrorKind::InvalidData => "a spec is a RON file, which is UTF-8 text".to_owned(),
        _ => match specs_in(path.parent().unwrap_or(path))[..] {
            [] => "give the path of a RON file; relative paths are from the current directory".to_owned(),
            ref specs => format!("the specs in that directory are {}", specs.join(", ")),
        },
    }
}

/// The RON files in a directory, sorted.
fn specs_in(directory: &Path) -> Vec<String> {
    let listed = if directory == Path::new("") { Path::new(".") } else { directory };
    let entries = std::fs::read_dir(listed).into_iter().flatten().flatten();
    let specs = entries.map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|it| it == RON));
    let mut specs: Vec<_> = specs.map(|path| path.strip_prefix(".").unwrap_or(&path).display().to_string()).collect();
    specs.sort();
    specs
}

fn candidates_help(candidates: &[String]) -> String {
    match candidates {
        [] => "a model is a program: give its package a src/main.rs that calls `zero_runtime::main`".to_owned(),
        some => format!("expected one of: {}", some.join(", ")),
    }
}

fn nearest_help(asked: &str) -> String {
    match (diagnostic::nearest(asked), glossary::nearest(asked)) {
        (Some(near), _) => {
            format!("did you mean {}, {}? `cargo zero explain` lists all codes and words", near.code, near.title)
        }
        (None, Some(word)) => format!("did you mean `{word}`? `cargo zero explain` lists all codes and words"),
        (None, None) => "`cargo zero explain` lists all codes and words".to_owned(),
    }
}
