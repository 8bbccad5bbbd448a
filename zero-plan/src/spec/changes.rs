//! Changes: the keys in which two specs differ. Never judges a value.

use serde::Serialize;

use super::Spec;
use super::keys::{KEYS, Key, row, split};

/// A key that has different values in two specs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct KeyChange {
    /// The key, as a dotted path.
    pub key: &'static str,
    /// The value in the first, given or by default; none if it has no value.
    pub first: Option<String>,
    /// The value in the second.
    pub second: Option<String>,
}

impl KeyChange {
    /// Sets the key of a spec to the second's value; does nothing if the second has none.
    ///
    /// # Panics
    /// If there is no such key, or it cannot have such a value.
    pub fn apply(&self, spec: &mut Spec) {
        if let Some(value) = &self.second {
            row(self.key).expect("a key of a spec").read(spec, value).expect("a value of this key");
        }
    }
}

/// The keys that have different values in two specs, in the order of [`KEYS`]. Another spelling of the same value, such
/// as `MiB(1024)` and `GiB(1)`, is not a difference, nor is a default that is written down.
pub fn changes(first: &Spec, second: &Spec) -> Vec<KeyChange> {
    // A section differs if its keys do. Keys within a value are shown with it: the chunks of a schedule, the size of a model.
    let is_within = |key: &Key| row(split(key.path).0).is_some_and(|around| !around.is_section());
    let values = KEYS.iter().filter(|key| !key.is_section() && !is_within(key));
    let differing = values.filter(|key| !key.agree(first, second));
    differing.map(|key| KeyChange { key: key.path, first: key.value_in(first), second: key.value_in(second) }).collect()
}

#[cfg(test)]
mod tests {
    use super::super::parse;
    use super::*;

    fn told(first: &str, second: &str) -> Vec<(&'static str, String, String)> {
        let [first, second] = [first, second].map(|text| parse(text).expect(text));
        let shown = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
        let changes = changes(&first, &second);
        changes.into_iter().map(|change| (change.key, shown(change.first), shown(change.second))).collect()
    }

    #[test]
    fn keys_that_differ_are_told_with_what_holds() {
        let first = "(mesh: (zero: 4), zero: (stage: 2), memory: GiB(1))";
        let second = "(mesh: (zero: 4), zero: (stage: 3, prefetch: 2), model: Example(\"gpt\"), memory: MiB(512))";
        let told = told(first, second);
        let own = |key: &'static str, first: &str, second: &str| (key, first.to_owned(), second.to_owned());
        assert_eq!(
            told,
            [
                own("model", "-", "Example(\"gpt\")"),
                own("zero.stage", "2", "3"),
                own("zero.prefetch", "0", "2"),
                own("memory", "GiB(1)", "MiB(512)"),
            ]
        );
    }

    #[test]
    fn other_words_for_the_same_are_no_difference() {
        let second = "(zero: (stage: 2, bucket: KiB(25600)), memory: MiB(1024), batch: (sequences: 4))";
        assert_eq!(told("(zero: (stage: 2), memory: GiB(1))", second), []);
        assert_eq!(told(second, second), []);
    }

    #[test]
    fn a_model_is_told_with_its_size() {
        let with = |keys: &str| format!("(model: Example(\"gpt\"{keys}), zero: (stage: 0))");
        let own = |first: &str, second: &str| vec![("model", first.to_owned(), second.to_owned())];
        let sized = ", size: \"11M\", layers: 3";
        assert_eq!(
            told(&with(""), &with(sized)),
            own("Example(\"gpt\")", "Example(\"gpt\", size: \"11M\", layers: 3)")
        );
        assert_eq!(told(&with(sized), &with(", layers: 3, size: \"11M\"")), []);
    }

    #[test]
    fn a_schedule_is_told_once() {
        let with = |schedule: &str| {
            format!(
                "(mesh: (pipeline: 2), zero: (stage: 0), pipeline: (schedule: {schedule}), batch: (micro_batches: 4))"
            )
        };
        let own = |first: &str, second: &str| vec![("pipeline.schedule", first.to_owned(), second.to_owned())];
        let two = "Interleaved(chunks: 2)";
        assert_eq!(told(&with("GPipe"), &with(two)), own("GPipe", "Interleaved(chunks:2)"));
        assert_eq!(
            told(&with(two), &with("Interleaved(chunks: 4)")),
            own("Interleaved(chunks:2)", "Interleaved(chunks:4)")
        );
        assert_eq!(told(&with(two), &with(two)), []);
    }
}
