//! Save: if anything fails in a save, older checkpoints stay whole, and the next save removes what was left.

use std::num::NonZeroU64;

use rustix::io::Errno;

use super::*;
use crate::testing::FailingDisk;
use crate::weights::WeightType;

/// The errors that make a save fail here.
const ERRORS: [Errno; 3] = [Errno::NOSPC, Errno::IO, Errno::ROFS];

#[test]
fn z0392_z0393_each_operation_that_fails_is_told_and_loses_nothing() {
    let mut seen = std::collections::BTreeSet::new();
    for error in ERRORS {
        for persists in [false, true] {
            for first in 0.. {
                let root = tempfile::tempdir().expect("a directory");
                let store = Store::open(root.path()).expect("a folder");
                SampleCheckpoint::of_step(1).save(&store, &System, None).expect("a checkpoint");
                // The remains of a killed run.
                fs::create_dir(root.path().join(".partial-step-000000002")).expect("a folder");
                fs::write(root.path().join(".partial-step-000000002/rank-00000.sums"), "x").expect("a file");
                let disk = FailingDisk::new(first, error.raw_os_error(), persists);
                let published = Some(WeightType::F32);
                let second = SampleCheckpoint { published, ..SampleCheckpoint::of_step(2) };
                let result = second.save(&store, &disk, Some(1));
                if result.is_ok() {
                    assert!(disk.operations() <= first && first > 30, "{first} operations");
                    assert_eq!(names(root.path()), ["lock", "step-000000002"]);
                    break;
                }
                let error = result.expect_err("an operation that fails");
                assert!(error.report().contains(&format!("(os error {})", disk_error(&error))), "{}", error.report());
                seen.insert(error.code());
                let found = Store::checkpoints(root.path()).expect("a folder");
                // At least one is always there, and each one that has its name is whole.
                assert!(!found.is_empty(), "{first}");
                found.iter().for_each(|one| assert!(fault(&one.path).is_none(), "{first}: {one:?}"));
                let is_written = matches!(error, CheckpointError::NotRemoved { .. });
                assert!(!is_written || found[0].step == 2, "{first}: {error}");
                assert!(is_written || found.iter().any(|one| one.step == 1), "{first}: {error}");
                SampleCheckpoint::of_step(3).save(&store, &System, None).expect("the next one");
                let left = names(root.path());
                assert!(left.iter().all(|name| name == "lock" || name.starts_with("step-")), "{first}: {left:?}");
                assert!(left.contains(&"step-000000003".to_owned()));
            }
        }
    }
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), ["Z0385", "Z0392", "Z0393"]);
}

/// The number of the system's error.
fn disk_error(error: &CheckpointError) -> i32 {
    let source = match error {
        CheckpointError::Unreadable { source, .. }
        | CheckpointError::Unwritable { source, .. }
        | CheckpointError::NotRemoved { source, .. } => source,
        other => panic!("{other}"),
    };
    source.raw_os_error().expect("an error of the system")
}

#[test]
fn only_what_is_a_checkpoint_of_the_run_is_removed() {
    let root = tempfile::tempdir().expect("a directory");
    let path = root.path();
    for name in [".partial-step-7", ".partial-mine", ".old-step-000000001x", "step-3", "notes"] {
        fs::create_dir(path.join(name)).expect("a folder");
        fs::write(path.join(name).join("file"), "x").expect("a file");
    }
    fs::write(path.join(".old-step-000000098"), "a file").expect("a file");
    std::os::unix::fs::symlink("notes", path.join(".partial-step-000000099")).expect("a link");
    std::os::unix::fs::symlink("notes", path.join("step-000000001")).expect("a link");
    let before = names(path);
    let store = Store::open(path).expect("a folder");
    for step in 4..=9 {
        SampleCheckpoint::of_step(step).save(&store, &System, Some(2)).expect("a checkpoint");
    }
    let mut expected: Vec<String> =
        ["lock", "step-000000008", "step-000000009"].map(str::to_owned).into_iter().chain(before).collect();
    expected.sort();
    assert_eq!(names(path), expected);
    assert_eq!(names(&path.join("notes")), ["file"]);
    let found: Vec<u64> = Store::checkpoints(path).expect("a folder").iter().map(|one| one.step).collect();
    assert_eq!(found, [9, 8]);
}

#[test]
fn a_run_that_went_on_from_an_older_one_replaces_a_step_and_keeps_newer_ones() {
    let root = tempfile::tempdir().expect("a directory");
    let store = Store::open(root.path()).expect("a folder");
    let save =
        |step, shift, keep| SampleCheckpoint { shift, ..SampleCheckpoint::of_step(step) }.save(&store, &System, keep);
    for step in [1, 2, 3] {
        save(step, 0.0, None).expect("a checkpoint");
    }
    let path = save(2, 8.0, Some(1)).expect("a checkpoint");
    assert_eq!(names(root.path()), ["lock", "step-000000002", "step-000000003"]);
    let checkpoint = Checkpoint::open(&path).expect("a checkpoint");
    let mut value = [0.0];
    Elements::all(&checkpoint, checkpoint.best_parameters())
        .expect("whole")
        .read(0, 0, &mut value)
        .expect("an element");
    assert_eq!(value, [8.0]);
}

