//! Settings: the known keys of a configuration with their values, and notes on keys that a spec cannot express. Never
//! writes a spec.

use std::ops::Range;

use zero_plan::diagnostic::{Diagnostic, closest};
use zero_plan::spec::RANKS_MAX;

use super::document::{DocumentEntry, DocumentNode, DocumentValue};
use super::keys::{Expects, KeyRow, Meaning};
use super::{Note, SettingFate};

/// The value of one key.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Setting {
    /// The key, as a dotted path.
    pub path: &'static str,
    /// Its value.
    pub value: SettingValue,
    /// The value's position in the text.
    pub at: Range<usize>,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum SettingValue {
    /// `"auto"`: a script fills it in.
    Auto,
    Whole(u64),
    Flag(bool),
    Word(String),
    /// A value that has no effect here.
    Anything,
}

/// The settings of a configuration.
#[derive(Debug, Default)]
pub(super) struct Settings {
    given: Vec<Setting>,
    notes: Vec<Note>,
}

impl Settings {
    /// Reads the keys of a map according to `rows`.
    ///
    /// # Errors
    /// Z0155 for each unknown key, Z0156 for each value that its key cannot have.
    pub fn of(root: &DocumentNode, rows: &'static [KeyRow]) -> Result<Self, Vec<Diagnostic>> {
        let mut settings = Self::default();
        let mut problems = Vec::new();
        settings.section(root, "", rows, &mut problems);
        if problems.is_empty() { Ok(settings) } else { Err(problems) }
    }

    fn section(&mut self, node: &DocumentNode, path: &str, rows: &'static [KeyRow], problems: &mut Vec<Diagnostic>) {
        for entry in node.entries() {
            let asked = if path.is_empty() { entry.key.clone() } else { format!("{path}.{}", entry.key) };
            let Some(row) = rows.iter().find(|row| row.path == asked) else {
                problems.push(unknown(entry, path, rows));
                continue;
            };
            match (row.expects, &entry.node.value) {
                (Expects::Section | Expects::Switch, DocumentValue::Map(_)) => {
                    self.section(&entry.node, row.path, rows, problems)
                }
                (_, DocumentValue::Null) => {}
                (expects, _) => match expects.read(&entry.node.value) {
                    Some(value) => self.take(row, entry, value),
                    None => problems.push(wrong(row.path, entry.node.at.clone(), &expects.words())),
                },
            }
        }
    }

    fn take(&mut self, row: &KeyRow, entry: &DocumentEntry, value: SettingValue) {
        match row.meaning {
            Meaning::Used => self.given.push(Setting { path: row.path, value, at: entry.node.at.clone() }),
            Meaning::Lost(reason) if !is_off(&entry.node) => self.note(SettingFate::Lost, row.path, reason),
            Meaning::Always(what, reason) if value != SettingValue::Flag(what) && value != SettingValue::Auto => {
                self.note(SettingFate::Lost, row.path, reason);
            }
            Meaning::Planned(reason) if !is_off(&entry.node) => self.note(SettingFate::Planned, row.path, reason),
            Meaning::Argument(reason) => self.note(SettingFate::Argument, row.path, reason),
            Meaning::Lost(_) | Meaning::Planned(_) | Meaning::Always(..) => {}
        }
    }

    /// The setting of a key; `None` also if its value is `"auto"`.
    pub fn get(&mut self, path: &str) -> Option<Setting> {
        self.given.iter().find(|setting| setting.path == path && setting.value != SettingValue::Auto).cloned()
    }

    /// Whether a key is given, with its value left to a script.
    pub fn is_auto(&self, path: &str) -> bool {
        self.given.iter().any(|setting| setting.path == path && setting.value == SettingValue::Auto)
    }

    /// A whole number, with its place.
    pub fn whole(&mut self, path: &str) -> Option<(u64, Range<usize>)> {
        match self.get(path)? {
            Setting { value: SettingValue::Whole(number), at, .. } => Some((number, at)),
            _ => None,
        }
    }

    /// Whether a flag is given and set.
    pub fn is_set(&mut self, path: &str) -> bool {
        self.get(path).is_some_and(|setting| setting.value == SettingValue::Flag(true))
    }

    /// A word in upper case, with its place.
    pub fn word(&mut self, path: &str) -> Option<(String, Range<usize>)> {
        match self.get(path)? {
            Setting { value: SettingValue::Word(word), at, .. } => Some((word.to_uppercase(), at)),
            _ => None,
        }
    }

    /// Notes the fate of a setting. Settings with the same fate and reason share a note.
    pub fn note(&mut self, taken: SettingFate, setting: &str, reason: impl Into<String>) {
        let reason = reason.into();
        match self.notes.iter_mut().find(|note| note.taken == taken && note.reason == reason) {
            Some(note) => note.settings.push(setting.to_owned()),
            None => self.notes.push(Note { taken, settings: vec![setting.to_owned()], reason }),
        }
    }

    /// Drops what is noted about a setting and about the keys of its section.
    pub fn forget(&mut self, path: &str) {
        let is_of_it =
            |setting: &str| setting.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
        self.notes.iter_mut().for_each(|note| note.settings.retain(|setting| !is_of_it(setting)));
        self.notes.retain(|note| !note.settings.is_empty());
    }

