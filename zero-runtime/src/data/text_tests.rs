//! Tests of [`super::Text`] and of the corpus below it, by what sequences it gives and what data it refuses.

use std::collections::HashSet;
use std::fs;
use std::path::PathBuf;

use tempfile::{TempDir, tempdir};

use super::*;

const LENGTH: usize = 7;

/// Ids 0, 1, 2, ...: an id tells where it came from.
fn numbered(tokens: u16) -> (TempDir, PathBuf) {
    bin(&(0..tokens).flat_map(u16::to_le_bytes).collect::<Vec<u8>>())
}

fn bin(content: &[u8]) -> (TempDir, PathBuf) {
    let directory = tempdir().unwrap();
    let path = directory.path().join("ids.bin");
    fs::write(&path, content).unwrap();
    (directory, path)
}

fn text() -> Text {
    let (_directory, path) = numbered(60_000);
    Text::open(&path, LENGTH, 60_000).unwrap()
}

fn training(text: &Text, seed: u64, step: u64, index: u64) -> Vec<u32> {
    let (mut input, mut targets) = ([u32::MAX; LENGTH], [u32::MAX; LENGTH]);
    text.training(Draw { seed, step, index }, &mut input, &mut targets);
    sequence(&input, &targets)
}

fn held_out(text: &Text, index: usize) -> Vec<u32> {
    let (mut input, mut targets) = ([u32::MAX; LENGTH], [u32::MAX; LENGTH]);
    text.held_out(index, &mut input, &mut targets);
    sequence(&input, &targets)
}

/// The window that `input` and `targets` are made of.
fn sequence(input: &[u32], targets: &[u32]) -> Vec<u32> {
    assert_eq!(input[1..], targets[..LENGTH - 1], "a target is the next token");
    [&input[..1], targets].concat()
}

fn error(result: Result<Text, DataError>) -> DataError {
    result.err().expect("must be refused")
}

#[test]
fn equal_draws_are_equal_and_others_differ() {
    let (first, second) = (text(), text());
    assert_eq!(training(&first, 1, 2, 3), training(&second, 1, 2, 3));
    let indices = (0..40).map(|index| training(&first, 0, 0, index)).collect::<HashSet<_>>();
    let steps = (0..40).map(|step| training(&first, 0, step, 0)).collect::<HashSet<_>>();
    let seeds = (0..40).map(|seed| training(&first, seed, 0, 0)).collect::<HashSet<_>>();
    assert_eq!((indices.len(), steps.len(), seeds.len()), (40, 40, 40));
}

#[test]
fn training_never_sees_a_held_out_token_and_sees_all_others() {
    let (_directory, path) = numbered(1_000);
    let text = Text::open(&path, LENGTH, 1_000).unwrap();
    let held: HashSet<u32> = (0..text.held_out_count()).flat_map(|index| held_out(&text, index)).collect();
    assert_eq!(held.len(), text.held_out_count() * (LENGTH + 1), "held-out sequences do not overlap");
    let trained: HashSet<u32> = (0..100_000).flat_map(|index| training(&text, 0, 0, index)).collect();
    assert!(trained.is_disjoint(&held));
    assert_eq!(trained.len() + held.len(), 1_000);
}

#[test]
fn a_bin_file_comes_back_whole() {
    let ids: Vec<u16> = (0..16).map(|id| id * 4369).collect();
    let (_directory, path) = bin(&ids.iter().copied().flat_map(u16::to_le_bytes).collect::<Vec<u8>>());
    let text = Text::open(&path, LENGTH, 65_536).unwrap();
    let back = [training(&text, 0, 0, 0), held_out(&text, 0)].concat();
    assert_eq!(back, ids.into_iter().map(u32::from).collect::<Vec<u32>>());
}

