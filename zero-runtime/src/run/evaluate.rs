//! Evaluate: the loss of a model on all of a text: every token but the first is predicted once, in consecutive windows.
//! Every rank computes its share, and rank 0 prints. Never learns from it.

use super::output::{EvaluationLine, Output};
use super::train::{Finale, for_each_sequence};
use crate::data::Text;
use crate::engine::Engine;
use crate::error::Error;
use crate::layer::Tokens;
use crate::model::{DeviceOf, Model};
use crate::transport::Transport;

/// A run that evaluates a text.
pub struct Evaluate<'a> {
    /// The text.
    pub text: &'a Text,
}

impl<M: Model<Input = Tokens, Target = Tokens>> Finale<M> for Evaluate<'_> {
    fn run<'p, T: Transport<'p, DeviceOf<M>>>(
        &self,
        engine: &mut Engine<'p, M, T>,
        output: Option<&mut Output>,
    ) -> Result<(), Error> {
        let (sum, tokens) = summed_loss(engine, self.text)?;
        let loss = sum / tokens as f64;
        let line = EvaluationLine { tokens, loss, perplexity: loss.exp(), unit: M::HEAD.unit };
        output.map_or(Ok(()), |output| output.evaluation(&line))
    }
}

/// The sum of the losses of all tokens but the first, and their number.
///
/// # Errors
/// Any error that ends an evaluation early.
pub fn summed_loss<'p, M: Model<Input = Tokens, Target = Tokens>, T: Transport<'p, DeviceOf<M>>>(
    engine: &mut Engine<'p, M, T>,
    text: &Text,
) -> Result<(f64, usize), Error> {
    let config = &engine.plan().config;
    let (data_ranks, data_rank) = (config.mesh.data_ranks(), engine.arena().coordinates().data_rank(&config.mesh));
    let (mut sum, mut tokens) = (0.0, 0);
    for micro_batch in 0..text.windows().div_ceil(data_ranks * config.sequences) {
        let first = (micro_batch * data_ranks + data_rank) * config.sequences;
        // All windows before the last one are whole, so these tokens come first in the micro-batch.
        let counted = (first..first + config.sequences).map(|index| text.window_tokens(index)).sum();
        let (of_batch, counted) = engine.evaluate_first(counted, |_, inputs, targets| {
            for_each_sequence::<M>(config.length, inputs, targets, |sequence, input, targets| {
                text.window(first + sequence, input, targets);
            });
        })?;
        sum += of_batch;
        tokens += counted;
    }
    Ok((sum, tokens))
}
