//! Damage: whatever happens to a file of a checkpoint is found, and reported with the file and its contents.

use std::path::PathBuf;

use tempfile::TempDir;

use crate::weights::WeightType;
use zero_plan::Width;
use zero_plan::place::State;

use super::*;

/// A change to a manifest.
type Change<'a> = &'a dyn Fn(&mut Manifest);

const FILES: [&str; 4] = ["manifest.jsonl", "rank-00000.safetensors", "rank-00001.safetensors", "tokenizer.json"];

fn saved(step: u64) -> (TempDir, PathBuf) {
    let root = tempfile::tempdir().expect("a directory");
    let published = Some(WeightType::F32);
    let path = SampleCheckpoint { published, ..SampleCheckpoint::of_step(step) }.saved(root.path());
    assert_eq!(names(&path), FILES);
    assert!(fault(&path).is_none() && Checkpoint::examine(&path, 2, &|_| {}).is_empty());
    (root, path)
}

/// The code and the text of the error, which must name the file and be the only one that `examine` finds.
fn refused(path: &Path, name: &str, what: &str) -> (&'static str, String) {
    let error = fault(path).unwrap_or_else(|| panic!("{name} {what}: nobody objects"));
    let report = error.report();
    assert!(report.contains(name), "{name} {what}: {report}");
    let examined = Checkpoint::examine(path, 1, &|_| {});
    assert_eq!(examined.iter().map(CheckpointError::report).collect::<Vec<_>>(), [&*report], "{name} {what}");
    (error.code(), report)
}

#[test]
fn z0387_each_byte_that_is_flipped_is_found() {
    let (_root, path) = saved(3);
    for name in FILES {
        let file = path.join(name);
        let whole = fs::read(&file).expect("a file");
        let data = match name.starts_with("rank") {
            true => 8 + u64::from_le_bytes(*whole.first_chunk().expect("a length")) as usize,
            false => usize::MAX,
        };
        for at in 0..whole.len() {
            let mut flipped = whole.clone();
            flipped[at] ^= 1 << (at % 8);
            fs::write(&file, &flipped).expect("a file");
            let (code, report) = refused(&path, name, &format!("with byte {at} flipped"));
            match (name.starts_with("rank"), at >= data) {
                (false, _) => assert_eq!(code, if name == MANIFEST { "Z0384" } else { "Z0387" }, "{report}"),
                // The flipped bit may turn a digit of the step or of the rank into another digit.
                (true, false) => assert!(code == "Z0387" || code == "Z0388", "{report}"),
                (true, true) => {
                    assert_eq!(code, "Z0387", "{report}");
                    assert!(
                        report.contains("`parameters/up.weight@") && report.contains("`master/norm@x/y@"),
                        "{report}"
                    );
                }
            }
        }
        fs::write(&file, &whole).expect("a file");
    }
    assert!(fault(&path).is_none());
}

#[test]
fn z0386_each_length_that_a_file_is_cut_to_is_found() {
    let (_root, path) = saved(3);
    for name in FILES {
        let file = path.join(name);
        let whole = fs::read(&file).expect("a file");
        for len in 0..whole.len() {
            fs::write(&file, &whole[..len]).expect("a file");
            let expected = if name == MANIFEST { "Z0384" } else { "Z0386" };
            assert_eq!(refused(&path, name, &format!("cut to {len} bytes")).0, expected);
        }
        fs::write(&file, [&whole[..], b" "].concat()).expect("a file");
        refused(&path, name, "with a byte more");
        fs::write(&file, &whole).expect("a file");
    }
}

#[test]
fn z0385_a_file_that_is_missing_is_named() {
    let (_root, path) = saved(3);
    for name in FILES {
        let whole = fs::read(path.join(name)).expect("a file");
        fs::remove_file(path.join(name)).expect("removed");
        let expected = if name == MANIFEST { "Z0383" } else { "Z0385" };
        assert_eq!(refused(&path, name, "removed").0, expected);
        fs::create_dir(path.join(name)).expect("a folder in its place");
        refused(&path, name, "replaced by a folder");
        fs::remove_dir(path.join(name)).expect("removed");
        fs::write(path.join(name), whole).expect("a file");
    }
}

