//! Record: the text in one field of a line of JSON. Of the other fields only the syntax matters, so that a value that
//! nobody asked for, such as a number that is too large, breaks nothing. Never reads a file.

use std::fmt;

use serde_json::Deserializer;
use serde_json::de::SliceRead;
use serde_json::error::Error;

use serde::de::{Deserialize, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// What a line has instead of a text.
#[derive(Debug, PartialEq)]
pub enum Fault {
    /// Why it is no JSON.
    Syntax(String),
    /// It is JSON of another kind.
    NoObject,
    /// It lacks the field. It has others.
    NoField(Vec<String>),
    /// The field is no text. The line has other fields.
    NoText(Vec<String>),
}

/// The text in the field `name` of the object in `line`.
pub fn text(line: &[u8], name: &str) -> Result<String, Fault> {
    let syntax = |error: Error| Fault::Syntax(error.to_string());
    if line.trim_ascii_start().first() != Some(&b'{') {
        serde_json::from_slice::<IgnoredAny>(line).map_err(syntax)?;
        return Err(Fault::NoObject);
    }
    let mut json = Deserializer::from_slice(line);
    let found = read(&mut json, FieldOf(name)).map_err(syntax)?;
    let others = || read(&mut Deserializer::from_slice(line), Others(name)).unwrap_or_default();
    match found {
        Some(Found::Text(text)) => Ok(text),
        Some(Found::Other) => Err(Fault::NoText(others())),
        None => Err(Fault::NoField(others())),
    }
}

/// Reads an object to the end of a line.
fn read<'l, V: Visitor<'l>>(json: &mut Deserializer<SliceRead<'l>>, fields: V) -> Result<V::Value, Error> {
    let found = serde::Deserializer::deserialize_map(&mut *json, fields)?;
    json.end().map(|()| found)
}

/// The value of the field that was asked for.
enum Found {
    Text(String),
    Other,
}

/// Finds the value of a field. The last one counts, if there are several.
struct FieldOf<'n>(&'n str);

impl<'de> Visitor<'de> for FieldOf<'_> {
    type Value = Option<Found>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut fields: M) -> Result<Self::Value, M::Error> {
        let mut found = None;
        while let Some(Name(name)) = fields.next_key()? {
            if name == self.0.as_bytes() {
                found = Some(fields.next_value()?);
            } else {
                fields.next_value::<IgnoredAny>()?;
            }
        }
        Ok(found)
    }
}

/// Lists the names of all fields but one.
struct Others<'n>(&'n str);

impl<'de> Visitor<'de> for Others<'_> {
    type Value = Vec<String>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut fields: M) -> Result<Self::Value, M::Error> {
        let mut names = std::collections::BTreeSet::new();
        while let Some((Name(name), IgnoredAny)) = fields.next_entry()? {
            names.insert(String::from_utf8_lossy(&name).into_owned());
        }
        names.remove(self.0);
        Ok(names.into_iter().collect())
    }
}

/// The name of a field as bytes, because a name that nobody asked for need not be valid Unicode.
struct Name(Vec<u8>);

impl<'de> Deserialize<'de> for Name {
    fn deserialize<D: serde::Deserializer<'de>>(names: D) -> Result<Self, D::Error> {
        struct Bytes;
        impl Visitor<'_> for Bytes {
            type Value = Name;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the name of a field")
            }

            fn visit_bytes<E>(self, name: &[u8]) -> Result<Name, E> {
                Ok(Name(name.to_vec()))
            }
        }
        names.deserialize_bytes(Bytes)
    }
}

impl<'de> Deserialize<'de> for Found {
    fn deserialize<D: serde::Deserializer<'de>>(value: D) -> Result<Self, D::Error> {
        struct Any;
        impl<'de> Visitor<'de> for Any {
            type Value = Found;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a value")
            }

            fn visit_str<E>(self, text: &str) -> Result<Found, E> {
                Ok(Found::Text(text.to_owned()))
            }

            fn visit_unit<E>(self) -> Result<Found, E> {
                Ok(Found::Other)
            }

            fn visit_bool<E>(self, _: bool) -> Result<Found, E> {
                Ok(Found::Other)
            }

            fn visit_i64<E>(self, _: i64) -> Result<Found, E> {
                Ok(Found::Other)
            }

            fn visit_u64<E>(self, _: u64) -> Result<Found, E> {
                Ok(Found::Other)
            }

            fn visit_f64<E>(self, _: f64) -> Result<Found, E> {
                Ok(Found::Other)
            }

            fn visit_seq<S: SeqAccess<'de>>(self, mut values: S) -> Result<Found, S::Error> {
                while values.next_element::<IgnoredAny>()?.is_some() {}
                Ok(Found::Other)
            }

            fn visit_map<M: MapAccess<'de>>(self, mut fields: M) -> Result<Found, M::Error> {
                while let Some((Name(_), IgnoredAny)) = fields.next_entry()? {}
                Ok(Found::Other)
            }
        }
        value.deserialize_any(Any)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_field_that_is_asked_for_must_be_valid() {
        for others in [
            r#""title": "cut \ud83d""#,
            r#""cut \ud83d": 1"#,
            r#""score": 1e999"#,
            r#""id": 123456789012345678901234567890"#,
            r#""a": {"text": "another", "b": [null, {"c": "\udfff"}]}"#,
            r#""text": null"#,
        ] {
            let line = format!("{{{others}, \"text\": \"the \\u00e9 \\ud83d\\ude00\"}}\n");
            assert_eq!(text(line.as_bytes(), "text"), Ok("the é \u{1f600}".to_owned()), "{others}");
        }
        let deep = format!("{{\"a\": {}{}, \"text\": \"x\"}}", "[".repeat(1000), "]".repeat(1000));
        assert_eq!(text(deep.as_bytes(), "text"), Ok("x".to_owned()));
        assert_eq!(text(b"{\"a\": \"caf\xe9\", \"text\": \"x\"}", "text"), Ok("x".to_owned()));
    }

    #[test]
    fn a_line_without_a_text_says_why() {
        let fault = |line: &str| text(line.as_bytes(), "text").expect_err(line);
        for line in ["[1]", "3", "null", "\"text\""] {
            assert_eq!(fault(line), Fault::NoObject, "{line}");
        }
        for line in ["{", "{\"text\": \"cut o", "{\"text\": \"x\"} {", "{\"text\": \"\\ud83d\"}", "\0", "{\"a\": NaN}"]
        {
            assert!(matches!(fault(line), Fault::Syntax(_)), "{line}");
        }
        let has = || vec!["a".to_owned(), "b".to_owned()];
        assert_eq!(fault(r#"{"b": 1, "a": 2}"#), Fault::NoField(has()));
        for value in ["null", "1", "-1", "0.5", "true", "[1, [2]]", "{\"text\": \"x\"}"] {
            assert_eq!(fault(&format!("{{\"b\": 1, \"a\": 2, \"text\": {value}}}")), Fault::NoText(has()), "{value}");
        }
    }
}
