//! Disk: a small file system that can be full, read-only or silent, which needs the rights of root.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::fs::statvfs;
use zero_tests::long::report_skipped;

/// A separate file system.
pub struct Disk(PathBuf);

impl Disk {
    /// One in memory; none, with a message, if this user may not mount one.
    pub fn new(path: &Path, bytes: usize) -> Option<Self> {
        fs::create_dir_all(path).unwrap();
        let disk = Self::mount(path, &["-t", "tmpfs", "-o", &format!("size={bytes}"), "tmpfs"]);
        if !disk {
            eprintln!("not run: this user may not mount a file system");
        }
        disk.then(|| Self(path.to_owned()))
    }

    /// One in a file of this many bytes beside the path, with direct I/O. None if this user may not mount one, which is reported.
    pub fn with_direct_io(path: &Path, bytes: u64, what: &str) -> Option<Self> {
        let image = path.with_extension("image");
        fs::create_dir_all(path).unwrap();
        File::create(&image).and_then(|file| file.set_len(bytes)).unwrap();
        let made =
            succeeds(Command::new("mke2fs").args(["-q", "-F", "-t", "ext4", "-m", "0", "-b", "4096"]).arg(&image));
        let image = image.to_str().expect("a name in Unicode");
        let is_there = made && Self::mount(path, &["-o", "loop", image]);
        if !is_there {
            report_skipped(what, "this user may not mount a file system in a file");
        }
        is_there.then(|| Self(path.to_owned()))
    }

    /// Bytes that are free.
    pub fn free(&self) -> u64 {
        let room = statvfs(&self.0).unwrap();
        room.f_bavail * room.f_frsize
    }

    /// Lets whoever writes to it wait from now on, or go on.
    pub fn freeze(&self, is_frozen: bool) -> bool {
        succeeds(Command::new("fsfreeze").arg(if is_frozen { "--freeze" } else { "--unfreeze" }).arg(&self.0))
    }

    /// Mounts it again in another way.
    pub fn remount(&self, how: &str) -> bool {
        Self::mount(&self.0, &["-o", &format!("remount,{how}")])
    }

    fn mount(path: &Path, arguments: &[&str]) -> bool {
        succeeds(Command::new("mount").args(arguments).arg(path))
    }
}

fn succeeds(command: &mut Command) -> bool {
    command.output().is_ok_and(|end| end.status.success())
}

impl Drop for Disk {
    fn drop(&mut self) {
        self.freeze(false);
        // Lazily, because a process that is about to end may still have a file open there.
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).output();
    }
}
