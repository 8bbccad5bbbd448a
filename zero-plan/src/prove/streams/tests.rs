//! Mutants of queues: an event is missing, recorded earlier or waited for later, or an op is in another stream. The
//! proof objects to each mutant, unless conflicting accesses are still in order, which is then shown pair by pair.

use super::clock::{OpNumber, StreamChain};
use super::walk::is_done_by;
use super::*;
use crate::build::PlanBuf;
use crate::config::{
    Config, DeviceKind, Offload, Often, OptimizerKind, Order, Precision, Publish, Recompute, TierKind, TransportKind,
    UpdatePlace, UpdateTime, Width,
};
use crate::layout::Kind;
use crate::mesh::{Coordinates, Mesh};
use crate::place::{Access, Place, Position};
use crate::plan::PipelineStage;
use crate::schedule::{Op, Parcel, Stream};
use crate::streams::Queued;
use crate::unit::{OrthogonalCost, Unit};

const CUDA: Config = Config {
    mesh: Mesh::of_zero(2),
    bucket_bytes: 1,
    device: DeviceKind::Cuda,
    transport: TransportKind::Peer,
    ..Config::PLAIN
};

const MATRICES: OrthogonalCost = OrthogonalCost { room_bytes: 77, operations: 9, operations_max: 5 };

/// Units with these numbers of parameters; the last is tied to the first if `is_tied`. Every second one except the last
/// has a cache, and all except the first have matrices.
fn units(params: &[usize], is_tied: bool) -> Vec<Unit> {
    let unit = |(source, &own): (usize, &usize)| Unit {
        position: source,
        source,
        params: own,
        takes: own,
        saved_bytes: 61,
        workspace_bytes: 5,
        input_bytes: 21,
        output_bytes: 21,
        targets_bytes: 25,
        operations: 7,
        cache_bytes: if source % 2 == 1 && source + 1 < params.len() { 300 } else { 0 },
        matrices: if source > 0 { MATRICES } else { OrthogonalCost::NONE },
        ..Unit::NONE
    };
    let mut units: Vec<Unit> = params.iter().enumerate().map(unit).collect();
    if let (true, Some(last)) = (is_tied, units.last_mut()) {
        *last = Unit { source: 0, params: 0, takes: params[0], cache_bytes: 0, ..*last };
    }
    units
}

const fn mesh(pipeline: usize, zero: usize, replica: usize) -> Mesh {
    Mesh { pipeline, replica, ..Mesh::of_zero(zero) }
}

/// Plans that together have everything that queues depend on.
fn plans() -> Vec<PlanBuf> {
    plans_over(TransportKind::Peer)
}

