//! Checkpoints: small checkpoints of a made-up model, for tests of code that reads them, a disk that fails, and a tier in
//! memory. Never trains.

use std::ffi::OsString;
use std::io;
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use serde_json::{Map, json};

use crate::checkpoint::{
    CheckpointError, DataPosition, Disk, FORMAT, Manifest, PlanInfo, Shard, ShardWriter, Sink, SpecInfo, Store, System,
    TensorInfo, TensorRun, WriterVersions,
};
use crate::tier::DiskTier;
use crate::weights::{BesideFile, Exported, NamedTensor, Publication, WeightType};
use zero_core::device::{Element, bf16};
use zero_plan::Width;
use zero_plan::place::State;

/// A tier of a rank with the threads of one on a disk, whose file is in memory, and ends after the bytes that are `there`.
///
/// # Errors
/// What the system says.
pub fn tier_in_memory(bytes: usize, there: usize, rank: usize) -> io::Result<DiskTier> {
    let file = memfd_create("states", MemfdFlags::CLOEXEC)?;
    ftruncate(&file, there as u64)?;
    DiskTier::new(file, bytes, rank)
}

/// A checkpoint of the made-up model. Its content follows from these fields alone.
#[derive(Clone, Debug)]
pub struct SampleCheckpoint {
    /// Steps that were done.
    pub step: u64,
    /// The number of ranks, among which each tensor is divided.
    pub ranks: usize,
    /// The width of parameters; if it is not f32, there is a master copy.
    pub params: Width,
    /// A multiple of 0.25 that is added to every number except parameters in bf16.
    pub shift: f32,
    /// Arguments of its run.
    pub arguments: Map<String, serde_json::Value>,
    /// The type of its export; none in a checkpoint that does not record how the model is published.
    pub published: Option<WeightType>,
}

impl SampleCheckpoint {
    /// A checkpoint of two ranks, with a master copy.
    pub fn of_step(step: u64) -> Self {
        Self { step, ranks: 2, params: Width::BF16, shift: 0.0, arguments: Map::new(), published: None }
    }

    /// The tensors of the made-up model.
    pub fn tensors() -> Vec<TensorInfo> {
        let tensor = |name: &str, shape: &[usize], transposed, unit, start| TensorInfo {
            name: name.to_owned(),
            shape: shape.to_vec(),
            transposed,
            unit,
            start,
        };
        vec![
            tensor("up.weight", &[4, 3], true, 0, 0),
            tensor("up.bias", &[3], false, 0, 12),
            tensor("norm@x/y", &[5], false, 1, 0),
        ]
    }

    /// Element `i` of a state of a tensor.
    pub fn value(&self, state: State, tensor: usize, i: usize) -> f32 {
        let plain = (16 * tensor + i) as f32;
        match state {
            State::Parameters if self.params.is_narrow() => plain,
            State::Parameters | State::Master => plain + self.shift,
            State::FirstMoment => plain / 2.0 + self.shift,
            State::SecondMoment => plain / 4.0 + self.shift,
        }
    }

    fn states(&self) -> Vec<State> {
        State::ALL.into_iter().filter(|&state| state != State::Master || self.params.is_narrow()).collect()
    }

    /// The parts of tensors that a rank writes.
    pub fn entries(&self, rank: usize) -> Vec<TensorRun> {
        let mut entries = Vec::new();
        for state in self.states() {
            let width = if state == State::Parameters { self.params } else { Width::F32 };
            for (tensor, info) in Self::tensors().iter().enumerate() {
                let (start, end) = (info.elements() * rank / self.ranks, info.elements() * (rank + 1) / self.ranks);
                entries.push(TensorRun { state, tensor, start, len: end - start, width });
            }
        }
        entries.retain(|entry| entry.len > 0);
        entries
    }

    /// Its manifest, without files.
    pub fn manifest(&self) -> Manifest {
        Manifest {
            format: FORMAT,
            step: self.step,
            seed: 7,
            model: "Sample".to_owned(),
            tensors: Self::tensors(),
            config: json!({ "model_type": "sample", "hidden_size": 3 }),
            arguments: self.arguments.clone(),
            data: DataPosition { sequences_drawn: 8 * self.step, ..DataPosition::default() },
            spec: SpecInfo { path: "specs/sample.ron".to_owned(), text: None },
            plan: PlanInfo { ranks: self.ranks, mesh: format!("zero {}", self.ranks), ..PlanInfo::default() },
            loss: Some(1.5),
            gradient_norm: None,
            versions: WriterVersions { format: FORMAT, ..WriterVersions::default() },
            written_at: "2026-01-01T00:00:00Z".to_owned(),
            files: Vec::new(),
            published: self.publication().tensors,
        }
    }

