//! Access: all places that an op reads and writes, on its own rank and on others, with their content. Proofs are about
//! these accesses. Never says in which order ranks make them.

mod gathers;
mod publish;
mod sums;
mod tier;

pub(crate) use publish::published;
pub(crate) use sums::sums_between_steps;

use super::arrival::{Arrival, arrivals};
use super::{Place, Places, Position, State, Stretch};
use crate::layout::Kind;
use crate::mesh::{Axis, Coordinates};
use crate::pipeline::Pass;
use crate::plan::Plan;
use crate::schedule::{Op, Parcel};
use crate::subtrees::Subtree;

/// A place that an op reads or writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// The rank whose place it is.
    pub at: Coordinates,
    /// The place.
    pub place: Place,
    /// The content of the place, before a read or after a write.
    pub content: Content,
    /// The byte of that content with which the place begins.
    pub from_byte: usize,
    /// Whether the op writes it.
    pub writes: bool,
}

/// The content of a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Content {
    /// Nothing that may be read.
    Nothing,
    /// Parameters of the flat buffer of an owner, before or after the update of this step.
    Parameters {
        /// The owner.
        unit: usize,
        /// Whether they are updated.
        is_updated: bool,
    },
    /// Another state of such a flat buffer, before or after the update of this step.
    State {
        /// The state.
        state: State,
        /// The owner.
        unit: usize,
        /// Whether it is updated.
        is_updated: bool,
    },
    /// Gradients of a flat buffer.
    Gradients {
        /// The unit, under its own name.
        unit: usize,
        /// In a rank's own gradients, the newest micro-batch that is in them; in sums over ranks, the newest reduction.
        round: usize,
        /// The ranks whose gradients were added up.
        of: Gradients,
    },
    /// The numbers that a unit is updated by: directions for its matrices, and sums of gradients for all else.
    Direction {
        /// The unit.
        unit: usize,
    },
    /// An activation, or a gradient of one.
    Activation {
        /// The unit that it belongs to.
        unit: usize,
        /// The micro-batch.
        micro_batch: usize,
        /// The rank among those with their own data, from whose data it comes.
        data_rank: usize,
        /// The kind of value.
        value: Value,
    },
    /// What is published of the parameters of a flat buffer.
    Published {
        /// The unit.
        unit: usize,
    },
    /// A cache: decoding keeps the earlier tokens of a sequence in it.
    Cache {
        /// The unit.
        unit: usize,
    },
}

/// The ranks whose gradients were added up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Gradients {
    /// Those of one rank's own data.
    Of(usize),
    /// Those of some replicas.
    OfReplicas(Subtree),
    /// Those of some of the ranks of a replica.
    OfSubtree {
        /// The replica.
        replica: usize,
        /// The ranks along `zero`.
        subtree: Subtree,
    },
    /// Those of all ranks of a replica.
    OfReplica(usize),
    /// Those of all ranks.
    OfAll,
    /// Those of all ranks, and those of the unit that is tied to this one.
    OfTie,
    /// The whole sums of the step before, by which parameters are updated at their use.
    OfLastStep,
}

/// A value that a unit has in a micro-batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Value {
    /// The input of the model.
    Input,
    /// The targets, which are to be predicted.
    Targets,
    /// The output of the unit.
    Output,
    /// The values that it saves for its backward.
    Saved,
    /// The gradient of its output.
    Gradient,
}

/// A function that calls back for each access of an op: [`accesses`], or a variant with an error that a proof must find.
pub type Accesses<'f> = dyn Fn(&Plan, Pass, Op, &Position, Coordinates, &mut dyn FnMut(Access)) + 'f;

/// Calls back for each place that `op` of the rank `at` reads, and then for each that it writes.
pub fn accesses(plan: &Plan, pass: Pass, op: Op, position: &Position, at: Coordinates, visit: &mut dyn FnMut(Access)) {
    of_op(plan, pass, op, position, plan.places(at), visit);
}

/// [`accesses`] in a decoding walk, whose ops are those of an evaluation.
pub fn decoding_accesses(
    plan: &Plan,
    pass: Pass,
    op: Op,
    position: &Position,
    at: Coordinates,
    visit: &mut dyn FnMut(Access),
) {
    of_op(plan, pass, op, position, plan.places(at).decoding(), visit);
}

