//! Learning rate: a linear rise, then half a cosine. Never knows what is trained.

/// The learning rate of each step of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LearningRate {
    /// The rate at the end of the warm-up.
    pub max: f64,
    /// The rate of the last step.
    pub min: f64,
    /// Steps of the rise; step `warmup - 1` is the first at `max`.
    pub warmup: u64,
    /// Steps of the run.
    pub steps: u64,
}

impl LearningRate {
    /// The rate of `step`, counted from 0.
    pub fn at(&self, step: u64) -> f64 {
        if step < self.warmup {
            return self.max * (step + 1) as f64 / self.warmup as f64;
        }
        let falling = self.steps.saturating_sub(self.warmup).saturating_sub(1);
        let progress = if falling == 0 { 1.0 } else { ((step - self.warmup) as f64 / falling as f64).min(1.0) };
        let height = 0.5 * (1.0 + (core::f64::consts::PI * progress).cos());
        self.min + (self.max - self.min) * height
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rises_stands_and_falls_to_the_minimum() {
        let rate = LearningRate { max: 1.0, min: 0.1, warmup: 4, steps: 15 };
        assert_eq!([0, 1, 3, 4].map(|step| rate.at(step)), [0.25, 0.5, 1.0, 1.0]);
        // Half-way between step 4 and step 14.
        assert!((rate.at(9) - 0.55).abs() < 1e-12);
        assert!((rate.at(14) - 0.1).abs() < 1e-12);
    }

    #[test]
    fn a_run_shorter_than_its_warmup_only_rises() {
        let rate = LearningRate { max: 1.0, min: 0.1, warmup: 20, steps: 5 };
        assert!(rate.at(4) < rate.max && rate.at(4) > rate.at(3));
    }
}