#[test]
fn z0381_a_folder_is_of_one_run_at_a_time() {
    let root = tempfile::tempdir().expect("a directory");
    let path = root.path().join("a/run");
    let first = Store::open(&path).expect("a new folder");
    let error = Store::open(&path).expect_err("it is in use").report();
    assert!(error.starts_with("error[Z0381]: `"), "{error}");
    assert!(error.contains(&format!("in use by another run: process {} on ", std::process::id())), "{error}");
    drop(first);
    Store::open(&path).expect("a lock that nobody holds");
}

#[test]
fn z0395_a_folder_that_was_renamed_is_not_written_to() {
    let root = tempfile::tempdir().expect("a directory");
    let [path, moved] = ["run", "moved"].map(|name| root.path().join(name));
    let first = Store::open(&path).expect("a folder");
    SampleCheckpoint::of_step(1).save(&first, &System, Some(1)).expect("a checkpoint");
    fs::rename(&path, &moved).expect("a folder");
    let error = SampleCheckpoint::of_step(2).save(&first, &System, Some(1)).expect_err("no folder").report();
    assert!(error.starts_with("error[Z0395]: `"), "{error}");
    let second = Store::open(&path).expect("a new folder");
    SampleCheckpoint::of_step(1).save(&second, &System, Some(1)).expect("a checkpoint");
    // One that had begun, too, does not get its name there, and the other run's is not removed.
    second.begin(&System, 3, 0).expect("a folder");
    let manifest = SampleCheckpoint::of_step(3).manifest();
    let error = first.publish(&System, 3, manifest, &[], 0, Some(NonZeroU64::MIN)).expect_err("another's folder");
    assert_eq!(error.code(), "Z0395");
    first.abandon(&System, 3);
    assert_eq!(names(&path), [".partial-step-000000003", "lock", "step-000000001"]);
    fs::remove_dir_all(&path).expect("a folder");
    fs::rename(&moved, &path).expect("a folder");
    SampleCheckpoint::of_step(4).save(&first, &System, Some(1)).expect("its own folder again");
    assert_eq!(names(&path), ["lock", "step-000000004"]);
}

#[test]
fn what_a_killed_trial_leaves_is_removed() {
    let root = tempfile::tempdir().expect("a directory");
    for name in [".partial-step-000000000", ".old-step-000000000"] {
        fs::create_dir(root.path().join(name)).expect("a folder");
        fs::write(root.path().join(name).join("rank-00000.safetensors"), "0").expect("a file");
    }
    drop(Store::open(root.path()).expect("a folder"));
    assert_eq!(names(root.path()), ["lock"]);
}

#[test]
fn z0382_a_new_run_wants_a_folder_without_checkpoints() {
    let root = tempfile::tempdir().expect("a directory");
    let store = Store::open(root.path()).expect("a folder");
    store.require_new().expect("an empty one");
    SampleCheckpoint::of_step(12).save(&store, &System, None).expect("a checkpoint");
    let error = store.require_new().expect_err("a checkpoint").report();
    assert!(error.starts_with("error[Z0382]: `") && error.contains("the newest of step 12"), "{error}");
}

#[test]
fn z0380_what_cannot_keep_checkpoints() {
    let root = tempfile::tempdir().expect("a directory");
    let at = |name: &str| root.path().join(name);
    fs::write(at("file"), "x").expect("a file");
    fs::create_dir_all(at("taken/lock")).expect("a folder");
    fs::create_dir(at("linked")).expect("a folder");
    std::os::unix::fs::symlink("../file", at("linked/lock")).expect("a link");
    std::os::unix::fs::symlink("linked", at("link")).expect("a link");
    for (path, words) in [
        (at("file"), "it is not a folder"),
        (at("file/below"), "Not a directory"),
        (at("link"), "it is a link"),
        (at("taken"), "its file `lock` cannot be opened"),
        (at("linked"), "its file `lock` cannot be opened"),
        // Where nobody can make anything, root included.
        ("/proc/zero-checkpoints".into(), "it cannot be made"),
        ("/proc/sys".into(), "cannot be"),
    ] {
        let error = Store::open(&path).expect_err("no folder for checkpoints").report();
        assert!(error.starts_with("error[Z0380]: cannot keep checkpoints in `") && error.contains(words), "{error}");
    }
    assert_eq!(fs::read(at("file")).expect("a file"), b"x");
}

#[test]
fn z0391_no_room() {
    let root = tempfile::tempdir().expect("a directory");
    let store = Store::open(root.path()).expect("a folder");
    let error = store.begin(&System, 1, u64::MAX).expect_err("no such disk").report();
    assert!(error.starts_with("error[Z0391]: `") && error.contains("expected at least"), "{error}");
    assert_eq!(names(root.path()), ["lock"]);
}

#[test]
fn ranks_that_have_not_finished_are_told() {
    let root = tempfile::tempdir().expect("a directory");
    let store = Store::open(root.path()).expect("a folder");
    let sample = SampleCheckpoint::of_step(1);
    store.begin(&System, 1, 0).expect("a folder");
    let error = store.publish(&System, 1, sample.manifest(), &[], 2, None).expect_err("no sums").report();
    assert!(error.contains("rank-00000.sums"), "{error}");
    assert_eq!(Store::checkpoints(root.path()).expect("a folder"), []);
}
