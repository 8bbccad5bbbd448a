//! The study of plans: what a step costs on a machine, which layout suits it, what another spec changes, and how a plan
//! is drawn and explained. No clock, threads, environment or files, and nothing here is part of a program that trains.
//!
//! [`hardware`] describes machines, [`mod@simulate`] runs a plan's step on one, and [`mod@advise`] searches for the best
//! plan by it. [`picture`], [`difference`] and [`summary`] are plans as data, for [`mod@import`] a configuration of
//! another framework is a spec, and the [`glossary`] explains words.

#![forbid(unsafe_code)]

pub mod advise;
pub mod difference;
#[cfg(test)]
mod documented;
pub mod glossary;
pub mod hardware;
pub mod import;
pub mod picture;
pub mod simulate;
pub mod summary;
