//! Source: the text of the spec, and the line of each key that controls an op. Never reads a file.

use serde::Serialize;
use zero_plan::Plan;
use zero_plan::spec::{KEYS, KeyDefault, locate, parse};

/// A spec as text.
#[derive(Clone, Debug, Serialize)]
pub struct SourcePicture {
    /// Its name.
    pub name: String,
    /// The text.
    pub text: String,
    /// The keys that control ops.
    pub keys: Vec<KeyPicture>,
}

/// A key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct KeyPicture {
    /// Its path.
    pub path: &'static str,
    /// A description of the key.
    pub about: &'static str,
    /// The line on which it is given, from 1; none if it is not given.
    pub line: Option<usize>,
    /// Its value, given or by default.
    pub value: String,
}

impl SourcePicture {
    pub(super) fn of(plan: &Plan, name: &str, text: &str) -> Self {
        let ops = plan.pipeline_stages.iter().flat_map(|stage| stage.step.iter().chain(stage.publication));
        let paths: Vec<_> = ops.map(|op| op.words(&plan.config).1).chain(["memory"]).collect();
        let spec = parse(text).ok();
        let keys = KEYS.iter().filter(|key| paths.contains(&key.path));
        let key = |key: &'static zero_plan::spec::Key| {
            let spans = locate(text, key.path);
            let default = match key.default {
                KeyDefault::Value(value) | KeyDefault::Absent(value) => value,
                KeyDefault::Required | KeyDefault::OfItsKeys => "",
            };
            let value = || spec.as_ref().and_then(|spec| key.value_in(spec)).unwrap_or_else(|| default.to_owned());
            KeyPicture {
                path: key.path,
                about: key.about,
                line: spans.as_ref().map(|spans| 1 + text[..spans.key.start].matches('\n').count()),
                value: spans.map_or_else(value, |spans| text[spans.value].to_owned()),
            }
        };
        Self { name: name.to_owned(), text: text.to_owned(), keys: keys.map(key).collect() }
    }
}
