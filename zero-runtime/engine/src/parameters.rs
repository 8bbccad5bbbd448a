//! Parameters: fills them at the start, reads them whole at the end, and reads and writes their states in place. A
//! parameter's first value depends only on the seed and its position in the model, never on the rank that owns it.
#![allow(unsafe_code)]

use core::convert::Infallible;
use core::num::NonZeroUsize;
use core::ops::Range;

use bytemuck::Pod;
use zero_plan::place::{Kept, Place, State, Stretch};
use zero_plan::{Axis, Op};

use super::Engine;
use zero_core::device::{Device, Element, Stored, StoredMut, bf16};
use zero_core::layer::{Init, Tensor, Tensors};
use zero_core::lost::Lost;
use zero_core::random::normal;
use zero_core::states::PIECE_ELEMENTS;
use zero_core::tier::Direction;
use zero_core::transport::Transport;
use zero_core::view::View;

impl<'p, D: Device, T: Transport<'p, D>> Engine<'p, D, T> {
    /// The parameter tensors of a unit, in the order of its flat buffer; empty if the unit is tied.
    pub fn tensors(&self, unit: usize) -> Vec<Tensor> {
        let mut tensors = Tensors::default();
        if self.plan.units[unit].params > 0 {
            self.program.code[self.plan.units[unit].position].tensors(&mut tensors);
        }
        let tensors = tensors.into_list();
        let named: usize = tensors.iter().map(Tensor::len).sum();
        assert_eq!(named, self.plan.units[unit].params, "{}: tensors do not add up to PARAMS", self.plan.units[unit]);
        tensors
    }

    /// Sets every parameter to its first value. Each rank computes the values that it stores.
    pub fn initialize(&mut self, seed: u64) {
        self.initialize_by(seed, NonZeroUsize::MIN);
    }

    /// [`Engine::initialize`] with this many threads of the host, whatever the device.
    pub fn initialize_by(&mut self, seed: u64, threads: NonZeroUsize) {
        let mut before = 0;
        for unit in 0..self.plan.units.len() {
            let tensors = self.tensors(unit);
            self.load_pieces(unit, |start, values| {
                first_values_by(threads, &tensors, seed, before, start, values);
                Ok::<_, Infallible>(())
            })
            .unwrap_or_else(|never| match never {});
            before += self.plan.units[unit].params;
        }
    }

    /// Sets the parameters of a unit. Every rank must load the same parameters.
    ///
    /// # Panics
    /// Unless every unit is loaded once, in order, before the first step: peers may read a unit as soon as it is loaded.
    pub fn load(&mut self, unit: usize, flat: &[f32]) {
        assert_eq!(flat.len(), self.plan.units[unit].params, "{}: wrong number of parameters", self.plan.units[unit]);
        self.load_pieces(unit, |start, values| {
            values.copy_from_slice(&flat[start..start + values.len()]);
            Ok::<_, Infallible>(())
        })
        .unwrap_or_else(|never| match never {});
    }

    /// Sets the parameters of a unit, as [`Engine::load`] does. `source(start, values)` fills `values` with the
    /// parameters of the unit's flat buffer from `start` on, of which there are at most [`PIECE_ELEMENTS`]. It is
    /// called only for elements that this rank stores, once each and in order.
    ///
    /// # Errors
    /// The error of `source`. The engine then has no parameters of this unit, and runs no step.
    ///
    /// # Panics
    /// As [`Engine::load`].
    pub fn load_pieces<E>(
        &mut self,
        unit: usize,
        mut source: impl FnMut(usize, &mut [f32]) -> Result<(), E>,
    ) -> Result<(), E> {
        assert_eq!((unit, self.steps_done), (self.loaded, 0), "units are loaded once, in order, before the first step");
        let (params, places) = (self.plan.units[unit].params, self.arena.places());
        if params > 0
            && let Some(held) = self.held_as(unit)
        {
            // Parameters include the elements of a master copy: they are the same shard, or the whole.
            let stretch = |state| places.state(state, held).map(|(stretch, _)| (state, stretch));
            let states: Vec<(State, Stretch)> =
                [State::Parameters, State::Master].into_iter().filter_map(stretch).collect();
            let stored = states.first().map_or(0..0, |(_, stretch)| stretch.elements());
            let mut values = Vec::new();
            for piece in pieces(stored, params) {
                values.resize(piece.len(), 0.0);
                source(piece.start, &mut values)?;
                for (state, stretch) in &states {
                    let elements = stretch.elements();
                    let common = piece.start.max(elements.start)..piece.end.min(elements.end);
                    if !common.is_empty() {
                        let of_piece = &values[common.start - piece.start..common.end - piece.start];
                        // SAFETY: only this rank writes its stored bytes, and peers read them only after they are published.
                        unsafe { self.set((*state, held), common, of_piece) };
                    }
                }
            }
            // SAFETY: it is whole, and not written again before all ranks have agreed on a step.
            unsafe {
                self.ranks.transport.end(
                    &self.ranks.device,
                    Op::Update { unit: held, piece: None },
                    &self.ranks.position,
                );
            };
        }
        self.loaded += 1;
        Ok(())
    }

    /// The unit under which this rank holds the parameters of `unit`: itself, or the unit that mirrors it.
    pub(super) fn held_as(&self, unit: usize) -> Option<usize> {
        let pipeline = self.arena.coordinates().pipeline;
        let holds = |&held: &usize| {
            let placement = &self.plan.placements[held];
            placement.pipeline_stage == pipeline && placement.holds && self.plan.units[held].source == unit
        };
        (unit..self.plan.units.len()).find(holds)
    }

    /// The numbers that this rank stores of a state of a unit, and their stretch of the flat buffer, padding included.
    /// `None` if it stores none: the unit is on another pipeline stage, or there is no master copy.
    pub fn state(&self, state: State, unit: usize) -> Option<(Stretch, Vec<f32>)> {
        let mut numbers = Vec::new();
        let stretch = self.read_state(state, unit, |_, piece| numbers.extend(piece))?;
        Some((stretch, numbers))
    }

    /// The same in pieces of at most [`PIECE_ELEMENTS`], in order: `each(start, numbers)`, where `start` counts in the
    /// unit's flat buffer. Returns the whole stretch.
    pub fn read_state(&self, state: State, unit: usize, mut each: impl FnMut(usize, &[f32])) -> Option<Stretch> {
        self.look_at(Kept::State(state), unit, |stored, start| self.for_each_piece(stored, start, &mut each))
    }

    /// Calls `each` with numbers that this rank stores, part by part if they are kept in a tier, and with the element of the
    /// flat buffer at which each part begins. Returns the whole stretch, if there are any.
    pub(super) fn look_at(&self, kept: Kept, unit: usize, mut each: impl FnMut(Stored<D>, usize)) -> Option<Stretch> {
        self.require_finished(kept);
        let (stretch, _) = self.arena.places().kept(kept, unit)?;
        let look = |place, elements: Range<usize>| {
            // SAFETY: outside of a pass nobody writes the numbers that this rank stores.
            each(unsafe { self.arena.stored(place) }, elements.start);
            Ok::<_, Infallible>(())
        };
        // SAFETY: as above.
        unsafe { self.in_memory((kept, unit), stretch.elements(), false, look) }.unwrap_or_else(|never| match never {});
        Some(stretch)
    }

    /// States are those after the last step only once its updates are done.
    pub(super) fn require_finished(&self, kept: Kept) {
        assert!(
            !self.is_update_due || kept == Kept::Sums,
            "`finish_step` comes first: the last step has updates to do"
        );
    }

    /// Steps that have been done.
    pub fn steps_done(&self) -> u64 {
        self.steps_done
    }

    /// Continues as if `steps` steps had been done.
    ///
    /// # Panics
    /// If a step has been done.
    pub fn set_steps_done(&mut self, steps: u64) {
        assert_eq!(self.steps_done, 0, "a step was done");
        self.steps_done = steps;
    }

    /// Sets some elements of a state that this rank stores.
    ///
    /// # Safety
    /// Nobody else reads or writes them meanwhile, and no pass is under way.
    pub(super) unsafe fn set(&self, (state, unit): (State, usize), elements: Range<usize>, numbers: &[f32]) {
        let start = elements.start;
        let write = |place, part: Range<usize>| {
            // SAFETY: by the caller's promise.
            unsafe { self.write(place, 0, &numbers[part.start - start..part.end - start]) };
            Ok::<_, Infallible>(())
        };
        // SAFETY: by the caller's promise.
        unsafe { self.in_memory((Kept::State(state), unit), elements, true, write) }
            .unwrap_or_else(|never| match never {});
    }

    /// Writes numbers from element `start` of a place on, in its width.
    ///
    /// # Safety
    /// Nobody else reads or writes the place meanwhile.
    pub(super) unsafe fn write(&self, place: Place, start: usize, numbers: &[f32]) {
        let (device, bytes) = (&self.ranks.device, self.arena.width(place).bytes());
        let place = place.cut(start * bytes, numbers.len() * bytes);
        // SAFETY: by the caller's promise.
        match unsafe { self.arena.stored_mut(place) } {
            StoredMut::F32(to) => device.stage(to, |to| to.copy_from_slice(numbers)),
            StoredMut::BF16(to) => device.stage(to, |to| {
                to.iter_mut().zip(numbers).for_each(|(to, &number)| *to = bf16::narrow(number));
            }),
        }
    }

    /// Calls `each` with pieces of the stored numbers; the first begins at `start`.
    fn for_each_piece(&self, from: Stored<D>, start: usize, each: &mut impl FnMut(usize, &[f32])) {
        match from {
            Stored::F32(from) => self.for_each_piece_as(from, start, each),
            Stored::BF16(from) => self.for_each_piece_as(from, start, each),
        }
    }

    fn for_each_piece_as<E: Element + Pod>(
        &self,
        from: View<D, E>,
        start: usize,
        each: &mut impl FnMut(usize, &[f32]),
    ) {
        let (mut stored, mut numbers) = (Vec::new(), Vec::new());
        for piece in pieces(0..from.len(), from.len()) {
            stored.resize(piece.len(), E::zeroed());
            self.ranks.device.read(from.part(piece.start, piece.len()), &mut stored);
            numbers.clear();
            numbers.extend(stored.iter().map(|&number| number.widen()));
            each(start + piece.start, &numbers);
        }
    }

    /// All parameters of a unit, on the ranks of the unit's pipeline stage, which hold them. Every rank must call it.
    ///
    /// # Errors
    /// [`Lost`] if another rank has ended.
    pub fn parameters(&mut self, unit: usize) -> Result<Option<Vec<f32>>, Lost> {
        let mut flat = Vec::new();
        let is_here = self.read_parameters(unit, |_, piece| flat.extend(piece))?;
        Ok(is_here.then_some(flat))
    }

    /// The same in pieces of at most [`PIECE_ELEMENTS`], in order: `each(start, parameters)`, where `start` counts in
    /// the unit's flat buffer. Returns whether this rank holds the unit. Every rank must call it.
    ///
    /// # Errors
    /// [`Lost`] if another rank has ended.
    pub fn read_parameters(&mut self, unit: usize, each: impl FnMut(usize, &[f32])) -> Result<bool, Lost> {
        self.begin_reading()?;
        let result = self.read_unit(unit, each);
        self.end(result)
    }

    fn read_unit(&mut self, unit: usize, mut each: impl FnMut(usize, &[f32])) -> Result<bool, Lost> {
        let (places, params) = (self.arena.places(), self.plan.units[unit].params);
        if self.plan.placements[unit].pipeline_stage != places.at.pipeline {
            return Ok(false);
        }
        if params == 0 {
            return Ok(true);
        }
        // Drops the padding at the end.
        let mut own = |start: usize, piece: &[f32]| {
            let len = params.saturating_sub(start).min(piece.len());
            if len > 0 {
                each(start, &piece[..len]);
            }
        };
        // SAFETY: between steps nobody writes parameters, and no step ends before this rank has entered it, which it
        // does only after its reads here. Views end before the release.
        unsafe {
            if self.plan.config.shards_parameters() {
                self.ranks.position.restart();
                if self.plan.config.offloads_parameters() {
                    // To the slot that the first gather of a walk takes it from.
                    let fetch = Op::FetchShard { unit, slot: 0 };
                    self.ranks.begin(fetch)?;
                    self.carry_now(Direction::Fetch, core::iter::once(places.shard_blocks(unit, 0)))?;
                    self.ranks.end(fetch);
                }
                self.ranks.run(Op::Gather { unit, slot: 0 })?;
                self.ranks.run(Op::Wait { unit })?;
                // A shared slot has all shards in the width in which they are held, not rounded; and so has one to which fetched
                // shards are gathered.
                let is_there = self.plan.config.shares_slots() || self.plan.config.gathers_fetched();
                if is_there {
                    self.for_each_piece(self.arena.stored(places.computed_on(unit, 0)), 0, &mut own);
                }
                for zero in (0..self.plan.config.mesh.zero).filter(|_| !is_there) {
                    // Not from a slot, where parameters may be rounded.
                    let (holder, place) = places.gathered_from(unit, zero, 0);
                    let shard = self.ranks.of_rank(self.arena.along(Axis::Zero, holder.at.zero), place);
                    self.for_each_piece(shard, places.along(Axis::Zero, zero).shared_out(unit).start, &mut own);
                }
                self.ranks.run(Op::Release { unit })?;
            } else {
                self.for_each_piece(self.arena.stored(places.flat(unit)), 0, &mut own);
            }
        }
        Ok(true)
    }

    /// This rank's shard of the last step's gradient sums of a unit, and its start in the flat buffer; `None` unless
    /// the rank is on the unit's pipeline stage. Directions have replaced the sums of matrices that are made
    /// orthogonal.
    pub fn reduced_gradients(&self, unit: usize) -> Option<(usize, Vec<f32>)> {
        let places = self.arena.places();
        if self.plan.placements[unit].pipeline_stage != places.at.pipeline {
            return None;
        }
        let mut numbers = Vec::new();
        self.each_sum(unit, |sums| self.for_each_piece(sums, 0, &mut |_, piece: &[f32]| numbers.extend(piece)));
        Some((places.shared_out(unit).start, numbers))
    }

    /// Calls `each` with this rank's sums of a unit on this pipeline stage, after a backward and outside of a pass: with all
    /// of them, or part by part if they are kept in a tier.
    pub(super) fn each_sum(&self, unit: usize, mut each: impl FnMut(Stored<D>)) {
        if self.look_at(Kept::Sums, unit, |sums, _| each(sums)).is_none() {
            // SAFETY: every bucket is summed: nobody writes the sums before the next step.
            each(unsafe { self.arena.stored(self.arena.places().reduced(unit)) });
        }
    }
}

