//! Launch: how a binary becomes ranks. A launcher starts them, the ranks of one host find one another and share one
//! piece of memory, and all of them end when one does.
//!
//! A binary started alone is the launcher ([`launch`]); started by a launcher it is one rank ([`join`]). Ranks share
//! memory that has no name in any file system, so a run leaves nothing there, and finds nothing of another run.
//!
//! Never computes, never knows the contents of the shared memory, never ends the process of its caller.

#[cfg(not(target_os = "linux"))]
compile_error!("zero's ranks share memory by memfd and abstract Unix sockets, which only Linux has");

mod environment;
mod error;
mod exchange;
mod finding;
mod foreign;
mod launcher;
mod listener;
mod local_ranks;
mod member;
mod options;
mod order;
mod rendezvous;
mod request;
mod restarts;
mod signals;
mod watch;
mod wire;

use zero_core::control::NOTICE;

pub use environment::{JobPlace, RESTART, Role};
use environment::{company_from, role_from};
pub use error::LaunchError;
pub use finding::RankFindings;
pub use finding::print;
pub use foreign::launch_by;
pub use launcher::launch;
pub use options::{
    EXIT_AGAIN, EXIT_ASKED, EXIT_NOT_SAVED, EXIT_RANK_FAILED, EXIT_REPORTED, LaunchAnswer, LaunchOptions, RunFolder,
};
pub use order::keep_launch_order;
pub use rendezvous::{Joined, fail, join};
pub use request::{asked_to_end, end_on_request, end_on_request_by};
pub use signals::take_signals;
pub use watch::{Watch, leave};

/// Reports that `rank` has waited for `periods` times [`NOTICE`], and for whom, if another report is due.
pub fn note(rank: usize, periods: u32, for_whom: impl FnOnce() -> String) {
    if periods.is_power_of_two() {
        let seconds = u64::from(periods) * NOTICE.as_secs();
        print(&format!("note: rank {rank} has waited {seconds} s for {}", for_whom()));
    }
}

/// The role of this process, from its environment: the launcher of `plan_ranks` ranks, or one of them.
///
/// From here on, a rank that our own launcher started is killed when that launcher dies, and the process is listed
/// under its program's name. Signals are those of [`take_signals`].
///
/// # Errors
/// Z0301 to Z0306 and Z0315 if the environment contradicts itself or the plan; Z0313 if the launcher has already died; Z0332
/// if the system refuses to change what this process does on signals.
pub fn role(plan_ranks: usize) -> Result<Role, LaunchError> {
    take_signals()?;
    launcher::take_program_name();
    let role = role_from(plan_ranks, variable)?;
    if let Role::Rank(JobPlace { launcher_pid: Some(pid), .. }) = &role {
        launcher::die_with(*pid)?;
    }
    Ok(role)
}

/// The place of this process among its peers, as far as its environment shows it, even if that contradicts itself.
/// [`fail`] needs it to report an error. None if it is the only process.
pub fn company(plan_ranks: usize) -> Option<JobPlace> {
    company_from(plan_ranks, variable)
}

/// Whether our own launcher has started this process.
pub fn has_own_launcher() -> bool {
    std::env::var_os(environment::LAUNCHER_PID).is_some()
}

/// Whether this rank was restarted, with all others: the run then goes on from the newest checkpoint, whatever its
/// arguments say.
pub fn is_restart() -> bool {
    std::env::var_os(RESTART).is_some_and(|restarts| restarts != "0")
}

/// Whether this rank's launcher restarts ranks if that may help, as our own launcher and [`launch_by`] do.
pub fn has_restarts() -> bool {
    has_own_launcher() || std::env::var_os(RESTART).is_some()
}

/// The exit code that reports `code` to the process that started this rank: only our own launcher and [`launch_by`]
/// understand [`EXIT_AGAIN`].
pub fn exit_code(code: u8) -> u8 {
    if code == EXIT_AGAIN && !has_restarts() { EXIT_REPORTED } else { code }
}

/// Ends this process while other threads of it may be at work in a library. Unlike `std::process::exit`, it does not run
/// the exit handlers of libraries, because those threads could then crash.
pub fn end_process(code: i32) -> ! {
    signal_hook::low_level::exit(code)
}

/// The name of this host.
pub fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

fn variable(name: &str) -> Option<String> {
    if name == environment::PARENT {
        return parent();
    }
    std::env::var_os(name).map(|value| value.to_string_lossy().into_owned())
}

/// A unique name for the parent process: its id and the time of its start. None if it has ended.
fn parent() -> Option<String> {
    let pid = rustix::process::getppid()?.as_raw_pid();
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // Field 22, counted from the end of the name in brackets, which may hold any character.
    let started = stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.to_owned();
    (pid > 1).then(|| format!("parent {pid} started {started}"))
}
