//! Job: a sequence that somebody waits for, and what is told of it. Never says how.

use std::sync::Arc;

use tokio::sync::mpsc::UnboundedSender;
use zero_core::sampling::Sampling;

/// A sequence to generate.
#[derive(Debug)]
pub struct Job {
    /// The prompt: one token or more.
    pub ids: Vec<u32>,
    /// The most tokens to generate: prompt and these fit the model.
    pub tokens_max: usize,
    /// How tokens are drawn.
    pub sampling: Sampling,
    /// The seed of draws: the i-th token is drawn by `uniform(seed, i)`, as in a sample.
    pub seed: u64,
    /// Ids before which the sequence ends.
    pub stop_ids: Vec<u32>,
    /// For each token, the likeliest ids to tell: as many as this. None if no probability is told, which takes time to compute.
    pub top: Option<usize>,
    /// Who is told. A job whose receiver is gone ends before the next step. At most `tokens_max` tokens wait in it.
    pub told: UnboundedSender<Told>,
}

/// What is told of a job: tokens, and then its end.
#[derive(Clone, Debug, PartialEq)]
pub enum Told {
    /// The next token.
    Token(Token),
    /// There are no more.
    Ended(Ending),
}

/// A token that was generated.
#[derive(Clone, Debug, PartialEq)]
pub struct Token {
    /// Its id.
    pub id: u32,
    /// How likely it was, if that is told.
    pub likelihood: Option<Likelihood>,
    /// The version of the weights that it was computed with.
    pub version: Arc<str>,
}

/// How likely a token was.
#[derive(Clone, Debug, PartialEq)]
pub struct Likelihood {
    /// The logarithm of its probability by the softmax of all logits.
    pub log_probability: f64,
    /// The same in the distribution that it was drawn from.
    pub drawn_log_probability: f64,
    /// The likeliest ids, likeliest first, with the logarithms of their probabilities by the softmax of all logits.
    pub top: Vec<(u32, f64)>,
}

/// Why a sequence has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The next token would have been one of its stops.
    Stop,
    /// It has as many tokens as were asked for.
    Length,
    /// Newer weights came, and were not to wait; or the worker was paused.
    Aborted,
    /// Logits were infinite or not a number.
    NotFinite,
    /// The worker ends.
    Shutdown,
}
