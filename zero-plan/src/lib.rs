//! The pure core of `zero`: a parallelism spec and the sizes of a model's units become layout, schedule, memory and
//! traffic, all of it constant. No clock, no threads, no environment, no files.
//!
//! How data flows: the text of a [`spec`] is parsed and checked into a [`Config`]. The sizes of [`Unit`]s and the
//! config give the layout in [`Tables`]; both give the schedule of [`Op`]s, which [`mod@check`] walks with its own
//! rules. A [`Plan`] holds the tables. [`prove`] compares those of all ranks with one another; [`Traffic`]
//! and [`Report`] read them, and tests compare them with published figures. Whatever depends on sizes is a `const fn`:
//! the compiler runs it for [`static_plan!`], and [`PlanBuf`] runs the same functions at run time. Advice, simulation
//! and pictures are in the crate `zero-study`.

#![forbid(unsafe_code)]

pub mod bounds;
pub mod budget;
mod build;
pub mod check;
mod config;
mod cores;
pub mod diagnostic;
mod execution;
mod explain;
mod fingerprint;
pub mod footprint;
mod groups;
mod layout;
pub mod lines;
mod makespan;
mod mesh;
mod message;
mod origin;
mod pipeline;
pub mod place;
mod plan;
pub mod postings;
mod prove;
mod report;
pub mod reshard;
mod schedule;
mod sizes;
pub mod spec;
pub mod states;
mod streams;
mod subtrees;
mod traffic;
mod unit;
mod work;

pub use build::PlanBuf;
pub use config::{
    Config, DeviceKind, Gather, Often, OptimizerKind, Order, Precision, Recompute, Split, TransportKind, Width,
    is_same_text,
};
pub use cores::own_core;
pub use fingerprint::Fingerprint;
pub use layout::{Bucket, Decoding, Home, Kind, Memory, OUTGOING_SLOTS, Placement, Region, STAGING_SLOTS, Tables};
pub use makespan::{Timing, makespan};
pub use mesh::{Axis, Coordinates, Mesh};
pub use message::{Bytes, Message};
pub use origin::{Given, NAMED, Origin, Source};
pub use pipeline::{Chunk, Pass, fill_chunks};
pub use plan::{PipelineStage, Plan};
pub use prove::{Flaw, Proof, prove, prove_accesses, prove_decoding, prove_ranks, prove_streams};
pub use report::{Ranges, Report, ScheduleText, Table, counted, op_text, work_lines};
pub use schedule::{Class, Op, OpTraits, Parcel, Stream, ops_max};
pub use sizes::{GpuFigures, Probe, Sizes, shape_text, shapes};
pub use streams::Queued;
pub use subtrees::{Subtree, Subtrees};
pub use traffic::{Moved, NamedBytes, Traffic};
pub use unit::{Field, Matrices, Unit, gathered, smaller_than_shards, unit_count, unit_list, units};
pub use work::Work;

#[doc(hidden)]
pub use build::tables as __tables;
