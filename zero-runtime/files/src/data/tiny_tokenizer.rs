//! Tiny tokenizer: a byte-level vocabulary for tests, made here: all bytes, a few merges, two special tokens. Never part
//! of a program.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

/// The pattern by which Llama 3 finds words.
const PATTERN: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// The merges; the result of each is a token.
const MERGES: [(&str, &str); 6] = [("t", "h"), ("th", "e"), ("i", "n"), ("Ġ", "the"), ("in", "g"), ("Ċ", "Ċ")];

/// The number of its ids: 256 bytes, the merges, and `<|endoftext|>` and `<|im_end|>`.
pub const VOCABULARY: usize = 256 + MERGES.len() + 2;

/// The id of `<|endoftext|>`.
pub const END: u32 = 256 + MERGES.len() as u32;

/// Writes `tokenizer.json` into `directory`, after `change` has changed it.
pub fn write(directory: &Path, change: impl FnOnce(&mut Value)) -> PathBuf {
    let mut tokens: Vec<String> = (0..=255).map(|byte| letter(byte).to_string()).collect();
    tokens.extend(MERGES.iter().map(|(one, other)| format!("{one}{other}")));
    let vocab: serde_json::Map<_, _> = tokens.into_iter().zip((0..).map(Value::from)).collect();
    let special = |id: u32, content: &str| json!({ "id": id, "content": content, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true });
    let bytes = json!({ "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false });
    let words = json!({ "type": "Split", "pattern": { "Regex": PATTERN }, "behavior": "Isolated", "invert": false });
    let mut tokenizer = json!({
        "version": "1.0", "truncation": null, "padding": null, "normalizer": null, "post_processor": null,
        "added_tokens": [special(END, "<|endoftext|>"), special(END + 1, "<|im_end|>")],
        "pre_tokenizer": { "type": "Sequence", "pretokenizers": [words, bytes] },
        "decoder": bytes,
        "model": {
            "type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "ignore_merges": false,
            "vocab": vocab, "merges": MERGES.map(|(one, other)| [one, other]),
        },
    });
    change(&mut tokenizer);
    let path = directory.join("tokenizer.json");
    std::fs::write(&path, tokenizer.to_string()).expect("a file");
    path
}

/// The letter that stands for a byte in byte-level vocabularies: itself if it can be printed, and otherwise one of those
/// from 256 on, in the order of bytes (`bytes_to_unicode` of GPT-2).
fn letter(byte: u8) -> char {
    let prints = |byte: u8| matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..);
    if prints(byte) {
        return char::from(byte);
    }
    let before = (0..byte).filter(|&other| !prints(other)).count() as u32;
    char::from_u32(256 + before).expect("a letter")
}
