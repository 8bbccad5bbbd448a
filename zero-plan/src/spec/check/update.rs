//! Update: Z0114 for parameters that are to be updated at their use, where ranks cannot do that, and Z0108 for parameters
//! that are to be updated on the host, where their states are not.

use super::offload::{OPTIMIZER, UPDATE, offload};
use super::{CheckedSpec, Rule};
use crate::config::{Config, DeviceKind, Often, TierKind, UpdateTime};
use crate::diagnostic::Diagnostic;
use crate::mesh::Axis;

pub const RULES: &[Rule] = &[
    Rule { reads: &[UPDATE, "zero.stage"], find: updates_of_replicas },
    Rule { reads: &[UPDATE, "zero.gather"], find: updates_of_held_parameters },
    Rule { reads: &[UPDATE, "mesh"], find: updates_in_a_pipeline },
    Rule { reads: &[UPDATE, "mesh", "transport"], find: updates_on_hosts },
    Rule { reads: &[UPDATE, "device"], find: updates_on_gpus },
    Rule { reads: &[UPDATE_ON, OPTIMIZER], find: updates_away_from_states },
];

const UPDATE_ON: &str = "offload.update_on";

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

fn updates_away_from_states(subject: &CheckedSpec) -> Option<Diagnostic> {
    let offload = &subject.spec.offload;
    if offload.update_on.is_device() || offload.optimizer == TierKind::Host {
        return None;
    }
    let (name, optimizer) = (subject.name(UPDATE_ON), subject.name(OPTIMIZER));
    let problem = Diagnostic::new("Z0108", UPDATE_ON, format!("`{name}` has no effect unless `{optimizer}` is Host"));
    let label = "the host updates by states that lie in its memory";
    let problem = problem.at(subject.given(UPDATE_ON)?.value, label);
    let on_gpus = if subject.spec.device == DeviceKind::Cpu { " and `device` to Cuda" } else { "" };
    Some(problem.help(format!("remove `{name}`, or set `{optimizer}` to Host{on_gpus}")))
}

#[cfg(test)]
mod tests {
    use super::super::testing::{codes, one};

    #[test]
    fn z0108_updates_on_a_host_without_states() {
        let message = "`offload.update_on` has no effect unless `offload.optimizer` is Host";
        let label = "the host updates by states that lie in its memory";
        one("(zero: (stage: 2), offload: (update_on: Host))", "Z0108", (1, 41), message, label);
        let gradients = "device: Cuda, offload: (gradients: Host, update_on: Host)";
        one(&format!("(zero: (stage: 2), {gradients})"), "Z0108", (1, 72), message, label);
        let both = gradients.replace("gradients: Host", "optimizer: Host, gradients: Host");
        assert_eq!(codes(&format!("(zero: (stage: 2), {both})")), [""; 0]);
    }

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
