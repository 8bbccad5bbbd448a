//! Parameters: filled at the start, read whole at the end. A parameter's first value depends on the seed and its place in
//! the model alone, never on who owns it.
#![allow(unsafe_code)]

use zero_plan::Kind;

use super::Engine;
use crate::layer::{Init, Tensor, Tensors};
use crate::model::Model;
use crate::random::normal;
use crate::transport::{Lost, Transport};

impl<'p, M: Model, T: Transport<'p>> Engine<'p, M, T> {
    /// The parameter tensors of a unit, in the order of its flat buffer. None where it is tied.
    pub fn tensors(&self, unit: usize) -> Vec<Tensor> {
        let mut tensors = Tensors::default();
        if self.plan.units[unit].params > 0 {
            (M::CODE[self.plan.units[unit].position].tensors)(&mut tensors);
        }
        let tensors = tensors.into_list();
        let named: usize = tensors.iter().map(Tensor::len).sum();
        assert_eq!(named, self.plan.units[unit].params, "{}: tensors do not add up to PARAMS", self.plan.units[unit]);
        tensors
    }

    /// Gives every parameter its first value.
    pub fn initialize(&mut self, seed: u64) {
        let mut before = 0;
        for unit in 0..self.plan.units.len() {
            let mut flat = vec![0.0; self.plan.units[unit].params];
            for tensor in self.tensors(unit) {
                let values = &mut flat[tensor.start..tensor.start + tensor.len()];
                match tensor.init {
                    Init::Zeros => {}
                    Init::Ones => values.fill(1.0),
                    Init::Normal(deviation) => {
                        for (i, value) in values.iter_mut().enumerate() {
                            *value = deviation * normal(seed, (before + tensor.start + i) as u64);
                        }
                    }
                }
            }
            before += flat.len();
            self.load(unit, &flat);
        }
    }

    /// Sets the parameters of a unit. Every rank must load the same.
    ///
    /// # Panics
    /// Unless every unit is loaded once, in order, before the first step: peers may read them from then on.
    pub fn load(&mut self, unit: usize, flat: &[f32]) {
        assert_eq!((unit, self.steps_done), (self.loaded, 0), "units are loaded once, in order, before the first step");
        self.loaded += 1;
        assert_eq!(flat.len(), self.plan.units[unit].params, "{}: another number of parameters", self.plan.units[unit]);
        if flat.is_empty() {
            return;
        }
        // What this rank stores of the flat buffer: its start there, its start in the region, its length.
        let (from, to, len) = if self.plan.config.shards_parameters() {
            let (to, len) = self.arena.shard(unit, self.arena.rank());
            (self.arena.rank() * len, to, len)
        } else {
            let (to, len) = self.arena.flat(unit);
            (0, to, len)
        };
        let stored = &flat[from.min(flat.len())..(from + len).min(flat.len())];
        // SAFETY: what this rank stores is its alone to write, and peers read it only once it is published.
        let to = unsafe { self.arena.view_mut(Kind::Parameters, to, stored.len()) };
        to.into_slice().copy_from_slice(stored);
        self.transport.publish(unit);
    }

    /// The parameters of a unit, whole. Every rank must call it.
    ///
    /// # Errors
    /// [`Lost`] if another rank has ended.
    pub fn parameters(&mut self, unit: usize) -> Result<Vec<f32>, Lost> {
        let params = self.plan.units[unit].params;
        if params == 0 {
            return Ok(Vec::new());
        }
        if !self.plan.config.shards_parameters() {
            let (start, _) = self.arena.flat(unit);
            // SAFETY: between steps nobody writes this rank's replica.
            return Ok(unsafe { self.arena.view(Kind::Parameters, start, params) }.as_slice().to_vec());
        }
        self.transport.gather(unit, 0);
        self.transport.wait(unit)?;
        let flat = self.transport.gathered(unit).as_slice()[..params].to_vec();
        self.transport.release(unit);
        Ok(flat)
    }

    /// This rank's shard of the last step's gradient sums of a unit, and where it starts in the flat buffer.
    pub fn reduced_gradients(&self, unit: usize) -> (usize, Vec<f32>) {
        let (kind, start, len) = self.arena.reduced(unit);
        // SAFETY: between steps nobody writes this rank's sums.
        (self.arena.rank() * len, unsafe { self.arena.view(kind, start, len) }.as_slice().to_vec())
    }
}
