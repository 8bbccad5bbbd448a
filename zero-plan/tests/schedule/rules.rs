//! Rules: each rule that a build checks is needed, because some table is refused by it first. `mutants` and `tables`
//! test the provers as a whole, which can find each other's omissions; a build runs only the check.

use std::collections::BTreeSet;

use zero_plan::{
    Axis, Config, Offload, Op, Pass, Plan, Recompute, TierKind, TransportKind, UpdatePlace, UpdateTime, Width,
};

use crate::model::{Model, ON_DISK, config, mesh, precision, small_models};
use crate::mutants::{Edit, Table, vocabulary, with_table};
use crate::{publish, tiers};

/// The sources of the rules of schedules.
const SOURCES: [&str; 7] = [
    include_str!("../../src/check.rs"),
    include_str!("../../src/check/compute.rs"),
    include_str!("../../src/check/gradients.rs"),
    include_str!("../../src/check/parameters.rs"),
    include_str!("../../src/check/parcels.rs"),
    include_str!("../../src/check/publish.rs"),
    include_str!("../../src/check/tiers.rs"),
];

/// The rules in a source: the texts after an arrow or in a `Some`.
fn rules_of(source: &'static str) -> impl Iterator<Item = &'static str> {
    let mut before = "";
    source.split('"').enumerate().filter_map(move |(i, text)| {
        let is_rule = i % 2 == 1 && (before.trim_end().ends_with("=>") || before.ends_with("Some("));
        before = text;
        is_rule.then_some(text)
    })
}

/// Every possible sum over a host.
fn subtotals(plan: &Plan) -> Vec<Op> {
    let buckets = 0..plan.buckets.len();
    let rounds = || 0..plan.config.reductions();
    let of_bucket = |axis| move |bucket| rounds().map(move |round| Op::Subtotal { bucket, round, axis });
    Axis::ALL.into_iter().flat_map(|axis| buckets.clone().flat_map(of_bucket(axis))).collect()
}

/// Every possible offer to readers.
fn offers(plan: &Plan) -> impl Iterator<Item = Op> {
    (0..plan.units.len()).map(|unit| Op::Offer { unit })
}

/// Every way to leave out, add, replace or exchange one op.
fn edits(plan: &Plan, ops: usize) -> Vec<Edit> {
    let mut edits: Vec<Edit> = (0..ops).map(Edit::Delete).collect();
    for op in vocabulary(plan).into_iter().chain(subtotals(plan)).chain(tiers::vocabulary(plan)).chain(offers(plan)) {
        edits.extend((0..=ops).map(|at| Edit::Insert(at, op)));
        edits.extend((0..ops).map(|at| Edit::Replace(at, op)));
    }
    edits.extend((0..ops).flat_map(|i| (i + 1..ops).map(move |j| Edit::Swap(i, j))));
    edits
}

#[test]
fn every_rule_of_schedules_refuses_something() {
    // If a pipeline stage has no parameters to update, only the end of its step notices that the agreement is missing.
    let without_updates = Model::new(Config { mesh: mesh(2, 1, 1), ..config(0) }, &[4, 0], None);
    let of_hosts = Config { mesh: mesh(1, 4, 1), micro_batches: 2, ..config(2) };
    let of_hosts = Model::new(of_hosts, &[40, 7, 90], None).on_hosts(2);
    let of_replicas = Config { mesh: mesh(1, 1, 4), ..of_hosts.config };
    let of_replicas = Model::new(of_replicas, &[40, 7, 90], None).on_hosts(2);
    let on_disk = Model::new(Config { offload: ON_DISK, ..config(1) }, &[9000, 7], None);
    let sums = Offload { gradients: TierKind::Disk, ..ON_DISK };
    let of_sums = Config { mesh: mesh(1, 1, 2), micro_batches: 2, offload: sums, bucket_bytes: 1, ..config(2) };
    let of_sums = Model::new(of_sums, &[40, 7], None);
    // More buckets than slots.
    let of_slots = Config { mesh: mesh(1, 1, 1), micro_batches: 1, ..of_sums.config };
    let of_slots = Model::new(of_slots, &[4, 5, 6, 7], None);
    let shards = Offload { parameters: TierKind::Disk, ..Offload::NONE };
    let of_shards = Config { offload: Offload { piece_bytes: 8192, ..shards }, mesh: mesh(1, 1, 1), ..config(3) };
    let of_shards = Model::new(of_shards, &[4, 5, 6, 0], Some(0));
    // Updates at the use of parameters, which are gathered from memory or from shards that are fetched.
    let later = |parameters| {
        let offload = Offload { parameters, update: UpdateTime::AtUse, ..ON_DISK };
        Model::new(Config { offload, mesh: mesh(1, 1, 1), ..config(3) }, &[4, 5, 6], None)
    };
    let [later, shards_later] = [TierKind::Device, TierKind::Disk].map(later);
    let activations = Offload { activations: TierKind::Disk, ..Offload::NONE };
    let of_activations = |micro_batches, recompute| {
        let config = Config { offload: activations, mesh: mesh(1, 1, 1), micro_batches, recompute, ..config(0) };
        Model::new(config, &[4, 5, 6, 0], None)
    };
    let turning = [of_activations(2, Recompute::None), of_activations(1, Recompute::Every(1))];
    // Updates on the host of a GPU, which has the sums, or gets them.
    let on_host = |gradients, params| {
        let offload = Offload { optimizer: TierKind::Host, gradients, update_on: UpdatePlace::Host, ..ON_DISK };
        let config = Config { offload, precision: precision(params, Width::F32), ..config(2) };
        Model::new(
            Config { mesh: mesh(1, 1, 1), ..config },
            &[9000, 7, 0],
            Some(0).filter(|_| gradients == TierKind::Device),
        )
        .on_gpus(TransportKind::Peer)
    };
    let hosts = [on_host(TierKind::Device, Width::F32), on_host(TierKind::Host, Width::BF16)];
    // Shards that GPUs gather from where they were fetched to; and all states on the host, which updates them.
    let gathered = |update_on| {
        let offload = Offload { optimizer: TierKind::Host, parameters: TierKind::Host, update_on, ..ON_DISK };
        let config = Config { offload, prefetch: 1, mesh: mesh(1, 1, 1), ..config(3) };
        Model::new(config, &[40, 7, 90], None).on_gpus(TransportKind::Peer)
    };
    let hosts = hosts.into_iter().chain([UpdatePlace::Device, UpdatePlace::Host].map(gathered));
    // Publications: of shards that are fetched, and of those that are updated first; and on a GPU.
    let published =
        |model: &Model| Model { config: Config { publish: publish::IN_BF16, ..model.config }, ..model.clone() };
    let of_gpu =
        Model::new(Config { mesh: mesh(1, 1, 1), ..config(3) }, &[40, 7, 90], None).on_gpus(TransportKind::Peer);
    let published = [&of_shards, &later, &shards_later, &of_gpu].map(published);
    let mut met = BTreeSet::new();
    let others = [without_updates, of_hosts, of_replicas, on_disk, of_sums, of_slots, of_shards, later, shards_later];
    let others = others.into_iter().chain(turning).chain(hosts).chain(published);
    for model in small_models().into_iter().chain(others) {
        model.plan().with(|plan| {
            for pipeline in 0..plan.pipeline_stages.len() {
                for pass in Pass::ALL {
                    let ops = plan.pipeline_stages[pipeline].ops(pass);
                    for edit in edits(plan, ops.len()) {
                        let found = with_table(plan, Table { pipeline, pass }, &edit.apply(ops), |plan| plan.check());
                        met.extend(found.err().map(|fault| fault.rule));
                    }
                }
            }
        });
    }
    let written: BTreeSet<&str> = SOURCES.into_iter().flat_map(rules_of).collect();
    assert!(written.len() > 60, "{}", written.len());
    let unmet: Vec<_> = written.difference(&met).collect();
    assert!(unmet.is_empty(), "rules that refuse nothing: {unmet:#?}");
}
