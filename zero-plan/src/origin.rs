//! Origin: where the values of a configuration come from, so that an error in a constant can name it: the place in a
//! file or attribute, or that a value is a default. Never part of a plan, which does not depend on such places.

use crate::config::is_same_text;
use crate::message::Message;
use crate::spec::KEYS;

/// The keys that errors in constants name, as paths of a spec.
pub const NAMED: &[&str] = &[
    "mesh.zero",
    "mesh.pipeline",
    "zero.stage",
    "zero.prefetch",
    "pipeline.schedule",
    "pipeline.units",
    "batch.sequences",
    "batch.length",
    "batch.micro_batches",
    "recompute",
    "optimizer",
    "memory",
    "host",
    "disk",
    "offload.gradients",
    "offload.parameters",
    "offload.prefetch",
];

/// The source in which a configuration was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Not known: the configuration does not come from a spec.
    Unknown,
    /// The options of `#[zero(...)]`.
    Attribute,
    /// A spec file, by the name that messages show.
    File(&'static str),
}

/// A key that is given, so it is not at its default.
#[derive(Clone, Copy, Debug)]
pub struct Given {
    /// One of [`NAMED`].
    pub path: &'static str,
    /// The value, as written.
    pub value: &'static str,
    /// The line of the key in the file, from 1; 0 in an attribute, which rustc shows by itself.
    pub line: usize,
    /// The column of the key.
    pub column: usize,
}

/// Where the values of a configuration come from.
#[derive(Clone, Copy, Debug)]
pub struct Origin {
    /// The source in which they were written.
    pub source: Source,
    /// The keys of [`NAMED`] that are given.
    pub given: &'static [Given],
}

impl Origin {
    /// The origin of a configuration that does not come from a spec.
    pub const UNKNOWN: Self = Self { source: Source::Unknown, given: &[] };

    /// Appends a line that says where the key at `path` is given, or that it is at its default. Appends nothing if the
    /// source is unknown.
    pub const fn tell(&self, message: Message, path: &str, default: &str) -> Message {
        if let Source::Unknown = self.source {
            return message;
        }
        let message = message.text("\n  `").text(self.name(path)).text("` is ");
        let mut i = 0;
        while i < self.given.len() {
            let Given { path: given, value, line, column } = self.given[i];
            if is_same_text(given, path) {
                let message = message.text(value);
                return match self.source {
                    Source::File(file) => {
                        message.text(" at ").text(file).text(":").number(line).text(":").number(column)
                    }
                    Source::Attribute | Source::Unknown => message.text(" in the attribute"),
                };
            }
            i += 1;
        }
        let message = message.text("at its default, ").text(default);
        if let Source::File(file) = self.source { message.text(", in ").text(file) } else { message }
    }

    /// [`Origin::tell`] for a key whose default is a number.
    pub const fn tell_number(&self, message: Message, path: &str, default: usize) -> Message {
        self.tell(message, path, Message::new().number(default).as_str())
    }

    /// The name of the key at `path` in its source. In a spec, only keys of `mesh` have their whole path, because the
    /// names of the others are clear enough.
    pub const fn name(&self, path: &'_ str) -> &'static str {
        let mut i = 0;
        while i < KEYS.len() {
            let whole = KEYS[i].path;
            if is_same_text(whole, path) {
                let of_mesh = whole.as_bytes()[0] == b'm' && whole.as_bytes()[2] == b's';
                return match KEYS[i].option {
                    Some(option) if !of_mesh || matches!(self.source, Source::Attribute) => option,
                    // Keys that only a file can have are clear enough by themselves.
                    _ => whole,
                };
            }
            i += 1;
        }
        panic!("no such key")
    }

    /// Begins a hint of what to write for keys of a section: a quote and, in a spec, `zero: (`.
    pub const fn section(&self, message: Message, section: &str) -> Message {
        match self.source {
            Source::Attribute => message.text("`"),
            _ => message.text("`").text(section).text(": ("),
        }
    }

    /// Appends a key of the section, to be followed by its value.
    pub const fn key(&self, message: Message, key: &str) -> Message {
        message.text(key).text(if let Source::Attribute = self.source { " = " } else { ": " })
    }

    /// Ends the hint.
    pub const fn end(&self, message: Message) -> Message {
        message.text(if let Source::Attribute = self.source { "`" } else { ")`" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIVEN: &[Given] = &[Given { path: "batch.length", value: "1_024", line: 3, column: 7 }];

    #[test]
    fn a_key_is_told_with_its_place_or_as_a_default() {
        let file = Origin { source: Source::File("a.ron"), given: GIVEN };
        let told = |origin: &Origin, path| origin.tell_number(Message::new(), path, 2).as_str().to_owned();
        assert_eq!(told(&file, "batch.length"), "\n  `length` is 1_024 at a.ron:3:7");
        assert_eq!(told(&file, "mesh.zero"), "\n  `mesh.zero` is at its default, 2, in a.ron");
        let attribute = Origin { source: Source::Attribute, ..file };
        assert_eq!(told(&attribute, "batch.length"), "\n  `length` is 1_024 in the attribute");
        assert_eq!(told(&attribute, "mesh.zero"), "\n  `ranks` is at its default, 2");
        assert_eq!(told(&Origin::UNKNOWN, "batch.length"), "");
    }

    #[test]
    fn hints_are_in_the_words_of_the_source() {
        let hint = |source| {
            let origin = Origin { source, given: &[] };
            let message = origin.key(origin.section(Message::new(), "zero"), "stage").text("3");
            origin.end(message).as_str().to_owned()
        };
        assert_eq!(hint(Source::File("a.ron")), "`zero: (stage: 3)`");
        assert_eq!(hint(Source::Unknown), "`zero: (stage: 3)`");
        assert_eq!(hint(Source::Attribute), "`stage = 3`");
    }

    #[test]
    fn every_named_key_has_a_name() {
        assert!(NAMED.iter().all(|path| !Origin::UNKNOWN.name(path).is_empty()));
    }
}
