//! Sample: text that a model of tokens generates. Every rank computes it, and rank 0 prints. Never learns from it.

use std::time::{Duration, Instant};

use super::output::{Output, say, tokens_per_s};
use super::speech::{Speech, Stops, prompt};
use super::token_arguments::TokenArguments;
use super::train::RankEngine;
use crate::error::Error;
use crate::sampling::{Sampler, Sampling, Window};
use zero_core::device::Device;
use zero_core::random::uniform;
use zero_files::data::{Tokenizer, require_fit};

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
            stops: Stops::new(&arguments.stop, tokenizer, classes)?,
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
