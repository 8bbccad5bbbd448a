//! Tests of [`super::Tokenizer`], on a vocabulary of our own.

use std::path::Path;

use serde_json::{Value, json};
use tempfile::tempdir;

use super::super::tiny_tokenizer::{END, VOCABULARY, write};
use super::*;

fn tiny() -> Tokenizer {
    changed(|_| {})
}

fn changed(change: impl FnOnce(&mut Value)) -> Tokenizer {
    let directory = tempdir().unwrap();
    Tokenizer::open(&write(directory.path(), change)).unwrap()
}

#[test]
fn text_becomes_ids_and_text_again() {
    let tokenizer = tiny();
    assert_eq!((tokenizer.vocabulary(), tokenizer.id("<|endoftext|>")), (VOCABULARY, Some(END)));
    assert_eq!(tokenizer.end_of_text(), Some(("<|endoftext|>", END)));
    // th, the, in, Ġthe, ing are 256 to 260.
    assert_eq!(tokenizer.encode("the thing").unwrap(), [257, 32, 256, 260]);
    assert_eq!(tokenizer.encode("in the<|endoftext|>").unwrap(), [258, 259, END]);
    let text = "the \t thing\n\n\nis 12345 é€\u{1f600}'s  ";
    assert_eq!(tokenizer.decode(&tokenizer.encode(text).unwrap()), text);
    assert_eq!(tokenizer.encode("").unwrap(), [0; 0]);
}

#[test]
fn a_folder_and_its_file_are_the_same_tokenizer() {
    let directory = tempdir().unwrap();
    let path = write(directory.path(), |_| {});
    let (folder, file) = (Tokenizer::open(directory.path()).unwrap(), Tokenizer::open(&path).unwrap());
    assert_eq!(folder.hash(), file.hash());
    assert_eq!(folder.path(), path);
    assert_ne!(file.hash(), changed(|json| json["added_tokens"][1]["content"] = json!("<|other|>")).hash());
}

#[test]
fn z0370_what_is_no_tokenizer_is_refused() {
    let refused = |path: &Path| Tokenizer::open(path).err().expect("must be refused");
    let directory = tempdir().unwrap();
    let absent = refused(directory.path());
    assert_eq!(absent.code(), "Z0370");
    assert!(absent.report().contains("tokenizer.json` cannot be read"), "{}", absent.report());
    let path = directory.path().join("tokenizer.json");
    for content in ["", "{}", "[1, 2]", "{\"model\": 3}"] {
        std::fs::write(&path, content).unwrap();
        assert!(refused(&path).to_string().contains("is not understood: "), "{content}");
    }
    std::fs::write(&path, "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 7031645\n").unwrap();
    assert_eq!(refused(&path).code(), "Z0356");
    assert!(refused(Path::new("Qwen/Qwen3-4B")).report().contains("`hf download NAME --local-dir"));
    let chance = write(directory.path(), |json| json["model"]["dropout"] = json!(0.1));
    assert!(refused(&chance).to_string().contains("by chance"));
}

