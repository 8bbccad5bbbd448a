//! Starts a program, reads its output, and makes sure that nothing of it is left. Never hangs: a run that does not end is killed,
//! and its test fails.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, LazyLock};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use signal_hook::consts::SIGHUP;
use signal_hook::flag;

use crate::system::{members, rank_of, shared_memory_files};

/// Ranks of every model here.
pub const RANKS: usize = 3;
/// A text that always exists.
pub const TEXT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");

/// Far above what any run needs.
const PATIENCE: Duration = Duration::from_secs(60);
/// One second is promised; the rest is for a machine that is busy with other tests.
const TEARDOWN_MAX: Duration = Duration::from_secs(5);
/// The time between two polls of something that cannot wake this thread.
const INTERVAL: Duration = Duration::from_millis(2);

/// A program with this file name, in an environment that has only `PATH`.
pub fn program(path: &str) -> Command {
    let mut command = Command::new(path);
    command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
    command
}

/// The model of text, for `steps` steps.
pub fn tiny(steps: u64) -> Command {
    let mut command = program(env!("CARGO_BIN_EXE_tiny"));
    command.args(["--data", TEXT, "--sample", "20", "--log-every", "1", "--steps", &steps.to_string()]);
    command
}

/// The classifier, for 6 steps, of which the third may go wrong.
pub fn faults(fault: &str) -> Command {
    let mut command = program(env!("CARGO_BIN_EXE_faults"));
    command.args(["--steps", "6"]).env("FAULT", fault);
    command
}

/// The model of text, in the middle of a run that does not end by itself.
pub fn endless() -> Run {
    let mut run = Run::start(&mut tiny(u64::MAX));
    run.wait_for_step(3);
    run
}

/// Ranks that follow instructions in variables instead of training.
pub fn scripted(told: &str, variables: &[(&str, &str)]) -> Command {
    let mut command = program(env!("CARGO_BIN_EXE_scripted"));
    command.env("DO", told).envs(variables.iter().copied());
    command
}

