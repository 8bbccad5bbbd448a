//! Hosts that are parts of one machine, launchers on them, and their results. Missing programs are reported and counted.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::process::Pid;
use tempfile::TempDir;
use zero_tests::long::{is_left_out, report_skipped};

/// An MPI with its launcher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mpi {
    /// Open MPI 4, with its own launcher.
    Orte,
    Mpich,
    /// Open MPI 5, whose launcher is PRRTE's.
    Prrte,
}

impl Mpi {
    /// The MPIs that Debian has side by side.
    pub const DEBIAN: [Self; 2] = [Self::Orte, Self::Mpich];

    /// All that this machine has.
    pub fn all() -> Vec<Self> {
        let newer = match own(OPENMPI, "") {
            Some(_) => Some(Self::Prrte),
            None => skipped("Open MPI 5", &format!("{OPENMPI} does not say where it is")),
        };
        Self::DEBIAN.into_iter().chain(newer).collect()
    }

    /// The launcher's name in Debian; launchers from elsewhere are in folders that variables name.
    fn launcher(self) -> String {
        match self {
            Self::Orte => "mpirun.openmpi".to_owned(),
            Self::Mpich => own(MPICH, "bin/mpiexec").unwrap_or_else(|| "mpiexec.mpich".to_owned()),
            Self::Prrte => own(OPENMPI, "bin/mpirun").expect("one of those that there are"),
        }
    }

    /// The library that belongs to it.
    pub fn library(self) -> String {
        match self {
            Self::Orte => "libmpi.so.40".to_owned(),
            Self::Mpich => own(MPICH, "lib/libmpi_abi.so.1").unwrap_or_else(|| "libmpich.so.12".to_owned()),
            Self::Prrte => own(OPENMPI, "lib/libmpi.so.40").expect("one of those that there are"),
        }
    }

    /// MPICH's library with its own binary interface, which is older than the standard one.
    pub fn library_of_mpich() -> String {
        own(MPICH, "lib/libmpi.so.12").unwrap_or_else(|| "libmpich.so.12".to_owned())
    }

    /// The command that starts this many ranks on each host. Jobs of Open MPI 4 that begin at the same time on a host sometimes
    /// fail, because both create the folder that they share. So each job has a separate folder, `apart`.
    fn line(self, hosts: &[String], each: usize, ssh: &Path, apart: &Path, environment: &[(&str, &str)]) -> String {
        let slots: Vec<String> = hosts.iter().map(|host| format!("{host}:{each}")).collect();
        let (slots, ranks, ssh) = (slots.join(","), hosts.len() * each, ssh.display());
        let given = |option: &dyn Fn(&str, &str) -> String| -> String {
            environment.iter().map(|(name, value)| format!("{} ", option(name, value))).collect()
        };
        match self {
            Self::Orte => format!(
                "{} --allow-run-as-root --mca orte_tmpdir_base {} --mca plm_rsh_agent {ssh} --mca btl_tcp_if_include eth0 \
                 --mca oob_tcp_if_include eth0 --bind-to none --host {slots} {}-n {ranks}",
                self.launcher(),
                apart.display(),
                given(&|name, value| format!("-x {name}={value}"))
            ),
            Self::Prrte => format!(
                "{} --prefix {} --allow-run-as-root --prtemca plm_ssh_agent {ssh} --mca btl_tcp_if_include eth0 --prtemca \
                 prte_if_include eth0 --bind-to none --host {slots} {}-n {ranks}",
                self.launcher(),
                own(OPENMPI, "").expect("one of those that there are"),
                given(&|name, value| format!("-x {name}={value}"))
            ),
            Self::Mpich => format!(
                "{} -launcher ssh -launcher-exec {ssh} -iface eth0 -hosts {slots} {}-n {ranks}",
                self.launcher(),
                given(&|name, value| format!("-genv {name} {value}"))
            ),
        }
    }
}

