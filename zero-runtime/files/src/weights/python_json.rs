//! Python's JSON: `NaN` and `Infinity`, which Python writes for numbers that JSON does not have. Here they are texts with a
//! mark that nobody sees: no number is equal to them, and what is written again is as it was.

use std::borrow::Cow;

/// What Python writes; a number that begins another comes after it.
const NUMBERS: [&str; 3] = ["-Infinity", "Infinity", "NaN"];
/// The mark, a letter without width.
const MARK: char = '\u{2060}';

/// JSON in which these numbers are texts.
pub fn named(json: &[u8]) -> Cow<'_, [u8]> {
    let (mut named, mut copied, mut at) = (Vec::new(), 0, 0);
    let mut is_text = false;
    while at < json.len() {
        match (json[at], is_text) {
            (b'\\', true) => at += 1,
            (b'"', _) => is_text = !is_text,
            (_, false) => {
                if let Some(number) = NUMBERS.iter().find(|number| json[at..].starts_with(number.as_bytes())) {
                    named.extend_from_slice(&json[copied..at]);
                    named.extend(text(number).into_bytes());
                    copied = at + number.len();
                    at = copied - 1;
                }
            }
            _ => {}
        }
        at += 1;
    }
    if copied == 0 {
        return Cow::Borrowed(json);
    }
    named.extend_from_slice(&json[copied..]);
    Cow::Owned(named)
}

/// JSON with the texts of [`named`] as Python writes them.
pub fn unnamed(json: String) -> String {
    NUMBERS.iter().fold(json, |json, number| json.replace(&text(number), number))
}

fn text(number: &str) -> String {
    format!("\"{number}{MARK}\"")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn numbers_that_json_lacks_are_texts_and_come_back() {
        let python = r#"{"NaN": [NaN, -Infinity,Infinity], "a\\": "NaN \" Infinity", "b":-1}"#;
        let value: Value = serde_json::from_slice(&named(python.as_bytes())).expect("JSON");
        assert_eq!((&value["b"], &value["a\\"]), (&json!(-1), &json!("NaN \" Infinity")));
        assert!(value["NaN"].as_array().is_some_and(|all| all.iter().all(Value::is_string)), "{value}");
        let again = unnamed(value.to_string());
        assert!(
            again.contains(r#""NaN":[NaN,-Infinity,Infinity]"#) && again.contains(r#""NaN \" Infinity""#),
            "{again}"
        );
        assert!(matches!(named(b"[1, \"NaN\"]"), Cow::Borrowed(_)));
    }
}
