//! Plan: the tables of one model under one configuration, all that is constant about a run. Holds, never computes.

use crate::check::{BucketState, Fault, Scratch, SlotState, Subject, UnitState, check, check_layout};
use crate::config::Config;
use crate::layout::{Bucket, Memory, Placement, Tables, bucket_count, fill_buckets, fill_placements};
use crate::message::Message;
use crate::origin::Origin;
use crate::pipeline::{Chunk, Pass, fill_chunks, require_placeable};
use crate::schedule::{Op, Taken, fill_ops, op_bound};
use crate::unit::Unit;

/// Everything that is constant about a run. A generated program has one in a `static`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Plan<'a> {
    /// Name of the model.
    pub model: &'a str,
    /// What the tables were computed from.
    pub config: Config,
    /// The units, in the order of forward.
    pub units: &'a [Unit],
    /// The chunks, in the order of forward.
    pub chunks: &'a [Chunk],
    /// A placement for each unit.
    pub placements: &'a [Placement],
    /// The buckets, in the order of backward.
    pub buckets: &'a [Bucket],
    /// What the ranks of each pipeline stage do, and in what.
    pub stages: &'a [PipelineStage<'a>],
}

/// What is the same on all ranks of a pipeline stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PipelineStage<'a> {
    /// The ops of a training step.
    pub step: &'a [Op],
    /// The ops of a forward pass without a backward pass.
    pub evaluation: &'a [Op],
    /// The arena of each rank.
    pub memory: Memory,
}

impl<'a> PipelineStage<'a> {
    /// The ops of a pass.
    pub const fn ops(&self, pass: Pass) -> &'a [Op] {
        match pass {
            Pass::Train => self.step,
            Pass::Evaluate => self.evaluation,
        }
    }
}

impl<'a> Plan<'a> {
    /// Parameters of the model, padding not counted.
    pub const fn params(&self) -> usize {
        let (mut sum, mut i) = (0, 0);
        while i < self.units.len() {
            sum += self.units[i].params;
            i += 1;
        }
        sum
    }

    /// Elements of all flat buffers that have parameters of their own, padding counted.
    pub const fn padded(&self) -> usize {
        let (mut sum, mut i) = (0, 0);
        while i < self.units.len() {
            sum += if self.units[i].params > 0 { self.placements[i].padded } else { 0 };
            i += 1;
        }
        sum
    }

    /// What `rank` does: the part of its pipeline stage.
    pub const fn of_rank(&self, rank: usize) -> &'a PipelineStage<'a> {
        &self.stages[self.config.mesh.coordinates(rank).pipeline]
    }

    /// The tables that layout and schedules are made of.
    pub const fn tables(&self) -> Tables<'_> {
        Tables {
            config: &self.config,
            units: self.units,
            chunks: self.chunks,
            placements: self.placements,
            buckets: self.buckets,
        }
    }

    /// The arena of the pipeline stage whose ranks have the largest, in bytes.
    pub const fn bytes_per_rank_max(&self) -> usize {
        let (mut most, mut stage) = (0, 0);
        while stage < self.stages.len() {
            let bytes = self.stages[stage].memory.bytes_per_rank();
            most = if bytes > most { bytes } else { most };
            stage += 1;
        }
        most
    }

    /// Numbers on which the ranks agree in a step: the loss, and the sum of squares of each unit's gradients.
    pub const fn agreed_values(&self) -> usize {
        1 + self.units.len()
    }

    /// A number that differs where plans do: ranks compare it before their first collective.
    pub fn fingerprint(&self) -> u64 {
        use std::hash::{DefaultHasher, Hash, Hasher};
        let mut hasher = DefaultHasher::new();
        self.hash(&mut hasher);
        hasher.finish()
    }

    /// Checks the layout and the schedules of every pipeline stage with the rules of [`mod@crate::check`].
    ///
    /// # Errors
    /// The first rule that is broken.
    pub fn check(&self) -> Result<(), Fault> {
        let memories: Vec<Memory> = self.stages.iter().map(|stage| stage.memory).collect();
        if let Some(rule) = check_layout(&self.tables(), &memories) {
            return Err(Fault { op: 0, rule });
        }
        for (stage, schedules) in self.stages.iter().enumerate() {
            for (pass, ops) in [(Pass::Train, schedules.step), (Pass::Evaluate, schedules.evaluation)] {
                let subject = Subject { pass, stage, tables: self.tables(), ops };
                let scratch = Scratch {
                    units: &mut vec![UnitState::NEW; self.units.len()],
                    buckets: &mut vec![BucketState::NEW; self.buckets.len()],
                    slots: &mut vec![SlotState::NEW; self.tables().activation_slots(stage)],
                };
                check(subject, scratch)?;
            }
        }
        Ok(())
    }
}

