//! Check: whether the values of a spec that has been read can be meant. Never looks at a model.

use super::keys::{Form, expects};
use super::locate::locate;
use super::report::Report;
use super::{RANKS_MAX, Spec};
use crate::diagnostic::Diagnostic;

/// All mistakes in the values of `spec`, which has been read from `text`: Z0106 and Z0108.
pub(super) fn check(spec: &Spec, text: &str, form: Form) -> Vec<Diagnostic> {
    let report = Report { text, form };
    let ranges = outside_range(spec).into_iter().filter_map(|path| {
        // A value that is not in the text is a default, and defaults are in range.
        let value = locate(text, path)?.value;
        Some(report.out_of_range(path, value, expects(path)?))
    });
    let mut problems: Vec<_> = ranges.collect();
    if problems.is_empty() {
        problems.extend(step_too_large(spec, text, form));
    }
    problems.extend(without_effect(spec, text));
    problems
}

/// The paths whose values are out of range, each by itself.
fn outside_range(spec: &Spec) -> Vec<&'static str> {
    let size_fits = |size: super::Size| size.checked_bytes().is_some_and(|bytes| bytes > 0);
    let in_range = [
        ("mesh.zero", (1..=RANKS_MAX).contains(&spec.mesh.zero)),
        ("zero.bucket", size_fits(spec.zero.bucket)),
        ("batch.sequences", spec.batch.sequences > 0),
        ("batch.length", spec.batch.length > 0),
        ("batch.micro_batches", spec.batch.micro_batches > 0),
        ("memory", spec.memory.is_none_or(size_fits)),
    ];
    let outside = in_range.into_iter().filter(|(_, fits)| !fits);
    outside.map(|(path, _)| path).collect()
}

/// Z0106: the tokens of a step, over all ranks, do not fit 64 bits. Points at the largest factor, which is no default.
fn step_too_large(spec: &Spec, text: &str, form: Form) -> Option<Diagnostic> {
    let batch = &spec.batch;
    let factors = [
        ("batch.sequences", batch.sequences),
        ("batch.length", batch.length),
        ("batch.micro_batches", batch.micro_batches),
    ];
    let ranks = u64::from(spec.mesh.zero);
    let mut counts = factors.iter().map(|(_, count)| u64::from(*count));
    if counts.try_fold(ranks, u64::checked_mul).is_some() {
        return None;
    }
    let (path, _) = factors.into_iter().max_by_key(|(_, count)| *count)?;
    let message = format!(
        "a step is too large: {} sequences x {} tokens x {} micro-batches x {ranks} ranks",
        batch.sequences, batch.length, batch.micro_batches,
    );
    let problem = Diagnostic::new("Z0106", path, message);
    let label = format!("`{}` is the largest of them", form.name(path));
    Some(problem.at(locate(text, path)?.value, label).help("a step has at most 2^64 - 1 tokens"))
}

/// Z0108: an option that changes nothing. Only the stage can take an option's effect away: with one rank the gathers, the
/// slots and the buckets of a plan are all still there, with nobody to exchange with.
pub(super) fn without_effect(spec: &Spec, text: &str) -> Option<Diagnostic> {
    let stage = spec.zero.stage.get();
    if stage == 3 || spec.zero.prefetch.is_none() {
        return None;
    }
    let path = "zero.prefetch";
    Some(
        Diagnostic::new("Z0108", path, format!("`prefetch` has no effect at stage {stage}"))
            .at(locate(text, path)?.key, "only stage 3 gathers parameters ahead")
            .help("remove `prefetch`, or choose stage 3"),
    )
}

#[cfg(test)]
mod tests {
    use super::super::{KEYS, parse};
    use super::*;
    use crate::diagnostic::line_column;

    #[track_caller]
    fn one(text: &str, code: &str, place: (usize, usize), message: &str, label: &str) {
        let problems = parse(text).expect_err(text);
        assert_eq!(problems.len(), 1, "{problems:?}");
        let problem = &problems[0];
        assert_eq!((problem.code, problem.message.as_str(), problem.label.as_str()), (code, message, label));
        assert_eq!(line_column(text, problem.span.clone().unwrap().start), place);
    }

    #[test]
    fn z0106_out_of_range() {
        for ranks in ["0", "4097", "-1", "5000000000"] {
            let text = format!("(\n    mesh: (zero: {ranks}), zero: (stage: 1),\n)");
            let message = format!("`mesh.zero` is out of range: `{ranks}`");
            one(&text, "Z0106", (2, 18), &message, "expected a number of ranks from 1 to 4096");
        }
        for key in ["sequences", "length", "micro_batches"] {
            let text = format!("(zero: (stage: 0), batch: ({key}: 0))");
            let path = format!("batch.{key}");
            let label = format!("expected {}", expects(&path).unwrap());
            one(&text, "Z0106", (1, 30 + key.len()), &format!("`{path}` is out of range: `0`"), &label);
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
    fn z0106_step_too_large() {
        let text = "(zero: (stage: 0), batch: (length: 4294967295, micro_batches: 2147483648))";
        let message = "a step is too large: 4 sequences x 4294967295 tokens x 2147483648 micro-batches x 2 ranks";
        one(text, "Z0106", (1, 36), message, "`batch.length` is the largest of them");
        assert!(parse("(zero: (stage: 0), batch: (length: 4294967295, micro_batches: 536870912))").is_ok());
    }

    #[test]
    fn ranges_include_their_ends() {
        let least = "(mesh: (zero: 1), zero: (stage: 0, bucket: B(1)), batch: (sequences: 1, length: 1, micro_batches: 1), memory: B(1))";
        assert!(parse(least).is_ok());
        assert!(parse("(mesh: (zero: 4096), zero: (stage: 3, prefetch: 0), memory: TB(18446744))").is_ok());
        let ranks = KEYS.iter().find(|key| key.path == "mesh.zero").unwrap();
        assert!(ranks.expects.ends_with(&format!("to {RANKS_MAX}")));
    }

    #[test]
    fn z0108_option_without_effect() {
        for (stage, prefetch) in [(0, 1), (1, 2), (2, 0)] {
            let text = format!("(\n    zero: (stage: {stage}, prefetch: {prefetch}),\n)");
            let message = format!("`prefetch` has no effect at stage {stage}");
            one(&text, "Z0108", (2, 22), &message, "only stage 3 gathers parameters ahead");
        }
        let one_rank = "(mesh: (zero: 1), zero: (stage: 3, prefetch: 2, bucket: MiB(1)))";
        assert!(parse(one_rank).is_ok(), "one rank is a spec to compare with, not a mistake");
    }
}
