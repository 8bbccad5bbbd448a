use super::*;
use crate::build::PlanBuf;
use crate::config::{Config, OptimizerKind, Precision, TransportKind, Width};
use crate::mesh::Mesh;
use crate::unit::{OrthogonalCost, Unit};

const F32: Precision = Config::PLAIN.precision;
const MIXED: Precision = Precision { params: Width::BF16, reduce: Width::BF16, ..F32 };

/// The work of an op of the unit `only`, or of its bucket. Its 100 parameters take 128 elements with their padding. A
/// shard on two ranks has 64 of those, and a part on two replicas of these has 32.
fn work(config: Config, zero: usize, op: Op) -> Work {
    let unit = Unit {
        field: "only",
        params: 100,
        takes: 100,
        input_bytes: 128,
        output_bytes: 192,
        operations: 640,
        matrices: OrthogonalCost { room_bytes: 256, operations: 9000, operations_max: 6000 },
        ..Unit::NONE
    };
    let at = Coordinates { zero, replica: 0, pipeline: 0 };
    PlanBuf::new("", config, &[unit]).with(|plan| Work::of(plan, at, op))
}

fn config(stage: u8, zero: usize, replica: usize, micro_batches: usize, precision: Precision) -> Config {
    let mesh = Mesh { replica, ..Mesh::of_zero(zero) };
    Config { mesh, micro_batches, precision, transport: TransportKind::Local, ..Config::PLAIN.at_stage(stage) }
}

#[test]
fn layers_compute_and_move_nothing() {
    let config = config(3, 2, 1, 1, F32);
    let (unit, micro_batch, slot) = (0, 0, 0);
    for (op, operations) in [
        (Op::Forward { unit, micro_batch, slot }, 640),
        (Op::Recompute { unit, micro_batch, slot }, 640),
        (Op::Backward { unit, micro_batch, slot }, 1280),
    ] {
        assert_eq!(work(config, 0, op), Work { operations, bytes: 0 });
    }
}

#[test]
fn bytes_are_those_of_each_source_and_destination() {
    let unit = 0;
    let (wait, update) = (Op::Wait { unit }, Op::Update { unit, piece: None });
    let settle = |round| Op::Settle { bucket: 0, round };
    let combine = |round| Op::Combine { bucket: 0, round };
    let spread = |axis| Op::Spread { bucket: 0, axis };
    let receive = |parcel| Op::Receive { parcel, unit, micro_batch: 0, slot: 0 };
    let plain = config(0, 2, 1, 1, F32);
    let added = config(0, 2, 1, 2, F32);
    let sharded = config(3, 2, 2, 2, F32);
    // Three ranks on each of two hosts: each has a pair and a single rank of the tree of six. Parts have 32 elements.
    let on_hosts = |config: Config| {
        let mesh = Mesh { nodes: 2, ..config.mesh };
        Config { mesh, transport: TransportKind::Cluster, ..config }
    };
    let (hosts, of_replicas) = (on_hosts(config(1, 6, 1, 2, F32)), on_hosts(config(1, 1, 6, 2, F32)));
    let subtotal = |axis| Op::Subtotal { bucket: 0, round: 0, axis };
    for (config, op, bytes) in [
        // A gather that copies; one that is a view; one that fetches the other rank's updated shard.
        (sharded, wait, 128 * (4 + 4)),
        (Config { transport: TransportKind::Shm, ..sharded }, wait, 0),
        (config(1, 2, 1, 1, F32), wait, 64 * (4 + 4)),
        (config(3, 2, 1, 1, MIXED), wait, 128 * (2 + 4)),
        (config(0, 2, 1, 1, MIXED), Op::Convert { unit, slot: 0 }, 128 * (2 + 4)),
        // Two shards in, one out; in later rounds, the existing sum comes in too.
        (plain, settle(0), 3 * 64 * 4),
        (added, settle(0), 3 * 64 * 4),
        (added, settle(1), 4 * 64 * 4),
        (config(0, 2, 1, 1, MIXED), settle(0), 3 * 64 * 2),
        // The same over replicas, whose sums over their own ranks never add to earlier ones.
        (sharded, settle(1), 3 * 64 * 4),
        (sharded, combine(0), 3 * 32 * 4),
        (sharded, combine(1), 4 * 32 * 4),
        // For each of two hosts, three terms in and two sums out; then two sums are joined, and three are added up.
        (hosts, subtotal(Axis::Zero), 2 * (3 + 2) * 32 * 4),
        (hosts, settle(0), (3 + 3 + 1) * 32 * 4),
        (hosts, settle(1), (3 + 3 + 2) * 32 * 4),
        (of_replicas, subtotal(Axis::Replica), 2 * (3 + 2) * 32 * 4),
        (of_replicas, combine(0), (3 + 3 + 1) * 32 * 4),
        (of_replicas, combine(1), (3 + 3 + 2) * 32 * 4),
        // One rank: nothing if gradients are their own sum, otherwise from one place to another.
        (config(0, 1, 1, 1, F32), settle(0), 0),
        (config(0, 1, 1, 2, F32), settle(0), 2 * 112 * 4),
        // The sums of peers; all sums if these have a separate place.
        (plain, spread(Axis::Zero), 64 * (4 + 4)),
        (added, spread(Axis::Zero), 128 * (4 + 4)),
        (sharded, spread(Axis::Replica), 32 * (4 + 4)),
        (sharded, receive(Parcel::Activations), 32 * (4 + 4)),
        (sharded, receive(Parcel::Gradients), 48 * (4 + 4)),
        (sharded, receive(Parcel::TiedGradients), 3 * 32 * 4),
        (sharded, Op::Fold { unit }, 3 * 32 * 4),
        (sharded, receive(Parcel::TiedParameters), 64 * (4 + 4)),
        (plain, receive(Parcel::TiedParameters), 128 * (4 + 4)),
        // Gradient in; moments, parameters and master copy in and out, but a master copy is read instead of parameters.
        (plain, update, 100 * (4 + 2 * 2 * 4 + 2 * 4)),
        (config(0, 2, 1, 1, MIXED), update, 100 * (2 + 2 * 2 * 4 + 2 * 4 + 2)),
        (sharded, update, 64 * (4 + 2 * 2 * 4 + 2 * 4)),
        (sharded, Op::Gather { unit, slot: 0 }, 0),
        (sharded, Op::Reduce { bucket: 0, round: 0 }, 0),
        // Squares of the sums of this rank.
        (sharded, Op::Agree, 32 * 4),
        (plain, Op::Agree, 64 * 4),
    ] {
        assert_eq!(work(config, 0, op), Work { operations: 0, bytes }, "{op:?} under {config:?}");
    }
}

