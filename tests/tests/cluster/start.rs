//! Runs that must not begin: each mistake is one error with its code, on the host with the mistake, and nothing hangs.

use std::path::Path;
use std::process::Output;

use crate::faults::assert_nothing_left;
use crate::net::{Mpi, Net, words};

const PROGRAM: &str = env!("CARGO_BIN_EXE_hosts");

/// Trains for some steps on two hosts of two ranks, with arguments and variables.
fn run(net: &Net, mpi: Mpi, environment: &[(&str, &str)], program: &str) -> Output {
    let library = mpi.library();
    let library = ("ZERO_MPI", &*library);
    let environment: Vec<_> = [library].iter().chain(environment).copied().collect();
    net.launch(mpi, 2, 2, &environment, program).output().expect("a launcher")
}

fn trains(arguments: &str) -> String {
    format!("{PROGRAM} --steps 3 --sample 0 --held-out 0 --log-every 1 --data {} {arguments}", crate::text().display())
}

/// Asserts that a start has failed with an error of this code that contains this text, and with no other code.
pub fn assert_refused(output: &Output, code: &str, says: &str) {
    assert_refused_beside(output, code, says, &[]);
}

/// The same, where ranks of other hosts may have ended with another code.
fn assert_refused_beside(output: &Output, code: &str, says: &str, beside: &[&str]) {
    let all = words(output);
    assert!(!output.status.success(), "{all}");
    assert!(all.contains(&format!("error[{code}]: ")) && all.contains(says), "expected {code}, {says}: {all}");
    let is_known = |rest: &&str| rest.starts_with(code) || beside.iter().any(|beside| rest.starts_with(beside));
    let others = all.split("error[").skip(1).filter(|rest| !is_known(rest));
    assert_eq!(others.count(), 0, "{all}");
}

#[test]
fn it_trains_and_measures_what_was_planned() {
    let Some(net) = Net::of(2) else { return };
    for mpi in Mpi::all() {
        assert_trained(&run(&net, mpi, &[], &trains("")), &format!("{mpi:?}"));
    }
}

/// Asserts that two hosts of two ranks have trained.
fn assert_trained(output: &Output, what: &str) {
    let all = words(output);
    assert!(output.status.success() && all.contains("bytes copied per step") && all.contains("3/3"), "{what}: {all}");
}

/// The launcher's variables determine which library is searched first.
#[test]
fn it_trains_without_being_told_which_library() {
    let Some(net) = Net::of(2) else { return };
    for mpi in Mpi::all() {
        let library = mpi.library();
        let folder = Path::new(&library).parent().unwrap_or(Path::new("")).display().to_string();
        let environment = [("LD_LIBRARY_PATH", &*folder)];
        let environment = if folder.is_empty() { &[][..] } else { &environment };
        assert_trained(&net.launch(mpi, 2, 2, environment, &trains("")).output().unwrap(), &format!("{mpi:?}"));
    }
}

#[test]
fn it_trains_over_the_interface_that_mpich_had_before_there_was_a_standard() {
    let Some(net) = Net::of(2) else { return };
    let library = Mpi::library_of_mpich();
    let output = net.launch(Mpi::Mpich, 2, 2, &[("ZERO_MPI", &*library)], &trains("")).output().unwrap();
    assert_trained(&output, &library);
}

#[test]
fn it_trains_under_prterun_that_is_told_whose_ranks_it_starts() {
    let Some(net) = Net::of(2) else { return };
    if !Mpi::all().contains(&Mpi::Prrte) {
        return;
    }
    let told = format!("--personality ompi --mca btl_tcp_if_include eth0 -x ZERO_MPI={}", Mpi::Prrte.library());
    assert_trained(&net.prterun(&told, &trains("")).output().unwrap(), "prterun");
    assert_refused(&net.prterun("", &trains("")).output().unwrap(), "Z0301", "`prterun --personality ompi`");
}

#[test]
fn z0450_no_library() {
    let Some(net) = Net::of(2) else { return };
    let output = net.launch(Mpi::Orte, 2, 2, &[("ZERO_MPI", "libnothing.so.1")], &trains("")).output().unwrap();
    assert_refused(&output, "Z0450", "libnothing.so.1");
}

