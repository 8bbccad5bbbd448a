//! Range: Z0106, several values that are too large together, although each is in the range of its key.

use super::super::RANKS_MAX;
use super::{CheckedSpec, Rule};
use crate::diagnostic::Diagnostic;

/// The most tokens of a micro-batch: their ids alone take 16 GiB.
const TOKENS_MAX: u64 = 1 << 32;

pub const RULES: &[Rule] = &[
    Rule { reads: &["mesh.replica", "mesh.pipeline", "mesh.zero"], find: too_many_ranks },
    Rule { reads: &["batch.sequences", "batch.length"], find: micro_batch_too_large },
];

/// Points at the longest axis, which is not a default.
fn too_many_ranks(subject: &CheckedSpec) -> Option<Diagnostic> {
    let mesh = &subject.spec.mesh;
    let ranks = mesh.ranks();
    if ranks <= RANKS_MAX.into() {
        return None;
    }
    let axes = [("mesh.replica", mesh.replica), ("mesh.pipeline", mesh.pipeline), ("mesh.zero", mesh.zero)];
    let (path, _) = axes.into_iter().max_by_key(|(_, len)| *len)?;
    let message = format!(
        "the mesh is too large: replica {} x pipeline {} x zero {} are {ranks} ranks",
        mesh.replica, mesh.pipeline, mesh.zero,
    );
    let label = format!("`{}` is the longest axis", subject.name(path));
    let problem = Diagnostic::new("Z0106", path, message).at(subject.given(path)?.value, label);
    Some(problem.help(format!("a mesh has at most {RANKS_MAX} ranks, all axes together")))
}

/// A micro-batch with more token ids than any rank could hold. Points at the larger factor, which is not a default.
fn micro_batch_too_large(subject: &CheckedSpec) -> Option<Diagnostic> {
    let batch = &subject.spec.batch;
    let tokens = u64::from(batch.sequences) * u64::from(batch.length);
    if tokens <= TOKENS_MAX {
        return None;
    }
    let is_long = batch.length >= batch.sequences;
    let path = if is_long { "batch.length" } else { "batch.sequences" };
    let given = |path| if subject.given(path).is_some() { "" } else { " (the default)" };
    let message = format!(
        "a micro-batch is too large: {} sequences{} x {} tokens{} are {tokens} tokens",
        batch.sequences,
        given("batch.sequences"),
        batch.length,
        given("batch.length"),
    );
    let label = format!("`{}` is the larger of the two", subject.name(path));
    let problem = Diagnostic::new("Z0106", path, message).at(subject.given(path)?.value, label);
    Some(problem.help(format!("a micro-batch has at most {TOKENS_MAX} tokens")))
}

#[cfg(test)]
mod tests {
    use super::super::super::keys::row;
    use super::super::super::{KEYS, parse};
    use super::super::testing::{codes, one};
    use super::*;
    use crate::bounds::MICRO_BATCHES_MAX;

