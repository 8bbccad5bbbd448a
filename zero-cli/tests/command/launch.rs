//! What `cargo zero launch` starts: with scripts in place of ssh and of a launcher, which say how they were called.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::SIGHUP;
use signal_hook::flag;

use crate::workspace::{Workspace, said};

/// The program in place of a model. It says what its launcher needs to know, as far as these tests ask for it.
const PROGRAM: &str = r##"
fn main() {
    std::hint::black_box(include_str!(env!("ZERO_SPEC")));
    let words: Vec<String> = std::env::args().collect();
    let value = |name: &str| words.iter().position(|word| word == name).map(|at| words[at + 1].clone());
    if words.iter().any(|word| word == "--launch-options") {
        let restarts = value("--restarts").unwrap_or("0".to_owned());
        let folder = value("--checkpoint").map_or("null".to_owned(), |folder| format!("{folder:?}"));
        let (signal, grace) = (folder != "null", r#"{"secs":60,"nanos":0}"#);
        print!(r#"{{"finishes_on_signal":{signal},"grace":{grace},"restarts":{restarts},"folder":{folder},"last_step":null}}"#);
    }
}
"##;
/// Two hosts of two ranks.
const SPEC: &str =
    "(model: Package(\"model\"), mesh: (nodes: 2, ranks_per_node: 2, zero: 4), zero: (stage: 3), transport: Cluster)\n";
/// A host is a folder; it is reached if that exists.
const SSH: &str = "#!/bin/sh\ncd \"hosts/$1\" && exec sh -c \"$2\"\n";
/// Prints its version or, on one line, how it was called, with each word in angle brackets. Its exit codes are the
/// lines of the file `ends`, in turn.
const LAUNCHER: &str = "#!/bin/sh
[ \"$1\" = --version ] && exec cat version
printf 'called:'
printf ' <%s>' \"$0\" \"$@\"
echo
code=$(head -n 1 ends)
sed -i 1d ends
exit \"$code\"
";

/// A workspace with a spec for two hosts that exist, and with a launcher of this version.
fn workspace(version: &str) -> Workspace {
    let workspace = Workspace::new(PROGRAM);
    workspace.write("x.ron", SPEC);
    workspace.write("version", version);
    workspace.write("ends", "0\n");
    for (name, script) in [("ssh", SSH), ("mpirun", LAUNCHER)] {
        workspace.write(name, script);
        fs::set_permissions(workspace.root.join(name), PermissionsExt::from_mode(0o755)).expect("a script");
    }
    for host in ["a", "b"] {
        fs::create_dir_all(workspace.root.join("hosts").join(host)).expect("a folder");
    }
    workspace
}

/// The command on these hosts, with arguments of the binary.
fn launch(workspace: &Workspace, hosts: &str, arguments: &[&str]) -> Command {
    let line = format!("launch x.ron {hosts} --ssh ./ssh --launcher ./mpirun --folder bin --");
    let mut command = workspace.command(&line);
    command.args(arguments).env("ZERO_MPI", "libmpi.so.40").env_remove("ZERO_RESTART");
    command
}

/// The words of each call of the launcher.
fn calls(output: &Output) -> Vec<Vec<String>> {
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let calls = text.lines().filter_map(|line| line.strip_prefix("called: <")?.strip_suffix('>'));
    calls.map(|words| words.split("> <").map(str::to_owned).collect()).collect()
}

#[test]
fn what_is_printed_is_what_is_started_in_every_dialect() {
    for (version, starts, names) in [
        ("mpirun (Open MPI) 4.1.4\n", "--host a:2,b:2", "-x ZERO_MPI"),
        ("mpirun (Open MPI) 5.0.11\n", "--host a:2,b:2", "-x ZERO_MPI"),
        ("HYDRA build details:\n", "-hosts a:2,b:2", "-genv ZERO_MPI libmpi.so.40"),
    ] {
        let workspace = workspace(version);
        let output = launch(&workspace, "--hosts a,b", &["--data", "my text"]).output().expect("the command");
        let (calls, printed) = (calls(&output), said(output));
        let [words] = &calls[..] else { panic!("{version}: {printed}") };
        let line = words.join(" ");
        assert!(line.starts_with(&format!("./mpirun {starts}")) && line.contains(names), "{version}: {line}");
        assert_eq!(printed.lines().next().expect("a line"), line.replace("my text", "'my text'"), "{version}");
        // The program of the ranks is on both hosts, and comes after the launcher's own words.
        let program = words.iter().find(|word| word.starts_with("bin/")).expect("a program");
        assert!(line.ends_with(&format!("{program} --data my text")), "{version}: {line}");
        for host in ["a", "b"] {
            let there = workspace.root.join("hosts").join(host).join(program);
            assert!(Command::new(there).status().expect("a program").success());
        }
    }
}

#[test]
fn hosts_of_a_file_keep_their_order() {
    let workspace = workspace("mpirun (Open MPI) 4.1.4\n");
    workspace.write("hosts.txt", "b slots=8\n# a comment\na\n");
    let output = launch(&workspace, "--hostfile hosts.txt", &[]).output().expect("the command");
    assert!(calls(&output)[0].contains(&"b:2,a:2".to_owned()));
}

#[test]
fn hosts_that_do_not_fit_the_spec_or_are_not_reached_start_nothing() {
    let workspace = workspace("mpirun (Open MPI) 4.1.4\n");
    for (hosts, code) in
        [("--hosts a", "Z0458"), ("--hosts a,b,c", "Z0458"), ("--hosts a,a", "Z0459"), ("--hosts a,nowhere", "Z0459")]
    {
        let output = launch(&workspace, hosts, &[]).output().expect("the command");
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && errors.contains(&format!("error[{code}]: ")), "{hosts}: {errors}");
        assert!(calls(&output).is_empty(), "{hosts}");
    }
}

#[test]
fn a_job_that_has_lost_a_rank_is_started_again_with_the_program_on_all_hosts() {
    let workspace = workspace("mpirun (Open MPI) 4.1.4\n");
    // First a rank is killed. Then one fails for a reason that no restart can mend.
    workspace.write("ends", "137\n2\n0\n");
    let arguments = ["--restarts", "3", "--checkpoint", "runs/a"];
    let output = launch(&workspace, "--hosts a,b", &arguments).output().expect("the command");
    assert_eq!(output.status.code(), Some(2), "{}", String::from_utf8_lossy(&output.stderr));
    let calls = calls(&output);
    let told: Vec<_> = calls.iter().map(|words| words.iter().find(|it| it.starts_with("ZERO_RESTART"))).collect();
    assert_eq!(told, [Some(&"ZERO_RESTART=0".to_owned()), Some(&"ZERO_RESTART=1".to_owned())]);
    assert_eq!(fs::read_to_string(workspace.root.join("ends")).expect("what is left"), "0\n");
}

/// Far above what an end needs, and the time between two looks for it.
const PATIENCE: Duration = Duration::from_secs(60);
const INTERVAL: Duration = Duration::from_millis(20);

/// A launcher that runs until it gets a signal, and says which.
const WAITING: &str = "#!/bin/sh
[ \"$1\" = --version ] && exec cat version
trap 'exit 75' USR1
trap 'exit 143' TERM
touch started
while :; do sleep 0.05; done
";

/// The launchers of MPI pass SIGUSR1 on to the ranks, and give them the time to save.
#[test]
fn ranks_that_leave_checkpoints_are_asked_to_and_others_are_ended() {
    // A program that `nohup` starts ignores SIGHUP, and so do those that it starts, unless it has a handler.
    flag::register(SIGHUP, Arc::default()).expect("a handler");
    let run = |arguments: &[&str], signal| {
        let workspace = workspace("mpirun (Open MPI) 4.1.4\n");
        workspace.write("mpirun", WAITING);
        let mut command = launch(&workspace, "--hosts a,b", arguments).spawn().expect("the command");
        while !workspace.root.join("started").exists() {
            assert!(command.try_wait().expect("a child").is_none(), "it has ended");
            std::thread::sleep(INTERVAL);
        }
        kill_process(Pid::from_child(&command), signal).expect("a process");
        let since = Instant::now();
        loop {
            if let Some(status) = command.try_wait().expect("a child") {
                return status.code();
            }
            if since.elapsed() > PATIENCE {
                command.kill().expect("a child");
                panic!("{signal:?} did not end it");
            }
            std::thread::sleep(INTERVAL);
        }
    };
    for signal in [Signal::TERM, Signal::HUP, Signal::USR1] {
        assert_eq!(run(&["--checkpoint", "runs/a"], signal), Some(75), "{signal:?}");
    }
    assert_eq!(run(&[], Signal::TERM), Some(143));
}
