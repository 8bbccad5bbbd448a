//! Text: how ids become text and text ids in a worker, and how a chat becomes a prompt. Never decodes.

use minijinja::syntax::SyntaxConfig;
use minijinja::value::Serde;
use minijinja::{Environment, Error, ErrorKind, Value, context};
use serde_json::Value as Json;
use zero_files::data::{Speech, Tokenizer, is_text, text_ids};

/// What a worker knows of text.
pub struct Words {
    tokenizer: Option<Tokenizer>,
    classes: usize,
    chat: Option<Environment<'static>>,
    /// The texts that stand for the beginning and the end of a text, for templates.
    ends: [Option<String>; 2],
}

/// The name of the one template.
const CHAT: &str = "chat";
/// What comes before the id of a token that is no whole text.
const NAMELESS: &str = "token_id:";

impl Words {
    /// The words of a model that predicts `classes` ids. `config` is a `tokenizer_config.json`, and `template` one that lies in a file
    /// of its own.
    ///
    /// # Errors
    /// A sentence, if the template cannot be read.
    pub fn new(
        tokenizer: Option<Tokenizer>,
        classes: usize,
        config: Option<&Json>,
        template: Option<String>,
    ) -> Result<Self, String> {
        let of_config = |key: &str| config.and_then(|config| config.get(key));
        // The text of a token, or an object with its text.
        let token = |key: &str| {
            let found = of_config(key)?;
            found.as_str().or_else(|| found.get("content")?.as_str()).map(str::to_owned)
        };
        let template = template.or_else(|| of_config("chat_template")?.as_str().map(str::to_owned));
        let chat = template.map(environment).transpose().map_err(|error| format!("the chat template: {error:#}"))?;
        Ok(Self { tokenizer, classes, chat, ends: ["bos_token", "eos_token"].map(token) })
    }

    /// The tokenizer.
    pub fn tokenizer(&self) -> Option<&Tokenizer> {
        self.tokenizer.as_ref()
    }

    /// Ids that the model predicts.
    pub fn classes(&self) -> usize {
        self.classes
    }

    /// Whether its ids are text.
    pub fn are_text(&self) -> bool {
        is_text(self.tokenizer(), self.classes)
    }

    /// A name for a token: its text, or its id if it is no whole text, as vLLM writes it.
    pub fn token(&self, id: u32) -> String {
        let text = self.are_text().then(|| {
            let mut speech = Speech::new(self.tokenizer(), self.classes);
            speech.hear(id) + &speech.end()
        });
        text.filter(|text| !text.is_empty() && !text.contains(char::REPLACEMENT_CHARACTER))
            .unwrap_or_else(|| format!("{NAMELESS}{id}"))
    }

    /// The bytes of a token, if they are known: a part of a character has some, too.
    pub fn bytes(&self, id: u32) -> Option<Vec<u8>> {
        match &self.tokenizer {
            None => self.are_text().then(|| vec![id as u8]),
            Some(_) => Some(self.token(id)).filter(|it| !it.starts_with(NAMELESS)).map(String::into_bytes),
        }
    }

    /// The ids of a text.
    ///
    /// # Errors
    /// A sentence.
    pub fn ids(&self, text: &str) -> Result<Vec<u32>, String> {
        let ids = text_ids(text, self.tokenizer(), self.classes).map_err(|error| error.to_string())?;
        let classes = self.classes;
        ids.ok_or_else(|| {
            format!("it is text, and the {classes} ids of this model are not all bytes of it: give token ids")
        })
    }

    /// The ids before which an answer ends if nothing else is asked for.
    pub fn ends(&self) -> Vec<u32> {
        let tokenizer = self.tokenizer();
        let of_texts = tokenizer.and_then(Tokenizer::end_of_text).map(|(_, id)| id);
        let of_config = tokenizer.zip(self.ends[1].as_deref()).and_then(|(tokenizer, end)| tokenizer.id(end));
        let mut ends: Vec<u32> = of_texts.into_iter().chain(of_config).collect();
        ends.dedup();
        ends
    }

    /// The prompt of a chat.
    ///
    /// # Errors
    /// A sentence, if there is no template, or it refuses the messages.
    pub fn chat(&self, messages: &[Json]) -> Result<String, String> {
        let Some(chat) = &self.chat else {
            return Err("the tokenizer of this model has no chat template: use /v1/completions".to_owned());
        };
        let [bos_token, eos_token] = &self.ends;
        let given = context! {
            messages => Value::from(Serde(messages)), add_generation_prompt => true,
            bos_token => bos_token.as_deref().unwrap_or(""), eos_token => eos_token.as_deref().unwrap_or(""),
        };
        let rendered = chat.get_template(CHAT).and_then(|template| template.render(given));
        rendered.map_err(|error| format!("the chat template refuses it: {error:#}"))
    }
}

/// What templates are written for: the environment of Hugging Face's `apply_chat_template`.
fn environment(template: String) -> Result<Environment<'static>, Error> {
    let mut environment = Environment::new();
    environment.set_syntax(SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build()?);
    environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
    environment.add_function("raise_exception", |why: String| -> Result<Value, Error> {
        Err(Error::new(ErrorKind::InvalidOperation, why))
    });
    environment.add_template_owned(CHAT, template)?;
    Ok(environment)
}
