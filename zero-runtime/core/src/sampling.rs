//! Sampling: chooses the next token as a pure function of logits and a draw, so that it is the same on every rank; and selects the
//! tokens of a sequence that a model sees. Never asks a model.

use std::num::NonZeroUsize;

/// How freely a token is chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    /// The divisor of logits: 0 always takes the likeliest token.
    pub temperature: f64,
    /// Tokens are drawn only from this many of the likeliest.
    pub top_k: Option<NonZeroUsize>,
    /// Of these, tokens are drawn only from the fewest likeliest whose probabilities add up to this: above 0, and 1 for
    /// all (Holtzman et al., "The Curious Case of Neural Text Degeneration", 2020).
    pub top_p: f64,
}

impl Sampling {
    /// The likeliest token, always.
    pub const GREEDY: Self = Self { temperature: 0.0, top_k: None, top_p: 1.0 };
}

/// Chooses tokens, in memory that it allocates once.
#[derive(Clone, Debug)]
pub struct Sampler {
    sampling: Sampling,
    /// Ids that may be drawn, with the weight of each.
    candidates: Vec<(u32, f64)>,
}

impl Sampler {
    /// A sampler for a vocabulary of `classes`.
    pub fn new(sampling: Sampling, classes: usize) -> Self {
        Self { sampling, candidates: Vec::with_capacity(classes) }
    }

    /// Draws an id with probability softmax(logits / temperature), among those that may be drawn: they divide [0, 1)
    /// among themselves in the order of ids, and the one whose part contains `draw` is chosen. Of equal logits, the
    /// lower id counts as likelier. `None` if a logit is infinite or NaN.
    pub fn choose(&mut self, logits: &[f32], draw: f64) -> Option<u32> {
        let Sampling { temperature, top_k, top_p } = self.sampling;
        if !logits.iter().all(|logit| logit.is_finite()) {
            return None;
        }
        let best = likeliest(logits);
        self.candidates.clear();
        if temperature == 0.0 {
            self.candidates.push((best, 1.0));
            return Some(best);
        }
        let largest = f64::from(logits[best as usize]);
        let weighed = |(id, &logit): (usize, &f32)| (id as u32, ((f64::from(logit) - largest) / temperature).exp());
        self.candidates.extend(logits.iter().enumerate().map(weighed));
        // By logits, not by weights, of which many may be 0.
        let by_likelihood = |a: &(u32, f64), b: &(u32, f64)| {
            let logit = |candidate: &(u32, f64)| logits[candidate.0 as usize];
            logit(b).total_cmp(&logit(a)).then(a.0.cmp(&b.0))
        };
        if let Some(k) = top_k.map(NonZeroUsize::get).filter(|&k| k < logits.len()) {
            self.candidates.select_nth_unstable_by(k, by_likelihood);
            self.candidates.truncate(k);
        }
        if top_p < 1.0 {
            self.candidates.sort_unstable_by(by_likelihood);
            let enough = top_p * sum(&self.candidates);
            let mut mass = 0.0;
            let kept = self.candidates.iter().position(|(_, weight)| {
                mass += weight;
                mass >= enough
            });
            self.candidates.truncate(kept.map_or(usize::MAX, |last| last + 1));
        }
        self.candidates.sort_unstable_by_key(|&(id, _)| id);
        let mut left = draw * sum(&self.candidates);
        let drawn = self.candidates.iter().find(|(_, weight)| {
            left -= weight;
            left < 0.0
        });
        Some(drawn.map_or(best, |&(id, _)| id))
    }

    /// The logarithm of the probability with which the last call drew `id`, among the ids that could be drawn.
    pub fn drawn_log_probability(&self, id: u32) -> f64 {
        let weight = self.candidates.iter().find(|candidate| candidate.0 == id).map_or(0.0, |&(_, weight)| weight);
        (weight / sum(&self.candidates)).ln()
    }
}

/// The logarithm of the probability of `id` by softmax(logits).
pub fn log_probability(logits: &[f32], id: u32) -> f64 {
    let largest = logits.iter().fold(f64::NEG_INFINITY, |largest, &logit| largest.max(f64::from(logit)));
    let sum: f64 = logits.iter().map(|&logit| (f64::from(logit) - largest).exp()).sum();
    f64::from(logits[id as usize]) - largest - sum.ln()
}

fn sum(candidates: &[(u32, f64)]) -> f64 {
    candidates.iter().map(|(_, weight)| weight).sum()
}

/// The id of the largest logit; the lowest, if several are largest; 0 if there are none.
fn likeliest(logits: &[f32]) -> u32 {
    let largest = (0..logits.len()).rev().max_by(|&a, &b| logits[a].total_cmp(&logits[b]));
    largest.unwrap_or(0) as u32
}