/// The fewest elements worth a thread: computing them takes about ten times as long as starting it.
const PART_ELEMENTS: usize = 8 << 10;

/// Cuts a range of a buffer into pieces, without the padding after the buffer's first `len` elements.
pub(super) fn pieces(range: Range<usize>, len: usize) -> impl Iterator<Item = Range<usize>> {
    let end = range.end.min(len);
    (range.start.min(end)..end).step_by(PIECE_ELEMENTS).map(move |start| start..end.min(start + PIECE_ELEMENTS))
}

/// [`first_values`] with this many threads, or fewer if there is little to compute.
fn first_values_by(
    threads: NonZeroUsize,
    tensors: &[Tensor],
    seed: u64,
    before: usize,
    start: usize,
    values: &mut [f32],
) {
    let part = values.len().div_ceil(threads.get()).max(PART_ELEMENTS);
    std::thread::scope(|scope| {
        let mut parts = values.chunks_mut(part).enumerate();
        let own = parts.next();
        for (i, values) in parts {
            scope.spawn(move || first_values(tensors, seed, before, start + i * part, values));
        }
        own.into_iter().for_each(|(_, values)| first_values(tensors, seed, before, start, values));
    });
}

/// First values of a unit's parameters from `start` on, where the units before it have `before` parameters.
fn first_values(tensors: &[Tensor], seed: u64, before: usize, start: usize, values: &mut [f32]) {
    let end = start + values.len();
    for tensor in tensors {
        let common = tensor.start.max(start)..(tensor.start + tensor.len()).min(end);
        if common.is_empty() {
            continue;
        }
        let of_tensor = &mut values[common.start - start..common.end - start];
        match tensor.init {
            Init::Zeros => of_tensor.fill(0.0),
            Init::Ones => of_tensor.fill(1.0),
            Init::Normal(deviation) => {
                for (i, value) in common.zip(of_tensor) {
                    *value = deviation * normal(seed, (before + i) as u64);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_number_of_threads_draws_the_same_values() {
        const LEN: usize = 5 * PART_ELEMENTS + 3;
        let mut tensors = Tensors::default();
        tensors.add("weight", &[LEN], Init::Normal(0.5));
        tensors.add("gain", &[7], Init::Ones);
        let tensors = tensors.into_list();
        let drawn = |threads, start: usize| {
            let mut values = vec![f32::NAN; LEN + 7 - start];
            let threads = NonZeroUsize::new(threads).expect("a number that is not 0");
            first_values_by(threads, &tensors, 3, 11, start, &mut values);
            values
        };
        let all = drawn(1, 0);
        assert_eq!((all[0], all[LEN]), (0.5 * normal(3, 11), 1.0));
        for threads in [1, 2, 3, 16] {
            for start in [0, 1, 10_000] {
                assert_eq!(drawn(threads, start), all[start..], "{threads} threads, from {start}");
            }
        }
    }
}
