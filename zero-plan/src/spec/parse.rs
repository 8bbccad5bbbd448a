//! Parse: RON text in, a checked spec or all of its mistakes out. `ron` stops at the first mistake, so an entry that
//! holds one is noted, blanked out and the rest read again; offsets stay what they were. Never reads a file.

use std::ops::Range;

use ron::extensions::Extensions;
use serde::de::IgnoredAny;

use super::Spec;
use super::check::check;
use super::keys::{Form, join, split};
use super::locate::{Section, root};
use super::report::{Mistake, Report};
use crate::diagnostic::Diagnostic;

/// Reads and checks a spec.
///
/// # Errors
///
/// One `Z0101` where the text is not RON, or no section; otherwise every mistake in it, `Z0102` to `Z0108`, in the order of the text.
pub fn parse(text: &str) -> Result<Spec, Vec<Diagnostic>> {
    parse_as(text, Form::File)
}

/// [`parse`], with keys called what `form` calls them.
pub(super) fn parse_as(text: &str, form: Form) -> Result<Spec, Vec<Diagnostic>> {
    let (spec, mut problems) = read(text, form);
    if let Some(spec) = &spec {
        problems.extend(check(spec, text, form));
    }
    problems.sort_by_key(|problem| problem.span.as_ref().map(|span| span.start));
    match spec {
        Some(spec) if problems.is_empty() => Ok(spec),
        _ => Err(problems),
    }
}

/// Reads a spec without checking its values. With problems, the spec holds defaults in place of what could not be read;
/// there is none where the text as a whole cannot be read.
pub(super) fn read(text: &str, form: Form) -> (Option<Spec>, Vec<Diagnostic>) {
    let report = Report { text, form };
    if let Err(error) = ron().from_str::<IgnoredAny>(text) {
        return (None, vec![report.syntax(&error)]);
    }
    let mut reader = Reader { report, work: text.to_owned(), problems: Vec::new(), settled: Vec::new() };
    if let Some(root) = root(text) {
        reader.drop_duplicates(&root, "");
    }
    loop {
        match ron().from_str(&reader.work) {
            Ok(spec) => return (Some(spec), reader.problems),
            Err(error) if reader.settle(&error).is_some() => {}
            // Not a spec from the outside, so what was found inside says nothing.
            Err(error) => return (None, vec![report.syntax(&error)]),
        }
    }
}

/// RON as specs are written in it: `memory: GiB(1)` needs no `Some`.
pub(super) fn ron() -> ron::Options {
    ron::Options::default().with_default_extension(Extensions::IMPLICIT_SOME)
}

struct Reader<'t> {
    report: Report<'t>,
    /// The text, with blanks where a mistake was.
    work: String,
    problems: Vec<Diagnostic>,
    /// Paths that a noted mistake is about: that they are missing afterwards is no second one.
    settled: Vec<String>,
}

impl Reader<'_> {
    fn drop_duplicates(&mut self, section: &Section, path: &str) {
        for (index, entry) in section.entries.iter().enumerate() {
            let path = join(path, &entry.key);
            let mut before = section.entries[..index].iter();
            if let Some(first) = before.find(|first| first.key == entry.key) {
                let problem = self.report.duplicate(&path, &first.spans, &entry.spans);
                self.problems.push(problem);
                self.blank(entry.extent());
            } else if let Some(inside) = &entry.section {
                self.drop_duplicates(inside, &path);
            }
        }
    }

    /// Notes the mistake behind `error` and changes the work so that reading gets past it; none where it has no entry.
    /// Each time there is one entry less or one key more, so reading ends.
    fn settle(&mut self, error: &ron::error::SpannedError) -> Option<()> {
        let root = root(&self.work)?;
        match self.report.mistake(error, &root)? {
            Mistake::Missing { path } => {
                let excused = self.settled.iter().any(|settled| within(settled, &path));
                if !excused {
                    let problem = self.report.missing(&path, &root);
                    self.problems.push(problem);
                }
                self.supply(&path, &root);
            }
            Mistake::Entry { problem, extent, about } => {
                self.problems.push(problem);
                self.settled.extend(about);
                self.blank(extent);
            }
        }
        Some(())
    }

    fn blank(&mut self, extent: Range<usize>) {
        let blank = |byte| if byte == b'\n' { '\n' } else { ' ' };
        let blanks: String = self.work[extent.clone()].bytes().map(blank).collect();
        self.work.replace_range(extent, &blanks);
    }

    /// Puts a stage in the place of the missing one, or a section in that of the missing `zero`. It goes to the very end,
    /// together with the rest of its section, which has been read without a mistake by then: all other places stay what
    /// they were. It is stage 3, where every option has an effect.
    fn supply(&mut self, path: &str, root: &Section) {
        let mut inside = "stage: 3,".to_owned();
        let (section, _) = split(path);
        if let Some(entry) = root.find(section)
            && let Some(section) = &entry.section
        {
            inside += &self.work[section.span.start + 1..section.span.end - 1];
            self.blank(entry.extent());
        }
        let open = match root.entries.last() {
            Some(last) if !last.comma && last.key != section => ", ",
            _ => "",
        };
        let close = root.span.end - 1;
        self.work.insert_str(close, &format!("{open}zero: ({inside})"));
    }
}