#[test]
fn z0388_a_file_of_another_step_or_rank_is_told() {
    let ((_one, path), (_two, other)) = (saved(3), saved(4));
    for (from, to, expected) in [
        (other.join(FILES[1]), FILES[1], "expected rank 0 of step 3, found rank 0 of step 4"),
        (other.join(FILES[2]), FILES[2], "expected rank 1 of step 3, found rank 1 of step 4"),
    ] {
        let whole = fs::read(path.join(to)).expect("a file");
        fs::copy(from, path.join(to)).expect("a copy");
        let (code, report) = refused(&path, to, "of another step");
        assert_eq!(code, "Z0388");
        assert!(report.contains(expected), "{report}");
        fs::write(path.join(to), whole).expect("a file");
    }
    // A file with another rank in its header has the same length.
    let same = SampleCheckpoint { ranks: 1, ..SampleCheckpoint::of_step(3) };
    let root = tempfile::tempdir().expect("a directory");
    let whole = same.saved(root.path());
    let file = whole.join(FILES[1]);
    let mut bytes = fs::read(&file).expect("a file");
    let at = bytes.windows(10).position(|it| it == b"\"rank\":\"0\"").expect("the rank");
    bytes[at + 8] = b'5';
    fs::write(&file, bytes).expect("a file");
    let (code, report) = refused(&whole, FILES[1], "of another rank");
    assert!(code == "Z0388" && report.contains("expected rank 0 of step 3, found rank 5 of step 3"), "{report}");
    // Either file in the place of the other has another length or another rank.
    for (one, two) in [(FILES[1], FILES[2]), (FILES[2], FILES[1])] {
        let first = fs::read(path.join(one)).expect("a file");
        fs::copy(path.join(two), path.join(one)).expect("a copy");
        let (code, report) = refused(&path, one, "of another rank");
        assert!(code == "Z0386" || code == "Z0388", "{report}");
        fs::write(path.join(one), first).expect("a file");
    }
}

#[test]
fn z0383_what_is_no_checkpoint() {
    let root = tempfile::tempdir().expect("a directory");
    fs::write(root.path().join("file"), "x").expect("a file");
    for (name, words) in [("", "has no manifest.jsonl"), ("nowhere", "No such file"), ("file", "not a folder")] {
        let error = fault(&root.path().join(name)).expect("an error").report();
        assert!(error.starts_with("error[Z0383]: `") && error.contains(words), "{error}");
    }
}

#[test]
fn z0384_a_manifest_of_another_format_or_with_less_than_it_must_have() {
    let (_root, path) = saved(3);
    let manifest = Checkpoint::open(&path).expect("a checkpoint").manifest;
    let with = |change: &dyn Fn(&mut Manifest)| {
        let mut changed = manifest.clone();
        change(&mut changed);
        fs::write(path.join(MANIFEST), sealed::seal(&changed)).expect("a file");
        fault(&path).expect("an error").report()
    };
    let changes: [(Change, &str); 13] = [
        (&|it| it.format = 2, "is of format 2, expected 1"),
        (&|it| it.files.clear(), "names no file"),
        (&|it| it.files.swap(0, 1), "names file 0 `rank-00001.safetensors`"),
        (&|it| it.files[1].chunks.clear(), "has 0 hashes of `rank-00001.safetensors`"),
        (&|it| it.files[2].name = "../tokenizer.json".to_owned(), "names file 2 `../tokenizer.json`"),
        (&|it| it.files.push(it.files[2].clone()), "names file 3 `tokenizer.json`"),
        (&|it| drop(it.files.drain(..2)), "names file 0 `tokenizer.json`"),
        (&|it| it.published[1].named.start = 1, "publishes `up.bias`, which is none of its tensors"),
        (&|it| it.published[1].name = it.published[0].name.clone(), "publishes `up.weight` twice"),
        (&|it| it.tensors[1].name = "up.weight".to_owned(), "has `up.weight` twice"),
        (
            &|it| it.tensors[1].shape = vec![usize::MAX, 2],
            "of the shape [18446744073709551615, 2], but its files have ",
        ),
        (
            &|it| it.published[1].named.shape = vec![usize::MAX, 2],
            "of the shape [18446744073709551615, 2], but its files have ",
        ),
        (&|it| it.tensors[1].shape = vec![9999], "of the shape [9999], but its files have "),
    ];
    for (change, words) in changes {
        let error = with(change);
        assert!(error.starts_with("error[Z0384]: the manifest `") && error.contains(words), "{error}");
    }
}

