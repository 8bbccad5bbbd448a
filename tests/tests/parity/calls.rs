//! Calls: what an engine asks of its transport is what the plan's tables say, call by call. A release that is left out, or a
//! sum that starts anew in each round, could otherwise pass where nobody looks at what it leaves behind.
#![expect(unsafe_code, reason = "a transport is unsafe to implement")]

use std::collections::BTreeSet;
use std::sync::Arc;

use zero_plan::config::{Often, Precision, Width};
use zero_plan::{Axis, Config, Moved, Op, Parcel, Plan, PlanBuf, Transport as Kinds};
use zero_runtime::arena::Arena;
use zero_runtime::device::{Cpu, Write};
use zero_runtime::engine::Engine;
use zero_runtime::layer::Tokens;
use zero_runtime::model::Model;
use zero_runtime::transport::{Lost, Shared, Transport, local};
use zero_runtime::view::View;
use zero_tests::tiny::{Tied, Untied};
use zero_tests::training::{CONFIG, HYPER, mesh, noise};

/// Hands every call on, and notes it as the op that asks for it; a publication as the update that it ends.
struct Noting<T> {
    inner: T,
    noted: Vec<Op>,
    /// Why ranks were to exchange numbers.
    reasons: Vec<u64>,
}

impl<T> Noting<T> {
    fn new(inner: T) -> Self {
        Self { inner, noted: Vec::new(), reasons: Vec::new() }
    }
}

/// What a transport is told of the round of a sum: whether it is the first.
fn round(write: Write) -> usize {
    usize::from(write == Write::Add)
}

// SAFETY: every call is the inner transport's, on the promise that it is called on.
#[expect(clippy::undocumented_unsafe_blocks, reason = "one argument for all calls, above")]
unsafe impl<'p, T: Transport<'p>> Transport<'p> for Noting<T> {
    fn arena(&self) -> &Arc<Arena<'p>> {
        self.inner.arena()
    }

    unsafe fn publish(&mut self, unit: usize) {
        self.noted.push(Op::Update { unit });
        unsafe { self.inner.publish(unit) };
    }

    unsafe fn gather(&mut self, unit: usize, slot: usize) {
        self.noted.push(Op::Gather { unit, slot });
        unsafe { self.inner.gather(unit, slot) };
    }

    unsafe fn wait(&mut self, unit: usize) -> Result<(), Lost> {
        self.noted.push(Op::Wait { unit });
        unsafe { self.inner.wait(unit) }
    }

    unsafe fn widen(&mut self, unit: usize, slot: usize) {
        self.noted.push(Op::Widen { unit, slot });
        unsafe { self.inner.widen(unit, slot) };
    }

    unsafe fn gathered(&self, unit: usize) -> View<'_, Cpu> {
        unsafe { self.inner.gathered(unit) }
    }

    unsafe fn release(&mut self, unit: usize) {
        self.noted.push(Op::Release { unit });
        unsafe { self.inner.release(unit) };
    }

    unsafe fn claim(&mut self, bucket: usize) -> Result<(), Lost> {
        self.noted.push(Op::Claim { bucket });
        unsafe { self.inner.claim(bucket) }
    }

    unsafe fn reduce(&mut self, bucket: usize) {
        self.noted.push(Op::Reduce { bucket, round: 0 });
        unsafe { self.inner.reduce(bucket) };
    }

    unsafe fn settle(&mut self, bucket: usize, write: Write) -> Result<(), Lost> {
        self.noted.push(Op::Settle { bucket, round: round(write) });
        unsafe { self.inner.settle(bucket, write) }
    }

    unsafe fn combine(&mut self, bucket: usize, write: Write) -> Result<(), Lost> {
        self.noted.push(Op::Combine { bucket, round: round(write) });
        unsafe { self.inner.combine(bucket, write) }
    }

    unsafe fn fold(&mut self, unit: usize) {
        self.noted.push(Op::Fold { unit });
        unsafe { self.inner.fold(unit) };
    }

    unsafe fn spread(&mut self, bucket: usize, axis: Axis) -> Result<(), Lost> {
        self.noted.push(Op::Spread { bucket, axis });
        unsafe { self.inner.spread(bucket, axis) }
    }

    unsafe fn clear(&mut self, parcel: Parcel) -> Result<(), Lost> {
        self.noted.push(Op::Clear { parcel });
        unsafe { self.inner.clear(parcel) }
    }

    fn outgoing_slot(&self, parcel: Parcel) -> usize {
        self.inner.outgoing_slot(parcel)
    }

    unsafe fn send(&mut self, parcel: Parcel, unit: usize, len: usize) {
        self.noted.push(Op::Send { parcel, unit, micro_batch: 0 });
        unsafe { self.inner.send(parcel, unit, len) };
    }

    unsafe fn receive(&mut self, parcel: Parcel, unit: usize, to: usize, len: usize) -> Result<(), Lost> {
        self.noted.push(Op::Receive { parcel, unit, micro_batch: 0, slot: 0 });
        unsafe { self.inner.receive(parcel, unit, to, len) }
    }

    unsafe fn exchange(&mut self, call: u64, mine: &[f64], all: &mut [f64]) -> Result<(), Lost> {
        self.noted.push(Op::Agree);
        self.reasons.push(call);
        unsafe { self.inner.exchange(call, mine, all) }
    }

    fn moved(&self) -> Moved {
        self.inner.moved()
    }
}