fn plans_over(transport: TransportKind) -> Vec<PlanBuf> {
    let mut plans = Vec::new();
    for stage in 0..=3 {
        let base = Config { stage, transport, ..CUDA };
        let mut add = |config: Config, params: &[usize], is_tied| {
            plans.push(PlanBuf::new("Mutant", config, &units(params, is_tied)));
        };
        let narrow = Precision { params: Width::BF16, reduce: Width::BF16, ..Precision::default() };
        for prefetch in 0..=if stage == 3 { 3 } else { 0 } {
            add(Config { prefetch, ..base }, &[40, 7, 90, 12], false);
            add(Config { prefetch, micro_batches: 3, bucket_bytes: 300, ..base }, &[9, 70, 0, 20, 0], true);
        }
        add(Config { mesh: mesh(1, 1, 1), micro_batches: 2, ..base }, &[8, 9, 0], true);
        add(Config { mesh: mesh(1, 2, 2), micro_batches: 2, prefetch: 1, ..base }, &[7, 90, 40], false);
        add(Config { mesh: mesh(1, 2, 2), precision: narrow, ..base }, &[7, 90, 0], true);
        add(Config { micro_batches: 2, gather: Often::PerStep, reduce: Often::PerStep, ..base }, &[4, 7, 9], false);
        add(Config { gather: Often::PerStep, prefetch: 1, ..base }, &[4, 7, 0], true);
        add(Config { recompute: Recompute::Every(2), prefetch: 1, ..base }, &[4, 7, 9, 5], false);
        let muon = Config { optimizer: OptimizerKind::Muon, prefetch: 1, ..base };
        add(muon, &[40, 7, 90, 12, 30], false);
        add(Config { mesh: mesh(1, 3, 2), micro_batches: 2, bucket_bytes: 3000, ..muon }, &[9, 70, 20, 30], false);
        add(Config { micro_batches: 2, reduce: Often::PerStep, precision: narrow, ..muon }, &[7, 90, 40, 0], true);
        add(Config { mesh: mesh(2, 2, 1), micro_batches: 2, ..muon }, &[4, 7, 9, 8, 0], true);
        let piped = Config { mesh: mesh(2, 1, 1), micro_batches: 4, prefetch: 1, ..base };
        add(Config { order: Order::GPipe, ..piped }, &[4, 7, 0, 9], false);
        add(piped, &[4, 7, 9, 5], false);
        add(Config { recompute: Recompute::Every(1), mesh: mesh(3, 1, 1), ..piped }, &[4, 7, 9, 0], true);
        add(Config { mesh: mesh(2, 2, 1), gather: Often::PerStep, ..piped }, &[4, 7, 0], true);
        add(Config { mesh: mesh(2, 1, 2), reduce: Often::PerStep, ..piped }, &[4, 7, 9], true);
        let tier =
            Offload { optimizer: TierKind::Host, prefetch: usize::from(stage), piece_bytes: 8192, ..Offload::NONE };
        add(Config { offload: tier, ..base }, &[9000, 7, 5000], false);
        if stage >= 2 {
            let offload = Offload { gradients: TierKind::Host, ..tier };
            add(Config { offload, micro_batches: 2, bucket_bytes: 1, ..base }, &[9000, 7, 5000, 4200, 60], false);
        }
        let on_host = Offload { update_on: UpdatePlace::Host, ..tier };
        let copied = Precision { master: Width::F32, ..narrow };
        add(Config { offload: on_host, ..base }, &[9000, 7, 5000], false);
        add(Config { offload: on_host, precision: copied, micro_batches: 2, ..base }, &[9000, 7, 0], true);
        add(Config { offload: on_host, mesh: mesh(2, 2, 1), micro_batches: 2, ..base }, &[9000, 70, 90, 0], true);
        if stage >= 2 {
            let offload = Offload { gradients: TierKind::Host, ..on_host };
            let of_sums = Config { offload, bucket_bytes: 1, ..base };
            add(Config { micro_batches: 2, ..of_sums }, &[9000, 7, 5000, 4200, 60], false);
            add(Config { precision: copied, ..of_sums }, &[9000, 7, 5000, 60], false);
        }
        if stage == 3 {
            let parameters = TierKind::Host;
            let of_shards = Offload { parameters, ..tier };
            for prefetch in [0, 1, 3] {
                add(Config { offload: of_shards, prefetch, ..base }, &[9000, 7, 5000, 90, 60], false);
                let alone = Offload { optimizer: TierKind::Device, ..of_shards };
                let shaped = Config { mesh: mesh(1, 2, 2), micro_batches: 2, recompute: Recompute::Every(2), ..base };
                add(Config { offload: alone, prefetch, ..shaped }, &[4200, 7, 90, 0], true);
            }
            let piped = Config { mesh: mesh(2, 2, 1), micro_batches: 2, prefetch: 1, ..base };
            add(Config { offload: of_shards, ..piped }, &[9000, 7, 500, 90], false);
            for (gradients, precision) in
                [TierKind::Device, TierKind::Host].into_iter().flat_map(|it| [(it, Precision::default()), (it, copied)])
            {
                let all = Offload { parameters, gradients, ..on_host };
                let precision = Precision { compute: precision.params, ..precision };
                let config = Config { offload: all, precision, bucket_bytes: 1, micro_batches: 2, ..base };
                add(config, &[9000, 7, 5000, 60], false);
            }
        }
        let turning = Offload { activations: TierKind::Host, prefetch: 1, ..Offload::NONE };
        let every = [Recompute::None, Recompute::Every(1)];
        for recompute in every {
            add(Config { offload: turning, recompute, micro_batches: 2, ..base }, &[4, 7, 9, 5, 6, 8], false);
        }
        add(Config { order: Order::Interleaved { chunks: 2 }, ..piped }, &[4, 7, 9, 5, 6], false);
        add(Config { order: Order::Interleaved { chunks: 3 }, ..piped }, &[4, 7, 9, 5, 6, 0], true);
    }
    plans
}

