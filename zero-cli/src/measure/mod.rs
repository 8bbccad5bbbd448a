//! Measure: this machine as a hardware file: the rates of all cores at work (products, copies, and the sums of
//! collectives) and how soon waiting ranks continue, or the rates of all GPUs and the link between them; its disk, the
//! times of units of models, and the network to other hosts. Never predicts.

mod cores;
mod disk;
mod network;
mod trace;
mod units;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::Args;
use cores::Cores;
use zero_core::device::memory_bytes;
use zero_cpu::{HostThreads, updated_bytes_per_s};
use zero_plan::DeviceKind;
use zero_plan::spec::{Size, Spec};
use zero_ranks::processors::threads;
use zero_ranks::wake_latency;
use zero_study::hardware::{DeviceFigures, Handover, Hardware, Node, Processor, Rates, median, rounded};

use crate::error::CommandError;
use crate::launch::Reach;
use crate::program;
use crate::request::SizeArguments;
use crate::say;

pub use trace::{RecordedOp, RecordedProfile, RecordedStep};

/// How often each program runs. They run in turn, so that a passing disturbance affects only one run of each.
const ROUNDS: usize = 3;

/// The parts to measure.
#[derive(Args, Debug, PartialEq)]
pub struct MeasureArguments {
    /// Specs whose models' units are also measured: each is built for all cores, and trains for some steps. Specs with `device: Cuda` measure the GPUs of this machine instead of its processor
    pub specs: Vec<PathBuf>,
    #[command(flatten)]
    pub size: SizeArguments,
    /// Threads of a rank, for which units are measured; several are separated by commas
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = threads, default_value = "1")]
    pub threads: Vec<NonZeroUsize>,
    /// A folder on the disk for checkpoints and states, which is measured with files that have no names; without it, the current folder
    #[arg(long, value_name = "FOLDER", default_value = ".", hide_default_value = true)]
    pub disk: PathBuf,
    #[command(flatten)]
    pub reach: Reach,
    /// Measure the network, as one of the ranks that were started for this purpose
    #[arg(long, hide = true)]
    pub network_rank: bool,
    /// New file for the description; without it, it is printed
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
}

/// Measures this machine, and writes or prints its description.
pub fn measure(arguments: &MeasureArguments) -> Result<(), CommandError> {
    if arguments.network_rank {
        return network::rank();
    }
    let Some(path) = &arguments.out else {
        say::line(description(arguments)?.trim_end());
        return Ok(());
    };
    let failed = |source| CommandError::Output { path: path.clone(), source };
    // A file that cannot be created is reported before minutes of work, not after.
    let mut file = File::create_new(path).map_err(failed)?;
    let written = description(arguments).and_then(|text| file.write_all(text.as_bytes()).map_err(failed));
    if written.is_err() {
        // The file is removed, so the same command can be run again.
        let _ = std::fs::remove_file(path);
    }
    written
}

/// The description of this machine, in RON.
fn description(arguments: &MeasureArguments) -> Result<String, CommandError> {
    let specs = arguments.specs.iter().map(|path| Ok((path, program::read(path)?)));
    let specs = specs.collect::<Result<Vec<_>, CommandError>>()?;
    let device = device(&specs, &arguments.threads)?;
    let has_hosts = !arguments.reach.hosts.is_empty() || arguments.reach.hostfile.is_some();
    let network = has_hosts.then(|| network::measure(&arguments.reach)).transpose()?;
    let cores =
        std::thread::available_parallelism().map_err(|source| CommandError::Measure { what: "count cores", source })?;
    // Specs that differ only in their layout have the same units.
    let mut wanted = BTreeMap::new();
    for &(path, ref spec) in &specs {
        let size = arguments.size.agreed(spec, path)?;
        for &threads in &arguments.threads {
            for ranks in units::ranks(spec, threads, cores) {
                wanted.entry((units::alone(spec, path, &size, ranks)?, threads)).or_insert(path);
            }
        }
    }
    let programs =
        wanted.iter().map(|((alone, threads), path)| units::Measurement { path, alone, threads: *threads }.build());
    let mut measured = programs.collect::<Result<Vec<_>, CommandError>>()?;
    let mut hardware = match (device, measured.first()) {
        (DeviceKind::Cuda, Some(program)) => of_gpus(program, cores)?,
        _ => of_cores(cores)?,
    };
    hardware.node.disk = disk::measure(&arguments.disk, hardware.node.devices);
    hardware.network = network;
    for _ in 0..ROUNDS {
        measured.iter_mut().try_for_each(units::MeasuredProgram::run)?;
    }
    hardware.measured = measured.iter().flat_map(units::MeasuredProgram::units).collect();
    let rates = if device.is_host() {
        hardware.device.op = rounded(median(measured.iter().flat_map(|program| program.beside_s(cores)).collect()));
        "rates are those of one core while all of them work"
    } else {
        "rates are those of one GPU while all of them work, and times of units include the host's time to submit them"
    };
    Ok(format!("// Measured by `cargo zero measure`: {rates}.\n{}\n", zero_plan::spec::ron_text(&hardware)))
}

