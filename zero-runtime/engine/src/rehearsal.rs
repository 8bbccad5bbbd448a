//! Rehearsal: a walk over all ops of a step and of an evaluation in which a device computes nothing, but prepares
//! everything that the ops need. Never waits for another rank.
#![allow(unsafe_code)]

use zero_plan::{Op, Pass};

use super::{Engine, WalkState};
use zero_core::device::Device;
use zero_core::lost::Lost;
use zero_core::transport::Transport;

impl<'p, D: Device, T: Transport<'p, D>> Engine<'p, D, T> {
    /// Prepares everything that the first step, and other ranks with it, would otherwise wait for: on a device with
    /// queues, kernels and algorithms for matrix products. This may take long. Parameters need not be set yet.
    ///
    /// # Errors
    /// [`Lost::Device`], with the op that cannot be prepared.
    pub fn rehearse(&mut self) -> Result<(), Lost> {
        if !D::QUEUES {
            return Ok(());
        }
        for pass in Pass::ALL {
            let mut walk = WalkState { learns: pass == Pass::Train, ..self.new_walk() };
            for (index, &op) in self.arena.pipeline_stage().ops(pass).iter().enumerate() {
                self.arena.begin(Some((pass, index)));
                self.ranks.device.rehearse();
                self.rehearse_op(op, &mut walk);
                self.ranks.device.ready();
                self.ranks.require_device()?;
                self.ranks.position.pass(op);
            }
        }
        self.arena.begin(None);
        self.ranks.finish()
    }

    fn rehearse_op(&mut self, op: Op, walk: &mut WalkState) {
        match op {
            Op::Forward { unit, micro_batch, slot } => {
                self.fill_batch(unit, micro_batch, slot, walk, &mut |_, _, _| ());
                self.forward(unit, slot, walk);
            }
            Op::Recompute { unit, slot, .. } => self.recompute(unit, slot, walk),
            Op::Backward { unit, micro_batch, slot } => self.backward(unit, micro_batch, slot, walk),
            Op::Agree => {
                self.square(0..self.plan.units.len());
                self.conclude();
            }
            Op::Momentum { unit } => self.momentum(unit),
            Op::Update { unit, piece } => self.update(unit, piece),
            Op::Offer { unit } => self.offer(unit),
            // SAFETY: the device rehearses: it touches none of the bytes that this would read or write.
            op => unsafe { self.ranks.rehearse(op, self.share(walk)) },
        }
    }
}
