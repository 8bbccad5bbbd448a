//! Offload: Z0108 for keys of tiers that change nothing, because nothing is kept there, and Z0114 for states that cannot be
//! kept there.

use super::{CheckedSpec, Rule};
use crate::config::{Config, DeviceKind, Often, OptimizerKind, Order, TierKind};
use crate::diagnostic::Diagnostic;

/// The keys that say where a state is kept.
pub(super) const OPTIMIZER: &str = "offload.optimizer";
const GRADIENTS: &str = "offload.gradients";
const PARAMETERS: &str = "offload.parameters";
const ACTIVATIONS: &str = "offload.activations";

const PREFETCH: &str = "offload.prefetch";
const PIECE: &str = "offload.piece";
pub(super) const UPDATE: &str = "offload.update";

pub const RULES: &[Rule] = &[
    Rule {
        reads: &[OPTIMIZER, GRADIENTS, PARAMETERS, ACTIVATIONS, PREFETCH],
        find: |it| nothing_travels(it, PREFETCH),
    },
    Rule {
        reads: &[OPTIMIZER, GRADIENTS, PARAMETERS, ACTIVATIONS, PIECE, "device"],
        find: |it| nothing_travels(it, PIECE),
    },
    Rule { reads: &[OPTIMIZER, GRADIENTS, PARAMETERS, ACTIVATIONS, UPDATE], find: |it| nothing_travels(it, UPDATE) },
    Rule {
        reads: &[OPTIMIZER, GRADIENTS, PARAMETERS, ACTIVATIONS, "host", "device"],
        find: |it| nothing_kept(it, TierKind::Host),
    },
    Rule {
        reads: &[OPTIMIZER, GRADIENTS, PARAMETERS, ACTIVATIONS, "disk"],
        find: |it| nothing_kept(it, TierKind::Disk),
    },
    Rule { reads: &[OPTIMIZER, "device"], find: |it| same_memory(it, OPTIMIZER) },
    Rule { reads: &[OPTIMIZER, "optimizer"], find: |it| muon(it, OPTIMIZER) },
    Rule { reads: &[OPTIMIZER, "checkpoint.snapshot"], find: |it| snapshot(it, OPTIMIZER) },
    Rule { reads: &[GRADIENTS, "offload.update_on"], find: |it| disk_of_host_update(it, GRADIENTS) },
    Rule { reads: &[GRADIENTS, "device"], find: |it| same_memory(it, GRADIENTS) },
    Rule { reads: &[GRADIENTS, "optimizer"], find: |it| muon(it, GRADIENTS) },
    Rule { reads: &[GRADIENTS, "checkpoint.snapshot"], find: |it| snapshot(it, GRADIENTS) },
    Rule { reads: &[GRADIENTS, "zero.stage"], find: replicated_sums },
    Rule { reads: &[GRADIENTS, "zero.reduce", "batch.micro_batches"], find: held_gradients },
    Rule { reads: &[GRADIENTS, "mesh", "transport"], find: replicas_on_hosts },
    Rule { reads: &[GRADIENTS, "mesh", "pipeline"], find: replicas_of_chunks },
    Rule { reads: &[PARAMETERS, "offload.update_on"], find: |it| disk_of_host_update(it, PARAMETERS) },
    Rule { reads: &[PARAMETERS, "device"], find: |it| same_memory(it, PARAMETERS) },
    Rule { reads: &[PARAMETERS, "optimizer"], find: |it| muon(it, PARAMETERS) },
    Rule { reads: &[PARAMETERS, "checkpoint.snapshot"], find: |it| snapshot(it, PARAMETERS) },
    Rule { reads: &[PARAMETERS, "zero.stage"], find: whole_parameters },
    Rule { reads: &[PARAMETERS, "zero.gather"], find: held_parameters },
    Rule { reads: &[PARAMETERS, "precision"], find: converted_parameters },
    Rule { reads: &[PARAMETERS, "mesh", "transport", "device"], find: shards_on_hosts },
    Rule { reads: &[ACTIVATIONS, "device"], find: |it| same_memory(it, ACTIVATIONS) },
    Rule { reads: &[ACTIVATIONS, "mesh"], find: activations_in_a_pipeline },
];

/// Where a key says that its state is kept.
fn tier(subject: &CheckedSpec, path: &str) -> TierKind {
    let offload = &subject.spec.offload;
    match path {
        GRADIENTS => offload.gradients,
        PARAMETERS => offload.parameters,
        ACTIVATIONS => offload.activations,
        _ => offload.optimizer,
    }
}

