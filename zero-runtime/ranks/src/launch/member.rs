//! Member: a rank that this launcher has started, and how it has ended. Does not wait for a rank whose last thread hangs in
//! a call of the system, such as a write to a disk that does not answer: no signal ends that. Never decides what an end
//! means.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ExitStatus};
use std::thread;
use std::time::{Duration, Instant};

use super::print;

/// How long the other threads of a rank may take to end once its first thread has ended.
const LINGERS_MAX: Duration = Duration::from_secs(2);
/// The time between two looks at a rank that was killed.
const INTERVAL: Duration = Duration::from_millis(2);

/// A rank that was started.
pub(super) struct Member {
    pub rank: usize,
    pub child: Child,
    /// When its first thread was found to have ended, and other threads had not.
    lingers_since: Option<Instant>,
}

impl Member {
    pub fn new(rank: usize, child: Child) -> Self {
        Self { rank, child, lingers_since: None }
    }

    /// How it has ended, if it has, or if all that is left of it hangs.
    ///
    /// # Errors
    /// The system cannot tell.
    pub fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        if let Some(status) = self.child.try_wait()? {
            return Ok(Some(status));
        }
        let status = status_of_first_thread(self.child.id());
        if status.is_none() || !self.lingers_too_long() {
            return Ok(None);
        }
        self.leave();
        Ok(status)
    }

    /// Waits for its end after it was killed, unless all that is left of it hangs.
    pub fn reap(&mut self) {
        while let Ok(None) = self.child.try_wait() {
            if status_of_first_thread(self.child.id()).is_some() && self.lingers_too_long() {
                return self.leave();
            }
            thread::sleep(INTERVAL);
        }
    }

    fn lingers_too_long(&mut self) -> bool {
        self.lingers_since.get_or_insert_with(Instant::now).elapsed() >= LINGERS_MAX
    }

    fn leave(&self) {
        let (rank, pid) = (self.rank, self.child.id());
        print(&format!(
            "note: a thread of rank {rank} (pid {pid}) hangs in a call of the system, and ends when that returns"
        ));
    }
}

/// How the first thread of a process has ended, if it has, while other threads have not. The process cannot be reaped yet.
fn status_of_first_thread(pid: u32) -> Option<ExitStatus> {
    in_stat(&std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// The status in a line of proc_pid_stat(5) whose state is that of a process that has ended. The name before the state
/// stands in brackets and may hold any character.
fn in_stat(stat: &str) -> Option<ExitStatus> {
    /// The place of `exit_code` after the name.
    const STATUS: usize = 49;
    let (_, rest) = stat.rsplit_once(") ")?;
    let mut fields = rest.split_ascii_whitespace();
    let is_ended = fields.next() == Some("Z");
    let status = fields.nth(STATUS - 1)?.parse().ok()?;
    is_ended.then(|| ExitStatus::from_raw(status))
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn the_status_of_a_process_that_is_not_reaped() {
        let mut child =
            Command::new("/bin/sh").args(["-c", "read line; exit 7"]).stdin(Stdio::piped()).spawn().unwrap();
        assert_eq!(status_of_first_thread(child.id()), None, "it runs");
        drop(child.stdin.take());
        while status_of_first_thread(child.id()).is_none() {
            thread::sleep(INTERVAL);
        }
        assert_eq!(status_of_first_thread(child.id()).and_then(|status| status.code()), Some(7));
        assert_eq!(child.wait().unwrap().code(), Some(7));
        assert_eq!(status_of_first_thread(child.id()), None, "it is gone");
    }

    #[test]
    fn a_name_may_look_like_the_rest_of_a_line() {
        let stat = |state: &str| format!("12 (a) Z 1) {state}{} 256", " 0".repeat(48));
        assert_eq!(in_stat(&stat("Z")).and_then(|status| status.code()), Some(1));
        assert_eq!(in_stat(&stat("S")), None);
        assert_eq!(in_stat("12 (a"), None);
    }
}
