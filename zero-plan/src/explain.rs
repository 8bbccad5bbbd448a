//! Explain: a title and a sentence about an op, and the key of the spec that decides it. Never decides an order.

use crate::config::{Config, Gather};
use crate::mesh::Axis;
use crate::plan::Plan;
use crate::schedule::{Op, OpTraits, Parcel};

impl Op {
    /// A sentence that says what the op does and why, and the path of the key of a spec that decides whether, when or how
    /// it is done. `{unit}`, `{bucket}`, `{micro_batch}`, `{round}`, `{slot}` and `{piece}` in the
    /// sentence stand for those of the op.
    pub const fn words(self, config: &Config) -> (&'static str, &'static str) {
        let turns = if config.mesh.pipeline > 1 { "pipeline.schedule" } else { "batch.micro_batches" };
        let reduction = if config.holds_gradients() { "zero.reduce" } else { "zero.bucket" };
        let gather = match (config.shards_parameters(), config.holds_parameters()) {
            (false, _) => "zero.stage",
            (true, true) => "zero.gather",
            (true, false) => "zero.prefetch",
        };
        match self {
            Op::Gather { .. } if !config.shards_parameters() => (
                "Starts to gather the updated shards of {unit} along `zero`, so that every rank has all of its parameters again.",
                gather,
            ),
            Op::Gather { .. } if matches!(config.gather(), Gather::Mapped) && !config.uses_slots() => (
                "Starts to gather the parameters of {unit} along `zero`: shards lie contiguous in shared memory, so a wait is enough.",
                gather,
            ),
            Op::Gather { .. } => ("Starts to gather the parameters of {unit} along `zero`, into slot {slot}.", gather),
            Op::Wait { .. } => ("Waits until the parameters of {unit} are whole.", gather),
            Op::Convert { .. } => (
                "Copies the parameters of {unit} into slot {slot}, in the type that layers compute in.",
                "precision.params",
            ),
            Op::Release { .. } => (
                "Releases the gathered or converted parameters of {unit}: no op needs them before they are made again.",
                if config.shards_parameters() { "zero.gather" } else { "precision.params" },
            ),
            Op::Receive { parcel, .. } => (received(parcel), "mesh.pipeline"),
            Op::Clear { .. } => (
                "Waits until a slot for the next outgoing parcel is free: its receiver has read the last parcel in it.",
                "mesh.pipeline",
            ),
            Op::Send { parcel, .. } => (sent(parcel), "mesh.pipeline"),
            Op::Forward { .. } => {
                ("Runs {unit} forward on micro-batch {micro_batch}; its saved values go to slot {slot}.", turns)
            }
            Op::Recompute { .. } => (
                "Runs {unit} forward on micro-batch {micro_batch} once more, for the values that its \
                 backward needs and its forward has not kept.",
                "recompute",
            ),
            Op::Backward { .. } => (
                "Runs {unit} backward on micro-batch {micro_batch}: gradients of its parameters and of its input, from slot {slot}.",
                turns,
            ),
            Op::Claim { .. } => {
                ("Claims the staging of bucket {bucket}: waits until peers have read its content.", reduction)
            }
            Op::Reduce { .. } => (
                "Offers the local gradients of bucket {bucket} to the ranks along `zero`: the start of a reduce-scatter, its \
                 round {round}.",
                reduction,
            ),
            Op::Subtotal { axis: Axis::Replica, .. } => (
                "For each other host, sums the terms of this host's replicas for this rank's shard of bucket {bucket}, and sends \
                 the sum there, in round {round}.",
                "mesh.replica",
            ),
            Op::Subtotal { .. } => (
                "For each other host, sums the terms of this host's ranks for bucket {bucket}, and sends the sum there: the middle \
                 of a reduce-scatter, its round {round}.",
                "mesh.zero",
            ),
            Op::Settle { .. } => (
                "Sums this rank's shard of bucket {bucket} over the ranks along `zero`: the end of a reduce-scatter, its round \
                 {round}.",
                reduction,
            ),
            Op::Combine { .. } => (
                "Sums this rank's part of bucket {bucket} over the ranks along `replica`, in round {round}.",
                "mesh.replica",
            ),
            Op::Fold { .. } => ("Adds the summed gradients of the tied {unit} to those of its owner.", "model"),
            Op::Spread { axis, .. } if config.spreads_directions(axis) => (
                "Gathers the directions of bucket {bucket} along `zero`: a matrix is made orthogonal as a whole.",
                "optimizer",
            ),
            Op::Spread { axis: Axis::Replica, .. } => (
                "Gathers the parts of bucket {bucket} summed by the ranks along `replica`, so that the shard is whole.",
                "mesh.replica",
            ),
            Op::Spread { .. } => (
                "Gathers the shards of bucket {bucket} summed by the ranks along `zero`: the second half of an all-reduce.",
                "zero.stage",
            ),
            Op::Agree => ("Agrees with all ranks on the loss and on the norm of the gradients.", "mesh"),
            Op::Momentum { .. } => (
                "Adds the gradients of the matrices of {unit} to their momentum, and replaces them by directions, which update \
                 the matrices once they are orthogonal.",
                "optimizer",
            ),
            Op::Update { piece: Some(_), .. } if config.updates_on_host() => (
                "The host updates piece {piece} of the parameters of {unit}, with what it was given in slot {slot} of its window.",
                "offload.update_on",
            ),
            Op::Fetch { .. } if config.updates_on_host() => (
                "Starts to bring piece {piece} of the updated parameters of {unit} from slot {slot} of the host's window.",
                "offload.update_on",
            ),
            Op::Store { .. } if config.updates_on_host() => (
                "Starts to take what the host needs to update piece {piece} of {unit} to slot {slot} of its window.",
                "offload.prefetch",
            ),
            Op::Update { piece: Some(_), .. } => (
                "Updates piece {piece} of the parameters of {unit}, with its states in slot {slot} of the window.",
                "offload.piece",
            ),
            Op::Fetch { .. } => (
                "Starts to bring piece {piece} of the states of {unit} from their tier to slot {slot} of the window.",
                "offload.prefetch",
            ),
            Op::Store { .. } => (
                "Starts to take piece {piece} of the states of {unit} from slot {slot} of the window back to their tier.",
                "offload.optimizer",
            ),
            Op::FetchSums { .. } => (
                "Starts to bring the gradients of bucket {bucket} that are summed so far from their tier, to be added to.",
                "offload.gradients",
            ),
            Op::FetchShard { .. } => (
                "Starts to bring this rank's shard of the parameters of {unit} from its tier, from where it is gathered.",
                "offload.parameters",
            ),
            Op::Offer { .. } => {
                ("Copies what this rank offers of the parameters of {unit} to readers.", "publish.dtype")
            }
            Op::StoreOffered { .. } => (
                "Starts to take what this rank offers of {unit} to a copy in the memory of the host.",
                "publish.copies",
            ),
            Op::StoreActivations { .. } => (
                "Starts to take the activations of {unit} in micro-batch {micro_batch} to their tier, until its backward.",
                "offload.activations",
            ),
            Op::FetchActivations { .. } => (
                "Starts to bring the activations of {unit} in micro-batch {micro_batch} back from their tier, for its backward and \
                 that of the unit after it.",
                "offload.prefetch",
            ),
            Op::StoreSums { .. } => (
                "Starts to take the summed gradients of bucket {bucket} to their tier, until the update needs them.",
                "offload.gradients",
            ),
            Op::Update { .. } if config.shards_optimizer() => {
                ("Updates this rank's shard of the parameters of {unit}.", "zero.stage")
            }
            Op::Update { .. } => ("Updates the parameters of {unit}.", "zero.stage"),
        }
    }
}