fn of_op(plan: &Plan, pass: Pass, op: Op, position: &Position, own: Places, visit: &mut dyn FnMut(Access)) {
    if !plan.config.has_carried() {
        return OfOp { plan, pass, own, position, visit }.visit_all(op);
    }
    // If the transport carries bytes, the op of the rank that holds them reads them, to send them to others. Between
    // hosts they stay where they are until they are received.
    let carries = plan.config.transport.carries();
    let others = op.traits().axis.filter(|_| carries).map_or(0, |axis| plan.config.mesh.len(axis));
    for index in 0..others {
        let peer = op.traits().axis.map_or(own, |axis| own.along(axis, index));
        let mut sent = |access: Access| {
            if peer.at != own.at && access.at == own.at && !access.writes {
                visit(access);
            }
        };
        OfOp { plan, pass, own: peer, position, visit: &mut sent }.visit_all(op);
    }
    // The bytes that it receives from other ranks arrive before they are read.
    let mut expected: Vec<Arrival> = Vec::new();
    let brought_by = match op {
        Op::Wait { unit } if !plan.config.gathers_early() => Op::Gather { unit, slot: position.slot(unit) },
        op => op,
    };
    arrivals(plan, brought_by, position, &own, &mut |arrival| expected.push(arrival));
    if let (Op::Gather { unit, .. }, false) = (op, plan.config.gathers_early()) {
        // These bytes may arrive from here on.
        let is_updated = !plan.config.shards_parameters() || plan.config.updates_in(pass);
        let content = Content::Parameters { unit: plan.units[unit].source, is_updated };
        for Arrival { from, to, .. } in expected {
            let from_byte = from.zero * to.len_bytes;
            visit(Access { at: own.at, place: to, content, from_byte, writes: true });
        }
        return OfOp { plan, pass, own, position, visit }.visit_all(op);
    }
    let rank_of = |at: Coordinates| plan.config.mesh.rank(at);
    let mut taken = |access: Access| {
        visit(access);
        if !plan.config.reaches(rank_of(own.at), rank_of(access.at)) {
            let arrival = expected.iter().find(|arrival| arrival.from == access.at && arrival.source == access.place);
            let arrival = arrival.expect("a place for whatever an op takes of another rank");
            let here = Access { at: own.at, place: arrival.to, ..access };
            visit(Access { writes: true, ..here });
            visit(here);
        }
    };
    OfOp { plan, pass, own, position, visit: &mut taken }.visit_all(op);
}

struct OfOp<'a, 'v> {
    plan: &'a Plan<'a>,
    pass: Pass,
    own: Places<'a>,
    position: &'a Position,
    visit: &'v mut dyn FnMut(Access),
}