    /// All notes, ordered by fate.
    pub fn notes(mut self) -> Vec<Note> {
        self.notes.sort_by_key(|note| note.taken);
        self.notes
    }
}

/// Z0156: a value that a key cannot have.
pub(super) fn wrong(path: &str, at: Range<usize>, expected: &str) -> Diagnostic {
    let (section, key) = path.rsplit_once('.').map_or(("", path), |(section, key)| (section, key));
    let place = if section.is_empty() { String::new() } else { format!(" in `{section}`") };
    let message = format!("`{key}`{place} cannot have this value");
    Diagnostic::new("Z0156", path, message).at(at, format!("expected {expected}"))
}

/// Z0155: a key that is not known for the framework.
fn unknown(entry: &DocumentEntry, section: &str, rows: &'static [KeyRow]) -> Diagnostic {
    let within = |row: &KeyRow| row.path.rsplit_once('.').unwrap_or(("", row.path));
    let here = rows.iter().map(within).filter(|(around, _)| *around == section).map(|(_, key)| key);
    let elsewhere = || rows.iter().find(|row| within(row).1 == entry.key).map(|row| row.path);
    let label = match (elsewhere(), closest(&entry.key, here)) {
        (Some(path), _) => format!("did you mean `{path}`?"),
        (None, Some(near)) => format!("did you mean `{near}`?"),
        (None, None) => "no key has this name".to_owned(),
    };
    let place = if section.is_empty() { "the configuration".to_owned() } else { format!("`{section}`") };
    let problem = Diagnostic::new("Z0155", &entry.key, format!("unknown key `{}` in {place}", entry.key));
    problem
        .at(entry.at.clone(), label)
        .help("correct it, or remove it: only a known key can be listed as having no counterpart")
}

/// Whether a value turns a feature off, so that nothing is lost without the feature.
fn is_off(node: &DocumentNode) -> bool {
    match &node.value {
        DocumentValue::Null | DocumentValue::Flag(false) => true,
        DocumentValue::Number(number) => *number <= 0.0,
        DocumentValue::Text(text) => ["", "none", "no", "false", "auto"].contains(&text.to_lowercase().as_str()),
        DocumentValue::List(nodes) => nodes.is_empty(),
        DocumentValue::Map(entries) => {
            let switch = |key: &str| entries.iter().find(|entry| entry.key == key);
            entries.is_empty() || ["enabled", "device"].into_iter().filter_map(switch).any(|it| is_off(&it.node))
        }
        DocumentValue::Flag(true) => false,
    }
}

impl Expects {
    /// The value, if it is an expected value.
    fn read(self, value: &DocumentValue) -> Option<SettingValue> {
        match (self, value) {
            (Self::Anything, _) => Some(SettingValue::Anything),
            (Self::Switch, DocumentValue::Flag(flag)) => Some(SettingValue::Flag(*flag)),
            (Self::Section | Self::Switch, _) => None,
            (Self::Name, DocumentValue::Text(text)) if text != "auto" => Some(SettingValue::Word(text.clone())),
            (_, DocumentValue::Text(text)) if text == "auto" => Some(SettingValue::Auto),
            (Self::Flag, DocumentValue::Flag(flag)) => Some(SettingValue::Flag(*flag)),
            (Self::Flag, DocumentValue::Text(text)) => match text.to_lowercase().as_str() {
                "true" | "yes" => Some(SettingValue::Flag(true)),
                "false" | "no" => Some(SettingValue::Flag(false)),
                _ => None,
            },
            (Self::Whole(least, most), DocumentValue::Number(number)) => whole(*number, least, most),
            (Self::Whole(least, most), DocumentValue::Text(text)) => whole(text.parse().ok()?, least, most),
            (Self::Group, DocumentValue::Number(number)) if *number <= 0.0 => Some(SettingValue::Whole(0)),
            (Self::Group, DocumentValue::Number(number)) => whole(*number, 1, RANKS_MAX.into()),
            (Self::Word(words), value) => {
                let word = match value {
                    DocumentValue::Text(text) => text.clone(),
                    // YAML reads unquoted words as numbers and flags: `mixed_precision: no`.
                    DocumentValue::Number(number) => number.to_string(),
                    DocumentValue::Flag(flag) => flag.to_string(),
                    _ => return None,
                };
                words.iter().any(|known| known.eq_ignore_ascii_case(&word)).then_some(SettingValue::Word(word))
            }
            _ => None,
        }
    }

    fn words(self) -> String {
        match self {
            Self::Anything => "a value".to_owned(),
            Self::Section => "a section with keys".to_owned(),
            Self::Switch => "a section with keys, or true or false".to_owned(),
            Self::Name => "a name".to_owned(),
            Self::Flag => "true or false".to_owned(),
            Self::Whole(least, most) => format!("a whole number from {least} to {most}"),
            Self::Group => format!("a number of ranks up to {RANKS_MAX}"),
            Self::Word(words) => format!("one of {}", words.join(", ")),
        }
    }
}

fn whole(number: f64, least: u64, most: u64) -> Option<SettingValue> {
    let fits = number.fract() == 0.0 && number >= least as f64 && number <= most as f64;
    fits.then_some(SettingValue::Whole(number as u64))
}