/// The variables that name folders of an MPICH and of an Open MPI 5 or later.
const MPICH: &str = "ZERO_TEST_MPICH";
const OPENMPI: &str = "ZERO_TEST_OPENMPI";

/// A file of an MPI that is installed in its own folder.
fn own(variable: &str, file: &str) -> Option<String> {
    let folder = std::env::var(variable).ok()?;
    Some(format!("{folder}/{file}"))
}

/// Some hosts, which are removed when this is dropped.
pub struct Net {
    folder: TempDir,
    pub hosts: Vec<String>,
}

/// The number of networks of this process so far, which is part of their names.
static NETS: AtomicUsize = AtomicUsize::new(0);
/// The number of jobs of this process so far.
static JOBS: AtomicUsize = AtomicUsize::new(0);

fn script() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("cluster/hosts.sh")
}

impl Net {
    /// This many hosts; none if long tests are skipped, or this machine permits none, or lacks one of the two launchers.
    pub fn of(count: usize) -> Option<Self> {
        Self::limited(count, "")
    }

    /// The same with network cards of a rate, such as `1gbit`.
    pub fn limited(count: usize, rate: &str) -> Option<Self> {
        if is_left_out("hosts") {
            return None;
        }
        let can = Command::new(script()).arg("can").status().is_ok_and(|end| end.success());
        if let Some(missing) = Mpi::DEBIAN.map(Mpi::launcher).into_iter().find(|launcher| !is_installed(launcher)) {
            return skipped("hosts", &format!("{missing} is not installed"));
        }
        if !can {
            return skipped("hosts", "this machine permits no namespaces of networks");
        }
        let folder = tempfile::tempdir().expect("a folder");
        // Names of network cards have at most 15 characters.
        let name = format!("z{}x{}h", std::process::id() % 10_000, NETS.fetch_add(1, Ordering::Relaxed));
        let net = Self { hosts: (0..count).map(|host| format!("{name}{host}")).collect(), folder };
        let mut up = Command::new(script());
        up.arg("up").arg(net.folder.path().join(&name)).arg(count.to_string()).arg(rate);
        assert!(up.status().is_ok_and(|end| end.success()), "hosts that do not start");
        Some(net)
    }

    /// The folder in which the script works.
    pub fn own(&self) -> PathBuf {
        let name = self.hosts[0].trim_end_matches('0');
        self.folder.path().join(name)
    }

    /// A command on one of the hosts.
    pub fn on(&self, host: usize, command: &str) -> Command {
        let mut on = Command::new(script());
        on.arg("on").arg(self.own()).arg(&self.hosts[host]).arg(command);
        on
    }

    /// Starts this many ranks of a program on each of the first hosts by a launcher, which is killed after a while.
    pub fn launch(&self, mpi: Mpi, hosts: usize, each: usize, environment: &[(&str, &str)], program: &str) -> Command {
        self.launch_with(mpi, hosts, each, environment, "", program)
    }

    /// The same with options of the launcher.
    pub fn launch_with(
        &self,
        mpi: Mpi,
        hosts: usize,
        each: usize,
        environment: &[(&str, &str)],
        options: &str,
        program: &str,
    ) -> Command {
        self.launch_on(mpi, 0..hosts, each, environment, options, program)
    }

    /// The same on some of the hosts, with the launcher on the first one.
    pub fn launch_on(
        &self,
        mpi: Mpi,
        hosts: Range<usize>,
        each: usize,
        environment: &[(&str, &str)],
        options: &str,
        program: &str,
    ) -> Command {
        let apart = self.own().join(format!("job{}", JOBS.fetch_add(1, Ordering::Relaxed)));
        std::fs::create_dir(&apart).expect("a folder");
        let line = mpi.line(&self.hosts[hosts.clone()], each, &self.own().join("ssh"), &apart, environment);
        self.on(hosts.start, &format!("exec timeout --kill-after 3 120 {line} {options} {program}"))
    }