/// The tokens of a sequence that a model sees: all of them, until there are more than the model takes. Then the newest half
/// of that number is kept and seen as a new sequence, so that a sequence can continue without end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Window {
    ids: Vec<u32>,
    length: usize,
    /// How many of the first tokens of `ids` a cache has.
    cached: usize,
}

impl Window {
    /// The window of a model that takes `length` tokens, after a prompt: the newest tokens of the prompt, at most
    /// `length`.
    ///
    /// # Panics
    /// If there is no prompt, or if the model takes no tokens.
    pub fn new(prompt: &[u32], length: usize) -> Self {
        assert!(!prompt.is_empty() && length > 0, "a prompt of {} tokens, for a model of {length}", prompt.len());
        let mut ids = Vec::with_capacity(length);
        ids.extend_from_slice(&prompt[prompt.len().saturating_sub(length)..]);
        Self { ids, length, cached: 0 }
    }

    /// The tokens.
    pub fn ids(&self) -> &[u32] {
        &self.ids
    }

    /// The tokens that a cache does not have yet.
    pub fn uncached(&self) -> &[u32] {
        &self.ids[self.cached..]
    }

    /// The number of tokens before them, which a cache has.
    pub fn cached(&self) -> usize {
        self.cached
    }

    /// Notes that a cache has all tokens.
    pub fn is_cached(&mut self) {
        self.cached = self.ids.len();
    }

