//! A terminal for the output of a command. The tests of `cargo zero` include this file, too.

use std::fs::{File, OpenOptions};
use std::io::Read;
use std::process::{Command, Stdio};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

/// All that a command writes to a terminal, and whether it succeeds.
pub fn on_a_terminal(command: &mut Command) -> (String, bool) {
    let controller = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&controller).unwrap();
    unlockpt(&controller).unwrap();
    let name = ptsname(&controller, Vec::new()).unwrap().into_string().unwrap();
    let terminal = || OpenOptions::new().read(true).write(true).open(&name).unwrap();
    command.env("TERM", "xterm-256color").stdin(Stdio::null()).stdout(terminal()).stderr(terminal());
    let mut child = command.spawn().unwrap();
    // Otherwise this process would keep the terminal open, and reading would not end.
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let (mut all, mut controller) = (Vec::new(), File::from(controller));
    let mut part = [0; 4096];
    // When no process has the terminal open any more, reading it is an error on Linux.
    while let Ok(count @ 1..) = controller.read(&mut part) {
        all.extend_from_slice(&part[..count]);
    }
    (String::from_utf8_lossy(&all).into_owned(), child.wait().unwrap().success())
}
