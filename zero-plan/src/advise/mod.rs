//! Advise: which layout of a model is fastest on some hardware, of those that fit, and why the others are not. Pure: units of
//! other micro-batches come from a closure. Never builds a program.
//!
//! The search has two levels. A coarse layout is a mesh, a stage, widths, recomputation, micro-batches and the order of a
//! pipeline; each has fine settings: prefetch, buckets, how often it gathers and reduces, and the split. Memory needs no
//! schedule, so every coarse layout is asked first whether its lightest fine setting fits. Of what fits, everything is timed if
//! that is not more than [`Effort`] allows, or if what is left cannot be faster than what was found, as the operations alone
//! take longer: then the answer is exhaustive. Otherwise one setting of each coarse layout is timed, those of the least
//! operations first, and then all settings of the best of them; the answer says so.

mod candidate;
mod explain;
mod fit;
mod json;
mod memo;
mod offers;
mod pins;
mod question;
mod search;
mod space;
mod text;

pub use candidate::{Candidate, Dimension};
pub use explain::{Advice, Pick, Price, Rival, StageFit, advise};
pub use fit::Demand;
pub use json::json;
pub use memo::memo;
pub use offers::{Offer, offered_shapes, offers, offers_text};
pub use pins::{BadPin, Pins};
pub use question::{Effort, Judge, NoAdvice, Question, Simulated, probes};
pub use search::{Findings, TimedLayout, search};
pub use text::{answer, comment};

#[cfg(test)]
mod predictions;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod transformer;
