//! Failing: any operation of a save fails, alone or with all later ones. The error has a code, all checkpoints are still whole, and
//! the next save works.

use std::collections::BTreeSet;

use zero_files::checkpoint::{Store, System};

use super::crash::{check_next, check_whole};
use super::disk::{Failure, Noting, tree};
use super::save::{SCENES, Scene, Sorted, save, whole};

/// The seed of the save's numbers.
const SEED: u64 = 77;

/// A disk that is full, and one that is broken.
const ERRORS: [i32; 2] = [rustix::io::Errno::NOSPC.raw_os_error(), rustix::io::Errno::IO.raw_os_error()];

#[test]
fn a_save_of_which_any_operation_fails_leaves_whole_checkpoints() {
    let mut codes = BTreeSet::new();
    for scene in SCENES {
        let mut first = 0;
        while let Some(found) = fail(scene, first) {
            codes.extend(found);
            first += 1;
        }
        assert!(first > 20, "{scene:?} has only {first} operations");
    }
    // Failures to read, to write, and to remove something after everything is written.
    assert_eq!(codes, BTreeSet::from(["Z0385", "Z0392", "Z0393"]));
}

/// The error codes of a save whose operation `first` fails; none if it has no such operation.
fn fail(scene: Scene, first: usize) -> Option<Vec<&'static str>> {
    let mut codes = Vec::new();
    for (errno, forever) in ERRORS.into_iter().flat_map(|errno| [(errno, false), (errno, true)]) {
        let folder = tempfile::tempdir_in("/dev/shm").unwrap();
        let other = tempfile::tempdir_in("/dev/shm").unwrap();
        let new = tree(&save(&Store::open(other.path()).unwrap(), &System, scene.step, SEED, None).unwrap());
        scene.set(folder.path());
        let (before, others) = (whole(folder.path()), Sorted::of(&tree(folder.path())).others);
        let store = Store::open(folder.path()).unwrap();
        let disk = Noting::failing(Failure { first, forever, errno });
        let result = save(&store, &disk, scene.step, SEED, scene.keep);
        let what = format!("{scene:?}, operation {first} fails (forever: {forever}): {result:?}");
        let left = whole(folder.path());
        println!("{what}");
        check_whole(scene, &before, &new, &left);
        let Err(error) = result else {
            // The save can succeed only if it has no operation of this number.
            assert!(disk.done().len() <= first, "{what}");
            return None;
        };
        let is_written = left.get(&scene.step) == Some(&new);
        assert!(is_written || error.code() != "Z0393", "{what}");
        assert!(error.to_string().contains(&std::io::Error::from_raw_os_error(errno).to_string()), "{what}");
        codes.push(error.code());
        store.abandon(&disk, scene.step);
        drop(store);
        check_next(folder.path(), &left);
        assert_eq!(Sorted::of(&tree(folder.path())), Sorted { others, ..Sorted::default() }, "{what}");
    }
    Some(codes)
}
