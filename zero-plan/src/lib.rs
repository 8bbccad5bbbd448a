//! The pure core of `zero`: a parallelism spec and the sizes of a model's units become layout, schedule, memory and
//! traffic, all of it constant. No clock, no threads, no environment, no files.
//!
//! How data flows: the text of a [`spec`] is parsed and checked into a [`Config`]. The sizes of [`Unit`]s and the
//! config decide the layout in [`Tables`]; both decide the schedule of [`Op`]s, which [`mod@check`] walks with its own
//! rules. A [`Plan`] holds the tables. [`prove`] compares the tables of all ranks with one another; [`Traffic`] and
//! [`Report`] read them, and tests compare them with published figures. All that depends on sizes is a `const fn`: the
//! compiler runs it for [`static_plan!`], and [`PlanBuf`] runs the same functions at run time. Advice, simulation and
//! pictures are in the crate `zero-study`.
//!
//! # What is in it
//!
//! - [`spec`]: RON to [`spec::Spec`], with all mistakes of a file at once. `keys` has a row for each key, from which
//!   reading, ranges, defaults, messages and tables of the documentation come. [`diagnostic`] shows a mistake and has
//!   all codes.
//! - `config`, `mesh`, `unit`, `pipeline`, `subtrees`: what a plan is made from: choices, axes, sizes, the order of
//!   chunks, and the parts of a sum that each host has.
//! - `layout`, [`place`], [`reshard`]: regions, slots and buckets; **the bytes that an op reads and writes**, for each
//!   rank; the elements of a checkpoint that each rank reads back. Only [`place`] adds offsets.
//! - `schedule`, `streams`, [`postings`]: the ops of a step; the queue of each, and the ops that it waits for; the
//!   messages between hosts. `schedule/traits` is the one table of what each kind of op is.
//! - [`mod@check`], `prove`, `execution`: rules for one schedule, and proofs over the ops of all ranks. They share no
//!   code with what they check, and take no symmetry of ranks for granted.
//! - [`budget`], [`footprint`], `traffic`, `work`, `makespan`, `report`: the memory, traffic, work and time of a plan.
//! - `plan`, `build`, `message`, [`bounds`], `origin`, `fingerprint`: the tables and how they are made, texts of errors
//!   in constants, and a hash that every build agrees on.
//!
//! # What is always true
//!
//! - Conflicting accesses to a byte are ordered by streams, events and counts, on all ranks and from one pass to the
//!   next. `prove` shows it from places alone. The streams of a rank meet between passes.
//! - The plan fixes the order of every sum: one tree over the ranks along `zero`, another over the sums of the
//!   replicas, once for each micro-batch or, with `reduce: PerStep`, once. Between hosts each host sends the sums of
//!   the largest subtrees that lie wholly on it, and `Settle` or `Combine` adds the sums of all hosts in the order of the
//!   tree.
//! - If devices cannot read one another's memory, `place/arrival` says where bytes arrive: in their final place or, if
//!   they are summed or converted, in the inbox. The plan also says which messages hosts exchange, and in which order
//!   they are posted.
//! - A matrix that Muon updates is made orthogonal as a whole: `Momentum` replaces sums by directions, `Spread` gathers
//!   them.
//! - A tied unit has gradients of its own, which are added to its owner's at the end. If the two lie on different
//!   pipeline stages, the tied one holds a mirror of the owner's parameters. Padding is zero, and no update touches it.
//!
//! # Memory
//!
//! A rank has private memory and its part of a shared one, where its peers read gradients, sums, replicas and parcels.
//! At stage 3 on `Shm` the shards along `zero` lie contiguous in common, so that a gather only waits; otherwise it
//! copies into a slot. Activations have a slot for each chunk of a micro-batch in flight: its input, then each unit's
//! saved values and its output. Recomputed units share one place, and gradients of activations alternate between two.
//! In a walk that decodes, units take turns with one place in the same region, and caches follow (`layout/decoding`).
//! [`footprint`] bounds what lies outside the arena; the budget counts it.
//!
//! States that `offload` keeps in a tier have that home, and a window of the arena has slots for the pieces that are on
//! their way or worked on. Flat buffers, and so the order of sums, are those of a plan without it.
//!
//! # Where the next thing goes
//!
//! - A state that is kept in a tier: its [`Kind`] gets that home in `layout/memory` and a window; the ops that move its
//!   pieces go to `schedule/tier`, their places to `place/tier` and `place/access/tier`, their rules to `check/tiers`.
//! - An op: a variant of [`Op`], and its row in `schedule/traits`: word, class, stream, subject. Its sentence and its
//!   key in `explain`; its turn in `schedule`; its places in `place/access`, or in `place/access/sums` if it sums over
//!   ranks; the op that it waits for in `streams/rules`; its rules in [`mod@check`]; what it moves in `work`. An op of
//!   several ranks also has rules in `prove`, and signals in the transports. The engine carries it out.
//!   In `zero-study`, an expanded step has a method for it (`expand/step`) and its bytes (`expand/bytes`).
//! - A pipeline schedule: an [`Order`], and its turns in `pipeline`. `check` and `prove` must refuse each broken mutant
//!   of it in `zero-plan/tests/schedule/`. Its published bubble and peak go to `states/published`.
//! - A mesh axis: an [`Axis`], its length in [`Mesh`], and a key. A tensor axis is ops that the schedule emits because
//!   layers declare them: a collective inside a layer would be invisible to the proofs.
//! - A split backward: two ops in place of `Backward`, and places for what the second one still reads: the input, and
//!   the gradient of the output, which today is overwritten two units later.
//! - A state of a parameter: a [`place::State`], its region in `layout/memory`, and its name in checkpoints
//!   (`zero-runtime/files/src/checkpoint/entry.rs`), which then contain it.
//! - A key: a field in [`spec`] and a row in `spec/keys`; rules about two keys go to `spec/check`. `UPDATE_EXPECT=1
//!   cargo test -p zero-plan -p zero-macros --lib` renews the tables of the documentation.
//! - An error: a code in `diagnostic/codes`, and a test of its name. Z01xx is for specs and the command, Z02xx for
//!   constants, Z03xx for starts and Z04xx for runs.

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
    Config, DeviceKind, Gather, Offload, Often, OptimizerKind, Order, Precision, Publish, Recompute, Serve, Split,
    TierKind, TransportKind, UpdatePlace, UpdateTime, Width, is_same_text,
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
pub use report::{
    LineTurn, Ranges, Report, ScheduleText, Table, counted, op_text, publication_line, turns, work_lines,
};
pub use schedule::{Class, Op, OpTraits, Parcel, Piece, Stream, ops_max};
pub use sizes::{GpuFigures, Probe, Sizes, shape_text, shapes};
pub use streams::Queued;
pub use subtrees::{Subtree, Subtrees};
pub use traffic::{Moved, NamedBytes, TierBytes, Traffic, published_bytes};
pub use unit::{
    Field, OrthogonalCost, Unit, activations_stay, adds_to_kept_states, gathered, smaller_than_shards, unit_count,
    unit_list, units,
};
pub use work::Work;

#[doc(hidden)]
pub use build::tables as __tables;
