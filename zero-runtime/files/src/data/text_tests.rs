//! Tests of [`super::Text`] and of the corpus below it, by the sequences that it returns and the data that it refuses.

use std::collections::HashSet;
use std::fs::{self, File};
use std::path::PathBuf;

use tempfile::{TempDir, tempdir};
use zero_plan::footprint::DATA_BYTES;

use super::*;

const LENGTH: usize = 7;

/// Ids 0, 1, 2, ...: an id shows where it came from.
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
    Text::open(&path, None, LENGTH, 60_000).unwrap()
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
    let text = Text::open(&path, None, LENGTH, 1_000).unwrap();
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
    let text = Text::open(&path, None, LENGTH, 65_536).unwrap();
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
    for text in [Text::open(directory.path(), None, LENGTH, 256), Text::open(&file, None, LENGTH, 256)] {
        let text = text.unwrap();
        assert_eq!(held_out(&text, 0), b"econd, t".map(u32::from));
        assert_eq!(held_out(&text, 0), held_out(&expected, 0));
        assert_eq!(training(&text, 0, 0, 0), training(&expected, 0, 0, 0));
    }
}

#[test]
fn an_unreadable_path_is_z0340() {
    let directory = tempdir().unwrap();
    let absent = error(Text::open(&directory.path().join("absent"), None, LENGTH, 256));
    assert_eq!(absent.code(), "Z0340");
    assert!(absent.report().starts_with("error[Z0340]: cannot read `"), "{}", absent.report());
    assert!(absent.report().contains("absent"), "{}", absent.report());
    assert_eq!(error(Text::open("/dev/zero".as_ref(), None, LENGTH, 256)).code(), "Z0340");
}

#[test]
fn too_little_data_is_z0341() {
    let text = Text::in_memory(b"fifteen letters", "the test", LENGTH, 256).unwrap();
    let short = text.require_sequences().unwrap_err();
    assert_eq!(short.code(), "Z0341");
    assert!(short.to_string().contains("has 15 tokens, expected at least 16"), "{short}");
    assert!(short.help().contains("sequences of 6 tokens or less"), "{}", short.help());
    assert!(Text::in_memory(b"fifteen letters", "the test", 6, 256).unwrap().require_sequences().is_ok());
    let (_directory, empty) = bin(&[]);
    assert_eq!(error(Text::open(&empty, None, LENGTH, 256)).code(), "Z0341");
    let one = error(Text::in_memory(b"a", "the test", LENGTH, 256));
    assert!(one.to_string().contains("has 1 token, expected at least 2"), "{one}");
}

/// An evaluation takes windows, and trains on nothing.
#[test]
fn a_text_too_short_to_train_on_has_windows() {
    let text = Text::in_memory(b"to", "the test", LENGTH, 256).unwrap();
    assert_eq!((text.windows(), text.window_tokens(0), text.held_out_count()), (1, 1, 0));
    let (mut input, mut targets) = ([u32::MAX; LENGTH], [u32::MAX; LENGTH]);
    text.window(0, &mut input, &mut targets);
    assert_eq!((input, targets), ([116, 0, 0, 0, 0, 0, 0], [111, 0, 0, 0, 0, 0, 0]));
}

#[test]
fn an_id_beyond_the_vocabulary_is_z0342_wherever_it_is() {
    let (_directory, path) = numbered(100);
    let beyond = error(Text::open(&path, None, LENGTH, 99));
    assert_eq!(beyond.code(), "Z0342");
    assert!(beyond.to_string().contains("ids.bin` has token id 99 at token 99 (byte 198)"), "{beyond}");
    assert!(beyond.to_string().contains("vocabulary, which is 99"), "{beyond}");
    assert!(beyond.help().contains("at least 100"), "{}", beyond.help());
    assert!(Text::open(&path, None, LENGTH, 100).is_ok());

    let embedded = error(Text::in_memory("only ASCII until here: é".as_bytes(), "the test", LENGTH, 128));
    assert_eq!(embedded.code(), "Z0342");
    assert!(embedded.to_string().contains("token id 195 at token 23 (byte 23)"), "{embedded}");
}

#[test]
fn an_id_beyond_the_vocabulary_is_named_by_its_own_file() {
    let directory = tempdir().unwrap();
    fs::write(directory.path().join("a"), "0123456789").unwrap();
    fs::write(directory.path().join("b"), "01é").unwrap();
    let beyond = error(Text::open(directory.path(), None, LENGTH, 128));
    assert_eq!(beyond.code(), "Z0342");
    assert!(beyond.to_string().contains("/b` has token id 195 at token 2 (byte 2)"), "{beyond}");
}

