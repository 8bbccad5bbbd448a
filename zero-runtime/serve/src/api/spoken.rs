//! Spoken: the text of an answer as its tokens come, up to a text that ends it. What may be the beginning of such a text is held back.

use zero_files::data::Speech;

use crate::text::Words;

/// The text of one choice.
pub struct Spoken<'w> {
    speech: Option<Speech<'w>>,
    stops: Vec<String>,
    /// What was heard and not said yet.
    held: String,
    /// Characters that were heard.
    heard: usize,
    has_ended: bool,
}

impl<'w> Spoken<'w> {
    /// An answer that ends before one of these texts.
    pub fn new(words: &'w Words, stops: &[String]) -> Self {
        let speech = words.are_text().then(|| Speech::new(words.tokenizer(), words.classes()));
        Self { speech, stops: stops.to_vec(), held: String::new(), heard: 0, has_ended: false }
    }

    /// Characters that were heard, whether they were said or not.
    pub fn heard(&self) -> usize {
        self.heard
    }

    /// The text that can be said after the next token, and whether the answer has ended.
    pub fn hear(&mut self, id: u32) -> (String, bool) {
        let heard = self.speech.as_mut().map_or_else(String::new, |speech| speech.hear(id));
        self.held.push_str(&heard);
        self.heard += heard.chars().count();
        let found = self.stops.iter().filter_map(|stop| self.held.find(stop.as_str())).min();
        if let Some(at) = found {
            self.held.truncate(at);
            self.has_ended = true;
            return (std::mem::take(&mut self.held), true);
        }
        // The longest end of the text with which a stop may begin.
        let begins = |at: &usize| self.stops.iter().any(|stop| stop.starts_with(&self.held[*at..]));
        let held_from = self.held.char_indices().map(|(at, _)| at).find(begins).unwrap_or(self.held.len());
        let rest = self.held.split_off(held_from);
        (std::mem::replace(&mut self.held, rest), false)
    }

    /// What is left to say once there are no more tokens.
    pub fn end(&mut self) -> String {
        if self.has_ended {
            return String::new();
        }
        let rest = self.speech.take().map_or_else(String::new, Speech::end);
        self.held.push_str(&rest);
        let found = self.stops.iter().filter_map(|stop| self.held.find(stop.as_str())).min();
        self.held.truncate(found.unwrap_or(self.held.len()));
        std::mem::take(&mut self.held)
    }
}
