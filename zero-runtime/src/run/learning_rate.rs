//! Learning rate: a linear rise, then one of a few ways to fall. Never knows what is trained.

/// How the learning rate falls after its rise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fall {
    /// By half a cosine: min + (max - min) (1 + cos(pi t)) / 2, where t goes from 0 at the end of the rise to 1 at the last
    /// step (Loshchilov and Hutter, 2017, equation 5, without restarts).
    Cosine,
    /// Linearly: min + (max - min) (1 - t), with the same t (Devlin et al., 2019; Defazio et al., 2023, section 3).
    Linear,
    /// Not at all.
    Constant,
    /// Only over the last steps, linearly down to min (warm-up, stable, decay: Hu et al., 2024, section 4.2; linear as
    /// in Haegele et al., 2024, section 3.1).
    Late {
        /// Number of the last steps. The last of them is at min.
        steps: u64,
    },
}

/// The learning rate of each step of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LearningRate {
    /// The rate at the end of the warm-up.
    pub max: f64,
    /// The rate of the last step, if it falls.
    pub min: f64,
    /// Steps of the rise; step `warmup - 1` is the first at `max`.
    pub warmup: u64,
    /// Steps of the run.
    pub steps: u64,
    /// What comes after the rise.
    pub fall: Fall,
}

impl LearningRate {
    /// The rate of `step`, counted from 0.
    pub fn at(&self, step: u64) -> f64 {
        if step < self.warmup {
            return self.max * (step + 1) as f64 / self.warmup as f64;
        }
        let height = match self.fall {
            Fall::Cosine => 0.5 * (1.0 + (core::f64::consts::PI * self.progress(step)).cos()),
            Fall::Linear => 1.0 - self.progress(step),
            Fall::Constant => return self.max,
            Fall::Late { steps } => {
                let left = self.steps.saturating_sub(step + 1);
                if left >= steps {
                    return self.max;
                }
                left as f64 / steps as f64
            }
        };
        self.min + (self.max - self.min) * height
    }

    /// The share of the way from the end of the rise to the last step that is done at `step`.
    fn progress(&self, step: u64) -> f64 {
        let falling = self.steps.saturating_sub(self.warmup).saturating_sub(1);
        if falling == 0 { 1.0 } else { ((step - self.warmup) as f64 / falling as f64).min(1.0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: LearningRate = LearningRate { max: 1.0, min: 0.1, warmup: 4, steps: 15, fall: Fall::Cosine };

    fn of(fall: Fall) -> LearningRate {
        LearningRate { fall, ..RATE }
    }

    #[test]
    fn rises_stands_and_falls_to_the_minimum() {
        for fall in [Fall::Cosine, Fall::Linear, Fall::Constant, Fall::Late { steps: 3 }] {
            assert_eq!([0, 1, 3, 4].map(|step| of(fall).at(step)), [0.25, 0.5, 1.0, 1.0], "{fall:?}");
            let last = if fall == Fall::Constant { 1.0 } else { 0.1 };
            assert!((of(fall).at(14) - last).abs() < 1e-12, "{fall:?}");
        }
    }

    /// Worked out by hand, at step 9, half of the way from step 4 to step 14, and at step 6, a fifth of it.
    #[test]
    fn each_way_to_fall_has_its_own_middle() {
        let close = |rate: f64, expected: f64| assert!((rate - expected).abs() < 1e-12, "{rate} is not {expected}");
        close(of(Fall::Cosine).at(9), 0.55);
        // cos(pi / 5) is (1 + sqrt 5) / 4.
        close(of(Fall::Cosine).at(6), 0.1 + 0.45 * (1.0 + (1.0 + 5f64.sqrt()) / 4.0));
        close(of(Fall::Linear).at(9), 0.55);
        close(of(Fall::Linear).at(6), 0.82);
        close(of(Fall::Constant).at(9), 1.0);
        let late = of(Fall::Late { steps: 3 });
        close(late.at(11), 1.0);
        close(late.at(12), 0.7);
        close(late.at(13), 0.4);
    }

    #[test]
    fn a_run_shorter_than_its_warmup_only_rises() {
        let rate = LearningRate { max: 1.0, min: 0.1, warmup: 20, steps: 5, fall: Fall::Cosine };
        assert!(rate.at(4) < rate.max && rate.at(4) > rate.at(3));
    }
}