/// A configuration with the tiers of a spec.
pub(super) fn offload(subject: &CheckedSpec) -> Config {
    Config { offload: subject.spec.offload.config(), ..Config::PLAIN }
}

fn nothing_travels(subject: &CheckedSpec, path: &'static str) -> Option<Diagnostic> {
    let config = offload(subject);
    // What passes through host memory does so in parts as long as a piece.
    let has_parts = Config { device: subject.spec.device, ..config }.relays();
    if config.updates_in_pieces() || path == PREFETCH && config.offloads() || path == PIECE && has_parts {
        return None;
    }
    let name = subject.name(path);
    let (without, label) = if config.offloads() {
        ("offload of other states than activations", "activations travel whole, and an update needs none of them")
    } else {
        ("offload", "all states are on the device, so nothing travels")
    };
    let problem = Diagnostic::new("Z0108", path, format!("`{name}` has no effect without {without}"));
    let problem = problem.at(subject.given(path)?.key, label);
    let tier = if subject.spec.device == DeviceKind::Cpu { TierKind::Disk } else { TierKind::Host };
    Some(problem.help(format!("remove `{name}`, or set `{}` to {tier:?}", subject.name(OPTIMIZER))))
}

fn nothing_kept(subject: &CheckedSpec, tier: TierKind) -> Option<Diagnostic> {
    let config = Config { device: subject.spec.device, ..offload(subject) };
    if config.offload.uses(tier) || tier == TierKind::Host && config.relays() {
        return None;
    }
    let (key, words) = (tier.budget_key(), tier.words());
    let problem = Diagnostic::new("Z0108", key, format!("`{key}` has no effect without states {words}"));
    let problem = problem.at(subject.given(key)?.key, "a budget of which nothing is used");
    Some(problem.help(format!("remove `{key}`, or set `offload.optimizer` to {tier:?}")))
}

/// A mistake at the key that says where a state is kept, if it is kept in a tier.
fn impossible(subject: &CheckedSpec, path: &'static str, why: &str, label: &str, help: &str) -> Option<Diagnostic> {
    let (name, tier) = (subject.name(path), tier(subject, path));
    if tier == TierKind::Device {
        return None;
    }
    let problem = Diagnostic::new("Z0114", path, format!("`{name}` is {tier:?}, {why}"));
    Some(problem.at(subject.given(path)?.value, label).help(help))
}

fn disk_of_host_update(subject: &CheckedSpec, path: &'static str) -> Option<Diagnostic> {
    if tier(subject, path) != TierKind::Disk || subject.spec.offload.update_on.is_device() {
        return None;
    }
    let why = "which `update_on` Host contradicts";
    let label = "the host updates what lies in its memory";
    impossible(subject, path, why, label, "set it to Host, or remove `update_on`")
}

fn same_memory(subject: &CheckedSpec, path: &'static str) -> Option<Diagnostic> {
    if tier(subject, path) != TierKind::Host || subject.spec.device != DeviceKind::Cpu {
        return None;
    }
    let why = "the memory that `device` Cpu computes in";
    impossible(subject, path, why, "it would save no memory", "set it to Disk, or remove it")
}

fn muon(subject: &CheckedSpec, path: &'static str) -> Option<Diagnostic> {
    if subject.spec.optimizer == OptimizerKind::AdamW {
        return None;
    }
    let why = "which `optimizer` Muon cannot do";
    let label = "Muon needs momentum of whole matrices before any update, and pieces come one after another";
    impossible(subject, path, why, label, "remove `optimizer`, or remove `offload`")
}

fn snapshot(subject: &CheckedSpec, path: &'static str) -> Option<Diagnostic> {
    if !subject.spec.checkpoint.snapshot {
        return None;
    }
    let why = "which `checkpoint.snapshot` contradicts";
    let label = "a copy in memory would need the room that offload saves";
    impossible(subject, path, why, label, "remove `snapshot`, or remove `offload`")
}

fn replicated_sums(subject: &CheckedSpec) -> Option<Diagnostic> {
    if subject.spec.zero.stage.get() >= 2 {
        return None;
    }
    let why = "which a stage below 2 cannot do";
    let label = "a rank has the gradients of all parameters until they are summed";
    impossible(subject, GRADIENTS, why, label, "set `zero.stage` to 2 or 3, or remove `gradients`")
}

fn held_gradients(subject: &CheckedSpec) -> Option<Diagnostic> {
    if subject.spec.zero.reduce != Often::PerStep || subject.spec.batch.micro_batches == 1 {
        return None;
    }
    let why = "which `reduce` PerStep contradicts";
    let label = "a rank has the gradients of all parameters until the last micro-batch";
    impossible(subject, GRADIENTS, why, label, "remove `reduce`, or remove `gradients`")
}

