//! Options: how a launcher handles the end of a run, and the exit codes that it and its ranks exchange. Never acts on
//! any of it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Exit code of a launcher that has printed why a rank failed.
pub const EXIT_RANK_FAILED: u8 = 1;
/// Exit code of a rank that has printed its own error, so that the launcher adds nothing. A restart would not help.
pub const EXIT_REPORTED: u8 = 2;
/// Exit code of a run that came to its end, but whose last checkpoint could not be written.
pub const EXIT_NOT_SAVED: u8 = 74;
/// Exit code of a run that was asked to end, and has left a checkpoint: start it again to go on.
pub const EXIT_ASKED: u8 = 75;
/// Exit code of a rank whose error is printed, and for which a restart may help. If its launcher does not restart ranks,
/// it ends with [`EXIT_REPORTED`].
pub const EXIT_AGAIN: u8 = 76;

/// The folder of a run's checkpoints, as far as a launcher reads it.
#[derive(Clone, Debug)]
pub struct RunFolder {
    /// Its path.
    pub path: PathBuf,
    /// The step of the newest checkpoint in a folder, if there is one.
    pub newest: fn(&Path) -> Option<u64>,
    /// Whether a rank still writes into a folder.
    pub is_taken: fn(&Path) -> bool,
}

/// [`LaunchOptions`] as a program sends them to `cargo zero launch`, in JSON.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the fields of LaunchOptions")]
pub struct LaunchAnswer {
    pub finishes_on_signal: bool,
    pub grace: Duration,
    pub restarts: u64,
    pub folder: Option<PathBuf>,
    pub last_step: Option<u64>,
}

impl LaunchAnswer {
    /// The options, with functions that look into a folder of checkpoints.
    pub fn options(self, newest: fn(&Path) -> Option<u64>, is_taken: fn(&Path) -> bool) -> LaunchOptions {
        let Self { finishes_on_signal, grace, restarts, folder, last_step } = self;
        let folder = folder.map(|path| RunFolder { path, newest, is_taken });
        LaunchOptions { finishes_on_signal, grace, restarts, folder, last_step }
    }
}

/// How a launcher handles a run that ends early.
#[derive(Clone, Debug)]
pub struct LaunchOptions {
    /// Whether ranks that are asked to end finish their step and leave a checkpoint. If not, the first request
    /// to end kills them.
    pub finishes_on_signal: bool,
    /// How long they may take to finish.
    pub grace: Duration,
    /// How often all ranks may be restarted.
    pub restarts: u64,
    /// The folder of their checkpoints: a restart without a newer checkpoint is the last.
    pub folder: Option<RunFolder>,
    /// The step of the last checkpoint of a run that reaches its end, if it leaves any.
    pub last_step: Option<u64>,
}

impl Default for LaunchOptions {
    /// Ranks do not finish their step, and are not restarted.
    fn default() -> Self {
        Self { finishes_on_signal: false, grace: Duration::from_secs(60), restarts: 0, folder: None, last_step: None }
    }
}
