//! Parameters: filled at the start, read whole at the end. A parameter's first value depends on the seed and its place in
//! the model alone, never on who owns it.
#![allow(unsafe_code)]

use zero_plan::Kind;

use super::Engine;
use crate::device::{Cpu, Device, Stored, StoredMut};
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
        let Some(held) = self.held_as(unit) else { return };
        // What this rank stores of the flat buffer: its start there, its start in the region, its length.
        let zero = self.arena.coordinates().zero;
        let (from, to, len) = if self.plan.config.shards_parameters() {
            let (to, len) = self.arena.shard(held, zero);
            (zero * len, to, len)
        } else {
            let (to, len) = self.arena.flat(held);
            (0, to, len)
        };
        // SAFETY: what this rank stores is its alone to write, and peers read it only once it is published.
        unsafe { self.store(Kind::Parameters, to, part(flat, from, len)) };
        if self.plan.config.precision.has_master_copy() && held == unit {
            let start = self.plan.placements[unit].start;
            let (from, to, len) = if self.plan.config.shards_optimizer() {
                let len = self.plan.placements[unit].shard(&self.plan.config);
                (zero * len, start / self.plan.config.mesh.zero, len)
            } else {
                (0, start, flat.len())
            };
            // SAFETY: master parameters are private to this rank.
            unsafe { self.store(Kind::Master, to, part(flat, from, len)) };
        }
        // SAFETY: it is whole, and not written again before all ranks have agreed on a step.
        unsafe { self.transport.publish(held) };
    }

    /// The unit under which this rank holds the parameters of `unit`: itself, or what mirrors it.
    fn held_as(&self, unit: usize) -> Option<usize> {
        let stage = self.arena.coordinates().pipeline;
        let holds = |&held: &usize| {
            let placement = &self.plan.placements[held];
            placement.stage == stage && placement.holds && self.plan.units[held].source == unit
        };
        (unit..self.plan.units.len()).find(holds)
    }

    /// # Safety
    /// As for [`crate::arena::Arena::stored_mut`].
    unsafe fn store(&self, kind: Kind, to: usize, from: &[f32]) {
        // SAFETY: by the caller's promise.
        match unsafe { self.arena.stored_mut(kind, to, from.len()) } {
            StoredMut::F32(to) => self.device.copy(to, from.into()),
            StoredMut::BF16(to) => self.device.narrow(to, from.into()),
        }
    }

    /// The parameters of a unit, whole, on the ranks that hold them: those of its pipeline stage. Every rank must call it.
    ///
    /// # Errors
    /// [`Lost`] if another rank has ended.
    pub fn parameters(&mut self, unit: usize) -> Result<Option<Vec<f32>>, Lost> {
        self.begin_walk();
        let result = self.whole_unit(unit);
        self.end(result)
    }

    fn whole_unit(&mut self, unit: usize) -> Result<Option<Vec<f32>>, Lost> {
        let (params, placement) = (self.plan.units[unit].params, &self.plan.placements[unit]);
        if placement.stage != self.arena.coordinates().pipeline {
            return Ok(None);
        }
        if params == 0 {
            return Ok(Some(Vec::new()));
        }
        if !self.plan.config.shards_parameters() {
            let (start, _) = self.arena.flat(unit);
            // SAFETY: between steps nobody writes this rank's replica.
            return Ok(Some(self.read(unsafe { self.arena.stored(Kind::Parameters, start, params) })));
        }
        // SAFETY: between steps nobody writes parameters, and no step ends before this rank is in it: what it reads here it
        // has read by then. The view ends before the release.
        unsafe {
            self.transport.gather(unit, 0);
            self.transport.wait(unit)?;
            let flat = self.transport.gathered(unit).as_slice()[..params].to_vec();
            self.transport.release(unit);
            Ok(Some(flat))
        }
    }

    fn read(&self, from: Stored<Cpu>) -> Vec<f32> {
        let mut numbers = vec![0.0; from.len()];
        match from {
            Stored::F32(from) => self.device.copy(numbers.as_mut_slice().into(), from),
            Stored::BF16(from) => self.device.widen(numbers.as_mut_slice().into(), from),
        }
        numbers
    }

    /// This rank's shard of the last step's gradient sums of a unit, and where it starts in the flat buffer; none on
    /// another pipeline stage than the unit's.
    pub fn reduced_gradients(&self, unit: usize) -> Option<(usize, Vec<f32>)> {
        let at = self.arena.coordinates();
        if self.plan.placements[unit].stage != at.pipeline {
            return None;
        }
        let (kind, start, len) = self.arena.reduced(unit, at.zero);
        // SAFETY: between steps nobody writes this rank's sums.
        Some((at.zero * len, self.read(unsafe { self.arena.stored(kind, start, len) })))
    }
}

/// `len` elements of a flat buffer from `from`, without the padding behind it.
fn part(flat: &[f32], from: usize, len: usize) -> &[f32] {
    &flat[from.min(flat.len())..(from + len).min(flat.len())]
}
