//! Tests of token files: a written file can be read, and a broken one is refused before anything in it is trusted.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tempfile::{TempDir, tempdir};

use super::super::tiny_tokenizer::{END, VOCABULARY, write};
use super::super::{DataAs, DataError, Dataset, Draw, Text, Tokenizer};
use super::*;

const LENGTH: usize = 4;

fn tokenizer(directory: &Path, change: impl FnOnce(&mut Value)) -> Tokenizer {
    Tokenizer::open(&write(directory, change)).unwrap()
}

/// A tokenizer with an id that a u16 cannot hold.
fn wide(json: &mut Value) {
    let id = 70_000;
    json["added_tokens"].as_array_mut().unwrap().push(json!({
        "id": id, "content": "<|far|>", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false,
        "special": true,
    }));
    json["model"]["vocab"]["<|far|>"] = json!(id);
}

/// Two documents of 40 and 3 ids.
fn written(directory: &Path, tokenizer: &Tokenizer) -> (PathBuf, Vec<u32>) {
    let path = directory.join("ids.bin");
    let ids: Vec<u32> = (0..43).map(|i| i * 6 % VOCABULARY as u32).collect();
    let mut writer = TokenFileWriter::create(&path, tokenizer).unwrap();
    for part in [&ids[..30], &ids[30..40], &ids[40..]] {
        writer.add(part).unwrap();
        if part.len() != 30 {
            writer.end_document().unwrap();
        }
    }
    assert!(!path.exists(), "under its name it is whole or not there");
    let written = writer.finish().unwrap();
    assert_eq!((written.tokens, written.documents, written.bytes), (43, 2, fs::metadata(&path).unwrap().len()));
    (path, ids)
}

/// All held-out sequences, and some training sequences.
fn all(text: &Text) -> Vec<Vec<u32>> {
    let sequence = |draw: &dyn Fn(&mut [u32], &mut [u32])| {
        let (mut input, mut targets) = ([0; LENGTH], [0; LENGTH]);
        draw(&mut input, &mut targets);
        assert_eq!(input[1..], targets[..LENGTH - 1]);
        [&input[..1], &targets].concat()
    };
    let held_out =
        (0..text.held_out_count()).map(|index| sequence(&|input, targets| text.held_out(index, input, targets)));
    let training = (0..60)
        .map(|index| sequence(&|input, targets| text.training(Draw { seed: 1, step: 2, index }, input, targets)));
    held_out.chain(training).collect()
}

fn bare(directory: &Path, ids: &[u32]) -> PathBuf {
    let path = directory.join("bare.bin");
    fs::write(&path, ids.iter().flat_map(|&id| (id as u16).to_le_bytes()).collect::<Vec<u8>>()).unwrap();
    path
}

fn error(result: Result<Text, DataError>) -> DataError {
    result.err().expect("must be refused")
}

#[test]
fn a_token_file_is_the_same_data_as_its_bare_ids() {
    for (change, width) in [((|_| {}) as fn(&mut Value), 2_usize), (wide, 4)] {
        let directory = tempdir().unwrap();
        let tokenizer = tokenizer(directory.path(), change);
        let (path, ids) = written(directory.path(), &tokenizer);
        let length = fs::metadata(&path).unwrap().len() as usize;
        assert_eq!(length, (72 + 43 * width).next_multiple_of(8) + 2 * 8);
        // Models are often padded to a larger vocabulary.
        let classes = tokenizer.vocabulary() + 50;
        let expected = all(&Text::open(&bare(directory.path(), &ids), Some(DataAs::Ids16), LENGTH, classes).unwrap());
        assert_eq!(all(&Text::open(&path, None, LENGTH, classes).unwrap()), expected);
        let with_it = Text::tokenized(&path, None, &tokenizer, LENGTH, classes).unwrap();
        assert_eq!((all(&with_it), with_it.resident_bytes()), (expected, tokenizer.resident_bytes()));
        assert_eq!(with_it.contents().unwrap().tokens, 43);
    }
}

#[test]
fn files_of_llm_c_are_read() {
    let directory = tempdir().unwrap();
    let ids: Vec<u32> = (0..43).collect();
    let expected = all(&Text::open(&bare(directory.path(), &ids), None, LENGTH, 43).unwrap());
    for (magic, version, width) in [(20240520u32, 1u32, 2), (20240801, 7, 4)] {
        let mut bytes = vec![0; 1024];
        for (at, word) in [magic, version, 43].into_iter().enumerate() {
            bytes[4 * at..4 * at + 4].copy_from_slice(&word.to_le_bytes());
        }
        bytes.extend(ids.iter().flat_map(|id| id.to_le_bytes()[..width].to_vec()));
        let path = directory.path().join("llm.bin");
        fs::write(&path, &bytes).unwrap();
        assert_eq!(all(&Text::open(&path, None, LENGTH, 43).unwrap()), expected);
        let beyond = error(Text::open(&path, None, LENGTH, 42));
        assert!(beyond.to_string().contains(&format!("id 42 at token 42 (byte {})", 1024 + 42 * width)), "{beyond}");
        fs::write(&path, &bytes[..bytes.len() - 1]).unwrap();
        let cut = error(Text::open(&path, None, LENGTH, 43));
        assert_eq!(cut.code(), "Z0371");
        assert!(cut.to_string().contains("a header of llm.c says that there are 43 ids"), "{cut}");
    }
}

