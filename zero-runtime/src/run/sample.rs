//! Sample: text that a model of tokens writes on its own. Every rank takes the same steps; rank 0 prints.

use std::io::Write;

use super::arguments::TextArguments;
use crate::engine::Engine;
use crate::error::Error;
use crate::layer::Tokens;
use crate::model::Model;
use crate::random::uniform;
use crate::transport::Transport;

/// Ids that stand for bytes; a larger vocabulary has a tokenizer of its own, which is not known here.
const BYTES: usize = 256;

/// Generates and prints `arguments.sample` tokens after the prompt.
///
/// # Errors
/// [`crate::transport::Lost`] if another rank has ended.
pub fn sample<M: Model<Input = Tokens>, T: Transport>(
    engine: &mut Engine<'_, M, T>,
    arguments: &TextArguments,
    seed: u64,
) -> Result<(), Error> {
    if arguments.sample == 0 {
        return Ok(());
    }
    let length = engine.plan().config.length;
    let mut ids: Vec<u32> =
        arguments.prompt.bytes().map(u32::from).filter(|&id| (id as usize) < M::HEAD.classes).collect();
    if ids.is_empty() {
        ids.push(0);
    }
    let mut logits = vec![0.0; M::HEAD.classes];
    for i in 0..arguments.sample {
        engine.predict(&ids[ids.len().saturating_sub(length)..], &mut logits)?;
        ids.push(choose(&mut logits, arguments.temperature, uniform(seed, i as u64)));
    }
    if engine.arena().rank() == 0 {
        print(&ids, M::HEAD.classes);
    }
    Ok(())
}

/// Draws an id with probability softmax(logits / temperature), by the place of `draw` in [0, 1).
fn choose(logits: &mut [f32], temperature: f64, draw: f64) -> u32 {
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

fn print(ids: &[u32], classes: usize) {
    println!("\nsample:");
    if classes <= BYTES {
        let bytes: Vec<u8> = ids.iter().map(|&id| id as u8).collect();
        println!("{}", String::from_utf8_lossy(&bytes));
    } else {
        println!("{ids:?}");
    }
    // A closed pipe is the reader's choice, not an error of the run.
    let _ = std::io::stdout().flush();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_follow_the_softmax() {
        // Probabilities 1/4, 3/4 at temperature 1.
        let mut logits = [0.0, 3f32.ln()];
        assert_eq!(choose(&mut logits, 1.0, 0.24), 0);
        assert_eq!(choose(&mut logits, 1.0, 0.26), 1);
        // 1/10, 9/10 at temperature 1/2.
        assert_eq!(choose(&mut logits, 0.5, 0.11), 1);
        assert_eq!(choose(&mut logits, 0.0, 0.0), 1);
    }
}
