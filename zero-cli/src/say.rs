//! Say: lines on standard output. If their reader has ended, as after `| head`, the command ends silently. Reports only
//! errors of standard output.

use std::fmt::Display;
use std::io::{ErrorKind, Write, stdout};

use zero_ranks::terminal;

/// Exit code of a command that could not write all of its output.
const EXIT_UNWRITTEN: i32 = 2;

/// Writes a line.
pub fn line(text: impl Display) {
    if let Err(error) = writeln!(stdout().lock(), "{text}") {
        if error.kind() != ErrorKind::BrokenPipe {
            let error = format!("error[Z0352]: cannot write to standard output: {error}");
            terminal::tell(&format!("{error}\n  = help: free space where the output is written"));
        }
        std::process::exit(EXIT_UNWRITTEN);
    }
}
