//! Traffic by op: the bytes that each rank sends and takes in each op, by formulas that know sizes and no places.

use proptest::prelude::*;
use zero_plan::place::are_counterparts;
use zero_plan::{Axis, Config, Coordinates, Moved, Op, Parcel, Plan, Traffic, TransportKind, Unit};

use crate::fingerprints::{KNOWN as SPECS, of_spec};
use crate::model::{Model, config, mesh, models, small_models};
use crate::properties::cases;

/// All bytes of an op, those that are read in place, and those that go to another host or come from there.
fn expected(plan: &Plan, rank: usize, op: Op, is_sent: bool) -> [usize; 3] {
    let config = &plan.config;
    match (op, is_sent) {
        (Op::Reduce { bucket, .. }, _) if config.sums_on_hosts(Axis::Zero) => {
            summed_on_hosts(plan, rank, Axis::Zero, bucket, is_sent)
        }
        (Op::Combine { bucket, .. }, _) if config.sums_on_hosts(Axis::Replica) => {
            summed_on_hosts(plan, rank, Axis::Replica, bucket, is_sent)
        }
        (Op::Agree, _) => {
            let (ranks, numbers) = (config.mesh.ranks(), 8 * plan.agreed_values());
            let hosts = if config.spans_hosts() { config.mesh.nodes } else { 1 };
            let by_ranks = if config.transport.carries() { (ranks - ranks / hosts) * numbers } else { 0 };
            [(ranks - 1) * numbers, 0, (hosts - 1) * (8 + numbers) + by_ranks]
        }
        (Op::Send { .. }, false) | (Op::Receive { .. }, true) => [0; 3],
        _ => shared_out(plan, rank, op),
    }
}

/// With an equal share for each partner. Those of another memory bring it, the others read it.
fn shared_out(plan: &Plan, rank: usize, op: Op) -> [usize; 3] {
    let (config, partners) = (&plan.config, partners(plan, rank, op));
    let all = bytes(plan, op);
    let each = all.checked_div(partners.len()).unwrap_or(0);
    let brings = |partner: usize| {
        let [own, other] = [rank, partner].map(|rank| config.mesh.coordinates(rank));
        !config.reaches(rank, partner) && are_counterparts(config, op, own, other)
    };
    let count = |is: &dyn Fn(usize) -> bool| partners.iter().filter(|&&partner| is(partner)).count();
    let is_read = match op {
        Op::Gather { .. } => config.shards_parameters() && (!config.uses_slots() || config.shares_slots()),
        Op::Send { parcel, .. } | Op::Receive { parcel, .. } => parcel == Parcel::TiedGradients,
        _ => matches!(op, Op::Reduce { .. } | Op::Combine { .. }),
    };
    let near = if is_read { count(&|partner| !brings(partner)) } else { 0 };
    let far = count(&|partner| brings(partner) && !config.shares_host(rank, partner));
    [all, near * each, far * each]
}

/// The ranks with which a rank exchanges something in an op.
fn partners(plan: &Plan, rank: usize, op: Op) -> Vec<usize> {
    let mesh = &plan.config.mesh;
    let at = mesh.coordinates(rank);
    let along = |axis, len| (0..len).map(|index| at.with(axis, index)).collect::<Vec<Coordinates>>();
    let found = match op {
        Op::Gather { .. } | Op::Reduce { .. } | Op::Spread { axis: Axis::Zero, .. } => along(Axis::Zero, mesh.zero),
        Op::Combine { .. } | Op::Spread { .. } => along(Axis::Replica, mesh.replica),
        Op::Send { parcel, .. } => vec![at.with(Axis::Pipeline, plan.parcel_receiver(parcel, at.pipeline))],
        Op::Receive { parcel, .. } => vec![at.with(Axis::Pipeline, plan.parcel_sender(parcel, at.pipeline))],
        _ => Vec::new(),
    };
    found.into_iter().map(|at| mesh.rank(at)).filter(|&other| other != rank).collect()
}

/// The bytes of an op for all partners together.
fn bytes(plan: &Plan, op: Op) -> usize {
    let (mesh, precision) = (&plan.config.mesh, &plan.config.precision);
    let (params, reduce) = (precision.params.bytes(), precision.reduce.bytes());
    let others = |bytes: usize, ranks: usize| bytes / ranks * (ranks - 1);
    let elements = |bucket: usize| plan.buckets[bucket].elements;
    match op {
        Op::Gather { unit, .. } => others(plan.placements[unit].padded * params, mesh.zero),
        Op::Reduce { bucket, .. } => others(elements(bucket) * reduce, mesh.zero),
        Op::Spread { bucket, axis: Axis::Zero } => {
            others(plan.tables().spread_elements(bucket, Axis::Zero) * reduce, mesh.zero)
        }
        Op::Combine { bucket, .. } | Op::Spread { bucket, .. } => {
            others(elements(bucket) / mesh.zero * reduce, mesh.replica)
        }
        Op::Send { parcel, unit, .. } => {
            let Unit { input_bytes, output_bytes, .. } = plan.units[unit];
            carried(plan, parcel, unit, [output_bytes, input_bytes])
        }
        Op::Receive { parcel, unit, .. } => {
            let Unit { input_bytes, output_bytes, .. } = plan.units[unit];
            carried(plan, parcel, unit, [input_bytes, output_bytes])
        }
        _ => 0,
    }
}

