//! Plan: the tables of one model under one configuration, all that is constant about a run. Holds, never computes.

use crate::check::{BucketState, Fault, Subject, UnitState, check, check_layout};
use crate::config::Config;
use crate::layout::{Bucket, Memory, Placement, bucket_count, fill_buckets, fill_placements};
use crate::message::Message;
use crate::schedule::{Op, Pass, fill_ops, op_count};
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
    /// A placement for each unit.
    pub placements: &'a [Placement],
    /// The buckets, in the order of backward.
    pub buckets: &'a [Bucket],
    /// The ops of a training step.
    pub step: &'a [Op],
    /// The ops of a forward pass without a backward pass.
    pub evaluation: &'a [Op],
    /// The arena of each rank.
    pub memory: Memory,
}

impl Plan<'_> {
    /// Parameters of the model, padding not counted.
    pub const fn params(&self) -> usize {
        let (mut sum, mut i) = (0, 0);
        while i < self.units.len() {
            sum += self.units[i].params;
            i += 1;
        }
        sum
    }

    /// Elements of all flat buffers, padding counted.
    pub const fn padded(&self) -> usize {
        let last = &self.placements[self.placements.len() - 1];
        last.start + last.padded
    }

    /// A number that differs where plans do: ranks compare it before their first collective.
    pub fn fingerprint(&self) -> u64 {
        use std::hash::{DefaultHasher, Hash, Hasher};
        let mut hasher = DefaultHasher::new();
        self.hash(&mut hasher);
        hasher.finish()
    }

    /// Checks layout and both schedules with the rules of [`mod@crate::check`].
    pub fn check(&self) -> Result<(), Fault> {
        if let Some(rule) = check_layout(&self.config, self.units, self.placements, self.buckets, &self.memory) {
            return Err(Fault { op: 0, rule });
        }
        for (pass, ops) in [(Pass::Train, self.step), (Pass::Evaluate, self.evaluation)] {
            let subject = Subject {
                pass,
                config: &self.config,
                units: self.units,
                placements: self.placements,
                buckets: self.buckets,
                ops,
            };
            let mut units = vec![UnitState::NEW; self.units.len()];
            let mut buckets = vec![BucketState::NEW; self.buckets.len()];
            check(subject, &mut units, &mut buckets)?;
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
    placements: Vec<Placement>,
    buckets: Vec<Bucket>,
    step: Vec<Op>,
    evaluation: Vec<Op>,
}

impl PlanBuf {
    /// Computes all tables.
    pub fn new(model: &str, config: Config, units: &[Unit]) -> Self {
        let mut buckets = vec![Bucket::NONE; bucket_count(&config, units)];
        fill_buckets(&config, units, &mut buckets);
        let mut placements = vec![Placement::NONE; units.len()];
        fill_placements(&config, units, &buckets, &mut placements);
        let ops = |pass| {
            let mut ops = vec![Op::Agree; op_count(pass, &config, units, &placements, &buckets)];
            fill_ops(pass, &config, units, &placements, &buckets, &mut ops);
            ops
        };
        let (step, evaluation) = (ops(Pass::Train), ops(Pass::Evaluate));
        Self { model: model.to_owned(), config, units: units.to_vec(), placements, buckets, step, evaluation }
    }

    /// The tables.
    pub fn as_plan(&self) -> Plan<'_> {
        Plan {
            model: &self.model,
            config: self.config,
            units: &self.units,
            placements: &self.placements,
            buckets: &self.buckets,
            step: &self.step,
            evaluation: &self.evaluation,
            memory: Memory::of(&self.config, &self.units),
        }
    }
}

/// Stops the build where the arena does not fit the budget of the spec: by how much, and which stage would fit.
#[track_caller]
pub const fn require_budget(config: &Config, units: &[Unit]) {
    let Some(budget) = config.memory_bytes else { return };
    let needed = Memory::of(config, units).bytes_per_rank();
    if needed <= budget {
        return;
    }
    let mut message = Message::new()
        .text("[Z0201] a rank needs ")
        .bytes(needed)
        .text(" at stage ")
        .number(config.stage as usize)
        .text(", but `memory` is ")
        .bytes(budget)
        .text(": ")
        .bytes(needed - budget)
        .text(" too much");
    let mut stage = config.stage + 1;
    while stage <= 3 {
        let other = Memory::of(&config.at_stage(stage), units).bytes_per_rank();
        message = message.text("\n  stage ").number(stage as usize).text(" needs ").bytes(other);
        message = message.text(if other <= budget { " and fits" } else { ", which does not fit either" });
        stage += 1;
    }
    message =
        message.text("\n  fix: raise `memory`, or lower what it pays for: stage, sequences, length, prefetch, bucket");
    panic!("{}", message.as_str());
}

/// Stops the build where a table breaks a rule: an error of this crate, not of its user.
#[track_caller]
pub const fn require_sound(config: &Config, units: &[Unit], placements: &[Placement], buckets: &[Bucket]) {
    if let Some(rule) = check_layout(config, units, placements, buckets, &Memory::of(config, units)) {
        panic!("{}", Message::new().text("[Z0290] unsound layout: ").text(rule).as_str());
    }
}

