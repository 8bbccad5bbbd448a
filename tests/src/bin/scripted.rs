//! Ranks that follow instructions instead of training, to test how a launcher handles their ends. `DO` is the action of rank `WHO`,
//! or of all ranks: `finish` and `deaf` wait until they are asked to end, and only `finish` then ends; `not-saved` and `done` end
//! in order; all other actions fail. Only the first `TIMES` starts fail, and the next one succeeds. With `SAVES`, there is a
//! checkpoint before a start fails. `FINISHES`, `GRACE`, `RESTARTS` and `FOLDER` are the launcher's options.

use std::process::{ExitCode, abort};
use std::thread::sleep;
use std::time::Duration;

use zero_ranks::launch::{
    EXIT_AGAIN, EXIT_ASKED, EXIT_NOT_SAVED, EXIT_REPORTED, JobPlace, LaunchOptions, Role, asked_to_end, end_on_request,
    is_restart, launch, role,
};
use zero_runtime::run::run_folder;

const RANKS: usize = 3;

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

fn number(name: &str) -> Option<u64> {
    variable(name).map(|value| value.parse().expect("a number"))
}

fn options() -> LaunchOptions {
    LaunchOptions {
        finishes_on_signal: variable("FINISHES").is_some(),
        grace: Duration::from_secs(number("GRACE").unwrap_or(60)),
        restarts: number("RESTARTS").unwrap_or(0),
        folder: variable("FOLDER").map(|folder| run_folder(folder.into())),
        ..LaunchOptions::default()
    }
}

fn main() -> ExitCode {
    match role(RANKS).expect("an environment without contradictions") {
        Role::Launcher => launch(RANKS, &options()),
        Role::Rank(place) => rank(&place),
    }
}

fn rank(place: &JobPlace) -> ExitCode {
    let told = variable("DO").unwrap_or_default();
    if number("WHO").is_some_and(|who| who != place.rank as u64) {
        println!("rank {} waits", place.rank);
        sleep(Duration::MAX);
    }
    let earlier = number("ZERO_RESTART").unwrap_or(0);
    assert_eq!(is_restart(), earlier > 0);
    println!("rank {} of start {earlier}", place.rank);
    if let "finish" | "deaf" = told.as_str() {
        return asked(place.rank, told == "finish");
    }
    if number("TIMES").is_some_and(|times| earlier >= times) {
        return ExitCode::SUCCESS;
    }
    if variable("SAVES").is_some() {
        std::fs::create_dir_all(options().folder.expect("a folder").path.join(format!("step-{earlier:09}")))
            .expect("room");
    }
    match told.as_str() {
        "done" => ExitCode::SUCCESS,
        "not-saved" => ExitCode::from(EXIT_NOT_SAVED),
        "again" => {
            eprintln!("error[Z9999]: my own words");
            ExitCode::from(EXIT_AGAIN)
        }
        "report" => {
            eprintln!("error[Z9999]: my own words");
            ExitCode::from(EXIT_REPORTED)
        }
        "exit" => ExitCode::from(7),
        "panic" => panic!("as told"),
        "abort" => abort(),
        other => panic!("what is {other}?"),
    }
}

/// Waits until the process is asked to end, and then ends it if it `finishes`.
fn asked(rank: usize, finishes: bool) -> ExitCode {
    end_on_request(options().grace).expect("handlers");
    println!("rank {rank} listens");
    while asked_to_end().is_none() {
        sleep(Duration::from_millis(5));
    }
    println!("rank {rank} was asked");
    if !finishes {
        sleep(Duration::MAX);
    }
    ExitCode::from(EXIT_ASKED)
}
