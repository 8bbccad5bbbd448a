//! Run: runs the ops of a step on some hardware, in the order of time. Each op waits as it would on its rank, and its
//! work takes as long as it costs. If ranks share cores, the ranks that work share them equally. Never decides the cost
//! of work.
//!
//! All ranks of a pipeline stage do the same at the same time, because a collective ends for all of its members at
//! once. So one lane stands for all these ranks, and counts as often as a node has ranks of the pipeline stage.

use zero_plan::{Axis, Config, Coordinates, OUTGOING_SLOTS, Op, Parcel, Plan, Traffic};

use super::cores::SharedCores;
use super::cost::Costs;
use super::links::{Route, Routes};
use super::tier::TierQueues;
use super::timeline::{Cause, Flow, Lane, OpSpan, Timeline, Transfer};
use crate::hardware::{Hardware, Processor};

/// Less remaining work than this, in seconds, counts as done, because rounding leaves such remainders.
const DONE_S: f64 = 1e-15;

/// The state of a lane.
#[derive(Clone, Copy, PartialEq)]
enum LaneState {
    /// Before or within an op; it is not known yet whether it can continue.
    Ready,
    /// Waits until this time, in seconds.
    Sleeping(f64),
    /// Waits for another lane.
    Blocked,
    /// Works for this many more seconds, if it keeps its cores.
    Working(f64),
    Through,
}

/// A need that an op waits for.
enum OpNeed {
    Nothing,
    Until(f64, Cause),
    Unknown,
}

/// A running lane.
struct Runner {
    state: LaneState,
    /// The op that the lane is in, or enters next.
    next: usize,
    is_inside: bool,
    start_s: f64,
    /// The cores that its current op keeps busy.
    cores: f64,
    /// The last transfer that each unit's gather began; in the two fields below, the last transfer of each bucket's
    /// reduction along `zero` and along `replica`.
    gathers: Vec<Option<usize>>,
    reductions: Vec<Option<usize>>,
    combinations: Vec<Option<usize>>,
    /// The transfer that its current op began.
    own: Option<usize>,
    /// For each kind of parcel, the transfers of sent parcels, and the ops that took received parcels.
    sent: [Vec<usize>; Parcel::ALL.len()],
    taken: [Vec<usize>; Parcel::ALL.len()],
    /// The last transfer over the links of the node, and over the network.
    last: [Option<usize>; 2],
}

/// All lanes.
pub struct SimulatedRun<'a> {
    plan: &'a Plan<'a>,
    costs: &'a Costs<'a>,
    routes: Routes<'a>,
    /// The routes of the collectives of each lane along `zero` and `replica`, computed once for all ops.
    collectives: Vec<[Route; 2]>,
    runners: Vec<Runner>,
    timeline: Timeline,
    now_s: f64,
    /// None if each rank has a device.
    cores: Option<SharedCores>,
    tiers: TierQueues<'a>,
    /// Lanes that have reached the agreement.
    agreeing: usize,
}

impl<'a> SimulatedRun<'a> {
    pub fn new(plan: &'a Plan<'a>, hardware: &'a Hardware, costs: &'a Costs<'a>) -> Self {
        let mesh = &plan.config.mesh;
        let (pipeline_stages, routes) = (mesh.pipeline, Routes::new(hardware, mesh));
        let runner = |_| Runner {
            state: LaneState::Ready,
            next: 0,
            is_inside: false,
            start_s: 0.0,
            cores: 1.0,
            gathers: vec![None; plan.units.len()],
            reductions: vec![None; plan.buckets.len()],
            combinations: vec![None; plan.buckets.len()],
            own: None,
            sent: Default::default(),
            taken: Default::default(),
            last: [None; 2],
        };
        Self {
            plan,
            costs,
            routes,
            collectives: (0..pipeline_stages)
                .map(|pipeline| [Axis::Zero, Axis::Replica].map(|axis| routes.collective(axis, pipeline)))
                .collect(),
            runners: (0..pipeline_stages).map(runner).collect(),
            timeline: Timeline { lanes: vec![Lane::default(); pipeline_stages], step_s: 0.0 },
            now_s: 0.0,
            cores: (hardware.device.kind == Processor::Cpu).then(|| SharedCores::new(mesh, hardware.node.devices)),
            tiers: TierQueues::new(plan, hardware),
            agreeing: 0,
        }
    }

