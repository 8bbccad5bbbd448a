//! One of two ranks that measure the network between their hosts; the first prints bytes a second, and the latency in
//! seconds.

use std::process::ExitCode;

use zero_ranks::transport::cluster::{NetworkSpeed, measure_network};

fn main() -> ExitCode {
    match measure_network() {
        Ok(seen) => {
            if let Some(NetworkSpeed { bytes_per_s, latency_s }) = seen {
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
