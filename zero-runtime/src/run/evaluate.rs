//! Evaluate: the loss of a model on all of a text: every token but the first is predicted once, in consecutive windows.
//! Every rank computes its share, and rank 0 prints. Never learns from it.

use super::output::{EvaluationLine, Output};
use super::train::{RankEngine, for_each_sequence};
use crate::error::Error;
use zero_core::device::Device;
use zero_engine::Evaluated;
use zero_files::data::{Sequences, Text};

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
    let fill = |index, input: &mut [u32], targets: &mut [u32]| text.window(index, input, targets);
    // All windows before the last one are whole, so the tokens that count come first in a rank's last micro-batch.
    summed(engine, text.windows(), |index| text.window_tokens(index), fill)
}

/// The mean loss over the first `asked` held-out sequences, or over all if there are fewer; `None` if there are none.
///
/// # Errors
/// Any error that ends an evaluation early.
pub fn held_out_loss<D: Device>(
    engine: &mut RankEngine<D>,
    asked: u64,
    data: &dyn Sequences,
) -> Result<Option<f64>, Error> {
    let (length, held_out) = (engine.plan().config.length, data.held_out_count());
    let count = usize::try_from(asked).map_or(held_out, |asked| asked.min(held_out));
    let fill = |index, input: &mut [u32], targets: &mut [u32]| data.held_out_words(index, input, targets);
    let (sum, tokens) = summed(engine, count, |_| length, fill)?;
    Ok((tokens > 0).then(|| sum / tokens as f64))
}

/// The sum of the losses of `count` sequences that `fill` writes, the first `tokens_of` tokens of each, and the number of those tokens.
/// Ranks with data of their own take sequences in turn, so the order of a rank's sequences does not depend on the micro-batch.
fn summed<D: Device>(
    engine: &mut RankEngine<D>,
    count: usize,
    tokens_of: impl Fn(usize) -> usize,
    fill: impl Fn(usize, &mut [u32], &mut [u32]),
) -> Result<(f64, usize), Error> {
    let config = &engine.plan().config;
    let (data_ranks, data_rank) = (config.mesh.data_ranks(), engine.arena().coordinates().data_rank(&config.mesh));
    let program = engine.program();
    let (mut so_far, mut summed) = (Evaluated::default(), (0.0, 0));
    for micro_batch in 0..count.div_ceil(data_ranks * config.sequences) {
        let index = |sequence| (micro_batch * config.sequences + sequence) * data_ranks + data_rank;
        let counted = (0..config.sequences).map(index).filter(|&index| index < count).map(&tokens_of).sum();
        summed = engine.evaluate_first(&mut so_far, counted, |_, inputs, targets| {
            for_each_sequence(program, config.length, (inputs, targets), |sequence, input, targets| {
                // Padding is a sequence of the data too, because a dataset promises nothing else.
                fill(index(sequence).min(count - 1), input, targets);
            });
        })?;
    }
    Ok(summed)
}
