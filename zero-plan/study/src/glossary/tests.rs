use super::*;

#[test]
fn names_are_found_however_they_are_written() {
    for (asked, expected) in [
        ("reduce-scatter", "reduce-scatter"),
        ("Reduce Scatter", "reduce-scatter"),
        ("REDUCE_SCATTER", "reduce-scatter"),
        ("full-shard", "FULL_SHARD"),
        ("allgather", "all-gather"),
        ("BACKWARD_PRE", "BackwardPrefetch"),
        ("zero stage", "stage"),
        ("microbatch", "micro-batch"),
        ("mics", "MiCS"),
        ("ZeRO-3", "stage"),
        ("offload", "offload_optimizer"),
        ("lora", "LoRA"),
        ("warmup steps", "warmup"),
    ] {
        assert!(find(asked).iter().any(|word| word.name == expected), "{asked}");
    }
    assert!(find("reshard_after").is_empty());
    assert!(find("").is_empty());
}

#[test]
fn a_word_of_several_meanings_has_an_entry_for_each() {
    let origins = |asked| find(asked).iter().map(|word| word.of).collect::<Vec<_>>();
    assert_eq!(origins("activation checkpointing"), [WordOrigin::Field, WordOrigin::DeepSpeed]);
    assert_eq!(origins("reduce_scatter"), [WordOrigin::Field, WordOrigin::DeepSpeed]);
}

#[test]
fn a_key_is_told_with_the_words_that_it_stands_for() {
    let page = key_page("ZERO.gather").expect("a key");
    let expected = "\
zero.gather

How often stage 3 gathers parameters for use.

In a spec:

    zero.gather: `PerMicroBatch` or `PerStep`; by default `PerMicroBatch`

words: all-gather, reshard

names of FSDP: SHARD_GRAD_OP, reshard_after_forward

names of DeepSpeed: stage3_max_live_parameters, stage3_max_reuse_distance";
    assert_eq!(page, expected);
    assert_eq!(key_page("zero.gathered"), None);
}

#[test]
fn unknown_words_get_the_nearest() {
    assert_eq!(nearest("reduce-scater"), Some("reduce-scatter"));
    assert_eq!(nearest("FULLSHRD"), Some("FULL_SHARD"));
    assert_eq!(nearest("overlapcom"), Some("overlap_comm"));
    assert_eq!(nearest("quaternion"), None);
}

#[test]
fn each_word_says_something_and_its_keys_exist() {
    for word in words() {
        let Word { name, meaning, keys, .. } = word;
        assert!(meaning.ends_with('.') && !meaning.contains("  "), "{name}");
        for key in *keys {
            assert!(KEYS.iter().any(|row| row.path == *key), "{name}: {key}");
        }
    }
}

#[test]
fn within_one_origin_a_name_is_used_once() {
    for origin in WordOrigin::ALL {
        let mut bared: Vec<_> = words().filter(|word| word.of == origin).flat_map(names).map(bare).collect();
        let count = bared.len();
        bared.sort();
        bared.dedup();
        assert_eq!(bared.len(), count, "{origin:?}");
    }
    for words in [field::WORDS, training::WORDS] {
        let names: Vec<_> = words.iter().map(|word| bare(word.name)).collect();
        assert!(names.is_sorted(), "{names:?}");
    }
}

#[test]
fn an_entry_is_a_page() {
    let page = find("no_sync")[0].to_string();
    let expected = "no_sync, also set_requires_gradient_sync (FSDP)

Micro-batches whose gradients are not reduced: \
        `reduce: PerStep` sums them locally and
reduces once a step.

In a spec:

    zero.reduce: `PerMicroBatch` or \
        `PerStep`; by default `PerMicroBatch`
    batch.micro_batches: a number of micro-batches from 1 to 8192; by \
        default `1`";
    assert_eq!(page, expected);
}
