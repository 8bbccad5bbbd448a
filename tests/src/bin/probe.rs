//! One of two ranks that measure the network between their hosts; the first prints bytes a second, and the latency in seconds.

use std::process::ExitCode;

use zero_runtime::transport::cluster::{Probed, probe};

fn main() -> ExitCode {
    match probe() {
        Ok(seen) => {
            if let Some(Probed { bytes_per_s, latency_s }) = seen {
                println!("{bytes_per_s} {latency_s}");
            }
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{}", error.report());
            ExitCode::from(2)
        }
    }
}