#[test]
fn z0451_a_library_that_is_no_mpi() {
    let Some(net) = Net::of(2) else { return };
    let output = net.launch(Mpi::Orte, 2, 2, &[("ZERO_MPI", "libm.so.6")], &trains("")).output().unwrap();
    assert_refused(&output, "Z0451", " has no `MPI_");
}

#[test]
fn z0450_and_z0451_name_the_host_that_has_no_such_library() {
    let Some(net) = Net::of(2) else { return };
    let (folder, usual, second) = (tempfile::tempdir().expect("a folder"), trains(""), &net.hosts[1]);
    for mpi in Mpi::all() {
        for (library, code, says) in [
            ("libnothing.so.1", "Z0450", format!("no MPI library can be opened on {second}: libnothing.so.1: ")),
            ("libm.so.6", "Z0451", format!("libm.so.6 on {second} has no `MPI_")),
        ] {
            let program = chosen(&net, folder.path(), &usual, &format!("env ZERO_MPI={library} {usual}"));
            // MPICH's launcher lets the first host wait; Open MPI's ends its ranks one by one, and a rank may notice the end of another.
            let output = run(&net, mpi, &[("ZERO_JOIN_TIMEOUT_S", "3")], &program);
            assert_refused_beside(&output, code, &says, &["Z0457", "Z0314"]);
        }
    }
}

/// A script that does one thing on the first host, and another one on the second.
pub fn chosen(net: &Net, folder: &Path, first: &str, then: &str) -> String {
    let script = folder.join("chosen.sh");
    let text = format!("#!/bin/sh\n[ \"$(hostname)\" = {} ] && exec {then}\nexec {first}\n", net.hosts[1]);
    std::fs::write(&script, text).expect("room");
    std::fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    script.display().to_string()
}

#[test]
fn z0452_the_library_of_another_launcher() {
    // One rank on each host: Open MPI would treat two on one host as separate jobs, and one may fail because both create its folder.
    let Some(net) = Net::of(3) else { return };
    let library = Mpi::Orte.library();
    let (other, lone) = (("ZERO_MPI", &*library), trains("").replacen(PROGRAM, &format!("{PROGRAM} lone"), 1));
    let output = net.launch(Mpi::Mpich, 3, 1, &[other], &lone).output().unwrap();
    assert_refused(&output, "Z0452", "MPI has rank 0 of 1 here");
}

/// Each host reports its finding, but the launcher may end the other host before.
fn assert_names_a_host(net: &Net, output: &Output, says: impl Fn(&str) -> String) {
    let all = words(output);
    assert!(net.hosts.iter().any(|host| all.contains(&says(host))), "expected `{}`: {all}", says("HOST"));
}

#[test]
fn z0305_a_world_of_another_size() {
    let Some(net) = Net::of(2) else { return };
    let output = net.launch(Mpi::Mpich, 2, 1, &[], &trains("")).output().unwrap();
    assert_refused(&output, "Z0305", "is for 4 ranks");
    assert_names_a_host(&net, &output, |host| format!(" on {host}, but the plan"));
}

#[test]
fn z0453_ranks_that_are_dealt_out_like_cards() {
    let Some(net) = Net::of(2) else { return };
    let dealt = net.launch_with(Mpi::Orte, 2, 2, &[], "--map-by node", &trains("")).output().unwrap();
    assert_refused(&dealt, "Z0453", "expected");
    assert_names_a_host(&net, &dealt, |host| format!(" on {host} is number "));
}

#[test]
fn z0453_all_ranks_on_one_host() {
    let Some(net) = Net::of(2) else { return };
    let output = net.launch(Mpi::Mpich, 1, 4, &[], &trains("")).output().unwrap();
    assert_refused(&output, "Z0453", "expected");
}

