//! Evaluation: walks that only go forward: the loss of data that the model does not learn from, and predictions, also
//! token by token. Never changes a parameter.

use zero_plan::{Op, Pass};

use super::calls::ExchangeReason;
use super::words::StepWords;
use super::{Engine, Fill, RunError, WalkState};
use zero_core::device::Device;
use zero_core::lost::Lost;
use zero_core::transport::Transport;

impl<'p, D: Device, T: Transport<'p, D>> Engine<'p, D, T> {
    /// Mean loss of one micro-batch on each rank, over all ranks, without learning from it.
    ///
    /// # Errors
    /// [`RunError`].
    pub fn evaluate(&mut self, mut batch: impl FnMut(usize, &mut [u32], &mut [u32])) -> Result<f64, RunError> {
        self.begin_walk();
        let result = self.run_evaluation(&mut batch);
        self.end(result)
    }

    fn run_evaluation(&mut self, batch: Fill) -> Result<f64, RunError> {
        let walk = self.new_walk();
        self.walk_evaluation(walk, batch)?;
        self.exchange_words(ExchangeReason::Evaluate, 1)?;
        let loss = self.agreement.summed_loss(self.exchanged_of(1), 1) / self.plan.config.mesh.data_ranks() as f64;
        if !loss.is_finite() {
            return Err(self.diagnose(Pass::Evaluate, batch)?);
        }
        Ok(loss)
    }

    /// Sum of the losses of the first `counted` tokens of each rank's micro-batch, over all ranks, and the number of
    /// these tokens. `counted` may differ between ranks and may be 0; the rest of a micro-batch is padding. Every rank
    /// must call it.
    ///
    /// # Errors
    /// [`RunError`].
    pub fn evaluate_first(
        &mut self,
        counted: usize,
        mut batch: impl FnMut(usize, &mut [u32], &mut [u32]),
    ) -> Result<(f64, usize), RunError> {
        self.begin_walk();
        let result = self.run_first(counted, &mut batch);
        self.end(result)
    }

    fn run_first(&mut self, counted: usize, batch: Fill) -> Result<(f64, usize), RunError> {
        let walk = WalkState { counted, ..self.new_walk() };
        self.walk_evaluation(walk, batch)?;
        let mut mean = [0.0];
        self.ranks.finish()?;
        self.ranks.device.read(self.arena.own_words(1), &mut mean);
        self.exchange(ExchangeReason::Evaluate, &[mean[0] * counted as f64, counted as f64])?;
        let of_rank = |&rank: &usize| [self.exchanged[2 * rank], self.exchanged[2 * rank + 1]];
        let all = self.agreement.ranks_by_data().iter().map(of_rank);
        let [sum, tokens] = all.fold([0.0; 2], |all, of_rank| [all[0] + of_rank[0], all[1] + of_rank[1]]);
        if !sum.is_finite() {
            return Err(self.diagnose(Pass::Evaluate, batch)?);
        }
        Ok((sum, tokens as usize))
    }

    fn walk_evaluation(&mut self, mut walk: WalkState, batch: Fill) -> Result<(), Lost> {
        self.awaited.begin_pass(self.plan, &self.ranks.device);
        for (index, &op) in self.arena.pipeline_stage().evaluation.iter().enumerate() {
            self.execute((Pass::Evaluate, index), op, &mut walk, batch)?;
        }
        self.end_pass();
        Ok(())
    }

    /// The predictions of the head after `input`, a sequence no longer than the plan's: logits, unless the head is of
    /// another kind. Every rank must call it. Ranks of the last pipeline stage receive the predictions, and return true.
    ///
    /// # Errors
    /// [`Lost`] if another rank has ended.
    ///
    /// # Panics
    /// If the sequence is too long or empty, or has an id that is not in the model's vocabulary; and as
    /// [`Engine::step`].
    pub fn predict(&mut self, input: &[u32], logits: &mut [f32]) -> Result<bool, Lost> {
        self.require_input(input);
        self.begin_walk();
        let walk =
            WalkState { shape: (1, input.len() / self.program.inputs.words.count), headless: true, ..self.new_walk() };
        let result = self.run_prediction(input, walk, logits);
        self.end(result)
    }

    /// [`Engine::predict`] after `input` and the `before` tokens of earlier calls, whose keys and values are cached: a
    /// prompt in one call, and then token by token. A call continues from the last one, or from fewer of its tokens; a
    /// `before` of 0 begins a sequence. Any other walk over a table, such as a step or an evaluation, drops the cache.
    ///
    /// # Errors
    /// [`Lost`] if another rank has ended.
    ///
    /// # Panics
    /// If fewer tokens than `before` are cached, or if there are more tokens in total than in a sequence of the plan;
    /// and as [`Engine::predict`].
    pub fn decode(&mut self, input: &[u32], before: usize, logits: &mut [f32]) -> Result<bool, Lost> {
        self.require_input(input);
        let (length, cached, longest) =
            (input.len() / self.program.inputs.words.count, self.cached, self.plan.config.length);
        assert!(before <= cached, "{before} tokens come before, but {cached} are cached: decode those first");
        assert!(before + length <= longest, "{length} tokens after {before}, expected {longest} or fewer together");
        self.begin_walk();
        let walk = WalkState { shape: (1, length), headless: true, before: Some(before), ..self.new_walk() };
        self.ranks.position.is_decoding = true;
        let result = self.run_prediction(input, walk, logits);
        self.ranks.position.is_decoding = false;
        self.cached = if result.is_ok() { before + length } else { 0 };
        self.end(result)
    }

    fn run_prediction(&mut self, input: &[u32], mut walk: WalkState, logits: &mut [f32]) -> Result<bool, Lost> {
        let length = walk.shape.1;
        let mut has_head = false;
        self.awaited.begin_pass(self.plan, &self.ranks.device);
        for (index, &op) in self.arena.pipeline_stage().evaluation.iter().enumerate() {
            self.execute((Pass::Evaluate, index), op, &mut walk, &mut |_, inputs, _| inputs.copy_from_slice(input))?;
            if let Op::Forward { unit, slot, .. } = op
                && unit + 1 == self.plan.units.len()
            {
                self.ranks.finish()?;
                self.logits(length, slot, logits);
                has_head = true;
            }
        }
        self.end_pass();
        Ok(has_head)
    }
}
