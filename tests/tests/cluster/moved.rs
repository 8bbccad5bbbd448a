//! A job that has lost a host goes on on others, from its last checkpoint.

use std::ops::Range;
use std::path::Path;

use crate::faults::Job;
use crate::net::{Mpi, Net, words};

/// As many that a job is far from its end when it loses a host.
const STEPS: &str = "400";

fn program(folder: &Path) -> String {
    format!(
        "{} --steps {STEPS} --every 20 --keep 1 --sample 0 --held-out 0 --log-every 1 --timeout 4s --checkpoint {} --resume --data {}",
        env!("CARGO_BIN_EXE_hosts"),
        folder.display(),
        crate::text().display()
    )
}

/// The last step that ranks print, with its loss and norm, and whether they were resumed.
fn ends(net: &Net, mpi: Mpi, hosts: Range<usize>, folder: &Path) -> (String, bool) {
    let environment = [("ZERO_MPI", &*mpi.library())];
    let output = net.launch_on(mpi, hosts, 2, &environment, "", &program(folder)).output().expect("a launcher");
    let all = words(&output);
    assert!(output.status.success(), "{mpi:?}: {all}");
    let last = format!("{STEPS}/{STEPS}");
    let line = all.lines().find(|line| line.contains(&last)).unwrap_or_else(|| panic!("no last step: {all}"));
    let numbers = line.split_once("loss").and_then(|(_, rest)| rest.split_once("lr")).expect("a step").0;
    (numbers.to_owned(), all.contains("resumed: "))
}

#[test]
fn a_job_that_has_lost_a_host_goes_on_on_others() {
    for mpi in Mpi::all() {
        let Some(net) = Net::of(4) else { return };
        let [moved, undisturbed] = [(); 2].map(|()| tempfile::tempdir().expect("a folder"));
        let environment = [("ZERO_MPI", &*mpi.library())];
        let mut job = Job::of(net.launch(mpi, 2, 2, &environment, &program(moved.path())));
        job.wait_for("checkpoint of step 20");
        net.kill_host(1);
        job.end(&net);
        let (expected, _) = ends(&net, mpi, 2..4, undisturbed.path());
        let (found, was_resumed) = ends(&net, mpi, 2..4, moved.path());
        assert!(was_resumed, "{mpi:?} has begun anew");
        assert_eq!(found, expected, "{mpi:?}");
    }
}
