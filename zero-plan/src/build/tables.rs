//! Tables: a plan as constants: the expansion of `static_plan!`, and table functions with sizes as const parameters.
//! Each table is checked where it is made. Never decides its content.

use crate::bounds::{require_compilable, require_countable};
use crate::check::{BucketState, CheckScratch, CheckedTables, SlotState, UnitState, check, check_layout};
use crate::layout::{fill_buckets, fill_placements};
use crate::message::Message;
use crate::pipeline::{fill_chunks, require_placeable};
use crate::schedule::{ScheduleScratch, Stream, fill_ops, ops_max};
use crate::streams::{Seen, fill_queue};
use crate::unit::require_units;

pub use crate::budget::require_budget;
pub use crate::config::Config;
pub use crate::layout::{Bucket, Memory, Placement, Tables, bucket_count};
pub use crate::origin::Origin;
pub use crate::pipeline::{Chunk, Pass};
pub use crate::plan::{PipelineStage, Plan};
pub use crate::schedule::Op;
pub use crate::streams::Queued;
pub use crate::unit::{Unit, unit_count, units};

/// The [`Plan`] of a model, as a constant expression: layout, schedules and their checks, and the budget.
///
/// ```
/// use zero_plan::{Config, Field, Mesh, Plan, Unit, static_plan};
///
/// const CONFIG: Config =
///     Config { mesh: Mesh::of_zero(2), stage: 3, prefetch: 1, sequences: 4, length: 8, ..Config::PLAIN };
/// const ENDS: Unit = Unit { input_bytes: 128, output_bytes: 128, ..Unit::NONE };
/// const SIZES: Unit = Unit { params: 100, takes: 100, saved_bytes: 128, operations: 6400, ..ENDS };
/// const FIELDS: &[Field] = &[Field { name: "layers", count: Some(3), tied: None, period: 1, sizes: SIZES }];
/// static PLAN: Plan<'static> = static_plan!("Tiny", CONFIG, FIELDS);
///
/// assert_eq!(PLAN.params(), 300);
/// assert_eq!(PLAN.padded(), 3 * 128);
/// assert_eq!(PLAN.check(), Ok(()));
/// ```
#[macro_export]
macro_rules! static_plan {
    ($model:expr, $config:expr, $fields:expr) => {
        $crate::static_plan!($model, $config, $fields, $crate::Origin::UNKNOWN)
    };
    ($model:expr, $config:expr, $fields:expr, $origin:expr) => {{
        use $crate::__tables as t;
        const __CONFIG: t::Config = $config;
        const __ORIGIN: t::Origin = $origin;
        const __UNITS: [t::Unit; t::unit_count($fields)] = t::units($fields);
        const CHUNKS: [t::Chunk; t::checked_chunks(&__CONFIG, &__UNITS, &__ORIGIN)] = t::chunks(&__CONFIG, &__UNITS);
        const CUT: t::Tables =
            t::Tables { config: &__CONFIG, units: &__UNITS, chunks: &CHUNKS, placements: &[], buckets: &[] };
        // The lint mistakes the long evaluation of a large model's tables for an endless one.
        #[allow(long_running_const_eval)]
        const BUCKETS: [t::Bucket; t::bucket_count(&CUT)] = t::buckets(&CUT);
        #[allow(long_running_const_eval)]
        const PLACEMENTS: [t::Placement; __UNITS.len()] = t::placements(&t::Tables { buckets: &BUCKETS, ..CUT });
        const TABLES: t::Tables = t::Tables { placements: &PLACEMENTS, buckets: &BUCKETS, ..CUT };
        #[allow(long_running_const_eval)]
        const MEMORIES: [t::Memory; __CONFIG.mesh.pipeline] = t::memories(&TABLES);
        #[allow(long_running_const_eval)]
        const STEPS: &t::Schedules<{ t::checked_ops(&TABLES, &__ORIGIN) }, { __CONFIG.mesh.pipeline }> =
            &t::schedules::<_, _, { __UNITS.len() }, { BUCKETS.len() }, { t::slots_max(&TABLES) }>(
                t::Pass::Train,
                &TABLES,
            );
        #[allow(long_running_const_eval)]
        const EVALUATIONS: &t::Schedules<{ t::ops_bound(t::Pass::Evaluate, &TABLES) }, { __CONFIG.mesh.pipeline }> =
            &t::schedules::<_, _, { __UNITS.len() }, { BUCKETS.len() }, { t::slots_max(&TABLES) }>(
                t::Pass::Evaluate,
                &TABLES,
            );
        #[allow(long_running_const_eval)]
        const {
            t::require_budget(&TABLES, &MEMORIES, &STEPS.of_each(), &__ORIGIN);
        };
        #[allow(long_running_const_eval)]
        const STEP_QUEUES: &t::Queues<{ t::queued(STEPS.ops(), &TABLES) }> =
            &t::queues::<_, { __UNITS.len() }, { BUCKETS.len() }, { t::slots_max(&TABLES) }>(
                t::Pass::Train,
                &TABLES,
                &STEPS.of_each(),
            );
        #[allow(long_running_const_eval)]
        const EVALUATION_QUEUES: &t::Queues<{ t::queued(EVALUATIONS.ops(), &TABLES) }> =
            &t::queues::<_, { __UNITS.len() }, { BUCKETS.len() }, { t::slots_max(&TABLES) }>(
                t::Pass::Evaluate,
                &TABLES,
                &EVALUATIONS.of_each(),
            );
        #[allow(long_running_const_eval)]
        const PUBLICATIONS: &t::Schedules<{ t::ops_bound(t::Pass::Publish, &TABLES) }, { __CONFIG.mesh.pipeline }> =
            &t::schedules::<_, _, { __UNITS.len() }, { BUCKETS.len() }, { t::slots_max(&TABLES) }>(
                t::Pass::Publish,
                &TABLES,
            );
        #[allow(long_running_const_eval)]
        const PUBLICATION_QUEUES: &t::Queues<{ t::queued(PUBLICATIONS.ops(), &TABLES) }> =
            &t::queues::<_, { __UNITS.len() }, { BUCKETS.len() }, { t::slots_max(&TABLES) }>(
                t::Pass::Publish,
                &TABLES,
                &PUBLICATIONS.of_each(),
            );
        const PIPELINE_STAGES: [t::PipelineStage; __CONFIG.mesh.pipeline] = t::pipeline_stages(
            (STEPS, STEP_QUEUES),
            (EVALUATIONS, EVALUATION_QUEUES),
            (PUBLICATIONS, PUBLICATION_QUEUES),
            &MEMORIES,
        );
        t::Plan {
            model: $model,
            config: __CONFIG,
            units: &__UNITS,
            chunks: &CHUNKS,
            placements: &PLACEMENTS,
            buckets: &BUCKETS,
            pipeline_stages: &PIPELINE_STAGES,
        }
    }};
}

