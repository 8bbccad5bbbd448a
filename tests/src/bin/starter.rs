//! Starts the ranks of other hosts by a shell command, and restarts them as `cargo zero launch` does. `ZERO_RESTART` passes the
//! number of earlier starts to the command. `RESTARTS`, `FOLDER`, `LAST_STEP` and `FINISHES` are the launcher's options.

use std::process::{Command, ExitCode};

use zero_ranks::launch::{LaunchOptions, RESTART, launch_by};
use zero_runtime::__tests::run_folder;

fn main() -> ExitCode {
    let line = std::env::args().nth(1).expect("a line");
    let restarts = std::env::var("RESTARTS").map_or(0, |value| value.parse().expect("a number"));
    let folder = std::env::var_os("FOLDER").map(|folder| run_folder(folder.into()));
    let last_step = std::env::var("LAST_STEP").ok().map(|value| value.parse().expect("a number"));
    let finishes_on_signal = std::env::var_os("FINISHES").is_some();
    launch_by(
        &LaunchOptions { restarts, folder, last_step, finishes_on_signal, ..LaunchOptions::default() },
        |restarts| {
            let mut command = Command::new("sh");
            command.args(["-c", &line]).env(RESTART, restarts.to_string());
            command
        },
    )
}
