//! Tier: carries out the fetches and stores of all lanes, each kind in a queue of its own, beside the ops of the lane. A
//! fetch or store begins after the one before it in its queue, and after the op that the plan says it waits for. All of
//! those of one tier share its disks or links, so none knows its end before all that travels with it is known.
//!
//! What a GPU has on a disk passes through the memory of its host part by part. The link carries a part while the disk works on
//! the next one, so it adds the time of one part.

use std::collections::VecDeque;

use zero_plan::{Home, Op, Plan, Stream, TierKind};

use super::shared::{Direction, SharedTier};
use super::timeline::{Cause, Flow, LinkKind, Timeline, Transfer};
use crate::hardware::Hardware;

/// A fetch or a store that has been given to its queue.
#[derive(Clone, Copy)]
struct GivenPiece {
    op: usize,
    asked_s: f64,
}

/// What a queue is doing: first bytes travel, then the latencies of its reads or writes pass.
#[derive(Clone, Copy)]
struct Travelling {
    op: usize,
    tier: TierKind,
    /// Its number in the lane.
    transfer: usize,
    left_bytes: f64,
    left_latency_s: f64,
}

/// What an op of a tier moves, and what it takes in addition.
struct TripOfOp {
    tier: TierKind,
    bytes: usize,
    latency_s: f64,
}

impl Travelling {
    /// Whether bytes are on their way.
    const fn moves(&self) -> bool {
        self.left_bytes > 0.0
    }
}

#[derive(Default)]
struct TierQueue {
    given: VecDeque<GivenPiece>,
    current: Option<Travelling>,
    /// The last transfer.
    last: Option<usize>,
}

/// The two queues of a lane.
struct LaneQueues {
    queues: [TierQueue; 2],
    /// For each op of the step, its transfer, once that has ended.
    ended: Vec<Option<usize>>,
}

/// The queues of all lanes.
pub(super) struct TierQueues<'a> {
    plan: &'a Plan<'a>,
    /// Those in which something is kept.
    tiers: Vec<(TierKind, SharedTier)>,
    lanes: Vec<LaneQueues>,
}

impl<'a> TierQueues<'a> {
    pub fn new(plan: &'a Plan<'a>, hardware: &Hardware) -> Self {
        let shared = |tier| Some((tier, SharedTier::new(&plan.config.mesh, tier, hardware.rates_of(tier)?)));
        let of_lane = |ops: &[Op]| LaneQueues { queues: Default::default(), ended: vec![None; ops.len()] };
        Self {
            plan,
            tiers: [TierKind::Host, TierKind::Disk].into_iter().filter_map(shared).collect(),
            lanes: plan.pipeline_stages.iter().map(|stage| of_lane(stage.step)).collect(),
        }
    }

    /// Whether everything that was given has ended.
    pub fn are_idle(&self) -> bool {
        let mut queues = self.lanes.iter().flat_map(|lane| &lane.queues);
        queues.all(|queue| queue.given.is_empty() && queue.current.is_none())
    }

    /// The op of a tier that an op of a lane waits for, if there is one.
    pub fn need(&self, lane: usize, op: usize) -> Option<usize> {
        let queue = self.plan.pipeline_stages[lane].step_queue;
        queue.get(op)?.waits_for().filter(|&before| queue[before].stream.is_of_tier())
    }

    /// The transfer of an op of a tier, if it has ended.
    pub fn ended(&self, lane: usize, op: usize) -> Option<usize> {
        self.lanes[lane].ended[op]
    }

    /// Gives an op to its queue.
    pub fn give(&mut self, lane: usize, op: usize, now_s: f64, timeline: &mut Timeline) {
        let direction = if self.plan.pipeline_stages[lane].step_queue[op].stream == Stream::Fetch {
            Direction::Fetch
        } else {
            Direction::Store
        };
        self.lanes[lane].queues[direction as usize].given.push_back(GivenPiece { op, asked_s: now_s });
        self.begin(lane, now_s, timeline);
    }

    /// Begins what can begin in the queues of a lane.
    fn begin(&mut self, lane: usize, now_s: f64, timeline: &mut Timeline) {
        for direction in Direction::ALL {
            let queue = &self.lanes[lane].queues[direction as usize];
            let Some(&GivenPiece { op, asked_s }) = queue.given.front().filter(|_| queue.current.is_none()) else {
                continue;
            };
            let before = match self.need(lane, op) {
                None => None,
                Some(before) => match self.ended(lane, before) {
                    None => continue,
                    ended => ended,
                },
            };
            let TripOfOp { tier, bytes, latency_s } = self.trip(lane, op, direction);
            let transfers = &mut timeline.lanes[lane].transfers;
            // Whichever ended last let it begin.
            let cause =
                [queue.last, before].into_iter().flatten().find(|&it| transfers[it].end_s >= now_s && now_s > asked_s);
            let cause = cause.map_or(Cause::Op { lane, op }, |transfer| Cause::Transfer { lane, transfer });
            let flow = if direction == Direction::Fetch { Flow::Fetch } else { Flow::Store };
            let link = LinkKind::of_tier(tier);
            let number = transfers.len();
            transfers.push(Transfer {
                op,
                flow,
                link,
                bytes,
                asked_s,
                start_s: now_s,
                free_s: now_s,
                end_s: now_s,
                cause,
            });
            let travelling =
                Travelling { op, tier, transfer: number, left_bytes: bytes as f64, left_latency_s: latency_s };
            let queue = &mut self.lanes[lane].queues[direction as usize];
            queue.given.pop_front();
            (queue.current, queue.last) = (Some(travelling), Some(number));
        }
    }

