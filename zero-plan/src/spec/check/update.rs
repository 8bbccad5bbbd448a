//! Update: Z0114 for parameters that are to be updated at their use, where ranks cannot do that.

use super::offload::{UPDATE, offload};
use super::{CheckedSpec, Rule};
use crate::config::{Config, DeviceKind, Often, UpdateTime};
use crate::diagnostic::Diagnostic;
use crate::mesh::Axis;

pub const RULES: &[Rule] = &[
    Rule { reads: &[UPDATE, "zero.stage"], find: updates_of_replicas },
    Rule { reads: &[UPDATE, "zero.gather"], find: updates_of_held_parameters },
    Rule { reads: &[UPDATE, "mesh"], find: updates_in_a_pipeline },
    Rule { reads: &[UPDATE, "mesh", "transport"], find: updates_on_hosts },
    Rule { reads: &[UPDATE, "device"], find: updates_on_gpus },
];

/// A mistake at the key that says when parameters are updated, if that is at their use.
fn no_update_at_use(
    subject: &CheckedSpec,
    is_possible: bool,
    why: &str,
    label: &str,
    help: &str,
) -> Option<Diagnostic> {
    if is_possible || subject.spec.offload.update == UpdateTime::AfterStep || !offload(subject).updates_in_pieces() {
        return None;
    }
    let problem = Diagnostic::new("Z0114", UPDATE, format!("`{}` is AtUse, {why}", subject.name(UPDATE)));
    Some(problem.at(subject.given(UPDATE)?.value, label).help(help))
}

fn updates_of_replicas(subject: &CheckedSpec) -> Option<Diagnostic> {
    let why = "which a stage below 3 cannot do";
    let label = "a rank has all parameters, and gathers those that others update";
    let help = "set `zero.stage` to 3, or remove `update`";
    no_update_at_use(subject, subject.spec.zero.stage.get() == 3, why, label, help)
}

fn updates_of_held_parameters(subject: &CheckedSpec) -> Option<Diagnostic> {
    let why = "which `gather` PerStep contradicts";
    let label = "a rank gathers all parameters before their first use";
    let is_possible = subject.spec.zero.gather != Often::PerStep;
    no_update_at_use(subject, is_possible, why, label, "remove `gather`, or remove `update`")
}

fn updates_in_a_pipeline(subject: &CheckedSpec) -> Option<Diagnostic> {
    let why = "which a pipeline cannot do";
    let label = "a pipeline stage would begin a step with its updates, and those after it would wait for it";
    no_update_at_use(
        subject,
        subject.spec.mesh.pipeline == 1,
        why,
        label,
        "set `mesh.pipeline` to 1, or remove `update`",
    )
}

fn updates_on_hosts(subject: &CheckedSpec) -> Option<Diagnostic> {
    let spec = subject.spec;
    let config = Config { mesh: spec.mesh.grid(), transport: spec.transport(), ..Config::PLAIN };
    let why = "which ranks along `zero` on several hosts cannot do";
    let label = "a shard may still be on its way to another host when a step begins";
    let help = "let ranks along `zero` share a host, with `replica` across them, or remove `update`";
    no_update_at_use(subject, !config.has_carried_along(Axis::Zero), why, label, help)
}

fn updates_on_gpus(subject: &CheckedSpec) -> Option<Diagnostic> {
    let why = "which ranks on a GPU cannot do yet";
    let label = "a GPU updates its parameters at the end of a step";
    no_update_at_use(
        subject,
        subject.spec.device == DeviceKind::Cpu,
        why,
        label,
        "remove `update`, or set `device` to Cpu",
    )
}

#[cfg(test)]
mod tests {
    use super::super::testing::codes;

    #[test]
    fn z0114_updates_that_cannot_wait_for_the_next_step() {
        let offload = "offload: (optimizer: Disk, update: AtUse)";
        for (keys, message) in [
            (format!("zero: (stage: 2), {offload}"), "which a stage below 3 cannot do"),
            (format!("zero: (stage: 3, gather: PerStep), {offload}"), "which `gather` PerStep contradicts"),
            (
                format!("zero: (stage: 3), mesh: (pipeline: 2), batch: (micro_batches: 2), {offload}"),
                "which a pipeline cannot do",
            ),
            (
                format!("zero: (stage: 3), mesh: (nodes: 2, zero: 4), transport: Cluster, {offload}"),
                "which ranks along `zero` on several hosts cannot do",
            ),
            (
                format!("zero: (stage: 3), device: Cuda, {}", offload.replace("Disk", "Host")),
                "which ranks on a GPU cannot do yet",
            ),
        ] {
            let problems = crate::spec::parse(&format!("({keys})")).expect_err(&keys);
            let found: Vec<_> = problems.iter().map(|problem| (problem.code, problem.message.as_str())).collect();
            assert_eq!(found, [("Z0114", &*format!("`offload.update` is AtUse, {message}"))], "{keys}");
        }
        assert_eq!(codes(&format!("(zero: (stage: 3), {offload})")), [""; 0]);
        assert_eq!(codes("(zero: (stage: 3), offload: (update: AtUse))"), ["Z0108"]);
    }
}