/// Momentum reads and writes gradients and momenta once. Directions of 128 elements are spread like sums, and a rank
/// with half of 9000 operations has one matrix of 6000 in common with another.
#[test]
fn muon_works_on_whole_matrices() {
    let unit = 0;
    let muon = |config: Config| Config { optimizer: OptimizerKind::Muon, ..config };
    let (momentum, update) = (Op::Momentum { unit }, Op::Update { unit, piece: None });
    let spread = Op::Spread { bucket: 0, axis: Axis::Zero };
    for (config, op, operations, bytes) in [
        (config(0, 2, 1, 1, F32), momentum, 0, 100 * (2 * 4 + 2 * 4)),
        (config(2, 2, 1, 1, MIXED), momentum, 0, 64 * (2 * 2 + 2 * 4)),
        (config(1, 2, 1, 1, F32), spread, 0, 64 * (4 + 4)),
        (config(2, 2, 1, 1, F32), spread, 0, 128 * (4 + 4)),
        (config(0, 2, 1, 1, F32), update, 9000, 100 * 28),
        (config(3, 2, 1, 1, F32), update, 9000, 64 * 28),
        (config(3, 4, 1, 1, F32), update, 2250 + 6000, 32 * 28),
        (config(3, 1, 1, 1, F32), update, 9000, 100 * 28),
    ] {
        assert_eq!(work(muon(config), 0, op), Work { operations, bytes }, "{op:?} under {config:?}");
    }
}

#[test]
fn padding_is_not_updated() {
    let sharded = config(1, 2, 1, 1, F32);
    assert_eq!(work(sharded, 1, Op::Update { unit: 0, piece: None }).bytes, 36 * 28);
    // Of eight shards of 16 elements, the seventh holds the last 4 of 100 parameters.
    let narrow = config(1, 8, 1, 1, F32);
    assert_eq!([6, 7].map(|zero| work(narrow, zero, Op::Update { unit: 0, piece: None }).bytes), [4 * 28, 0]);
}