    /// What a fetch or a store moves: from or to the slowest tier that it needs, and meanwhile over the link to the host.
    fn trip(&self, lane: usize, op: usize, direction: Direction) -> TripOfOp {
        let own = self.plan.places(self.plan.config.mesh.coordinates(self.plan.first_rank(lane)));
        let op = self.plan.pipeline_stages[lane].step[op];
        let in_home = |home: Home| {
            let there = own.trips(op).filter(|(kept, _)| own.memory.region(kept.region).home == home);
            there.fold((0, 0), |(bytes, requests), (kept, _)| (bytes + kept.len_bytes, requests + 1))
        };
        let [(on_disk, reads), (on_host, copies)] = [Home::Disk, Home::Host].map(in_home);
        if reads == 0 {
            let latency_s = self.shared(TierKind::Host).latency_s() * copies as f64;
            return TripOfOp { tier: TierKind::Host, bytes: on_host, latency_s };
        }
        let disk = self.shared(TierKind::Disk).latency_s();
        if !self.plan.config.relays() {
            return TripOfOp { tier: TierKind::Disk, bytes: on_disk, latency_s: disk * reads as f64 };
        }
        let (link, parts) = (self.shared(TierKind::Host), own.relayed_by(op).count());
        let last_part = on_disk.min(self.plan.config.relayed_bytes());
        let link_s =
            (on_host + last_part) as f64 / link.rate(lane, direction, |other, busy| other == lane && busy == direction);
        let latency_s = disk * parts as f64 + link.latency_s() * (copies + 1) as f64 + link_s;
        TripOfOp { tier: TierKind::Disk, bytes: on_disk, latency_s }
    }

    fn shared(&self, tier: TierKind) -> &SharedTier {
        let found = self.tiers.iter().find(|(kind, _)| *kind == tier);
        &found.expect("rates of a tier in which states are kept").1
    }

    /// The rate, in bytes a second, of what a queue is doing.
    fn rate(&self, lane: usize, direction: Direction, tier: TierKind) -> f64 {
        let is_busy = |other: usize, direction: Direction| {
            let current = &self.lanes[other].queues[direction as usize].current;
            current.is_some_and(|it| it.moves() && it.tier == tier)
        };
        self.shared(tier).rate(lane, direction, is_busy)
    }

    /// When the next of the lanes' transfers has moved all its bytes, or ends; infinite if nothing travels.
    pub fn next_s(&self, now_s: f64) -> f64 {
        self.each().map(|(lane, direction, it)| now_s + self.left_s(lane, direction, &it)).fold(f64::INFINITY, f64::min)
    }

    /// Everything that travels.
    fn each(&self) -> impl Iterator<Item = (usize, Direction, Travelling)> {
        let queues = |lane| Direction::ALL.map(|direction| (lane, direction));
        let all = (0..self.lanes.len()).flat_map(queues);
        all.filter_map(|(lane, direction)| {
            Some((lane, direction, self.lanes[lane].queues[direction as usize].current?))
        })
    }

    /// Seconds until its bytes have moved, or its latencies have passed.
    fn left_s(&self, lane: usize, direction: Direction, it: &Travelling) -> f64 {
        if it.moves() { it.left_bytes / self.rate(lane, direction, it.tier) } else { it.left_latency_s }
    }

    /// Lets time pass from `now_s` to `next_s`, at which nothing is later than [`Self::next_s`].
    pub fn pass_time(&mut self, now_s: f64, next_s: f64, timeline: &mut Timeline) {
        let all: Vec<_> =
            self.each().map(|(lane, direction, it)| (lane, direction, it, self.left_s(lane, direction, &it))).collect();
        for (lane, direction, mut it, left_s) in all {
            let (is_done, share) = (now_s + left_s <= next_s, (next_s - now_s) / left_s);
            let transfer = &mut timeline.lanes[lane].transfers[it.transfer];
            match (it.moves(), is_done) {
                (true, false) => it.left_bytes -= it.left_bytes * share,
                (true, true) => (it.left_bytes, transfer.free_s) = (0.0, next_s),
                (false, false) => it.left_latency_s -= next_s - now_s,
                (false, true) => it.left_latency_s = 0.0,
            }
            transfer.end_s = next_s + it.left_latency_s;
            let has_ended = !it.moves() && it.left_latency_s == 0.0;
            let lane = &mut self.lanes[lane];
            lane.queues[direction as usize].current = Some(it).filter(|_| !has_ended);
            if has_ended {
                lane.ended[it.op] = Some(it.transfer);
            }
        }
        (0..self.lanes.len()).for_each(|lane| self.begin(lane, next_s, timeline));
    }
}
