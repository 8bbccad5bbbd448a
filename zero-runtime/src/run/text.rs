//! Text: the text that a model is trained on: that of `--data`, the text beside the binary, or the sources of the workspace
//! that the model is defined in. Never draws from it.

use std::env;
use std::path::{Path, PathBuf};

use super::arguments::RunArguments;
use super::resume::resumed_data;
use super::text_arguments::TextArguments;
use super::token_arguments::{Only, TokenArguments};
use crate::error::Error;
use zero_core::layer::{TokenWords, WordKind};
use zero_core::model::{Program, vocabulary_fault};
use zero_files::data::{DataError, Ids, Text, Tokenizer, text_beside, texts_beside, workspace_text};

/// Opens the text of a run.
///
/// # Errors
/// Those of [`Text::open`] and [`Text::tokenized`]; Z0350 if `--data` is not given and there is no other text.
pub fn open<D>(
    program: &Program<D>,
    run: &RunArguments,
    arguments: &TextArguments,
    tokenizer: Option<&Tokenizer>,
) -> Result<Text, Error> {
    let (length, classes) = (program.plan.config.length, program.head.classes);
    let at = |path: &Path| match tokenizer {
        None => Text::open(path, arguments.data_as, length, classes),
        Some(tokenizer) => Text::tokenized(path, arguments.data_as, tokenizer, length, classes),
    };
    if let Some(path) = &arguments.data {
        return Ok(at(path)?);
    }
    if program.has_text {
        return beside(&binary(), resumed_data(run), at);
    }
    let sources = Path::new(program.directory);
    if !sources.exists() {
        let what =
            format!("there is no text to train on: the sources of this binary, {}, are not here", sources.display());
        return Err(Error::Argument { what, help: "give --data FILE_OR_DIRECTORY".to_owned() });
    }
    let (found, origin) = (workspace_text(sources)?, "the text of this workspace");
    let taken = found.taken();
    let text = match tokenizer {
        None => Text::in_memory(found.text.into_bytes(), origin, length, classes),
        Some(tokenizer) => Text::tokenized_in_memory(&found.text, origin, tokenizer, length, classes),
    };
    Ok(text?.of(taken))
}

/// Whether a model takes tokens and predicts the next one.
fn is_of_tokens<D>(program: &Program<D>) -> bool {
    let is_id = |words: TokenWords| words == TokenWords { count: 1, kind: WordKind::Id };
    is_id(program.inputs.words) && is_id(program.head.targets) && vocabulary_fault(program).is_none()
}

/// Refuses a worker of a model that does not predict the next token.
///
/// # Errors
/// Z0350.
#[cfg(feature = "serve")]
pub fn require_tokens<D>(program: &Program<D>) -> Result<(), Error> {
    if is_of_tokens(program) {
        return Ok(());
    }
    let what = "a worker generates tokens, and this model does not predict the next one".to_owned();
    Err(Error::Argument { what, help: "name the spec of a model of tokens".to_owned() })
}

/// Refuses data of the program's own whose ids are said to be tokens if the model does not predict the next of them, and an
/// argument that needs a text.
///
/// # Errors
/// Z0350.
pub fn require_own_tokens<D>(program: &Program<D>, arguments: &TokenArguments) -> Result<(), Error> {
    let refused = |what: &str, help: &str| Err(Error::Argument { what: what.to_owned(), help: help.to_owned() });
    if !is_of_tokens(program) {
        let what = "this program's data says that its ids are tokens, and its model does not predict the next token";
        return refused(what, "have `ids` of the dataset return `Ids::Other`");
    }
    if arguments.only == Some(Only::Evaluate) {
        return refused("--only evaluate is about a text, and this program has data of its own", "leave it out");
    }
    Ok(())
}

/// The tokenizer of ids: that of the data, or the one that the run is `given`.
///
/// # Errors
/// Z0350 if both are there and differ.
pub fn own_tokenizer<'a>(ids: Ids<'a>, given: Option<&'a Tokenizer>) -> Result<Option<&'a Tokenizer>, Error> {
    match (ids, given) {
        (Ids::TokensOf(own), Some(given)) if own.hash() != given.hash() => {
            let (own, given) = (own.path().display(), given.path().display());
            let what = format!("--tokenizer `{given}` is not that of this program's data, `{own}`");
            Err(Error::Argument { what, help: "leave it out".to_owned() })
        }
        (Ids::TokensOf(own), _) => Ok(Some(own)),
        _ => Ok(given),
    }
}

/// The text beside a binary: the newest or, for a run that resumes, the one that it began with, whose fingerprint is
/// `asked`. If that text is no longer there, the newest, which the checkpoint refuses.
fn beside(
    binary: &Path,
    asked: Option<String>,
    open: impl Fn(&Path) -> Result<Text, DataError>,
) -> Result<Text, Error> {
    let texts = texts_beside(binary);
    let Some(newest) = texts.first() else {
        let what = format!("there is no text to train on: `{}` is missing", text_beside(binary).display());
        let help = "give --data FILE_OR_DIRECTORY, or copy that file with the binary: `cargo zero build` puts it there";
        return Err(Error::Argument { what, help: help.to_owned() });
    };
    let newest = open(newest)?;
    let is_asked = |text: &Text| asked.as_ref().is_none_or(|asked| format!("{:016x}", text.fingerprint()) == *asked);
    if is_asked(&newest) {
        return Ok(newest);
    }
    // A text that can no longer be opened is not the one that was trained on.
    Ok(texts[1..].iter().filter_map(|path| open(path).ok()).find(is_asked).unwrap_or(newest))
}

/// The path of this binary, even if another one lies there by now.
fn binary() -> PathBuf {
    let path = env::current_exe().unwrap_or_default();
    match path.to_str().and_then(|path| path.strip_suffix(" (deleted)")) {
        Some(before) => before.into(),
        None => path,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zero_files::data::put_text_beside;

    #[test]
    fn a_run_that_resumes_takes_the_text_that_it_began_with() {
        let folder = tempfile::tempdir().expect("a folder");
        let binary = folder.path().join("gpt");
        let open = |path: &Path| Text::open(path, None, 8, 256);
        let taken = |asked: Option<&str>| beside(&binary, asked.map(str::to_owned), open);
        let missing = taken(None).err().expect("no text").to_string();
        assert!(missing.starts_with("error[Z0350]: ") && missing.contains("gpt.txt` is missing"), "{missing}");
        let fingerprints = ["old ", "new "].map(|word| {
            put_text_beside(&binary, &word.repeat(100)).expect("a text");
            format!("{:016x}", taken(None).expect("the newest").fingerprint())
        });
        let [old, new] = fingerprints.each_ref().map(String::as_str);
        for (asked, expected) in [(None, new), (Some(new), new), (Some(old), old), (Some("0"), new)] {
            let found = taken(asked).expect("a text").fingerprint();
            assert_eq!(format!("{found:016x}"), expected, "{asked:?}");
        }
    }
}
