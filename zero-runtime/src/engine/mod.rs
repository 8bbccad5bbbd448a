//! Engine: executes a plan. A step is a loop over a static table; nothing is allocated in it, nothing is looked up, and
//! nothing is decided that the plan has not decided.
//!
//! `compute` has the ops that call layers, `update` those at the end of a step, `parameters` fills and reads parameters,
//! `diagnose` finds out where a number went wrong.

mod compute;
mod diagnose;
mod parameters;
mod update;

use std::sync::Arc;

use zero_plan::{Op, Pass, Plan};

pub use diagnose::{NonFinite, Phase};
pub use update::Hyper;

use crate::arena::Arena;
use crate::device::{Cpu, Write};
use crate::layer::Activation;
use crate::model::Model;
use crate::transport::{Lost, Transport};
use update::Segment;

/// One element of what a model takes.
pub type InputOf<M> = <<M as Model>::Input as Activation>::Element;

/// Why a step could not be done.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum RunError {
    /// A loss or a gradient is infinite or not a number.
    #[error(transparent)]
    NonFinite(#[from] NonFinite),
    /// Another rank has ended.
    #[error(transparent)]
    Lost(#[from] Lost),
}

/// What a step came to, the same on all ranks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepReport {
    /// Mean loss over all tokens of the step, in nats.
    pub loss: f64,
    /// Norm of the mean gradient, before clipping.
    pub gradient_norm: f64,
}

/// One rank of a run.
pub struct Engine<'p, M: Model, T> {
    plan: &'p Plan<'p>,
    arena: Arc<Arena<'p>>,
    transport: T,
    device: Cpu,
    /// For each unit, the stretches of what this rank updates that share a weight decay.
    segments: Vec<Vec<Segment>>,
    /// For each unit, the unit whose backward writes first to its gradients: itself, or one that is tied to it.
    first_writer: Vec<usize>,
    /// Numbers of all ranks in an exchange.
    exchanged: Vec<[f64; 2]>,
    steps_done: u64,
    /// Units whose parameters have been set.
    loaded: usize,
    model: core::marker::PhantomData<fn() -> M>,
}

/// What one walk over a schedule gathers on the way.
struct Walk {
    /// Sum of the mean losses of the micro-batches so far.
    loss: f64,
    /// Look at every result, and note the first that is not finite.
    finding: Option<diagnose::Search>,
    /// Sequences, and tokens in each of them.
    shape: (usize, usize),
    /// Stop before the head and leave its input: for predictions.
    headless: bool,
}

