//! Explain: what a code means, as text. Never prints.

use zero_plan::diagnostic::{CODES, find};

use crate::error::Error;

/// The entry of `code`, or the titles of all codes.
pub fn explain(code: Option<&str>) -> Result<String, Error> {
    let Some(code) = code else {
        let titles: Vec<_> = CODES.iter().map(|entry| format!("{}  {}", entry.code, entry.title)).collect();
        return Ok(titles.join("\n"));
    };
    find(code).map(ToString::to_string).ok_or_else(|| Error::UnknownCode { code: code.to_owned() })
}