fn replicas_on_hosts(subject: &CheckedSpec) -> Option<Diagnostic> {
    let spec = subject.spec;
    let config =
        Config { mesh: spec.mesh.grid(), transport: spec.transport(), offload: spec.offload.config(), ..Config::PLAIN };
    if !config.sends_from_slots() {
        return None;
    }
    let why = "which replicas on several hosts cannot do";
    let label = "parts of sums would be sent from places that other sums take next";
    let help = "let ranks along `replica` share hosts, with `zero` across them, or remove `gradients`";
    impossible(subject, GRADIENTS, why, label, help)
}

fn replicas_of_chunks(subject: &CheckedSpec) -> Option<Diagnostic> {
    if subject.spec.mesh.replica == 1 || !matches!(subject.spec.pipeline.schedule.order(), Order::Interleaved { .. }) {
        return None;
    }
    let why = "which replicas of an interleaved pipeline cannot do";
    let label = "a chunk would need the place of sums that other replicas still read";
    impossible(subject, GRADIENTS, why, label, "choose another `schedule`, one replica, or remove `gradients`")
}

fn whole_parameters(subject: &CheckedSpec) -> Option<Diagnostic> {
    if subject.spec.zero.stage.get() == 3 {
        return None;
    }
    let why = "which a stage below 3 cannot do";
    let label = "a rank has all parameters, and layers compute on them where they lie";
    impossible(subject, PARAMETERS, why, label, "set `zero.stage` to 3, or remove `parameters`")
}

fn held_parameters(subject: &CheckedSpec) -> Option<Diagnostic> {
    if subject.spec.zero.gather != Often::PerStep {
        return None;
    }
    let why = "which `gather` PerStep contradicts";
    let label = "a rank has all parameters until the end of a step";
    impossible(subject, PARAMETERS, why, label, "remove `gather`, or remove `parameters`")
}

fn converted_parameters(subject: &CheckedSpec) -> Option<Diagnostic> {
    let precision = subject.spec.precision;
    if precision.params == precision.compute {
        return None;
    }
    let why = "which parameters of another width than layers compute in cannot do";
    let label = "ranks fetch shards into slots that they have in common, and layers compute on these";
    impossible(subject, PARAMETERS, why, label, "give `params` and `compute` one width, or remove `parameters`")
}

fn shards_on_hosts(subject: &CheckedSpec) -> Option<Diagnostic> {
    let spec = subject.spec;
    let (mesh, transport, device) = (spec.mesh.grid(), spec.transport(), spec.device);
    let config = Config { mesh, transport, device, offload: spec.offload.config(), ..Config::PLAIN };
    if !config.sends_fetched_shards() {
        return None;
    }
    let why = "which ranks along `zero` on several hosts cannot do";
    let label = "a shard would be sent from a place that the next one takes";
    let help = "let ranks along `zero` share a host, with `replica` or `pipeline` across them, or remove `parameters`";
    impossible(subject, PARAMETERS, why, label, help)
}

fn activations_in_a_pipeline(subject: &CheckedSpec) -> Option<Diagnostic> {
    if subject.spec.mesh.pipeline == 1 {
        return None;
    }
    let why = "which a pipeline cannot do yet";
    let label = "activations of several micro-batches would travel, and parcels arrive among them";
    impossible(subject, ACTIVATIONS, why, label, "set `mesh.pipeline` to 1, or remove `activations`")
}

#[cfg(test)]
mod tests {
    use super::super::testing::{codes, one};

