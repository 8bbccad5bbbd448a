//! Carried: moves bytes to the ranks that need them if no device reaches the memory of another, on one host or several. All
//! ranks of a group do the same ops in the same order, as `prove` has shown: an op gathers the shares of all ranks, or sends
//! what its counterparts on other ranks need and receives what they send. This order makes waits for counts unnecessary.
//! Counts are raised all the same, so that a rank can find out which rank is late.
#![allow(unsafe_code)]

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use zero_plan::place::{Arrival, Place, Position, arrivals, gathered};
use zero_plan::{Axis, Coordinates, OUTGOING_SLOTS, Op, Parcel, Plan, Stream};

use super::control::timeout_of;
use super::shared::Shared;
use super::{Crossed, Lost};
use zero_core::arena::Arena;
use zero_core::device::{self, Communicator, Device, DeviceError, Group, GroupPart};
use zero_core::view::{View, ViewMut};
use zero_core::watchdog::{Awaited, Watchdog};

/// A way that bytes take: along an axis from a stream, as parcels of a kind from a pipeline stage, or between all ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CarriedWay {
    Along(Axis, Stream),
    From(Parcel, usize),
    /// Between all ranks: the numbers that they exchange.
    Numbers,
}

/// The ways that a rank is on, and the bytes that its current op moves.
pub(crate) struct CarriedWays {
    /// The way of each group that the device has joined.
    ways: Vec<CarriedWay>,
    /// The places at which bytes of other ranks arrived in the last op that received any.
    arrived: Vec<(usize, Arrival)>,
    /// The places that are sent to others in that op, each with the number of the member that receives it.
    leaving: Vec<(usize, Place)>,
    /// The places that this rank shares with all in that op, each with the place in which the shares of all are gathered.
    gathered: Vec<(Place, Place)>,
    /// The slots that parcels have left from in this pass.
    has_left: [[bool; OUTGOING_SLOTS]; Parcel::ALL.len()],
    /// The first of the events for parcels.
    events: usize,
    /// Bytes sent to ranks of other hosts, and received from them.
    pub(super) crossed: Crossed,
}

/// Events for each kind of parcel: one that it may leave, and one for each slot that it has left.
const EVENTS: usize = 1 + OUTGOING_SLOTS;

/// The way of an op on a pipeline stage, if it has one, and a rank's part in it.
fn way(plan: &Plan, pipeline: usize, op: Op) -> Option<(CarriedWay, GroupPart)> {
    match op {
        Op::Send { parcel, .. } => Some((CarriedWay::From(parcel, pipeline), GroupPart::Sends)),
        Op::Receive { parcel, .. } => {
            Some((CarriedWay::From(parcel, plan.parcel_sender(parcel, pipeline)), GroupPart::Receives))
        }
        op => {
            let axis = op.traits().axis.filter(|&axis| plan.config.mesh.len(axis) > 1)?;
            let part = match op {
                Op::Gather { .. } | Op::Spread { .. } => GroupPart::Gathers,
                _ => GroupPart::Exchanges,
            };
            Some((CarriedWay::Along(axis, op.traits().stream), part))
        }
    }
}

/// The parts that ranks of a pipeline stage have on a way, in an order that is the same for all ranks that share it.
fn parts(plan: &Plan, way: CarriedWay, own_pipeline: usize) -> Vec<GroupPart> {
    let mut parts = if way == CarriedWay::Numbers { vec![GroupPart::Gathers] } else { Vec::new() };
    for (pipeline, (on, part)) in steps(plan) {
        if pipeline == own_pipeline && on == way && !parts.contains(&part) {
            parts.push(part);
        }
    }
    parts
}

/// Each op that has a way, by the pipeline stage that does it.
fn steps<'a>(plan: &'a Plan) -> impl Iterator<Item = (usize, (CarriedWay, GroupPart))> + 'a {
    plan.pipeline_stages.iter().enumerate().flat_map(move |(pipeline, tables)| {
        let ops = tables.step.iter().chain(tables.evaluation);
        ops.filter_map(move |&op| Some((pipeline, way(plan, pipeline, op)?)))
    })
}

/// All ways of a plan, in an order that is the same on all ranks.
fn ways(plan: &Plan) -> Vec<CarriedWay> {
    let mut ways = vec![CarriedWay::Numbers];
    for (_, (way, _)) in steps(plan) {
        if !ways.contains(&way) {
            ways.push(way);
        }
    }
    ways
}

