//! Glossary: words of the field as they are used here, and names of other frameworks with their counterparts in a spec.
//! Never describes a key: its row in [`KEYS`] does.

mod deepspeed;
mod field;
mod fsdp;
mod training;

use core::fmt;

use zero_plan::diagnostic::{closest, fill};
use zero_plan::spec::{KEYS, Key, KeyDefault};

/// A word and its meaning here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Word {
    /// The word as its origin spells it.
    pub name: &'static str,
    /// Other words for the same thing.
    pub also: &'static [&'static str],
    /// The origin of a word.
    pub of: WordOrigin,
    /// The word's meaning here, in one paragraph.
    pub meaning: &'static str,
    /// The keys of a spec that control it, as dotted paths: each has a row in [`KEYS`].
    pub keys: &'static [&'static str],
}

/// The origin of a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WordOrigin {
    /// A word of the field, as this project uses it.
    Field,
    /// A word of training that no key of a spec is about.
    Training,
    /// A name of PyTorch's FSDP, first or second version, or of accelerate's settings for it.
    Fsdp,
    /// A key of DeepSpeed's configuration, or of accelerate's settings for it.
    DeepSpeed,
}

impl WordOrigin {
    /// All origins, in the order of lists.
    pub const ALL: [Self; 4] = [Self::Field, Self::Training, Self::Fsdp, Self::DeepSpeed];

    /// A heading for its words.
    pub const fn title(self) -> &'static str {
        match self {
            Self::Field => "words",
            Self::Training => "words of training",
            Self::Fsdp => "names of FSDP",
            Self::DeepSpeed => "names of DeepSpeed",
        }
    }
}

/// All words, grouped by origin.
pub fn words() -> impl Iterator<Item = &'static Word> {
    [field::WORDS, training::WORDS, fsdp::WORDS, deepspeed::WORDS].into_iter().flatten()
}

/// The entries of a word: one for each of its meanings, because frameworks use one word for several things. Empty if no
/// origin has the word. Case, `-`, `_` and blanks are ignored.
pub fn find(word: &str) -> Vec<&'static Word> {
    let asked = bare(word);
    let is_named = |entry: &&'static Word| names(entry).any(|name| bare(name) == asked);
    words().filter(is_named).collect()
}

/// A page of plain text about a key of a spec, such as `zero.prefetch`: its effect, its values, and the words that it
/// stands for.
pub fn key_page(path: &str) -> Option<String> {
    let key = KEYS.iter().find(|key| bare(key.path) == bare(path))?;
    let mut page = format!("{}\n\n{}\n\nIn a spec:\n\n    {}", key.path, fill(key.about), row(key));
    for origin in WordOrigin::ALL {
        let own = words().filter(|word| word.of == origin && word.keys.contains(&key.path));
        let names: Vec<_> = own.map(|word| word.name).collect();
        if !names.is_empty() {
            page += &format!("\n\n{}", fill(&format!("{}: {}", origin.title(), names.join(", "))));
        }
    }
    Some(page)
}

/// The known word that an unknown one most likely misspells.
pub fn nearest(word: &str) -> Option<&'static str> {
    let bared: Vec<(String, &'static str)> = words().flat_map(names).map(|name| (bare(name), name)).collect();
    let near = closest(&bare(word), bared.iter().map(|(bare, _)| bare.as_str()))?;
    bared.iter().find(|(bare, _)| bare == near).map(|(_, name)| *name)
}

fn names(word: &'static Word) -> impl Iterator<Item = &'static str> {
    [word.name].into_iter().chain(word.also.iter().copied())
}

/// A word in lower case, without `-`, `_` and blanks.
fn bare(word: &str) -> String {
    word.chars().filter(|it| !matches!(it, '-' | '_' | ' ')).flat_map(char::to_lowercase).collect()
}

/// The entry as a page of plain text.
impl fmt::Display for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of = match self.of {
            WordOrigin::Field | WordOrigin::Training => "",
            WordOrigin::Fsdp => " (FSDP)",
            WordOrigin::DeepSpeed => " (DeepSpeed)",
        };
        let also = if self.also.is_empty() { String::new() } else { format!(", also {}", self.also.join(", ")) };
        write!(f, "{}{also}{of}\n\n{}", self.name, fill(self.meaning))?;
        let rows = self.keys.iter().filter_map(|path| KEYS.iter().find(|key| key.path == *path));
        rows.enumerate().try_for_each(|(i, key)| {
            f.write_str(if i == 0 { "\n\nIn a spec:\n\n" } else { "\n" })?;
            write!(f, "    {}", row(key))
        })
    }
}

/// A key with its values and its default.
fn row(key: &Key) -> String {
    let by_default = match key.default {
        KeyDefault::Required => "; required".to_owned(),
        KeyDefault::Value(value) => format!("; by default `{value}`"),
        KeyDefault::Absent(means) => format!("; by default {means}"),
        KeyDefault::OfItsKeys => String::new(),
    };
    format!("{}: {}{by_default}", key.path, key.expects)
}

#[cfg(test)]
mod tests;
