//! Disk: a small file system that can be full or read-only, which needs the rights of root.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A separate file system in memory.
pub struct Disk(PathBuf);

impl Disk {
    /// None, with a message, if this user may not mount one.
    pub fn new(path: &Path, bytes: usize) -> Option<Self> {
        fs::create_dir_all(path).unwrap();
        let disk = Self::mount(path, &["-t", "tmpfs", "-o", &format!("size={bytes}"), "tmpfs"]);
        if !disk {
            eprintln!("not run: this user may not mount a file system");
        }
        disk.then(|| Self(path.to_owned()))
    }

    /// Mounts it again in another way.
    pub fn remount(&self, how: &str) -> bool {
        Self::mount(&self.0, &["-o", &format!("remount,{how}")])
    }

    fn mount(path: &Path, arguments: &[&str]) -> bool {
        let mount = Command::new("mount").args(arguments).arg(path).output();
        mount.is_ok_and(|mount| mount.status.success())
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).output();
    }
}
