//! The study of plans: what a step costs on a machine, which layout suits it, what another spec changes, and how a plan
//! is drawn and explained. No clock, threads, environment or files, and nothing here is part of a program that trains.
//!
//! - [`hardware`] describes machines: capacities, rates and latencies, each figure with its source. [`mod@simulate`]
//!   runs a plan's step on one, by its links, cores and measurements.
//! - [`mod@advise`] searches for the best plan by that simulation, with its reasons, and finds what would fit a budget.
//! - [`picture`], [`difference`] and [`summary`] are plans as data: numbers and texts, for others to draw or print.
//! - [`expand`] writes a plan as Rust to read in a review.
//! - For [`mod@import`] a configuration of another framework is a spec, and the [`glossary`] explains words.
//!
//! What is always true: a figure comes from a file of hardware, from a plan or from a measurement that the caller
//! gives, and none is fitted to a published result. A simulated step follows the ops of the plan itself, in their
//! proven order.
//!
//! Where the next thing goes: a key of another framework is a row in `import/keys` that says where it is read, or why
//! it has no counterpart. A word that people ask for is an entry in `glossary`. A figure of a plan goes to [`picture`]
//! or [`summary`]; JSON has a `format` of its own, and a section in `docs/json.md`, which a test compares.

#![forbid(unsafe_code)]

pub mod advise;
pub mod difference;
#[cfg(test)]
mod documented;
pub mod expand;
pub mod glossary;
pub mod hardware;
pub mod import;
pub mod picture;
pub mod simulate;
pub mod summary;
