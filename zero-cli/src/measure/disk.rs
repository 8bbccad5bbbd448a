//! Disk: how fast a disk writes and flushes, how fast it reads bytes that the system has not cached, and how fast all ranks
//! together move states past that cache. Never decides the contents of a checkpoint, or where states lie.

use std::fs::{self, File};
use std::io::{self, Read, Seek, Write};
use std::path::Path;
use std::time::Instant;

use crate::say;
use rustix::fs::{Advice, fadvise};
use zero_core::random::mix;
use zero_files::tier::{TierError, TimedPass, TimedRanks};
use zero_study::hardware::{DirectRates, DiskRates, median, rounded};

/// Bytes that are written and read at once.
const BLOCK: usize = 4 << 20;
/// Blocks of the file: 256 MiB.
const BLOCKS: usize = 64;
/// How direct rates are measured, in the order of the figures.
const PASSES: [TimedPass; 3] = [TimedPass::Read, TimedPass::Write, TimedPass::Both];
/// How often the whole file is written and read. A virtual disk allocates a block when it is first written, so the
/// first round is often the slowest.
const ROUNDS: usize = 3;

/// Measures the disk of a folder, for this many ranks. If the file cannot be written there, prints this and returns none,
/// because only times of checkpoints and of states on disk need the rates.
pub fn measure(folder: &Path, ranks: usize) -> Option<DiskRates> {
    say::note(format_args!("measuring the disk of {}", folder.display()));
    let measured = measure_blocks(folder, BLOCKS).map(|rates| DiskRates { direct: direct(folder, ranks), ..rates });
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
    Ok(DiskRates { read: rate(read_s), write: rate(written_s), direct: None, endurance: None })
}

/// The direct rates of the disk of a folder. If it cannot keep states, prints why and returns none.
fn direct(folder: &Path, ranks: usize) -> Option<DirectRates> {
    let measured = TimedRanks::new(folder, ranks).and_then(direct_rates);
    let untold = |error: &TierError| say::note(format_args!("the disk is not measured for `offload`: {error}"));
    measured.inspect_err(untold).ok()
}

fn direct_rates(mut ranks: TimedRanks) -> Result<DirectRates, TierError> {
    let mut seconds = [const { Vec::new() }; 3];
    for _ in 0..ROUNDS {
        for (seconds, pass) in seconds.iter_mut().zip(PASSES) {
            seconds.push(ranks.pass(pass)?);
        }
    }
    let mut rates = seconds.into_iter().zip(PASSES).map(|(seconds, pass)| ranks.bytes(pass) as f64 / median(seconds));
    let [read, write, both] = [(); 3].map(|()| rounded(rates.next().expect("a rate of each pass")));
    // Noise may make both at once seem faster than each alone.
    let both = Some(rounded(both.min(read + write)));
    let latency = rounded(ranks.block_s()?);
    Ok(DirectRates { read, write, both, latency })
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
        let DiskRates { read, write, .. } = measure_blocks(folder.path(), 2).expect("a disk");
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
        assert_eq!(measure(&file, 1), None);
        assert_eq!(measure(&folder.path().join("nowhere"), 1), None);
    }
}
