//! Crash: a save ends before or after any of its operations, with and without data that was not flushed. In every case,
//! each visible checkpoint is whole, no needed one is lost, and the next save works and cleans up.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use zero_files::checkpoint::{Store, System};

use super::disk::{Done, Noting, Tree, World, make, tree};
use super::save::{SCENES, Scene, Sorted, save, whole};

/// The seed of the save's numbers, which differ from those of a checkpoint of the same step.
const SEED: u64 = 77;

#[test]
fn a_save_that_ends_anywhere_leaves_whole_checkpoints() {
    for scene in SCENES {
        let states = Crashed::of(scene).each(|crashed, folder, has_ended| crashed.check(folder, has_ended));
        assert!(states > 100, "{scene:?}: only {states} states after crashes");
    }
}

/// Crashes leave different states: the test sees lost saves, completed saves, and leftovers.
#[test]
fn crashes_lose_what_was_not_flushed() {
    let scene = SCENES[2];
    let (mut found, mut left_over, mut cut) = (BTreeSet::new(), 0, 0);
    Crashed::of(scene).each(|_, folder, _| {
        let tree = tree(folder);
        found.insert(whole(folder).into_keys().collect::<Vec<_>>());
        left_over += usize::from(!Sorted::of(&tree).left_over.is_empty());
        cut += usize::from(tree.values().flatten().any(|bytes| bytes.is_empty()));
    });
    assert!(left_over > 0 && cut > 0);
    assert!(found.contains(&vec![5, 10]) && found.contains(&vec![5, 10, 20]) && found.contains(&vec![20]), "{found:?}");
}

/// If a save left out any one of its flushes, it would not survive some crash.
#[test]
fn no_flush_can_be_left_out() {
    let scene = SCENES[2];
    let done = Crashed::of(scene).done;
    let flushes = done.iter().enumerate().filter(|(_, done)| match done {
        // The sums are read only by the process that requested them, if at all.
        Done::Sync(path) => path.extension().is_none_or(|extension| extension != "sums"),
        Done::SyncDir(_) => true,
        _ => false,
    });
    let flushes: Vec<usize> = flushes.map(|(number, _)| number).collect();
    // Two files, the manifest, the folder, its name, and the removed name of an older folder.
    assert_eq!(flushes.len(), 6, "{done:?}");
    for number in flushes {
        let mut crashed = Crashed::of(scene);
        let left_out = crashed.done.remove(number);
        let all = std::panic::AssertUnwindSafe(|| crashed.each(|crashed, folder, ended| crashed.check(folder, ended)));
        assert!(std::panic::catch_unwind(all).is_err(), "{left_out:?} could be left out");
    }
}

/// A scene, and the operations of its save.
struct Crashed {
    scene: Scene,
    before: Tree,
    whole_before: BTreeMap<u64, Tree>,
    new: Tree,
    world: World,
    done: Vec<Done>,
}

impl Crashed {
    fn of(scene: Scene) -> Self {
        let folder = tempfile::tempdir_in("/dev/shm").unwrap();
        let root = folder.path();
        scene.set(root);
        let (before, whole_before) = (tree(root), whole(root));
        let world = World::new(root, &before);
        let disk = Noting::default();
        let path = save(&Store::open(root).unwrap(), &disk, scene.step, SEED, scene.keep).unwrap();
        Self { scene, before, whole_before, new: tree(&path), world, done: disk.done() }
    }

    /// Calls `check` with every folder that a crash can leave, both for completed saves and for others. Returns the number of
    /// folders.
    fn each(mut self, mut check: impl FnMut(&Self, &Path, bool)) -> usize {
        let mut seen = BTreeSet::new();
        for count in 0..=self.done.len() {
            let has_ended = count == self.done.len();
            for state in self.world.crashed() {
                if seen.insert((has_ended, state.clone())) {
                    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
                    make(folder.path(), &state);
                    let last = self.done[..count].last();
                    let told = std::panic::AssertUnwindSafe(|| check(&self, folder.path(), has_ended));
                    if let Err(panic) = std::panic::catch_unwind(told) {
                        eprintln!(
                            "{:?}: a crash after operation {count}, {last:?}, left {:?}",
                            self.scene,
                            state.keys()
                        );
                        std::panic::resume_unwind(panic);
                    }
                }
            }
            if let Some(done) = self.done.get(count) {
                self.world.apply(done);
            }
        }
        seen.len()
    }

    fn check(&self, folder: &Path, has_ended: bool) {
        let (left, others) = (whole(folder), Sorted::of(&self.before).others);
        check_whole(self.scene, &self.whole_before, &self.new, &left);
        assert!(!has_ended || left.get(&self.scene.step) == Some(&self.new), "a save that has ended is kept");
        assert_eq!(Sorted::of(&tree(folder)).others, others, "what is no checkpoint is not touched");
        check_next(folder, &left);
        assert_eq!(Sorted::of(&tree(folder)), Sorted { others, ..Sorted::default() }, "the next save clears up");
    }
}

/// Asserts that the old checkpoints exist, and the new one if the save got this far; only then may unneeded ones be removed.
pub fn check_whole(scene: Scene, before: &BTreeMap<u64, Tree>, new: &Tree, left: &BTreeMap<u64, Tree>) {
    let has_new = left.get(&scene.step) == Some(new);
    let needless = scene.needless();
    for (step, files) in before {
        let is_replaced = has_new && (*step == scene.step || needless.contains(step) && !left.contains_key(step));
        assert!(is_replaced || left.get(step) == Some(files), "step {step} is lost; there are {:?}", left.keys());
    }
    assert!(left.keys().all(|step| *step == scene.step && has_new || before.contains_key(step)));
}

/// Asserts that the next save works, and touches no checkpoint.
pub fn check_next(folder: &Path, left: &BTreeMap<u64, Tree>) {
    let next = 100;
    save(&Store::open(folder).unwrap(), &System, next, next, None).unwrap();
    let mut after = whole(folder);
    assert!(after.remove(&next).is_some());
    assert_eq!(&after, left, "the next save touches no checkpoint");
}