    /// How the model is published, if that is recorded: with a tokenizer, and without a config.
    fn publication(&self) -> Publication {
        let Some(kind) = self.published else { return Publication::default() };
        let exported = |TensorInfo { name, shape, transposed, unit, start }| {
            let named = NamedTensor { name: name.clone(), shape, transposed, unit, start, is_alias: false };
            Exported { named, name, kind }
        };
        let tokenizer = BesideFile::new("tokenizer.json", b"{}".to_vec());
        Publication { tensors: Self::tensors().into_iter().map(exported).collect(), files: vec![tokenizer] }
    }

    /// Saves it in the folder of a run, all ranks one after another.
    ///
    /// # Errors
    /// Those of the store and of writers. The checkpoint is then abandoned.
    pub fn save(&self, store: &Store, disk: &dyn Disk, keep: Option<u64>) -> Result<PathBuf, CheckpointError> {
        let result = self.try_save(store, disk, keep.and_then(NonZeroU64::new));
        if result.is_err() {
            store.abandon(disk, self.step);
        }
        result
    }

    fn try_save(&self, store: &Store, disk: &dyn Disk, keep: Option<NonZeroU64>) -> Result<PathBuf, CheckpointError> {
        let shards: Vec<Shard> =
            (0..self.ranks).map(|rank| Shard::new(rank, &Self::tensors(), self.entries(rank))).collect();
        store.begin(disk, self.step, shards.iter().map(Shard::bytes).sum())?;
        for shard in &shards {
            let mut writer = ShardWriter::begin(disk, &Store::partial(store.path(), self.step), shard, self.step)?;
            for entry in shard.entries() {
                writer.write(&self.bytes(entry))?;
            }
            writer.finish()?;
        }
        store.publish(disk, self.step, self.manifest(), &self.publication().files, self.ranks, keep)
    }

    fn bytes(&self, entry: &TensorRun) -> Vec<u8> {
        let values = (entry.start..entry.start + entry.len).map(|i| self.value(entry.state, entry.tensor, i));
        match entry.width {
            Width::F32 => values.flat_map(f32::to_le_bytes).collect(),
            Width::BF16 => values.flat_map(|value| bf16::narrow(value).to_le_bytes()).collect(),
        }
    }

    /// Saves it in the folder at `path`, which nothing else uses.
    ///
    /// # Panics
    /// If that cannot be done.
    pub fn saved(&self, path: &Path) -> PathBuf {
        let store = Store::open(path).expect("a folder");
        self.save(&store, &System, None).expect("a checkpoint")
    }
}

/// A disk on which one operation fails, or all from that one on. A write that fails has written half of its bytes.
#[derive(Clone, Debug)]
pub struct FailingDisk {
    /// Operations that were asked for.
    done: Arc<AtomicUsize>,
    first: usize,
    error: i32,
    persists: bool,
}

impl FailingDisk {
    /// A disk whose operation number `first` fails with an error of the system, and so do all later ones if it
    /// `persists`.
    pub fn new(first: usize, error: i32, persists: bool) -> Self {
        Self { done: Arc::default(), first, error, persists }
    }

    /// Operations that were asked for so far.
    pub fn operations(&self) -> usize {
        self.done.load(Ordering::Relaxed)
    }

    fn check(&self) -> io::Result<()> {
        let number = self.done.fetch_add(1, Ordering::Relaxed);
        let fails = if self.persists { number >= self.first } else { number == self.first };
        if fails { Err(io::Error::from_raw_os_error(self.error)) } else { Ok(()) }
    }
}

impl Disk for FailingDisk {
    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.check().and_then(|()| System.create_dir(path))
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn Sink>> {
        self.check()?;
        Ok(Box::new(FailingSink { disk: self.clone(), sink: System.create(path)? }))
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.check().and_then(|()| System.sync_dir(path))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.check().and_then(|()| System.rename(from, to))
    }

    fn exchange(&self, one: &Path, other: &Path) -> io::Result<()> {
        self.check().and_then(|()| System.exchange(one, other))
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.check().and_then(|()| System.remove_file(path))
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        self.check().and_then(|()| System.remove_dir(path))
    }

    fn list(&self, path: &Path) -> io::Result<Vec<OsString>> {
        self.check().and_then(|()| System.list(path))
    }

    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        self.check().and_then(|()| System.read(path))
    }
}

struct FailingSink {
    disk: FailingDisk,
    sink: Box<dyn Sink>,
}

impl Sink for FailingSink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.disk.check().or_else(|error| {
            self.sink.write(&bytes[..bytes.len() / 2])?;
            Err(error)
        })?;
        self.sink.write(bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.disk.check().and_then(|()| self.sink.sync())
    }
}
