//! Calls: an engine calls its transport for the ops of the plan's tables, one by one. Otherwise a missing release, or a claim of
//! the wrong bucket, could pass unnoticed if no test sees its effects.
#![expect(unsafe_code, reason = "a transport is unsafe to implement")]

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use zero_core::arena::Arena;
use zero_core::model::{Model, Program};
use zero_core::view::{View, ViewMut};
use zero_core::watchdog::Watchdog;
use zero_engine::Engine;
use zero_plan::place::{Place, Position};
use zero_plan::{Config, Moved, Often, Op, Parcel, PlanBuf, Precision, TransportKind, Width};
use zero_ranks::transport::{Lost, Shared, Transport, local};
use zero_runtime::device::Cpu;
use zero_tests::tiny::{Tied, Untied};
use zero_tests::training::{CONFIG, HYPER, mesh, noise};

/// Passes every call on, and records each op that the engine begins and each that it ends.
struct Noting<T> {
    inner: T,
    noted: Vec<Op>,
    ended: Vec<Op>,
    /// The reasons for which numbers were exchanged.
    reasons: Vec<u64>,
}

impl<T> Noting<T> {
    fn new(inner: T) -> Self {
        Self { inner, noted: Vec::new(), ended: Vec::new(), reasons: Vec::new() }
    }
}

// SAFETY: every call goes to the inner transport, and its caller keeps the promise.
unsafe impl<'p, T: Transport<'p, Cpu>> Transport<'p, Cpu> for Noting<T> {
    fn arena(&self) -> &Arc<Arena<'p, Cpu>> {
        self.inner.arena()
    }

    fn set_timeout(&mut self, timeout: Duration) {
        self.inner.set_timeout(timeout);
    }

    fn watchdog(&self) -> Arc<dyn Watchdog + 'p> {
        self.inner.watchdog()
    }

    unsafe fn begin(&mut self, device: &Cpu, op: Op, position: &Position) -> Result<(), Lost> {
        self.noted.push(op);
        // SAFETY: the caller keeps the promise of the trait, and the call is passed on unchanged.
        unsafe { self.inner.begin(device, op, position) }
    }

    unsafe fn end(&mut self, device: &Cpu, op: Op, position: &Position) {
        self.ended.push(op);
        // SAFETY: the caller keeps the promise of the trait, and the call is passed on unchanged.
        unsafe { self.inner.end(device, op, position) };
    }

    unsafe fn peer(&self, rank: usize, place: Place) -> View<'_, Cpu, u8> {
        // SAFETY: the caller keeps the promise of the trait, and the call is passed on unchanged.
        unsafe { self.inner.peer(rank, place) }
    }

    unsafe fn exchange(
        &mut self,
        device: &Cpu,
        call: u64,
        mine: View<Cpu, f64>,
        all: ViewMut<Cpu, f64>,
    ) -> Result<(), Lost> {
        self.noted.push(EXCHANGE);
        self.ended.push(EXCHANGE);
        self.reasons.push(call);
        // SAFETY: the caller keeps the promise of the trait, and the call is passed on unchanged.
        unsafe { self.inner.exchange(device, call, mine, all) }
    }

    fn await_device(&mut self, device: &Cpu) -> Result<(), Lost> {
        self.inner.await_device(device)
    }

    fn moved(&self) -> Moved {
        self.inner.moved()
    }
}

/// Stands for an exchange: an op that is in no table.
const EXCHANGE: Op = Op::Clear { parcel: Parcel::TiedParameters };

/// The calls that a transport gets for some ops: all ops and, in an agreement, the exchange of numbers.
fn told(ops: &[Op]) -> Vec<Op> {
    let of_op = |&op: &Op| [op].into_iter().chain((op == Op::Agree).then_some(EXCHANGE));
    ops.iter().flat_map(of_op).collect()
}

/// The same, in the order in which ops end.
fn told_ended(ops: &[Op]) -> Vec<Op> {
    let of_op = |&op: &Op| (op == Op::Agree).then_some(EXCHANGE).into_iter().chain([op]);
    ops.iter().flat_map(of_op).collect()
}

/// Two steps, an evaluation, and a read of all parameters: each against its table.
fn asks_as_planned(program: &'static Program<Cpu>, config: Config) {
    let main = |transport: Shared<'_, Cpu>| {
        let mut engine = Engine::new(program, Noting::new(transport));
        let (plan, rank) = (engine.plan(), engine.arena().rank());
        let (data_rank, table) = (engine.arena().coordinates().data_rank(&config.mesh), plan.of_rank(rank));
        let batch = noise(config);
        engine.initialize(7);
        let mut seen = [engine.transport().noted.len(), engine.transport().ended.len()];
        let mut assert_noted = |engine: &Engine<'_, Cpu, Noting<_>>, ops: &[Op]| {
            let Noting { noted, ended, .. } = engine.transport();
            assert_eq!(noted[seen[0]..], told(ops), "{config:?}: rank {rank}");
            assert_eq!(ended[seen[1]..], told_ended(ops), "{config:?}: rank {rank}");
            seen = [noted.len(), ended.len()];
        };
        for step in 0..2 {
            engine.step(&HYPER, |part, ids, targets| batch(step, data_rank, part, ids, targets)).expect("a step");
            assert_noted(&engine, table.step);
        }
        engine.evaluate(|part, ids, targets| batch(9, data_rank, part, ids, targets)).expect("an evaluation");
        assert_noted(&engine, &[table.evaluation, &[EXCHANGE]].concat());
        for unit in 0..plan.units.len() {
            let is_gathered = engine.parameters(unit).expect("parameters").is_some_and(|flat| !flat.is_empty())
                && config.shards_parameters();
            let ops = [Op::Gather { unit, slot: 0 }, Op::Wait { unit }, Op::Release { unit }];
            assert_noted(&engine, if is_gathered { &ops } else { &[] });
        }
    };
    PlanBuf::new("", config, program.plan.units).with(|plan| local::run(plan, |()| false, main).expect("memory"));
}

/// Otherwise a rank would meet one that is a step behind.
#[test]
fn the_same_call_after_another_step_has_another_reason() {
    let main = |transport: Shared<'_, Cpu>| {
        let mut engine = Engine::new(Untied::PROGRAM, Noting::new(transport));
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
                (TransportKind::Local, Often::PerMicroBatch, Precision::default()),
                (TransportKind::Shm, Often::PerMicroBatch, narrow),
                (TransportKind::Local, Often::PerStep, narrow),
            ] {
                let mesh = mesh(pipeline, replica, zero);
                let config = Config { mesh, transport, reduce, precision, micro_batches: 3, ..CONFIG.at_stage(stage) };
                asks_as_planned(Untied::PROGRAM, config);
                asks_as_planned(Tied::PROGRAM, config);
            }
        }
    }
}
