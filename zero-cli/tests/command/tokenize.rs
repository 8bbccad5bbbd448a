//! `cargo zero tokenize`: documents of all kinds of files become ids, in order, with any number of threads; mistakes in
//! them are reported with their place.

#[path = "../../../zero-runtime/files/src/data/tiny_tokenizer.rs"]
mod tiny_tokenizer;

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use parquet::basic::{Compression, ZstdLevel};
use parquet::data_type::{ByteArray, ByteArrayType};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use tempfile::{TempDir, tempdir};
use tiny_tokenizer::END;
use zero_files::data::Tokenizer;

const TEXTS: [&str; 4] = ["the thing\nin the end", "", "é and\n\n more\nlines of\ntext", "last\n"];

struct Place {
    directory: TempDir,
    tokenizer: Tokenizer,
}

impl Place {
    fn new() -> Self {
        let directory = tempdir().expect("a directory");
        let tokenizer = Tokenizer::open(&tiny_tokenizer::write(directory.path(), |_| {})).expect("a tokenizer");
        Self { directory, tokenizer }
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Runs the command, and gives what it says on standard output, or on standard error if it refuses.
    fn tokenize(&self, arguments: &[&str]) -> Result<String, String> {
        let mut command = Command::new(env!("CARGO_BIN_EXE_zero"));
        command.args(["tokenize", "--tokenizer", "tokenizer.json"]).args(arguments).current_dir(self.path());
        let output = command.output().expect("the command");
        let text = |bytes| String::from_utf8(bytes).expect("text");
        if output.status.success() { Ok(text(output.stdout)) } else { Err(text(output.stderr)) }
    }

    /// The ids of a token file of u16, and where documents end.
    fn read(&self, name: &str) -> (Vec<u32>, Vec<u64>) {
        let bytes = fs::read(self.path().join(name)).expect("a token file");
        let number = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"));
        assert_eq!((&bytes[..8], bytes[12], &bytes[40..72]), (&b"ZEROTOKS"[..], 2, &self.tokenizer.hash()[..]));
        assert_eq!(number(16), tiny_tokenizer::VOCABULARY as u64);
        let (tokens, documents) = (number(24) as usize, number(32) as usize);
        let ids = bytes[72..72 + 2 * tokens].as_chunks().0.iter().map(|id| u32::from(u16::from_le_bytes(*id)));
        let ends = (72 + 2 * tokens).next_multiple_of(8);
        (ids.collect(), (0..documents).map(|i| number(ends + 8 * i)).collect())
    }

    /// The ids that texts must give, and where documents must end.
    fn expected(&self, texts: &[&str], separator: Option<u32>) -> (Vec<u32>, Vec<u64>) {
        let (mut ids, mut ends) = (Vec::new(), Vec::new());
        for text in texts {
            ids.extend(self.tokenizer.encode(text).expect("ids"));
            ids.extend(separator);
            ends.push(ids.len() as u64);
        }
        (ids, ends)
    }

    fn table(&self, name: &str, texts: &[&str], compression: Compression) {
        let schema = parse_message_type("message m { required int32 id; required binary text (UTF8); }");
        let properties = WriterProperties::builder().set_compression(compression).build();
        let file = File::create(self.path().join(name)).expect("a file");
        let schema = Arc::new(schema.expect("a schema"));
        let mut writer = SerializedFileWriter::new(file, schema, Arc::new(properties)).expect("a table");
        // Two groups of rows.
        for texts in texts.chunks(texts.len().div_ceil(2)) {
            let mut group = writer.next_row_group().expect("a group");
            let mut ids = group.next_column().expect("a column").expect("ids");
            let numbers: Vec<i32> = (0..texts.len() as i32).collect();
            ids.typed::<parquet::data_type::Int32Type>().write_batch(&numbers, None, None).expect("written");
            ids.close().expect("ids");
            let mut column = group.next_column().expect("a column").expect("texts");
            let values: Vec<ByteArray> = texts.iter().map(|&text| text.into()).collect();
            column.typed::<ByteArrayType>().write_batch(&values, None, None).expect("written");
            column.close().expect("texts");
            group.close().expect("a group");
        }
        writer.close().expect("a table");
    }
}

fn json_lines(texts: &[&str], field: &str) -> String {
    texts.iter().map(|text| serde_json::json!({ "id": 3, field: text }).to_string() + "\n").collect()
}

#[test]
fn all_kinds_of_files_come_to_the_same_ids() {
    let place = Place::new();
    fs::create_dir(place.path().join("texts")).expect("a directory");
    for (number, text) in TEXTS.iter().enumerate() {
        fs::write(place.path().join(format!("texts/{number}.txt")), text).expect("a text");
    }
    fs::write(place.path().join("a.jsonl"), json_lines(&TEXTS, "text")).expect("lines");
    fs::write(place.path().join("b.jsonl"), format!("\n{}\n", json_lines(&TEXTS, "body"))).expect("lines");
    place.table("a.parquet", &TEXTS, Compression::SNAPPY);
    place.table("b.parquet", &TEXTS, Compression::ZSTD(ZstdLevel::default()));
    let expected = place.expected(&TEXTS, Some(END));
    for (number, arguments) in [
        &["texts"][..],
        &["a.jsonl", "--threads", "1"],
        &["b.jsonl", "--field", "body"],
        &["a.parquet", "--threads", "3"],
        &["b.parquet", "--column", "text", "--separator", "<|endoftext|>"],
    ]
    .iter()
    .enumerate()
    {
        let out = format!("{number}.bin");
        let told = place.tokenize(&[arguments, &["--out", &out][..]].concat()).expect("ids");
        assert_eq!(place.read(&out), expected, "{arguments:?}");
        let bytes: usize = TEXTS.iter().map(|text| text.len()).sum();
        let words = format!("4 documents, {bytes} bytes of text, {} tokens, ", expected.0.len());
        assert!(told.starts_with(&words) && told.ends_with(" tokens/s\n"), "{told}");
    }
    place.tokenize(&["a.jsonl", "texts/0.txt", "--separator=<|im_end|>", "--out=several.bin"]).expect("ids");
    let several = [&TEXTS[..], &TEXTS[..1]].concat();
    assert_eq!(place.read("several.bin"), place.expected(&several, Some(END + 1)));
    place.tokenize(&["a.jsonl", "--separator", "none", "--out", "none.bin"]).expect("ids");
    assert_eq!(place.read("none.bin"), place.expected(&TEXTS, None));
}

/// The text is longer than a batch, and the end of a buffer may be within a character.
#[test]
fn a_long_text_is_read_in_stretches() {
    let place = Place::new();
    const LINES: usize = 150_000;
    let text = "the thing, é €\nin the end\nand more \n".repeat(LINES);
    fs::write(place.path().join("long.txt"), &text).expect("a text");
    place.tokenize(&["long.txt", "--out", "long.bin"]).expect("ids");
    let (ids, ends) = place.read("long.bin");
    assert_eq!(ends, [ids.len() as u64]);
    let line = place.tokenizer.encode(&text[..text.len() / LINES]).expect("ids");
    assert_eq!(ids.len(), line.len() * LINES + 1, "a line ends where a word does");
    assert!(ids[..line.len()] == line && ids[ids.len() - 1 - line.len()..ids.len() - 1] == line);
}

/// What is left out of a directory is told, as a run tells it. A file that would be an error by its own path is one there.
#[test]
fn what_is_left_out_of_a_directory_is_told() {
    let place = Place::new();
    let file = |name: &str, content: &[u8]| {
        let path = place.path().join(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(path, content).expect("a file");
    };
    file("data/a.jsonl", b"{\"text\": \"the thing\"}\n");
    file("elsewhere", b"in the end");
    symlink("../elsewhere", place.path().join("data/b-link")).expect("a link");
    symlink(".", place.path().join("data/circle")).expect("a link");
    for name in ["data/c.jsonl.gz", "data/target/d.jsonl", "data/.e"] {
        file(name, b"text");
    }
    file("data/f", b"\xff");
    let told = place.tokenize(&["data", "--out", "a.bin"]).expect("ids");
    assert_eq!(place.read("a.bin"), place.expected(&["the thing", "in the end"], Some(END)));
    let skipped = "data: `data`, 2 files\n  skipped: .gz (an archive): 1, binary files: 1, generated directories: 1, hidden \
                   entries: 1, links and special files: 1\n2 documents, ";
    assert!(told.starts_with(skipped), "{told}");

    file("data/z.jsonl", b"{\"text\": \"caf\xe9\"}\n");
    refused(&place, &["data"], "error[Z0375]: data/z.jsonl:1 is no JSON: ");
    fs::remove_file(place.path().join("data/z.jsonl")).expect("the file");
    file("data/z.TXT", b"caf\xe9");
    refused(&place, &["data"], "error[Z0375]: data/z.TXT is no UTF-8 at byte 3");
    fs::remove_file(place.path().join("data/z.TXT")).expect("the file");
    symlink("nowhere.parquet", place.path().join("data/z.parquet")).expect("a link");
    refused(&place, &["data"], "error[Z0340]: cannot read `data/z.parquet`");
}

/// No word ends for longer than a batch; then one does. Letters before it, and behind it another long word.
#[test]
fn a_long_word_is_read_in_stretches() {
    let place = Place::new();
    let (word, other) = ("thein".repeat(900_000), "是".repeat(100_000));
    fs::write(place.path().join("long.txt"), format!("in {word} the {other}")).expect("a text");
    place.tokenize(&["long.txt", "--out", "long.bin"]).expect("ids");
    let (ids, ends) = place.read("long.bin");
    let encode = |text: &str| place.tokenizer.encode(text).expect("ids");
    let expected = [
        encode("in"),
        encode(" the"),
        encode("inthe").repeat(899_999),
        encode("in the"),
        encode(&format!(" {other}")),
        vec![END],
    ];
    assert!(ids == expected.concat(), "a merge is within `the` and `in`");
    assert_eq!(ends, [ids.len() as u64]);
}

/// Checks that the command refuses with these words, and that it leaves nothing behind.
fn refused(place: &Place, arguments: &[&str], words: &str) {
    let told = place.tokenize(&[arguments, &["--out", "new.bin"]].concat()).expect_err(words);
    assert!(told.starts_with("error[") && told.contains(words), "expected {words}: {told}");
    let left =
        fs::read_dir(place.path()).expect("entries").filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    assert!(left.into_iter().all(|name| !name.contains("new.bin")));
}

#[test]
fn z0375_documents_that_cannot_be_read() {
    let place = Place::new();
    let write = |name: &str, content: &[u8]| fs::write(place.path().join(name), content).expect("a file");
    write("bad.jsonl", b"{\"text\": \"a\"}\n{\"text\": \"a\n");
    refused(&place, &["bad.jsonl"], "error[Z0375]: bad.jsonl:2 is no JSON: ");
    write("list.jsonl", b"[1]\n");
    refused(&place, &["list.jsonl"], "error[Z0375]: list.jsonl:1 is no JSON object");
    write("bad.parquet", b"PAR1 and no more");
    refused(&place, &["bad.parquet"], "error[Z0375]: bad.parquet is no Parquet file");
    write("latin1.txt", b"caf\xe9 and more");
    refused(&place, &["latin1.txt"], "error[Z0375]: latin1.txt is no UTF-8 at byte 3");
    write("cut.txt", b"caf\xc3");
    refused(&place, &["cut.txt"], "error[Z0375]: cut.txt is no UTF-8 at byte 3");
    refused(&place, &["absent.txt"], "error[Z0340]: cannot read `absent.txt`");
}

#[test]
fn z0376_documents_without_text() {
    let place = Place::new();
    fs::write(place.path().join("a.jsonl"), json_lines(&["one"], "body")).expect("lines");
    refused(&place, &["a.jsonl"], "error[Z0376]: a.jsonl:1 has no field `text`");
    refused(&place, &["a.jsonl"], "it has body, id");
    refused(&place, &["a.jsonl", "--field", "id"], "error[Z0376]: a.jsonl:1 has no text in the field `id`");
    place.table("a.parquet", &TEXTS, Compression::UNCOMPRESSED);
    refused(&place, &["a.parquet", "--column", "body"], "error[Z0376]: a.parquet has no column `body`");
    refused(&place, &["a.parquet", "--column", "id"], "error[Z0376]: a.parquet, row 0 has no text in the column `id`");
}

#[test]
fn z0356_a_pointer_of_git_lfs_is_no_document() {
    let place = Place::new();
    for name in ["a.txt", "a.jsonl", "a.parquet"] {
        let pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 151234567\n";
        fs::write(place.path().join(name), pointer).expect("a file");
        for input in [name, "."] {
            refused(&place, &[input], &format!("{name}` is a pointer of Git LFS"));
        }
        fs::remove_file(place.path().join(name)).expect("a file");
    }
}

/// The libraries for these files panic on some that are damaged.
#[test]
fn a_damaged_file_is_an_error_and_no_panic() {
    let place = Place::new();
    place.table("a.parquet", &TEXTS, Compression::UNCOMPRESSED);
    for name in ["a.parquet", "tokenizer.json"] {
        let path = place.path().join(name);
        let whole = fs::read(&path).expect("a file");
        for byte in (0..whole.len()).step_by(whole.len() / 60 + 1) {
            let mut damaged = whole.clone();
            damaged[byte] ^= 1 << (byte % 8);
            fs::write(&path, damaged).expect("a file");
            let _ = fs::remove_file(place.path().join("o.bin"));
            if let Err(error) = place.tokenize(&["a.parquet", "--out", "o.bin"]) {
                assert!(error.starts_with("error[") && !error.contains("panicked"), "byte {byte} of {name}: {error}");
            }
        }
        fs::write(&path, whole).expect("a file");
    }
}

/// As files and through a pipe. What is read as lines is the same text by any name.
#[test]
fn z0347_structured_data_is_read_as_it_is_on_request_alone() {
    let place = Place::new();
    let lines = json_lines(&TEXTS, "text");
    let write = |name: &str, content: &str| fs::write(place.path().join(name), content).expect("a file");
    write("lines.json", &lines);
    write("array.json", "[\n{\"text\": \"one\"}\n]\n");
    write("table.csv", "id,text\n1,one\n");
    refused(&place, &["lines.json"], "error[Z0347]: `lines.json` begins like lines of JSON");
    refused(&place, &["lines.json"], "`--as jsonl` takes the text in a field of each line");
    refused(&place, &["array.json"], "by `jq -c '.[]' IN > OUT.jsonl`; `--as text` takes the file as it is");
    refused(&place, &["."], "error[Z0347]: `./array.json` begins like an array of JSON");
    refused(&place, &["table.csv"], "error[Z0347]: `table.csv` begins like a table of CSV");
    place.tokenize(&["lines.json", "--as", "jsonl", "--out", "a.bin"]).expect("ids");
    assert_eq!(place.read("a.bin"), place.expected(&TEXTS, Some(END)));
    place.tokenize(&["lines.json", "--as", "text", "--out", "b.bin"]).expect("ids");
    assert_eq!(place.read("b.bin"), place.expected(&[&lines], Some(END)));

    let piped = |arguments: &[&str]| {
        let script = format!("cat lines.json | \"$0\" tokenize --tokenizer tokenizer.json {}", arguments.join(" "));
        let mut shell = Command::new("sh");
        shell.args(["-c", &script, env!("CARGO_BIN_EXE_zero")]).current_dir(place.path());
        shell.output().expect("a shell")
    };
    let told = String::from_utf8(piped(&["/dev/stdin", "--out", "c.bin"]).stderr).expect("text");
    assert!(told.contains("error[Z0347]: `/dev/stdin` begins like lines of JSON"), "{told}");
    assert!(piped(&["/dev/stdin", "--as", "jsonl", "--out", "c.bin"]).status.success());
    assert_eq!(place.read("c.bin"), place.expected(&TEXTS, Some(END)));
}

/// Bad in all ways: cut off, of another kind, without text, not Unicode, zeros.
#[test]
fn bad_records_are_passed_over_on_request_and_counted() {
    let place = Place::new();
    let write = |name: &str, content: &[u8]| fs::write(place.path().join(name), content).expect("a file");
    let bad =
        b"{\"text\": \"the thing\"}\n[1]\n{\"text\": null}\n\0\0\n{\"text\": \"\xe9\"}\n{\"text\": \"\\ud83d\"}\n\
                {\"body\": \"\"}\n{\"text\": \"in\", \"score\": 1e999, \"title\": \"\\ud83d\"}\n{\"text\": \"cut o";
    write("bad.jsonl", bad);
    refused(&place, &["bad.jsonl"], "error[Z0375]: bad.jsonl:2 is no JSON object");
    let told = place.tokenize(&["bad.jsonl", "--skip-bad", "--out", "a.bin"]).expect("ids");
    assert_eq!(place.read("a.bin"), place.expected(&["the thing", "in"], Some(END)));
    let words = "  bad records: cannot be read: 5, without text: 2; the first is bad.jsonl:2\n2 documents, ";
    assert!(told.starts_with(words), "{told}");

    // All of them are bad if another field is meant.
    refused(&place, &["bad.jsonl", "--skip-bad", "--field", "other"], "error[Z0376]: bad.jsonl:1 has no field `other`");
    write("marked.jsonl", "\u{feff}{\"text\": \"in\"}\n".as_bytes());
    let told = place.tokenize(&["marked.jsonl", "--skip-bad", "--out", "b.bin"]).expect("ids");
    assert_eq!(place.read("b.bin"), place.expected(&["in"], Some(END)));
    assert!(told.starts_with("1 documents"), "nothing is bad: {told}");
    // A file that cannot be read at all is no record.
    write("bad.parquet", b"PAR1 and no more");
    refused(&place, &["bad.parquet", "--skip-bad"], "error[Z0375]: bad.parquet is no Parquet file");
}

/// The command waits for its input while it has unfinished files.
#[test]
fn an_interruption_leaves_no_files() {
    let place = Place::new();
    let hidden = || {
        let names = fs::read_dir(place.path()).expect("entries").map(|entry| entry.expect("an entry").file_name());
        names.filter(|name| name.as_encoded_bytes().starts_with(b".")).count()
    };
    for (name, number) in [("INT", 2), ("TERM", 15)] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_zero"));
        command.args(["tokenize", "--tokenizer", "tokenizer.json", "/dev/stdin", "--as=text", "--out=new.bin"]);
        let mut child = command.current_dir(place.path()).stdin(Stdio::piped()).spawn().expect("the command");
        while hidden() < 2 {
            assert!(child.try_wait().expect("a state").is_none(), "it waits");
            std::thread::sleep(Duration::from_millis(10));
        }
        let kill = Command::new("kill").args([&format!("-{name}"), &child.id().to_string()]).status();
        assert!(kill.expect("a kill").success());
        let end = child.wait().expect("an end");
        assert_eq!((end.signal(), hidden()), (Some(number), 0));
    }
}

/// With their place in the file, wherever the text lies in it.
#[test]
fn z0377_letters_without_ids_are_errors() {
    let place = Place::new();
    tiny_tokenizer::write(place.path(), |json| {
        json["model"]["vocab"].as_object_mut().expect("a map").retain(|token, _| token != "Ã")
    });
    let write = |name: &str, content: &str| fs::write(place.path().join(name), content).expect("a file");
    let text = format!("{}naïve\n", "the thing\n".repeat(20_000));
    write("a.txt", &text);
    write("a.jsonl", &json_lines(&["the", "naïve"], "text"));
    place.table("a.parquet", &["the", "naïve"], Compression::UNCOMPRESSED);
    let words = "cannot encode `a.txt` from byte 200002 on: its vocabulary has no id for \"ï\"";
    refused(&place, &["a.txt"], &format!("error[Z0377]: the tokenizer `tokenizer.json` {words}"));
    refused(&place, &["a.jsonl"], "cannot encode the text of a.jsonl:2 from byte 2 on");
    refused(&place, &["a.parquet"], "cannot encode the text of a.parquet, row 1, from byte 2 on");
}

#[test]
fn z0378_separator_that_is_not_known() {
    let place = Place::new();
    fs::write(place.path().join("a.txt"), "text").expect("a text");
    refused(
        &place,
        &["a.txt", "--separator", "<end>"],
        "error[Z0378]: the tokenizer `tokenizer.json` has no token `<end>`",
    );
    tiny_tokenizer::write(place.path(), |json| json["added_tokens"] = serde_json::json!([]));
    refused(
        &place,
        &["a.txt"],
        "error[Z0378]: the tokenizer `tokenizer.json` has no token that is known to end a text",
    );
}

#[test]
fn z0379_output_that_exists() {
    let place = Place::new();
    fs::write(place.path().join("a.txt"), "text").expect("a text");
    fs::write(place.path().join("old.bin"), "of another").expect("a file");
    let told = place.tokenize(&["a.txt", "--out", "old.bin"]).expect_err("must be refused");
    assert!(told.starts_with("error[Z0379]: cannot write `old.bin`"), "{told}");
    assert_eq!(fs::read(place.path().join("old.bin")).expect("a file"), b"of another");
}
