//! The pure core of `zero`: a parallelism spec and the sizes of a model's units become layout, schedule, memory and
//! traffic, all of it constant. No clock, no threads, no environment, no files.
//!
//! How data flows: the text of a [`spec`] is parsed and checked into a [`Config`]. The sizes of [`mod@unit`]s and the
//! config give the [`layout`]; both give the [`schedule`], which [`mod@check`] walks with rules of its own. A [`Plan`]
//! holds the tables. [`mod@prove`] compares those of all ranks with one another; [`Traffic`], [`makespan`] and
//! [`report`] read them, and tests compare them with published figures. What sizes decide is a `const fn`: the compiler
//! runs it for [`static_plan!`], and [`PlanBuf`] runs the same at run time.

#![forbid(unsafe_code)]

pub mod advise;
pub mod bounds;
pub mod budget;
pub mod check;
pub mod config;
pub mod diagnostic;
pub mod difference;
#[cfg(test)]
mod documented;
mod execution;
mod fingerprint;
pub mod footprint;
pub mod glossary;
mod groups;
pub mod hardware;
pub mod import;
pub mod layout;
pub mod lines;
pub mod mesh;
pub mod message;
pub mod origin;
pub mod picture;
mod pipeline;
pub mod place;
pub mod plan;
pub mod postings;
pub mod prove;
pub mod report;
pub mod reshard;
pub mod schedule;
pub mod simulate;
pub mod sizes;
pub mod spec;
mod states;
pub mod streams;
mod subtrees;
pub mod summary;
mod traffic;
pub mod unit;
mod work;

pub use config::{Config, Gather, TransportKind};
pub use fingerprint::Fingerprint;
pub use footprint::RunSize;
pub use hardware::Hardware;
pub use layout::{Bucket, Home, Kind, Memory, Placement, Region, Tables};
pub use mesh::{Axis, Coordinates, Mesh};
pub use message::Bytes;
pub use origin::{Given, Origin, Source};
pub use picture::Picture;
pub use pipeline::{Chunk, Pass};
pub use place::{Place, Places, Position, State, Stretch};
pub use plan::{PipelineStage, Plan, PlanBuf};
pub use prove::{Flaw, Proof, prove, prove_accesses, prove_decoding, prove_ranks, prove_streams};
pub use report::{Report, ScheduleText};
pub use schedule::{Op, Parcel};
pub use simulate::{
    Cause, Costs, CriticalStretch, Flow, Impossible, Lane, LinkKind, OpSpan, Route, Routes, StepPart, StepParts,
    Timeline, Timing, Transfer, makespan, simulate, simulate_with, threads_of_rank,
};
pub use sizes::{Probe, Sizes};
pub use streams::{Queued, Stream};
pub use subtrees::{Subtree, Subtrees};
pub use traffic::{Moved, Traffic};
pub use unit::{Field, Unit, unit_count, unit_list, units};
pub use work::Work;

#[doc(hidden)]
pub use plan::tables as __tables;
