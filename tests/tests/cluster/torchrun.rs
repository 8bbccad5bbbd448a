//! Torchrun starts the ranks of one host; on several hosts, it provides no MPI.

use std::io::Read;
use std::process::{Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use zero_tests::long::is_left_out;

use crate::net::{Mpi, Net, is_installed, skipped, words};

/// Torchrun's command, which is ended after a while. With `--foreground`, a signal is passed on only to torchrun.
struct Torchrun {
    launcher: String,
    /// The folder for torchrun's own files.
    folder: TempDir,
}

impl Torchrun {
    fn find() -> Option<Self> {
        if is_left_out("torchrun") {
            return None;
        }
        let launcher = std::env::var("ZERO_TEST_TORCHRUN").unwrap_or_else(|_| "torchrun".to_owned());
        if !is_installed(&launcher) {
            return skipped("torchrun", &format!("{launcher} is not installed"));
        }
        Some(Self { launcher, folder: tempfile::tempdir().expect("a folder") })
    }

    /// The command that starts `each` ranks of a program on this host, one of `hosts` that meet at an address. Port 0 stands for
    /// any free port.
    fn line(&self, hosts: usize, each: usize, address: &str, program: &str) -> String {
        let folder = self.folder.path().display();
        // Torchrun 1.13 under Python 3.11 does not start unless an option names ranks whose output goes to a file: here, a rank
        // that does not exist.
        format!(
            "exec env TMPDIR={folder} timeout --foreground --kill-after 3 120 {} --no_python --nnodes {hosts} \
             --nproc_per_node {each} --rdzv_backend c10d --rdzv_endpoint {address} --rdzv_id zero --redirects 9:1 --tee 9:1 \
             {program}",
            self.launcher
        )
    }

    /// This many ranks on this host.
    fn here(&self, ranks: usize, program: &str) -> Command {
        let mut command = Command::new("sh");
        command.arg("-c").arg(self.line(1, ranks, "localhost:0", program)).stdin(Stdio::null());
        command
    }
}

fn tiny(arguments: &str) -> String {
    let (program, text) = (env!("CARGO_BIN_EXE_tiny"), crate::text());
    format!("{program} --sample 0 --held-out 0 --log-every 1 --data {} {arguments}", text.display())
}

/// The lines of a program's output, in an order that does not depend on the timing of ranks.
fn sorted(output: &Output) -> Vec<String> {
    assert!(output.status.success(), "{}", words(output));
    let mut lines: Vec<String> = String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

#[test]
fn ranks_of_one_host_compute_the_bits_of_our_own_launcher() {
    let Some(torchrun) = Torchrun::find() else { return };
    let program = env!("CARGO_BIN_EXE_spec");
    let own = Command::new(program).arg("zero3").output().unwrap();
    let output = torchrun.here(2, &format!("{program} zero3")).output().unwrap();
    let lines = sorted(&output);
    assert_eq!((lines.len(), &lines), (2, &sorted(&own)));
}

#[test]
fn when_it_is_told_to_end_ranks_leave_a_checkpoint() {
    let Some(torchrun) = Torchrun::find() else { return };
    let runs = torchrun.folder.path().join("runs");
    let program = tiny(&format!("--steps 100000000 --checkpoint {}", runs.display()));
    let mut child = torchrun.here(3, &program).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stdout = child.stdout.take().expect("piped");
    let (mut seen, mut bytes) = (String::new(), [0; 4096]);
    while !seen.contains("tokens/s") {
        let read = stdout.read(&mut bytes).expect("text");
        assert!(read > 0, "{}", words(&child.wait_with_output().unwrap()));
        seen += &String::from_utf8_lossy(&bytes[..read]);
    }
    let drain = std::thread::spawn(move || {
        let _ = stdout.read_to_string(&mut seen);
        seen
    });
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    let output = child.wait_with_output().unwrap();
    let all = drain.join().expect("text");
    assert!(all.contains("asked to end: stopped after step"), "{all}{}", words(&output));
    let saved = std::fs::read_dir(&runs).unwrap().filter_map(|entry| entry.unwrap().file_name().into_string().ok());
    assert_eq!(saved.filter(|name| name.starts_with("step-")).count(), 1, "{all}");
}

#[test]
fn z0452_there_is_no_mpi_under_it() {
    let (Some(torchrun), Some(net)) = (Torchrun::find(), Net::of(2)) else { return };
    let text = crate::text();
    let program =
        format!("{} --steps 3 --sample 0 --held-out 0 --data {}", env!("CARGO_BIN_EXE_hosts"), text.display());
    // The first host of every network has this address; no other network has it.
    let line = torchrun.line(2, 2, "10.99.0.1:29400", &program);
    let start = |host| {
        let mut command = net.on(host, &line);
        command.env("ZERO_MPI", Mpi::Orte.library()).stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    for child in [start(0), start(1)] {
        let output = child.wait_with_output().unwrap();
        let all = words(&output);
        assert!(!output.status.success(), "{all}");
        assert!(all.contains("error[Z0452]: MPI has rank 0 of 1 here"), "{all}");
    }
}
