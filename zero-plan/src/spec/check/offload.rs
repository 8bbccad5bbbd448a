//! Offload: Z0108 for keys of tiers that change nothing, because nothing is kept there, and Z0114 for states that cannot be
//! kept there.

use super::{CheckedSpec, Rule};
use crate::config::{DeviceKind, OptimizerKind, TierKind};
use crate::diagnostic::Diagnostic;

const OPTIMIZER: &str = "offload.optimizer";

pub const RULES: &[Rule] = &[
    Rule { reads: &[OPTIMIZER, "offload.prefetch"], find: |subject| nothing_travels(subject, "offload.prefetch") },
    Rule { reads: &[OPTIMIZER, "offload.piece"], find: |subject| nothing_travels(subject, "offload.piece") },
    Rule { reads: &[OPTIMIZER, "host"], find: |subject| nothing_kept(subject, TierKind::Host) },
    Rule { reads: &[OPTIMIZER, "disk"], find: |subject| nothing_kept(subject, TierKind::Disk) },
    Rule { reads: &[OPTIMIZER, "device"], find: disk_of_gpu },
    Rule { reads: &[OPTIMIZER, "device"], find: same_memory },
    Rule { reads: &[OPTIMIZER, "optimizer"], find: muon },
    Rule { reads: &[OPTIMIZER, "checkpoint.snapshot"], find: snapshot },
];

fn nothing_travels(subject: &CheckedSpec, path: &'static str) -> Option<Diagnostic> {
    if !subject.spec.offload.is_none() {
        return None;
    }
    let name = subject.name(path);
    let problem = Diagnostic::new("Z0108", path, format!("`{name}` has no effect without offload"));
    let problem = problem.at(subject.given(path)?.key, "all states are on the device, so nothing travels");
    let tier = if subject.spec.device == DeviceKind::Cpu { TierKind::Disk } else { TierKind::Host };
    Some(problem.help(format!("remove `{name}`, or set `{}` to {tier:?}", subject.name(OPTIMIZER))))
}

fn nothing_kept(subject: &CheckedSpec, tier: TierKind) -> Option<Diagnostic> {
    if subject.spec.offload.config().uses(tier) {
        return None;
    }
    let (key, words) = (tier.budget_key(), tier.words());
    let problem = Diagnostic::new("Z0108", key, format!("`{key}` has no effect without states {words}"));
    let problem = problem.at(subject.given(key)?.key, "a budget of which nothing is used");
    Some(problem.help(format!("remove `{key}`, or set `offload.optimizer` to {tier:?}")))
}

/// A mistake at the key that says where states are kept.
fn impossible(subject: &CheckedSpec, why: &str, label: &str, help: &str) -> Option<Diagnostic> {
    let (name, tier) = (subject.name(OPTIMIZER), subject.spec.offload.optimizer);
    let problem = Diagnostic::new("Z0114", OPTIMIZER, format!("`{name}` is {tier:?}, {why}"));
    Some(problem.at(subject.given(OPTIMIZER)?.value, label).help(help))
}

fn disk_of_gpu(subject: &CheckedSpec) -> Option<Diagnostic> {
    if subject.spec.offload.optimizer != TierKind::Disk || subject.spec.device == DeviceKind::Cpu {
        return None;
    }
    let why = "which ranks on a GPU cannot do yet";
    let label = "nothing carries bytes between a disk and the memory of a GPU";
    impossible(subject, why, label, "set it to Host, or remove `offload`")
}

fn same_memory(subject: &CheckedSpec) -> Option<Diagnostic> {
    if subject.spec.offload.optimizer != TierKind::Host || subject.spec.device != DeviceKind::Cpu {
        return None;
    }
    let why = "the memory that `device` Cpu computes in";
    impossible(subject, why, "it would save no memory", "set it to Disk, or remove `offload`")
}

fn muon(subject: &CheckedSpec) -> Option<Diagnostic> {
    if subject.spec.offload.is_none() || subject.spec.optimizer == OptimizerKind::AdamW {
        return None;
    }
    let why = "which `optimizer` Muon cannot do";
    let label = "Muon needs momentum of whole matrices before any update, and pieces come one after another";
    impossible(subject, why, label, "remove `optimizer`, or remove `offload`")
}

fn snapshot(subject: &CheckedSpec) -> Option<Diagnostic> {
    if subject.spec.offload.is_none() || !subject.spec.checkpoint.snapshot {
        return None;
    }
    let why = "which `checkpoint.snapshot` contradicts";
    let label = "a copy in memory would need the room that offload saves";
    impossible(subject, why, label, "remove `snapshot`, or remove `offload`")
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
    }

    #[test]
    fn z0114_states_that_cannot_be_kept_in_a_tier() {
        for (keys, message) in [
            ("offload: (optimizer: Host)", "`offload.optimizer` is Host, the memory that `device` Cpu computes in"),
            (
                "offload: (optimizer: Disk), device: Cuda",
                "`offload.optimizer` is Disk, which ranks on a GPU cannot do yet",
            ),
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
    fn z0106_pieces_out_of_range() {
        for piece in ["KiB(7)", "GiB(2)"] {
            let label = "expected a size from `KiB(8)` to `GiB(1)`, such as `MiB(4)`";
            let text = format!("(zero: (stage: 1), offload: (optimizer: Disk, piece: {piece}))");
            one(&text, "Z0106", (1, 54), &format!("`offload.piece` is out of range: `{piece}`"), label);
        }
        assert_eq!(codes("(zero: (stage: 1), offload: (optimizer: Disk, prefetch: 17))"), ["Z0106"]);
    }
}
