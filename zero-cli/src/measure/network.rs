//! Network: the link between two hosts, measured by two ranks there that run this same program. Never knows a plan.

use std::process::Stdio;

use zero_plan::spec::ron_text;
use zero_ranks::transport::cluster;
use zero_study::hardware::{Network, rounded};

use crate::error::CommandError;
use crate::launch::Reach;
use crate::say;

/// Measures the network between the first two hosts.
pub fn measure(reach: &Reach) -> Result<Network, CommandError> {
    let failed = |what: String| CommandError::NoNetworkMeasured { what };
    let own = std::env::current_exe().map_err(|source| CommandError::Measure { what: "find this program", source })?;
    let mut hosts = reach.all()?;
    if hosts.len() < 2 {
        return Err(failed(format!("it needs two hosts, but {} is named", hosts.len())));
    }
    hosts.truncate(2);
    say::note(format_args!("measuring the network between {} and {}", hosts[0], hosts[1]));
    let mut command = reach.command(&own, &hosts)?;
    command.args(["measure", "--network-rank"]).stderr(Stdio::inherit());
    let output =
        command.output().map_err(|source| CommandError::NoLauncher { launcher: reach.launcher.clone(), source })?;
    if !output.status.success() {
        return Err(failed(format!("its ranks ended with {}", output.status)));
    }
    let said = String::from_utf8_lossy(&output.stdout);
    Network::parse(said.trim()).map_err(|_| failed(format!("its ranks printed `{}`", said.trim())))
}

/// Runs one of the two ranks; the first prints what both measured.
pub fn rank() -> Result<(), CommandError> {
    let seen = cluster::measure_network()?;
    if let Some(cluster::NetworkSpeed { bytes_per_s, latency_s }) = seen {
        say::line(ron_text(&Network { bandwidth: rounded(bytes_per_s), latency: rounded(latency_s), links: 1 }));
    }
    Ok(())
}
