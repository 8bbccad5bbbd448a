//! Effect: Z0108, an option that changes nothing, whatever its value.
//!
//! With one rank along `zero`, only `prefetch` has no effect, because no other rank has shards to gather ahead. Slots
//! and buckets still exist, so the rest of a spec can be tried on one rank unchanged.

use super::super::keys::{Form, split};
use super::super::locate::{KeySpans, items};
use super::{CheckedSpec, Rule};
use crate::diagnostic::Diagnostic;
use crate::mesh::Axis;

pub const RULES: &[Rule] = &[
    Rule { reads: &["zero.stage", "zero.prefetch"], find: prefetch },
    Rule { reads: &["mesh.zero", "zero.prefetch"], find: prefetch_alone },
    Rule { reads: &["zero.stage", "zero.gather"], find: gather },
    Rule { reads: &["batch.micro_batches", "zero.reduce"], find: reduce },
    Rule { reads: &["mesh.pipeline", "pipeline"], find: |subject| pipeline(subject, Form::File, "pipeline") },
    Rule {
        reads: &["mesh.pipeline", "pipeline.schedule"],
        find: |subject| pipeline(subject, Form::Inline, "pipeline.schedule"),
    },
    Rule {
        reads: &["mesh.pipeline", "pipeline.units"],
        find: |subject| pipeline(subject, Form::Inline, "pipeline.units"),
    },
    Rule { reads: &["mesh.within_node", "mesh.replica", "mesh.pipeline"], find: within_node_of_one },
];

fn prefetch(subject: &CheckedSpec) -> Option<Diagnostic> {
    below_stage_3(subject, "zero.prefetch", "only stage 3 gathers parameters ahead")
}

fn prefetch_alone(subject: &CheckedSpec) -> Option<Diagnostic> {
    if subject.spec.mesh.zero > 1 {
        return None;
    }
    let (path, axis) = ("zero.prefetch", subject.name("mesh.zero"));
    let problem = Diagnostic::new("Z0108", path, "`prefetch` has no effect with one rank along `zero`");
    let help = format!("remove `prefetch`, or set `{axis}` to 2 or more");
    Some(problem.at(subject.given(path)?.key, format!("`{axis}` is 1: nobody else has parameters")).help(help))
}

fn gather(subject: &CheckedSpec) -> Option<Diagnostic> {
    below_stage_3(subject, "zero.gather", "only stage 3 gathers parameters for use")
}

fn below_stage_3(subject: &CheckedSpec, path: &'static str, label: &str) -> Option<Diagnostic> {
    let stage = subject.spec.zero.stage.get();
    if stage == 3 {
        return None;
    }
    let key = split(path).1;
    let problem = Diagnostic::new("Z0108", path, format!("`{key}` has no effect at stage {stage}"));
    Some(problem.at(subject.given(path)?.key, label).help(format!("remove `{key}`, or choose stage 3")))
}

fn reduce(subject: &CheckedSpec) -> Option<Diagnostic> {
    if subject.spec.batch.micro_batches > 1 {
        return None;
    }
    let path = "zero.reduce";
    Some(
        Diagnostic::new("Z0108", path, "`reduce` has no effect with one micro-batch")
            .at(subject.given(path)?.key, "one micro-batch is a whole step")
            .help(format!("remove `reduce`, or set `{}` to 2 or more", subject.name("batch.micro_batches"))),
    )
}

/// In a file the mistake points at the section, in an attribute at each option.
fn pipeline(subject: &CheckedSpec, form: Form, path: &'static str) -> Option<Diagnostic> {
    if subject.spec.mesh.pipeline > 1 || subject.report.form != form {
        return None;
    }
    let axis = subject.name("mesh.pipeline");
    let (name, what) = match form {
        Form::File => ("pipeline".to_owned(), "the section"),
        Form::Inline => (subject.name(path), "it"),
    };
    Some(
        Diagnostic::new("Z0108", path, format!("`{name}` has no effect with one pipeline stage"))
            .at(subject.given(path)?.key, format!("`{axis}` is 1"))
            .help(format!("remove {what}, or set `{axis}` to 2 or more")),
    )
}