/// Plans of processors whose optimizer states are on disk: the only ops beside those of the rank's own thread are tiers'.
const PUBLISH: Publish = Publish { dtype: Width::BF16, copies: 2 };

fn offloaded() -> Vec<PlanBuf> {
    let later = |&gradients: &TierKind| [TierKind::Device, TierKind::Disk].map(|parameters| (gradients, parameters));
    let plan_later = |(gradients, parameters): (TierKind, TierKind)| {
        let update = UpdateTime::AtUse;
        let offload =
            Offload { optimizer: TierKind::Disk, gradients, parameters, update, piece_bytes: 8192, ..Offload::NONE };
        let (device, transport) = (DeviceKind::Cpu, TransportKind::Shm);
        let config =
            Config { stage: 3, offload, device, transport, prefetch: 1, micro_batches: 2, publish: PUBLISH, ..CUDA };
        PlanBuf::new("Later", config, &units(&[9000, 7, 5000, 4200], false))
    };
    let plan = |(stage, prefetch, gradients, parameters): (u8, usize, TierKind, TierKind)| {
        let offload =
            Offload { optimizer: TierKind::Disk, gradients, parameters, prefetch, piece_bytes: 8192, ..Offload::NONE };
        let (device, transport) = (DeviceKind::Cpu, TransportKind::Shm);
        let mesh = mesh(2, 2, 1);
        let config = Config { stage, offload, device, transport, mesh, micro_batches: 2, publish: PUBLISH, ..CUDA };
        PlanBuf::new("Offloaded", config, &units(&[9000, 7, 5000, 4200], false))
    };
    use TierKind::{Device, Disk};
    let optimizer = (0..=3).flat_map(|stage| [0, 1, 3].map(|prefetch| (stage, prefetch, Device, Device)));
    let sums = [2, 3].into_iter().flat_map(|stage| [0, 3].map(|prefetch| (stage, prefetch, Disk, Device)));
    let parameters = [Device, Disk].map(|gradients| (3, 1, gradients, Disk));
    let later = [Device, Disk].iter().flat_map(later).map(plan_later);
    let turning = |(prefetch, recompute): (usize, Recompute)| {
        let offload = Offload { activations: Disk, prefetch, ..Offload::NONE };
        let (device, transport) = (DeviceKind::Cpu, TransportKind::Shm);
        let config = Config { stage: 3, offload, device, transport, micro_batches: 2, recompute, ..CUDA };
        PlanBuf::new("Turning", config, &units(&[90, 7, 50, 42, 8, 9], false))
    };
    let every = [Recompute::None, Recompute::Every(1), Recompute::Every(2)];
    let turning = [0, 1, 2].into_iter().flat_map(|prefetch| every.map(|recompute| (prefetch, recompute))).map(turning);
    optimizer.chain(sums).chain(parameters).map(plan).chain(later).chain(turning).collect()
}

/// Every event of a tier is needed: without it, a piece would be read before it is there, or overwritten before it is
/// stored.
#[test]
fn an_event_of_a_tier_that_is_missing_is_found() {
    let without = |_: &Ops, queue: &[Queued], at: usize| vec![changed(queue, at, Queued { after: None, ..queue[at] })];
    let tally = tally(&offloaded(), without);
    assert!(tally.objected > 100 && tally.implied + tally.harmless == 0, "{tally:?}");
}

