//! A profile of ranks of several hosts has one time axis, although their clocks do not agree.

use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::net::{Mpi, Net, skipped, words};

/// Seconds by which the clock of the second host is ahead.
const AHEAD_S: u32 = 1000;

/// Steps of a run, of which those after the second are recorded.
const STEPS: usize = 6;

/// Whether a process may have its own monotonic clock.
fn may_shift_clocks() -> bool {
    let shifted = Command::new("unshare").args(["--time", "--monotonic", "1", "true"]).stderr(Stdio::null()).status();
    shifted.is_ok_and(|end| end.success())
}

/// Trains four ranks on two hosts whose clocks differ, with a profile, and asserts that the profile does not show the difference.
/// Skips the test if this machine permits no such clocks.
pub fn recorded_on_one_axis(net: &Net, mpi: Mpi, program: &str, variables: &[(&str, &str)]) {
    if !may_shift_clocks() {
        return skipped::<()>("clocks", "this machine permits no namespaces of time").unwrap_or(());
    }
    let folder = tempfile::tempdir().expect("a folder");
    let (profile, script) = (folder.path().join("profile.json"), folder.path().join("shifted.sh"));
    let (text, file) = (crate::text(), profile.display());
    let program =
        format!("{program} --steps {STEPS} --sample 0 --held-out 0 --data {} --profile {file}", text.display());
    let second = &net.hosts[1];
    let text = format!(
        "#!/bin/sh\n[ \"$(hostname)\" = {second} ] && exec unshare --time --monotonic {AHEAD_S} {program}\nexec {program}\n"
    );
    std::fs::write(&script, text).expect("room");
    std::fs::set_permissions(&script, PermissionsExt::from_mode(0o755)).expect("my own file");
    let library = mpi.library();
    let environment = [&[("ZERO_MPI", &*library)], variables].concat();
    let output = net.launch(mpi, 2, 2, &environment, &script.display().to_string()).output().expect("a launcher");
    let all = words(&output);
    assert!(output.status.success(), "{mpi:?}: {all}");
    assert_eq!(all.matches("clocks of hosts are within ").count(), 1, "{mpi:?}: {all}");
    let profile = std::fs::read_to_string(&profile).expect("a profile");
    assert_on_one_axis(&serde_json::from_str(&profile).expect("JSON"));
}

#[test]
fn ranks_of_hosts_whose_clocks_differ_are_on_one_axis_of_time() {
    let Some(net) = Net::of(2) else { return };
    for mpi in Mpi::all() {
        recorded_on_one_axis(&net, mpi, env!("CARGO_BIN_EXE_hosts"), &[]);
    }
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

/// Asserts that the profile has the difference of the clocks within its stated error, and that no rank ends an exchange of all
/// ranks before another one begins it.
fn assert_on_one_axis(profile: &Value) {
    let (clocks, within_us) = (&profile["otherData"]["clocks"], number(&profile["otherData"]["clocks_within_us"]));
    // Other programs may use both processors for some time slices.
    assert!(within_us > 0.0 && within_us < 1e5, "{clocks}");
    for (host, ahead_us) in [0.0, f64::from(AHEAD_S) * 1e6].into_iter().enumerate() {
        let error_us = number(&clocks[host]["error_us"]);
        for offset in clocks[host]["offsets_us"].as_array().expect("two looks") {
            // Rounding cuts off up to half a nanosecond.
            assert!((number(offset) + ahead_us).abs() <= error_us + 0.001, "host {host}: {clocks}");
        }
    }
    let events = profile["traceEvents"].as_array().expect("events");
    let of_rank = |rank: usize| -> Vec<(f64, f64)> {
        let own = events.iter().filter(|event| event["pid"] == rank + 1 && event["name"] == "agree");
        own.map(|event| (number(&event["ts"]), number(&event["ts"]) + number(&event["dur"]))).collect()
    };
    let ranks: Vec<Vec<(f64, f64)>> = (0..4).map(of_rank).collect();
    for step in 0..STEPS - 2 {
        let begins = ranks.iter().map(|rank| rank[step].0).fold(0.0, f64::max);
        let ends = ranks.iter().map(|rank| rank[step].1).fold(f64::INFINITY, f64::min);
        assert!(ends >= begins - within_us, "step {step}: one ends at {ends}, another begins at {begins}: {clocks}");
    }
}
