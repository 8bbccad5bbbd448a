//! A dataset of one's own that says that its ids are tokens: its program samples as one of text does.

use std::path::Path;
use std::process::Command;

use serde_json::json;

use crate::run::{End, Run, program};

/// A vocabulary of the letters, and of three digits, so that it has as many words as the model has ids.
fn tokenizer(path: &Path) {
    let words = ('a'..='z').chain('0'..='2').map(|word| word.to_string());
    let vocab: serde_json::Map<_, _> = words.zip((0..).map(serde_json::Value::from)).collect();
    let tokenizer = json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
        "pre_tokenizer": { "type": "Whitespace" }, "post_processor": null, "decoder": null,
        "model": { "type": "WordLevel", "vocab": vocab, "unk_token": "?" },
    });
    std::fs::write(path, tokenizer.to_string()).unwrap();
}

/// A program that learns to count.
fn counting(arguments: &[&str]) -> Command {
    let mut command = program(env!("CARGO_BIN_EXE_main_of"));
    command.args(["counting", "--steps=1"]).args(arguments);
    command
}

fn succeeds(command: &mut Command) -> End {
    let end = Run::start(command).end();
    assert_eq!((end.code, end.errors.as_str()), (Some(0), ""), "{command:?}");
    end
}

/// The words of the sample, with its prompt.
fn sample(end: &End) -> Vec<&str> {
    let at = end.lines.iter().position(|line| line == "sample:").expect("a sample");
    end.lines[at + 1].split(' ').collect()
}

#[test]
fn a_sample_has_the_words_of_the_tokenizer_that_data_or_a_run_names() {
    let root = tempfile::tempdir().unwrap();
    let [path, export] = ["tokenizer.json", "export"].map(|name| root.path().join(name));
    tokenizer(&path);
    let (path, export) = (path.to_str().unwrap(), export.to_str().unwrap());
    let asked = ["--prompt=a b c", "--sample=4", "--temperature=0"];
    let given = succeeds(counting(&asked).args(["--tokenizer", path, "--export", export]));
    let own = succeeds(counting(&asked).env("TOKENIZER", path));
    let words = sample(&given);
    assert_eq!((words.len(), &words[..3]), (7, &["a", "b", "c"][..]), "{words:?}");
    assert_eq!(sample(&own), words);
    let only = succeeds(counting(&asked[..2]).args(["--only=sample", "--tokenizer", path, "--init", export]));
    assert_eq!(sample(&only).len(), 7);
    let exported = Path::new(export).join("tokenizer.json");
    assert_eq!(std::fs::read(exported).unwrap(), std::fs::read(path).unwrap());
    // Without one, ids are bytes, of which this model has the first.
    let bytes = succeeds(&mut counting(&["--prompt=\u{1}\u{2}", "--sample=1"]));
    assert!(bytes.lines.iter().any(|line| line.starts_with("prompt: 2 tokens")), "{:?}", bytes.lines);
}

#[test]
fn z0350_and_z0354_what_a_dataset_of_tokens_does_not_take() {
    let root = tempfile::tempdir().unwrap();
    let [own, other] = ["own.json", "other.json"].map(|name| root.path().join(name));
    [&own, &other].into_iter().for_each(|path| tokenizer(path));
    std::fs::write(&other, std::fs::read_to_string(&own).unwrap() + "\n").unwrap();
    let refused = |command: &mut Command, start: &str| Run::start(command).end().assert_error(2, start);
    refused(&mut counting(&["--data=text"]), "error[Z0354]: unexpected argument '--data'");
    refused(&mut counting(&["--only=evaluate"]), "error[Z0350]: --only evaluate is about a text");
    let mut differing = counting(&["--tokenizer"]);
    refused(differing.arg(&other).env("TOKENIZER", &own), "error[Z0350]: --tokenizer `");
    // Ids that are not tokens are not sampled.
    let mut regression = program(env!("CARGO_BIN_EXE_regression"));
    refused(regression.arg("--sample=3"), "error[Z0354]: unexpected argument '--sample'");
}
