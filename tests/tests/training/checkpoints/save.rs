//! Save: a checkpoint of two ranks and a few numbers, saved as a run does it, in a folder that is not empty. Never fails by
//! itself.

use std::collections::BTreeMap;
use std::fs;
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};

use zero_files::checkpoint::{
    Checkpoint, CheckpointError, Disk, FORMAT, Manifest, PlanInfo, Shard, ShardWriter, Store, System, TensorInfo,
    TensorRun,
};
use zero_plan::Width;
use zero_plan::place::State;

use super::disk::Tree;

/// Ranks that write.
pub const RANKS: usize = 2;

/// A save, and the state of its folder.
#[derive(Clone, Copy, Debug)]
pub struct Scene {
    /// Existing checkpoints.
    pub before: &'static [u64],
    /// Whether there are leftovers of earlier saves.
    pub leftovers: bool,
    /// The step of the save.
    pub step: u64,
    /// How many are kept.
    pub keep: Option<u64>,
}

/// A first save; one beside an older checkpoint; one that replaces older ones; one of a step that was saved before; one that
/// is older than a checkpoint of another run, from which this run does not continue.
pub const SCENES: [Scene; 5] = [
    Scene { before: &[], leftovers: false, step: 20, keep: None },
    Scene { before: &[10], leftovers: true, step: 20, keep: None },
    Scene { before: &[5, 10], leftovers: true, step: 20, keep: Some(1) },
    Scene { before: &[20], leftovers: false, step: 20, keep: Some(1) },
    Scene { before: &[5, 10, 40], leftovers: true, step: 30, keep: Some(2) },
];

impl Scene {
    /// Steps that are no longer needed when the save is done.
    pub fn needless(&self) -> Vec<u64> {
        let mut older: Vec<u64> = self.before.iter().copied().filter(|&step| step < self.step).collect();
        let kept = self.keep.map_or(older.len(), |keep| keep as usize - 1);
        older.truncate(older.len().saturating_sub(kept));
        older
    }

    /// Creates the folder in its state before the save.
    pub fn set(&self, root: &Path) {
        let store = Store::open(root).unwrap();
        for &step in self.before {
            save(&store, &System, step, step, None).unwrap();
        }
        if self.leftovers {
            for name in [".partial-step-000000015", ".old-step-000000003"] {
                fs::create_dir(root.join(name)).unwrap();
                fs::write(root.join(name).join("rank-00000.safetensors"), b"part").unwrap();
            }
        }
        // No save may remove anything that is not a checkpoint of the run.
        for name in ["step-7", ".partial-step-x", "notes"] {
            fs::create_dir(root.join(name)).unwrap();
            fs::write(root.join(name).join("mine"), name).unwrap();
        }
        fs::write(root.join(".old-step-000000009"), b"a file").unwrap();
    }
}

fn tensors() -> Vec<TensorInfo> {
    let tensor = |name: &str, shape: &[usize], start| TensorInfo {
        name: name.to_owned(),
        shape: shape.to_vec(),
        transposed: false,
        unit: 0,
        start,
    };
    vec![tensor("first.weight", &[3, 5], 0), tensor("first.bias", &[7], 15)]
}

fn entries(rank: usize) -> Vec<TensorRun> {
    let runs = [[(0, 0, 11)].as_slice(), &[(0, 11, 4), (1, 0, 7)]][rank];
    let of_state = |state| {
        runs.iter().map(move |&(tensor, start, len)| TensorRun { state, tensor, start, len, width: Width::F32 })
    };
    [State::Parameters, State::FirstMoment].into_iter().flat_map(of_state).collect()
}

fn manifest(step: u64) -> Manifest {
    Manifest {
        format: FORMAT,
        step,
        seed: 1,
        model: "Few".to_owned(),
        tensors: tensors(),
        plan: PlanInfo { ranks: RANKS, ..PlanInfo::default() },
        loss: Some(step as f64),
        ..Manifest::default()
    }
}

/// Saves a checkpoint of a step, with numbers generated from `seed`.
pub fn save(
    store: &Store,
    disk: &dyn Disk,
    step: u64,
    seed: u64,
    keep: Option<u64>,
) -> Result<PathBuf, CheckpointError> {
    let shards: Vec<Shard> = (0..RANKS).map(|rank| Shard::new(rank, &tensors(), entries(rank))).collect();
    store.begin(disk, step, shards.iter().map(Shard::bytes).sum())?;
    for (rank, shard) in shards.iter().enumerate() {
        let mut writer = ShardWriter::begin(disk, &Store::partial(store.path(), step), shard, step)?;
        for entry in shard.entries() {
            let numbers = (0..entry.len).map(|i| (1000 * seed as usize + 100 * rank + i) as f32);
            writer.write(&numbers.flat_map(f32::to_le_bytes).collect::<Vec<u8>>())?;
        }
        writer.finish()?;
    }
    store.publish(disk, step, manifest(step), &[], RANKS, keep.map(|keep| NonZeroU64::new(keep).unwrap()))
}

/// The steps and contents of all checkpoints in a folder, after a check that each is whole.
pub fn whole(root: &Path) -> BTreeMap<u64, Tree> {
    let found = Store::checkpoints(root).unwrap().into_iter().map(|found| {
        let checkpoint = Checkpoint::open(&found.path).unwrap_or_else(|error| panic!("{error}"));
        let chunks: Vec<_> = checkpoint.chunks().collect();
        checkpoint.verify(&chunks, 1, &|_| ()).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(checkpoint.manifest.step, found.step);
        (found.step, super::disk::tree(&found.path))
    });
    found.collect()
}

/// The contents of a folder that are not checkpoints, sorted by owner.
#[derive(Debug, Default, PartialEq)]
pub struct Sorted {
    /// Leftovers of saves that did not end.
    pub left_over: Tree,
    /// Everything else, except checkpoints and the lock of a run.
    pub others: Tree,
}

impl Sorted {
    pub fn of(tree: &Tree) -> Self {
        let mut sorted = Self::default();
        for (path, bytes) in tree {
            let first = Path::new(path.iter().next().unwrap());
            let is_of = |prefix: &str| tree[first].is_none() && is_name(first, prefix);
            if [".partial-step-", ".old-step-"].into_iter().any(is_of) {
                sorted.left_over.insert(path.clone(), bytes.clone());
            } else if !is_of("step-") && path != Path::new("lock") {
                sorted.others.insert(path.clone(), bytes.clone());
            }
        }
        sorted
    }
}

/// Whether a name is that of a step.
fn is_name(name: &Path, prefix: &str) -> bool {
    let digits = name.to_str().unwrap().strip_prefix(prefix);
    digits.is_some_and(|digits| digits.len() == 9 && digits.bytes().all(|byte| byte.is_ascii_digit()))
}
