//! Survivor: a run of the smallest model, its folder, and the remaining files when it has ended. Never interrupts it.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;
use zero_files::checkpoint::{Checkpoint, Store};

use crate::run::{TEXT, program};

/// A run with checkpoints, in its own folder, which is in memory.
pub struct Survivor {
    pub kind: &'static str,
    pub steps: u64,
    pub every: u64,
    folder: TempDir,
    /// A folder on a disk, for the states that the kind [`OFFLOADED`] keeps there.
    states: Option<TempDir>,
}

/// The kind with states on disk.
pub const OFFLOADED: &str = "offloaded";

/// The results of a run.
#[derive(Debug, PartialEq)]
pub struct Outcome {
    /// The loss and the norm of the gradient of each step, with all digits.
    pub losses: BTreeMap<u64, (Value, Value)>,
    /// The files of the last checkpoint, with all states.
    pub files: BTreeMap<String, Vec<u8>>,
}

impl Survivor {
    pub fn new(kind: &'static str, steps: u64, every: u64) -> Self {
        let states = (kind == OFFLOADED).then(|| tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap());
        Self { kind, steps, every, folder: tempfile::tempdir_in("/dev/shm").unwrap(), states }
    }

    /// The folder of its checkpoints.
    pub fn checkpoints(&self) -> PathBuf {
        self.path("checkpoints")
    }

    /// The folder of its states on disk.
    pub fn states(&self) -> &Path {
        self.states.as_ref().expect("a kind with states on disk").path()
    }

    fn metrics(&self) -> PathBuf {
        self.path("metrics.jsonl")
    }

    /// A file that belongs only to this run.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The step of the newest checkpoint, if there is one.
    pub fn newest(&self) -> Option<u64> {
        Some(Store::checkpoints(&self.checkpoints()).unwrap().first()?.step)
    }

    /// The command that starts the run or, with `--resume`, continues it.
    pub fn command(&self, resumes: bool) -> Command {
        let mut command = program(env!("CARGO_BIN_EXE_survivor"));
        command.env("KIND", self.kind).args(["--data", TEXT, "--sample", "0", "--held-out", "0", "--keep", "1"]);
        command.args(["--threads", "1", "--steps", &self.steps.to_string(), "--every", &self.every.to_string()]);
        command.arg("--checkpoint").arg(self.checkpoints()).arg("--metrics").arg(self.metrics());
        if let Some(states) = &self.states {
            command.arg("--offload").arg(states.path());
        }
        if resumes {
            command.arg("--resume");
        }
        command
    }

    /// Its results. Asserts that the newest checkpoint is of the last step, and whole.
    pub fn outcome(&self) -> Outcome {
        assert_eq!(self.newest_is_whole(), Some(self.steps));
        let found = Store::checkpoints(&self.checkpoints()).unwrap();
        let files = fs::read_dir(&found[0].path).unwrap().map(|entry| entry.unwrap()).filter_map(|entry| {
            let name = entry.file_name().into_string().unwrap();
            name.ends_with(".safetensors").then(|| (name, fs::read(entry.path()).unwrap()))
        });
        Outcome { files: files.collect(), losses: self.losses() }
    }

    /// Asserts that the folder contains only the newest checkpoint and the lock, as after a save.
    pub fn assert_tidy(&self) {
        let names: Vec<_> = fs::read_dir(self.checkpoints()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names.len(), 2, "{names:?}");
        self.assert_no_states();
    }

    /// Asserts that nothing is left of states on disk.
    pub fn assert_no_states(&self) {
        let left = self.states.as_ref().map_or(0, |states| fs::read_dir(states.path()).unwrap().count());
        assert_eq!(left, 0, "states are left on disk");
    }

    /// Asserts that the newest checkpoint is whole; returns its step, if there is one.
    pub fn newest_is_whole(&self) -> Option<u64> {
        let newest = Store::checkpoints(&self.checkpoints()).unwrap().into_iter().next()?;
        let checkpoint = Checkpoint::open(&newest.path).unwrap_or_else(|error| panic!("{error}"));
        let chunks: Vec<_> = checkpoint.chunks().collect();
        checkpoint.verify(&chunks, 1, &|_| ()).unwrap_or_else(|error| panic!("{error}"));
        Some(newest.step)
    }

    /// Losses by step. Asserts that a repeated step had the same loss both times.
    fn losses(&self) -> BTreeMap<u64, (Value, Value)> {
        let text = fs::read_to_string(self.metrics()).unwrap();
        let mut losses = BTreeMap::new();
        for line in text.lines() {
            // A run that was killed may have left a part of a line.
            let Ok(line) = serde_json::from_str::<Value>(line) else { continue };
            if line["kind"] == "step" {
                let loss = (line["loss"].clone(), line["gradient_norm"].clone());
                assert!(loss.0.is_number(), "{line}");
                let last = losses.insert(line["step"].as_u64().unwrap(), loss.clone());
                assert!(last.is_none_or(|last| last == loss), "a step that is done again differs: {line}");
            }
        }
        losses
    }
}

impl Outcome {
    /// Asserts that all states and all known losses are those of an undisturbed run. Losses of steps before a kill may be unknown,
    /// but not those of the last steps.
    pub fn assert_is(&self, expected: &Outcome) {
        assert!(self.files == expected.files, "states differ");
        for (step, loss) in &self.losses {
            assert_eq!(Some(loss), expected.losses.get(step), "step {step}");
        }
    }
}