/// Files of published models limit the length of a text, and specify the padding of shorter ones.
#[test]
fn truncation_and_padding_do_not_apply() {
    let tokenizer = changed(|json| {
        let longest = json!({ "direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0 });
        json["truncation"] = longest;
        json["padding"] = json!({
            "strategy": { "Fixed": 20 }, "direction": "Right", "pad_to_multiple_of": null, "pad_id": 0,
            "pad_type_id": 0, "pad_token": "!",
        });
    });
    assert_eq!(tokenizer.encode("the thing").unwrap(), [257, 32, 256, 260]);
}

#[test]
fn a_stream_shows_whole_characters() {
    let tokenizer = tiny();
    let text = "the é€\u{1f600} thing";
    let ids = tokenizer.encode(text).unwrap();
    let mut stream = tokenizer.stream();
    let shown: Vec<String> = ids.iter().map(|&id| stream.next(id)).collect();
    assert_eq!(shown.concat(), text);
    assert!(shown.iter().all(|piece| !piece.contains(char::REPLACEMENT_CHARACTER)));
    assert!(shown.iter().any(String::is_empty), "the bytes of a character come one by one");
}

/// An untrained model may generate such ids.
#[test]
fn bytes_that_are_no_character_are_shown_in_the_end() {
    let tokenizer = tiny();
    let mut stream = tokenizer.stream();
    let ids = [0xe2, 0xe2, 0xe2, 0xe2, 0xe2, 0x61, 100_000, 0x62];
    let shown: Vec<String> = ids.map(|id| stream.next(id)).into();
    let joined = shown.concat();
    assert!(joined.starts_with(char::REPLACEMENT_CHARACTER) && joined.ends_with("ab"), "{joined:?}");
    assert!(shown[3].starts_with(char::REPLACEMENT_CHARACTER), "{shown:?}");
}

/// For all ways in which words can meet, with every kind of character before and after.
#[test]
fn pieces_have_the_ids_of_the_whole() {
    let gpt2 = |json: &mut Value| {
        json["pre_tokenizer"] =
            json!({ "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": true });
    };
    let qwen = |json: &mut Value| {
        let pattern = json["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"].as_str().unwrap();
        let pattern = pattern.replace(r"\p{N}{1,3}", r"\p{N}");
        json["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = json!(pattern);
        json["normalizer"] = json!({ "type": "NFC" });
    };
    let parts = [
        "the",
        " ",
        "  ",
        "\n",
        "\n\n",
        "\t",
        "12",
        ".",
        "'s",
        "é",
        "e\u{301}",
        "<|endoftext|>",
        "\r\n",
        "S",
        "是",
        "，",
        "한",
        "\u{1112}\u{1161}",
        "ин",
        "\u{93f}",
        "क",
        "\u{200b}",
        "\u{a0}",
        "…",
        "²",
        "\u{1f600}",
    ];
    for tokenizer in [tiny(), changed(gpt2), changed(qwen)] {
        assert!(tokenizer.cuts().is_some());
        let mut text = String::new();
        for one in parts {
            for other in parts {
                parts.iter().for_each(|third| text += &format!("{one}{other}{third}"));
            }
        }
        let pieces: Vec<&str> = tokenizer.pieces(&text, 1).collect();
        assert!(pieces.len() > 2000 && pieces.concat() == text, "{}", pieces.len());
        let joined: Vec<u32> = pieces.iter().flat_map(|piece| tokenizer.encode(piece).unwrap()).collect();
        assert!(joined == tokenizer.encode(&text).unwrap());
    }
}

#[test]
fn a_text_is_not_cut_for_a_tokenizer_that_is_not_known() {
    let prefix = |json: &mut Value| json["pre_tokenizer"]["pretokenizers"][1]["add_prefix_space"] = json!(true);
    let pattern = |json: &mut Value| {
        json["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = json!("\\w+");
    };
    let normalizer = |json: &mut Value| json["normalizer"] = json!({ "type": "Prepend", "prepend": "_" });
    let strips = |json: &mut Value| json["added_tokens"][0]["rstrip"] = json!(true);
    let text = "one\ntwo\nthree";
    assert_eq!(tiny().pieces(text, 1).count(), 3, "before line breaks");
    for tokenizer in [changed(prefix), changed(pattern), changed(normalizer), changed(strips)] {
        assert_eq!(tokenizer.pieces(text, 1).collect::<Vec<_>>(), [text]);
    }
}

/// A regular expression that gave up would leave the rest of the text in one word.
#[test]
fn a_long_run_of_spaces_is_encoded() {
    let tokenizer = tiny();
    let text = format!("the{}thing", " ".repeat(300_000));
    let ids = tokenizer.encode(&text).unwrap();
    assert_eq!((ids.len(), ids[0], ids.last()), (1 + 300_000 + 2, 257, Some(&260)));
}

#[test]
fn z0377_what_the_vocabulary_has_no_ids_for() {
    let tokenizer = changed(|json| {
        json["model"] = json!({ "type": "WordLevel", "vocab": { "the": 0 }, "unk_token": "absent" });
        json["pre_tokenizer"] = json!({ "type": "Whitespace" });
    });
    assert_eq!(tokenizer.encode("the the").unwrap(), [0, 0]);
    let refused = tokenizer.encode("the thing").unwrap_err();
    assert_eq!(refused.code(), "Z0377");
    let words = "cannot encode a text from byte 4 on: its vocabulary has no id for";
    assert!(refused.to_string().contains(words), "{refused}");
}

/// The library passes over letters that have no id, where nothing stands for what is unknown.
#[test]
fn z0377_letters_do_not_vanish() {
    let letters = |json: &mut Value| {
        let vocab: serde_json::Map<_, _> =
            ('a'..='z').chain(['Ġ']).map(String::from).zip((0..).map(Value::from)).collect();
        (json["model"]["vocab"], json["model"]["merges"]) = (Value::Object(vocab), json!([["i", "n"]]));
        json["model"]["vocab"]["in"] = json!(27);
    };
    let text = "in naïve";
    let byte_level = changed(letters);
    assert_eq!(byte_level.encode("in a").unwrap(), [27, 26, 0]);
    let plain = changed(|json| {
        letters(json);
        json["pre_tokenizer"] = json!(null);
        json["model"]["vocab"][" "] = json!(28);
    });
    assert_eq!(plain.encode("in a").unwrap(), [27, 28, 0]);
    let subwords = changed(|json| {
        letters(json);
        json["pre_tokenizer"] = json!({ "type": "Whitespace" });
        json["model"]["end_of_word_suffix"] = json!("</w>");
        json["model"]["vocab"]["e</w>"] = json!(28);
        json["model"]["vocab"]["n</w>"] = json!(29);
    });
    assert_eq!(subwords.encode("in").unwrap(), [8, 29]);
    for tokenizer in [byte_level, plain, subwords] {
        let refused = tokenizer.encode(text).unwrap_err().within(|| "`x.txt`".to_owned(), 100).to_string();
        assert!(refused.contains("cannot encode `x.txt` from byte 10"), "{refused}");
        assert!(refused.contains("has no id for \""), "{refused}");
    }
    let unknown = changed(|json| {
        letters(json);
        json["model"]["unk_token"] = json!("q");
    });
    assert!(unknown.encode(text).unwrap().contains(&16), "a token stands for what is unknown");
}

/// A vocabulary of pieces with scores is held as a tree of maps, in far more memory than its file has bytes.
#[test]
fn what_a_tokenizer_takes_is_measured() {
    const PIECES: usize = 60_000;
    let pieces: Vec<Value> = (0..PIECES).map(|piece| json!([format!("{piece:05x}"), -1])).collect();
    let large = changed(|json| json["model"] = json!({"type": "Unigram", "unk_id": 0, "vocab": pieces}));
    assert!(large.vocabulary() > PIECES);
    assert!(large.resident_bytes() > 600 * PIECES, "{} bytes", large.resident_bytes());
}
