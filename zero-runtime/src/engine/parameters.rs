//! Parameters: filled at the start, read whole at the end, and with all that belongs to each of them read and written where
//! it lies. A parameter's first value depends on the seed and its place in the model alone, never on the rank that owns it.
#![allow(unsafe_code)]

use bytemuck::Pod;
use zero_plan::{Axis, Op, Place, State, Stretch};

use super::Engine;
use crate::device::{Device, Element, Stored, StoredMut, bf16};
use crate::layer::{Init, Tensor, Tensors};
use crate::model::{DeviceOf, Model};
use crate::random::normal;
use crate::transport::{Lost, Transport};
use crate::view::View;

impl<'p, M: Model, T: Transport<'p, DeviceOf<M>>> Engine<'p, M, T> {
    /// The parameter tensors of a unit, in the order of its flat buffer. None where it is tied.
    pub fn tensors(&self, unit: usize) -> Vec<Tensor> {
        let mut tensors = Tensors::default();
        if self.plan.units[unit].params > 0 {
            M::CODE[self.plan.units[unit].position].tensors(&mut tensors);
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
        for state in [State::Parameters, State::Master] {
            if let Some((Stretch { start, len }, place)) = self.arena.places().state(state, held) {
                // Without the padding after it.
                let stored = &flat[start.min(flat.len())..(start + len).min(flat.len())];
                // SAFETY: what this rank stores is its alone to write, and peers read it only once it is published.
                unsafe { self.write(place, stored) };
            }
        }
        // SAFETY: it is whole, and not written again before all ranks have agreed on a step.
        unsafe { self.ranks.transport.end(Op::Update { unit: held }, &self.ranks.position) };
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

    /// What this rank stores of a state of a unit, and which stretch of the flat buffer that is, padding included. None where
    /// it has none: on another pipeline stage, or of a master copy where there is none.
    pub fn state(&self, state: State, unit: usize) -> Option<(Stretch, Vec<f32>)> {
        let (stretch, place) = self.arena.places().state(state, unit)?;
        // SAFETY: between steps nobody writes what this rank stores.
        Some((stretch, unsafe { self.read(place) }))
    }

    /// Sets what this rank stores of a state of a unit: as many numbers as [`Engine::state`] gives. Together with
    /// [`Engine::load`] and [`Engine::set_steps_done`] it takes up a run where another one ended.
    ///
    /// # Panics
    /// For parameters, which [`Engine::load`] sets; if a unit lacks them; if a step was done; if there is no such state here,
    /// or if it has another length.
    pub fn set_state(&mut self, state: State, unit: usize, numbers: &[f32]) {
        let (loaded, units) = (self.loaded, self.plan.units.len());
        // Peers may read parameters as soon as they are loaded.
        assert_ne!(state, State::Parameters, "parameters are set by `load`");
        assert_eq!((loaded, self.steps_done), (units, 0), "states are set after all units and before the first step");
        let (stretch, place) = self.arena.places().state(state, unit).expect("a state that this rank has");
        assert_eq!(numbers.len(), stretch.len, "{}: another length", self.plan.units[unit]);
        // SAFETY: states of parameters are private to this rank, and no op is under way.
        unsafe { self.write(place, numbers) };
    }

    /// Steps that have been done.
    pub fn steps_done(&self) -> u64 {
        self.steps_done
    }

    /// Goes on as if so many steps had been done.
    ///
    /// # Panics
    /// If a step was done.
    pub fn set_steps_done(&mut self, steps: u64) {
        assert_eq!(self.steps_done, 0, "a step was done");
        self.steps_done = steps;
    }

    /// Writes the first numbers of a place, in its width.
    ///
    /// # Safety
    /// As for [`crate::arena::Arena::view_mut`].
    unsafe fn write(&self, place: Place, numbers: &[f32]) {
        let (device, width) = (&self.ranks.device, self.arena.width(place));
        let place = place.first(numbers.len() * width.bytes());
        // SAFETY: by the caller's promise.
        match unsafe { self.arena.stored_mut(place) } {
            StoredMut::F32(to) => device.stage(to, |to| to.copy_from_slice(numbers)),
            StoredMut::BF16(to) => device.stage(to, |to| {
                to.iter_mut().zip(numbers).for_each(|(to, &number)| *to = bf16::narrow(number));
            }),
        }
    }

    /// # Safety
    /// As for [`crate::arena::Arena::view`].
    unsafe fn read(&self, place: Place) -> Vec<f32> {
        // SAFETY: by the caller's promise.
        self.read_stored(unsafe { self.arena.stored(place) })
    }

    fn read_stored(&self, from: Stored<DeviceOf<M>>) -> Vec<f32> {
        match from {
            Stored::F32(from) => self.read_as(from),
            Stored::BF16(from) => self.read_as(from),
        }
    }

    fn read_as<E: Element + Pod>(&self, from: View<DeviceOf<M>, E>) -> Vec<f32> {
        let mut stored = vec![E::zeroed(); from.len()];
        self.ranks.device.read(from, &mut stored);
        stored.into_iter().map(E::widen).collect()
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
        let (places, params) = (self.arena.places(), self.plan.units[unit].params);
        if self.plan.placements[unit].stage != places.at.pipeline {
            return Ok(None);
        }
        if params == 0 {
            return Ok(Some(Vec::new()));
        }
        // SAFETY: between steps nobody writes parameters, and no step ends before this rank is in it: what it reads here it
        // has read by then. Views end before the release.
        let mut flat = unsafe {
            if self.plan.config.shards_parameters() {
                self.ranks.position.restart();
                self.ranks.run(Op::Gather { unit, slot: 0 })?;
                self.ranks.run(Op::Wait { unit })?;
                // Not from a slot: what is computed on may be rounded.
                let shard = |zero| (self.arena.along(Axis::Zero, zero), places.along(Axis::Zero, zero).shard(unit));
                let shards = (0..self.plan.config.mesh.zero).map(shard);
                let flat = shards.flat_map(|(rank, shard)| self.read_stored(self.ranks.of_rank(rank, shard))).collect();
                self.ranks.run(Op::Release { unit })?;
                flat
            } else {
                self.read(places.flat(unit))
            }
        };
        flat.truncate(params);
        Ok(Some(flat))
    }

    /// This rank's shard of the last step's gradient sums of a unit, and where it starts in the flat buffer; none on
    /// another pipeline stage than the unit's.
    pub fn reduced_gradients(&self, unit: usize) -> Option<(usize, Vec<f32>)> {
        let places = self.arena.places();
        if self.plan.placements[unit].stage != places.at.pipeline {
            return None;
        }
        // SAFETY: between steps nobody writes this rank's sums.
        Some((places.shared_out(unit).start, unsafe { self.read(places.reduced(unit)) }))
    }
}
