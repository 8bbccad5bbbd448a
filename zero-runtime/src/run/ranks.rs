//! Ranks: starts the ranks of a run, or becomes one, and reports how it has ended. Never trains.

use std::process::ExitCode;

use super::budget::{require_budget, run_size};
use super::outputs::try_outputs;
use super::processes;
use super::train::{Ending, Job, train};
use crate::error::Error;
use zero_core::device::Device;
use zero_ranks::launch::{self, LaunchError, Role, Watch};
use zero_ranks::transport::{cluster, local, shm};

/// Prints `error`, if this rank is to print one, and returns the exit code of a rank that has failed with `code`.
fn reported(error: Option<String>, code: u8) -> ExitCode {
    error.iter().for_each(|error| launch::print(error));
    ExitCode::from(launch::exit_code(code))
}

/// The exit code of a rank that has failed after it met the others. Makes sure that one of them prints the cause.
fn ended_with(error: &Error, code: u8, watch: Watch) -> ExitCode {
    watch.fails_with(code);
    let told = match error {
        error if error.is_agreed() => watch.fail_together().then(|| error.to_string()),
        error if error.is_silence() => {
            if watch.fail_for_all() {
                launch::print(&error.to_string());
                launch::leave(cluster::abort);
            }
            None
        }
        // The rank that has ended, the launcher or the watch prints it.
        error if error.is_echo() => {
            watch.fail_by_news();
            None
        }
        error => watch.fail(&error.to_string()).map(|error| error.report()),
    };
    reported(told, code)
}

/// Ends a process whose ranks are threads, if one of them has given up another one: the other one would never end.
fn end_with_silence(error: &Error) {
    if error.is_silence() {
        launch::print(&error.to_string());
        launch::end_process(launch::exit_code(error.exit_code(false)).into());
    }
}

/// Starts the ranks of a run, or is one of them, and returns the exit code of the process. One process `speaks` for all before
/// there are ranks.
///
/// # Errors
/// An error that no rank has printed.
pub fn become_ranks<D: Device>(role: Role, speaks: bool, agreement: u64, job: &Job<D>) -> Result<ExitCode, Error> {
    let plan = job.program.plan;
    require_budget(plan, &run_size(plan, job.arguments, job.resident_bytes()))?;
    if speaks {
        try_outputs(job.arguments, job.weights)?;
    }
    let (processes, checkpoints) = (processes(plan), &job.arguments.checkpoints);
    match role {
        // A single process cannot restart itself.
        Role::Launcher if processes > 1 || checkpoints.restarts > 0 => {
            Ok(launch::launch(processes, &checkpoints.launch_options(job.arguments.steps)))
        }
        Role::Rank(place) if processes > 1 => {
            let (transport, watch) = match shm::join(plan, &place, agreement) {
                Err(error @ (LaunchError::SeveralHosts { .. } | LaunchError::Misplaced { .. })) => {
                    return Err(error.into());
                }
                Err(error) => {
                    let code = error.exit_code();
                    let ended = reported((!error.is_echo()).then(|| error.report()), code);
                    cluster::abort(launch::exit_code(code));
                    return Ok(ended);
                }
                Ok(joined) => joined,
            };
            match train(transport, job) {
                Ok(ending) => {
                    cluster::leave();
                    watch.finish();
                    Ok(ending.exit_code())
                }
                Err(error) => {
                    let code = error.exit_code(checkpoints.rollback);
                    let ended = ended_with(&error, code, watch);
                    cluster::abort(launch::exit_code(code));
                    Ok(ended)
                }
            }
        }
        Role::Launcher | Role::Rank(_) => {
            let ranks =
                local::run(plan, Result::is_err, |transport| train(transport, job).inspect_err(end_with_silence))?;
            // The end of another rank is worth printing only if no rank reports the cause.
            let (endings, mut errors): (Vec<_>, Vec<_>) = ranks.into_iter().partition(Result::is_ok);
            errors.sort_by_key(|error| error.as_ref().is_err_and(Error::is_echo));
            let first = errors.into_iter().chain(endings).next().expect("a rank");
            first.map(Ending::exit_code)
        }
    }
}