impl OfOp<'_, '_> {
    fn visit_all(mut self, op: Op) {
        self.relay(op);
        let (at, on_host) = (self.own.at, self.plan.config.updates_on_host());
        match op {
            Op::Gather { unit, slot } if self.plan.config.gathers_early() => self.gather(unit, slot),
            // Host peers read this shard in their own waits.
            Op::Gather { unit, slot } if self.plan.config.shares_slots() => self.give(unit, slot),
            Op::Wait { unit } if !self.plan.config.gathers_early() => self.gather(unit, self.position.slot(unit)),
            Op::Convert { unit, slot } => {
                let flat = self.own.flat(unit);
                self.parameters(at, unit, flat, 0, false);
                self.write_parameters(unit, self.own.computed_on(unit, slot), 0, false);
            }
            // Host peers may still compute on a slot that they hold in common.
            Op::Release { unit } if self.plan.config.uses_slots() && !self.plan.config.shares_slots() => {
                let place = self.own.computed_on(unit, self.position.slot(unit));
                self.note(at, place, Content::Nothing, 0, true);
            }
            Op::Receive { parcel, unit, micro_batch, slot } => self.receive(parcel, unit, micro_batch, slot),
            Op::Forward { unit, micro_batch, slot } => self.forward(unit, micro_batch, slot),
            Op::Recompute { unit, micro_batch, slot } => self.recompute(unit, micro_batch, slot),
            Op::Backward { unit, micro_batch, slot } => self.backward(unit, micro_batch, slot),
            Op::Subtotal { bucket, round, axis } => self.subtotal(bucket, round, axis),
            Op::Settle { bucket, round } => self.sum(Axis::Zero, bucket, round),
            Op::Combine { bucket, round } => self.sum(Axis::Replica, bucket, round),
            Op::Fold { unit } => self.fold(unit, at),
            Op::Spread { bucket, axis } => self.spread(bucket, axis),
            // The squares of sums that are kept in a tier are taken as soon as these are there. The host gets the report.
            Op::Agree => {
                if !self.plan.config.offloads_gradients() {
                    self.agree();
                }
                self.note(at, self.own.step_words(), Content::Nothing, 0, true);
            }
            Op::Momentum { unit } => self.momentum(unit),
            Op::Update { unit, piece: None } => self.update(unit),
            Op::Fetch { unit, piece } if on_host => self.take_back(unit, piece),
            Op::Store { unit, piece } if on_host => self.hand_over(unit, piece),
            Op::Update { unit, piece: Some(piece) } => self.update_piece(unit, piece),
            Op::Fetch { unit, piece } => self.fetch(unit, piece),
            Op::Store { unit, piece } => self.store(unit, piece),
            Op::FetchSums { bucket, round } => self.fetch_sums(bucket, round),
            Op::StoreSums { bucket, round } => self.store_sums(bucket, round),
            Op::FetchShard { unit, slot } => self.fetch_shard(unit, slot),
            Op::StoreActivations { unit, micro_batch, slot } => self.move_activations(unit, micro_batch, slot, true),
            Op::FetchActivations { unit, micro_batch, slot } => self.move_activations(unit, micro_batch, slot, false),
            Op::Offer { unit } => self.offer(unit),
            Op::StoreOffered { unit } => self.store_offered(unit),
            Op::Gather { .. }
            | Op::Wait { .. }
            | Op::Release { .. }
            | Op::Clear { .. }
            | Op::Send { .. }
            | Op::Claim { .. }
            | Op::Reduce { .. } => {}
        }
    }

    fn note(&mut self, at: Coordinates, place: Place, content: Content, from_byte: usize, writes: bool) {
        if place.len_bytes > 0 {
            (self.visit)(Access { at, place, content, from_byte, writes });
        }
    }

    /// The bytes of this many elements of a region.
    fn bytes(&self, region: Kind, elements: usize) -> usize {
        region.bytes(&self.plan.config, elements)
    }

    fn units_of(&self, bucket: usize) -> impl Iterator<Item = usize> + use<> {
        self.plan.buckets[bucket].first..self.plan.buckets[bucket].last + 1
    }

    /// The unit that owns the parameters of `unit`.
    fn owner(&self, unit: usize) -> usize {
        self.plan.units[unit].source
    }

    fn parameters(&mut self, at: Coordinates, unit: usize, place: Place, from_byte: usize, is_updated: bool) {
        self.note(at, place, Content::Parameters { unit: self.owner(unit), is_updated }, from_byte, false);
    }

    fn write_parameters(&mut self, unit: usize, place: Place, from_byte: usize, is_updated: bool) {
        let content = Content::Parameters { unit: self.owner(unit), is_updated };
        self.note(self.own.at, place, content, from_byte, true);
    }

    fn activation(&mut self, place: Place, unit: usize, micro_batch: usize, value: Value, writes: bool) {
        let data_rank = self.own.at.data_rank(&self.plan.config.mesh);
        self.note(self.own.at, place, Content::Activation { unit, micro_batch, data_rank, value }, 0, writes);
    }

    /// Writes the scratch of a layer's call, and of its matrix products.
    fn works_in(&mut self, unit: usize) {
        let own = self.own;
        self.note(own.at, own.workspace(unit), Content::Nothing, 0, true);
        self.note(own.at, own.product_workspace(), Content::Nothing, 0, true);
    }