/// Stops the build where a table breaks a rule: an error of this crate, not of its user.
#[track_caller]
pub const fn require_sound(tables: &Tables, memories: &[Memory]) {
    if let Some(rule) = check_layout(tables, memories) {
        panic!("{}", Message::new().text("[Z0290] unsound layout: ").text(rule).as_str());
    }
}

/// Stops the build where a schedule breaks a rule: an error of this crate, not of its user.
#[track_caller]
pub const fn require_checked(subject: CheckedTables, scratch: CheckScratch) {
    let pipeline = subject.pipeline;
    if let Err(fault) = check(subject, scratch) {
        let message = Message::new().text("[Z0291] unsound schedule of pipeline stage ").number(pipeline);
        panic!("{}", message.text(" at op ").number(fault.op).text(": ").text(fault.rule).as_str());
    }
}

/// The number of chunks. Stops the build, before any table is made, if the configuration and the units have no plan.
#[track_caller]
pub const fn checked_chunks(config: &Config, units: &[Unit], origin: &Origin) -> usize {
    require_placeable(config, units, origin);
    require_countable(config, units, origin);
    require_units(config, units, origin);
    config.chunks()
}

pub const fn chunks<const C: usize>(config: &Config, units: &[Unit]) -> [Chunk; C] {
    let mut out = [Chunk::NONE; C];
    fill_chunks(config, units, &mut out);
    out
}

