//! Measure: what this machine can do, as a file of hardware: rates of all cores at work, and what units of models take. Never
//! decides what is predicted from it.

mod trace;
mod units;

use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::Args;
use zero_plan::Hardware;
use zero_plan::hardware::{DeviceFigures, Kind, Node, Rates};
use zero_plan::spec::Size;
use zero_runtime::{Cores, launch};

use crate::error::Error;
use crate::say;

pub use trace::Recorded;

/// What to measure.
#[derive(Args, Debug, PartialEq)]
pub struct MeasureArguments {
    /// Specs whose models' units are measured, too: each is built for all cores, and trains for some steps
    pub specs: Vec<PathBuf>,
    /// The size of their models, where they come in several; without it, the smallest
    #[arg(long, value_name = "NAME")]
    pub size: Option<String>,
    /// Threads of a rank, for which units are measured; several are separated by commas
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "1")]
    pub threads: Vec<NonZeroUsize>,
    /// New file for the description; without it, it is printed
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
}

/// Measures this machine, and writes or prints its description.
pub fn measure(arguments: &MeasureArguments) -> Result<(), Error> {
    let cores =
        std::thread::available_parallelism().map_err(|source| Error::Measure { what: "count cores", source })?;
    eprintln!("measuring products and copies on {cores} cores");
    let rates = Cores::measure(cores)?;
    let memory = Size::MiB(launch::memory_bytes().map_err(zero_runtime::error::Error::from)? >> 20);
    let mut hardware = Hardware {
        name: format!("this machine, {cores} cores"),
        device: DeviceFigures {
            name: format!("a core, {}", zero_runtime::device::cpu::instructions()),
            kind: Kind::Cpu,
            memory,
            reserved: Size::B(0),
            matmul: Rates { f32: rounded(rates.f32_per_s), bf16: rounded(rates.bf16_per_s) },
            achieved: 1.0,
            bandwidth: rounded(rates.bytes_per_s),
            op: 0.0,
        },
        node: Node { devices: cores.get(), link: None, memory: Some(memory), disk: None },
        network: None,
        measured: Vec::new(),
    };
    for spec in &arguments.specs {
        for &threads in &arguments.threads {
            units::measure(spec, arguments.size.as_deref(), threads, &mut hardware)?;
        }
    }
    let text = format!(
        "// Measured by `cargo zero measure`: rates are those of one core while all of them work.\n{}\n",
        zero_plan::spec::ron_text(&hardware)
    );
    match &arguments.out {
        Some(path) => {
            let written = std::fs::File::create_new(path)
                .and_then(|mut file| std::io::Write::write_all(&mut file, text.as_bytes()));
            written.map_err(|source| Error::Output { path: path.clone(), source })
        }
        None => {
            say::line(text.trim_end());
            Ok(())
        }
    }
}

/// With four digits, which is more than a measurement has.
fn rounded(value: f64) -> f64 {
    let digits = 10f64.powi(3 - value.abs().log10().floor() as i32);
    (value * digits).round() / digits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_four_digits() {
        assert_eq!([1.234_56e11, 9.999_96e-4, 5.0].map(rounded), [1.235e11, 1e-3, 5.0]);
    }
}