    #[test]
    fn z0108_keys_of_tiers_without_offload() {
        for key in ["prefetch: 2", "piece: MiB(1)"] {
            let name = format!("offload.{}", key.split(':').next().expect("a name"));
            let message = format!("`{name}` has no effect without offload");
            let label = "all states are on the device, so nothing travels";
            one(&format!("(zero: (stage: 1), offload: ({key}))"), "Z0108", (1, 30), &message, label);
            assert_eq!(codes(&format!("(zero: (stage: 1), offload: (optimizer: Disk, {key}))")), [""; 0]);
        }
        let message = "`disk` has no effect without states on disk";
        one("(zero: (stage: 1), disk: GB(1))", "Z0108", (1, 20), message, "a budget of which nothing is used");
        assert_eq!(codes("(zero: (stage: 1), disk: GB(1), offload: (optimizer: Disk))"), [""; 0]);
        let message = "`host` has no effect without states in host memory";
        one("(zero: (stage: 1), host: GB(1))", "Z0108", (1, 20), message, "a budget of which nothing is used");
        assert_eq!(codes("(zero: (stage: 1), host: GB(1), offload: (optimizer: Disk))"), ["Z0108"]);
        assert_eq!(codes("(zero: (stage: 1), host: GB(1), offload: (optimizer: Host), device: Cuda)"), [""; 0]);
        assert_eq!(codes("(zero: (stage: 1), disk: GB(1), offload: (optimizer: Host), device: Cuda)"), ["Z0108"]);
        assert_eq!(codes("(zero: (stage: 2), host: GB(1), offload: (gradients: Host), device: Cuda)"), [""; 0]);
        // What a GPU has on disk passes through the memory of its host.
        let both = "host: GB(1), disk: GB(1), offload: (optimizer: Disk, gradients: Host), device: Cuda";
        assert_eq!(codes(&format!("(zero: (stage: 2), {both})")), [""; 0]);
        assert_eq!(codes("(zero: (stage: 1), host: GB(1), offload: (optimizer: Disk), device: Cuda)"), [""; 0]);
    }

    #[test]
    fn z0114_states_that_cannot_be_kept_in_a_tier() {
        for (keys, message) in [
            ("offload: (optimizer: Host)", "`offload.optimizer` is Host, the memory that `device` Cpu computes in"),
            (
                "offload: (optimizer: Disk), optimizer: Muon",
                "`offload.optimizer` is Disk, which `optimizer` Muon cannot do",
            ),
            (
                "offload: (optimizer: Disk), checkpoint: (snapshot: true)",
                "`offload.optimizer` is Disk, which `checkpoint.snapshot` contradicts",
            ),
        ] {
            let problems = crate::spec::parse(&format!("(zero: (stage: 1), {keys})")).expect_err(keys);
            let found: Vec<_> = problems.iter().map(|problem| (problem.code, problem.message.as_str())).collect();
            assert_eq!(found, [("Z0114", message)]);
        }
        assert_eq!(codes("(zero: (stage: 1), offload: (optimizer: Device), optimizer: Muon)"), [""; 0]);
    }

    #[test]
    fn z0114_sums_that_cannot_be_kept_in_a_tier() {
        for (keys, message) in [
            (
                "zero: (stage: 3), offload: (gradients: Host)",
                "`offload.gradients` is Host, the memory that `device` Cpu computes in",
            ),
            (
                "zero: (stage: 3), offload: (optimizer: Host, gradients: Disk, update_on: Host), device: Cuda",
                "`offload.gradients` is Disk, which `update_on` Host contradicts",
            ),
            (
                "zero: (stage: 1), offload: (gradients: Disk)",
                "`offload.gradients` is Disk, which a stage below 2 cannot do",
            ),
            (
                "zero: (stage: 2, reduce: PerStep), batch: (micro_batches: 2), offload: (gradients: Disk)",
                "`offload.gradients` is Disk, which `reduce` PerStep contradicts",
            ),
            (
                "zero: (stage: 2), mesh: (nodes: 2, zero: 2, replica: 2), transport: Cluster, offload: (gradients: Disk)",
                "`offload.gradients` is Disk, which replicas on several hosts cannot do",
            ),
            (
                "zero: (stage: 2), mesh: (replica: 2, pipeline: 2), batch: (micro_batches: 2), \
                 pipeline: (schedule: Interleaved(chunks: 2)), offload: (gradients: Disk)",
                "`offload.gradients` is Disk, which replicas of an interleaved pipeline cannot do",
            ),
            (
                "zero: (stage: 2), offload: (gradients: Disk), optimizer: Muon",
                "`offload.gradients` is Disk, which `optimizer` Muon cannot do",
            ),
        ] {
            let problems = crate::spec::parse(&format!("({keys})")).expect_err(keys);
            let found: Vec<_> = problems.iter().map(|problem| (problem.code, problem.message.as_str())).collect();
            assert_eq!(found, [("Z0114", message)]);
        }
        for stage in [2, 3] {
            assert_eq!(codes(&format!("(zero: (stage: {stage}), offload: (gradients: Disk), disk: GB(1))")), [""; 0]);
        }
    }