#[test]
fn z0334_more_text_in_memory_than_the_plan_has_room_for() {
    let fits = vec![b'a'; DATA_BYTES];
    assert!(Text::in_memory(fits, "the test", LENGTH, 256).is_ok());
    let large = error(Text::in_memory(vec![b'a'; DATA_BYTES + 1], "the test", LENGTH, 256));
    assert_eq!(large.code(), "Z0334");
    assert!(large.to_string().starts_with("the test is 16777217 bytes, expected at most 16777216"), "{large}");
    assert!(large.help().contains("--data"), "{}", large.help());
}

/// Sequences that lie in several files, one of them empty, are those of the files joined.
#[test]
fn sequences_cross_files() {
    let directory = tempdir().unwrap();
    let joined: Vec<u8> = (0..60).map(|i| b'0' + i).collect();
    for (name, part) in [("a", 0..3), ("b", 3..3), ("c", 3..4), ("d", 4..30), ("e/f", 30..59), ("g", 59..60)] {
        let path = directory.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, &joined[part]).unwrap();
    }
    let files = Text::open(directory.path(), None, LENGTH, 256).unwrap();
    let memory = Text::in_memory(joined, "the test", LENGTH, 256).unwrap();
    assert_eq!(files.held_out_count(), memory.held_out_count());
    (0..files.held_out_count()).for_each(|index| assert_eq!(held_out(&files, index), held_out(&memory, index)));
    (0..200).for_each(|index| assert_eq!(training(&files, 0, 0, index), training(&memory, 0, 0, index)));
}

/// They stay open.
#[test]
fn files_that_are_moved_replaced_or_removed_are_read_as_before() {
    let root = tempdir().unwrap();
    let folder = root.path().join("data");
    fs::create_dir(&folder).unwrap();
    for (name, content) in [("a", "0123456789"), ("b", "abcdefghij"), ("c", "klmnopqrst")] {
        fs::write(folder.join(name), content).unwrap();
    }
    let single = folder.join("c");
    let texts = [&folder, &single].map(|path| Text::open(path, None, 4, 256).unwrap());
    let drawn = || {
        texts.each_ref().map(|text| {
            let (mut input, mut targets) = ([0; 4], [0; 4]);
            text.held_out(0, &mut input, &mut targets);
            (input, targets)
        })
    };
    let before = drawn();
    fs::write(folder.join("new"), "0000000000").unwrap();
    fs::rename(folder.join("new"), &single).unwrap();
    fs::remove_file(folder.join("a")).unwrap();
    fs::rename(&folder, root.path().join("moved")).unwrap();
    assert_eq!(drawn(), before);
    texts.iter().for_each(|text| text.require_unchanged().unwrap());
}

/// Changes a copy of `content`, and returns what is said of the change and a sequence that was drawn after it.
fn after(content: &[u8], change: impl Fn(&Path)) -> (String, Vec<u32>) {
    let (_directory, path) = bin(content);
    let text = Text::open(&path, Some(DataAs::Bytes), LENGTH, 128).unwrap();
    text.require_unchanged().unwrap();
    change(&path);
    let drawn = || {
        let (mut input, mut targets) = ([0; LENGTH], [0; LENGTH]);
        text.held_out(0, &mut input, &mut targets);
        [input, targets].concat()
    };
    let first = drawn();
    let changed = text.require_unchanged().unwrap_err();
    assert_eq!(changed.code(), "Z0357");
    let said = changed.to_string();
    // A step that could not be done is done again, to find out why.
    fs::write(&path, content).unwrap();
    assert_eq!(drawn(), first);
    let (start, what) = said.split_once("ids.bin` ").unwrap();
    assert!(start.starts_with("the data changed while it was in use: `/"), "{said}");
    (what.to_owned(), first)
}