    /// Reads the arguments of a layer: parameters, and the output of the unit before it or the model's input.
    fn takes(&mut self, unit: usize, micro_batch: usize, slot: usize) {
        let own = self.own;
        if self.plan.placements[unit].padded > 0 {
            let holder = own.holder(unit);
            let place = own.computed_on(holder, self.position.slot(holder));
            if self.plan.config.uses_slots() || !self.plan.config.shards_parameters() {
                self.parameters(own.at, holder, place, 0, self.plan.config.updates_in(self.pass));
            } else {
                // In common memory each shard is read at its owner's place.
                for index in 0..self.plan.config.mesh.zero {
                    let owner = own.along(Axis::Zero, index);
                    let shard = owner.shard(holder);
                    self.parameters(
                        owner.at,
                        holder,
                        shard,
                        index * shard.len_bytes,
                        self.plan.config.updates_in(self.pass),
                    );
                }
            }
        }
        match unit.checked_sub(1) {
            None => self.activation(own.input(unit, slot), 0, micro_batch, Value::Input, false),
            Some(before) => self.activation(own.input(unit, slot), before, micro_batch, Value::Output, false),
        }
        if unit + 1 == self.plan.units.len() && !own.is_decoding {
            self.activation(own.targets(slot), unit, micro_batch, Value::Targets, false);
        }
    }

    fn forward(&mut self, unit: usize, micro_batch: usize, slot: usize) {
        let own = self.own;
        if unit == 0 {
            self.note(own.at, own.given(), Content::Nothing, 0, true);
            self.activation(own.input(0, slot), 0, micro_batch, Value::Input, true);
        }
        if own.is_decoding {
            return self.decode(unit, micro_batch, slot);
        }
        let takes_targets = own.tables.takes_targets(unit);
        if takes_targets {
            self.activation(own.targets(slot), self.plan.units.len() - 1, micro_batch, Value::Targets, true);
        }
        if takes_targets != (unit == 0) {
            // A batch has inputs and targets. This pipeline stage ignores the half that it does not need.
            self.note(own.at, own.unneeded(), Content::Nothing, 0, true);
        }
        self.takes(unit, micro_batch, slot);
        let outgoing = self.position.outgoing(Parcel::Activations);
        if self.plan.config.recomputes(self.plan.units, unit) {
            // The saved values are computed again before they are read.
            self.note(own.at, own.saved(unit, slot), Content::Nothing, 0, true);
        } else {
            self.activation(own.saved(unit, slot), unit, micro_batch, Value::Saved, true);
        }
        self.works_in(unit);
        self.activation(own.output(unit, slot, outgoing), unit, micro_batch, Value::Output, true);
        if unit + 1 == self.plan.units.len() {
            self.activation(own.output(unit, slot, outgoing), unit, micro_batch, Value::Output, false);
        }
    }

    /// Forward in a decoding walk. The head does not run forward; it predicts, in its workspace.
    fn decode(&mut self, unit: usize, micro_batch: usize, slot: usize) {
        let own = self.own;
        self.takes(unit, micro_batch, slot);
        self.works_in(unit);
        if unit + 1 < self.plan.units.len() {
            self.note(own.at, own.saved(unit, slot), Content::Nothing, 0, true);
            self.note(own.at, own.cache(unit), Content::Cache { unit }, 0, true);
            let output = own.output(unit, slot, self.position.outgoing(Parcel::Activations));
            // Its input must still be there when it writes, because a residual connection adds it last.
            self.activation(output, unit, micro_batch, Value::Output, true);
            self.takes(unit, micro_batch, slot);
        }
    }

    fn recompute(&mut self, unit: usize, micro_batch: usize, slot: usize) {
        let own = self.own;
        self.takes(unit, micro_batch, slot);
        self.activation(own.saved(unit, slot), unit, micro_batch, Value::Saved, true);
        self.note(own.at, own.output_again(unit), Content::Nothing, 0, true);
        self.works_in(unit);
    }

    fn backward(&mut self, unit: usize, micro_batch: usize, slot: usize) {
        let (own, config) = (self.own, &self.plan.config);
        self.takes(unit, micro_batch, slot);
        if unit + 1 == self.plan.units.len() {
            self.activation(own.output_gradient(unit), unit, micro_batch, Value::Gradient, true);
        }
        self.activation(own.saved(unit, slot), unit, micro_batch, Value::Saved, false);
        self.activation(own.output_gradient(unit), unit, micro_batch, Value::Gradient, false);
        if let Some(place) = own.input_gradient(unit, self.position.outgoing(Parcel::Gradients)) {
            self.activation(place, unit - 1, micro_batch, Value::Gradient, true);
        }
        self.works_in(unit);
        if config.precision.reduce.is_narrow() {
            self.note(own.at, own.wide_gradients(unit), Content::Nothing, 0, true);
        }
        let of = Gradients::Of(own.at.data_rank(&config.mesh));
        let content = |round| Content::Gradients { unit, round, of };
        if config.holds_gradients() && micro_batch > 0 {
            self.note(own.at, own.local_gradients(unit), content(micro_batch - 1), 0, false);
        }
        self.note(own.at, own.local_gradients(unit), content(micro_batch), 0, true);
    }

