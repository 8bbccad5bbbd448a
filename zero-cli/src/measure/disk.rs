//! Disk: how fast a disk writes and flushes, and how fast it reads bytes that the system has not cached. Never decides
//! the contents of a checkpoint.

use std::fs::{self, File};
use std::io::{self, Read, Seek, Write};
use std::path::Path;
use std::time::Instant;

use crate::say;
use rustix::fs::{Advice, fadvise};
use zero_core::random::mix;
use zero_study::hardware::{DiskRates, median, rounded};

/// Bytes that are written and read at once.
const BLOCK: usize = 4 << 20;
/// Blocks of the file: 256 MiB.
const BLOCKS: usize = 64;
/// How often the whole file is written and read. A virtual disk allocates a block when it is first written, so the
/// first round is often the slowest.
const ROUNDS: usize = 3;

/// Measures the disk of a folder. If the file cannot be written there, prints this and returns none, because only times
/// of checkpoints need the rates.
pub fn measure(folder: &Path) -> Option<DiskRates> {
    say::note(format_args!("measuring the disk of {}", folder.display()));
    let measured = measure_blocks(folder, BLOCKS);
    let untold = |error: &io::Error| {
        let (file, folder) = ((BLOCK * BLOCKS) >> 20, folder.display());
        say::note(format_args!(
            "the disk is not measured: a file of {file} MiB cannot be written and read in {folder}: {error}"
        ));
    };
    measured.inspect_err(untold).ok()
}

fn measure_blocks(folder: &Path, blocks: usize) -> io::Result<DiskRates> {
    let mut file = without_name(folder)?;
    // Data that a file system cannot compress.
    let mut block: Vec<u8> = (0..BLOCK as u64 / 8).flat_map(|word| mix(0, word).to_le_bytes()).collect();
    let (mut written_s, mut read_s) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        file.rewind()?;
        written_s.push(seconds(|| {
            (0..blocks).try_for_each(|_| file.write_all(&block))?;
            file.sync_all()
        })?);
        // Flushed data can be dropped from the cache, and is then read from the disk.
        fadvise(&file, 0, None, Advice::DontNeed)?;
        file.rewind()?;
        read_s.push(seconds(|| (0..blocks).try_for_each(|_| file.read_exact(&mut block)))?);
    }
    let rate = |seconds| rounded((BLOCK * blocks) as f64 / median(seconds));
    Ok(DiskRates { read: rate(read_s), write: rate(written_s) })
}

/// A new file whose name is removed at once, so that it vanishes however this process ends.
fn without_name(folder: &Path) -> io::Result<File> {
    let path = folder.join(format!(".zero-measure-{}", std::process::id()));
    let file = File::options().read(true).write(true).create_new(true).open(&path)?;
    fs::remove_file(&path)?;
    Ok(file)
}

fn seconds(work: impl FnOnce() -> io::Result<()>) -> io::Result<f64> {
    let start = Instant::now();
    work()?;
    Ok(start.elapsed().as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_is_measured_by_a_file_that_leaves_nothing() {
        let folder = tempfile::tempdir().expect("a folder");
        let DiskRates { read, write } = measure_blocks(folder.path(), 2).expect("a disk");
        assert!(read > 0.0 && read.is_finite() && write > 0.0 && write.is_finite(), "{read}, {write}");
        let file = without_name(folder.path()).expect("a file");
        assert_eq!(
            fs::read_dir(folder.path()).expect("a folder").count(),
            0,
            "the name is removed while the file exists"
        );
        drop(file);
    }

    #[test]
    fn a_disk_that_takes_no_file_is_left_out() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("file");
        fs::write(&file, "").expect("a file");
        assert_eq!(measure(&file), None);
        assert_eq!(measure(&folder.path().join("nowhere")), None);
    }
}
