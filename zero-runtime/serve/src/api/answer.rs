//! Answer: choices as OpenAI's API writes them, whole or in chunks.

use serde_json::{Value, json};

use super::request::Kind;
use crate::job::{Ending, Likelihood, Token};
use crate::text::Words;

/// What an answer says of itself, in every chunk.
#[derive(Clone, Debug)]
pub struct Head {
    pub kind: Kind,
    pub id: String,
    pub created: u64,
    pub model: String,
    pub tells_ids: bool,
}

/// A part of a choice, or all of it.
#[derive(Debug, Default)]
pub struct Part {
    /// The choice.
    pub index: usize,
    pub text: String,
    /// Tokens, and how many characters of text came before each.
    pub tokens: Vec<(usize, Token)>,
    /// Why the choice has ended; none if it has not.
    pub ending: Option<Finish>,
}

/// How a choice has ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Finish {
    pub ending: Ending,
    /// The seed by which it was drawn.
    pub seed: u64,
    /// Versions of weights, each with the tokens from which it was used, and up to which.
    pub spans: Vec<Span>,
    /// The ids of its prompt.
    pub prompt: Vec<u32>,
}

/// Tokens that were computed with one version of the weights.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Span {
    pub version: String,
    pub start: usize,
    pub end: usize,
}

/// Adds a token to spans.
pub fn note(spans: &mut Vec<Span>, version: &str) {
    let at = spans.last().map_or(0, |span| span.end);
    match spans.last_mut().filter(|span| span.version == version) {
        Some(span) => span.end += 1,
        None => spans.push(Span { version: version.to_owned(), start: at, end: at + 1 }),
    }
}

/// Tokens of a request.
#[derive(Clone, Copy, Debug, Default)]
pub struct Usage {
    pub prompt: usize,
    pub generated: usize,
}

impl Usage {
    fn json(self) -> Value {
        let total = self.prompt + self.generated;
        json!({ "prompt_tokens": self.prompt, "completion_tokens": self.generated, "total_tokens": total })
    }
}

impl Head {
    /// The document of these choices. A chunk says the usage in the end alone, without a choice.
    pub fn document(&self, choices: &[Value], is_chunk: bool, usage: Option<Usage>) -> Value {
        let object = match (self.kind, is_chunk) {
            (Kind::Completion, _) => "text_completion",
            (Kind::Chat, false) => "chat.completion",
            (Kind::Chat, true) => "chat.completion.chunk",
        };
        let mut document = json!({
            "id": self.id, "object": object, "created": self.created, "model": self.model, "choices": choices,
        });
        if let Some(usage) = usage {
            document["usage"] = usage.json();
        }
        document
    }

    /// A choice, all of it or a chunk, which may be its first.
    pub fn choice(&self, words: &Words, part: &Part, is_chunk: bool, is_first: bool) -> Value {
        let Part { index, text, tokens, ending } = part;
        let finish = ending.as_ref().map(|finish| match finish.ending {
            Ending::Stop => "stop",
            Ending::Length => "length",
            Ending::Aborted | Ending::Shutdown | Ending::NotFinite => "abort",
        });
        let mut choice = json!({ "index": index, "finish_reason": finish, "logprobs": null });
        match (self.kind, is_chunk) {
            (Kind::Completion, _) => choice["text"] = json!(text),
            (Kind::Chat, false) => choice["message"] = json!({ "role": "assistant", "content": text }),
            (Kind::Chat, true) if is_first => choice["delta"] = json!({ "role": "assistant", "content": text }),
            (Kind::Chat, true) => choice["delta"] = json!({ "content": text }),
        }
        let told: Vec<_> = tokens.iter().filter_map(|(at, it)| Some((*at, it.id, it.likelihood.as_ref()?))).collect();
        if !told.is_empty() {
            choice["logprobs"] = match self.kind {
                Kind::Completion => of_completion(words, &told),
                Kind::Chat => json!({ "content": told.iter().map(|it| of_chat(words, it)).collect::<Vec<_>>() }),
            };
            // OpenAI's are of the distribution that the model gives; training needs the one that was drawn from, too.
            choice["sampled_logprobs"] = told.iter().map(|(_, _, it)| it.drawn_log_probability).collect();
        }
        if self.tells_ids {
            choice["token_ids"] = tokens.iter().map(|(_, it)| it.id).collect();
        }
        if let Some(finish) = ending {
            choice["weight_versions"] = json!(finish.spans);
            choice["seed"] = json!(finish.seed);
            if self.tells_ids {
                choice["prompt_token_ids"] = json!(finish.prompt);
            }
        }
        choice
    }
}

/// The characters before a token, its id, and how likely it was.
type ToldToken<'a> = (usize, u32, &'a Likelihood);

fn of_completion(words: &Words, told: &[ToldToken]) -> Value {
    let top = |it: &Likelihood| -> Value {
        it.top.iter().map(|&(id, it)| (words.token(id), json!(it))).collect::<serde_json::Map<_, _>>().into()
    };
    json!({
        "tokens": told.iter().map(|&(_, id, _)| words.token(id)).collect::<Vec<_>>(),
        "token_logprobs": told.iter().map(|(_, _, it)| it.log_probability).collect::<Vec<_>>(),
        "top_logprobs": told.iter().map(|(_, _, it)| top(it)).collect::<Vec<_>>(),
        "text_offset": told.iter().map(|(offset, ..)| offset).collect::<Vec<_>>(),
    })
}

fn of_chat(words: &Words, &(_, id, likelihood): &ToldToken) -> Value {
    let told = |id: u32, log_probability: f64| json!({ "token": words.token(id), "logprob": log_probability, "bytes": words.bytes(id) });
    let mut of_token = told(id, likelihood.log_probability);
    of_token["top_logprobs"] = likelihood.top.iter().map(|&(id, it)| told(id, it)).collect();
    of_token
}
