//! Evaluation: walks that only go forward: the loss of data that the model does not learn from, and predictions, also
//! token by token. Never changes a parameter.

use zero_plan::{Config, Op, Pass};

use super::calls::ExchangeReason;
use super::words::StepWords;
use super::{Engine, Fill, RunError, WalkState};
use zero_core::device::Device;
use zero_core::layer::Earlier;
use zero_core::lost::Lost;
use zero_core::transport::Transport;

/// The losses of a rank in an evaluation of several micro-batches.
#[derive(Clone, Copy, Debug, Default)]
pub struct Evaluated {
    /// Sum of the mean losses of whole sequences, in their order.
    of_sequences: f64,
    /// Sum of the losses of the tokens of sequences that were cut.
    of_cut: f64,
    tokens: usize,
}

impl<'p, D: Device, T: Transport<'p, D>> Engine<'p, D, T> {
    /// Mean loss of one micro-batch on each rank, over all ranks, without learning from it.
    ///
    /// # Errors
    /// [`RunError`].
    pub fn evaluate(&mut self, batch: impl FnMut(usize, &mut [u32], &mut [u32])) -> Result<f64, RunError> {
        let Config { sequences, length, .. } = self.plan.config;
        let (sum, tokens) = self.evaluate_first(&mut Evaluated::default(), sequences * length, batch)?;
        Ok(sum / tokens as f64)
    }

    /// Adds to `so_far` the losses of the first `counted` tokens of this rank's micro-batch; the rest of it is padding. Returns the sum
    /// of what all ranks have added so far, and the number of those tokens: equal bits, however the sequences of a rank are divided into
    /// micro-batches. `counted` may differ between ranks and may be 0. Every rank must call it.
    ///
    /// # Errors
    /// [`RunError`].
    pub fn evaluate_first(
        &mut self,
        so_far: &mut Evaluated,
        counted: usize,
        mut batch: impl FnMut(usize, &mut [u32], &mut [u32]),
    ) -> Result<(f64, usize), RunError> {
        self.begin_reading()?;
        let result = self.run_first(so_far, counted, &mut batch);
        self.end(result)
    }

    fn run_first(&mut self, so_far: &mut Evaluated, counted: usize, batch: Fill) -> Result<(f64, usize), RunError> {
        let walk = WalkState { counted, ..self.new_walk() };
        self.ranks.device.stage(self.arena.own_words_mut(1), |words| words[0] = so_far.of_sequences);
        self.walk_evaluation(walk, batch)?;
        let mut means = [0.0; 2];
        self.finish()?;
        self.ranks.device.read(self.arena.own_words(2), &mut means);
        let length = self.plan.config.length;
        so_far.of_sequences = means[0];
        so_far.of_cut += means[1] * (counted % length) as f64;
        so_far.tokens += counted;
        let sum = so_far.of_sequences * length as f64 + so_far.of_cut;
        self.exchange(ExchangeReason::Evaluate, &[sum, so_far.tokens as f64])?;
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
        self.begin_reading()?;
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
    /// As [`Engine::decode_slots`].
    pub fn decode(&mut self, input: &[u32], before: usize, logits: &mut [f32]) -> Result<bool, Lost> {
        self.decode_slots(&[Earlier { slot: 0, tokens: before }], input, logits)
    }

    /// [`Engine::decode`] of several sequences, each with a cache in a slot of its own. `input` has the next tokens of each:
    /// as many of one sequence as wanted, or one of each of several. `logits` (sequences, outputs) are those of the last
    /// tokens, and no bit of a sequence depends on which others are decoded in the same calls.
    ///
    /// # Errors
    /// [`Lost`] if another rank has ended.
    ///
    /// # Panics
    /// If fewer tokens are cached than come earlier, if there are more tokens in total than in a sequence of the plan, or if
    /// there is no such slot or two sequences have the same; and as [`Engine::predict`].
    pub fn decode_slots(&mut self, earlier: &[Earlier], input: &[u32], logits: &mut [f32]) -> Result<bool, Lost> {
        self.require_input(input);
        let (tokens, longest) = (input.len() / self.program.inputs.words.count, self.plan.config.length);
        let (sequences, length) = (earlier.len(), tokens / earlier.len().max(1));
        assert!(tokens > 0 && sequences * length == tokens, "{tokens} tokens for {sequences} sequences");
        for (index, &Earlier { slot, tokens: before }) in earlier.iter().enumerate() {
            let cached = *self.cached.get(slot).unwrap_or_else(|| panic!("no slot {slot}"));
            assert!(before <= cached, "{before} tokens come before, but {cached} are cached: decode those first");
            assert!(before + length <= longest, "{length} tokens after {before}, expected {longest} or fewer together");
            assert!(earlier[..index].iter().all(|other| other.slot != slot), "two sequences in slot {slot}");
        }
        self.begin_reading()?;
        // A new walk forgets what is cached.
        let cached = core::mem::take(&mut self.cached);
        let walk = WalkState { shape: (sequences, length), headless: true, decodes: true, ..self.new_walk() };
        self.cached = cached;
        self.earlier.clear();
        self.earlier.extend_from_slice(earlier);
        self.ranks.position.is_decoding = true;
        let result = self.run_prediction(input, walk, logits);
        self.ranks.position.is_decoding = false;
        for &Earlier { slot, tokens } in earlier {
            self.cached[slot] = if result.is_ok() { tokens + length } else { 0 };
        }
        self.end(result)
    }

    fn run_prediction(&mut self, input: &[u32], mut walk: WalkState, logits: &mut [f32]) -> Result<bool, Lost> {
        let shape = walk.shape;
        let mut has_head = false;
        self.awaited.begin_pass(self.plan, &self.ranks.device);
        for (index, &op) in self.arena.pipeline_stage().evaluation.iter().enumerate() {
            self.execute((Pass::Evaluate, index), op, &mut walk, &mut |_, inputs, _| inputs.copy_from_slice(input))?;
            if let Op::Forward { unit, slot, .. } = op
                && unit + 1 == self.plan.units.len()
            {
                self.finish()?;
                self.logits(shape, slot, logits);
                has_head = true;
            }
        }
        self.end_pass();
        Ok(has_head)
    }
}