/// The bytes of a parcel, of which `activations` and their `gradients` have these.
fn carried(plan: &Plan, parcel: Parcel, unit: usize, [activations, gradients]: [usize; 2]) -> usize {
    let (config, placement) = (&plan.config, &plan.placements[unit]);
    match parcel {
        Parcel::Activations => activations,
        Parcel::Gradients => gradients,
        Parcel::TiedGradients => placement.part(config) * config.precision.reduce.bytes(),
        Parcel::TiedParameters => {
            let updated = if config.shards_optimizer() { placement.shard(config) } else { placement.padded };
            updated * config.precision.params.bytes()
        }
    }
}

/// A bucket whose parts hosts sum: terms of ranks of a host for each host, and sums in f32 for other hosts.
fn summed_on_hosts(plan: &Plan, rank: usize, axis: Axis, bucket: usize, is_sent: bool) -> [usize; 3] {
    let config = &plan.config;
    let (part, hosts) = (plan.buckets[bucket].elements / config.mesh.summed_parts(axis), config.hosts_along(axis));
    let (each, subtrees) = (config.ranks_per_host(axis), config.subtrees(axis));
    let near = (each - 1) * hosts * part * config.precision.reduce.bytes();
    let own = subtrees.count_of(config.mesh.coordinates(rank).along(axis) / each);
    let sums = if is_sent { (hosts - 1) * own } else { subtrees.count() - own };
    [near + sums * part * 4, near, sums * part * 4]
}

/// How often a check saw bytes of all kinds, some that are read in place, and some that cross hosts.
type Seen = [usize; 3];

fn check(plan: &Plan, seen: &mut Seen) {
    for rank in 0..plan.config.mesh.ranks() {
        for &op in plan.of_rank(rank).step {
            for is_sent in [true, false] {
                let moved = if is_sent { Moved::sent } else { Moved::taken }(plan, rank, &[op]);
                let between = if is_sent { Traffic::between_hosts } else { Traffic::from_hosts };
                let counted = [moved.all(), moved.in_place, between(plan, rank, &[op])];
                let counted = counted.map(|traffic| traffic.total_bytes());
                assert_eq!(counted, expected(plan, rank, op, is_sent), "{op:?} of {rank}: {:?}", plan.config);
                seen.iter_mut().zip(counted).for_each(|(seen, bytes)| *seen += usize::from(bytes > 0));
            }
            assert_eq!(Traffic::of(plan, rank, &[op]), Moved::sent(plan, rank, &[op]).all());
        }
    }
}

/// A model as it is, on GPUs of one host, and on several hosts that send one another messages or let GPUs do so.
fn check_everywhere(model: Model, seen: &mut Seen) {
    let ranks = model.config.mesh.ranks();
    for nodes in (1..=ranks).filter(|&nodes| ranks.is_multiple_of(nodes)) {
        let mut on_gpus = model.clone().on_gpus(TransportKind::Nccl);
        on_gpus.config.mesh.nodes = nodes;
        on_gpus.plan().with(|plan| check(plan, seen));
        model.clone().on_hosts(nodes).plan().with(|plan| check(plan, seen));
    }
    model.clone().on_gpus(TransportKind::Peer).plan().with(|plan| check(plan, seen));
    model.plan().with(|plan| check(plan, seen));
}

#[test]
fn each_op_moves_what_its_formula_says() {
    let mut seen = [0; 3];
    small_models().into_iter().for_each(|model| check_everywhere(model, &mut seen));
    for stage in 0..=3 {
        // Hosts with one sum each, and with several.
        for mesh in [mesh(1, 4, 1), mesh(1, 6, 1), mesh(1, 6, 2), mesh(1, 1, 6)] {
            let config = Config { mesh, micro_batches: 2, ..config(stage) };
            check_everywhere(Model::new(config, &[900, 40, 0, 700], None), &mut seen);
        }
    }
    assert!(seen.iter().all(|&seen| seen > 1000), "{seen:?}");
    SPECS.iter().for_each(|(name, _)| of_spec(name).with(|plan| check(plan, &mut seen)));
}

proptest! {
    #![proptest_config(cases(20))]

    #[test]
    fn each_op_of_any_model_moves_what_its_formula_says(model in models(12)) {
        check_everywhere(model, &mut [0; 3]);
    }
}
