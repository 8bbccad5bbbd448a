//! The command: measures in rounds, ours and PyTorch's in turn, and prints tables.
//!
//! `bench run NAME [ARGUMENTS]` is one run of ours, as any generated binary does it. The measuring process starts such
//! runs.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use bench::{
    Outcome, checkpoints, collectives, hosts, hosts_predicted, machine, models, overlap, predicted, rounds, tables,
    tiers,
};
use clap::{Parser, ValueEnum};

/// Times training steps at every stage and in bf16, products, collectives and the schedule; with `--python`, beside PyTorch's in turn.
#[derive(Parser)]
#[command(version, max_term_width = 100)]
struct Arguments {
    /// A Python with torch, whose steps, products and collectives are timed in turn with ours
    #[arg(long, value_name = "PATH")]
    python: Option<PathBuf>,
    /// Times that everything is measured, one round after the other
    #[arg(long, default_value_t = 3, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Timed steps of a run; the median counts
    #[arg(long, default_value_t = 12, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    steps: u32,
    /// Measure instead how much communication over an emulated link computation hides, by prefetch and bucket size
    #[arg(long)]
    overlap: bool,
    /// Measure instead the steps of every spec in `specs/` and of the benchmark's rows, or of those named alone, beside
    /// what is predicted for them; with --hosts, steps on two hosts
    #[arg(long, conflicts_with = "overlap")]
    predicted: bool,
    /// Measure instead what it costs to keep states on the disk of this folder; slower disks, and less memory than states take, need
    /// root and control groups of version 1. Its parts are speed, predicted, larger and, with --python, mapped
    #[arg(long, value_name = "FOLDER", conflicts_with_all = ["overlap", "predicted", "hosts"])]
    tiers: Option<PathBuf>,
    /// Measure instead collectives and steps between two hosts, which this folder of `tests/cluster/hosts.sh` has
    #[arg(long, value_name = "FOLDER", conflicts_with = "overlap")]
    hosts: Option<PathBuf>,
    /// The mpirun of an Open MPI that starts ranks on them
    #[arg(long, default_value = "mpirun", value_name = "PROGRAM", requires = "hosts")]
    launcher: String,
    /// Measure steps on this device
    #[arg(long, value_enum, default_value_t = Device::Cpu, conflicts_with_all = ["overlap", "predicted", "tiers"])]
    device: Device,
    /// What to measure; without any, all of the device
    #[arg(value_name = "NAME")]
    names: Vec<String>,
}

/// What trains.
#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum Device {
    /// The processor
    Cpu,
    /// One GPU; this program is built with `--features cuda`
    #[cfg(feature = "cuda")]
    Cuda,
}

impl Device {
    /// What can be measured on it.
    fn names(self) -> Vec<&'static str> {
        match self {
            Self::Cpu => rounds::names(),
            #[cfg(feature = "cuda")]
            Self::Cuda => bench::gpu::names(),
        }
    }
}

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    if let [program, run, name, rest @ ..] = arguments.as_slice()
        && run == "run"
    {
        if name == bench::figures::COLLECTIVES {
            return collectives::run();
        }
        if name == hosts::HOSTS {
            let words: Vec<String> = rest.iter().map(|word| word.to_string_lossy().into_owned()).collect();
            return hosts::run(&words);
        }
        if name == hosts::ZERO3 {
            return zero_runtime::main_from::<models::hosts_zero3::Gpt>([program].into_iter().chain(rest).cloned());
        }
        if let Some(train) = name.to_str().and_then(checkpoints::spec) {
            return train([program].into_iter().chain(rest).cloned().collect());
        }
        #[cfg(feature = "cuda")]
        if let Some(train) = name.to_str().and_then(bench::gpu::train) {
            return train([program].into_iter().chain(rest).cloned().collect());
        }
        if let Some(row) = name.to_str().and_then(models::Row::of) {
            return (row.train)([program].into_iter().chain(rest).cloned().collect());
        }
    }
    match measure(Arguments::parse_from(arguments)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn measure(arguments: Arguments) -> Outcome<()> {
    let Arguments { python, rounds, steps, overlap, predicted, tiers, hosts, launcher, device, names } = arguments;
    if let Some(folder) = tiers {
        println!("{}", machine::describe());
        return tiers::measure(&tiers::Choice { python, folder, rounds, steps, names });
    }
    if let Some(name) = names.iter().find(|name| !predicted && !device.names().contains(&name.as_str())) {
        return Err(format!("there is no `{name}` to measure: there are {}", device.names().join(", ")).into());
    }
    #[cfg(feature = "cuda")]
    if device == Device::Cuda {
        return bench::gpu::measure(python, rounds, steps, &names);
    }
    if overlap {
        return overlap::measure(rounds, steps);
    }
    if let Some(folder) = hosts {
        println!("{}", machine::describe());
        let choice = hosts::Choice { folder, launcher, python, rounds, steps };
        return if predicted { hosts_predicted::measure(&choice) } else { hosts::measure(&choice) };
    }
    if predicted {
        return predicted::measure(rounds, &names);
    }
    let machine = machine::describe();
    let measured = rounds::measure(&rounds::Choice { python, rounds, steps, names })?;
    println!("{machine}");
    let short = tables::print(&measured);
    if short.is_empty() { Ok(()) } else { Err(format!("bounds are not kept:\n  {}", short.join("\n  ")).into()) }
}
