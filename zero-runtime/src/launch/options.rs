//! Options: what a launcher is told about ends of a run, and the exit codes by which it and its ranks understand one
//! another. Never acts on any of it.

use std::path::PathBuf;
use std::time::Duration;

/// Exit code of a launcher that has printed why a rank failed.
pub const EXIT_RANK_FAILED: u8 = 1;
/// Exit code of a rank that has printed its own error, which no restart would mend, so that the launcher adds nothing.
pub const EXIT_REPORTED: u8 = 2;
/// Exit code of a run that came to its end, but whose last checkpoint could not be written.
pub const EXIT_NOT_SAVED: u8 = 74;
/// Exit code of a run that was asked to end, and has left a checkpoint: start it again to go on.
pub const EXIT_ASKED: u8 = 75;
/// Exit code by which a rank tells a launcher that may start it anew that its error is printed, and that a restart may mend it.
/// Where nobody restarts it is [`EXIT_REPORTED`].
pub const EXIT_AGAIN: u8 = 76;

/// What a launcher does where a run ends before its time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaunchOptions {
    /// Whether ranks that are asked to end finish their step and leave a checkpoint. If not, the first SIGTERM or SIGINT
    /// kills them.
    pub finishes_on_signal: bool,
    /// How long they may take for that.
    pub grace: Duration,
    /// How often all ranks may be started anew.
    pub restarts: u64,
    /// Where they leave their checkpoints: a restart that brings no newer one is the last.
    pub folder: Option<PathBuf>,
    /// The step of the last checkpoint of a run that comes to its end, if it leaves any.
    pub last_step: Option<u64>,
}

impl Default for LaunchOptions {
    /// Nothing is finished, and nothing restarted.
    fn default() -> Self {
        Self { finishes_on_signal: false, grace: Duration::from_secs(60), restarts: 0, folder: None, last_step: None }
    }
}
