//! Reader tests: every reader of a file of others is given files that were changed at random. It has to end with a value, or with an
//! error that has a code and names the file: no panic, no wait, and no memory that the file only claims to need.
//!
//! `ZERO_FUZZ_SECONDS` is how long each test goes on. Without it, that is a second, in which the first files are always the same. A file
//! on which a reader fails is kept, and its path is printed. Put it into `tests/readers/READER`, so that it is read first from then on.

mod changes;
mod memory;
mod readers;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use proptest::prelude::*;
use proptest::strategy::Strategy;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};

const SECONDS: &str = "ZERO_FUZZ_SECONDS";

/// The most that one file may take, in memory and in time, however busy the machine is.
const BYTES_MAX: usize = 256 << 20;
const MILLISECONDS_MAX: u32 = 20_000;

/// How long a failing file is made smaller.
const SHRINKING_MILLISECONDS: u32 = 60_000;

/// A reader, with files that it can read.
struct Reader {
    /// The folder of its files in `tests/readers`.
    name: &'static str,
    /// The file that it is given.
    file: &'static str,
    /// Such files that it must read.
    files: Vec<Vec<u8>>,
    /// Other files that lie there.
    beside: Vec<(String, Vec<u8>)>,
}

impl Reader {
    fn new(name: &'static str, file: &'static str, files: Vec<Vec<u8>>) -> Self {
        Self { name, file, files, beside: Vec::new() }
    }

    /// With another file, which stays as it is.
    fn beside(mut self, name: &str, bytes: Vec<u8>) -> Self {
        self.beside.push((name.to_owned(), bytes));
        self
    }

    /// Has `read` read changed files.
    fn test(self, read: impl Fn(&Path) -> Result<(), String>) {
        self.test_written(|path, file| fs::write(path, file).expect("a file"), read);
    }

    /// [`Reader::test`] of files that `put` writes.
    fn test_written(self, put: impl Fn(&Path, &[u8]), read: impl Fn(&Path) -> Result<(), String>) {
        let folder = std::env::temp_dir().join(format!("zero-reader-{}-{}", self.name, std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        self.beside.iter().for_each(|(name, bytes)| fs::write(folder.join(name), bytes).expect("a file"));
        let path = folder.join(self.file);
        let folder_name = folder.display().to_string();
        for (number, file) in self.files.iter().enumerate() {
            put(&path, file);
            read(&path).unwrap_or_else(|error| panic!("file {number} must be readable: {error}"));
        }
        let check = |file: Vec<u8>| {
            put(&path, &file);
            let (read, bytes) = memory::peak(|| read(&path));
            if let Err(error) = read {
                let is_told = error.starts_with("error[Z0") && error.contains(&folder_name);
                prop_assert!(is_told, "not an error with a code and the name of a file: {error}");
            }
            prop_assert!(bytes <= BYTES_MAX, "{bytes} bytes of memory for a file of {}", file.len());
            Ok(())
        };
        let mut files = self.files.clone();
        for (name, file) in kept(self.name) {
            check(file.clone()).unwrap_or_else(|error: TestCaseError| panic!("{}: {error}", name.display()));
            files.push(file);
        }
        let failed = search(changes::changed(files), check);
        if let Some((why, file)) = failed {
            put(&path, &file);
            let kept = folder.join("failing");
            fs::write(&kept, &file).expect("a file");
            panic!(
                "{why}\nthe file is {}: {}",
                kept.display(),
                file.escape_ascii().to_string().chars().take(2000).collect::<String>()
            );
        }
        fs::remove_dir_all(&folder).expect("an own folder");
    }
}

/// Files that readers have failed on, and others to begin with.
fn kept(name: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/readers").join(name);
    let entries = fs::read_dir(folder).into_iter().flatten();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    paths.sort();
    paths.into_iter().map(|path| (path.clone(), fs::read(path).expect("a file"))).collect()
}

/// The smallest file that was found on which `check` fails, and why it does.
fn search(
    files: impl Strategy<Value = Vec<u8>>,
    check: impl Fn(Vec<u8>) -> Result<(), TestCaseError>,
) -> Option<(String, Vec<u8>)> {
    let seconds = std::env::var(SECONDS).ok().map(|seconds| seconds.parse().expect(SECONDS));
    let config = Config {
        failure_persistence: None,
        timeout: MILLISECONDS_MAX,
        max_shrink_time: SHRINKING_MILLISECONDS,
        ..Config::default()
    };
    let mut runner = match seconds {
        Some(_) => TestRunner::new(config),
        None => TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha)),
    };
    let end = Instant::now() + Duration::from_secs(seconds.unwrap_or(1));
    while Instant::now() < end {
        let next = files.new_tree(&mut runner).expect("a file");
        match runner.run_one(next, &check) {
            Err(TestError::Fail(why, file)) => return Some((why.to_string(), file)),
            Err(TestError::Abort(why)) => panic!("{why}"),
            Ok(_) => {}
        }
    }
    None
}