#[test]
fn z0357_a_file_that_is_cut_off_or_written_to_in_place_is_named_with_the_place() {
    let content = b"sixteen letters!";
    let whole: Vec<u32> = b"letters!"[..7].iter().chain(&b"letters!"[1..]).map(|&byte| byte.into()).collect();
    let cut = |bytes| move |path: &Path| File::options().write(true).open(path).unwrap().set_len(bytes).unwrap();
    let none = vec![u32::MAX; 2 * LENGTH];
    assert_eq!(after(content, cut(12)), ("was cut off at byte 12, and had 16 bytes before".to_owned(), none.clone()));
    assert_eq!(after(content, cut(17)), ("has 17 bytes, and had 16 before".to_owned(), whole.clone()));
    let rewritten = |path: &Path| {
        // Times of files are not finer than a tick of the system.
        std::thread::sleep(std::time::Duration::from_millis(20));
        fs::write(path, content).unwrap();
    };
    assert_eq!(after(content, rewritten), ("was written to".to_owned(), whole));
    // No model of this vocabulary takes it.
    let beyond = |path: &Path| fs::write(path, [&content[..10], &[200; 6]].concat()).unwrap();
    let (what, drawn) = after(content, beyond);
    assert_eq!(what, "has token id 200 at byte 10, and had none so large before");
    assert_eq!(drawn, none);
}

/// Even if its length and its time are what they were.
#[test]
fn z0357_another_header_is_a_change() {
    let directory = tempdir().unwrap();
    let path = directory.path().join("ids.bin");
    let mut content: Vec<u8> = [20_240_520, 1, 16].into_iter().flat_map(i32::to_le_bytes).collect();
    content.resize(1024, 0);
    content.extend((0..16).flat_map(u16::to_le_bytes));
    fs::write(&path, &content).unwrap();
    let text = Text::open(&path, None, LENGTH, 16).unwrap();
    let time = fs::metadata(&path).unwrap().modified().unwrap();
    content[1000] = 1;
    fs::write(&path, &content).unwrap();
    File::options().write(true).open(&path).unwrap().set_modified(time).unwrap();
    let changed = text.require_unchanged().unwrap_err();
    assert!(changed.to_string().ends_with("has another header than before"), "{changed}");
}

#[test]
fn half_a_token_is_z0343() {
    let (_directory, path) = bin(&[0; 33]);
    let odd = error(Text::open(&path, None, LENGTH, 256));
    assert_eq!(odd.code(), "Z0343");
    assert!(odd.to_string().contains("has 33 bytes"), "{odd}");
}

#[test]
fn a_directory_without_text_is_z0344() {
    assert_eq!(error(Text::open(tempdir().unwrap().path(), None, LENGTH, 256)).code(), "Z0344");
}

#[test]
fn z0349_a_file_that_is_no_text_is_learned_on_request_alone() {
    let directory = tempdir().unwrap();
    let file = |name: &str, content: &[u8]| {
        let path = directory.path().join(name);
        fs::write(&path, content).unwrap();
        path
    };
    // The first three are refused by their names, although their contents could be text; the others by their contents,
    // whatever their names.
    for (path, words) in [
        (file("x.parquet", b"PAR1 and words that are text"), "is a table, by its name (.parquet)"),
        (file("x.NPY", b"words that are text, in an array"), "is an array, by its name (.npy)"),
        (file("x.tar.gz", b"words that are text, in an archive"), "is an archive, by its name (.gz)"),
        (file("x", b"words until \0, and then on and on"), "is not text: its byte 12 is zero, or not UTF-8"),
        (file("latin1.txt", b"na\xefve words, and on and on and on"), "is not text: its byte 2 is zero, or not UTF-8"),
    ] {
        let refused = error(Text::open(&path, None, LENGTH, 256));
        assert_eq!(refused.code(), "Z0349");
        assert!(refused.to_string().contains(words), "{refused}");
        assert!(refused.help().ends_with("`--data-as bytes` learns its bytes as they are"), "{}", refused.help());
        let bytes: Vec<u32> = fs::read(&path).unwrap().into_iter().map(u32::from).collect();
        let text = Text::open(&path, Some(DataAs::Bytes), LENGTH, 256).unwrap();
        let held = held_out(&text, 0);
        assert!(bytes.windows(LENGTH + 1).any(|window| window == held), "its own bytes");
    }
    let ids = file("ids.npy", &[7; 40]);
    assert_eq!(held_out(&Text::open(&ids, Some(DataAs::Ids), LENGTH, 1800).unwrap(), 0), [0x0707; LENGTH + 1]);
    let bytes = file("bytes.bin", &[7; 40]);
    assert_eq!(held_out(&Text::open(&bytes, Some(DataAs::Bytes), LENGTH, 8).unwrap(), 0), [7; LENGTH + 1]);
    assert_eq!(error(Text::open(directory.path(), Some(DataAs::Ids), LENGTH, 256)).code(), "Z0355");
}