/// A plan made at run time, by the functions that make one at compile time.
#[derive(Clone, Debug)]
pub struct PlanBuf {
    model: String,
    config: Config,
    units: Vec<Unit>,
    chunks: Vec<Chunk>,
    placements: Vec<Placement>,
    buckets: Vec<Bucket>,
    /// Training step, evaluation and arena of each pipeline stage.
    stages: Vec<(Vec<Op>, Vec<Op>, Memory)>,
}

impl PlanBuf {
    /// Computes all tables, however large.
    ///
    /// # Panics
    /// Z0206, where the units cannot be placed on the pipeline.
    pub fn new(model: &str, config: Config, units: &[Unit]) -> Self {
        require_placeable(&config, units, &Origin::UNKNOWN);
        let mut chunks = vec![Chunk::NONE; config.chunks()];
        fill_chunks(&config, units, &mut chunks);
        let tables = Tables { config: &config, units, chunks: &chunks, placements: &[], buckets: &[] };
        let mut buckets = vec![Bucket::NONE; bucket_count(&tables)];
        fill_buckets(&tables, &mut buckets);
        let tables = Tables { buckets: &buckets, ..tables };
        let mut placements = vec![Placement::NONE; units.len()];
        fill_placements(&tables, &mut placements);
        let tables = Tables { placements: &placements, ..tables };
        let ops = |pass, stage| {
            let mut ops = vec![Op::Agree; op_bound(pass, &tables, stage)];
            let taken =
                Taken { slots: &mut vec![0; tables.activation_slots(stage)], gathered: &mut vec![false; units.len()] };
            let len = fill_ops(pass, &tables, stage, taken, &mut ops);
            ops.truncate(len);
            ops
        };
        let stages = 0..config.mesh.pipeline;
        let stages = stages
            .map(|stage| (ops(Pass::Train, stage), ops(Pass::Evaluate, stage), Memory::of(&tables, stage)))
            .collect();
        Self { model: model.to_owned(), config, units: units.to_vec(), chunks, placements, buckets, stages }
    }

    /// The tables of each pipeline stage, for [`PlanBuf::as_plan`].
    pub fn stages(&self) -> Vec<PipelineStage<'_>> {
        let stages = self.stages.iter();
        stages.map(|(step, evaluation, memory)| PipelineStage { step, evaluation, memory: *memory }).collect()
    }

    /// The plan, with `stages` from [`PlanBuf::stages`].
    pub fn as_plan<'a>(&'a self, stages: &'a [PipelineStage<'a>]) -> Plan<'a> {
        Plan {
            model: &self.model,
            config: self.config,
            units: &self.units,
            chunks: &self.chunks,
            placements: &self.placements,
            buckets: &self.buckets,
            stages,
        }
    }

    /// The plan, for the length of a call.
    pub fn with<R>(&self, use_plan: impl FnOnce(&Plan) -> R) -> R {
        use_plan(&self.as_plan(&self.stages()))
    }
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
pub const fn require_checked(subject: Subject, scratch: Scratch) {
    let stage = subject.stage;
    if let Err(fault) = check(subject, scratch) {
        let message = Message::new().text("[Z0291] unsound schedule of pipeline stage ").number(stage);
        panic!("{}", message.text(" at op ").number(fault.op).text(": ").text(fault.rule).as_str());
    }
}

/// The [`Plan`] of a model, as a constant expression: layout, schedules and their checks, and the budget.
///
/// ```
/// use zero_plan::mesh::Mesh;
/// use zero_plan::{Config, Field, Plan, Unit, static_plan};
///
/// const CONFIG: Config =
///     Config { mesh: Mesh::of_zero(2), stage: 3, prefetch: 1, sequences: 4, length: 8, ..Config::PLAIN };
/// const SIZES: Unit = Unit { params: 100, takes: 100, saved: 32, input: 32, output: 32, operations: 6400, ..Unit::NONE };
/// const FIELDS: &[Field] = &[Field { name: "layers", count: Some(3), tied: None, sizes: SIZES }];
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
        // Long tables of large models only look to the compiler as if they never ended.
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
            t::require_budget(&TABLES, &MEMORIES, &STEPS.of_each(), &mut { __UNITS }, &__ORIGIN);
        };
        const STAGES: [t::PipelineStage; __CONFIG.mesh.pipeline] = t::stages(STEPS, EVALUATIONS, &MEMORIES);
        t::Plan {
            model: $model,
            config: __CONFIG,
            units: &__UNITS,
            chunks: &CHUNKS,
            placements: &PLACEMENTS,
            buckets: &BUCKETS,
            stages: &STAGES,
        }
    }};
}

