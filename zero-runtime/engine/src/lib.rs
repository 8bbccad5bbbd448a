//! Engine: executes a plan. A step is a loop over a static table: it allocates nothing, looks up nothing, and makes no
//! decision that the plan has not made. The engine knows only the contracts of devices and transports, never a kernel,
//! a launcher, a file or a model's type.
//!
//! `batch` receives data. `evaluation` has the walks that only go forward, `compute` the ops that call layers,
//! `collectives` the ops that receive data of other ranks, `update` the ops at the end of a step. `words` has the few
//! numbers of a step. `parameters` fills and reads parameters and their states, `queues` follows the streams of a plan
//! on a device that has queues, `checkpoint` reads states for writing and sets them again, `publish` copies parameters for
//! readers, `diagnose` finds where a number went wrong, `record` notes when ops begin and end, `rehearsal` prepares a device, `calls` makes sure that all
//! ranks make the same calls. `tier` follows the streams of a plan that keeps states on disk, `host` carries those
//! that the host of a device keeps, and `on_host` has its cores update them.
//!
//! `Engine::execute` says what an op does; for ops that communicate, `collectives` does. An op that calls a function of
//! a unit finds it in [`zero_core::layer::UnitCode`]. A new op is an arm of that match, on views of the places that
//! [`zero_plan::place`] returns; it adds no offset, and all its arithmetic is an op of [`Device`].
//!
//! # Why no safe call races
//!
//! Ranks read one another's memory without locks, so this needs an argument. Shared memory lies in the arena. Safe code
//! reaches it only through the engine: [`Arena`] exposes sizes, the calls of [`Transport`] that reach bytes are unsafe,
//! and the views that layers and datasets receive end with the call that they were made for. Two cases remain: engines
//! of different ranks are called in different orders, or stop being called.
//!
//! - A rank writes the memory that other ranks read at these times: parameters in an update, and gradients and parcels
//!   in a step or an evaluation.
//! - Gradients and parcels are written only after a wait for the counts of their readers, and read only after a wait
//!   for the counts of their writers. Counts follow from the ops that a rank has really done, whatever it was called
//!   for. So a rank that is called in another order makes other ranks wait, or end; it cannot make them read too early.
//! - Parameters are first written by [`Engine::load`] alone, before they are published. A rank reads a unit of a peer
//!   only after the peer has published it as often as the reader has. That is at least once, because a step, an
//!   evaluation, a prediction and [`Engine::parameters`] require that all units have been loaded.
//! - Parameters are then written by updates, after an exchange that returns only when every rank has entered it for the
//!   same reason and after the same number of steps, and so has finished reading parameters. If a rank has another
//!   reason, all ranks panic.
//! - A copy for a checkpoint is private to its rank. [`Engine::snapshot`] alone writes it, and only while nobody holds the
//!   [`Snapshot`] by which another thread reads it. Copies for readers are private too, and each has a lock.
//! - A call that ended early (in [`Lost`], or in a panic of a layer or a dataset) leaves counts in the middle of a
//!   schedule. The engine then refuses all further calls.

#![allow(unsafe_code)]

mod batch;
mod calls;
mod checkpoint;
mod collectives;
mod compute;
mod diagnose;
mod evaluation;
mod host;
mod on_host;
mod parameters;
mod publish;
mod queues;
mod record;
mod rehearsal;
mod relay;
mod staged;
mod tier;
mod update;
mod words;

use std::sync::Arc;
use std::time::Duration;

use zero_plan::{Moved, Op, Pass, Plan, TierBytes};

pub use batch::{BatchPlace, Ids, OutOfRange};
pub use checkpoint::Snapshot;
pub use collectives::Collectives;
pub use diagnose::{FaultyPhase, NonFinite};
pub use evaluation::Evaluated;
pub use publish::Copies;
pub use record::{Record, Span};
pub use update::Hyper;

use batch::IdMisfit;
use calls::ExchangeReason;
use collectives::Share;
use on_host::HostCalls;
use publish::HeldVersions;
use queues::AwaitedOps;
use tier::TierOfRank;
use update::UpdatedStretch;
use words::StepWords;
use zero_core::arena::Arena;
use zero_core::device::{Agreement, Device, ReportBlock};
use zero_core::layer::{Earlier, WordKind};
use zero_core::lost::Lost;
use zero_core::model::Program;
use zero_core::time::now_ns;
use zero_core::transport::{ClockLook, Crossed, TIMEOUT, Transport};
use zero_core::watchdog::Watchdog;