/// The ranks of a rank's group on a way, itself among them; none if it is not on the way.
fn members(plan: &Plan, way: CarriedWay, rank: usize) -> Vec<usize> {
    let mesh = &plan.config.mesh;
    let at = mesh.coordinates(rank);
    let members: Vec<Coordinates> = match way {
        CarriedWay::Along(Axis::Zero, _) => (0..mesh.zero).map(|zero| Coordinates { zero, ..at }).collect(),
        CarriedWay::Along(_, _) => (0..mesh.replica).map(|replica| Coordinates { replica, ..at }).collect(),
        CarriedWay::From(parcel, pipeline) => {
            let ends = [pipeline, plan.parcel_receiver(parcel, pipeline)];
            ends.map(|pipeline| Coordinates { pipeline, ..at }).to_vec()
        }
        CarriedWay::Numbers => (0..mesh.ranks()).map(|rank| mesh.coordinates(rank)).collect(),
    };
    let members: Vec<usize> = members.into_iter().map(|at| mesh.rank(at)).collect();
    if members.contains(&rank) { members } else { Vec::new() }
}

/// All groups of a plan, each once: in the order in which ranks join them, and in which they are named.
fn groups(plan: &Plan) -> Vec<(CarriedWay, Vec<usize>)> {
    let of_way = |way: CarriedWay| {
        let all = (0..plan.config.mesh.ranks()).map(move |rank| (rank, members(plan, way, rank)));
        all.filter(|(rank, members)| members.first() == Some(rank)).map(move |(_, members)| (way, members))
    };
    ways(plan).into_iter().flat_map(of_way).collect()
}

/// How many of `bytes` go from one host to another when these two ranks exchange them.
fn crossing(plan: &Plan, rank: usize, other: usize, bytes: usize) -> usize {
    if plan.config.shares_host(rank, other) { 0 } else { bytes }
}

/// The communicator between devices of this transport.
fn communicator<D: Device>(device: &D) -> &dyn Communicator<D> {
    device.communicator().expect("a spec whose devices exchange bytes names devices that can")
}

/// Names for all groups of a plan, made on one rank's device: none if nothing is carried.
pub(crate) fn names<D: Device>(arena: &Arena<D>) -> Result<Vec<u8>, DeviceError> {
    arena.with_device(|device| communicator(device).name_groups(groups(arena.plan()).len()))
}

impl<'p, D: Device> Shared<'p, D> {
    /// Joins all groups of this rank by their names, which are the same on all ranks, before the first op. Waits for
    /// the others until `goes_on` is false or one of them has ended.
    pub(crate) fn connect(&mut self, names: &[u8], goes_on: &dyn Fn() -> bool) -> Result<(), DeviceError> {
        let (arena, rank) = (Arc::clone(&self.arena), self.rank());
        let own_pipeline = arena.coordinates().pipeline;
        let (plan, events) = (arena.plan(), arena.pipeline_stage().events());
        let (mut own_ways, mut own_groups) = (Vec::new(), Vec::new());
        for (name, (way, members)) in groups(plan).into_iter().enumerate() {
            let Some(own) = members.iter().position(|&member| member == rank) else { continue };
            let parts = parts(plan, way, own_pipeline);
            own_ways.push(way);
            own_groups.push(Group { members, own, name, parts });
        }
        arena.with_device(|device| {
            device.prepare(events + EVENTS * Parcel::ALL.len())?;
            communicator(device).connect(&own_groups, names, &|_| goes_on() && self.own().lost().is_none())
        })?;
        let most = plan.units.len() * plan.config.mesh.ranks();
        let (arrived, leaving, gathered) =
            (Vec::with_capacity(most), Vec::with_capacity(most), Vec::with_capacity(plan.units.len()));
        let (has_left, crossed) = Default::default();
        Arc::make_mut(&mut self.watchdog).is_carried = true;
        self.carried = Some(CarriedWays { ways: own_ways, arrived, leaving, gathered, has_left, events, crossed });
        Ok(())
    }

