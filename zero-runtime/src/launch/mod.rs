//! How a binary becomes ranks: who starts whom, how ranks of one host find one another and share one piece of memory,
//! and how all of them end when one does.
//!
//! A binary started alone is the launcher ([`launch`]); started by a launcher it is one rank ([`join`]). Ranks share
//! memory that has no name in any file system, so nothing can be left behind and nothing can be stale.
//!
//! Never computes, never knows what lies in the shared memory, never ends the process of its caller.

#[cfg(not(target_os = "linux"))]
compile_error!("zero's ranks share memory by memfd and abstract Unix sockets, which only Linux has");

mod environment;
mod error;
mod launcher;
mod rendezvous;
mod segment;
mod watch;
mod wire;

pub use environment::{Place, Role, role_from};
pub use error::LaunchError;
pub use launcher::{EXIT_REPORTED, launch};
pub use rendezvous::{Joined, join};
pub use segment::{Segment, check_available};
pub use watch::{LostRank, Watch};

/// What this process is, from its environment: the launcher of `plan_ranks` ranks, or one of them.
///
/// A rank that our own launcher started is from here on killed when that launcher dies.
///
/// # Errors
/// Z0301 to Z0306 if the environment contradicts itself or the plan; Z0313 if the launcher has already died.
pub fn role(plan_ranks: usize) -> Result<Role, LaunchError> {
    let variable = |name: &str| std::env::var_os(name).map(|value| value.to_string_lossy().into_owned());
    let role = role_from(plan_ranks, |name| if name == environment::PARENT { parent() } else { variable(name) })?;
    if let Role::Rank(Place { launcher_pid: Some(pid), .. }) = &role {
        launcher::die_with(*pid)?;
    }
    Ok(role)
}

/// A name for the parent process that no other process has: its id, and when it started. None where it has ended and this
/// process is an orphan.
fn parent() -> Option<String> {
    let pid = rustix::process::getppid()?.as_raw_pid();
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // Field 22, counted behind the name in brackets, which may hold anything.
    let started = stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.to_owned();
    (pid > 1).then(|| format!("parent {pid} started {started}"))
}
