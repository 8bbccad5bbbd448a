//! Check: whether the values of a spec that has been read make sense, each alone and all together. Never looks at the
//! sizes of a model.

mod contradiction;
mod effect;
mod fields;
mod mesh;
mod offload;
mod pipeline;
mod publish;
mod range;
mod size;
mod update;

use super::Spec;
use super::keys::within;
use super::locate::{KeySpans, Section};
use super::report::SpecDiagnostics;
use crate::diagnostic::Diagnostic;

pub use fields::unknown_fields;
pub use size::{SizeVariables, other_size};

/// A spec and the text that it was read from.
struct CheckedSpec<'s> {
    spec: &'s Spec,
    root: &'s Section,
    report: SpecDiagnostics<'s>,
}

impl CheckedSpec<'_> {
    /// Where the key at `path` is given; none if it is left at its default.
    fn given(&self, path: &str) -> Option<KeySpans> {
        self.root.find(path).map(|entry| entry.spans.clone())
    }

    /// The first of the keys that is given.
    fn first_given(&self, paths: &[&'static str]) -> Option<(&'static str, KeySpans)> {
        paths.iter().find_map(|path| Some((*path, self.given(path)?)))
    }

    /// The name of the key at `path`, in the form of the text.
    fn name(&self, path: &str) -> String {
        self.report.form.name(path)
    }
}

/// A mistake that a spec can have.
struct Rule {
    /// The keys that it reads. If one of them already has a mistake, the rule is skipped: its value was not meant.
    reads: &'static [&'static str],
    find: fn(&CheckedSpec) -> Option<Diagnostic>,
}

/// All rules, from the values of single keys to those of several keys together.
const RULES: [&[Rule]; 8] = [
    range::RULES,
    contradiction::RULES,
    effect::RULES,
    mesh::RULES,
    pipeline::RULES,
    offload::RULES,
    update::RULES,
    publish::RULES,
];

/// All mistakes in the meaning of `spec`, which has been read from the entries of `root`: Z0106, Z0108 and Z0111 to
/// Z0115. `settled` are the paths that already have a mistake.
pub(super) fn check(spec: &Spec, root: &Section, report: SpecDiagnostics, mut settled: Vec<String>) -> Vec<Diagnostic> {
    let subject = CheckedSpec { spec, root, report };
    let mut problems = Vec::new();
    for rule in RULES.into_iter().flatten() {
        let is_settled = |path: &&str| settled.iter().any(|other| within(path, other) || within(other, path));
        if rule.reads.iter().any(is_settled) {
            continue;
        }
        if let Some(problem) = (rule.find)(&subject) {
            settled.push(problem.key.clone());
            problems.push(problem);
        }
    }
    problems
}

/// For the tests of rules.
#[cfg(test)]
mod testing {
    use super::super::parse;
    use crate::diagnostic::{Diagnostic, line_column};

    /// The one mistake of a text, at that line and column.
    #[track_caller]
    pub fn one(text: &str, code: &str, place: (usize, usize), message: &str, label: &str) -> Diagnostic {
        let problems = parse(text).expect_err(text);
        assert_eq!(problems.len(), 1, "{problems:#?}");
        let problem = &problems[0];
        assert_eq!((problem.code, problem.message.as_str(), problem.label.as_str()), (code, message, label), "{text}");
        assert_eq!(line_column(text, problem.span.clone().expect("a place").start), place, "{text}");
        problem.clone()
    }

    /// The codes of all mistakes of a text, in order.
    pub fn codes(text: &str) -> Vec<&'static str> {
        parse(text).err().unwrap_or_default().iter().map(|problem| problem.code).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::testing::codes;

    /// A consequence of a value that is itself wrong is not a second mistake.
    #[test]
    fn one_mistake_is_told_once() {
        for (text, code) in [
            ("(zero: (stage: 3), mesh: (nodes: 3, zero: 0))", "Z0106"),
            ("(zero: (stage: 3), mesh: (nodes: 3, zero: \"4\"))", "Z0103"),
            ("(zero: (stage: 3), mesh: (nodes: 3, zeroo: 4))", "Z0107"),
            ("(zero: (stage: 3), mesh: (nodes: 4, tensor: 2))", "Z0107"),
            ("(zero: (stage: 3), mesh: (nodes: 3, nodes: 2))", "Z0104"),
            ("(zero: (stage: 3), mesh: (nodes: 2, ranks_per_node: 4, within_node: [Zero]))", "Z0111"),
            ("(zero: (stage: 4, prefetch: 2, gather: PerStep))", "Z0105"),
            ("(zero: (prefetch: 2))", "Z0102"),
            ("(zero: (stage: 3), pipeline: (schedule: GPip))", "Z0103"),
            ("(zero: (stage: 3), mesh: (pipeline: 2), pipeline: (microbatches: 8))", "Z0107"),
            ("(zero: (stage: 3), mesh: (pipeline: 2), batch: (micro_batches: 0))", "Z0106"),
            ("(zero: (stage: 3), precision: (params: F16, master: BF16))", "Z0103"),
        ] {
            assert_eq!(codes(text), [code], "{text}");
        }
    }

    #[test]
    fn mistakes_that_have_nothing_to_do_with_one_another_are_all_told() {
        let text = "(
    mesh: (nodes: 3, pipeline: 4, zero: 2),
    zero: (stage: 2, prefetch: 1, gather: PerStep, reduce: PerStep),
    pipeline: (units: Split([1, 0])),
    precision: (master: BF16),
    recompute: Every(0),
)";
        let expected = ["Z0111", "Z0113", "Z0108", "Z0108", "Z0108", "Z0115", "Z0114", "Z0106"];
        assert_eq!(codes(text), expected);
    }
}
