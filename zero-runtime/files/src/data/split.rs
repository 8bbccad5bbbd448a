//! Split: the windows of a corpus for training, and those that are held out. Only arithmetic; never sees a token.

/// Windows of a block, if the corpus is long enough for ten such blocks.
const BLOCK_WINDOWS_MAX: usize = 16;
/// One block in this many is held out, if there are that many.
const PERIOD_BLOCKS_MAX: usize = 10;

/// The corpus as periods, and a rest for training. Each period is a stretch of training blocks, then one block that is
/// held out.
///
/// A window is the length + 1 tokens of one sequence and its targets; a block is a whole number of windows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Periods {
    window: usize,
    block: usize,
    period: usize,
    periods: usize,
    tokens: usize,
}

impl Periods {
    /// The least number of tokens: one training window and one held-out window.
    pub(super) fn tokens_min(length: usize) -> usize {
        2 * (length + 1)
    }

    /// The split of `tokens` tokens for sequences of `length` tokens. `None` below [`Periods::tokens_min`].
    pub(super) fn new(tokens: usize, length: usize) -> Option<Self> {
        assert!(length > 0, "a sequence has at least one token");
        if tokens < Self::tokens_min(length) {
            return None;
        }
        let window = length + 1;
        // Otherwise a short corpus would have fewer than ten blocks and hold out too much, or nothing.
        let block = window * (tokens / (PERIOD_BLOCKS_MAX * window)).clamp(1, BLOCK_WINDOWS_MAX);
        let period = block * (tokens / block).min(PERIOD_BLOCKS_MAX);
        Some(Self { window, block, period, periods: tokens / period, tokens })
    }

    /// Number of training windows. At least 1.
    pub(super) fn training_count(&self) -> usize {
        let rest = self.tokens - self.periods * self.period;
        self.periods * self.starts_per_period() + (rest + 1).saturating_sub(self.window)
    }

    /// First token of training window `index`.
    pub(super) fn training_start(&self, index: usize) -> usize {
        assert!(index < self.training_count(), "training window {index} of {}", self.training_count());
        // The rest may have more starts than a period, so an index beyond the periods is in the rest.
        let period = (index / self.starts_per_period()).min(self.periods);
        period * self.period + (index - period * self.starts_per_period())
    }

    /// Number of held-out windows. At least 1.
    pub(super) fn held_out_count(&self) -> usize {
        self.periods * self.windows_per_block()
    }

    /// First token of held-out window `index`.
    pub(super) fn held_out_start(&self, index: usize) -> usize {
        assert!(index < self.held_out_count(), "held-out window {index} of {}", self.held_out_count());
        let (period, window) = (index / self.windows_per_block(), index % self.windows_per_block());
        (period + 1) * self.period - self.block + window * self.window
    }

    fn windows_per_block(&self) -> usize {
        self.block / self.window
    }

    /// Number of starts whose windows lie in the training stretch of one period.
    fn starts_per_period(&self) -> usize {
        self.period - self.block - self.window + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// For each token, whether it is held out.
    fn held_out_tokens(split: &Periods) -> Vec<bool> {
        let mut held_out = vec![false; split.tokens];
        for start in (0..split.held_out_count()).map(|index| split.held_out_start(index)) {
            for token in &mut held_out[start..start + split.window] {
                assert!(!*token, "two held-out windows overlap");
                *token = true;
            }
        }
        held_out
    }

    #[test]
    fn training_windows_are_all_that_hold_no_held_out_token() {
        for length in 1..5 {
            for tokens in Periods::tokens_min(length)..2000 {
                let split = Periods::new(tokens, length).unwrap();
                let held_out = held_out_tokens(&split);
                let free = held_out.windows(length + 1).enumerate().filter(|(_, window)| !window.contains(&true));
                let starts = (0..split.training_count()).map(|index| split.training_start(index));
                assert!(starts.eq(free.map(|(start, _)| start)), "{tokens} tokens, length {length}");
                assert!(split.training_count() > 0 && split.held_out_count() > 0);
            }
        }
    }

    #[test]
    fn a_tenth_is_held_out_and_never_more_where_there_is_enough() {
        for tokens in 90..5000 {
            let split = Periods::new(tokens, 8).unwrap();
            let held_out = split.held_out_count() * 9;
            assert!(held_out * 10 <= tokens && held_out * 20 > tokens, "{held_out} of {tokens}");
        }
        assert_eq!(Periods::new(1_000_000, 99).unwrap().held_out_count(), 992); // 62 blocks of 16 windows
    }

    #[test]
    fn the_least_corpus_trains_one_window_and_holds_out_one() {
        assert!(Periods::new(17, 8).is_none());
        let split = Periods::new(18, 8).unwrap();
        assert_eq!((split.training_count(), split.training_start(0)), (1, 0));
        assert_eq!((split.held_out_count(), split.held_out_start(0)), (1, 9));
    }
}
