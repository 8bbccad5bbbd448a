//! Sample: text that a model of tokens generates. Every rank computes it, and rank 0 prints. Never learns from it.

use std::time::{Duration, Instant};

use super::output::{Output, say, tokens_per_s};
use super::token_arguments::TokenArguments;
use super::train::RankEngine;
use crate::error::Error;
use zero_core::device::Device;
use zero_core::random::uniform;
use zero_core::sampling::{Sampler, Sampling, Window};
use zero_files::data::{Speech, Stops, Tokenizer, require_fit, text_ids};

/// The beginning of a sample, unless another is given.
const DEFAULT_PROMPT: &str = "pub fn ";

/// The prompt as token ids of a vocabulary of `classes`.
fn prompt(text: Option<&str>, tokenizer: Option<&Tokenizer>, classes: usize) -> Result<Vec<u32>, Error> {
    match (text_ids(text.unwrap_or(DEFAULT_PROMPT), tokenizer, classes)?, text) {
        (Some(ids), _) => Ok(ids),
        // Without a prompt from the user, any id will do.
        (None, None) => Ok(vec![0]),
        (None, Some(text)) => Err(Error::Argument {
            what: format!("--prompt {text:?} is text, but this model's {classes} token ids are not all bytes of it"),
            help: "give --tokenizer, or leave --prompt out".to_owned(),
        }),
    }
}

fn never_written(text: &str, classes: usize) -> Error {
    let what = format!("--stop {text:?} is neither an id below {classes} nor a text of this model");
    Error::Argument { what, help: "give the id of a token".to_owned() }
}

/// The text that a model writes after a prompt.
pub struct SampledText<'a> {
    tokenizer: Option<&'a Tokenizer>,
    prompt: Vec<u32>,
    stops: Stops,
    sampling: Sampling,
    arguments: &'a TokenArguments,
    /// The seed of draws.
    seed: u64,
    /// The number of ids that the model predicts.
    classes: usize,
}

impl<'a> SampledText<'a> {
    /// The sample that `arguments` ask for, of a model that predicts `classes` ids.
    ///
    /// # Errors
    /// Z0350 if the vocabulary has no ids for the prompt or for a stop, Z0372 if the tokenizer's vocabulary is larger than
    /// the model's, Z0377 if the tokenizer cannot encode the prompt.
    pub fn new(
        arguments: &'a TokenArguments,
        tokenizer: Option<&'a Tokenizer>,
        seed: u64,
        classes: usize,
    ) -> Result<Self, Error> {
        tokenizer.map_or(Ok(()), |tokenizer| require_fit(tokenizer, classes))?;
        Ok(Self {
            tokenizer,
            prompt: prompt(arguments.prompt.as_deref(), tokenizer, classes)?,
            stops: Stops::new(&arguments.stop, tokenizer, classes).map_err(|text| never_written(text, classes))?,
            sampling: arguments.sampling(),
            arguments,
            seed,
            classes,
        })
    }

    /// Prints the sample. Every rank must call this, and rank 0 has an output.
    ///
    /// # Errors
    /// Z0401 if logits are not finite; that another rank has ended.
    pub fn run<D: Device>(&self, engine: &mut RankEngine<D>, output: Option<&mut Output>) -> Result<(), Error> {
        if self.arguments.sample == 0 {
            return Ok(());
        }
        let speaks = output.is_some();
        let speak = |text: &str| {
            if speaks {
                say(text)
            }
        };
        speak("\nsample:\n");
        let took = self.generate(engine, speak)?;
        speak(&format!("\n{took}\n"));
        Ok(())
    }

    /// Generates tokens, and passes each one's text to `speak` at once; every rank chooses the same tokens.
    fn generate<D: Device>(&self, engine: &mut RankEngine<D>, speak: impl Fn(&str)) -> Result<Took, Error> {
        let classes = self.classes;
        let (mut speech, mut sampler) = (Speech::new(self.tokenizer, classes), Sampler::new(self.sampling, classes));
        self.prompt.iter().for_each(|&id| speak(&speech.hear(id)));
        let mut window = Window::new(&self.prompt, engine.plan().config.length);
        let mut logits = vec![0.0; classes];
        let mut took = Took { prompt: window.ids().len(), ..Took::default() };
        let mut said = String::new();
        for i in 0..self.arguments.sample {
            let start = Instant::now();
            let has_logits = engine.decode(window.uncached(), window.cached(), &mut logits)?;
            window.is_cached();
            let choice = if has_logits { sampler.choose(&logits, uniform(self.seed, i)) } else { Some(0) };
            let id = engine.from_last_pipeline_stage(choice.map_or(f64::NAN, f64::from))?;
            if id.is_nan() {
                return Err(Error::Logits { tokens: self.prompt.len() + i as usize });
            }
            let id = id as u32;
            took.add(start.elapsed());
            if self.stops.before(id) {
                break;
            }
            let heard = speech.hear(id);
            speak(&heard);
            if self.stops.after(&mut said, &heard) {
                break;
            }
            window.push(id);
        }
        speak(&speech.end());
        Ok(took)
    }
}

/// How long tokens took.
#[derive(Clone, Copy, Debug, Default)]
struct Took {
    /// Tokens of the prompt.
    prompt: usize,
    prompt_took: Duration,
    /// Tokens after the first, which comes with the prompt.
    generated: usize,
    generated_took: Duration,
}

impl Took {
    fn add(&mut self, took: Duration) {
        if self.prompt_took.is_zero() {
            self.prompt_took = took;
        } else {
            self.generated += 1;
            self.generated_took += took;
        }
    }
}

impl core::fmt::Display for Took {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let per_s = |tokens: usize, took: Duration| tokens_per_s(tokens, took.max(Duration::from_nanos(1)));
        let Self { prompt, prompt_took, generated, generated_took } = *self;
        write!(f, "prompt: {prompt} tokens, {:.0} tokens/s; generated: ", per_s(prompt, prompt_took))?;
        write!(f, "{} tokens, {:.1} tokens/s", generated + 1, per_s(generated, generated_took))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn z0350_a_prompt_or_a_stop_that_the_model_cannot_write() {
        assert_eq!(prompt(Some("ab"), None, 256).unwrap(), [97, 98]);
        assert_eq!(prompt(None, None, 29).unwrap(), [0]);
        for error in [prompt(Some("ab"), None, 97).unwrap_err(), never_written("x", 50_000)] {
            assert!(error.to_string().starts_with("error[Z0350]: --"), "{error}");
        }
    }
}
