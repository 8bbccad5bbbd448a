//! Survivor: a run of the smallest model, the folder that it lies in, and what is left when it has ended. Never strikes it.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;
use zero_runtime::checkpoint::{Checkpoint, Store};

use crate::run::{TEXT, program};

/// A run with checkpoints, in a folder of its own.
pub struct Survivor {
    pub kind: &'static str,
    pub steps: u64,
    pub every: u64,
    folder: TempDir,
}

/// The results of a run.
#[derive(Debug, PartialEq)]
pub struct Outcome {
    /// The loss and the norm of the gradient of each step, with all digits.
    pub losses: BTreeMap<u64, (Value, Value)>,
    /// The files of the last checkpoint, in which all states are.
    pub files: BTreeMap<String, Vec<u8>>,
}

impl Survivor {
    pub fn new(kind: &'static str, steps: u64, every: u64) -> Self {
        Self { kind, steps, every, folder: tempfile::tempdir_in("/dev/shm").unwrap() }
    }

    /// Where its checkpoints lie.
    pub fn checkpoints(&self) -> PathBuf {
        self.path("checkpoints")
    }

    fn metrics(&self) -> PathBuf {
        self.path("metrics.jsonl")
    }

    /// A file of this run alone.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The step of the newest checkpoint, if there is one.
    pub fn newest(&self) -> Option<u64> {
        Some(Store::checkpoints(&self.checkpoints()).unwrap().first()?.step)
    }

    /// The command that starts it or, with `--resume`, goes on.
    pub fn command(&self, resumes: bool) -> Command {
        let mut command = program(env!("CARGO_BIN_EXE_survivor"));
        command.env("KIND", self.kind).args(["--data", TEXT, "--sample", "0", "--held-out", "0", "--keep", "1"]);
        command.args(["--threads", "1", "--steps", &self.steps.to_string(), "--every", &self.every.to_string()]);
        command.arg("--checkpoint").arg(self.checkpoints()).arg("--metrics").arg(self.metrics());
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

    /// Asserts that nothing lies in the folder but the newest checkpoint and the lock, as after a save.
    pub fn assert_tidy(&self) {
        let names: Vec<_> = fs::read_dir(self.checkpoints()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names.len(), 2, "{names:?}");
    }

    /// Asserts that the newest checkpoint is whole; gives its step, if there is one.
    pub fn newest_is_whole(&self) -> Option<u64> {
        let newest = Store::checkpoints(&self.checkpoints()).unwrap().into_iter().next()?;
        let checkpoint = Checkpoint::open(&newest.path).unwrap_or_else(|error| panic!("{error}"));
        let chunks: Vec<_> = checkpoint.chunks().collect();
        checkpoint.verify(&chunks, 1, &|_| ()).unwrap_or_else(|error| panic!("{error}"));
        Some(newest.step)
    }

    /// Losses by step. Asserts that a step which was done twice gave the same both times.
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
    /// Asserts that all states and all losses that are known are those of a run that was left alone. Of steps before a kill,
    /// losses may be unknown; of the last ones they are not.
    pub fn assert_is(&self, expected: &Outcome) {
        assert!(self.files == expected.files, "states differ");
        for (step, loss) in &self.losses {
            assert_eq!(Some(loss), expected.losses.get(step), "step {step}");
        }
    }
}