    #[test]
    fn z0114_parameters_that_cannot_be_kept_in_a_tier() {
        let offload = "offload: (parameters: Disk)";
        for (keys, message) in [
            ("zero: (stage: 3), offload: (parameters: Host)", "is Host, the memory that `device` Cpu computes in"),
            (
                "zero: (stage: 3), offload: (optimizer: Host, parameters: Disk, update_on: Host), device: Cuda",
                "is Disk, which `update_on` Host contradicts",
            ),
            (&format!("zero: (stage: 2), {offload}"), "is Disk, which a stage below 3 cannot do"),
            (&format!("zero: (stage: 3, gather: PerStep), {offload}"), "is Disk, which `gather` PerStep contradicts"),
            (&format!("zero: (stage: 3), optimizer: Muon, {offload}"), "is Disk, which `optimizer` Muon cannot do"),
            (
                &format!("zero: (stage: 3), checkpoint: (snapshot: true), {offload}"),
                "is Disk, which `checkpoint.snapshot` contradicts",
            ),
            (
                &format!("zero: (stage: 3), precision: (params: BF16), {offload}"),
                "is Disk, which parameters of another width than layers compute in cannot do",
            ),
            (
                &format!("zero: (stage: 3), mesh: (nodes: 2, zero: 4), transport: Cluster, {offload}"),
                "is Disk, which ranks along `zero` on several hosts cannot do",
            ),
        ] {
            let problems = crate::spec::parse(&format!("({keys})")).expect_err(keys);
            let found: Vec<_> = problems.iter().map(|problem| (problem.code, problem.message.as_str())).collect();
            assert_eq!(found, [("Z0114", &*format!("`offload.parameters` {message}"))], "{keys}");
        }
        assert_eq!(codes(&format!("(zero: (stage: 3), {offload}, disk: GB(1))")), [""; 0]);
        for keys in ["host: GB(1)", "mesh: (nodes: 2, zero: 4), transport: Nccl"] {
            let text = format!("(zero: (stage: 3), device: Cuda, offload: (parameters: Host), {keys})");
            assert_eq!(codes(&text), [""; 0], "{text}");
        }
        let on_one = "mesh: (nodes: 2, zero: 2, pipeline: 2, within_node: [Zero]), batch: (micro_batches: 2)";
        assert_eq!(codes(&format!("(zero: (stage: 3), {on_one}, transport: Cluster, {offload})")), [""; 0]);
    }

    #[test]
    fn z0114_activations_that_cannot_be_kept_in_a_tier() {
        for (keys, message) in [
            ("offload: (activations: Host)", "is Host, the memory that `device` Cpu computes in"),
            (
                "offload: (activations: Disk), mesh: (pipeline: 2), batch: (micro_batches: 2)",
                "is Disk, which a pipeline cannot do yet",
            ),
        ] {
            let problems = crate::spec::parse(&format!("(zero: (stage: 1), {keys})")).expect_err(keys);
            let found: Vec<_> = problems.iter().map(|problem| (problem.code, problem.message.as_str())).collect();
            assert_eq!(found, [("Z0114", &*format!("`offload.activations` {message}"))]);
        }
        let alone = "zero: (stage: 1), offload: (activations: Disk, prefetch: 2)";
        for keys in ["disk: GB(1)", "optimizer: Muon", "checkpoint: (snapshot: true)"] {
            assert_eq!(codes(&format!("({alone}, {keys})")), [""; 0], "{keys}");
        }
    }

    /// An update fetches no activations, and these have no pieces.
    #[test]
    fn z0108_keys_of_pieces_beside_activations() {
        for key in ["piece: MiB(1)", "update: AtUse"] {
            let name = format!("offload.{}", key.split(':').next().expect("a name"));
            let message = format!("`{name}` has no effect without offload of other states than activations");
            let label = "activations travel whole, and an update needs none of them";
            let text = format!("(zero: (stage: 3), offload: (activations: Disk, {key}))");
            one(&text, "Z0108", (1, 49), &message, label);
            assert_eq!(codes(&text.replace("activations", "optimizer")), [""; 0]);
        }
        let of_gpu = "(zero: (stage: 3), device: Cuda, offload: (activations: Disk, piece: MiB(1)))";
        assert_eq!(codes(of_gpu), [""; 0]);
        assert_eq!(codes(&of_gpu.replace("Disk", "Host")), ["Z0108"]);
    }

    #[test]
    fn z0106_pieces_out_of_range() {
        for piece in ["KiB(7)", "GiB(2)"] {
            let label = "expected a size from `KiB(8)` to `GiB(1)`, such as `MiB(4)`";
            let text = format!("(zero: (stage: 1), offload: (optimizer: Disk, piece: {piece}))");
            one(&text, "Z0106", (1, 54), &format!("`offload.piece` is out of range: `{piece}`"), label);
        }
        assert_eq!(codes("(zero: (stage: 1), offload: (optimizer: Disk, prefetch: 17))"), ["Z0106"]);
    }
}