/// Fills the inputs and the targets of a micro-batch: words, each a u32 or the bits of an f32, as the program says.
type Fill<'a> = &'a mut dyn FnMut(usize, &mut [u32], &mut [u32]);

/// Why a step could not be done.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum RunError {
    /// A loss or a gradient is infinite or not a number.
    #[error(transparent)]
    NonFinite(#[from] NonFinite),
    /// Data has an id out of the model's range.
    #[error(transparent)]
    OutOfRange(#[from] OutOfRange),
    /// Another rank has ended.
    #[error(transparent)]
    Lost(#[from] Lost),
}

/// The result of a step, the same on all ranks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepReport {
    /// Mean loss over all tokens of the step, in the unit of the model's head.
    pub loss: f64,
    /// Norm of the mean gradient, before clipping.
    pub gradient_norm: f64,
}

/// One rank of a run.
pub struct Engine<'p, D: Device, T> {
    program: &'static Program<D>,
    plan: &'p Plan<'p>,
    arena: Arc<Arena<'p, D>>,
    /// Memory, device and transport, and the position of this rank in its table.
    ranks: Collectives<'p, D, T>,
    /// What keeps states on disk, if the plan has some there.
    tier: Option<TierOfRank<'p, D>>,
    /// Bytes that have travelled between tiers and the window in steps.
    tier_moved: TierBytes,
    /// Bytes that the device was asked to carry in this pass, from its host to the window and back.
    carried: TierBytes,
    /// How long a wait may last.
    timeout: Duration,
    /// For each unit, the stretches that this rank updates.
    segments: Vec<Vec<UpdatedStretch>>,
    /// The ops that later ops of the same pass wait for.
    awaited: AwaitedOps,
    /// Whether weight decay applies to embeddings.
    decays_embeddings: bool,
    /// What the host updates, if it updates parameters.
    host_calls: HostCalls,
    /// Whether the device receives each step op by op.
    is_eager: bool,
    agreement: Agreement,
    /// The numbers of all ranks in an exchange that the host reads.
    exchanged: Vec<f64>,
    steps_done: u64,
    /// The record of steps, if one was requested.
    record: Option<Record>,
    /// Each snapshot holds a reference to it.
    snapshot: Arc<()>,
    /// What each copy for readers holds, and how many copies have been made.
    held_versions: HeldVersions,
    publications: usize,
    /// Units whose parameters have been set.
    loaded: usize,
    /// For each slot, the tokens of a sequence whose caches lie in the region of activations.
    cached: Vec<usize>,
    /// What the sequences of a decoding walk go on from.
    earlier: Vec<Earlier>,
    /// Whether the updates of the last step are still to be done, because parameters are updated at their use.
    is_update_due: bool,
    /// Whether the last call finished.
    is_in_order: bool,
}

/// The purpose of a walk over a schedule, and its findings.
struct WalkState {
    /// Look at every result, and note the first that is not finite.
    finding: Option<diagnose::Search>,
    /// The first id that is out of range.
    misfit: Option<IdMisfit>,
    /// Sequences, and tokens in each of them.
    shape: (usize, usize),
    /// The number of first tokens whose losses count.
    counted: usize,
    /// Compute gradients, and the losses if the model's head leaves them in its backward.
    learns: bool,
    /// Stop before the head and leave its input: for predictions.
    headless: bool,
    /// Whether this is a decoding walk, whose sequences go on from [`Engine::earlier`].
    decodes: bool,
}