const fn received(parcel: Parcel) -> &'static str {
    match parcel {
        Parcel::Activations => {
            "Waits for the activations of micro-batch {micro_batch} from the pipeline stage before, and stores them as the input of \
             {unit}."
        }
        Parcel::Gradients => {
            "Waits for the gradients of the output of {unit} in micro-batch {micro_batch}, from the pipeline stage after."
        }
        Parcel::TiedGradients => {
            "Waits for the summed gradients of the unit tied to {unit}, from its pipeline stage, and adds them to its own."
        }
        Parcel::TiedParameters => {
            "Waits for the updated parameters that {unit} is tied to, from the pipeline stage of their owner."
        }
    }
}

const fn sent(parcel: Parcel) -> &'static str {
    match parcel {
        Parcel::Activations => "Sends the output of {unit} in micro-batch {micro_batch} to the next pipeline stage.",
        Parcel::Gradients => {
            "Sends the gradient of the input of {unit} in micro-batch {micro_batch} to the pipeline stage before."
        }
        Parcel::TiedGradients => "Sends the summed gradients of the tied {unit} to the pipeline stage of its owner.",
        Parcel::TiedParameters => "Sends updated parameters of {unit} to the pipeline stage of the unit tied to it.",
    }
}

impl Plan<'_> {
    /// A title of an op and its subject, which is the same for all micro-batches, such as `forward blocks[2]`.
    pub fn title(&self, op: Op) -> String {
        let OpTraits { name, unit, bucket, parcel, .. } = op.traits();
        let subject = match (parcel, unit, bucket) {
            (Some(parcel), ..) => parcel.name().to_owned(),
            (_, Some(unit), _) => self.units[unit].to_string(),
            (_, _, Some(bucket)) => bucket.to_string(),
            _ => return name.to_owned(),
        };
        format!("{name} {subject}")
    }

    /// The sentence of an op, with its details filled in.
    pub fn explain(&self, op: Op) -> String {
        let mut sentence = op.words(&self.config).0.to_owned();
        let unit = op.unit().map(|unit| self.units[unit].to_string());
        let number = |value: Option<usize>| value.map(|value| value.to_string());
        let values = [
            ("{unit}", unit),
            ("{bucket}", number(op.bucket())),
            ("{micro_batch}", number(op.micro_batch())),
            ("{round}", number(op.round())),
            ("{slot}", number(op.slot())),
            ("{piece}", number(op.traits().piece)),
        ];
        for (name, value) in values {
            if let Some(value) = value {
                sentence = sentence.replace(name, &value);
            }
        }
        sentence
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::PlanBuf;
    use crate::config::{Offload, OptimizerKind, Precision, Recompute, TierKind, TransportKind, Width};
    use crate::mesh::Mesh;
    use crate::spec::KEYS;
    use crate::unit::{OrthogonalCost, Unit};

    const ON_DISK: Offload = Offload { optimizer: TierKind::Disk, prefetch: 0, piece_bytes: 8192, ..Offload::NONE };

    /// Plans that together have every kind of op.
    fn plans() -> Vec<PlanBuf> {
        let mesh = Mesh { replica: 2, pipeline: 2, ..Mesh::of_zero(2) };
        let config = Config { mesh, micro_batches: 4, recompute: Recompute::Every(2), ..Config::PLAIN };
        let narrow = Precision { params: Width::BF16, ..config.precision };
        let units = |tied| {
            let matrices = OrthogonalCost { room_bytes: 64, operations: 10, operations_max: 10 };
            let unit = Unit { field: "unit", params: 100, takes: 100, operations: 10, matrices, ..Unit::NONE };
            let unit = |source| Unit { source, ..unit };
            [unit(0), unit(1), unit(2), Unit { params: if tied { 0 } else { 100 }, ..unit(if tied { 0 } else { 3 }) }]
        };
        [
            (config, true),
            (Config { optimizer: OptimizerKind::Muon, ..config.at_stage(1) }, false),
            (Config { precision: narrow, mesh: Mesh::of_zero(2), ..config.at_stage(2) }, true),
            (Config { transport: TransportKind::Local, ..config.at_stage(3) }, false),
            (Config { offload: ON_DISK, ..config.at_stage(1) }, false),
            (Config { offload: Offload { gradients: TierKind::Disk, ..ON_DISK }, ..config.at_stage(2) }, false),
        ]
        .map(|(config, tied)| PlanBuf::new("Four", config, &units(tied)))
        .into()
    }

    #[test]
    fn sums_over_hosts_are_decided_by_the_axis_that_crosses_them() {
        for (axis, path) in [(Axis::Zero, "mesh.zero"), (Axis::Replica, "mesh.replica")] {
            assert_eq!(Op::Subtotal { bucket: 0, round: 0, axis }.words(&Config::PLAIN).1, path);
        }
    }

    #[test]
    fn every_op_is_explained_and_decided_by_a_key() {
        let mut names = std::collections::BTreeSet::new();
        for plan in plans() {
            plan.with(|plan| {
                for &op in plan.pipeline_stages.iter().flat_map(|pipeline_stage| pipeline_stage.step) {
                    let (sentence, key) = (plan.explain(op), op.words(&plan.config).1);
                    assert!(!sentence.contains(['{', '}']), "{op:?}: {sentence}");
                    assert!(sentence.ends_with('.') && !sentence.contains("  "), "{sentence}");
                    assert!(KEYS.iter().any(|row| row.path == key), "{op:?}: {key}");
                    names.insert(op.name());
                }
            });
        }
        assert_eq!(names.len(), 21, "{names:?}");
    }

    #[test]
    fn an_op_is_explained_with_what_it_is_about() {
        let explained = |op| plans()[3].with(|plan| (plan.title(op), plan.explain(op)));
        let (title, sentence) = explained(Op::Gather { unit: 1, slot: 7 });
        assert_eq!(title, "gather unit");
        assert_eq!(sentence, "Starts to gather the parameters of unit along `zero`, into slot 7.");
        let (title, sentence) = explained(Op::Combine { bucket: 2, round: 3 });
        assert_eq!(title, "combine 2");
        assert_eq!(sentence, "Sums this rank's part of bucket 2 over the ranks along `replica`, in round 3.");
        assert_eq!(explained(Op::Clear { parcel: Parcel::Gradients }).0, "clear gradients");
    }
}