/// Whether `path` is `section`, or a key in it.
fn within(path: &str, section: &str) -> bool {
    path.strip_prefix(section).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

#[cfg(test)]
mod tests {
    use super::super::{Batch, Mesh, Model, Size, Stage, Transport, Zero};
    use super::*;
    use crate::diagnostic::line_column;

    /// Code, line, column, message and label of each mistake in the text.
    type Found = (&'static str, usize, usize, String, String);

    fn mistakes(text: &str) -> Vec<Found> {
        let problems = parse(text).expect_err(text);
        let found = problems.into_iter().map(|problem| {
            let (line, column) = line_column(text, problem.span.expect("a place").start);
            (problem.code, line, column, problem.message, problem.label)
        });
        found.collect()
    }

    #[track_caller]
    fn one(text: &str, code: &str, place: (usize, usize), message: &str, label: &str) {
        let found = mistakes(text);
        let expected = (code, place.0, place.1, message, label);
        let all: Vec<_> = found.iter().map(|(c, l, k, m, b)| (*c, *l, *k, m.as_str(), b.as_str())).collect();
        assert_eq!(all, [expected], "{text}");
    }

    const FULL: &str = r#"// A spec with every key.
(
    model: Example("gpt"),
    mesh: (zero: 4),
    zero: (stage: 3, prefetch: 2, bucket: MiB(8)),
    batch: (sequences: 2, length: 64, micro_batches: 3),
    transport: Local,
    memory: GiB(1),
)
"#;

    fn full() -> Spec {
        Spec {
            model: Some(Model::Example("gpt".to_owned())),
            mesh: Mesh { zero: 4 },
            zero: Zero { stage: Stage::new(3).unwrap(), prefetch: Some(2), bucket: Size::MiB(8) },
            batch: Batch { sequences: 2, length: 64, micro_batches: 3 },
            transport: Transport::Local,
            memory: Some(Size::GiB(1)),
        }
    }

    #[test]
    fn every_key_is_read_and_written() {
        assert_eq!(parse(FULL), Ok(full()));
        assert_eq!(parse(&ron().to_string(&full()).unwrap()), Ok(full()));
        let named = FULL.replace("(stage", "Zero(stage").replace("GiB(1)", "Some(GiB(1))");
        assert_eq!(parse(&named), Ok(full()));
    }

    #[test]
    fn defaults_are_as_documented() {
        let spec = parse("(zero: (stage: 3))").unwrap();
        assert_eq!((spec.mesh.zero, spec.zero.prefetch()), (2, 1));
        assert_eq!(spec.zero.bucket.bytes(), 25 << 20);
        assert_eq!((spec.batch.sequences, spec.batch.length, spec.batch.micro_batches), (4, 256, 1));
        assert_eq!((spec.model, spec.transport, spec.memory), (None, Transport::Shm, None));
        assert_eq!(parse("(zero: (stage: 2))").unwrap().zero.prefetch(), 0);
    }

    #[test]
    fn z0101_syntax() {
        let message = "the spec cannot be read: expected comma";
        one("(\n    zero: (stage: 3)\n    mesh: (zero: 2),\n)", "Z0101", (3, 5), message, "reading stops here");
        one("(zero: (stage: 3)", "Z0101", (1, 18), message, "reading stops here");
        let message = "the spec cannot be read: unexpected end of RON";
        one("", "Z0101", (1, 1), message, "reading stops here");
        let message = "the spec cannot be read: expected opening `(` for struct `Spec`";
        one("{\"zero\": 3}", "Z0101", (1, 1), message, "reading stops here");
        let message = "the spec cannot be read: expected struct `Spec` but found `Plan`";
        one("Plan(zero: (stage: 3, stage: 2))", "Z0101", (1, 1), message, "reading stops here");
        assert_eq!(mistakes("(zero: (stage: 9, bad: 1), oops").len(), 1, "nothing after a syntax error");
    }

    #[test]
    fn z0102_missing_key() {
        let label = "`stage` has no default";
        one("(\n    zero: (bucket: MiB(2)),\n)", "Z0102", (2, 5), "missing key `stage` in `zero`", label);
        one("(zero: ())", "Z0102", (1, 2), "missing key `stage` in `zero`", label);
        one("// none\n()", "Z0102", (2, 1), "missing key `zero` in the spec", "`zero` has no default");
        one("(mesh: (zero: 2)) // )", "Z0102", (1, 1), "missing key `zero` in the spec", "`zero` has no default");
    }

    #[test]
    fn z0103_wrong_type() {
        let number = "expected a number of units from 0 to 4294967295";
        let message =
            |found| format!("`zero.prefetch` expects a number of units from 0 to 4294967295, found `{found}`");
        for found in ["\"two\"", "2.5", "two", "(1)", "[1]", "true"] {
            let text = format!("(zero: (stage: 3, prefetch: {found}))");
            one(&text, "Z0103", (1, 29), &message(found), number);
        }
        let size = "expected a size from `B(1)` up, such as `MiB(25)`";
        for found in ["25", "MiB", "MiB(\"x\")", "MiB(1, 2)", "\"25 MiB\""] {
            let text = format!("(zero: (stage: 3, bucket: {found}))");
            one(&text, "Z0103", (1, 27), &format!("`zero.bucket` expects {}, found `{found}`", &size[9..]), size);
        }
        for (found, quoted) in [("3", "3"), ("[\n  1,\n]", "[ 1, ]"), ("Shm", "Shm"), ("Foo(zero: 2)", "Foo(zero: 2)")]
        {
            let text = format!("(zero: (stage: 3), mesh: {found})");
            let message = format!("`mesh` expects a section such as `(zero: 2)`, found `{quoted}`");
            one(&text, "Z0103", (1, 26), &message, "expected a section such as `(zero: 2)`");
        }
        one(
            "(zero: 3)",
            "Z0103",
            (1, 8),
            "`zero` expects a section such as `(stage: 3)`, found `3`",
            "expected a section such as `(stage: 3)`",
        );
        one(
            "(zero: (stage: x))",
            "Z0103",
            (1, 16),
            "`zero.stage` expects 0, 1, 2 or 3, found `x`",
            "expected 0, 1, 2 or 3",
        );
    }

    #[test]
    fn z0103_unknown_variant() {
        let message = "unknown variant `shm` for `transport`, expected `Local` or `Shm`";
        one("(zero: (stage: 3), transport: shm)", "Z0103", (1, 31), message, "did you mean `Shm`?");
        let message = "unknown variant `Nccl` for `transport`, expected `Local` or `Shm`";
        one("(zero: (stage: 3), transport: Nccl)", "Z0103", (1, 31), message, "expected `Local` or `Shm`");
        let text = "(zero: (stage: 3, bucket: Mib(25)))";
        let problem = &parse(text).unwrap_err()[0];
        assert_eq!((problem.code, problem.span.clone()), ("Z0103", Some(26..29)));
        assert_eq!(problem.label, "did you mean `MiB`?");
    }

    #[test]
    fn z0104_duplicate_key() {
        let text = "(\n    zero: (stage: 3, stage: 2),\n    zero: (stage: 9),\n)";
        let problems = parse(text).unwrap_err();
        let places: Vec<_> = problems
            .iter()
            .map(|problem| {
                let (first, label) = problem.also.clone().unwrap();
                assert_eq!((problem.label.as_str(), label.as_str()), ("given again", "first given here"));
                let second = problem.span.clone().unwrap();
                (
                    problem.code,
                    problem.message.as_str(),
                    line_column(text, second.start),
                    line_column(text, first.start),
                )
            })
            .collect();
        assert_eq!(
            places,
            [
                ("Z0104", "duplicate key `zero.stage`", (2, 22), (2, 12)),
                ("Z0104", "duplicate key `zero`", (3, 5), (2, 5)),
            ]
        );
    }

    #[test]
    fn z0105_no_such_stage() {
        for stage in ["4", "-1", "300", "99999999999999999999999"] {
            let text = format!("(\n    zero: (prefetch: 2, stage: {stage}),\n)");
            one(&text, "Z0105", (2, 32), &format!("stage {stage} does not exist"), "expected 0, 1, 2 or 3");
        }
        let help = parse("(zero: (stage: 4))").unwrap_err()[0].help.clone().unwrap();
        assert!(help.contains("3 the parameters too"), "{help}");
    }

    #[test]
    fn z0107_unknown_key() {
        let text = "// see `prefech`\n(\n    zero: (stage: 3, /* prefech: 1 */ prefech: 2),\n)";
        one(text, "Z0107", (3, 39), "unknown key `prefech` in `zero`", "did you mean `prefetch`?");
        let help = parse(text).unwrap_err()[0].help.clone();
        assert_eq!(help.as_deref(), Some("the keys of `zero` are `stage`, `prefetch`, `bucket`"));
        let text = "(zero: (stage: 3), r#messh: (stage: 9, zero: \"x\"))";
        one(text, "Z0107", (1, 22), "unknown key `messh` in the spec", "did you mean `mesh`?");
        let text = "(zero: (stage: 3), prefetch: 2)";
        one(text, "Z0107", (1, 20), "unknown key `prefetch` in the spec", "did you mean `zero.prefetch`?");
        let text = "(zero: (stage: 3), optimizer: \"adam\")";
        one(text, "Z0107", (1, 20), "unknown key `optimizer` in the spec", "not a key of the spec");
    }

    #[test]
    fn a_misspelled_stage_is_not_missing_too() {
        one("(zero: (stag: 3))", "Z0107", (1, 9), "unknown key `stag` in `zero`", "did you mean `stage`?");
        one("(zro: (stage: 3))", "Z0107", (1, 2), "unknown key `zro` in the spec", "did you mean `zero`?");
        one("(stage: 3)", "Z0107", (1, 2), "unknown key `stage` in the spec", "did you mean `zero.stage`?");
    }

    #[test]
    fn all_mistakes_are_found_together_in_order() {
        let text = r#"(
    transport: Smh,
    memory: GiB(0),
    zero: (prefech: 2, bucket: KiB(0), prefetch: "2", /* é */ prefetch: 1),
    mesh: (zero: -4),
    batch: (length: 0, size: 1, sequences: [1]),
    model: Exampel("gpt"))"#;
        let found: Vec<_> = mistakes(text).into_iter().map(|(code, line, column, ..)| (code, line, column)).collect();
        assert_eq!(
            found,
            [
                ("Z0103", 2, 16),
                ("Z0106", 3, 13),
                ("Z0102", 4, 5),
                ("Z0107", 4, 12),
                ("Z0106", 4, 32),
                ("Z0103", 4, 50),
                ("Z0104", 4, 63),
                ("Z0106", 5, 18),
                ("Z0106", 6, 21),
                ("Z0107", 6, 24),
                ("Z0103", 6, 44),
                ("Z0103", 7, 12),
            ]
        );
    }
}
