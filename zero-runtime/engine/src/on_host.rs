//! On host: has the cores of the host update what it keeps, in the queue of the device that the plan puts updates in. Every
//! call is made before the first step, so that a step allocates nothing. Never computes.
#![allow(unsafe_code)]

use std::sync::Arc;

use zero_plan::place::{Kept, Place, State};
use zero_plan::{Op, Piece};

use super::Engine;
use super::update::UpdatedStretch;
use zero_core::device::{
    Device, HostCall, HostNumbers, HostOptimizer, HostPiece, HostStretch, HyperBlock, ReportBlock,
};
use zero_core::transport::Transport;

/// Where the calls of each unit begin among those that the device keeps; a unit has one for each piece.
pub(super) type HostCalls = Vec<Option<usize>>;

impl<'p, D: Device, T: Transport<'p, D>> Engine<'p, D, T> {
    /// Has `optimizer` update parameters on the cores of the host, as the plan says. It comes after [`Engine::decay_embeddings`]
    /// and before the first step.
    ///
    /// # Panics
    /// Unless the host updates parameters under the plan, or if it was called before.
    pub fn update_on_host(&mut self, optimizer: &Arc<dyn HostOptimizer>) {
        assert!(self.plan.config.updates_on_host(), "the device updates parameters under this plan");
        assert!(self.host_calls.is_empty(), "the host has its calls already");
        let (mut first, mut calls) = (vec![None; self.plan.units.len()], Vec::<HostCall>::new());
        for &op in self.arena.pipeline_stage().step {
            let Op::Update { unit, piece: Some(piece) } = op else { continue };
            let start = *first[unit].get_or_insert(calls.len());
            assert_eq!(start + piece.index, calls.len(), "pieces of a unit are updated one after another");
            let (piece, optimizer) = (self.host_piece(unit, piece), Arc::clone(optimizer));
            // SAFETY: the proof of streams shows that whatever writes these numbers comes before or after the update.
            calls.push(Box::new(move || unsafe { optimizer.update(&piece) }));
        }
        self.ranks.device.keep_calls(calls);
        self.host_calls = first;
    }

    /// Updates a piece of a unit on the host.
    pub(super) fn update_by_host(&self, unit: usize, piece: Piece) {
        let first = self.host_calls.get(unit).copied().flatten();
        let first = first.expect("`update_on_host` comes first: the host updates parameters under this plan");
        self.ranks.device.call_host(first + piece.index);
    }

    fn host_piece(&self, unit: usize, piece: Piece) -> HostPiece {
        let places = self.arena.places();
        let part = places.piece(unit, piece.index);
        let numbers = |of: Kept| {
            let place = places.worked_on(of, unit, piece)?;
            Some(HostNumbers { start: self.on_host(place), width: self.arena.width(place) })
        };
        let required = |of: Kept| numbers(of).expect("all that an update needs is in the memory of the host");
        let of_piece = |stretch: &&UpdatedStretch| part.elements().contains(&stretch.start);
        let stretches = self.segments[unit]
            .iter()
            .filter(of_piece)
            .map(|stretch| HostStretch { start: stretch.start - part.start, runs: stretch.runs.clone() });
        let words = self.on_host(places.step_words());
        HostPiece {
            hyper: words.cast_const().cast::<HyperBlock>(),
            report: words.wrapping_add(size_of::<HyperBlock>()).cast_const().cast::<ReportBlock>(),
            len: part.len,
            params: required(Kept::State(State::Parameters)),
            master: numbers(Kept::State(State::Master)),
            sums: required(Kept::Sums),
            moments: [State::FirstMoment, State::SecondMoment].map(|state| required(Kept::State(state))),
            stretches: stretches.collect(),
        }
    }

    /// The address of a place that the host keeps: the same for the host and for the device.
    fn on_host(&self, place: Place) -> *mut u8 {
        let home = self.arena.memory().region(place.region).home;
        assert!(home.is_tier(), "{} lies on the device", place.region.name());
        // SAFETY: nothing is read or written here.
        unsafe { self.arena.bytes_mut(place) }.address()
    }
}
