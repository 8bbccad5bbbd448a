//! Hub: names of models on Hugging Face's Hub, which people give in place of a folder. Nothing is downloaded.

use std::path::{Component, Path};

/// How to get the folder of such a name.
pub const HELP: &str =
    "give a folder; a model of Hugging Face's Hub must be downloaded first: `hf download NAME --local-dir FOLDER`";

/// Whether a path to nothing may be a name on the Hub: `gpt2` or `Qwen/Qwen3-4B`.
pub fn may_have(path: &Path) -> bool {
    let words = path.components();
    let are_words = words.clone().all(|word| matches!(word, Component::Normal(_)));
    are_words && (1..=2).contains(&words.count()) && !path.exists()
}