/// An axis of one rank cannot cross nodes.
fn within_node_of_one(subject: &CheckedSpec) -> Option<Diagnostic> {
    let mesh = &subject.spec.mesh;
    let path = "mesh.within_node";
    let KeySpans { value, .. } = subject.given(path)?;
    let of_one = |axis: &Axis| *axis != Axis::Zero && mesh.len(*axis) == 1;
    let (index, axis) = mesh.within_node.iter().enumerate().find(|(_, axis)| of_one(axis))?;
    let name = axis.name();
    let span = items(subject.report.text, &value).get(index).cloned().unwrap_or(value);
    Some(
        Diagnostic::new("Z0108", path, format!("`{axis:?}` in `{}` has no effect", subject.name(path)))
            .at(span, format!("the mesh has one rank along `{name}`"))
            .help(format!(
                "remove `{axis:?}` from the list, or set `{}` to 2 or more",
                subject.name(&format!("mesh.{name}"))
            )),
    )
}

/// Everything is on one node.
pub fn within_one_node(subject: &CheckedSpec) -> Option<Diagnostic> {
    if subject.spec.mesh.nodes() > 1 {
        return None;
    }
    let path = "mesh.within_node";
    let name = subject.name(path);
    let problem = Diagnostic::new("Z0108", path, format!("`{name}` has no effect on one node"));
    let help = format!("remove `{name}`, or set `{}` to 2 or more", subject.name("mesh.nodes"));
    Some(problem.at(subject.given(path)?.key, "all ranks are on one node").help(help))
}

#[cfg(test)]
mod tests {
    use super::super::testing::{codes, one};

    #[test]
    fn z0108_option_without_effect() {
        for (stage, prefetch) in [(0, 1), (1, 2), (2, 0)] {
            let text = format!("(\n    zero: (stage: {stage}, prefetch: {prefetch}),\n)");
            let message = format!("`prefetch` has no effect at stage {stage}");
            one(&text, "Z0108", (2, 22), &message, "only stage 3 gathers parameters ahead");
        }
        let text = "(mesh: (zero: 1), zero: (stage: 3, prefetch: 2))";
        let message = "`prefetch` has no effect with one rank along `zero`";
        let problem = one(text, "Z0108", (1, 36), message, "`mesh.zero` is 1: nobody else has parameters");
        assert_eq!(problem.help.as_deref(), Some("remove `prefetch`, or set `mesh.zero` to 2 or more"));
        assert_eq!(codes(&text.replace("stage: 3", "stage: 2")), ["Z0108"], "told once");
        let one_rank = "(mesh: (zero: 1), zero: (stage: 3, gather: PerStep, bucket: MiB(1)))";
        assert_eq!(codes(one_rank), [""; 0], "one rank is a spec to compare with, not a mistake");
    }

    #[test]
    fn z0108_gather_below_stage_3() {
        for often in ["PerStep", "PerMicroBatch"] {
            let text = format!("(zero: (stage: 2, gather: {often}))");
            let message = "`gather` has no effect at stage 2";
            one(&text, "Z0108", (1, 19), message, "only stage 3 gathers parameters for use");
        }
    }

    #[test]
    fn z0108_reduce_with_one_micro_batch() {
        let text = "(zero: (stage: 2, reduce: PerStep))";
        let message = "`reduce` has no effect with one micro-batch";
        let problem = one(text, "Z0108", (1, 19), message, "one micro-batch is a whole step");
        assert_eq!(problem.help.as_deref(), Some("remove `reduce`, or set `batch.micro_batches` to 2 or more"));
        assert_eq!(codes("(zero: (stage: 2, reduce: PerStep), batch: (micro_batches: 2))"), [""; 0]);
    }

    #[test]
    fn z0108_pipeline_without_stages() {
        for section in ["()", "(units: Even)", "(schedule: GPipe, units: Split([1]))"] {
            let text = format!("(zero: (stage: 2), pipeline: {section})");
            let message = "`pipeline` has no effect with one pipeline stage";
            let problem = one(&text, "Z0108", (1, 20), message, "`mesh.pipeline` is 1");
            assert_eq!(problem.help.as_deref(), Some("remove the section, or set `mesh.pipeline` to 2 or more"));
        }
    }

    #[test]
    fn z0108_within_node() {
        let text = "(zero: (stage: 2), mesh: (within_node: [Zero]))";
        let message = "`mesh.within_node` has no effect on one node";
        one(text, "Z0108", (1, 27), message, "all ranks are on one node");
        let text = "(zero: (stage: 2), mesh: (nodes: 2, zero: 4, within_node: [Zero, Replica]))";
        let message = "`Replica` in `mesh.within_node` has no effect";
        one(text, "Z0108", (1, 66), message, "the mesh has one rank along `replica`");
        let one_shard = "(zero: (stage: 2), mesh: (nodes: 2, replica: 2, zero: 1, within_node: [Zero]))";
        assert_eq!(codes(one_shard), [""; 0]);
    }
}