/// Every length that the file could have been cut to, and every bit of what surrounds the ids.
#[test]
fn z0371_a_broken_token_file_is_refused() {
    let directory = tempdir().unwrap();
    let tokenizer = tokenizer(directory.path(), |_| {});
    let (path, ids) = written(directory.path(), &tokenizer);
    let whole = fs::read(&path).unwrap();
    let broken = directory.path().join("broken.bin");
    let open = |bytes: &[u8]| {
        fs::write(&broken, bytes).unwrap();
        Text::open(&broken, None, LENGTH, VOCABULARY)
    };
    let code = |bytes: &[u8]| open(bytes).err().map(|error| error.code());
    assert_eq!(code(&whole), None);
    (MAGIC_BYTES..whole.len()).for_each(|length| assert_eq!(code(&whole[..length]), Some("Z0371"), "{length} bytes"));
    assert_eq!(code(&[&whole[..], &[0]].concat()), Some("Z0371"));
    let ends = (72 + 2 * ids.len()).next_multiple_of(8);
    // All but the vocabulary, and the tokenizer's hash, which is only compared with a tokenizer that is given.
    for at in (MAGIC_BYTES..16).chain(24..40).chain(ends..whole.len()) {
        for bit in 0..8 {
            let mut bytes = whole.clone();
            bytes[at] ^= 1 << bit;
            // The first document may end elsewhere, as long as the last one ends after it.
            let first_end = u64::from_le_bytes(bytes[ends..ends + 8].try_into().unwrap());
            let expected = if at / 8 == ends / 8 && first_end <= 43 { None } else { Some("Z0371") };
            assert_eq!(code(&bytes), expected, "bit {bit} of byte {at}");
        }
    }
    let with_vocabulary = |vocabulary: u64| {
        let mut bytes = whole.clone();
        bytes[16..24].copy_from_slice(&vocabulary.to_le_bytes());
        open(&bytes).err().map_or_else(String::new, |error| error.report())
    };
    assert!(with_vocabulary(0).contains("error[Z0371]"));
    assert!(with_vocabulary(65_537).contains("has a vocabulary of 65537, expected 1 to 65536"));
    assert!(with_vocabulary(200).contains("but says that its vocabulary is 200"));
    assert!(with_vocabulary(VOCABULARY as u64 + 1).contains("error[Z0372]"));
}

/// The ends of documents, each after the one before it.
#[test]
fn z0371_a_document_that_ends_before_the_one_before_it() {
    let directory = tempdir().unwrap();
    let path = directory.path().join("ids.bin");
    let mut writer = TokenFileWriter::create(&path, &tokenizer(directory.path(), |_| {})).unwrap();
    for _ in 0..3 {
        writer.add(&[1, 2, 3, 4]).unwrap();
        writer.end_document().unwrap();
    }
    writer.finish().unwrap();
    let whole = fs::read(&path).unwrap();
    let second = whole.len() - 2 * size_of::<u64>();
    for (end, is_whole) in [(3_u64, false), (4, true), (12, true), (13, false)] {
        let changed = [&whole[..second], &end.to_le_bytes(), &whole[second + 8..]].concat();
        fs::write(&path, changed).unwrap();
        let refused = Text::open(&path, None, LENGTH, VOCABULARY).err().map(|error| error.to_string());
        assert_eq!(refused.is_none(), is_whole, "{refused:?}");
        let what = format!("says that document 1 ends at id {end}, expected 4 to 12");
        assert!(refused.is_none_or(|refused| refused.contains(&what)));
    }
}

/// Bytes of the mark that a header begins with.
const MAGIC_BYTES: usize = 8;

#[test]
fn z0372_a_vocabulary_larger_than_the_models() {
    let directory = tempdir().unwrap();
    let tokenizer = tokenizer(directory.path(), |_| {});
    let (path, _) = written(directory.path(), &tokenizer);
    let refused = error(Text::open(&path, None, LENGTH, VOCABULARY - 1));
    assert_eq!(refused.code(), "Z0372");
    let words = format!("has a vocabulary of {VOCABULARY} tokens, and the model's has {}", VOCABULARY - 1);
    assert!(refused.to_string().contains(&words), "{refused}");
    let text = Text::tokenized_in_memory("text", "the test", &tokenizer, LENGTH, VOCABULARY - 1);
    assert!(error(text).to_string().starts_with("the tokenizer `"));
}

#[test]
fn z0373_a_token_file_of_another_tokenizer() {
    let (directory, elsewhere) = (tempdir().unwrap(), tempdir().unwrap());
    let (path, _) = written(directory.path(), &tokenizer(directory.path(), |_| {}));
    let other = tokenizer(elsewhere.path(), |json| json["added_tokens"][1]["content"] = json!("<|other|>"));
    let refused = error(Text::tokenized(&path, None, &other, LENGTH, VOCABULARY));
    assert_eq!(refused.code(), "Z0373");
    assert!(refused.to_string().contains(&short(&other.hash())), "{refused}");
}

