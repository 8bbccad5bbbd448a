//! Launch: starts the ranks of a spec on several hosts: copies the binary there and becomes the mpirun of this machine, or
//! writes a script for Slurm. Waits for mpirun only if it may have to start it again, or to pass on that the ranks are to save.

pub mod hosts;
mod mpirun;
mod slurm;

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use clap::Args;
use zero_files::checkpoint::Store;
use zero_plan::spec::Spec;
use zero_plan::{DeviceKind, Mesh, TransportKind};
use zero_ranks::launch::{LaunchAnswer, LaunchError, LaunchOptions, launch_by};
use zero_ranks::terminal;

use crate::binary::Binary;
use crate::build;
use crate::error::CommandError;
use crate::program;
use crate::request::{Purpose, Request};
use crate::say;
use mpirun::LaunchLine;

/// The job to start, and its hosts.
#[derive(Args, Debug, PartialEq)]
#[command(group(clap::ArgGroup::new("where").required(true).args(["hosts", "hostfile", "slurm"])))]
pub struct LaunchArguments {
    #[command(flatten)]
    pub request: Request,
    #[command(flatten)]
    pub reach: Reach,
    /// Write a script for sbatch, and start nothing
    #[arg(long, value_name = "FILE")]
    pub slurm: Option<PathBuf>,
    /// Arguments of the binary; `-- --help` lists them
    #[arg(last = true)]
    pub arguments: Vec<OsString>,
}

/// Hosts, and how to reach them.
#[derive(Args, Debug, PartialEq)]
pub struct Reach {
    /// The hosts, separated by commas, to which the binary is copied and on which it is started
    #[arg(long, value_name = "A,B", value_delimiter = ',')]
    pub hosts: Vec<String>,
    /// A file with a host in each line, as for mpirun; text after a name is ignored
    #[arg(long, value_name = "FILE")]
    pub hostfile: Option<PathBuf>,
    /// The launcher of the hosts' MPI
    #[arg(long, value_name = "PROGRAM", default_value = "mpirun")]
    pub launcher: PathBuf,
    /// The program that runs a command on another host; its arguments are the host and the command, as for ssh
    #[arg(long, value_name = "PROGRAM", default_value = "ssh")]
    pub ssh: String,
    /// The network card between hosts, if they have several
    #[arg(long, value_name = "NAME")]
    pub interface: Option<String>,
    /// The folder on each host to which binaries are copied, each into its own folder
    #[arg(long, value_name = "PATH", default_value = "/tmp/zero")]
    pub folder: PathBuf,
}

/// A job on hosts.
struct Job<'a> {
    spec: &'a str,
    mesh: Mesh,
    device: DeviceKind,
    arguments: Vec<String>,
}

/// Starts the job, or writes a file that starts it.
pub fn launch(arguments: &LaunchArguments) -> Result<ExitCode, CommandError> {
    let path = &arguments.request.spec;
    let spec = program::read(path)?;
    let mesh = spans_hosts(&spec, arguments)?;
    let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let words = arguments.arguments.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let job = Job { spec: &name, mesh, device: spec.device, arguments: words };
    // Slurm starts the ranks, and does not count the starts.
    if let (Some(restarts @ 1..), Some(_)) = (restarts(&job.arguments), &arguments.slurm) {
        return Err(LaunchError::NoRestarts { restarts }.into());
    }
    let binary = build::build(&arguments.request, Purpose::Training)?;
    if let Some(file) = &arguments.slurm {
        return write(file, &slurm::script(&job, binary.path()));
    }
    let reach = &arguments.reach;
    let hosts = reach.all()?;
    if hosts.len() != mesh.nodes {
        return Err(CommandError::OtherHosts { spec: path.clone(), nodes: mesh.nodes, hosts: hosts.len() });
    }
    let copy = || hosts::copy(&binary.own_path(), binary.path(), &hosts, reach);
    let there = copy()?;
    let line = LaunchLine::of(reach, &hosts, mesh.ranks_per_node(), spec.transport().carries())?;
    let command = |restarts| {
        let mut command = line.command(&there, restarts);
        command.args(&arguments.arguments);
        command
    };
    let is_awaited = |options: &LaunchOptions| options.restarts > 0 || options.finishes_on_signal;
    let Some(options) = options(&binary, &arguments.arguments).filter(is_awaited) else {
        let mut command = command(None);
        say::line(mpirun::shown(&command));
        return Err(CommandError::NoLauncher { launcher: reach.launcher.clone(), source: command.exec() });
    };
    let counted = |restarts| (options.restarts > 0).then_some(restarts);
    say::line(mpirun::shown(&command(counted(0))));
    Ok(launch_by(&options, |restarts| {
        if restarts > 0 {
            // A host that was restarted may have lost the copy. If a host cannot be reached, the launcher also reports
            // it.
            let _ = copy().inspect_err(terminal::tell);
        }
        command(counted(restarts))
    }))
}

/// How often ranks may be restarted, according to the arguments of a program that is not built yet.
fn restarts(arguments: &[String]) -> Option<u64> {
    const NAME: &str = "--restarts";
    let mut words = arguments.iter().skip_while(|word| !word.starts_with(NAME));
    match words.next()?.strip_prefix(NAME)?.strip_prefix('=') {
        Some(value) => value.parse().ok(),
        None => words.next()?.parse().ok(),
    }
}

/// The options for a program's launcher that follow from its arguments, as the program itself reports them. None if the
/// arguments are invalid, which its ranks report.
fn options(binary: &Binary, arguments: &[OsString]) -> Option<LaunchOptions> {
    let told = binary.command().args(arguments).arg("--launch-options").output().ok()?;
    let answer: LaunchAnswer = serde_json::from_slice(&told.stdout).ok()?;
    Some(answer.options(Store::newest, Store::is_taken))
}

impl Reach {
    /// The hosts that either option names.
    pub fn all(&self) -> Result<Vec<String>, CommandError> {
        hosts::of(self)
    }

    /// Copies the program at `path` to hosts, and returns the command that starts one rank of it on each host.
    pub fn command(&self, path: &Path, hosts: &[String]) -> Result<Command, CommandError> {
        let there = hosts::copy(path, path, hosts, self)?;
        Ok(LaunchLine::of(self, hosts, 1, false)?.command(&there, None))
    }
}

/// The mesh of a spec whose ranks may be on several hosts.
fn spans_hosts(spec: &Spec, arguments: &LaunchArguments) -> Result<Mesh, CommandError> {
    match spec.transport() {
        TransportKind::Cluster | TransportKind::Nccl => Ok(spec.mesh.grid()),
        other => Err(CommandError::OneHost { spec: arguments.request.spec.clone(), transport: format!("{other:?}") }),
    }
}

fn write(file: &PathBuf, text: &str) -> Result<ExitCode, CommandError> {
    let failed = |source| CommandError::WriteNew { path: file.clone(), source };
    let mut new = std::fs::File::create_new(file).map_err(failed)?;
    std::io::Write::write_all(&mut new, text.as_bytes()).map_err(failed)?;
    say::line(file.display());
    Ok(ExitCode::SUCCESS)
}
