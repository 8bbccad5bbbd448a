//! Rotary: the frequencies of rotary position embeddings (Su et al., 2021), and how they are scaled for sequences
//! longer than those of a model's first training. Never looks at positions.

use std::f64::consts::PI;

/// The frequencies of a rotary position embedding: those of Hugging Face's transformers, `modeling_rope_utils.py`, in
/// f32 as well.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rotary {
    /// `rope_theta` of transformers: pair i of a head of n features turns by 1 / base^(2i / n) from token to token.
    pub base: f64,
    /// How these frequencies are changed.
    pub scaling: Scaling,
}

/// How frequencies are lowered, so that positions beyond the first training's look like positions within it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Scaling {
    /// Not at all: `default`.
    None,
    /// All of them, by one factor: `linear`.
    Linear {
        /// Divisor of each frequency.
        factor: f64,
    },
    /// Only low ones, which turn about once or less over the first length: `llama3`.
    Llama3 {
        /// Divisor of the lowest frequencies.
        factor: f64,
        /// Frequencies that turn fewer times than this over `original_length` are divided by all of `factor`.
        low_frequency_factor: f64,
        /// Frequencies that turn more times than this stay. Those in between are divided by an intermediate factor.
        high_frequency_factor: f64,
        /// Tokens of a sequence in the first training.
        original_length: usize,
    },
    /// Low ones, along a ramp over the pairs; and a factor for all cosines and sines (Peng et al., 2023): `yarn`.
    Yarn {
        /// Divisor of the lowest frequencies.
        factor: f64,
        /// Tokens of a sequence in the first training.
        original_length: usize,
        /// Frequencies that turn at least this many times over `original_length` stay; published models use 32.
        beta_fast: f64,
        /// Those that turn fewer times than this are divided by all of `factor`; published models use 1.
        beta_slow: f64,
        /// A factor for cosines and sines; by default 0.1 ln(factor) + 1.
        attention_factor: Option<f64>,
        /// Whether the ramp begins and ends at whole pairs; it does in most published models.
        truncate: bool,
    },
}

impl Rotary {
    /// The reason why these numbers define no frequencies, if there is one.
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

    /// `frequencies` (head_dim / 2) := the angle by which each pair turns from token to token, in radians. Returns the
    /// factor for cosines and sines.
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

/// The scaled frequency, by how often it turns over the first length: fewer times than `low`, more than `high`, or
/// between.
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

/// Divides frequencies from pair `last` on by all of `factor`, leaves those up to `first`, and divides the others by an
/// intermediate factor.
fn lower_along(frequencies: &mut [f32], factor: f64, first: f64, last: f64) {
    // A ramp from a pair to itself would divide by 0.
    let last = if first == last { last + 0.001 } else { last };
    for (pair, frequency) in frequencies.iter_mut().enumerate() {
        let lowered = ((pair as f32 - first as f32) / (last - first) as f32).clamp(0.0, 1.0);
        *frequency = *frequency / factor as f32 * lowered + *frequency * (1.0 - lowered);
    }
}

#[cfg(test)]
mod tests;
