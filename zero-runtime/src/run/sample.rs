//! Sample: text that a model of tokens generates after training. Every rank computes it, and rank 0 prints. Never
//! learns from it.

use super::arguments::TextArguments;
use super::output::say;
use super::train::Finale;
use crate::engine::Engine;
use crate::error::Error;
use crate::layer::Tokens;
use crate::model::{DeviceOf, Model};
use crate::random::uniform;
use crate::transport::Transport;

/// The number of ids that can stand for bytes. A larger vocabulary has a tokenizer, which is not known here.
const BYTES: usize = 256;

/// The prompt as token ids of a vocabulary of `classes`.
///
/// # Errors
/// Z0350 if the vocabulary has no ids for it.
pub fn prompt(text: Option<&str>, classes: usize) -> Result<Vec<u32>, Error> {
    let ids: Vec<u32> = text.unwrap_or(DEFAULT).bytes().map(u32::from).collect();
    let fits = classes <= BYTES && ids.iter().all(|&id| (id as usize) < classes);
    match text {
        _ if fits && !ids.is_empty() => Ok(ids),
        // Without a prompt from the user, any id will do.
        None => Ok(vec![0]),
        Some("") => Ok(vec![0]),
        Some(text) => Err(Error::Argument {
            what: format!("--prompt {text:?} is text, but this model's {classes} token ids are not all bytes of it"),
            help: "leave --prompt out".to_owned(),
        }),
    }
}

const DEFAULT: &str = "pub fn ";

/// The end of a run of a model of text: what it writes after a prompt.
pub struct Sample<'a> {
    /// The prompt.
    pub prompt: Vec<u32>,
    /// How much it writes, and how freely.
    pub arguments: &'a TextArguments,
    /// What chance begins with.
    pub seed: u64,
}

impl<M: Model<Input = Tokens>> Finale<M> for Sample<'_> {
    fn run<'p, T: Transport<'p, DeviceOf<M>>>(&self, engine: &mut Engine<'p, M, T>) -> Result<(), Error> {
        sample(engine, &self.prompt, self.arguments, self.seed)
    }
}

/// Generates `arguments.sample` tokens after `prompt`; rank 0 prints them as they come.
///
/// # Errors
/// [`crate::transport::Lost`] if another rank has ended.
fn sample<'p, M: Model<Input = Tokens>, T: Transport<'p, DeviceOf<M>>>(
    engine: &mut Engine<'p, M, T>,
    prompt: &[u32],
    arguments: &TextArguments,
    seed: u64,
) -> Result<(), Error> {
    if arguments.sample == 0 {
        return Ok(());
    }
    let length = engine.plan().config.length;
    let mut voice = (engine.arena().rank() == 0).then(|| Voice::new(M::HEAD.classes));
    let mut speak = |id: u32| voice.iter_mut().for_each(|voice| voice.speak(id));
    let mut ids = prompt.to_vec();
    ids.iter().for_each(|&id| speak(id));
    ids.drain(..ids.len().saturating_sub(length));
    let mut logits = vec![0.0; M::HEAD.classes];
    for i in 0..arguments.sample {
        let has_logits = engine.predict(&ids, &mut logits)?;
        let choice = if has_logits { choose(&logits, arguments.temperature, uniform(seed, i)) } else { 0 };
        let id = engine.from_last_stage(f64::from(choice))? as u32;
        speak(id);
        if ids.len() == length {
            ids.remove(0);
        }
        ids.push(id);
    }
    speak(u32::from(b'\n'));
    Ok(())
}

/// Prints ids, as text if they are bytes and otherwise as numbers.
struct Voice {
    is_text: bool,
    /// Bytes that do not make a whole character yet.
    pending: Vec<u8>,
}

impl Voice {
    fn new(classes: usize) -> Self {
        say("\nsample:\n");
        Self { is_text: classes <= BYTES, pending: Vec::new() }
    }

    fn speak(&mut self, id: u32) {
        if !self.is_text {
            return say(&format!("{id} "));
        }
        self.pending.push(id as u8);
        let whole = match std::str::from_utf8(&self.pending) {
            Ok(_) => self.pending.len(),
            Err(error) if error.error_len().is_some() => self.pending.len(),
            Err(error) => error.valid_up_to(),
        };
        let bytes: Vec<u8> = self.pending.drain(..whole).collect();
        say(&String::from_utf8_lossy(&bytes));
    }
}

/// Draws an id with probability softmax(logits / temperature), by the place of `draw` in [0, 1).
fn choose(logits: &[f32], temperature: f64, draw: f64) -> u32 {
    let likeliest = |logits: &[f32]| (0..logits.len()).max_by(|&a, &b| logits[a].total_cmp(&logits[b])).unwrap_or(0);
    let best = likeliest(logits);
    if temperature == 0.0 {
        return best as u32;
    }
    let largest = f64::from(logits[best]);
    let weight = |logit: f32| ((f64::from(logit) - largest) / temperature).exp();
    let mut left = draw * logits.iter().map(|&logit| weight(logit)).sum::<f64>();
    for (id, &logit) in logits.iter().enumerate() {
        left -= weight(logit);
        if left < 0.0 {
            return id as u32;
        }
    }
    best as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prompt_is_bytes_of_the_vocabulary_or_an_error() {
        assert_eq!(prompt(Some("ab"), 256).unwrap(), [97, 98]);
        assert_eq!(prompt(Some(""), 256).unwrap(), [0]);
        assert_eq!(prompt(None, 29).unwrap(), [0]);
        for classes in [97, 50_000] {
            assert!(prompt(Some("ab"), classes).unwrap_err().to_string().starts_with("error[Z0350]"));
        }
    }

    #[test]
    fn draws_follow_the_softmax() {
        // Probabilities 1/4, 3/4 at temperature 1.
        let logits = [0.0, 3f32.ln()];
        assert_eq!(choose(&logits, 1.0, 0.24), 0);
        assert_eq!(choose(&logits, 1.0, 0.26), 1);
        // 1/10, 9/10 at temperature 1/2.
        assert_eq!(choose(&logits, 0.5, 0.11), 1);
        assert_eq!(choose(&logits, 0.0, 0.0), 1);
    }
}
