//! Sequence: a job in a slot: draws its tokens from logits and tells them. A token depends on the job and the logits alone.

use std::sync::Arc;

use zero_core::random::uniform;
use zero_core::sampling::{Sampler, log_probability};

use crate::decoder::Row;
use crate::job::{Ending, Job, Likelihood, Token, Told};

/// A job that is being worked on.
pub struct Sequence {
    job: Box<Job>,
    pub slot: usize,
    sampler: Sampler,
    /// The prompt, and what was generated after it.
    pub ids: Vec<u32>,
    generated: usize,
}

impl Sequence {
    /// A job in a slot, of a model that predicts `classes` ids.
    pub fn new(mut job: Box<Job>, slot: usize, classes: usize) -> Self {
        let (ids, sampler) = (std::mem::take(&mut job.ids), Sampler::new(job.sampling, classes));
        Self { job, slot, sampler, ids, generated: 0 }
    }

    /// Whether somebody still waits for it.
    pub fn is_awaited(&self) -> bool {
        !self.job.told.is_closed()
    }

    /// The token that comes next into its cache.
    pub fn row(&self) -> Row {
        let cached = self.ids.len() - 1;
        Row { slot: self.slot, cached, id: self.ids[cached] }
    }

    /// Draws the token after those that the logits belong to, and tells it. Returns whether the sequence goes on.
    pub fn go_on(&mut self, logits: &[f32], version: &Arc<str>) -> bool {
        let Some(id) = self.sampler.choose(logits, uniform(self.job.seed, self.generated as u64)) else {
            return self.end(Ending::NotFinite);
        };
        if self.job.stop_ids.contains(&id) {
            return self.end(Ending::Stop);
        }
        let token = Token {
            id,
            likelihood: self.job.top.map(|count| Likelihood {
                log_probability: log_probability(logits, id),
                drawn_log_probability: self.sampler.drawn_log_probability(id),
                top: top(logits, count),
            }),
            version: Arc::clone(version),
        };
        self.ids.push(id);
        self.generated += 1;
        let is_heard = self.job.told.send(Told::Token(token)).is_ok();
        if self.generated == self.job.tokens_max {
            return self.end(Ending::Length);
        }
        is_heard
    }

    /// Tells its end. Returns that it does not go on.
    pub fn end(&self, ending: Ending) -> bool {
        // Whoever has gone needs no end.
        let _ = self.job.told.send(Told::Ended(ending));
        false
    }
}

/// The likeliest ids, and the logarithms of their probabilities. Of equal ones the lower id comes first.
fn top(logits: &[f32], count: usize) -> Vec<(u32, f64)> {
    if count == 0 {
        return Vec::new();
    }
    let mut ids: Vec<u32> = (0..logits.len() as u32).collect();
    let by_logit = |a: &u32, b: &u32| logits[*b as usize].total_cmp(&logits[*a as usize]).then(a.cmp(b));
    if count < ids.len() {
        ids.select_nth_unstable_by(count, by_logit);
        ids.truncate(count);
    }
    ids.sort_unstable_by(by_logit);
    let first = ids.first().map_or(0.0, |&id| log_probability(logits, id) - f64::from(logits[id as usize]));
    ids.into_iter().map(|id| (id, f64::from(logits[id as usize]) + first)).collect()
}