    /// Starts two ranks of a program on each of two hosts by PRRTE's launcher, which Open MPI 5 includes.
    pub fn prterun(&self, options: &str, program: &str) -> Command {
        let own = |file| own(OPENMPI, file).expect("one of those that there are");
        let line = format!(
            "{} --prefix {} --allow-run-as-root --prtemca plm_ssh_agent {} --prtemca prte_if_include eth0 --bind-to none --host \
             {}:2,{}:2 -n 4 {options} {program}",
            own("bin/prterun"),
            own(""),
            self.own().join("ssh").display(),
            self.hosts[0],
            self.hosts[1]
        );
        self.on(0, &format!("exec timeout --kill-after 3 120 {line}"))
    }

    /// A program whose ranks each report to their own file, whatever a launcher does with their output.
    pub fn telling(&self, program: &str) -> String {
        let folder = self.told_folder();
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir(&folder).expect("a folder");
        format!("{}/cluster/tell.sh {} {program}", env!("CARGO_MANIFEST_DIR"), folder.display())
    }

    fn told_folder(&self) -> PathBuf {
        self.own().join("told")
    }

    /// The reports of each rank of the last such program; none if there was no such program.
    pub fn told(&self) -> Vec<(usize, String)> {
        let files = std::fs::read_dir(self.told_folder()).into_iter().flatten().flatten();
        let read = |file: std::fs::DirEntry| {
            let rank = file.file_name().to_str()?.parse().ok()?;
            Some((rank, String::from_utf8_lossy(&std::fs::read(file.path()).ok()?).into_owned()))
        };
        files.filter_map(read).collect()
    }

    /// Launchers, which run on the first host, and their helpers, each with its host.
    pub fn launchers(&self) -> Vec<(usize, Pid)> {
        let is_launcher =
            |name: &str| ["mpirun", "mpiexec", "orted", "hydra", "prte"].iter().any(|it| name.starts_with(it));
        self.processes(is_launcher)
    }

    /// Ends all of them.
    pub fn end_launchers(&self) {
        for (_, pid) in self.launchers() {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
    }

    /// The processes of all hosts whose names pass `is_such`, each with its host.
    pub fn processes(&self, is_such: impl Fn(&str) -> bool) -> Vec<(usize, Pid)> {
        let of_host = |(number, host): (usize, &String)| {
            let output = Command::new("ip").args(["netns", "pids", host]).output().expect("ip");
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            let pids: Vec<i32> = text.lines().filter_map(|line| line.trim().parse().ok()).collect();
            let name = |pid: &i32| std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
            let such = pids.into_iter().filter(|pid| is_such(name(pid).trim())).collect::<Vec<i32>>();
            such.into_iter().map(move |pid| (number, Pid::from_raw(pid).expect("a process")))
        };
        self.hosts.iter().enumerate().flat_map(of_host).collect()
    }

    /// Ends all processes of a host.
    pub fn kill_host(&self, host: usize) {
        let mut die = Command::new(script());
        assert!(die.arg("die").arg(self.own()).arg(&self.hosts[host]).status().is_ok_and(|end| end.success()));
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        let _ = Command::new(script()).arg("down").arg(self.own()).status();
    }
}

/// Whether there is such a program.
pub fn is_installed(program: &str) -> bool {
    Command::new("which").arg(program).stdout(Stdio::null()).status().is_ok_and(|end| end.success())
}

/// Reports what a test lacks.
pub fn skipped<T>(what: &str, why: &str) -> Option<T> {
    report_skipped(what, why);
    assert!(std::env::var_os("ZERO_TEST_HOSTS").is_none(), "ZERO_TEST_HOSTS asks for {what}, and {why}");
    None
}

/// What a launcher has printed.
pub fn words(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    format!("{:?}\n{}\n{}", output.status.code(), text(&output.stdout), text(&output.stderr))
}