pub const fn buckets<const B: usize>(tables: &Tables) -> [Bucket; B] {
    let mut out = [Bucket::NONE; B];
    fill_buckets(tables, &mut out);
    out
}

pub const fn placements<const U: usize>(tables: &Tables) -> [Placement; U] {
    let mut out = [Placement::NONE; U];
    fill_placements(tables, &mut out);
    out
}

/// The arena of each pipeline stage. Stops the build if the layout is not sound.
#[track_caller]
pub const fn memories<const P: usize>(tables: &Tables) -> [Memory; P] {
    let mut out = [Memory::NONE; P];
    let mut pipeline = 0;
    while pipeline < P {
        out[pipeline] = Memory::of(tables, pipeline);
        pipeline += 1;
    }
    require_sound(tables, &out);
    out
}

/// The most slots for activations that a pipeline stage has.
pub const fn slots_max(tables: &Tables) -> usize {
    let (mut most, mut pipeline) = (0, 0);
    while pipeline < tables.config.mesh.pipeline {
        let slots = tables.activation_slots(pipeline);
        most = if slots > most { slots } else { most };
        pipeline += 1;
    }
    most
}

/// Room for the ops of a training step. Stops the build, before any is computed, if they are too many for the compiler.
#[track_caller]
pub const fn checked_ops(tables: &Tables, origin: &Origin) -> usize {
    require_compilable(tables, origin);
    ops_bound(Pass::Train, tables)
}

/// Room for the ops of all pipeline stages.
pub const fn ops_bound(pass: Pass, tables: &Tables) -> usize {
    let (mut sum, mut pipeline) = (0, 0);
    while pipeline < tables.config.mesh.pipeline {
        sum += ops_max(pass, tables, pipeline);
        pipeline += 1;
    }
    sum
}

/// The schedules of all pipeline stages, one after the other. `N` is [`ops_bound`], because counting the ops first
/// would take as long as filling them in.
pub struct Schedules<const N: usize, const P: usize> {
    ops: [Op; N],
    /// Where each ends.
    ends: [usize; P],
}

impl<const N: usize, const P: usize> Schedules<N, P> {
    /// The schedule of a pipeline stage.
    pub const fn of(&self, pipeline: usize) -> &[Op] {
        let start = if pipeline == 0 { 0 } else { self.ends[pipeline - 1] };
        self.ops.split_at(self.ends[pipeline]).0.split_at(start).1
    }

    /// The number of ops of all of them.
    pub const fn ops(&self) -> usize {
        self.ends[P - 1]
    }

    /// The schedules of all pipeline stages.
    pub const fn of_each(&self) -> [&[Op]; P] {
        let mut out = [&[] as &[Op]; P];
        let mut pipeline = 0;
        while pipeline < P {
            out[pipeline] = self.of(pipeline);
            pipeline += 1;
        }
        out
    }
}

/// Fills in and checks the schedules of all pipeline stages.
#[track_caller]
pub const fn schedules<const N: usize, const P: usize, const U: usize, const B: usize, const A: usize>(
    pass: Pass,
    tables: &Tables,
) -> Schedules<N, P> {
    let mut schedules = Schedules { ops: [Op::Agree; N], ends: [0; P] };
    let (mut pipeline, mut start) = (0, 0);
    while pipeline < P {
        let ops = schedules.ops.split_at_mut(start).1;
        let taken = ScheduleScratch { slots: &mut [0; A], gathered: &mut [false; U] };
        let len = fill_ops(pass, tables, pipeline, taken, ops);
        let subject = CheckedTables { pass, pipeline, tables: *tables, ops: ops.split_at(len).0 };
        let scratch = CheckScratch {
            units: &mut [UnitState::NEW; U],
            buckets: &mut [BucketState::NEW; B],
            slots: &mut [SlotState::NEW; A],
        };
        require_checked(subject, scratch);
        start += len;
        schedules.ends[pipeline] = start;
        pipeline += 1;
    }
    schedules
}