    /// Adds the next token.
    pub fn push(&mut self, id: u32) {
        if self.ids.len() == self.length {
            // Each token has another position now, so the cache is of no use.
            self.ids.drain(..self.length - self.length / 2);
            self.cached = 0;
        }
        self.ids.push(id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Logits of probabilities.
    fn logits<const N: usize>(probabilities: [f32; N]) -> [f32; N] {
        probabilities.map(f32::ln)
    }

    fn sampler(temperature: f64, top_k: usize, top_p: f64) -> Sampler {
        Sampler::new(Sampling { temperature, top_k: NonZeroUsize::new(top_k), top_p }, 8)
    }

    /// The ids that draws just below and above each edge choose.
    fn chosen<const N: usize>(sampler: &mut Sampler, logits: &[f32], edges: [f64; N]) -> [[u32; 2]; N] {
        edges.map(|edge| [edge - 1e-6, edge + 1e-6].map(|draw| sampler.choose(logits, draw).expect("finite logits")))
    }

    #[test]
    fn draws_follow_the_softmax() {
        let of_four = logits([0.25, 0.75]);
        assert_eq!(chosen(&mut sampler(1.0, 0, 1.0), &of_four, [0.25]), [[0, 1]]);
        // Squares: 1/10, 9/10. Roots: 1 / (1 + 3^0.5).
        assert_eq!(chosen(&mut sampler(0.5, 0, 1.0), &of_four, [0.1]), [[0, 1]]);
        assert_eq!(chosen(&mut sampler(2.0, 0, 1.0), &of_four, [1.0 / (1.0 + 3f64.sqrt())]), [[0, 1]]);
        assert_eq!(sampler(1.0, 0, 1.0).choose(&of_four, 1.0 - 1e-16), Some(1));
        // Far below the smallest weight, and above the largest.
        assert_eq!(sampler(1.0, 0, 1.0).choose(&[-3e38, 0.0, 3e38], 0.9), Some(2));
    }

    #[test]
    fn no_temperature_takes_the_likeliest_and_of_equals_the_lowest() {
        assert_eq!(Sampler::new(Sampling::GREEDY, 3).choose(&[1.0, 2.0, 2.0], 0.99), Some(1));
        assert_eq!(Sampler::new(Sampling::GREEDY, 3).choose(&[-1.0, -1.0, -2.0], 0.99), Some(0));
    }

    #[test]
    fn nothing_is_drawn_from_what_is_not_finite() {
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            for temperature in [0.0, 1.0] {
                assert_eq!(sampler(temperature, 2, 0.5).choose(&[0.0, bad, 1.0], 0.5), None);
            }
        }
    }

    #[test]
    fn log_probabilities_are_of_all_ids_and_of_those_that_could_be_drawn() {
        let of_ten = logits([0.1, 0.4, 0.2, 0.3]);
        let near = |found: f64, probability: f64| assert!((found.exp() - probability).abs() < 1e-6, "{found}");
        near(log_probability(&of_ten, 3), 0.3);
        near(log_probability(&[1e4, 1e4], 0), 0.5);
        for (mut sampler, of_one, of_three) in
            [(sampler(1.0, 2, 1.0), 4.0 / 7.0, 3.0 / 7.0), (sampler(0.5, 0, 1.0), 16.0 / 30.0, 9.0 / 30.0)]
        {
            sampler.choose(&of_ten, 0.5).expect("finite logits");
            near(sampler.drawn_log_probability(1), of_one);
            near(sampler.drawn_log_probability(3), of_three);
        }
        let mut greedy = Sampler::new(Sampling::GREEDY, 4);
        let id = greedy.choose(&of_ten, 0.5).expect("finite logits");
        assert_eq!((greedy.drawn_log_probability(id), greedy.drawn_log_probability(0)), (0.0, f64::NEG_INFINITY));
    }

    #[test]
    fn only_the_k_likeliest_are_drawn() {
        let of_ten = logits([0.1, 0.4, 0.2, 0.3]);
        // Ids 1 and 3: 4/7 and 3/7.
        assert_eq!(chosen(&mut sampler(1.0, 2, 1.0), &of_ten, [4.0 / 7.0]), [[1, 3]]);
        // Ids 1, 2 and 3: 4/9, 2/9 and 3/9.
        assert_eq!(chosen(&mut sampler(1.0, 3, 1.0), &of_ten, [4.0 / 9.0, 6.0 / 9.0]), [[1, 2], [2, 3]]);
        assert_eq!(chosen(&mut sampler(1.0, 1, 1.0), &of_ten, [0.5]), [[1, 1]]);
        for all in [4, 5, 100] {
            assert_eq!(chosen(&mut sampler(1.0, all, 1.0), &of_ten, [0.1, 0.5, 0.7]), [[0, 1], [1, 2], [2, 3]]);
        }
        // Of equals, those of lower ids.
        assert_eq!(chosen(&mut sampler(1.0, 2, 1.0), &[0.0; 4], [0.5]), [[0, 1]]);
    }

    #[test]
    fn the_nucleus_is_the_smallest_set_of_enough_mass() {
        let of_ten = logits([0.1, 0.4, 0.2, 0.3]);
        // 0.4 is not enough for 0.5, and 0.7 is: 4/7 and 3/7.
        assert_eq!(chosen(&mut sampler(1.0, 0, 0.5), &of_ten, [4.0 / 7.0]), [[1, 3]]);
        assert_eq!(chosen(&mut sampler(1.0, 0, 0.69), &of_ten, [4.0 / 7.0]), [[1, 3]]);
        // 0.7 is not enough for 0.71, and 0.9 is: 4/9, 2/9 and 3/9.
        assert_eq!(chosen(&mut sampler(1.0, 0, 0.71), &of_ten, [4.0 / 9.0, 6.0 / 9.0]), [[1, 2], [2, 3]]);
        assert_eq!(chosen(&mut sampler(1.0, 0, 1e-9), &of_ten, [0.5]), [[1, 1]]);
        // Two of equal weights are half of four, and it takes the lower ids.
        assert_eq!(chosen(&mut sampler(1.0, 0, 0.5), &[0.0; 4], [0.5]), [[0, 1]]);
        // At temperature 1/2 weights are 1, 16, 4 and 9 of 30: 16/30 is enough for 0.5.
        assert_eq!(chosen(&mut sampler(0.5, 0, 0.5), &of_ten, [0.5]), [[1, 1]]);
    }

    #[test]
    fn the_nucleus_is_one_of_the_k_likeliest() {
        let of_ten = logits([0.1, 0.4, 0.2, 0.3]);
        // Of ids 1 and 3, 4/7 is enough for 0.55, and not for 0.6.
        assert_eq!(chosen(&mut sampler(1.0, 2, 0.55), &of_ten, [0.5]), [[1, 1]]);
        assert_eq!(chosen(&mut sampler(1.0, 2, 0.6), &of_ten, [4.0 / 7.0]), [[1, 3]]);
    }

    #[test]
    fn a_full_window_keeps_its_newest_half() {
        let mut window = Window::new(&[1, 2, 3], 5);
        assert_eq!((window.uncached(), window.cached()), (&[1, 2, 3][..], 0));
        window.is_cached();
        window.push(4);
        assert_eq!((window.uncached(), window.cached()), (&[4][..], 3));
        window.is_cached();
        window.push(5);
        assert_eq!((window.ids(), window.uncached()), (&[1, 2, 3, 4, 5][..], &[5][..]));
        window.is_cached();
        window.push(6);
        assert_eq!((window.ids(), window.uncached(), window.cached()), (&[4, 5, 6][..], &[4, 5, 6][..], 0));
        assert_eq!(Window::new(&[1, 2, 3], 2).ids(), [2, 3]);
        let mut single = Window::new(&[7], 1);
        single.is_cached();
        single.push(8);
        assert_eq!((single.ids(), single.cached()), (&[8][..], 0));
    }
}
