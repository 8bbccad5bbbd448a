//! Silent: describes a rank that others have waited for in vain: its process, the state of that process in the kernel,
//! and the last ops of this rank and of the waiting rank. Never touches the process.

use core::fmt;
use std::time::Duration;

/// A rank that has not arrived in time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Silent {
    /// The missing rank.
    pub rank: usize,
    /// Its process; `None` if the process has never recorded its id.
    pub pid: Option<u32>,
    /// The state of that process, according to the kernel.
    pub life: Life,
    /// The host that it runs on.
    pub host: String,
    /// The op that it was last in.
    pub doing: String,
    /// The rank that has waited.
    pub waiting: usize,
    /// The rank that the waiting rank has waited for, and the op of that wait.
    pub wait: String,
    /// How long it has waited.
    pub waited: Duration,
}

/// The state of a process, according to the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    /// It is this process: the rank is one of its threads.
    Own,
    /// It runs, or sleeps until an event.
    Runs,
    /// A signal has stopped it, or a debugger.
    Stopped,
    /// It has ended.
    Gone,
    /// It is on another host.
    Elsewhere,
    /// Nothing is known.
    Unknown,
}

impl Life {
    /// Bits of a word that hold a life.
    pub const BITS: u32 = 3;

    /// The life that the lower bits of a word from another host encode.
    pub fn of_code(word: u64) -> Self {
        let code = word & ((1 << Life::BITS) - 1);
        match [Life::Own, Life::Runs, Life::Stopped, Life::Gone].into_iter().find(|&life| life as u64 == code) {
            // `Own` is the process that has reported, which is not this process.
            Some(Life::Own) => Life::Runs,
            life => life.unwrap_or(Life::Unknown),
        }
    }

    /// Whether a process would go on if its wait ended.
    pub fn goes_on(self) -> bool {
        !matches!(self, Life::Stopped | Life::Gone)
    }

    /// The state of `pid`, according to the kernel.
    pub fn of(pid: Option<u32>) -> Self {
        match pid {
            None => Life::Unknown,
            Some(pid) if pid == std::process::id() => Life::Own,
            Some(pid) => match std::fs::read_to_string(format!("/proc/{pid}/stat")) {
                Ok(stat) => Life::in_stat(&stat),
                Err(_) => Life::Gone,
            },
        }
    }

    /// The state in a line of proc_pid_stat(5): a letter after the name, which stands in brackets and may hold any character.
    fn in_stat(stat: &str) -> Self {
        match stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next()) {
            Some('T' | 't') => Life::Stopped,
            Some('Z' | 'X') => Life::Gone,
            Some(_) => Life::Runs,
            None => Life::Unknown,
        }
    }
}

impl core::error::Error for Silent {}

impl fmt::Display for Silent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rank, pid, life, host, doing, waiting, wait, waited } = self;
        let pid = pid.map_or("a process that has not begun its work".to_owned(), |pid| format!("pid {pid}"));
        let seconds = waited.as_secs_f64();
        writeln!(f, "error[Z0402]: after {seconds} s, rank {rank} ({pid} on {host}) has not answered: {life}")?;
        writeln!(f, "  --> rank {rank} was last in {doing}")?;
        writeln!(f, "  --> rank {waiting} waits for {wait}")?;
        write!(f, "  = help: {}", life.help())
    }
}

impl fmt::Display for Life {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Life::Own => "it is a thread of this process",
            Life::Runs => "it is neither stopped nor gone",
            Life::Stopped => "it is stopped",
            Life::Gone => "it is gone",
            Life::Elsewhere => "it is on another host",
            Life::Unknown => "nothing is known of it",
        })
    }
}

impl Life {
    fn help(self) -> &'static str {
        match self {
            Life::Stopped => {
                "a signal has stopped it: Ctrl-Z, a debugger, or a scheduler that makes room; `kill -CONT` would have \
                 continued it"
            }
            Life::Gone => "its own output or its launcher says why; if neither does, see `dmesg`",
            Life::Elsewhere => {
                "check whether that host is up and reachable, what the rank's own output says, and whether a signal has stopped it; \
                 if an op takes that long, raise --timeout"
            }
            Life::Own | Life::Runs | Life::Unknown => {
                "check what delays it: a disk, a full memory, another program on its processors; if an op takes that \
                 long, raise --timeout"
            }
        }
    }
}

#[cfg(test)]
#[path = "silent_tests.rs"]
mod tests;
