//! Rotary: the frequencies of rotary position embeddings (Su et al., 2021), and how they are scaled for sequences longer than
//! a model was trained on first. Never looks at positions.

use std::f64::consts::PI;

/// The frequencies of a rotary position embedding: those of Hugging Face's transformers, `modeling_rope_utils.py`, in f32 as
/// there.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rotary {
    /// What there is called `rope_theta`: pair i of a head of n features turns by 1 / base^(2i / n) from token to token.
    pub base: f64,
    /// What of these frequencies is changed.
    pub scaling: Scaling,
}

/// How frequencies are lowered, so that positions beyond those of the first training look like those of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Scaling {
    /// Not at all: `default`.
    None,
    /// All of them, by one factor: `linear`.
    Linear {
        /// What each is divided by.
        factor: f64,
    },
    /// Those that turn less than once or so over the first length: `llama3`.
    Llama3 {
        /// What the lowest are divided by.
        factor: f64,
        /// Frequencies that turn less often than so over `original_length` are divided by all of `factor`.
        low_frequency_factor: f64,
        /// And such that turn more often than so by nothing: those between, by something between.
        high_frequency_factor: f64,
        /// Tokens of a sequence in the first training.
        original_length: usize,
    },
    /// The same along a ramp over the pairs, and all cosines and sines by a factor (Peng et al., 2023): `yarn`.
    Yarn {
        /// What the lowest are divided by.
        factor: f64,
        /// Tokens of a sequence in the first training.
        original_length: usize,
        /// Turns over `original_length` from which on frequencies stay; published models have 32.
        beta_fast: f64,
        /// Turns below which they are divided by all of `factor`; published models have 1.
        beta_slow: f64,
        /// What cosines and sines are multiplied by; by default 0.1 ln(factor) + 1.
        attention_factor: Option<f64>,
        /// Whether the ramp begins and ends at whole pairs; it does in most published models.
        truncate: bool,
    },
}

impl Rotary {
    /// What stops these numbers from giving frequencies, if anything does.
    pub const fn flaw(&self) -> Option<&'static str> {
        if !(self.base > 1.0 && self.base < f64::INFINITY) {
            return Some("`base` is not above 1");
        }
        match self.scaling {
            Scaling::None => None,
            Scaling::Linear { factor } => flaw_of_factor(factor),
            Scaling::Llama3 { factor, low_frequency_factor: low, high_frequency_factor: high, original_length } => {
                if !(low > 0.0 && low < high && high < f64::INFINITY) {
                    return Some("`low_frequency_factor` is not between 0 and `high_frequency_factor`");
                }
                if original_length == 0 { Some("`original_length` is 0") } else { flaw_of_factor(factor) }
            }
            Scaling::Yarn { factor, original_length, beta_fast, beta_slow, attention_factor, .. } => {
                if !(beta_slow > 0.0 && beta_slow < beta_fast && beta_fast < f64::INFINITY) {
                    return Some("`beta_slow` is not between 0 and `beta_fast`");
                }
                if let Some(factor) = attention_factor
                    && !(factor > 0.0 && factor < f64::INFINITY)
                {
                    return Some("`attention_factor` is not above 0");
                }
                if original_length == 0 { Some("`original_length` is 0") } else { flaw_of_factor(factor) }
            }
        }
    }

    /// `frequencies` (head_dim / 2) := by how much each pair turns from token to token, in radians. Gives what cosines and
    /// sines are to be multiplied by.
    pub fn frequencies(&self, frequencies: &mut [f32]) -> f32 {
        let pairs = frequencies.len();
        for (pair, frequency) in frequencies.iter_mut().enumerate() {
            let power = f64::from(pair as f32 / pairs as f32);
            *frequency = 1.0 / f64::from(self.base as f32).powf(power) as f32;
        }
        match self.scaling {
            Scaling::None => 1.0,
            Scaling::Linear { factor } => {
                frequencies.iter_mut().for_each(|frequency| *frequency /= factor as f32);
                1.0
            }
            Scaling::Llama3 { factor, low_frequency_factor, high_frequency_factor, original_length } => {
                let turns = [low_frequency_factor, high_frequency_factor];
                frequencies
                    .iter_mut()
                    .for_each(|frequency| *frequency = llama3(*frequency, factor, turns, original_length));
                1.0
            }
            Scaling::Yarn { factor, original_length, beta_fast, beta_slow, attention_factor, truncate } => {
                let pair_of = |turns: f64| {
                    let head_dim = 2.0 * pairs as f64;
                    head_dim * (original_length as f64 / (turns * 2.0 * PI)).ln() / (2.0 * self.base.ln())
                };
                let (first, last) = (pair_of(beta_fast), pair_of(beta_slow));
                let (first, last) = if truncate { (first.floor(), last.ceil()) } else { (first, last) };
                lower_along(frequencies, factor, first.max(0.0), last.min(2.0 * pairs as f64 - 1.0));
                let recommended = if factor > 1.0 { 0.1 * factor.ln() + 1.0 } else { 1.0 };
                attention_factor.unwrap_or(recommended) as f32
            }
        }
    }
}

const fn flaw_of_factor(factor: f64) -> Option<&'static str> {
    if factor > 0.0 && factor < f64::INFINITY { None } else { Some("`factor` is not above 0") }
}

/// A frequency by how often it turns over the first length: fewer times than `low`, more than `high`, or between.
fn llama3(frequency: f32, factor: f64, [low, high]: [f64; 2], original_length: usize) -> f32 {
    let (length, factor) = (original_length as f64, factor as f32);
    let wavelength = 2.0 * PI as f32 / frequency;
    if wavelength < (length / high) as f32 {
        return frequency;
    }
    if wavelength > (length / low) as f32 {
        return frequency / factor;
    }
    let kept = (length as f32 / wavelength - low as f32) / (high - low) as f32;
    (1.0 - kept) * frequency / factor + kept * frequency
}

/// Divides frequencies from pair `last` on by all of `factor`, those up to `first` by nothing, and the others by something
/// between.
fn lower_along(frequencies: &mut [f32], factor: f64, first: f64, last: f64) {
    // Some width, where both are the same pair.
    let last = if first == last { last + 0.001 } else { last };
    for (pair, frequency) in frequencies.iter_mut().enumerate() {
        let lowered = ((pair as f32 - first as f32) / (last - first) as f32).clamp(0.0, 1.0);
        *frequency = *frequency / factor as f32 * lowered + *frequency * (1.0 - lowered);
    }
}

#[cfg(test)]
mod tests;