impl<'p, M: Model, T: Transport<'p>> Engine<'p, M, T> {
    /// An engine for the plan of `transport`, which is [`Model::PLAN`] or another plan of the same units. Parameters are
    /// zero until [`Engine::initialize`] or [`Engine::load`].
    pub fn new(transport: T) -> Self {
        let arena = Arc::clone(transport.arena());
        let plan = arena.plan();
        assert_eq!(plan.units, M::PLAN.units, "a plan of another model");
        let writers = |unit| plan.units.iter().rposition(|other| other.source == unit).unwrap_or(unit);
        Self {
            segments: update::segments::<M>(plan, arena.rank()),
            first_writer: (0..plan.units.len()).map(writers).collect(),
            exchanged: vec![[0.0; 2]; plan.config.ranks],
            plan,
            arena,
            transport,
            device: Cpu,
            steps_done: 0,
            loaded: 0,
            model: core::marker::PhantomData,
        }
    }

    /// The plan.
    pub fn plan(&self) -> &'p Plan<'p> {
        self.plan
    }

    /// The memory of this rank.
    pub fn arena(&self) -> &Arena<'p> {
        &self.arena
    }

    /// What carries bytes.
    pub fn transport(&self) -> &T {
        &self.transport
    }

    /// One step. `batch` fills a micro-batch: its inputs and targets; it is asked again for the same micro-batches when
    /// the step went wrong and the place is searched for.
    ///
    /// # Errors
    /// [`RunError`]. After [`NonFinite`], parameters are those before the step; after [`Lost`], they may be of no use.
    pub fn step(
        &mut self,
        hyper: &Hyper,
        mut batch: impl FnMut(usize, &mut [InputOf<M>], &mut [u32]),
    ) -> Result<StepReport, RunError> {
        let mut walk = self.new_walk();
        let mut agreed = None;
        for &op in self.plan.step {
            match op {
                Op::Agree => {
                    let report = self.agree(walk.loss)?;
                    if !(report.loss.is_finite() && report.gradient_norm.is_finite()) {
                        return Err(self.diagnose(Pass::Train, batch)?.into());
                    }
                    agreed =
                        Some((report, hyper.adamw(self.steps_done, report.gradient_norm, self.gradients_summed())));
                }
                Op::Update { unit } => {
                    let (_, adamw) = agreed.as_ref().expect("the schedule agrees before it updates");
                    self.update(unit, adamw);
                }
                op => self.execute(op, &mut walk, &mut batch)?,
            }
        }
        self.steps_done += 1;
        let (report, _) = agreed.expect("the schedule of a step agrees once");
        Ok(report)
    }

    /// Mean loss of one micro-batch on each rank, over all ranks, without learning from it.
    ///
    /// # Errors
    /// [`RunError`].
    pub fn evaluate(&mut self, mut batch: impl FnMut(usize, &mut [InputOf<M>], &mut [u32])) -> Result<f64, RunError> {
        let mut walk = self.new_walk();
        for &op in self.plan.evaluation {
            self.execute(op, &mut walk, &mut batch)?;
        }
        self.transport.exchange([walk.loss, 0.0], &mut self.exchanged)?;
        let loss = update::tree_sum(&self.exchanged)[0] / self.plan.config.ranks as f64;
        if !loss.is_finite() {
            return Err(self.diagnose(Pass::Evaluate, batch)?.into());
        }
        Ok(loss)
    }

    /// Logits of what comes after `input`, a sequence no longer than the plan's. Every rank must call it, and gets them.
    ///
    /// # Errors
    /// [`Lost`] if another rank has ended.
    pub fn predict(&mut self, input: &[InputOf<M>], logits: &mut [f32]) -> Result<(), Lost> {
        let length = input.len() / M::Input::WIDTH;
        assert!(length <= self.plan.config.length, "a sequence of {length} tokens is longer than the plan's");
        let mut walk = Walk { shape: (1, length), headless: true, ..self.new_walk() };
        for &op in self.plan.evaluation {
            self.execute(op, &mut walk, &mut |_, inputs, _| inputs.copy_from_slice(input))?;
            if op == (Op::Forward { unit: self.plan.units.len() - 1, micro_batch: 0 }) {
                self.logits(length, logits);
            }
        }
        Ok(())
    }

    /// Two numbers of each rank, in the order of ranks. Every rank must call it.
    ///
    /// # Errors
    /// [`Lost`] if another rank has ended.
    pub fn gather_numbers(&mut self, mine: [f64; 2]) -> Result<&[[f64; 2]], Lost> {
        self.transport.exchange(mine, &mut self.exchanged)?;
        Ok(&self.exchanged)
    }

    fn new_walk(&self) -> Walk {
        let shape = (self.plan.config.sequences, self.plan.config.length);
        Walk { loss: 0.0, finding: None, shape, headless: false }
    }

    /// Executes an op that stands before the agreement.
    fn execute(
        &mut self,
        op: Op,
        walk: &mut Walk,
        batch: &mut impl FnMut(usize, &mut [InputOf<M>], &mut [u32]),
    ) -> Result<(), Lost> {
        match op {
            Op::Gather { unit, slot } => self.transport.gather(unit, slot),
            Op::Wait { unit } => self.transport.wait(unit)?,
            Op::Release { unit } => self.transport.release(unit),
            Op::Forward { unit, micro_batch } => {
                if unit == 0 {
                    self.fill_batch(micro_batch, walk, batch);
                }
                self.forward(unit, walk);
            }
            Op::Backward { unit, .. } => self.backward(unit, walk),
            Op::Claim { bucket } => self.transport.claim(bucket)?,
            Op::Reduce { bucket, .. } => self.transport.reduce(bucket),
            Op::Settle { bucket, micro_batch } => {
                let write = if micro_batch == 0 { Write::Set } else { Write::Add };
                self.transport.settle(bucket, write)?;
            }
            Op::Spread { bucket } => self.transport.spread(bucket)?,
            Op::Agree | Op::Update { .. } => unreachable!("a step handles {op:?} itself"),
        }
        Ok(())
    }
}