#[test]
fn plans_with_tiers_are_in_order() {
    for plan in offloaded() {
        plan.with(|plan| streams(plan).unwrap_or_else(|flaw| panic!("{flaw}")));
    }
}

/// Calls back with the plan, in which a pass of a pipeline stage has another queue.
fn with_queue<R>(plan: &Plan, pass: Pass, pipeline: usize, queue: &[Queued], use_plan: impl FnOnce(&Plan) -> R) -> R {
    let mut pipeline_stages: Vec<PipelineStage> = plan.pipeline_stages.to_vec();
    match pass {
        Pass::Train => pipeline_stages[pipeline].step_queue = queue,
        Pass::Evaluate => pipeline_stages[pipeline].evaluation_queue = queue,
        Pass::Publish => pipeline_stages[pipeline].publication_queue = queue,
    }
    use_plan(&Plan { pipeline_stages: &pipeline_stages, ..*plan })
}

/// The walks of a proof. The first are those that are most likely to show a fault in a pass.
fn walks(plan: &Plan, pass: Pass) -> Vec<(Vec<Pass>, Box<Accesses<'static>>)> {
    let mut walks: Vec<(Vec<Pass>, Box<Accesses>)> = vec![(vec![pass; 2], Box::new(accesses))];
    if caches(plan.units) && pass == Pass::Evaluate {
        walks.push((vec![pass; 2], Box::new(decoding_accesses)));
    }
    walks.push((PASSES.to_vec(), Box::new(accesses)));
    walks
}

/// The results for mutants of a kind.
#[derive(Debug, Default)]
struct Tally {
    objected: usize,
    /// The order of all ops is the same as before.
    implied: usize,
    /// The order differs, but not for ops with conflicting accesses.
    harmless: usize,
}

impl Tally {
    fn all(&self) -> usize {
        self.objected + self.implied + self.harmless
    }

    fn try_queue(&mut self, plan: &Plan, pass: Pass, pipeline: usize, queue: &[Queued]) {
        let own = plan.pipeline_stages[pipeline].queue(pass);
        if queue == own {
            return;
        }
        with_queue(plan, pass, pipeline, queue, |mutant| {
            well_formed(mutant).unwrap_or_else(|flaw| panic!("{flaw}"));
            let walks = walks(plan, pass);
            let flaw = walks.iter().find_map(|(passes, accesses)| in_order(mutant, passes, &**accesses).err());
            if let Some(flaw) = flaw {
                assert!(flaw.rule.starts_with("nothing orders two "), "{flaw}");
                self.objected += 1;
            } else if order(plan, pass) == order(mutant, pass) {
                self.implied += 1;
            } else {
                walks.iter().for_each(|(passes, accesses)| assert_pairs_in_order(mutant, passes, &**accesses));
                let ops = plan.pipeline_stages[pipeline].ops(pass);
                let is_other = |at: &usize| queue[*at] != own[*at];
                let is_of_agreement = (0..queue.len()).filter(is_other).all(|at| ops[at] == Op::Agree);
                // The agreement reads squares of sums that leave for a tier, which lie in no place.
                self.harmless += usize::from(!(is_of_agreement && plan.config.offloads_gradients()));
            }
        });
    }
}

/// All ops of a walk, rank by rank, each with its number and with the clock after it.
fn walked<'a>(plan: &'a Plan<'a>, passes: &'a [Pass]) -> Vec<(OpNumber, Op, super::clock::KnownDone)> {
    let mut walk = StreamsWalk::new(plan, passes, &|_, _, _, _, _, _| {});
    walk.run().unwrap_or_else(|flaw| panic!("{flaw}"));
    let mut all = Vec::new();
    for (rank, clocks) in core::mem::take(&mut walk.clocks).into_iter().enumerate() {
        let pipeline_stage = plan.of_rank(rank);
        let ops = passes.iter().enumerate().flat_map(|(index, &pass)| {
            let ops = pipeline_stage.ops(pass).iter().zip(pipeline_stage.queue(pass)).enumerate();
            ops.map(move |(at, (&op, queued))| (index, at, op, queued.stream))
        });
        for (number, ((pass, at, op, stream), clock)) in (1..).zip(ops.zip(clocks)) {
            let chain = StreamChain::of(rank, stream);
            all.push((OpNumber { chain, number, rank: rank as u32, pass: pass as u32, op: at as u32 }, op, clock));
        }
    }
    all
}