#[test]
fn z0454_what_differs_on_one_host_is_named_with_it() {
    let Some(net) = Net::of(2) else { return };
    let folder = tempfile::tempdir().expect("a folder");
    // A binary with one more byte at its end, on the second host alone.
    let other = folder.path().join("other");
    let mut bytes = std::fs::read(PROGRAM).expect("the program");
    bytes.push(0);
    std::fs::write(&other, bytes).expect("room");
    std::fs::set_permissions(&other, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let second = net.hosts[1].clone();
    let chosen = |first: &str, then: &str| chosen(&net, folder.path(), first, then);
    let usual = trains("");
    for (then, what) in [
        (usual.replace(PROGRAM, &other.display().to_string()), "another binary"),
        (trains("--lr 0.5"), "another set of arguments or data"),
        (trains("--seed 7"), "another set of arguments or data"),
        (
            usual.replace(&crate::text().display().to_string(), &own_text(folder.path())),
            "another set of arguments or data",
        ),
    ] {
        let output = run(&net, Mpi::Mpich, &[], &chosen(&usual, &then));
        assert_refused(&output, "Z0454", &format!("rank 2 on {second}, rank 3 on {second} have {what}"));
    }
    // One binary that trains another spec there.
    let spec = |stage: u8| format!("{} zero3 mesh=1x1x4 hosts=2 stage={stage}", env!("CARGO_BIN_EXE_spec"));
    let output = run(&net, Mpi::Orte, &[], &chosen(&spec(3), &spec(2)));
    let says = format!("rank 2 on {second}, rank 3 on {second} have another plan");
    // Open MPI may end a rank of one host when the ranks of the other have left, and its host peer then reports it missing.
    assert_refused_beside(&output, "Z0454", &says, &["Z0314"]);
}

/// A text other than that of the tests.
fn own_text(folder: &Path) -> String {
    let path = folder.join("own.txt");
    std::fs::write(&path, "another text. ".repeat(2000)).expect("room");
    path.display().to_string()
}

#[test]
fn z0455_without_a_launcher() {
    let Some(net) = Net::of(1) else { return };
    assert_refused(&net.on(0, &trains("")).output().unwrap(), "Z0455", "is for 2 hosts");
}

#[test]
fn a_host_whose_shared_memory_is_full_is_named() {
    for mpi in Mpi::all() {
        let Some(net) = Net::of(2) else { return };
        let full = "mount -t tmpfs -o size=64k tmpfs /dev/shm && head -c 60k /dev/zero > /dev/shm/full";
        assert!(net.on(1, full).status().is_ok_and(|end| end.success()));
        let (output, second) = (run(&net, mpi, &[("ZERO_JOIN_TIMEOUT_S", "3")], &trains("")), &net.hosts[1]);
        match mpi {
            // Open MPI warns, and its ranks work without this folder: the memory that our ranks share is not a file there.
            Mpi::Orte | Mpi::Prrte => {
                let all = words(&output);
                assert!(output.status.success() && all.contains("3/3") && all.contains(second), "{all}");
            }
            // Without our own check, MPICH would write there, and a signal would end the rank. MPICH's launcher lets the first host
            // wait.
            Mpi::Mpich => {
                let says = format!("/dev/shm on {second} has room for 4.0 KiB");
                assert_refused_beside(&output, "Z0331", &says, &["Z0457"]);
            }
        }
        assert_nothing_left(&net);
        let left = net.on(1, "ls -A /dev/shm").output().unwrap();
        assert_eq!(String::from_utf8_lossy(&left.stdout).trim(), "full");
    }
}

#[test]
fn two_jobs_on_the_same_hosts_do_not_meet() {
    let Some(net) = Net::of(2) else { return };
    for mpi in Mpi::all() {
        let mut jobs: Vec<_> = (0..2)
            .map(|_| {
                let mut job = net.launch(mpi, 2, 2, &[("ZERO_MPI", &*mpi.library())], &trains(""));
                job.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
                job.spawn().expect("a launcher")
            })
            .collect();
        for job in jobs.drain(..) {
            let output = job.wait_with_output().unwrap();
            assert!(output.status.success(), "{mpi:?}: {}", words(&output));
        }
    }
}