    /// Reads a parcel at its sender, and writes it to its place on this rank.
    fn receive(&mut self, parcel: Parcel, unit: usize, micro_batch: usize, slot: usize) {
        let own = self.own;
        let pipeline = self.plan.parcel_sender(parcel, own.at.pipeline);
        let sender = self.plan.places(Coordinates { pipeline, ..own.at });
        let (from, to) = (self.position.arriving(parcel), own.incoming(parcel, unit, slot));
        let data_rank = own.at.data_rank(&self.plan.config.mesh);
        match parcel {
            Parcel::Activations => {
                let content = Content::Activation { unit: unit - 1, micro_batch, data_rank, value: Value::Output };
                self.note(sender.at, sender.outgoing(parcel, unit - 1, from), content, 0, false);
                self.note(own.at, to, content, 0, true);
            }
            Parcel::Gradients => {
                let content = Content::Activation { unit, micro_batch, data_rank, value: Value::Gradient };
                self.note(sender.at, sender.outgoing(parcel, unit + 1, from), content, 0, false);
                self.note(own.at, to, content, 0, true);
            }
            Parcel::TiedGradients => self.fold(self.plan.units.len() - 1, sender.at),
            Parcel::TiedParameters => {
                let source = self.owner(unit);
                let start = self.bytes(Kind::Parameters, own.owned(source).start);
                self.parameters(sender.at, source, sender.outgoing(parcel, source, from), start, true);
                self.write_parameters(unit, to, start, true);
            }
        }
    }

    /// Reads the sums of a unit's gradients, adds them to its momentum, and puts directions in the place of the sums.
    fn momentum(&mut self, unit: usize) {
        let own = self.own;
        let (start, sums) = (own.owned(unit).start, own.sums(unit));
        let from_byte = self.bytes(sums.region, start);
        self.note(own.at, sums, self.summed(unit), from_byte, false);
        self.state(State::FirstMoment, unit, false);
        self.note(own.at, sums, Content::Direction { unit }, from_byte, true);
    }

    /// Reads and writes a state of the elements that this rank updates, if there is such a state.
    fn state(&mut self, state: State, unit: usize, is_updated: bool) {
        let own = self.own;
        if let Some((Stretch { start, .. }, place)) = own.state(state, unit) {
            let from_byte = self.bytes(place.region, start);
            self.note(own.at, place, Content::State { state, unit, is_updated: false }, from_byte, false);
            self.note(own.at, place, Content::State { state, unit, is_updated }, from_byte, true);
        }
    }

    /// Reads whole directions, and works on one matrix after another.
    fn orthogonalize(&mut self, unit: usize) {
        let own = self.own;
        self.note(own.at, own.local_gradients(unit), Content::Direction { unit }, 0, false);
        self.note(own.at, own.orthogonal_room(unit), Content::Nothing, 0, true);
        self.note(own.at, own.product_workspace(), Content::Nothing, 0, true);
    }

    fn update(&mut self, unit: usize) {
        let own = self.own;
        debug_assert!(matches!(self.pass, Pass::Train));
        let (start, sums) = (own.owned(unit).start, own.sums(unit));
        self.note(own.at, sums, self.updates_by(unit), self.bytes(sums.region, start), false);
        if self.plan.tables().is_orthogonalized(unit) {
            self.orthogonalize(unit);
        }
        for state in State::ALL {
            if state == State::Parameters {
                let from_byte = self.bytes(Kind::Parameters, start);
                self.parameters(own.at, unit, own.updated(unit), from_byte, false);
                self.write_parameters(unit, own.updated(unit), from_byte, true);
            } else {
                self.state(state, unit, true);
            }
        }
    }
}