/// The kind of device to measure, which all specs share.
fn device(specs: &[(&PathBuf, Spec)], threads: &[NonZeroUsize]) -> Result<DeviceKind, CommandError> {
    let of_kind = |is_host| specs.iter().find(|(_, spec)| spec.device.is_host() == is_host).map(|(path, _)| *path);
    match (of_kind(false), of_kind(true)) {
        (Some(gpu), Some(other)) => Err(CommandError::OfTwoKinds { gpu: gpu.clone(), other: other.clone() }),
        (Some(gpu), None) if *threads != [NonZeroUsize::MIN] => Err(CommandError::ThreadsOnGpus { spec: gpu.clone() }),
        (Some(_), None) => Ok(DeviceKind::Cuda),
        (None, _) => Ok(DeviceKind::Cpu),
    }
}

/// The processor as a device, without its disk.
fn of_cores(cores: NonZeroUsize) -> Result<Hardware, CommandError> {
    say::note(format_args!("measuring products, copies and sums on {cores} cores"));
    let rates = Cores::measure(cores)?;
    say::note("measuring how soon a rank continues after another rank wakes it");
    let [apart, turns] = wake_latency::measure()?.map(|seconds| rounded(median(seconds)));
    let handover = Handover { apart, turns };
    let memory = memory()?;
    Ok(Hardware {
        name: format!("this machine, {cores} cores"),
        device: DeviceFigures {
            name: format!("a core, bf16 products: {}", zero_cpu::Bf16Products::chosen().name()),
            kind: Processor::Cpu,
            memory,
            reserved: Size::B(0),
            matmul: Rates { f32: rounded(rates.f32_per_s), bf16: rounded(rates.bf16_per_s) },
            achieved: 1.0,
            attention: None,
            bandwidth: rounded(rates.bytes_per_s),
            sums: Some(rounded(rates.summed_bytes_per_s)),
            op: 0.0,
        },
        node: Node {
            devices: cores.get(),
            link: None,
            memory: Some(memory),
            host_link: None,
            host_updates: None,
            disk: None,
            handover: Some(handover),
        },
        network: None,
        measured: Vec::new(),
    })
}

/// The GPUs of this machine, measured by a program for GPUs, and the updates of its cores, without the disk.
fn of_gpus(program: &units::MeasuredProgram, cores: NonZeroUsize) -> Result<Hardware, CommandError> {
    say::note("measuring products, copies and links of the GPUs");
    let gpus = program.gpus()?;
    if let Some(Err(why)) = &gpus.link {
        say::note(format_args!("note: these GPUs do not reach one another, so the file has no `link`: {why}"));
    }
    say::note("measuring updates by the cores of the host");
    let updates = HostThreads::start(cores, "update").map(|threads| updated_bytes_per_s(&threads))?;
    Ok(Hardware::of_gpus(&gpus, Some(memory()?), Some(updates)))
}

/// Memory that a run can have on this host.
fn memory() -> Result<Size, CommandError> {
    Ok(Size::MiB(memory_bytes()? >> 20))
}