impl<'p, D: Device, T: Transport<'p, D>> Engine<'p, D, T> {
    /// An engine for a program under the plan of `transport`: that of the program, or another one of the same units.
    /// Parameters are zero until [`Engine::initialize`] or [`Engine::load`].
    ///
    /// # Panics
    /// If another engine has worked on the memory of this transport.
    pub fn new(program: &'static Program<D>, transport: T) -> Self {
        let device = transport.arena().take_device();
        Self::with_device(program, transport, device)
    }

    /// [`Engine::new`], with the device that layers and the optimizer run on.
    pub fn with_device(program: &'static Program<D>, transport: T, device: D) -> Self {
        let arena = Arc::clone(transport.arena());
        let plan = arena.plan();
        assert_eq!(plan.units, program.plan.units, "a plan of another model");
        let is_number = program.inputs.words.kind == WordKind::Number;
        assert!(is_number || plan.units[0].given_bytes == 0, "inputs that are converted but are no f32");
        assert_eq!(plan.config.precision.compute, program.compute, "a plan of another width than the model's layers");
        Self {
            segments: update::segments(program, &arena.places(), true),
            awaited: AwaitedOps::new(arena.pipeline_stage()),
            decays_embeddings: true,
            host_calls: HostCalls::new(),
            is_eager: false,
            agreement: Agreement::of(plan),
            exchanged: vec![0.0; plan.agreed_values() * plan.config.mesh.ranks()],
            ranks: Collectives::new(transport, device),
            tier: None,
            tier_moved: TierBytes::default(),
            carried: TierBytes::default(),
            timeout: TIMEOUT,
            program,
            plan,
            arena,
            steps_done: 0,
            record: None,
            snapshot: Arc::default(),
            held_versions: publish::held_versions(plan),
            publications: 0,
            loaded: 0,
            cached: vec![0; plan.config.slots()],
            earlier: Vec::with_capacity(plan.config.slots()),
            is_update_due: false,
            is_in_order: true,
        }
    }

    /// Sets whether weight decay applies to embeddings, as it does by default. They are the tables of
    /// [`zero_core::layer::Tensors::embedding`], and so a head that is tied to one.
    ///
    /// # Panics
    /// After [`Engine::update_on_host`].
    pub fn decay_embeddings(&mut self, decay: bool) {
        assert!(self.host_calls.is_empty(), "the host knows already what decays");
        self.decays_embeddings = decay;
        self.segments = update::segments(self.program, &self.arena.places(), decay);
    }

    /// Sets whether a device with queues receives each step op by op, instead of keeping a step and repeating it as a
    /// whole. The bits are the same. Other devices ignore this.
    pub fn run_eagerly(&mut self, eager: bool) {
        self.is_eager = eager;
    }

    /// From here on, a wait for another rank or for the tier ends after `timeout`, with an error that names what is awaited.
    pub fn set_timeout(&mut self, timeout: Duration) {
        self.timeout = timeout;
        self.ranks.transport.set_timeout(timeout);
        let watchdog = self.ranks.transport.watchdog();
        self.tier.iter_mut().for_each(|tier| (tier.watchdog, tier.timeout) = (Arc::clone(&watchdog), timeout));
    }

    /// The watchdog that reports and ends waits of this rank.
    pub fn watchdog(&self) -> Arc<dyn Watchdog + 'p> {
        self.ranks.transport.watchdog()
    }

    /// The program.
    pub fn program(&self) -> &'static Program<D> {
        self.program
    }

    /// The plan.
    pub fn plan(&self) -> &'p Plan<'p> {
        self.plan
    }

    /// The memory of this rank.
    pub fn arena(&self) -> &Arena<'p, D> {
        &self.arena
    }

    /// The transport, which says when bytes of other ranks are ready.
    pub fn transport(&self) -> &T {
        &self.ranks.transport
    }

    /// The device, which computes.
    pub fn device(&self) -> &D {
        &self.ranks.device
    }

    /// Bytes of parameters, gradients, activations and numbers that this rank has received from other ranks so far:
    /// counted where they were copied or read, not computed from the plan.
    pub fn moved(&self) -> Moved {
        self.ranks.moved()
    }

    /// Bytes exchanged between this rank and the ranks of other hosts so far: counted by message.
    pub fn crossed(&self) -> Crossed {
        self.ranks.transport.crossed()
    }

    /// The offset between this host's clock and that of rank 0's host. If there are several hosts, the first rank of
    /// each returns it. Every rank must call it.
    ///
    /// # Errors
    /// [`Lost`] if another rank has ended.
    pub fn compare_clocks(&mut self) -> Result<Option<ClockLook>, Lost> {
        // All ranks have arrived when this returns, so no rank is late.
        self.gather_numbers(&[0.0])?;
        self.ranks.transport.compare_clocks()
    }

    /// Records when each op of the next `steps` steps begins and ends.
    pub fn record(&mut self, steps: usize) {
        self.record = Some(Record::new(self.steps_done, self.arena.pipeline_stage().step.len(), steps));
    }

    /// The record, if [`Engine::record`] asked for one.
    pub fn take_record(&mut self) -> Option<Record> {
        self.record.take()
    }

    /// One step. `batch` fills the inputs and targets of a micro-batch: words of the kind that the program says, where
    /// an f32 is stored as its bits. If the step goes wrong, `batch` is called again for the same micro-batches, to
    /// find the place.
    ///
    /// # Errors
    /// [`RunError`]. After [`NonFinite`] or [`OutOfRange`], parameters are those before the step; after [`Lost`], the
    /// engine is unusable.
    ///
    /// # Panics
    /// Like every call that all ranks make: if parameters have not been set, if the last call ended in [`Lost`] or a
    /// panic, or if another rank makes another call.
    pub fn step(
        &mut self,
        hyper: &Hyper,
        mut batch: impl FnMut(usize, &mut [u32], &mut [u32]),
    ) -> Result<StepReport, RunError> {
        self.begin_walk();
        let result = self.run_step(hyper, &mut batch);
        self.end(result)
    }

    fn run_step(&mut self, hyper: &Hyper, batch: Fill) -> Result<StepReport, RunError> {
        let records = self.record.as_mut().is_some_and(Record::begin_step);
        if !records && !self.is_eager {
            let phase = self.ranks.transport.phase();
            self.ranks.device.begin_repeated(2 * phase + u64::from(self.decays_embeddings));
        }
        let mut walk = WalkState { learns: true, ..self.new_walk() };
        let (block, at_use) = (hyper.block(self.steps_done), self.plan.config.updates_at_use());
        if !at_use {
            self.ranks.device.stage(self.arena.hyper_mut(), |to| to.fill(block));
        }
        self.is_update_due = false;
        self.awaited.begin_pass(self.plan, &self.ranks.device);
        for (index, &op) in self.arena.pipeline_stage().step.iter().enumerate() {
            let start_ns = records.then(now_ns);
            if at_use && op == Op::Agree {
                // Until here, updates needed the numbers and the report of the step before.
                self.ranks.device.stage(self.arena.hyper_mut(), |to| to.fill(block));
            }
            self.execute((Pass::Train, index), op, &mut walk, batch)?;
            if records {
                // Op by op: on a device with queues, nothing overlaps in a step that is recorded.
                self.finish()?;
            }
            if let (Some(start_ns), Some(record)) = (start_ns, &mut self.record) {
                record.end_op(start_ns);
            }
        }
        self.join_queues();
        self.end_pass_of_tier()?;
        self.ranks.device.end_repeated();
        self.require_device()?;
        // The host needs the results of the step only here. Until they are ready, this rank is at its last op.
        self.finish()?;
        self.count_travelled();
        self.arena.begin(None);
        let mut report = [bytemuck::Zeroable::zeroed()];
        self.ranks.device.read(self.arena.report(), &mut report);
        let [report @ ReportBlock { loss, gradient_norm, .. }] = report;
        if !report.is_finite() {
            return Err(self.diagnose(Pass::Train, batch)?);
        }
        self.record.iter_mut().filter(|_| records).for_each(Record::end_step);
        self.steps_done += 1;
        self.is_update_due = at_use;
        Ok(StepReport { loss, gradient_norm })
    }

    /// Sends all ranks a number of the first rank of the last pipeline stage. Every rank must call it.
    ///
    /// # Errors
    /// [`Lost`] if another rank has ended.
    pub fn from_last_pipeline_stage(&mut self, number: f64) -> Result<f64, Lost> {
        let first = self.agreement.ranks_by_data()[0];
        Ok(self.gather_numbers(&[number])?[first])
    }

    /// Gathers equally many numbers of each rank, in the order of ranks. Every rank must call it.
    ///
    /// # Errors
    /// [`Lost`] if another rank has ended.
    pub fn gather_numbers(&mut self, mine: &[f64]) -> Result<&[f64], Lost> {
        self.begin();
        let result = self.exchange(ExchangeReason::Numbers, mine);
        self.end(result)?;
        Ok(self.exchanged_of(mine.len()))
    }

    /// Begins a walk over a table.
    fn new_walk(&mut self) -> WalkState {
        self.ranks.position.restart();
        // The walk's activations may lie where caches did.
        self.ranks.position.is_decoding = false;
        self.cached.fill(0);
        let words = self.arena.own_words_mut(self.plan.agreed_values());
        self.ranks.device.stage(words, |words| words.fill(0.0));
        self.tier.iter().for_each(TierOfRank::begin_pass);
        self.carried = TierBytes::default();
        let shape = (self.plan.config.sequences, self.plan.config.length);
        let counted = shape.0 * shape.1;
        WalkState { finding: None, misfit: None, shape, counted, learns: false, headless: false, decodes: false }
    }

    /// Ends a walk over a table.
    fn end_pass(&mut self) {
        self.join_queues();
        self.arena.begin(None);
    }

    /// Makes the compute queue wait for everything that the other queues were asked to do in a walk.
    fn join_queues(&mut self) {
        self.awaited.end_pass(self.plan, &self.ranks.device);
        self.ranks.transport.end_pass(&self.ranks.device);
    }

    /// Counts what has travelled between tiers and the window in a step, all of which has arrived.
    fn count_travelled(&mut self) {
        let of_tier = self.tier.as_ref().map(TierOfRank::moved_in_pass).unwrap_or_default();
        self.tier_moved.read += of_tier.read + self.carried.read;
        self.tier_moved.written += of_tier.written + self.carried.written;
    }

    /// Runs the next op of this rank's table, which is number `index` of `pass`.
    fn execute(&mut self, (pass, index): (Pass, usize), op: Op, walk: &mut WalkState, batch: Fill) -> Result<(), Lost> {
        self.arena.begin(Some((pass, index)));
        self.awaited.enter(self.arena.pipeline_stage(), pass, index, &self.ranks.device);
        if let Some(tier) = self.tier.as_ref().filter(|_| !D::QUEUES) {
            tier.enter(pass, index)?;
        }
        // SAFETY: `op` is the next of the table of this rank's pipeline stage, which has passed its check, and other ranks
        // are at theirs: see the argument at the top.
        unsafe { self.ranks.begin(op) }?;
        match op {
            Op::Forward { unit, micro_batch, slot } => {
                self.fill_batch(unit, micro_batch, slot, walk, batch);
                self.forward(unit, slot, walk);
            }
            Op::Recompute { unit, slot, .. } => self.recompute(unit, slot, walk),
            Op::Backward { unit, micro_batch, slot } => self.backward(unit, micro_batch, slot, walk),
            Op::Agree => self.agree()?,
            Op::Momentum { unit } => self.momentum(unit),
            Op::Update { unit, piece } => self.update(unit, piece),
            Op::Offer { unit } => self.offer(unit),
            Op::StoreOffered { unit } => self.store_offered(unit),
            op if op.traits().stream.is_of_tier() => {
                // SAFETY: as above; before a run, the streams of the plan are proven to order all accesses to its places.
                unsafe { self.travel((pass, index), op) };
            }
            op => {
                // SAFETY: as above.
                unsafe { self.ranks.execute(op, self.share(walk)) };
                self.square_sums(op);
            }
        }
        // SAFETY: as above.
        unsafe { self.ranks.end(op) };
        self.awaited.leave(pass, index, &self.ranks.device);
        self.require_device()
    }

    /// Waits for everything that the tier was asked for in a pass. A device with queues waits for it itself.
    fn end_pass_of_tier(&self) -> Result<(), Lost> {
        self.tier.as_ref().filter(|_| !D::QUEUES).map_or(Ok(()), |tier| tier.end_pass(&|| false))
    }

    /// Makes bytes travel in a pass between a tier and the device: by the tier, or by the device itself.
    ///
    /// # Safety
    /// It is the op with this index, and the next of this rank's table, which has been proven.
    unsafe fn travel(&mut self, at: (Pass, usize), op: Op) {
        match &self.tier {
            // SAFETY: by the caller's promise.
            Some(tier) if !D::QUEUES => unsafe { tier.order(at, op) },
            // SAFETY: likewise.
            _ => unsafe { self.carry_all(at.0, op) },
        }
    }

    /// The part of a micro-batch that a walk works on.
    fn share(&self, walk: &WalkState) -> Share {
        Share { tokens: walk.shape.0 * walk.shape.1, of: self.plan.config.tokens() }
    }
}