/// By its content or by its name, alone or in a directory, with a tokenizer or without.
#[test]
fn z0347_structured_data_is_learned_on_request_alone() {
    let lines = "{\"text\": \"one two three\"}\n{\"text\": \"four five\"}\n";
    for (name, content, words, remedy) in [
        (
            "x.jsonl",
            lines,
            "begins like lines of JSON",
            "cargo zero tokenize --tokenizer .. --as jsonl IN --out OUT.bin",
        ),
        ("x.json", lines, "begins like lines of JSON", "--as jsonl"),
        ("x", "[{\"text\": \"one two three\"}]", "begins like an array of JSON", "jq -c '.[]' IN > OUT.jsonl"),
        ("x.csv", "id,text\n1,one two three\n", "begins like a table of CSV", "to a `.jsonl` file"),
        ("x.txt", "{\n \"text\": \"one two\"\n}", "begins like an object of JSON", "to a `.jsonl` file"),
    ] {
        let directory = tempdir().unwrap();
        let path = directory.path().join(name);
        fs::write(&path, content).unwrap();
        for path in [&path, directory.path()] {
            let refused = error(Text::open(path, None, LENGTH, 256));
            assert_eq!(refused.code(), "Z0347", "{name}");
            assert!(refused.to_string().contains(words), "{refused}");
            let help = refused.help();
            assert!(help.contains(remedy) && help.ends_with("`--data-as text` learns the file as it is"), "{help}");
            let text = Text::open(path, Some(DataAs::Text), LENGTH, 256).unwrap();
            assert_eq!(text.contents().unwrap().tokens, content.len());
        }
        let folder = tempdir().unwrap();
        let tokenizer = Tokenizer::open(&super::super::tiny_tokenizer::write(folder.path(), |_| {})).unwrap();
        let tokenized = |path: &Path, data_as| Text::tokenized(path, data_as, &tokenizer, 2, tokenizer.vocabulary());
        for path in [&path, directory.path()] {
            assert_eq!(error(tokenized(path, None)).code(), "Z0347", "{name}");
            assert!(tokenized(path, Some(DataAs::Text)).is_ok(), "{name}");
        }
    }
}

#[test]
fn bytes_for_a_model_that_is_not_of_bytes_are_told() {
    let directory = tempdir().unwrap();
    let path = directory.path().join("a.txt");
    fs::write(&path, "twenty letters, or so").unwrap();
    let told = |path: &Path, data_as, vocabulary| {
        Text::open(path, data_as, LENGTH, vocabulary).unwrap().contents().unwrap().to_string()
    };
    let note = "\n  note: without --tokenizer each byte is a token id, and the model has 50257 of them";
    for path in [&path, directory.path()] {
        assert!(told(path, None, 50_257).ends_with(note));
        assert!(!told(path, None, 264).contains("note") && !told(path, Some(DataAs::Bytes), 50_257).contains("note"));
    }
    let (_directory, ids) = numbered(100);
    assert!(!told(&ids, None, 50_257).contains("note"));
}

#[test]
fn what_a_directory_was_made_of_is_told() {
    let directory = tempdir().unwrap();
    let file = |name: &str, content: &[u8]| fs::write(directory.path().join(name), content).unwrap();
    file("a.txt", b"twenty letters, or so");
    file("b.txt", b"as many, or a few more");
    // Valid UTF-8 by chance.
    for name in ["x.parquet", "y.Parquet", "x.npy", "ids.bin"] {
        file(name, b"text");
    }
    file(".hidden", b"text");
    file("binary", &[0xff, 0xfe]);
    let text = Text::open(directory.path(), None, LENGTH, 256).unwrap();
    let contents = text.contents().unwrap();
    let sequences = text.held_out_count();
    assert_eq!((contents.tokens, contents.held_out_sequences), (43, sequences));
    assert_eq!(contents.held_out_tokens, sequences * (LENGTH + 1));
    let skipped = ".bin (token ids): 1, .npy (an array): 1, .parquet (a table): 2, binary files: 1, hidden entries: 1";
    let told = contents.to_string();
    assert!(told.contains(", 2 files, 43 tokens, "), "{told}");
    assert!(told.ends_with(&format!("\n  skipped: {skipped}")), "{told}");

    let all = Text::open(directory.path(), Some(DataAs::Bytes), LENGTH, 256).unwrap().contents().unwrap();
    assert_eq!((all.taken.as_ref().unwrap().files, all.tokens), (7, 43 + 4 * 4 + 2));
    let memory = Text::in_memory(b"twenty letters, or so", "the test", LENGTH, 256).unwrap().contents().unwrap();
    assert_eq!((memory.taken, memory.origin.as_str(), memory.tokens), (None, "the test", 21));
}
