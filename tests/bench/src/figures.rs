//! Figures: the results of a round, by name, and of several rounds. Never measures.

use std::collections::BTreeMap;

use zero_runtime::plan::Width;

/// Name of the measurement of collectives.
pub const COLLECTIVES: &str = "collectives";

/// What one round measured: figures by name, in seconds, bytes or operations a second.
#[derive(Clone, Debug, Default)]
pub struct Round(BTreeMap<String, f64>);

impl Round {
    /// Records a figure.
    pub fn put(&mut self, name: impl Into<String>, value: f64) {
        self.0.insert(name.into(), value);
    }

    /// A figure, if it was measured.
    pub fn get(&self, name: &str) -> Option<f64> {
        self.0.get(name).copied()
    }

    /// One figure over another, both of this round.
    pub fn ratio(&self, over: &str, under: &str) -> Option<f64> {
        Some(self.get(over)? / self.get(under)?)
    }
}

/// A figure over several rounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// The value in the middle.
    pub median: f64,
    /// The least.
    pub least: f64,
    /// The most.
    pub most: f64,
}

impl Spread {
    /// The spread of `figure` over the rounds; none if no round has it.
    pub fn over(rounds: &[Round], figure: impl Fn(&Round) -> Option<f64>) -> Option<Self> {
        Self::of(rounds.iter().filter_map(figure).collect())
    }

    /// The spread of some values; none if there are none.
    pub fn of(mut values: Vec<f64>) -> Option<Self> {
        values.sort_by(f64::total_cmp);
        Some(Self { least: *values.first()?, most: *values.last()?, median: middle(&values) })
    }
}

/// The median of some values: the one in the middle, or the mean of the two there.
///
/// # Panics
/// If there are none.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    middle(&values)
}

fn middle(sorted: &[f64]) -> f64 {
    let half = sorted.len() / 2;
    if sorted.len().is_multiple_of(2) { f64::midpoint(sorted[half - 1], sorted[half]) } else { sorted[half] }
}

/// The results of all rounds.
pub struct Measured {
    /// Versions of the peer, where there is one.
    pub peer: Option<String>,
    /// The rounds.
    pub rounds: Vec<Round>,
}

/// The name of a figure of ours.
pub fn ours(what: &str) -> String {
    format!("ours, {what}")
}

/// The name of the same figure of the peer.
pub fn peers(what: &str) -> String {
    format!("peer, {what}")
}

/// The name of the duration of a step of a row.
pub fn step(row: &str) -> String {
    format!("step of {row}")
}

/// The name of the shortest duration of a step of a row.
pub fn best(row: &str) -> String {
    format!("shortest step of {row}")
}

/// The name of the most memory that rank 0 of a row held.
pub fn peak(row: &str) -> String {
    format!("peak of {row}")
}

/// The name of the duration of a collective.
pub fn collective(name: &str, bytes: usize) -> String {
    format!("{name} of {bytes}")
}

/// The name of the time of an op that computes nothing, by model and stage.
pub fn op(model: &str, stage: u8) -> String {
    format!("op of {model} at stage {stage}")
}

/// The name of the highest rate of the matrix product in a round.
pub fn gemm(width: Width) -> String {
    format!("gemm in {}", width.name())
}

/// The name of the time of the fastest product of square matrices, by the name of their width.
pub fn product(width: &str) -> String {
    format!("product in {width}")
}

/// The name of that time in bf16, by the name of the instructions.
pub fn product_by(instructions: &str) -> String {
    format!("product in bf16 by {instructions}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_in_the_middle() {
        assert_eq!(median(vec![7.0]), 7.0);
        assert_eq!(median(vec![9.0, 1.0, 5.0]), 5.0);
        assert_eq!(median(vec![8.0, 1.0, 2.0, 4.0]), 3.0);
    }

    #[test]
    fn a_spread_is_of_the_rounds_that_have_the_figure() {
        let round = |values: &[(&str, f64)]| {
            let mut round = Round::default();
            values.iter().for_each(|&(name, value)| round.put(name, value));
            round
        };
        let rounds = [round(&[("a", 6.0), ("b", 2.0)]), round(&[("a", 9.0)]), round(&[("a", 8.0), ("b", 8.0)])];
        let ratio = Spread::over(&rounds, |round| round.ratio("a", "b"));
        assert_eq!(ratio, Some(Spread { median: 2.0, least: 1.0, most: 3.0 }));
        assert_eq!(Spread::over(&rounds, |round| round.get("c")), None);
    }
}
