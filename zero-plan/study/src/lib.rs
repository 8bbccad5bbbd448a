//! The study of plans: the cost of a step on a machine, the best layout for it, the changes by another spec, and plans as
//! drawings and explanations. No clock, threads, environment or files, and nothing here is part of a program that trains.
//!
//! - [`hardware`] describes machines: capacities, rates and latencies, each figure with its source. [`mod@simulate`]
//!   runs a plan's step on one, by its links, cores and measurements.
//! - [`mod@advise`] searches for the best plan by that simulation, with reasons, and finds layouts that fit a budget.
//! - [`picture`], [`difference`] and [`summary`] are plans as data: numbers and texts, for callers to draw or print.
//! - [`expand`] writes a plan as Rust to read in a review.
//! - [`mod@import`] turns a configuration of another framework into a spec, and the [`glossary`] explains words.
//!
//! What is always true: a figure comes from a file of hardware, from a plan or from a measurement that the caller
//! passes, and no figure is fitted to a published result. A simulated step follows the ops of the plan itself, in their
//! proven order.
//!
//! Where the next thing goes: a key of another framework is a row in `import/keys` that says where it is read, or why
//! it has no counterpart. A word that people look up is an entry in `glossary`. A figure of a plan goes to [`picture`]
//! or [`summary`]; each JSON has its own `format`, and a section in `docs/json.md`, which a test compares.

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
#[cfg(test)]
mod repository;
pub mod simulate;
pub mod summary;