/// The number of entries in the queues of this many ops: none if the plan has no queues.
pub const fn queued(ops: usize, tables: &Tables) -> usize {
    if tables.config.has_queues() { ops } else { 0 }
}

/// Where the ops of all pipeline stages are queued, one stage after the other. `N` is [`queued`].
pub struct Queues<const N: usize>([Queued; N]);

impl<const N: usize> Queues<N> {
    /// The queue of the schedule that ends at `end` and has this many ops.
    const fn before(&self, end: usize, ops: usize) -> &[Queued] {
        if N == 0 { &[] } else { self.0.split_at(end).0.split_at(end - ops).1 }
    }
}

/// Fills in the queues of the schedules of all pipeline stages.
pub const fn queues<const N: usize, const U: usize, const B: usize, const A: usize>(
    pass: Pass,
    tables: &Tables,
    schedules: &[&[Op]],
) -> Queues<N> {
    let mut queues = Queues([Queued::of(Stream::Compute); N]);
    let (mut pipeline, mut start) = (0, 0);
    while N > 0 && pipeline < schedules.len() {
        let seen = Seen {
            known: &mut [[0; Stream::ALL.len()]; N],
            gathers: &mut [None; U],
            releases: &mut [None; U],
            slots: &mut [None; A],
            offers: &mut [None; B],
            settles: &mut [None; B],
            spreads: &mut [None; B],
        };
        fill_queue(pass, tables, schedules[pipeline], seen, queues.0.split_at_mut(start).1);
        start += schedules[pipeline].len();
        pipeline += 1;
    }
    queues
}

/// Ops and their queues, of all pipeline stages.
type Tabled<'a, const N: usize, const Q: usize, const P: usize> = (&'a Schedules<N, P>, &'a Queues<Q>);

/// The ops of a pipeline stage, and their queue.
const fn of_stage<'a, const N: usize, const Q: usize, const P: usize>(
    (schedules, queues): Tabled<'a, N, Q, P>,
    pipeline: usize,
) -> (&'a [Op], &'a [Queued]) {
    let ops = schedules.of(pipeline);
    (ops, queues.before(schedules.ends[pipeline], ops.len()))
}

pub const fn pipeline_stages<
    'a,
    const P: usize,
    const S: usize,
    const SQ: usize,
    const E: usize,
    const EQ: usize,
    const O: usize,
    const OQ: usize,
>(
    steps: Tabled<'a, S, SQ, P>,
    evaluations: Tabled<'a, E, EQ, P>,
    publications: Tabled<'a, O, OQ, P>,
    memories: &[Memory; P],
) -> [PipelineStage<'a>; P] {
    let none = PipelineStage {
        step: &[],
        evaluation: &[],
        publication: &[],
        step_queue: &[],
        evaluation_queue: &[],
        publication_queue: &[],
        memory: Memory::NONE,
    };
    let mut out = [none; P];
    let mut pipeline = 0;
    while pipeline < P {
        let (step, step_queue) = of_stage(steps, pipeline);
        let (evaluation, evaluation_queue) = of_stage(evaluations, pipeline);
        let (publication, publication_queue) = of_stage(publications, pipeline);
        let memory = memories[pipeline];
        out[pipeline] =
            PipelineStage { step, evaluation, publication, step_queue, evaluation_queue, publication_queue, memory };
        pipeline += 1;
    }
    out
}