#[test]
fn a_file_a_directory_and_bytes_in_memory_are_the_same_text() {
    let directory = tempdir().unwrap();
    fs::create_dir(directory.path().join("a")).unwrap();
    fs::write(directory.path().join("b"), "second, third").unwrap();
    fs::write(directory.path().join("a/z"), "first, ").unwrap();
    fs::write(directory.path().join("binary"), [0xff, 0xfe]).unwrap();
    let file = directory.path().join(".text");
    fs::write(&file, "first, second, third").unwrap();
    let expected = Text::in_memory(b"first, second, third", "the test", LENGTH, 256).unwrap();
    for text in [Text::open(directory.path(), LENGTH, 256), Text::open(&file, LENGTH, 256)] {
        let text = text.unwrap();
        assert_eq!(held_out(&text, 0), b"econd, t".map(u32::from));
        assert_eq!(held_out(&text, 0), held_out(&expected, 0));
        assert_eq!(training(&text, 0, 0, 0), training(&expected, 0, 0, 0));
    }
}

#[test]
fn an_unreadable_path_is_z0340() {
    let directory = tempdir().unwrap();
    let absent = error(Text::open(&directory.path().join("absent"), LENGTH, 256));
    assert_eq!(absent.code(), "Z0340");
    assert!(absent.report().starts_with("error[Z0340]: cannot read `"), "{}", absent.report());
    assert!(absent.report().contains("absent"), "{}", absent.report());
    assert_eq!(error(Text::open("/dev/zero".as_ref(), LENGTH, 256)).code(), "Z0340");
}

#[test]
fn too_little_data_is_z0341() {
    let short = error(Text::in_memory(b"fifteen letters", "the test", LENGTH, 256));
    assert_eq!(short.code(), "Z0341");
    assert!(short.to_string().contains("has 15 tokens, expected at least 16"), "{short}");
    assert!(short.help().contains("sequences of 6 tokens or less"), "{}", short.help());
    assert!(Text::in_memory(b"fifteen letters", "the test", 6, 256).is_ok());
    let (_directory, empty) = bin(&[]);
    assert_eq!(error(Text::open(&empty, LENGTH, 256)).code(), "Z0341");
}

#[test]
fn an_id_beyond_the_vocabulary_is_z0342_wherever_it_is() {
    let (_directory, path) = numbered(100);
    let beyond = error(Text::open(&path, LENGTH, 99));
    assert_eq!(beyond.code(), "Z0342");
    assert!(beyond.to_string().contains("ids.bin` has token id 99 at token 99 (byte 198)"), "{beyond}");
    assert!(beyond.to_string().contains("vocabulary, which is 99"), "{beyond}");
    assert!(beyond.help().contains("at least 100"), "{}", beyond.help());
    assert!(Text::open(&path, LENGTH, 100).is_ok());

    let embedded = error(Text::in_memory("only ASCII until here: é".as_bytes(), "the test", LENGTH, 128));
    assert_eq!(embedded.code(), "Z0342");
    assert!(embedded.to_string().contains("token id 195 at token 23 (byte 23)"), "{embedded}");
}

#[test]
fn an_id_beyond_the_vocabulary_is_named_by_its_own_file() {
    let directory = tempdir().unwrap();
    fs::write(directory.path().join("a"), "0123456789").unwrap();
    fs::write(directory.path().join("b"), "01é").unwrap();
    let beyond = error(Text::open(directory.path(), LENGTH, 128));
    assert_eq!(beyond.code(), "Z0342");
    assert!(beyond.to_string().contains("/b` has token id 195 at token 2 (byte 2)"), "{beyond}");
}

#[test]
fn half_a_token_is_z0343() {
    let (_directory, path) = bin(&[0; 33]);
    let odd = error(Text::open(&path, LENGTH, 256));
    assert_eq!(odd.code(), "Z0343");
    assert!(odd.to_string().contains("has 33 bytes"), "{odd}");
}

#[test]
fn a_directory_without_text_is_z0344() {
    assert_eq!(error(Text::open(tempdir().unwrap().path(), LENGTH, 256)).code(), "Z0344");
}

#[test]
#[should_panic(expected = "the data changed while it was in use")]
fn ids_that_change_later_never_reach_a_model() {
    let (_directory, path) = numbered(16);
    let text = Text::open(&path, LENGTH, 16).unwrap();
    fs::write(&path, [0xff; 32]).unwrap();
    training(&text, 0, 0, 0);
}