    /// Receives the bytes that an op needs from other ranks, and sends them the bytes that they need in theirs, in the
    /// queue of the op.
    ///
    /// # Safety
    /// The promise of [`super::Transport::begin`].
    pub(super) unsafe fn carry(&mut self, device: &D, op: Op, position: &Position) -> Result<(), Lost> {
        let Some(carried) = &mut self.carried else { return Ok(()) };
        let (plan, rank) = (self.arena.plan(), self.arena.rank());
        let (own, mesh) = (position.places(self.arena.places()), &plan.config.mesh);
        if let Op::Clear { parcel } = op {
            let slot = position.outgoing(parcel);
            if carried.has_left[parcel as usize][slot] {
                device.wait(carried.event(parcel, 1 + slot));
            }
        }
        if matches!(op, Op::Send { .. }) {
            return Ok(());
        }
        let Some(group) = carried.group(plan, own.at.pipeline, op) else { return Ok(()) };
        let CarriedWays { arrived, leaving, gathered: whole, crossed, .. } = carried;
        arrived.clear();
        leaving.clear();
        whole.clear();
        arrivals(plan, op, position, &own, &mut |arrival| arrived.push((mesh.rank(arrival.from), arrival)));
        let taken = arrived.iter().map(|(from, arrival)| crossing(plan, rank, *from, arrival.to.len_bytes));
        crossed.taken_bytes += taken.sum::<usize>();
        let along = op.traits().axis;
        let index = |at: Coordinates| match along {
            Some(Axis::Zero) => at.zero,
            Some(Axis::Replica) => at.replica,
            // A parcel comes from the first of the two.
            _ => 0,
        };
        gathered(plan, op, &own, &own, &mut |source, all| whole.push((source, all)));
        let shared_bytes: usize = whole.iter().map(|(source, _)| source.len_bytes).sum();
        let peers = along.map_or(0, |axis| mesh.len(axis));
        for peer in (0..peers).map(|index| along.map_or(own, |axis| own.along(axis, index))) {
            let mut given_bytes = shared_bytes;
            if whole.is_empty() {
                arrivals(plan, op, position, &peer, &mut |arrival| {
                    if arrival.from == own.at {
                        leaving.push((index(peer.at), arrival.source));
                        given_bytes += arrival.source.len_bytes;
                    }
                });
            }
            crossed.sent_bytes += crossing(plan, rank, mesh.rank(peer.at), given_bytes);
        }
        let Some(CarriedWays { arrived, leaving, gathered: whole, .. }) = &self.carried else { return Ok(()) };
        let arrived = if whole.is_empty() { &arrived[..] } else { &[] };
        let arena = &self.arena;
        // SAFETY: nobody else touches what is received: it is this rank's, for this op.
        let received = arrived.iter().map(|(_, arrival)| unsafe {
            device::Carried::Receive { from: index(arrival.from), bytes: arena.bytes_mut(arrival.to) }
        });
        // SAFETY: what peers need of this rank in this op is there, and written again only after it.
        let sent =
            leaving.iter().map(|&(to, place)| unsafe { device::Carried::Send { to, bytes: arena.bytes(place) } });
        // SAFETY: as for the two above. The bytes that it gives to all may lie in those that it gathers, where they
        // stay as they are.
        let shared = whole.iter().map(|&(source, all)| unsafe {
            device::Carried::Gather { own: arena.bytes(source), all: arena.bytes_mut(all) }
        });
        let mut parcels = received.chain(sent).chain(shared);
        // SAFETY: as above; all members are at the same op.
        unsafe { self.carry_in(device, group, &mut parcels) }
    }

    /// Has the device carry `parcels` in a group. Gives up if other ranks do not ask their devices for their part within
    /// the timeout.
    ///
    /// # Safety
    /// The promise of [`Communicator::carry`].
    unsafe fn carry_in(
        &self,
        device: &D,
        group: usize,
        parcels: &mut dyn Iterator<Item = device::Carried<D>>,
    ) -> Result<(), Lost> {
        let (slept, patience) = (Cell::new(Duration::ZERO), timeout_of(self.watchdog.sleeps_max));
        let goes_on = |by| {
            slept.set(slept.get() + by);
            slept.get() < patience && self.own().lost().is_none()
        };
        // SAFETY: by the caller's promise.
        unsafe { communicator(device).carry(group, parcels, &goes_on) };
        match self.lost() {
            Some(lost) => Err(lost),
            None if slept.get() >= patience => Err(self.watchdog.gives_up(Awaited::Rank(self.suspect()))),
            None => Ok(()),
        }
    }

