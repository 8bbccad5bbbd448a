//! Speech: turns token ids into text and text into token ids, by a tokenizer or as bytes; and says where a sample ends.
//! Never prints.

use super::{DataError, TokenStream, Tokenizer};

/// The number of ids that can stand for bytes. A larger vocabulary needs a tokenizer.
const BYTES: usize = 256;

/// A text as token ids of a vocabulary of `classes`; none if its ids are bytes, and not all of those in the text.
///
/// # Errors
/// Z0377 if the tokenizer has no ids for it.
pub fn text_ids(text: &str, tokenizer: Option<&Tokenizer>, classes: usize) -> Result<Option<Vec<u32>>, DataError> {
    if let Some(tokenizer) = tokenizer {
        let ids = tokenizer.encode(text)?;
        // An empty text begins with the token that ends texts.
        let end = tokenizer.end_of_text().map_or(0, |(_, id)| id);
        return Ok(Some(if ids.is_empty() { vec![end] } else { ids }));
    }
    let ids: Vec<u32> = text.bytes().map(u32::from).collect();
    let fits = classes <= BYTES && ids.iter().all(|&id| (id as usize) < classes);
    Ok(match ids.is_empty() {
        true => Some(vec![0]),
        false => fits.then_some(ids),
    })
}

/// Whether the ids of a vocabulary of `classes` are text.
pub fn is_text(tokenizer: Option<&Tokenizer>, classes: usize) -> bool {
    tokenizer.is_some() || classes <= BYTES
}

/// Ids as text if there is a tokenizer or if they are bytes, and otherwise as numbers.
pub enum Speech<'t> {
    /// Tokens of a tokenizer.
    Tokens(TokenStream<'t>),
    /// Bytes; the pending ones do not make a whole character yet.
    Bytes(Vec<u8>),
    /// Numbers.
    Ids,
}

impl<'t> Speech<'t> {
    /// Speech for a vocabulary of `classes` ids.
    pub fn new(tokenizer: Option<&'t Tokenizer>, classes: usize) -> Self {
        match tokenizer {
            Some(tokenizer) => Self::Tokens(tokenizer.stream()),
            None if classes <= BYTES => Self::Bytes(Vec::new()),
            None => Self::Ids,
        }
    }

    /// The text that can be shown after the next id.
    pub fn hear(&mut self, id: u32) -> String {
        let pending = match self {
            Self::Tokens(stream) => return stream.next(id),
            Self::Ids => return format!("{id} "),
            Self::Bytes(pending) => pending,
        };
        pending.push(id as u8);
        let whole = match std::str::from_utf8(pending) {
            Ok(_) => pending.len(),
            Err(error) if error.error_len().is_some() => pending.len(),
            Err(error) => error.valid_up_to(),
        };
        let bytes: Vec<u8> = pending.drain(..whole).collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// The text that was held back to wait for a whole character, once there are no more ids.
    pub fn end(self) -> String {
        match self {
            Self::Tokens(stream) => stream.end(),
            Self::Bytes(pending) => String::from_utf8_lossy(&pending).into_owned(),
            Self::Ids => String::new(),
        }
    }
}

/// The ids and texts that end a sample before it is as long as asked for.
#[derive(Debug, Default, PartialEq)]
pub struct Stops {
    ids: Vec<u32>,
    texts: Vec<String>,
}

impl Stops {
    /// The stops that `asked` names: each is a token of the tokenizer, an id if it is a number of the vocabulary, and
    /// otherwise a text. If nothing is asked for, the token with which the tokenizer ends texts.
    ///
    /// # Errors
    /// The first text that the model never writes.
    pub fn new<'a>(asked: &'a [String], tokenizer: Option<&Tokenizer>, classes: usize) -> Result<Self, &'a str> {
        let mut stops = Self::default();
        if asked.is_empty() {
            stops.ids.extend(tokenizer.and_then(Tokenizer::end_of_text).map(|(_, id)| id));
        }
        for text in asked {
            let token = tokenizer.and_then(|tokenizer| tokenizer.id(text)).map_or_else(|| text.parse::<u32>(), Ok);
            match token {
                Ok(id) if (id as usize) < classes => stops.ids.push(id),
                _ if is_text(tokenizer, classes) && !text.is_empty() => stops.texts.push(text.clone()),
                _ => return Err(text),
            }
        }
        Ok(stops)
    }

    /// Whether the sample ends before this token.
    pub fn before(&self, id: u32) -> bool {
        self.ids.contains(&id)
    }

    /// Whether the sample ends after `heard`, which is added to the end of `said`.
    pub fn after(&self, said: &mut String, heard: &str) -> bool {
        let longest = self.texts.iter().map(String::len).max().unwrap_or(0);
        // Keeps only the end of what was said, in which a text may begin.
        let mut kept = said.len().saturating_sub(longest);
        while !said.is_char_boundary(kept) {
            kept -= 1;
        }
        said.drain(..kept);
        said.push_str(heard);
        self.texts.iter().any(|text| said.contains(text.as_str()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_bytes_of_the_vocabulary() {
        assert_eq!(text_ids("ab", None, 256).unwrap(), Some(vec![97, 98]));
        assert_eq!(text_ids("", None, 256).unwrap(), Some(vec![0]));
        for classes in [97, 50_000] {
            assert_eq!(text_ids("ab", None, classes).unwrap(), None);
        }
    }

    #[test]
    fn ids_are_text_once_they_are_whole_characters() {
        let mut speech = Speech::new(None, 256);
        let heard: Vec<String> = "aé".bytes().map(|byte| speech.hear(u32::from(byte))).collect();
        assert_eq!(heard, ["a", "", "é"]);
        assert_eq!(
            (speech.hear(0xe2), speech.hear(0x82), speech.end()),
            (String::new(), String::new(), "\u{fffd}".into())
        );
        assert_eq!(Speech::new(None, 257).hear(97), "97 ");
    }

    #[test]
    fn a_sample_stops_before_an_id_and_after_a_text() {
        let stops = Stops::new(&["10".to_owned(), "end é".to_owned(), "999".to_owned()], None, 256).unwrap();
        assert!(stops.before(10) && !stops.before(11));
        let ends_with = |text: &str| {
            let (mut said, mut speech) = (String::new(), Speech::new(None, 256));
            text.bytes().position(|byte| stops.after(&mut said, &speech.hear(u32::from(byte))))
        };
        assert_eq!(ends_with("an end é and more"), Some(8));
        assert_eq!(ends_with("an end e and no more"), None);
        assert_eq!(ends_with("éééé 999 1"), Some(11));
        for unknown in ["x", ""] {
            assert_eq!(Stops::new(&[unknown.to_owned()], None, 50_000), Err(unknown));
        }
        assert_eq!(Stops::new(&[], None, 256).unwrap(), Stops::default());
    }
}
