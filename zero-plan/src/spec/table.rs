//! Table: the rows of [`KEYS`] as Markdown, for the documentation. Adds nothing to them.

use super::keys::{KEYS, Key, KeyDefault, options, split};

/// The keys of a file, section by section: what each expects, its unit, its default, and what it decides.
pub fn keys_table() -> String {
    let sections = KEYS.iter().filter(|key| is_section(key)).map(|section| {
        let rows = KEYS.iter().filter(|key| !is_section(key) && root(key.path) == section.path);
        let required = if section.default == KeyDefault::Required { " It must be given." } else { "" };
        format!(
            "\n**`{}`**: {}{required}\n\n{}",
            section.path,
            section.about,
            table("key", rows.map(|key| (key.path, key)))
        )
    });
    let single = KEYS.iter().filter(|key| !is_section(key) && root(key.path) == key.path);
    table("key", single.map(|key| (key.path, key))) + &sections.collect::<String>()
}

/// The options of the attribute: the keys that it accepts, under their names there.
pub fn options_table() -> String {
    table("option", options())
}

/// Whether it has a table of its own: `pipeline.schedule.chunks` stands in that of `pipeline`.
fn is_section(key: &Key) -> bool {
    KEYS.iter().any(|other| split(other.path).0 == key.path) && !key.path.contains('.')
}

/// The first part of a path.
fn root(path: &str) -> &str {
    path.split('.').next().unwrap_or(path)
}

fn table<'k>(name: &str, rows: impl Iterator<Item = (&'k str, &'k Key)>) -> String {
    let head = format!("| {name} | expects | unit | default | |\n|---|---|---|---|---|\n");
    let rows = rows.map(|(name, key)| {
        let default = match key.default {
            KeyDefault::Required => "none: it must be given".to_owned(),
            KeyDefault::Value(value) => format!("`{value}`"),
            KeyDefault::Absent(meaning) => meaning.to_owned(),
            KeyDefault::OfItsKeys => String::new(),
        };
        format!("| `{name}` | {} | {} | {default} | {} |\n", key.expects, key.unit, key.about)
    });
    head + &rows.collect::<String>()
}

#[cfg(test)]
mod tests {
    use super::super::{locate, parse};
    use super::*;

    /// `UPDATE_EXPECT=1` rewrites the file.
    #[test]
    fn the_documentation_has_the_rows_of_keys() {
        expect_test::expect_file!["keys.md"].assert_eq(&keys_table());
    }

    /// A spec that sets only the required key.
    const MINIMAL: &str = "(zero: (stage: 3))";

    /// The default of a row is the value in a spec that does not set the key.
    #[test]
    fn defaults_are_those_of_a_spec_that_gives_none() {
        let spec = parse(MINIMAL).unwrap();
        let written = spec.to_string();
        for key in KEYS {
            let path = key.path;
            match key.default {
                KeyDefault::Value(default) => assert_eq!(key.value_in(&spec).as_deref(), Some(default), "{path}"),
                KeyDefault::Absent(_) => assert_eq!(locate(&written, path), None, "{path}"),
                KeyDefault::Required => assert!(is_missed(path), "{path}"),
                KeyDefault::OfItsKeys => assert!(is_section(key) && locate(&written, path).is_some(), "{path}"),
            }
        }
    }

    /// Whether a spec that lacks the key is refused.
    fn is_missed(path: &str) -> bool {
        let texts = ["()", "(zero: ())", "(zero: (stage: 1), pipeline: (schedule: Interleaved()))"];
        let problems = texts.iter().flat_map(|text| parse(text).err().unwrap_or_default());
        problems.into_iter().any(|problem| problem.code == "Z0102" && problem.key == path)
    }

    #[test]
    fn every_row_says_something() {
        for key in KEYS {
            assert!(key.about.ends_with('.') && !key.about.contains("  ") && !key.expects.is_empty(), "{}", key.path);
            let counts = ["a number", "a size", "`Every"].iter().any(|start| key.expects.starts_with(start));
            assert!(!counts || !key.unit.is_empty(), "{} has no unit", key.path);
        }
    }
}