/// A name that no other job has.
pub fn new_job() -> String {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    format!("test-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
}

/// Starts one process for each rank, as a foreign launcher does.
pub fn start_ranks(command: impl Fn() -> Command, job: &[(&str, &str)]) -> Vec<Run> {
    let start = |rank: usize| {
        let place = [("RANK", rank), ("WORLD_SIZE", RANKS), ("LOCAL_RANK", rank)];
        let place = place.map(|(name, number)| (name, number.to_string()));
        Run::start(command().envs(place).envs(job.iter().copied()))
    };
    (0..RANKS).map(start).collect()
}

/// A run, or one rank of it under a foreign launcher: a process group.
pub struct Run {
    child: Child,
    lines: Receiver<String>,
    said: Vec<String>,
    complaints: Receiver<String>,
    complained: Vec<String>,
}

/// How a run ended.
pub struct End {
    /// None if a signal ended it.
    pub code: Option<i32>,
    /// Standard output.
    pub lines: Vec<String>,
    /// Standard error.
    pub errors: String,
    took: Duration,
}

impl Run {
    pub fn start(command: &mut Command) -> Self {
        // A program that `nohup` starts ignores SIGHUP, and so do those that it starts, unless it has a handler.
        static HEARD: LazyLock<bool> = LazyLock::new(|| flag::register(SIGHUP, Arc::default()).is_ok());
        assert!(*HEARD);
        command.process_group(0).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let lines = read_lines(child.stdout.take().unwrap());
        let complaints = read_lines(child.stderr.take().unwrap());
        Run { child, lines, said: Vec::new(), complaints, complained: Vec::new() }
    }

    /// Starts the run on one processor, where ranks that end together do so one after another.
    pub fn start_on_one_processor(command: &mut Command) -> Self {
        let start = || {
            let allowed = sched_getaffinity(None).unwrap();
            let mut one = CpuSet::new();
            one.set((0..CpuSet::MAX_CPU).find(|processor| allowed.is_set(*processor)).unwrap());
            sched_setaffinity(None, &one).unwrap();
            Run::start(command)
        };
        // In a separate thread, because processors are set for a thread and the processes that it starts.
        thread::scope(|scope| scope.spawn(start).join().unwrap())
    }

    /// Process id of the launcher, which is the process that the test started.
    pub fn launcher(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Process ids of `count` ranks in order, once there are as many.
    pub fn ranks(&self, count: usize) -> Vec<Pid> {
        let mut ranks = Vec::new();
        wait_until("the ranks do not start", || {
            ranks = members(self.launcher()).into_iter().filter_map(|pid| Some((rank_of(pid)?, pid))).collect();
            ranks.len() == count
        });
        ranks.sort_by_key(|(rank, _)| *rank);
        ranks.into_iter().map(|(_, pid)| pid).collect()
    }

    /// Waits until step `number`, counted from 1, has been done.
    pub fn wait_for_step(&mut self, number: u64) {
        let start = format!("step {number:>4}/");
        while !self.said.last().is_some_and(|line| line.starts_with(&start)) {
            let line = self.lines.recv_timeout(PATIENCE).expect("a run that comes to its next step");
            self.said.push(line);
        }
    }

    /// Waits until `count` more lines of standard output end with `end`.
    pub fn wait_for(&mut self, count: usize, end: &str) {
        let mut left = count;
        while left > 0 {
            let line = self.lines.recv_timeout(PATIENCE).expect("a run that says more");
            left -= usize::from(line.ends_with(end));
            self.said.push(line);
        }
    }

    /// Waits for the next line of standard output that begins with `start`.
    pub fn line(&mut self, start: &str) -> String {
        loop {
            let line = self.lines.recv_timeout(PATIENCE).expect("a run that says more");
            self.said.push(line.clone());
            if line.starts_with(start) {
                return line;
            }
        }
    }

    /// Waits for the next line of standard error.
    pub fn next_complaint(&mut self) -> String {
        let line = self.complaints.recv_timeout(PATIENCE).expect("a complaint");
        self.complained.push(line.clone());
        line
    }

    /// Waits for a line of standard output that `then` has caused.
    pub fn goes_on_after(&mut self, then: impl FnOnce()) {
        self.said.extend(self.lines.try_iter());
        then();
        self.said.push(self.lines.recv_timeout(PATIENCE).expect("a run that goes on"));
    }

    /// Closes standard output after the next line.
    pub fn stop_reading(&mut self) {
        self.lines = channel().1;
    }

    /// Waits for the end of the run and of all its processes.
    pub fn end(mut self) -> End {
        let start = Instant::now();
        let mut status = None;
        wait_until("the run does not end", || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        let code = status.and_then(|status| status.code());
        // A launcher that ends by itself has reaped its ranks; one that was killed has not, and they take a moment.
        let left = members(self.launcher());
        assert!(left.is_empty() || code.is_none(), "processes are left: {left:?}");
        wait_until("ranks outlive their launcher", || members(self.launcher()).is_empty());
        let took = start.elapsed();
        assert_eq!(shared_memory_files(), Vec::<String>::new(), "left in /dev/shm by this run or by an older one");
        self.complained.extend(self.complaints.iter());
        let errors = self.complained.iter().map(|line| format!("{line}\n")).collect();
        self.said.extend(self.lines.iter());
        End { code, lines: std::mem::take(&mut self.said), errors, took }
    }

    /// Waits for the end of a run that has just been interrupted, or will be in its first moments: within a second, nothing of it
    /// is left.
    pub fn end_at_once(self) -> End {
        let end = self.end();
        assert!(end.took < TEARDOWN_MAX, "it took {:?}", end.took);
        end
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        // Fails if all have ended.
        let _ = kill_process_group(self.launcher(), Signal::KILL);
        let _ = self.child.wait();
    }
}

impl End {
    /// The results: number, loss, norm and learning rate of each step, without timing and memory.
    pub fn steps(&self) -> Vec<&str> {
        let steps = self.lines.iter().filter(|line| line.starts_with("step "));
        steps.map(|line| line.rsplitn(3, "  ").last().unwrap()).collect()
    }

    /// Asserts that all went well, in `steps` steps.
    pub fn assert_success(&self, steps: usize) {
        assert_eq!((self.code, self.errors.as_str(), self.steps().len()), (Some(0), "", steps));
    }

    /// Asserts that it ended with `code` and reported one error, whose first line begins with `start`.
    pub fn assert_error(&self, code: i32, start: &str) {
        let errors: Vec<&str> = self.errors.lines().filter(|line| line.starts_with("error")).collect();
        assert!(matches!(errors[..], [only] if only.starts_with(start)), "expected `{start}`, found: {}", self.errors);
        assert_eq!(self.code, Some(code), "{}", self.errors);
    }
}

/// The lines of an output, read as they arrive even if no test waits for them: a full pipe would stop the ranks.
fn read_lines(output: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, lines) = channel();
    thread::spawn(move || BufReader::new(output).lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
    lines
}

/// Waits until a condition holds; panics if it does not for a long time.
pub fn wait_until(otherwise: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "{otherwise}");
        thread::sleep(INTERVAL);
    }
}
