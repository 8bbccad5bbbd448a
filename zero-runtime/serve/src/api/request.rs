//! Request: reads completions and chats. A key that is unknown, or asks for what is not done, is refused by name.

use serde::Deserialize;
use serde_json::{Value, json};

use super::fields::Fields;
use super::options::Options;
use super::refusal::Refusal;
use crate::text::Words;

/// The most prompts of a request.
const PROMPTS_MAX: usize = 64;
/// Tokens of a completion if nothing is said, as in OpenAI's API.
const COMPLETION_TOKENS: usize = 16;

/// What is asked for.
#[derive(Debug)]
pub struct Asked {
    pub model: Option<String>,
    /// The ids of each prompt.
    pub prompts: Vec<Vec<u32>>,
    pub options: Options,
    /// The likeliest ids to tell of each token; none if no probability is told.
    pub log_probabilities: Option<usize>,
}

/// Which of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Completion,
    Chat,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Prompt {
    Text(String),
    Ids(Vec<u32>),
    Texts(Vec<String>),
    ManyIds(Vec<Vec<u32>>),
}

impl Asked {
    /// Reads the body of a request.
    pub fn read(kind: Kind, body: &[u8], words: &Words) -> Result<Self, Refusal> {
        let mut fields = Fields::of(body)?;
        let asked = match kind {
            Kind::Completion => completion(&mut fields, words),
            Kind::Chat => chat(&mut fields, words),
        }?;
        fields.finish()?;
        let classes = words.classes();
        let strange = |ids: &[u32]| ids.iter().find(|&&id| id as usize >= classes).copied();
        if let Some(id) = asked.prompts.iter().find_map(|ids| strange(ids)) {
            return Err(Refusal::invalid("prompt", format!("`prompt` has the id {id}, expected ids below {classes}")));
        }
        if asked.prompts.is_empty() || asked.prompts.len() > PROMPTS_MAX || asked.prompts.iter().any(Vec::is_empty) {
            let expected = format!("expected 1 to {PROMPTS_MAX} prompts of one token or more");
            return Err(Refusal::invalid("prompt", format!("`prompt`: {expected}")));
        }
        if let Some(id) = strange(&asked.options.stop_ids) {
            let message = format!("`stop_token_ids` has the id {id}, expected ids below {classes}");
            return Err(Refusal::invalid("stop_token_ids", message));
        }
        if !asked.options.stops.is_empty() && !words.are_text() {
            let help = "the ids of this model are no text: give `stop_token_ids`";
            return Err(Refusal::invalid("stop", format!("`stop` has texts, and {help}")));
        }
        Ok(asked)
    }
}

fn completion(fields: &mut Fields, words: &Words) -> Result<Asked, Refusal> {
    let prompt = fields.take::<Value>("prompt")?.ok_or_else(|| Refusal::invalid("prompt", "`prompt` is missing"))?;
    let expected = "`prompt` is neither a text nor token ids, nor a list of either";
    let prompt = serde_json::from_value(prompt).map_err(|_| Refusal::invalid("prompt", expected))?;
    let ids = |text: &String| words.ids(text).map_err(|why| Refusal::invalid("prompt", format!("`prompt`: {why}")));
    let prompts = match prompt {
        Prompt::Text(text) => vec![ids(&text)?],
        Prompt::Ids(ids) => vec![ids],
        Prompt::Texts(texts) => texts.iter().map(ids).collect::<Result<_, _>>()?,
        Prompt::ManyIds(prompts) => prompts,
    };
    let mut options = Options::take(fields, &["max_tokens"])?;
    options.tokens_max = options.tokens_max.or(Some(COMPLETION_TOKENS));
    fields.take_neutral("echo", &[json!(false)])?;
    fields.take_neutral("suffix", &[json!("")])?;
    fields.take_neutral("best_of", &[json!(1)])?;
    let log_probabilities = fields.take_within("logprobs", 0..=20)?;
    Ok(Asked { model: fields.take("model")?, prompts, options, log_probabilities })
}

fn chat(fields: &mut Fields, words: &Words) -> Result<Asked, Refusal> {
    let about = |why: String| Refusal::invalid("messages", format!("`messages`: {why}"));
    let messages: Vec<Value> = fields.take("messages")?.ok_or_else(|| about("missing".to_owned()))?;
    let messages: Vec<Value> = messages.into_iter().map(plain).collect::<Result<_, _>>().map_err(about)?;
    if messages.is_empty() {
        return Err(about("expected one or more".to_owned()));
    }
    let prompt = words.chat(&messages).map_err(about)?;
    let prompts = vec![words.ids(&prompt).map_err(about)?];
    let options = Options::take(fields, &["max_tokens", "max_completion_tokens"])?;
    for (key, neutral) in [
        ("tools", &[json!([])][..]),
        ("tool_choice", &[json!("none"), json!("auto")]),
        ("response_format", &[json!({ "type": "text" })]),
        ("modalities", &[json!(["text"])]),
        ("parallel_tool_calls", &[json!(true), json!(false)]),
    ] {
        fields.take_neutral(key, neutral)?;
    }
    let top = fields.take_within("top_logprobs", 0..=20)?;
    let tells = fields.take("logprobs")?.unwrap_or(false);
    if top.is_some() && !tells {
        return Err(Refusal::invalid("top_logprobs", "`top_logprobs` needs `logprobs`: true"));
    }
    let log_probabilities = tells.then_some(top.unwrap_or(0));
    Ok(Asked { model: fields.take("model")?, prompts, options, log_probabilities })
}

/// A message whose content is a text, from one whose content may be a list of texts.
fn plain(mut message: Value) -> Result<Value, String> {
    let Some(of_message) = message.as_object_mut() else { return Err("a message is no object".to_owned()) };
    if of_message.get("role").and_then(Value::as_str).is_none() {
        return Err("a message has no `role`".to_owned());
    }
    if let Some(Value::Array(parts)) = of_message.get("content") {
        let text = |part: &Value| match part.get("type").and_then(Value::as_str) {
            Some("text") => part.get("text").and_then(Value::as_str).map(str::to_owned),
            _ => None,
        };
        let texts: Option<Vec<String>> = parts.iter().map(text).collect();
        let texts = texts.ok_or("a part of a message is no text, and this model reads nothing else")?;
        of_message.insert("content".to_owned(), Value::String(texts.concat()));
    }
    match of_message.get("content") {
        Some(Value::String(_)) => Ok(message),
        _ => Err("the `content` of a message is no text".to_owned()),
    }
}