/// What [`static_plan`] expands to: the table functions with sizes as const parameters.
#[doc(hidden)]
pub mod tables {
    use super::*;
    pub use super::{PipelineStage, Plan};
    use crate::bounds::{require_compilable, require_countable};
    pub use crate::budget::require_budget;
    pub use crate::config::Config;
    pub use crate::layout::{Bucket, Memory, Placement, Tables, bucket_count};
    pub use crate::origin::Origin;
    pub use crate::pipeline::{Chunk, Pass};
    pub use crate::schedule::Op;
    use crate::unit::require_units;
    pub use crate::unit::{Unit, unit_count, units};

    /// The number of chunks, where the configuration and the units can be made a plan of: before any table is.
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

    /// The arena of each pipeline stage, in a layout that is sound.
    #[track_caller]
    pub const fn memories<const P: usize>(tables: &Tables) -> [Memory; P] {
        let mut out = [Memory::NONE; P];
        let mut stage = 0;
        while stage < P {
            out[stage] = Memory::of(tables, stage);
            stage += 1;
        }
        require_sound(tables, &out);
        out
    }

    /// The most slots for activations that a pipeline stage has.
    pub const fn slots_max(tables: &Tables) -> usize {
        let (mut most, mut stage) = (0, 0);
        while stage < tables.config.mesh.pipeline {
            let slots = tables.activation_slots(stage);
            most = if slots > most { slots } else { most };
            stage += 1;
        }
        most
    }

    /// Room for the ops of a training step, where the compiler can work them out: before it begins to.
    #[track_caller]
    pub const fn checked_ops(tables: &Tables, origin: &Origin) -> usize {
        require_compilable(tables, origin);
        ops_bound(Pass::Train, tables)
    }

    /// Room for the ops of all pipeline stages.
    pub const fn ops_bound(pass: Pass, tables: &Tables) -> usize {
        let (mut sum, mut stage) = (0, 0);
        while stage < tables.config.mesh.pipeline {
            sum += op_bound(pass, tables, stage);
            stage += 1;
        }
        sum
    }

    /// The schedules of all pipeline stages, one behind the other. `N` is [`ops_bound`]: counting them first would take as
    /// long as filling them in.
    pub struct Schedules<const N: usize, const P: usize> {
        ops: [Op; N],
        /// Where each ends.
        ends: [usize; P],
    }

    impl<const N: usize, const P: usize> Schedules<N, P> {
        /// The schedule of a pipeline stage.
        pub const fn of(&self, stage: usize) -> &[Op] {
            let start = if stage == 0 { 0 } else { self.ends[stage - 1] };
            self.ops.split_at(self.ends[stage]).0.split_at(start).1
        }

        /// The schedules of all pipeline stages.
        pub const fn of_each(&self) -> [&[Op]; P] {
            let mut out = [&[] as &[Op]; P];
            let mut stage = 0;
            while stage < P {
                out[stage] = self.of(stage);
                stage += 1;
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
        let (mut stage, mut start) = (0, 0);
        while stage < P {
            let ops = schedules.ops.split_at_mut(start).1;
            let taken = Taken { slots: &mut [0; A], gathered: &mut [false; U] };
            let len = fill_ops(pass, tables, stage, taken, ops);
            let subject = Subject { pass, stage, tables: *tables, ops: ops.split_at(len).0 };
            let scratch = Scratch {
                units: &mut [UnitState::NEW; U],
                buckets: &mut [BucketState::NEW; B],
                slots: &mut [SlotState::NEW; A],
            };
            require_checked(subject, scratch);
            start += len;
            schedules.ends[stage] = start;
            stage += 1;
        }
        schedules
    }

    pub const fn stages<'a, const N: usize, const M: usize, const P: usize>(
        steps: &'a Schedules<N, P>,
        evaluations: &'a Schedules<M, P>,
        memories: &[Memory; P],
    ) -> [PipelineStage<'a>; P] {
        let mut out = [PipelineStage { step: &[], evaluation: &[], memory: Memory::NONE }; P];
        let mut stage = 0;
        while stage < P {
            out[stage] =
                PipelineStage { step: steps.of(stage), evaluation: evaluations.of(stage), memory: memories[stage] };
            stage += 1;
        }
        out
    }
}

#[cfg(test)]
mod tests;
