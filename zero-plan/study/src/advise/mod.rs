//! Advise: finds the fastest layout that fits for a model on some hardware, and says why other layouts are not. Pure: a
//! closure returns the units for each shape of micro-batch. Never builds a program.
//!
//! The search has two levels. A coarse layout is a mesh, a stage, widths, recomputation, micro-batches and the order of
//! a pipeline; each has fine settings: prefetch, buckets, how often it gathers and reduces, the split, and pieces. Memory needs
//! no schedule, so the search first checks for each coarse layout whether its lightest fine setting fits. A lower bound
//! of each layout's time follows from sizes, without a plan. The search times one setting of each coarse layout, the
//! lowest bound first, and then the settings of the best layouts, until no bound of what is left is below the best time,
//! or [`Effort`] ends. The answer says whether it is exhaustive. Then it times some layouts for each value that the best
//! one does not have, to say what that value costs. Only where nothing fits, or if asked, layouts are tried that keep the
//! optimizer's state on disk.

mod candidate;
mod explain;
mod fit;
mod json;
mod least;
mod memo;
mod offers;
mod pins;
mod question;
mod search;
mod space;
mod text;
mod ways;

pub use candidate::{Candidate, Dimension};
pub use explain::{Advice, Pick, Price, Rival, StageFit, advise};
pub use fit::Demand;
pub use json::json;
pub use memo::memo;
pub use offers::{Offer, offered_shapes, offers, offers_text};
pub use pins::{BadPin, Pins};
pub use question::{Effort, Judge, NoAdvice, OffloadUse, Question, Simulated, probes};
pub use search::{Findings, TimedLayout, search};
pub use text::{answer, comment};

#[cfg(test)]
mod disk_tests;
#[cfg(test)]
mod least_tests;
#[cfg(test)]
mod longest;
#[cfg(test)]
mod predictions;
#[cfg(test)]
mod published;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod transformer;
