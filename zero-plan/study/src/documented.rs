//! Documented: checks that `docs/json.md` has exactly the keys of each shape of JSON.

use std::collections::BTreeSet;

use serde_json::Value;

/// Compares the keys of an object with the section on its format.
pub(crate) fn assert_documented(json: &Value) {
    let format = json["format"].as_str().expect("a format");
    let page = crate::repository::text("docs/json.md");
    let sections = page.split("\n## ").filter(|section| section.starts_with(&format!("`{format}`")));
    let [section] = sections.collect::<Vec<_>>()[..] else { panic!("one section about {format}") };
    let prose: Vec<&str> = section.split("```").step_by(2).collect();
    let words: BTreeSet<&str> = prose.iter().flat_map(|part| part.split('`').skip(1).step_by(2)).collect();
    let rows = section.lines().filter_map(|line| line.strip_prefix("| ")?.split(" | ").next());
    let listed: BTreeSet<&str> = rows.flat_map(|cell| cell.split('`').skip(1).step_by(2)).collect();
    let mut keys = BTreeSet::new();
    collect(json, &mut keys);
    let is_key = |word: &str| word.starts_with(|first: char| first.is_ascii_lowercase());
    let unsaid: Vec<_> = keys.iter().filter(|key| is_key(key) && !words.contains(*key)).collect();
    let gone: Vec<_> = listed.difference(&keys).collect();
    assert!(unsaid.is_empty(), "docs/json.md does not describe these keys of {format}: {unsaid:?}");
    assert!(gone.is_empty(), "docs/json.md describes keys that {format} does not have: {gone:?}");
}

/// Collects all keys of a value, including names of choices, which begin with capitals.
fn collect<'v>(value: &'v Value, keys: &mut BTreeSet<&'v str>) {
    match value {
        Value::Object(object) => {
            for (key, value) in object {
                keys.insert(key);
                collect(value, keys);
            }
        }
        Value::Array(values) => values.iter().for_each(|value| collect(value, keys)),
        _ => {}
    }
}