#[test]
fn z0374_text_that_is_too_large_to_encode_at_a_start() {
    let directory = tempdir().unwrap();
    let tokenizer = tokenizer(directory.path(), |_| {});
    let path = directory.path().join("text");
    fs::write(&path, vec![b'a'; zero_plan::footprint::DATA_BYTES + 1]).unwrap();
    let refused = error(Text::tokenized(&path, None, &tokenizer, LENGTH, VOCABULARY));
    assert_eq!(refused.code(), "Z0374");
    assert!(refused.to_string().contains("is 16777217 bytes, expected at most 16777216"), "{refused}");
    assert!(refused.help().contains("cargo zero tokenize"));
}

#[test]
fn text_is_encoded_at_a_start() {
    let directory = tempdir().unwrap();
    let tokenizer = tokenizer(directory.path(), |_| {});
    let texts = [("a.txt", "the thing in the thing"), ("b/c.md", "a\nb"), ("d.txt", "in the end, the thing\n\n")];
    let data = directory.path().join("data");
    fs::create_dir_all(data.join("b")).unwrap();
    let mut ids = Vec::new();
    for (name, text) in texts {
        fs::write(data.join(name), text).unwrap();
        ids.extend(tokenizer.encode(text).unwrap());
        ids.push(END);
    }
    fs::write(data.join("binary"), [0xff]).unwrap();
    let expected = all(&Text::open(&bare(directory.path(), &ids), None, LENGTH, VOCABULARY).unwrap());
    let text = Text::tokenized(&data, None, &tokenizer, LENGTH, VOCABULARY).unwrap();
    assert_eq!(all(&text), expected);
    assert!(text.resident_bytes() > tokenizer.resident_bytes() + 2 * ids.len());
    let one = Text::tokenized(&data.join("d.txt"), None, &tokenizer, 2, VOCABULARY).unwrap();
    let same = Text::tokenized_in_memory(texts[2].1, "the test", &tokenizer, 2, VOCABULARY).unwrap();
    assert_eq!(one.contents().unwrap().tokens, same.contents().unwrap().tokens);
    assert_eq!(one.fingerprint(), same.fingerprint());
    // `--data-as` counts more than the tokenizer.
    let as_ids = Text::tokenized(&bare(directory.path(), &ids), Some(DataAs::Ids), &tokenizer, LENGTH, VOCABULARY);
    assert_eq!(all(&as_ids.unwrap()), expected);
}

#[test]
fn z0379_a_file_that_is_there_is_not_overwritten() {
    let directory = tempdir().unwrap();
    let tokenizer = tokenizer(directory.path(), |_| {});
    let path = directory.path().join("new.bin");
    let mut writer = TokenFileWriter::create(&path, &tokenizer).unwrap();
    writer.add(&[1]).unwrap();
    writer.end_document().unwrap();
    fs::write(&path, "of another").unwrap();
    let errors = [writer.finish().err(), TokenFileWriter::create(&path, &tokenizer).err()];
    for error in errors {
        let error = error.expect("must be refused");
        assert_eq!(error.code(), "Z0379");
        assert!(error.help().contains("none is overwritten"), "{}", error.help());
    }
    assert_eq!(fs::read(&path).unwrap(), b"of another");
    let absent = TokenFileWriter::create(&directory.path().join("absent/new.bin"), &tokenizer).err().unwrap();
    assert_eq!(absent.code(), "Z0379");
    assert_eq!(left(&directory), ["new.bin", "tokenizer.json"], "nothing else stays");
}

/// A process that is killed leaves its files, which no longer have its lock.
#[test]
fn what_a_killed_process_left_is_removed_and_what_is_in_use_stays() {
    let directory = tempdir().unwrap();
    let tokenizer = tokenizer(directory.path(), |_| {});
    let file = |name: &str| fs::File::create(directory.path().join(name)).unwrap();
    [".new.bin.1.partial", ".new.bin.1.ends", ".new.bin.20.ends"].into_iter().for_each(|name| drop(file(name)));
    let kept = [".old.bin.1.partial", ".new.bin.x.ends", ".new.bin.2", "new.bin.2.ends"];
    kept.into_iter().for_each(|name| drop(file(name)));
    let used = file(".new.bin.3.partial");
    rustix::fs::flock(&used, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let writer = TokenFileWriter::create(&directory.path().join("new.bin"), &tokenizer).unwrap();
    assert!(writer.unfinished().iter().all(|path| path.exists()) && writer.unfinished().len() == 2);
    drop(writer);
    let expected = [".new.bin.2", ".new.bin.3.partial", ".new.bin.x.ends", ".old.bin.1.partial", "new.bin.2.ends"];
    assert_eq!(left(&directory)[..5], expected);
}

fn left(directory: &TempDir) -> Vec<String> {
    let entries = fs::read_dir(directory.path()).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}