/// For any two ops of two passes, whether one is known to be done after the other.
fn order(plan: &Plan, pass: Pass) -> Vec<bool> {
    let all = walked(plan, &[pass; 2]);
    all.iter().flat_map(|(.., clock)| all.iter().map(|(moment, ..)| clock.knows(*moment))).collect()
}

/// Asserts that any two conflicting accesses are in order.
fn assert_pairs_in_order(plan: &Plan, passes: &[Pass], accesses: &Accesses) {
    let all = walked(plan, passes);
    let mut done: Vec<(usize, Access)> = Vec::new();
    let mut position = Position::new(plan.units.len());
    for (index, (moment, op, _)) in all.iter().enumerate() {
        if moment.op == 0 {
            position.restart();
        }
        let at = plan.config.mesh.coordinates(moment.rank as usize);
        let pass = passes[moment.pass as usize];
        accesses(plan, pass, *op, &position, at, &mut |access| {
            if is_done_by(plan, *op, at, &access) {
                done.push((index, access));
            }
        });
        position.pass(*op);
    }
    for (i, (a, one)) in done.iter().enumerate() {
        for (b, other) in &done[..i] {
            let touches = |place: Place| one.at == other.at && !place.is_apart_from(other.place);
            if a != b && (one.writes || other.writes) && touches(one.place) {
                let knows = |after: usize, before: usize| all[after].2.knows(all[before].0);
                assert!(knows(*a, *b) || knows(*b, *a), "{:?} and {:?}: {one:?}, {other:?}", all[*a].1, all[*b].1);
            }
        }
    }
}

/// Tries all mutants that `change` makes of every entry of every queue.
fn tally(plans: &[PlanBuf], change: impl Fn(&Ops, &[Queued], usize) -> Vec<Vec<Queued>>) -> Tally {
    let mut tally = Tally::default();
    for plan in plans {
        plan.with(|plan| {
            for (pipeline, pipeline_stage) in plan.pipeline_stages.iter().enumerate() {
                for pass in Pass::ALL {
                    let (queue, ops) = (pipeline_stage.queue(pass), Ops { plan, pass, pipeline });
                    let mutants = (0..queue.len()).flat_map(|at| change(&ops, queue, at));
                    mutants.for_each(|mutant| tally.try_queue(plan, pass, pipeline, &mutant));
                }
            }
        });
    }
    tally
}

/// The ops of a table.
struct Ops<'a> {
    plan: &'a Plan<'a>,
    pass: Pass,
    pipeline: usize,
}

impl Ops<'_> {
    /// Whether an op accesses any byte. Some ops only order the accesses of others.
    fn touches(&self, op: usize) -> bool {
        let Self { plan, pass, pipeline } = *self;
        let (at, mut touches) = (Coordinates { zero: 0, replica: 0, pipeline }, false);
        let (op, position) = (plan.pipeline_stages[pipeline].ops(pass)[op], Position::new(plan.units.len()));
        accesses(plan, pass, op, &position, at, &mut |_| touches = true);
        touches
    }
}

fn changed(queue: &[Queued], at: usize, to: Queued) -> Vec<Queued> {
    let mut queue = queue.to_vec();
    queue[at] = to;
    queue
}

#[test]
fn every_plan_is_in_order() {
    for plan in plans().into_iter().chain(plans_over(TransportKind::Nccl)) {
        plan.with(|plan| {
            crate::prove::prove(plan).unwrap_or_else(|flaw| panic!("{flaw}"));
            for pass in Pass::ALL {
                walks(plan, pass)
                    .iter()
                    .for_each(|(passes, accesses)| assert_pairs_in_order(plan, passes, &**accesses));
            }
        });
    }
}