/// What a transport is told of some ops.
fn told(plan: &Plan, ops: &[Op]) -> Vec<Op> {
    let publishes = plan.config.shards_optimizer();
    let told_of = |&op: &Op| match op {
        Op::Forward { .. } | Op::Recompute { .. } | Op::Backward { .. } => vec![],
        Op::Update { .. } if !publishes => vec![],
        Op::Reduce { bucket, .. } => vec![Op::Reduce { bucket, round: 0 }],
        Op::Settle { bucket, round } => vec![Op::Settle { bucket, round: round.min(1) }],
        Op::Combine { bucket, round } => vec![Op::Combine { bucket, round: round.min(1) }],
        Op::Send { parcel, unit, .. } => vec![Op::Send { parcel, unit, micro_batch: 0 }],
        Op::Receive { parcel, unit, .. } => {
            let received = Op::Receive { parcel, unit, micro_batch: 0, slot: 0 };
            let is_new = parcel == Parcel::TiedParameters && publishes;
            [received].into_iter().chain(is_new.then_some(Op::Update { unit })).collect()
        }
        op => vec![op],
    };
    ops.iter().flat_map(told_of).collect()
}

/// Two steps, an evaluation, a look at all parameters: each against its table.
fn asks_as_planned<M: Model<Input = Tokens, Target = Tokens>>(config: Config) {
    let main = |transport: Shared<'_>| {
        let mut engine = Engine::<M, _>::new(Noting::new(transport));
        let (plan, rank) = (engine.plan(), engine.arena().rank());
        let (data_rank, table) = (engine.arena().coordinates().data_rank(&config.mesh), plan.of_rank(rank));
        let batch = noise(config);
        engine.initialize(7);
        let mut seen = engine.transport().noted.len();
        let mut assert_noted = |engine: &Engine<'_, M, Noting<_>>, ops: &[Op]| {
            let noted = &engine.transport().noted;
            assert_eq!(noted[seen..], told(plan, ops), "{config:?}: rank {rank}");
            seen = noted.len();
        };
        for step in 0..2 {
            engine.step(&HYPER, |part, ids, targets| batch(step, data_rank, part, ids, targets)).expect("a step");
            assert_noted(&engine, table.step);
        }
        engine.evaluate(|part, ids, targets| batch(9, data_rank, part, ids, targets)).expect("an evaluation");
        assert_noted(&engine, &[table.evaluation, &[Op::Agree]].concat());
        for unit in 0..plan.units.len() {
            let is_gathered = engine.parameters(unit).expect("parameters").is_some_and(|flat| !flat.is_empty())
                && config.shards_parameters();
            let ops = [Op::Gather { unit, slot: 0 }, Op::Wait { unit }, Op::Release { unit }];
            assert_noted(&engine, if is_gathered { &ops } else { &[] });
        }
    };
    PlanBuf::new("", config, M::PLAN.units).with(|plan| local::run(plan, |()| false, main).expect("memory"));
}

/// Otherwise a rank would meet one that is a step behind.
#[test]
fn the_same_call_after_another_step_has_another_reason() {
    let main = |transport: Shared<'_>| {
        let mut engine = Engine::<Untied, _>::new(Noting::new(transport));
        engine.initialize(7);
        for step in 0..3 {
            engine.gather_numbers(&[1.0]).expect("numbers");
            let batch = noise(CONFIG);
            engine.step(&HYPER, |part, ids, targets| batch(step, 0, part, ids, targets)).expect("a step");
        }
        let reasons = &engine.transport().reasons;
        assert_eq!(BTreeSet::from_iter(reasons).len(), 6, "{reasons:x?}");
    };
    PlanBuf::new("", CONFIG, Untied::PLAN.units).with(|plan| local::run(plan, |()| false, main).expect("memory"));
}

#[test]
fn an_engine_makes_the_calls_of_its_tables() {
    let narrow = Precision { params: Width::BF16, ..Precision::default() };
    for (pipeline, replica, zero) in [(1, 1, 2), (1, 2, 2), (2, 1, 2), (2, 2, 2)] {
        for stage in 0..4 {
            for (transport, reduce, precision) in [
                (Kinds::Local, Often::PerMicroBatch, Precision::default()),
                (Kinds::Shm, Often::PerMicroBatch, narrow),
                (Kinds::Local, Often::PerStep, narrow),
            ] {
                let mesh = mesh(pipeline, replica, zero);
                let config = Config { mesh, transport, reduce, precision, micro_batches: 3, ..CONFIG.at_stage(stage) };
                asks_as_planned::<Untied>(config);
                asks_as_planned::<Tied>(config);
            }
        }
    }
}
