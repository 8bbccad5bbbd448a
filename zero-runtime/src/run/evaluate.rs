//! Evaluate: the loss of a model on all of a text: every token but the first is predicted once, in consecutive windows.
//! Every rank computes its share, and rank 0 prints. Never learns from it.

use super::output::{EvaluationLine, Output};
use super::train::{RankEngine, for_each_sequence};
use crate::error::Error;
use zero_core::device::Device;
use zero_files::data::Text;

/// Computes the loss and prints it.
///
/// # Errors
/// Those of [`summed_loss`], and of the output.
pub fn evaluate<D: Device>(engine: &mut RankEngine<D>, text: &Text, output: Option<&mut Output>) -> Result<(), Error> {
    let (sum, tokens) = summed_loss(engine, text)?;
    let loss = sum / tokens as f64;
    let line = EvaluationLine { tokens, loss, perplexity: loss.exp(), unit: engine.program().head.unit };
    output.map_or(Ok(()), |output| output.evaluation(&line))
}

/// The sum of the losses of all tokens but the first, and their number.
///
/// # Errors
/// Any error that ends an evaluation early.
pub fn summed_loss<D: Device>(engine: &mut RankEngine<D>, text: &Text) -> Result<(f64, usize), Error> {
    let config = &engine.plan().config;
    let (data_ranks, data_rank) = (config.mesh.data_ranks(), engine.arena().coordinates().data_rank(&config.mesh));
    let program = engine.program();
    let (mut sum, mut tokens) = (0.0, 0);
    for micro_batch in 0..text.windows().div_ceil(data_ranks * config.sequences) {
        let first = (micro_batch * data_ranks + data_rank) * config.sequences;
        // All windows before the last one are whole, so these tokens come first in the micro-batch.
        let counted = (first..first + config.sequences).map(|index| text.window_tokens(index)).sum();
        let (of_batch, counted) = engine.evaluate_first(counted, |_, inputs, targets| {
            for_each_sequence(program, config.length, (inputs, targets), |sequence, input, targets| {
                text.window(first + sequence, input, targets);
            });
        })?;
        sum += of_batch;
        tokens += counted;
    }
    Ok((sum, tokens))
}