/// A run that resumes would take the older of two for the newer.
#[test]
fn z0384_a_folder_with_the_name_of_another_step() {
    let (root, path) = saved(7);
    let other = Store::whole(root.path(), 8);
    fs::rename(&path, &other).expect("a name");
    let error = fault(&other).expect("a fault");
    assert_eq!(error.code(), "Z0384");
    assert!(error.to_string().ends_with("is of step 7, but its folder has the name of step 8"), "{error}");
    let copy = root.path().join("best");
    fs::rename(&other, &copy).expect("a name");
    assert!(fault(&copy).is_none(), "any other name is a person's");
}

#[test]
fn z0389_a_header_that_says_what_cannot_be() {
    let (_root, path) = saved(3);
    // Its record of an export would be the first to contradict.
    let whole = Checkpoint::open(&path).expect("a checkpoint").manifest;
    let manifest = Manifest { published: Vec::new(), ..whole };
    let with = |change: &dyn Fn(&mut Manifest)| {
        let mut changed = manifest.clone();
        change(&mut changed);
        fs::write(path.join(MANIFEST), sealed::seal(&changed)).expect("a file");
        let faults = Checkpoint::examine(&path, 1, &|_| {});
        faults.iter().map(CheckpointError::report).collect::<Vec<_>>().join("\n")
    };
    let changes: [(Change, &str); 4] = [
        (&|it| it.tensors[1].name = "other".to_owned(), "has `first_moment/up.bias@0`"),
        (&|it| it.tensors[2].shape = vec![1], "which its tensor does not have"),
        (&|it| it.tensors[2].shape = vec![6], "does not have each element of parameters of `norm@x/y` once"),
        (&|it| it.files.truncate(1), "does not have each element of parameters of `up.weight` once"),
    ];
    for (change, words) in changes {
        let error = with(change);
        assert!(error.starts_with("error[Z0389]: `") && error.contains(words), "{error}");
    }
}

#[test]
fn a_fault_is_told_with_its_place_and_only_the_tensors_there() {
    let root = tempfile::tempdir().expect("a directory");
    let store = Store::open(root.path()).expect("a folder");
    let len = 300_000;
    let tensor =
        |name: &str| TensorInfo { name: name.to_owned(), shape: vec![len], transposed: false, unit: 0, start: 0 };
    let tensors = vec![tensor("a"), tensor("b")];
    let entry = |tensor| TensorRun { state: State::Parameters, tensor, start: 0, len, width: Width::F32 };
    let shard = Shard::new(0, &tensors, vec![entry(0), entry(1)]);
    store.begin(&System, 1, shard.bytes()).expect("a folder");
    let mut writer = ShardWriter::begin(&System, &Store::partial(root.path(), 1), &shard, 1).expect("a file");
    writer.write(&vec![1; 8 * len]).expect("written");
    writer.finish().expect("on the disk");
    let manifest = Manifest { tensors, ..SampleCheckpoint::of_step(1).manifest() };
    let path = store.publish(&System, 1, manifest, &[], 1, None).expect("a checkpoint");
    let file = path.join(FILES[1]);
    let whole = fs::read(&file).expect("a file");
    for (chunk, holds) in [(1, &["`parameters/a@0`", "`parameters/b@0`"][..]), (2, &["`parameters/b@0`"])] {
        let mut flipped = whole.clone();
        flipped[chunk * CHUNK_BYTES + 200_000] ^= 4;
        fs::write(&file, flipped).expect("a file");
        let checkpoint = Checkpoint::open(&path).expect("its header is whole");
        for index in 0..3 {
            let one = checkpoint.verify(&[HashedChunk { file: 0, index }], 1, &|_| {});
            assert_eq!(one.is_err(), index == chunk);
        }
        let all: Vec<HashedChunk> = checkpoint.chunks().collect();
        let read = std::sync::atomic::AtomicU64::new(0);
        let progress = |bytes| {
            read.fetch_add(bytes, std::sync::atomic::Ordering::Relaxed);
        };
        let error = checkpoint.verify(&all, 4, &progress).expect_err("a chunk that was changed");
        assert_eq!(read.into_inner(), whole.len() as u64);
        let CheckpointError::Changed { start, end, holds: found, .. } = error else { panic!("{error}") };
        assert_eq!((start, end), ((chunk * CHUNK_BYTES) as u64, whole.len().min((chunk + 1) * CHUNK_BYTES) as u64));
        assert_eq!(found.0, holds);
    }
}