/// Stops the build where a schedule breaks a rule: an error of this crate, not of its user.
#[track_caller]
pub const fn require_checked(subject: Subject, units: &mut [UnitState], buckets: &mut [BucketState]) {
    if let Err(fault) = check(subject, units, buckets) {
        let message = Message::new().text("[Z0291] unsound schedule at op ").number(fault.op);
        panic!("{}", message.text(": ").text(fault.rule).as_str());
    }
}

/// The [`Plan`] of a model, as a constant expression: layout, schedules and their checks, and the budget.
///
/// ```
/// use zero_plan::{Config, Field, Plan, Transport, Unit, static_plan, unit_count, units};
///
/// const CONFIG: Config = Config {
///     stage: 3, ranks: 2, prefetch: 1, bucket_bytes: 1 << 20, sequences: 4, length: 8, micro_batches: 1,
///     transport: Transport::Shm, memory_bytes: None,
/// };
/// const SIZES: Unit = Unit {
///     field: "", position: 0, index: None, params: 100, takes: 100, source: 0, saved: 32, workspace: 0, input: 32,
///     output: 32,
/// };
/// const FIELDS: &[Field] = &[Field { name: "layers", count: Some(3), tied: None, sizes: SIZES }];
/// static PLAN: Plan<'static> = static_plan!("Tiny", CONFIG, FIELDS);
///
/// assert_eq!(PLAN.params(), 300);
/// assert_eq!(PLAN.padded(), 3 * 128);
/// assert_eq!(PLAN.check(), Ok(()));
/// ```
#[macro_export]
macro_rules! static_plan {
    ($model:expr, $config:expr, $fields:expr) => {{
        use $crate::__tables as t;
        const __CONFIG: t::Config = $config;
        const __UNITS: [t::Unit; t::unit_count($fields)] = t::units($fields);
        // Long tables of large models only look to the compiler as if they never ended.
        #[allow(long_running_const_eval)]
        const BUCKETS: [t::Bucket; t::bucket_count(&__CONFIG, &__UNITS)] = t::buckets(&__CONFIG, &__UNITS);
        #[allow(long_running_const_eval)]
        const PLACEMENTS: [t::Placement; __UNITS.len()] = t::placements(&__CONFIG, &__UNITS, &BUCKETS);
        #[allow(long_running_const_eval)]
        const STEP: &[t::Op] = {
            const LEN: usize = t::op_count(t::Pass::Train, &__CONFIG, &__UNITS, &PLACEMENTS, &BUCKETS);
            &t::ops::<LEN, { __UNITS.len() }, { BUCKETS.len() }>(
                t::Pass::Train,
                &__CONFIG,
                &__UNITS,
                &PLACEMENTS,
                &BUCKETS,
            )
        };
        #[allow(long_running_const_eval)]
        const EVALUATION: &[t::Op] = {
            const LEN: usize = t::op_count(t::Pass::Evaluate, &__CONFIG, &__UNITS, &PLACEMENTS, &BUCKETS);
            &t::ops::<LEN, { __UNITS.len() }, { BUCKETS.len() }>(
                t::Pass::Evaluate,
                &__CONFIG,
                &__UNITS,
                &PLACEMENTS,
                &BUCKETS,
            )
        };
        #[allow(long_running_const_eval)]
        const MEMORY: t::Memory = t::Memory::of(&__CONFIG, &__UNITS);
        #[allow(long_running_const_eval)]
        const {
            t::require_budget(&__CONFIG, &__UNITS);
            t::require_sound(&__CONFIG, &__UNITS, &PLACEMENTS, &BUCKETS);
        };
        t::Plan {
            model: $model,
            config: __CONFIG,
            units: &__UNITS,
            placements: &PLACEMENTS,
            buckets: &BUCKETS,
            step: STEP,
            evaluation: EVALUATION,
            memory: MEMORY,
        }
    }};
}

/// What [`static_plan`] expands to: the table functions with sizes as const parameters.
#[doc(hidden)]
pub mod tables {
    use super::*;
    pub use super::{Plan, require_budget, require_sound};
    pub use crate::config::Config;
    pub use crate::layout::{Bucket, Memory, Placement, bucket_count};
    pub use crate::schedule::{Op, Pass, op_count};
    pub use crate::unit::{Unit, unit_count, units};

    pub const fn buckets<const B: usize>(config: &Config, units: &[Unit]) -> [Bucket; B] {
        let mut out = [Bucket::NONE; B];
        fill_buckets(config, units, &mut out);
        out
    }

    pub const fn placements<const U: usize>(config: &Config, units: &[Unit], buckets: &[Bucket]) -> [Placement; U] {
        let mut out = [Placement::NONE; U];
        fill_placements(config, units, buckets, &mut out);
        out
    }

    pub const fn ops<const LEN: usize, const U: usize, const B: usize>(
        pass: Pass,
        config: &Config,
        units: &[Unit],
        placements: &[Placement],
        buckets: &[Bucket],
    ) -> [Op; LEN] {
        let mut ops = [Op::Agree; LEN];
        fill_ops(pass, config, units, placements, buckets, &mut ops);
        let subject = Subject { pass, config, units, placements, buckets, ops: &ops };
        require_checked(subject, &mut [UnitState::NEW; U], &mut [BucketState::NEW; B]);
        ops
    }
}