    fn expects(path: &str) -> Option<&'static str> {
        row(path).map(|key| key.expects)
    }

    #[test]
    fn z0106_out_of_range() {
        for ranks in ["0", "4097", "-1", "5000000000"] {
            for axis in ["replica", "pipeline", "zero"] {
                let text = format!("(\n    mesh: ({axis}: {ranks}), zero: (stage: 1),\n)");
                let message = format!("`mesh.{axis}` is out of range: `{ranks}`");
                let label = "expected a number of ranks from 1 to 4096";
                one(&text, "Z0106", (2, 14 + axis.len()), &message, label);
            }
        }
        for (section, key) in [
            ("mesh", "nodes"),
            ("mesh", "ranks_per_node"),
            ("batch", "sequences"),
            ("batch", "length"),
            ("batch", "micro_batches"),
        ] {
            let text = format!("(zero: (stage: 0), {section}: ({key}: 0))");
            let path = format!("{section}.{key}");
            let label = format!("expected {}", expects(&path).unwrap());
            let place = (1, 25 + section.len() + key.len());
            one(&text, "Z0106", place, &format!("`{path}` is out of range: `0`"), &label);
        }
        for size in ["B(0)", "GiB(0)", "TB(18446745)", "MiB(-1)", "B(18446744073709551616)"] {
            let text = format!("(zero: (stage: 0), memory: {size})");
            let label = "expected a size from `B(1)` up, such as `GiB(1)`";
            one(&text, "Z0106", (1, 28), &format!("`memory` is out of range: `{size}`"), label);
            let text = format!("(zero: (stage: 0, bucket: {size}))");
            let label = "expected a size from `B(1)` up, such as `MiB(25)`";
            one(&text, "Z0106", (1, 27), &format!("`zero.bucket` is out of range: `{size}`"), label);
        }
    }

    #[test]
    fn z0106_in_a_variant() {
        for chunks in ["0", "1", "-1"] {
            let text =
                format!("(zero: (stage: 0), pipeline: (schedule: Interleaved(chunks: {chunks})), mesh: (pipeline: 2))");
            let message = format!("`pipeline.schedule.chunks` is out of range: `{chunks}`");
            one(&text, "Z0106", (1, 61), &message, "expected a number of chunks from 2 to 4294967295");
        }
        for value in ["Every(0)", "Every(-2)", "Fields([])"] {
            let text = format!("(zero: (stage: 0), recompute: {value})");
            let label = format!("expected {}", expects("recompute").unwrap());
            one(&text, "Z0106", (1, 31), &format!("`recompute` is out of range: `{value}`"), &label);
        }
    }

    #[test]
    fn z0106_mesh_too_large() {
        let text = "(zero: (stage: 0), mesh: (replica: 16, pipeline: 2, zero: 256), batch: (micro_batches: 2))";
        let message = "the mesh is too large: replica 16 x pipeline 2 x zero 256 are 8192 ranks";
        one(text, "Z0106", (1, 59), message, "`mesh.zero` is the longest axis");
        assert_eq!(codes(&text.replace("256", "128")), [""; 0]);
    }

    #[test]
    fn z0106_micro_batch_too_large() {
        let text = "(zero: (stage: 0), batch: (length: 1073741825, micro_batches: 2))";
        let message = "a micro-batch is too large: 4 sequences (the default) x 1073741825 tokens are 4294967300 tokens";
        one(text, "Z0106", (1, 36), message, "`batch.length` is the larger of the two");
        assert!(parse(&text.replace("825", "824")).is_ok());
        assert_eq!(codes("(zero: (stage: 0), batch: (sequences: 4294967295, length: 4294967295))"), ["Z0106"]);
    }

    #[test]
    fn z0106_more_micro_batches_than_any_plan_can_have() {
        let text = "(zero: (stage: 0), batch: (micro_batches: 8193))";
        let message = "`batch.micro_batches` is out of range: `8193`";
        one(text, "Z0106", (1, 43), message, "expected a number of micro-batches from 1 to 8192");
        assert!(parse(&text.replace("8193", "8192")).is_ok());
        assert!(expects("batch.micro_batches").unwrap().ends_with(&MICRO_BATCHES_MAX.to_string()));
        assert_eq!(codes(&text.replace("8193", "4294967295")), ["Z0106"]);
    }

    #[test]
    fn ranges_include_their_ends() {
        let least = "(mesh: (nodes: 1, ranks_per_node: 1, zero: 1), zero: (stage: 0, bucket: B(1)), batch: (sequences: 1, \
             length: 1, micro_batches: 1), recompute: Every(1), memory: B(1))";
        assert_eq!(codes(least), [""; 0]);
        let most = "(mesh: (zero: 4096, nodes: 4096), zero: (stage: 3, prefetch: 0), memory: TB(18446744))";
        assert_eq!(codes(most), [""; 0]);
        let numbers_of_ranks = KEYS.iter().filter(|key| key.expects.starts_with("a number of ranks"));
        for key in numbers_of_ranks {
            assert!(key.expects.ends_with(&format!("to {RANKS_MAX}")));
        }
    }
}
