//! Read: elements are read back, whatever ranks wrote them and in whatever pieces the writer received them.

use super::*;
use zero_plan::Width;
use zero_plan::place::State;

#[test]
fn every_element_of_every_state_comes_back_from_any_number_of_ranks() {
    for ranks in [1, 2, 3, 7] {
        for params in [Width::F32, Width::BF16] {
            let sample = SampleCheckpoint { ranks, params, shift: 0.25, ..SampleCheckpoint::of_step(5) };
            let root = tempfile::tempdir().expect("a directory");
            let checkpoint = Checkpoint::open(&sample.saved(root.path())).expect("a checkpoint");
            assert_eq!((checkpoint.manifest.step, checkpoint.has(State::Master)), (5, params.is_narrow()));
            for state in State::ALL.into_iter().filter(|&state| checkpoint.has(state)) {
                let mut elements = Elements::all(&checkpoint, state).expect("whole");
                for (tensor, len) in checkpoint.lens().into_iter().enumerate() {
                    for start in 0..len {
                        for end in start..=len {
                            let mut found = vec![-1.0; end - start];
                            elements.read(tensor, start, &mut found).expect("elements");
                            let expected: Vec<f32> = (start..end).map(|i| sample.value(state, tensor, i)).collect();
                            assert_eq!(found, expected, "{ranks} {params:?} {state:?} {tensor} {start}..{end}");
                        }
                    }
                }
            }
        }
    }
}

/// A shard of one tensor that is several chunks long, written in pieces that cycle through these lengths.
fn written(pieces: &[usize]) -> (tempfile::TempDir, Vec<u8>, FileSums) {
    let len = 3 * CHUNK_BYTES / 4 + 1000;
    let tensors = [TensorInfo { name: "a".to_owned(), shape: vec![len], transposed: false, unit: 0, start: 0 }];
    let entry = TensorRun { state: State::Parameters, tensor: 0, start: 0, len, width: Width::F32 };
    let shard = Shard::new(0, &tensors, vec![entry]);
    let root = tempfile::tempdir().expect("a directory");
    let mut writer = ShardWriter::begin(&System, root.path(), &shard, 9).expect("a file");
    let data: Vec<u8> = (0..4 * len).map(|i| (i * 7 / 3) as u8).collect();
    let mut rest = &data[..];
    for &piece in pieces.iter().cycle() {
        let (now, later) = rest.split_at(piece.min(rest.len()));
        writer.write(now).expect("written");
        rest = later;
        if rest.is_empty() {
            break;
        }
    }
    writer.finish().expect("on the disk");
    let bytes = fs::read(root.path().join("rank-00000.safetensors")).expect("a file");
    assert_eq!(bytes.len() as u64, shard.bytes());
    assert!((bytes.len() - data.len()).is_multiple_of(64) && bytes.ends_with(&data));
    let sums = fs::read(root.path().join("rank-00000.sums")).expect("sums");
    (root, bytes, sealed::unseal(&sums).expect("sums"))
}

#[test]
fn files_and_sums_are_the_same_however_bytes_come() {
    let (_root, bytes, sums) = written(&[usize::MAX]);
    let hashes: Vec<String> = bytes.chunks(CHUNK_BYTES).map(|chunk| blake3::hash(chunk).to_hex().to_string()).collect();
    assert!(hashes.len() == 4 && sums.bytes == bytes.len() as u64);
    assert_eq!(sums.chunks, hashes);
    for pieces in [&[1000][..], &[CHUNK_BYTES], &[300_000, 10, 262_144, 5_000_000, 1]] {
        let (_root, again, other) = written(pieces);
        assert!(bytes == again && sums == other, "{pieces:?}");
    }
}

#[test]
fn a_file_is_one_that_the_crate_safetensors_reads() {
    let root = tempfile::tempdir().expect("a directory");
    let path = SampleCheckpoint::of_step(1).saved(root.path());
    let bytes = fs::read(path.join("rank-00001.safetensors")).expect("a file");
    let tensors = safetensors::SafeTensors::deserialize(&bytes).expect("a file of tensors");
    let tensor = tensors.tensor("first_moment/up.weight@6").expect("half of it");
    assert_eq!((tensor.shape(), tensor.dtype()), (&[6][..], safetensors::Dtype::F32));
    assert_eq!(tensor.data()[..4], 3f32.to_le_bytes());
}

#[test]
fn an_entry_that_was_changed_later_is_not_given() {
    let root = tempfile::tempdir().expect("a directory");
    let path = SampleCheckpoint::of_step(1).saved(root.path());
    let checkpoint = Checkpoint::open(&path).expect("a checkpoint");
    let file = path.join("rank-00001.safetensors");
    let mut bytes = fs::read(&file).expect("a file");
    *bytes.last_mut().expect("a byte") ^= 1;
    fs::write(&file, bytes).expect("a file");
    let mut elements = Elements::all(&checkpoint, State::SecondMoment).expect("whole");
    elements.read(0, 0, &mut [0.0; 6]).expect("elements of the other file");
    let error = elements.read(0, 0, &mut [0.0; 7]).expect_err("one of this file");
    assert_eq!(error.code(), "Z0387");
}

#[test]
fn comparisons_tell_what_differs_and_by_how_much() {
    let root = tempfile::tempdir().expect("a directory");
    let saved = |name: &str, sample: SampleCheckpoint| {
        Checkpoint::open(&sample.saved(&root.path().join(name))).expect("a checkpoint")
    };
    let one = saved("one", SampleCheckpoint::of_step(2));
    // Another number of ranks, and no master copy.
    let same = SampleCheckpoint { ranks: 3, params: Width::F32, ..SampleCheckpoint::of_step(2) };
    let comparison = compare(&one, &saved("same", same), &|_| {}).expect("whole");
    assert!(comparison.is_equal() && comparison.compared == 9, "{comparison:?}");
    assert!(comparison.about.iter().any(|line| line == "plan.ranks: 2 and 3"), "{:?}", comparison.about);

    let shifted = SampleCheckpoint { shift: 0.5, ..SampleCheckpoint::of_step(3) };
    let comparison = compare(&one, &saved("shifted", shifted), &|_| {}).expect("whole");
    assert!(!comparison.is_equal() && comparison.compared == 12);
    let told: Vec<_> =
        comparison.tensors.iter().map(|it| (it.state, it.tensor.as_str(), it.differing, it.max_abs)).collect();
    let states = [State::Master, State::FirstMoment, State::SecondMoment];
    let lens = [("up.weight", 12), ("up.bias", 3), ("norm@x/y", 5)];
    let expected: Vec<_> =
        states.iter().flat_map(|&state| lens.iter().map(move |&(name, len)| (state, name, len, 0.5))).collect();
    assert_eq!(told, expected);
    // 0 and 0.5 differ by all of the greater one; 16 and 16.5 by a 33rd.
    assert_eq!((comparison.tensors[0].max_relative, comparison.tensors[1].max_relative), (1.0, 0.5 / 16.5));
    assert!(comparison.about.iter().any(|line| line == "step: 2 and 3"));
}