#[test]
fn every_event_is_needed() {
    let drop = |_: &Ops, queue: &[Queued], at: usize| vec![changed(queue, at, Queued { after: None, ..queue[at] })];
    let tally = tally(&plans(), drop);
    eprintln!("{tally:?}");
    assert!(tally.all() > 1000 && tally.harmless == 0 && 50 * tally.implied < tally.objected, "{tally:?}");
}

/// If the transport carries bytes, only events order a rank's accesses to its own memory: there are no counts.
#[test]
fn every_event_is_needed_where_bytes_are_carried() {
    let drop = |_: &Ops, queue: &[Queued], at: usize| vec![changed(queue, at, Queued { after: None, ..queue[at] })];
    let tally = tally(&plans_over(TransportKind::Nccl), drop);
    eprintln!("{tally:?}");
    assert!(tally.all() > 1000 && tally.harmless == 0 && 50 * tally.implied < tally.objected, "{tally:?}");
}

/// Two streams must not share a place of the inbox: bytes that arrive for one could be read by the other.
#[test]
fn an_inbox_of_two_streams_is_found() {
    let precision = Precision { compute: Width::BF16, ..Precision::default() };
    let config = Config { stage: 3, prefetch: 1, precision, transport: TransportKind::Nccl, ..CUDA };
    PlanBuf::new("Two", config, &units(&[40, 90, 7, 300], false)).with(|plan| {
        streams(plan).unwrap_or_else(|flaw| panic!("{flaw}"));
        let shared = |plan: &Plan, pass: Pass, op: Op, position: &Position, at, visit: &mut dyn FnMut(Access)| {
            accesses(plan, pass, op, position, at, &mut |mut access| {
                if access.place.region == Kind::Inbox {
                    access.place.offset_bytes = 0;
                }
                visit(access);
            });
        };
        let flaw = in_order(plan, &PASSES, &shared).unwrap_err();
        assert!(flaw.rule.starts_with("nothing orders two accesses to Place { region: Inbox"), "{flaw}");
    });
}

#[test]
fn an_event_that_is_recorded_earlier_is_found() {
    let earlier = |ops: &Ops, queue: &[Queued], at: usize| {
        let Some(before) = queue[at].waits_for() else { return Vec::new() };
        let stream = queue[before].stream;
        let last = (0..=before).rfind(|&op| queue[op].stream == stream && ops.touches(op));
        let op = last.and_then(|last| queue[..last].iter().rposition(|queued| queued.stream == stream));
        let Some(op) = op else { return Vec::new() };
        vec![changed(queue, at, Queued { after: Some(op as u32), ..queue[at] })]
    };
    let tally = tally(&plans(), earlier);
    eprintln!("{tally:?}");
    assert!(tally.all() > 1000 && tally.objected * 50 > tally.all() * 49, "{tally:?}");
}

#[test]
fn an_event_that_is_waited_for_later_is_found() {
    let later = |ops: &Ops, queue: &[Queued], at: usize| {
        let Queued { stream, after: Some(before) } = queue[at] else { return Vec::new() };
        let first = (at..queue.len()).find(|&op| queue[op].stream == stream && ops.touches(op));
        let next = first.and_then(|first| (first + 1..queue.len()).find(|&next| queue[next].stream == stream));
        let Some(next) = next else { return Vec::new() };
        let waits = queue[next].waits_for().filter(|&other| queue[other].stream != queue[before as usize].stream);
        if waits.is_some() {
            return Vec::new();
        }
        let dropped = changed(queue, at, Queued::of(stream));
        vec![changed(&dropped, next, Queued { stream, after: queue[next].after.max(Some(before)) })]
    };
    let tally = tally(&plans(), later);
    eprintln!("{tally:?}");
    assert!(tally.all() > 1000 && tally.objected * 50 > tally.all() * 49, "{tally:?}");
}

