//! Calls: which call a rank may make next, and for which reason ranks exchange numbers. Never lets a rank make a call
//! that the other ranks do not make, because they would read memory that it writes.
#![allow(unsafe_code)]

use super::Engine;
use super::tier::TierOfRank;
use super::words::StepWords;
use zero_core::device::Device;
use zero_core::lost::Lost;
use zero_core::transport::Transport;

/// Why ranks exchange numbers.
#[derive(Clone, Copy)]
pub(super) enum ExchangeReason {
    Agree,
    Evaluate,
    Diagnose,
    Numbers,
}

impl<'p, D: Device, T: Transport<'p, D>> Engine<'p, D, T> {
    /// Begins a call that exchanges numbers with other ranks.
    pub(super) fn begin(&mut self) {
        assert!(
            self.is_in_order,
            "the last call of this engine did not finish, so other ranks expect a different call"
        );
        self.is_in_order = false;
    }

    /// Begins a call that uses parameters.
    pub(super) fn begin_walk(&mut self) {
        let (loaded, units) = (self.loaded, self.plan.units.len());
        assert!(loaded == units, "`initialize` or `load` come first: {loaded} of {units} units have parameters");
        self.tier();
        self.begin();
    }

    /// Begins a call that reads parameters as they are after the last step.
    pub(super) fn begin_reading(&mut self) -> Result<(), Lost> {
        self.finish_step()?;
        self.begin_walk();
        Ok(())
    }

    /// Ends a call and returns its result. The engine accepts further calls unless another rank was lost. A panic never
    /// gets here.
    pub(super) fn end<R, E: MayBeLost>(&mut self, result: Result<R, E>) -> Result<R, E> {
        self.is_in_order = !result.as_ref().is_err_and(E::is_lost);
        result
    }

    /// Gathers the first `len` words of each rank, for the same reason on all of them; the host does not read them.
    pub(super) fn exchange_on_device(&mut self, reason: ExchangeReason, len: usize) -> Result<(), Lost> {
        // Between steps, a failure is told here, before ranks agree on what comes next.
        let known = self.tier.as_ref().map_or(Ok(()), TierOfRank::require);
        self.unless_tier_failed(known)?;
        let call = self.steps_done << 32 | (len as u64) << 8 | reason as u64;
        // SAFETY: an exchange changes no parameters, gradients or parcels; any code after it relies on all ranks having
        // made it for the same reason, which `call` says.
        unsafe { self.ranks.exchange(call, len) }
    }

    /// The same, but the host reads the words: see [`Engine::exchanged_of`].
    pub(super) fn exchange_words(&mut self, reason: ExchangeReason, len: usize) -> Result<(), Lost> {
        self.exchange_on_device(reason, len)?;
        self.finish()?;
        let all = len * self.plan.config.mesh.ranks();
        self.ranks.device.read(self.arena.all_words(len), &mut self.exchanged[..all]);
        Ok(())
    }

    /// Gathers numbers of each rank.
    pub(super) fn exchange(&mut self, reason: ExchangeReason, mine: &[f64]) -> Result<(), Lost> {
        self.ranks.device.stage(self.arena.own_words_mut(mine.len()), |words| words.copy_from_slice(mine));
        self.exchange_words(reason, mine.len())
    }

    /// The numbers that ranks have exchanged, `len` each, in the order of ranks.
    pub(super) fn exchanged_of(&self, len: usize) -> &[f64] {
        &self.exchanged[..len * self.plan.config.mesh.ranks()]
    }

    /// Panics unless `input` is a sequence that the model accepts.
    pub(super) fn require_input(&self, input: &[u32]) {
        let (length, longest) = (input.len() / self.program.inputs.words.count, self.plan.config.length);
        assert!((1..=longest).contains(&length), "a sequence of {length} tokens, expected 1 to {longest}");
        if let Some(vocabulary) = self.program.inputs.vocabulary {
            let outside = input.iter().find(|&&id| id as usize >= vocabulary);
            assert!(outside.is_none(), "input id {outside:?}, expected less than {vocabulary}, the vocabulary");
        }
    }
}

/// An error that may mean that another rank has ended.
pub(super) trait MayBeLost {
    fn is_lost(&self) -> bool;
}

impl MayBeLost for Lost {
    fn is_lost(&self) -> bool {
        true
    }
}

impl MayBeLost for super::RunError {
    fn is_lost(&self) -> bool {
        matches!(self, Self::Lost(_))
    }
}
