//! Output on a terminal: losses that stay above the bar, and colour in errors and tables; none of these elsewhere.

use std::process::Command;

use crate::pty::on_a_terminal;
use crate::run::{TEXT, program, tiny};

const BOLD: &str = "\u{1b}[1m";
const RED: &str = "\u{1b}[31m";

/// Whether the line of a step stays: it ends in a line break, which the bar's lines never do.
fn stays(shown: &str, step: &str) -> bool {
    shown.split('\n').rev().skip(1).any(|line| line.contains(step) && line.contains("  loss "))
}

#[test]
fn losses_stay_visible_above_the_bar() {
    let mut run = program(env!("CARGO_BIN_EXE_tiny"));
    let (shown, succeeded) = on_a_terminal(run.args(["--data", TEXT, "--steps", "6", "--log-every", "4"]));
    assert!(succeeded, "{shown}");
    for step in ["step    1/6", "step    4/6", "step    6/6"] {
        assert!(stays(&shown, step), "no {step} in {shown:?}");
    }
    assert!(!shown.contains("step    2/6"), "{shown:?}");
    assert!(shown.contains(" 6/6 "), "no bar in {shown:?}");
    assert!(shown.contains(&format!("{BOLD}memory per rank")), "no colour in {shown:?}");
}

#[test]
fn errors_are_red_on_a_terminal_alone() {
    let bad_text = || {
        let mut command = tiny(4);
        command.args(["--warmup", "9"]);
        command
    };
    let bad_number = || {
        let mut command = program(env!("CARGO_BIN_EXE_tiny"));
        command.args(["--lr", "-1", "--data", TEXT]);
        command
    };
    let killed = || {
        let mut command = program(env!("CARGO_BIN_EXE_faults"));
        command.args(["--steps", "6"]).env("FAULT", "exit");
        command
    };
    let faulty: [(&dyn Fn() -> Command, &str); 3] =
        [(&bad_text, "error[Z0350]"), (&bad_number, "error[Z0353]"), (&killed, "error[Z0311]")];
    for (command, start) in faulty {
        let (shown, succeeded) = on_a_terminal(&mut command());
        assert!(!succeeded && shown.contains(&format!("{RED}{start}")), "{shown:?}");
        let (shown, _) = on_a_terminal(command().env("NO_COLOR", "1"));
        assert!(shown.contains(start) && !shown.contains(RED) && !shown.contains(BOLD), "{shown:?}");
        let piped = command().output().unwrap();
        let errors = String::from_utf8(piped.stderr).unwrap();
        assert!(errors.contains(start) && !errors.contains('\u{1b}'), "{errors:?}");
        assert!(!piped.stdout.contains(&0x1b));
    }
}
