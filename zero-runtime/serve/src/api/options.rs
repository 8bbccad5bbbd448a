//! Options: what completions and chats have in common: how tokens are drawn, how many, where they end, and what is told of them.

use std::num::NonZeroUsize;

use serde::Deserialize;
use serde_json::json;
use zero_core::sampling::Sampling;

use super::fields::Fields;
use super::refusal::Refusal;

/// The most choices of a prompt.
const CHOICES_MAX: usize = 64;
/// The most texts that end an answer, and bytes of each.
const STOPS_MAX: usize = 16;
const STOP_BYTES_MAX: usize = 1 << 10;

/// The options of a request.
#[derive(Debug)]
pub struct Options {
    pub tokens_max: Option<usize>,
    pub choices: usize,
    pub sampling: Sampling,
    pub seed: Option<u64>,
    pub stops: Vec<String>,
    pub stop_ids: Vec<u32>,
    pub streams: bool,
    pub streams_usage: bool,
    pub tells_ids: bool,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum OneOrMany {
    One(String),
    Many(Vec<String>),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StreamOptions {
    #[serde(default)]
    include_usage: bool,
    #[serde(default, rename = "include_obfuscation")]
    _include_obfuscation: bool,
}

impl Options {
    /// Takes them from a request; `lengths` are the keys of the most tokens, of which one may be given.
    pub fn take(fields: &mut Fields, lengths: &[&str]) -> Result<Self, Refusal> {
        let mut tokens_max = None;
        for key in lengths {
            tokens_max = fields.take_within(key, 1..=usize::MAX >> 1)?.or(tokens_max);
        }
        let top_k: Option<i64> = fields.take_within("top_k", -1..=i64::from(u32::MAX))?;
        let sampling = Sampling {
            temperature: fields.take_within("temperature", 0.0..=100.0)?.unwrap_or(1.0),
            top_k: top_k.and_then(|k| NonZeroUsize::new(k.max(0) as usize)),
            top_p: fields.take_within("top_p", 0.0..=1.0)?.unwrap_or(1.0),
        };
        if sampling.top_p == 0.0 {
            return Err(Refusal::invalid("top_p", "`top_p` is 0, expected more, and 1 at most"));
        }
        let stops = match fields.take("stop")? {
            None => Vec::new(),
            Some(OneOrMany::One(stop)) => vec![stop],
            Some(OneOrMany::Many(stops)) => stops,
        };
        if stops.len() > STOPS_MAX || stops.iter().any(|stop| stop.is_empty() || stop.len() > STOP_BYTES_MAX) {
            let expected = format!("expected at most {STOPS_MAX} texts of 1 to {STOP_BYTES_MAX} bytes");
            return Err(Refusal::invalid("stop", format!("`stop`: {expected}")));
        }
        let streams_usage = fields.take::<StreamOptions>("stream_options")?.is_some_and(|it| it.include_usage);
        for (key, neutral) in [
            ("frequency_penalty", &[json!(0), json!(0.0)][..]),
            ("presence_penalty", &[json!(0), json!(0.0)]),
            ("logit_bias", &[json!({})]),
            ("service_tier", &[json!("auto"), json!("default")]),
        ] {
            fields.take_neutral(key, neutral)?;
        }
        // Names of people and of purposes, which change no token.
        for key in ["user", "metadata", "store", "safety_identifier", "prompt_cache_key"] {
            fields.take::<serde_json::Value>(key)?;
        }
        Ok(Self {
            tokens_max,
            choices: fields.take_within("n", 1..=CHOICES_MAX)?.unwrap_or(1),
            sampling,
            seed: seed(fields)?,
            stops,
            stop_ids: fields.take("stop_token_ids")?.unwrap_or_default(),
            streams: fields.take("stream")?.unwrap_or(false),
            streams_usage,
            tells_ids: fields.take("return_token_ids")?.unwrap_or(false),
        })
    }
}

/// A whole number, which may be negative.
fn seed(fields: &mut Fields) -> Result<Option<u64>, Refusal> {
    let Some(seed) = fields.take::<serde_json::Value>("seed")? else { return Ok(None) };
    let number = seed.as_u64().or_else(|| seed.as_i64().map(i64::cast_unsigned));
    number.map(Some).ok_or_else(|| Refusal::invalid("seed", format!("`seed` is {seed}, expected a whole number")))
}
