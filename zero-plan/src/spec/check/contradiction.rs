//! Contradiction: Z0114, keys that contradict each other, and lists that have the same entry twice.

use super::super::RecomputedUnits;
use super::super::locate::items;
use super::{CheckedSpec, Rule};
use crate::diagnostic::Diagnostic;

pub const RULES: &[Rule] = &[
    Rule { reads: &["mesh.within_node"], find: axis_twice },
    Rule { reads: &["recompute"], find: field_twice },
    Rule { reads: &["precision.params", "precision.master"], find: narrow_master },
    Rule { reads: &["device", "transport"], find: foreign_transport },
];

fn axis_twice(subject: &CheckedSpec) -> Option<Diagnostic> {
    listed_twice(subject, "mesh.within_node", &subject.spec.mesh.within_node)
}

fn field_twice(subject: &CheckedSpec) -> Option<Diagnostic> {
    match &subject.spec.recompute {
        Some(RecomputedUnits::Fields(fields)) => listed_twice(subject, "recompute", fields),
        _ => None,
    }
}

/// The second of two equal entries.
fn listed_twice<T: PartialEq + std::fmt::Debug>(
    subject: &CheckedSpec,
    path: &'static str,
    list: &[T],
) -> Option<Diagnostic> {
    let (second, entry) = list.iter().enumerate().find(|(index, entry)| list[..*index].contains(entry))?;
    let first = list.iter().position(|other| other == entry)?;
    let spans = items(subject.report.text, &subject.given(path)?.value);
    let message = format!("`{}` lists `{entry:?}` twice", subject.name(path));
    let mut problem = Diagnostic::new("Z0114", path, message).help("remove one of the two");
    if let (Some(first), Some(second)) = (spans.get(first), spans.get(second)) {
        problem = problem.at(second.clone(), "listed again");
        problem.also = Some((first.clone(), "first listed here".to_owned()));
    }
    Some(problem)
}

fn narrow_master(subject: &CheckedSpec) -> Option<Diagnostic> {
    let precision = &subject.spec.precision;
    if precision.master.bytes() >= precision.params.bytes() {
        return None;
    }
    let (path, master, params) = ("precision.master", precision.master, precision.params);
    let (name, of) = (subject.name(path), subject.name("precision.params"));
    let message = format!("`{name}` is {master:?}, narrower than `{of}`, which is {params:?}");
    let label = format!("{} bytes of a parameter of {} would be kept", master.bytes(), params.bytes());
    let problem = Diagnostic::new("Z0114", path, message).at(subject.given(path)?.value, label);
    Some(problem.help(format!("remove `{name}`, or set `{of}` to {master:?} too")))
}

/// A transport that the device does not support: device memory is reached by other means than host memory.
fn foreign_transport(subject: &CheckedSpec) -> Option<Diagnostic> {
    let (device, transport) = (subject.spec.device, subject.spec.transport());
    if device.has(transport) {
        return None;
    }
    let (name, of) = (subject.name("transport"), subject.name("device"));
    let message = format!("`{name}` is {transport:?}, which does not reach the memory of `{of}` {device:?}");
    let problem = Diagnostic::new("Z0114", "transport", message);
    let label = format!("ranks on {device:?} reach one another by {:?}", device.transport());
    let problem = problem.at(subject.given("transport")?.value, label);
    Some(problem.help(format!("remove `{name}`, or choose another `{of}`")))
}

#[cfg(test)]
mod tests {
    use super::super::testing::{codes, one};

    #[test]
    fn z0114_keys_that_contradict_one_another() {
        let text = "(zero: (stage: 1), precision: (master: BF16))";
        let message = "`precision.master` is BF16, narrower than `precision.params`, which is F32";
        one(text, "Z0114", (1, 40), message, "2 bytes of a parameter of 4 would be kept");
        for fine in ["params: BF16, master: BF16", "params: BF16", "reduce: BF16, moments: BF16", "compute: BF16"] {
            assert_eq!(codes(&format!("(zero: (stage: 1), precision: ({fine}))")), [""; 0], "{fine}");
        }
    }

    #[test]
    fn z0114_a_transport_of_another_device() {
        let text = "(zero: (stage: 1), device: Cuda, transport: Shm)";
        let message = "`transport` is Shm, which does not reach the memory of `device` Cuda";
        one(text, "Z0114", (1, 45), message, "ranks on Cuda reach one another by Peer");
        assert_eq!(codes("(zero: (stage: 1), transport: Peer)"), ["Z0114"]);
        assert_eq!(codes("(zero: (stage: 1), transport: Nccl)"), ["Z0114"]);
        for fine in [
            "device: Cuda",
            "device: Cuda, transport: Peer",
            "device: Cuda, transport: Nccl",
            "device: Cpu, transport: Local",
        ] {
            assert_eq!(codes(&format!("(zero: (stage: 1), {fine})")), [""; 0], "{fine}");
        }
    }

    #[test]
    fn z0114_listed_twice() {
        let text = "(zero: (stage: 1), mesh: (nodes: 2, zero: 4, within_node: [Zero, Zero]))";
        let problem = one(text, "Z0114", (1, 66), "`mesh.within_node` lists `Zero` twice", "listed again");
        assert_eq!(problem.also, Some((59..63, "first listed here".to_owned())));
        let text = r#"(zero: (stage: 1), recompute: Fields(["a", "b", "a"]))"#;
        one(text, "Z0114", (1, 49), r#"`recompute` lists `"a"` twice"#, "listed again");
    }
}
