//! Say: lines on standard output, and notes on standard error. Nothing else in this command prints, because `println` and `eprintln` panic
//! where nothing can be written.

use std::fmt::Display;
use std::io::{ErrorKind, Write, stderr, stdout};

use signal_hook::consts::SIGPIPE;
use signal_hook::low_level::emulate_default_handler;
use zero_ranks::terminal;

/// Exit code of a command that could not write all of its output.
const EXIT_UNWRITTEN: i32 = 2;

/// Writes a line. If its reader has ended, as after `| head`, the command ends by SIGPIPE, as other programs do.
pub fn line(text: impl Display) {
    if let Err(error) = writeln!(stdout().lock(), "{text}") {
        if error.kind() == ErrorKind::BrokenPipe {
            // Returns only if the signal is refused.
            let _ = emulate_default_handler(SIGPIPE);
        } else {
            let error = format!("error[Z0352]: cannot write to standard output: {error}");
            terminal::tell(&format!("{error}\n  = help: free space where the output is written"));
        }
        std::process::exit(EXIT_UNWRITTEN);
    }
}

/// Writes a line on standard error about what the command does. If it cannot be written, nobody reads it, and the command goes on.
pub fn note(text: impl Display) {
    let _ = writeln!(stderr(), "{text}");
}