    /// Sends a parcel from a queue of its own: the rank that made it continues, and waits only before its slot is filled
    /// again.
    ///
    /// # Safety
    /// The promise of [`super::Transport::end`].
    pub(super) unsafe fn send(&mut self, device: &D, op: Op, position: &Position) {
        let (Op::Send { parcel, unit, .. }, Some(carried)) = (op, &mut self.carried) else { return };
        let (plan, own, slot) = (self.arena.plan(), self.arena.places(), position.outgoing(parcel));
        let group = carried.group(plan, own.at.pipeline, op).expect("a way for each parcel");
        device.record(carried.event(parcel, 0));
        device.enter(Stream::ALL.len() + parcel as usize);
        device.wait(carried.event(parcel, 0));
        // SAFETY: a slot that is filled again only after a wait for the event below; tied data, which leaves from where
        // it is kept, is written only after an agreement, before which the receiver has taken it.
        let bytes = unsafe { self.arena.bytes(own.outgoing(parcel, unit, slot)) };
        let receiver = self.arena.along(Axis::Pipeline, plan.parcel_receiver(parcel, own.at.pipeline));
        carried.crossed.sent_bytes += crossing(plan, self.arena.rank(), receiver, bytes.len());
        let mut parcels = std::iter::once(device::Carried::Send { to: 1, bytes });
        let control = self.arena.control(self.arena.rank());
        // SAFETY: as above; the receiver takes parcels of a kind in the order in which they are sent. If it never does,
        // the next op that waits for anything reports it.
        unsafe { communicator(device).carry(group, &mut parcels, &|_| control.lost().is_none()) };
        device.record(carried.event(parcel, 1 + slot));
        device.enter(op.traits().stream as usize);
        carried.has_left[parcel as usize][slot] = true;
    }

    /// Makes the current queue wait until all parcels have left, so that nothing of a pass reaches into the next one.
    pub(super) fn await_parcels(&mut self, device: &D) {
        let Some(carried) = &mut self.carried else { return };
        for (parcel, slot) in
            Parcel::ALL.into_iter().flat_map(|parcel| (0..OUTGOING_SLOTS).map(move |slot| (parcel, slot)))
        {
            if std::mem::take(&mut carried.has_left[parcel as usize][slot]) {
                device.wait(carried.event(parcel, 1 + slot));
            }
        }
    }

    /// Has the device gather the numbers of all ranks.
    ///
    /// # Safety
    /// The promise of [`super::Transport::exchange`].
    pub(super) unsafe fn carry_numbers(
        &mut self,
        device: &D,
        mine: View<D, f64>,
        all: ViewMut<D, f64>,
    ) -> Result<(), Lost> {
        let (plan, rank) = (self.arena.plan(), self.rank());
        let carried = self.carried.as_mut().expect("a way for numbers");
        let (first, end) = plan.config.sharing(rank);
        carried.crossed.sent_bytes += (plan.config.mesh.ranks() - (end - first)) * mine.len() * size_of::<f64>();
        let group = carried.ways.iter().position(|&way| way == CarriedWay::Numbers).expect("a way for numbers");
        // SAFETY: the same bytes.
        let (own, all) = unsafe {
            (
                View::from_raw(mine.address().cast(), mine.len() * size_of::<f64>()),
                ViewMut::from_raw(all.address().cast(), all.len() * size_of::<f64>()),
            )
        };
        // SAFETY: all ranks exchange equally many numbers, and nobody else touches the place where they go.
        unsafe { self.carry_in(device, group, &mut std::iter::once(device::Carried::Gather { own, all })) }
    }
}

impl CarriedWays {
    fn event(&self, parcel: Parcel, which: usize) -> usize {
        self.events + EVENTS * parcel as usize + which
    }

    fn group(&self, plan: &Plan, pipeline: usize, op: Op) -> Option<usize> {
        let (way, _) = way(plan, pipeline, op)?;
        self.ways.iter().position(|&own| own == way)
    }

    /// The places at which bytes of other ranks arrived.
    pub(super) fn arrived(&self) -> &[(usize, Arrival)] {
        &self.arrived
    }
}

/// The bytes of another rank's place, or of its beginning, where they arrived on this rank.
pub(super) fn arrived<'a, D: Device>(
    all: &[(usize, Arrival)],
    arena: &'a Arena<D>,
    rank: usize,
    place: Place,
) -> View<'a, D, u8> {
    let is_it = |(from, arrival): &&(usize, Arrival)| {
        (*from, arrival.source.region, arrival.source.offset_bytes) == (rank, place.region, place.offset_bytes)
    };
    let (_, arrival) = all.iter().find(is_it).expect("what an op takes of another rank was brought");
    // SAFETY: this rank's own memory, which the op has filled and now reads.
    unsafe { arena.bytes(arrival.to.first(place.len_bytes)) }
}