#[test]
fn an_op_in_another_stream_is_found() {
    let moved = |_: &Ops, queue: &[Queued], at: usize| {
        let to = |stream: Stream| {
            let after = queue[at].after.filter(|&before| queue[before as usize].stream != stream);
            let mut mutant = changed(queue, at, Queued { stream, after });
            // An op in the stream to which it is moved need not wait for it.
            for queued in &mut mutant[at + 1..] {
                queued.after = queued.after.filter(|&before| before as usize != at || queued.stream != stream);
            }
            mutant
        };
        Stream::ALL.into_iter().filter(|&stream| stream != queue[at].stream).map(to).collect()
    };
    let some: Vec<PlanBuf> = plans().into_iter().step_by(3).collect();
    let tally = tally(&some, moved);
    eprintln!("{tally:?}");
    assert!(tally.all() > 1000 && tally.objected * 10 > tally.all() * 7, "{tally:?}");
}

/// A flaw names both ops, and the place that both access.
#[test]
fn two_ops_without_an_event_between_them_are_named() {
    let config = Config { mesh: mesh(1, 1, 1), stage: 3, prefetch: 0, ..CUDA };
    PlanBuf::new("Two", config, &units(&[40, 7], false)).with(|plan| {
        let mut queue = plan.pipeline_stages[0].step_queue.to_vec();
        assert_eq!(plan.pipeline_stages[0].step[1], Op::Wait { unit: 0 });
        queue[1].after = None;
        let flaw = with_queue(plan, Pass::Train, 0, &queue, |plan| streams(plan).unwrap_err());
        let expected = "\
[Z0292] unsound plan, in a training step: nothing orders two accesses to Place { region: Gathered, offset_bytes: 0, \
            len_bytes: 512 } of rank 0
  rank 0 (zero 0, replica 0, pipeline stage 0), op 0: Gather { unit: 0, slot: 0 }, writes it in stream `gather`
  rank 0 (zero 0, replica 0, pipeline stage 0), op 2: Forward { unit: 0, micro_batch: 0, slot: 0 }, reads it in stream \
            `compute`";
        assert_eq!(flaw.to_string(), expected);
    });
}

#[test]
fn a_queue_that_cannot_be_followed_is_refused() {
    let plan = PlanBuf::new("Two", Config { stage: 3, ..CUDA }, &units(&[40, 7], false));
    plan.with(|plan| {
        let queue = plan.pipeline_stages[0].step_queue;
        let rule = |queue: &[Queued]| with_queue(plan, Pass::Train, 0, queue, |plan| streams(plan).unwrap_err().rule);
        assert_eq!(rule(&queue[1..]), "queued ops and ops differ in number");
        let waits = |at: usize, after| changed(queue, at, Queued { after: Some(after), ..queue[at] });
        assert_eq!(rule(&waits(1, 1)), "an op that waits for one that is queued later");
        assert_eq!(rule(&waits(2, 1)), "an op that waits for one of its own stream");
        // Without streams there are no queues.
        let config = Config { device: DeviceKind::Cpu, ..plan.config };
        assert!(streams(&Plan { config, ..*plan }).is_err());
    });
}

/// Counts must grow in the order of the ops that raise them, so two streams must not raise one, whatever they access.
#[test]
fn counts_are_raised_in_order() {
    let config = Config { mesh: mesh(2, 1, 1), micro_batches: 3, ..CUDA };
    PlanBuf::new("Two", config, &units(&[40, 7], false)).with(|plan| {
        let pipeline_stage = &plan.pipeline_stages[0];
        let is_sent = |op: &Op| matches!(op, Op::Send { parcel: Parcel::Activations, .. });
        let send = pipeline_stage.step.iter().position(is_sent).expect("activations leave");
        let queue =
            changed(pipeline_stage.step_queue, send, Queued { stream: Stream::Gather, after: Some(send as u32 - 1) });
        let flaw = with_queue(plan, Pass::Train, 0, &queue, |plan| streams(plan).unwrap_err());
        assert_eq!(flaw.rule, "nothing orders two ops that raise one count, Sent(Activations)");
    });
}