    /// Runs all lanes to their end.
    ///
    /// # Panics
    /// If lanes wait for one another, which never happens with a plan that can be proven.
    pub fn end(mut self) -> Timeline {
        loop {
            // One lane may let another continue at the same time.
            while (0..self.runners.len()).filter(|&lane| self.advance(lane)).count() > 0 {}
            if self.runners.iter().all(|runner| runner.state == LaneState::Through) && self.tiers.are_idle() {
                break;
            }
            self.pass_time();
        }
        self.timeline.step_s = self.timeline.lanes.iter().map(Lane::stored_s).fold(0.0, f64::max);
        self.timeline
    }

    fn ops(&self, lane: usize) -> &'a [Op] {
        self.plan.pipeline_stages[lane].step
    }

    /// Lets a lane continue at this time, up to an op whose work takes time. Returns whether it did anything.
    fn advance(&mut self, lane: usize) -> bool {
        let mut moved = false;
        loop {
            let runner = &self.runners[lane];
            match runner.state {
                LaneState::Through => return moved,
                LaneState::Working(left) if left > DONE_S => return moved,
                LaneState::Working(_) => self.finish(lane),
                LaneState::Sleeping(until) if until > self.now_s => return moved,
                _ => match self.start(lane) {
                    LaneState::Blocked if self.runners[lane].state == LaneState::Blocked => return moved,
                    state => self.runners[lane].state = state,
                },
            }
            moved = true;
        }
    }

    /// Enters the next op, and begins its work if it need not wait. Returns the lane's new state.
    fn start(&mut self, lane: usize) -> LaneState {
        let Some(&op) = self.ops(lane).get(self.runners[lane].next) else { return LaneState::Through };
        if !self.runners[lane].is_inside {
            self.runners[lane].is_inside = true;
            self.begin(lane, op);
        }
        let (index, before_s) = (self.runners[lane].next, self.timeline.lanes[lane].before_s(self.runners[lane].next));
        let cause = match self.need(lane, op) {
            OpNeed::Unknown => return LaneState::Blocked,
            OpNeed::Until(time, _) if time > self.now_s => return LaneState::Sleeping(time),
            OpNeed::Until(time, cause) if time > before_s => cause,
            _ => self.after(lane, index),
        };
        let start_s = self.now_s;
        let at = Coordinates { zero: 0, replica: 0, pipeline: lane };
        (self.runners[lane].start_s, self.runners[lane].cores) = (start_s, self.costs.cores(at, op));
        self.timeline.lanes[lane].spans.push(OpSpan { start_s, end_s: start_s, waited_s: start_s - before_s, cause });
        LaneState::Working(self.costs.seconds(at, op))
    }

    /// The cause of an event that follows all ops of a lane before this op.
    fn after(&self, lane: usize, op: usize) -> Cause {
        op.checked_sub(1).map_or(Cause::Start, |op| Cause::Op { lane, op })
    }

    /// Begins an op: does the part that other lanes see before the op waits.
    fn begin(&mut self, lane: usize, op: Op) {
        match op {
            Op::Gather { unit, .. } => {
                self.runners[lane].gathers[unit] = self.exchange(lane, Flow::Gather, Axis::Zero, op);
            }
            Op::Reduce { bucket, .. } if !self.plan.config.sums_on_hosts(Axis::Zero) => {
                self.runners[lane].reductions[bucket] = self.exchange(lane, Flow::Reduce, Axis::Zero, op);
            }
            Op::Spread { axis, .. } => {
                self.runners[lane].own = self.exchange(lane, Flow::Spread, axis, op);
            }
            Op::Send { parcel, .. } => {
                let route = self.routes.parcel(lane, self.plan.parcel_receiver(parcel, lane));
                let transfer = self.send(
                    lane,
                    Flow::Parcel,
                    route,
                    Traffic::of(self.plan, self.plan.busiest_rank(lane), &[op]).total_bytes(),
                );
                self.runners[lane].sent[parcel as usize].extend(transfer);
            }
            Op::Agree => {
                self.agreeing += 1;
                if self.agreeing == self.runners.len() {
                    let route = self.routes.agreement();
                    for other in 0..self.runners.len() {
                        let sent = self.send_after(
                            other,
                            Flow::Agreement,
                            route,
                            0,
                            self.after(lane, self.runners[lane].next),
                        );
                        self.runners[other].own = sent;
                    }
                }
            }
            _ => {}
        }
    }

    /// Begins the exchange of an op along an axis. If ranks send directly, only the bytes to other hosts take time,
    /// because the rest is read in place or sent meanwhile; all other exchanges take the hardware's own route.
    fn exchange(&mut self, lane: usize, flow: Flow, axis: Axis, op: Op) -> Option<usize> {
        let config = &self.plan.config;
        if is_straight(config, op) {
            // All ranks wait for the rank that sends most.
            let bytes = Traffic::between_hosts(self.plan, self.plan.busiest_rank(lane), &[op]).total_bytes();
            if bytes > 0 {
                return self.send(lane, flow, self.routes.between_hosts(config.mesh.len(axis)), bytes);
            }
        }
        let [zero, replica] = self.collectives[lane];
        let route = if axis == Axis::Zero { zero } else { replica };
        self.send(lane, flow, route, Traffic::of(self.plan, self.plan.busiest_rank(lane), &[op]).total_bytes())
    }

    /// The need that an op waits for, once it has begun.
    fn need(&self, lane: usize, op: Op) -> OpNeed {
        let runner = &self.runners[lane];
        let transfer = |lane: usize, transfer: Option<usize>| match transfer {
            None => OpNeed::Nothing,
            Some(transfer) => {
                OpNeed::Until(self.timeline.lanes[lane].transfers[transfer].end_s, Cause::Transfer { lane, transfer })
            }
        };
        match op {
            Op::Wait { unit } => transfer(lane, runner.gathers[unit]),
            Op::Settle { bucket, .. } => transfer(lane, runner.reductions[bucket]),
            Op::Combine { bucket, .. } => transfer(lane, runner.combinations[bucket]),
            Op::Spread { .. } => transfer(lane, runner.own),
            // Those gather or send parameters that the host has updated.
            Op::Update { .. } | Op::Gather { .. } | Op::Send { parcel: Parcel::TiedParameters, .. } => {
                match self.tiers.need(lane, runner.next).map(|trip| self.tiers.ended(lane, trip)) {
                    Some(None) => OpNeed::Unknown,
                    ended => transfer(lane, ended.flatten()),
                }
            }
            Op::Agree if self.agreeing < self.runners.len() => OpNeed::Unknown,
            Op::Agree => transfer(lane, runner.own),
            Op::Receive { parcel, .. } => {
                let sender = self.plan.parcel_sender(parcel, lane);
                let nth = runner.taken[parcel as usize].len();
                match self.runners[sender].sent[parcel as usize].get(nth) {
                    None => OpNeed::Unknown,
                    sent => transfer(sender, sent.copied()),
                }
            }
            Op::Clear { parcel } => {
                let Some(nth) = runner.sent[parcel as usize].len().checked_sub(OUTGOING_SLOTS) else {
                    return OpNeed::Nothing;
                };
                let receiver = self.plan.parcel_receiver(parcel, lane);
                match self.runners[receiver].taken[parcel as usize].get(nth) {
                    None => OpNeed::Unknown,
                    Some(&op) => {
                        OpNeed::Until(self.timeline.lanes[receiver].spans[op].end_s, Cause::Op { lane: receiver, op })
                    }
                }
            }
            _ => OpNeed::Nothing,
        }
    }

    /// Ends the op that a lane is in, and moves to the next op.
    fn finish(&mut self, lane: usize) {
        let index = self.runners[lane].next;
        let end_s = self.now_s;
        self.timeline.lanes[lane].spans[index].end_s = end_s;
        let runner = &mut self.runners[lane];
        (runner.state, runner.is_inside, runner.next, runner.own) = (LaneState::Ready, false, index + 1, None);
        let config = self.plan.config;
        match self.ops(lane)[index] {
            Op::Subtotal { bucket, round, axis: Axis::Zero } => {
                let reduce = Op::Reduce { bucket, round };
                self.runners[lane].reductions[bucket] = self.exchange(lane, Flow::Reduce, Axis::Zero, reduce);
            }
            Op::Subtotal { bucket, round, .. } => self.give_to_replicas(lane, bucket, round),
            Op::Settle { bucket, round } if config.mesh.replica > 1 && !config.sums_on_hosts(Axis::Replica) => {
                self.give_to_replicas(lane, bucket, round);
            }
            Op::Receive { parcel, .. } => self.runners[lane].taken[parcel as usize].push(index),
            op if op.traits().stream.is_of_tier() => self.tiers.give(lane, index, end_s, &mut self.timeline),
            _ => {}
        }
    }

    fn give_to_replicas(&mut self, lane: usize, bucket: usize, round: usize) {
        let combine = Op::Combine { bucket, round };
        self.runners[lane].combinations[bucket] = self.exchange(lane, Flow::ReplicaReduce, Axis::Replica, combine);
    }

    /// Begins a transfer of a lane after everything that the lane has done so far, and returns the transfer's number.
    /// Collectives of one rank have no transfer.
    fn send(&mut self, lane: usize, flow: Flow, route: Route, bytes: usize) -> Option<usize> {
        let cause = self.after(lane, self.runners[lane].next);
        self.send_after(lane, flow, route, bytes, cause)
    }

    fn send_after(&mut self, lane: usize, flow: Flow, route: Route, bytes: usize, cause: Cause) -> Option<usize> {
        let (asked_s, op) =
            (self.now_s, self.runners[lane].next.saturating_sub(usize::from(flow == Flow::ReplicaReduce)));
        let Lane { transfers, .. } = &mut self.timeline.lanes[lane];
        let number = transfers.len();
        let queue = match route.link {
            super::LinkKind::Memory | super::LinkKind::Disk | super::LinkKind::Host => None,
            super::LinkKind::Node => Some(0),
            super::LinkKind::Network => Some(1),
        };
        let before =
            queue.and_then(|queue| self.runners[lane].last[queue]).filter(|&before| transfers[before].free_s > asked_s);
        let (start_s, cause) = match before {
            Some(transfer) => (transfers[transfer].free_s, Cause::Transfer { lane, transfer }),
            None => (asked_s, cause),
        };
        let free_s = start_s + route.busy_s(bytes);
        let end_s = free_s + route.latency_s();
        transfers.push(Transfer { op, flow, link: route.link, bytes, asked_s, start_s, free_s, end_s, cause });
        if let Some(queue) = queue {
            self.runners[lane].last[queue] = Some(number);
        }
        Some(number)
    }

    /// The share of its cores that a working lane gets.
    fn rate(&self, lane: usize) -> f64 {
        let Some(cores) = &self.cores else { return 1.0 };
        cores.share(lane, |other| {
            let Runner { state, cores, .. } = &self.runners[other];
            if matches!(state, LaneState::Working(_)) { *cores } else { 0.0 }
        })
    }

    /// Advances to the next time at which something happens.
    fn pass_time(&mut self) {
        let ends: Vec<Option<f64>> = (0..self.runners.len())
            .map(|lane| match self.runners[lane].state {
                LaneState::Working(left) => Some(self.now_s + left / self.rate(lane)),
                LaneState::Sleeping(until) => Some(until),
                _ => None,
            })
            .collect();
        let rates: Vec<f64> = (0..self.runners.len()).map(|lane| self.rate(lane)).collect();
        let next_s = ends.iter().flatten().copied().fold(self.tiers.next_s(self.now_s), f64::min);
        assert!(next_s.is_finite(), "lanes wait for one another: the plan cannot be proven");
        for (lane, runner) in self.runners.iter_mut().enumerate() {
            if let LaneState::Working(left) = &mut runner.state {
                let is_done = ends[lane].is_some_and(|end| end <= next_s);
                *left = if is_done { 0.0 } else { (*left - (next_s - self.now_s) * rates[lane]).max(0.0) };
            }
        }
        self.tiers.pass_time(self.now_s, next_s, &mut self.timeline);
        self.now_s = next_s;
    }
}

/// Whether each rank sends bytes directly to the ranks of other hosts that need them in an op: always with MPI, and with
/// NCCL except in gathers and spreads.
pub(super) fn is_straight(config: &Config, op: Op) -> bool {
    config.sends_messages() || config.spans_hosts() && !matches!(op, Op::Gather { .. } | Op::Spread { .. })
}
