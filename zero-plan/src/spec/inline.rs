//! Inline: reads the options of `#[zero(...)]` as the spec that they stand for, and compares them with a spec. Never
//! sees tokens: the macro finds the place of a mistake by the diagnostic's key, which is the option's name.

use std::collections::BTreeMap;

use serde::de::IgnoredAny;

use super::Spec;
use super::check::check;
use super::keys::{self, Form, Key, KeyDefault, split};
use super::locate::locate;
use super::parse::{Reading, outline, parse_as, read, ron};
use super::report::{SpecDiagnostics, list, reason};
use super::slip;
use super::tokens::{TokenKind, tokens};
use crate::diagnostic::{Diagnostic, closest, line_column};

/// Reads and checks the spec that an attribute's options stand for: names as in [`options`](keys::options), and values
/// as written, in RON (`3`, `MiB(8)`, `Local`), spaced in any way.
///
/// # Errors
///
/// Every mistake, as from [`parse`](super::parse), in the order of the options. The key is the option's name; there is
/// no span.
pub fn parse_inline(options: &[(String, String)]) -> Result<Spec, Vec<Diagnostic>> {
    let Translated { given, mut problems, settled } = translate(options);
    match parse_as(&assemble(&given), Form::Inline, settled) {
        Ok(spec) if problems.is_empty() => return Ok(spec),
        Ok(_) => {}
        Err(found) => append(&mut problems, found),
    }
    Err(ordered(problems, options))
}

/// Compares an attribute's options with the spec that it names, which has been parsed from `spec_text`.
///
/// Returns a `Z0109` for each option whose value is not the spec's, and the mistakes in the options themselves; each has
/// the option's name as its key and no span. Equal values, and keys that only the spec sets, are fine.
pub fn disagreements(spec: &Spec, spec_text: &str, inline: &[(String, String)]) -> Vec<Diagnostic> {
    let Translated { given, mut problems, mut settled } = translate(inline);
    // A stage that the attribute leaves to the spec is not missing.
    settled.push("zero.stage".to_owned());
    let text = assemble(&given);
    let report = SpecDiagnostics { text: &text, form: Form::Inline };
    let root = match outline(report) {
        Ok(root) => root,
        Err(problem) => return vec![*problem],
    };
    // Keys that the attribute does not set have the spec's values.
    let Reading { spec: other, problems: found, .. } = read(report, &root, spec.clone(), settled);
    append(&mut problems, found);
    // The spec's values have been checked, but giving them in the attribute too can be another mistake.
    let settled = problems.iter().filter_map(|problem| Some(path(&problem.key)?.to_owned())).collect();
    append(&mut problems, check(spec, &root, report, settled));
    for option in &given {
        let reported = problems.iter().any(|problem| problem.key == option.name);
        if !reported && !option.key.agree(spec, &other) {
            problems.push(disagreement(spec, spec_text, option));
        }
    }
    ordered(problems, inline)
}

/// An option of the attribute that stands for a key of the spec.
struct GivenOption {
    name: &'static str,
    key: &'static Key,
    value: String,
}

/// The spec that an attribute's options stand for.
struct Translated {
    given: Vec<GivenOption>,
    /// The mistakes in the other options.
    problems: Vec<Diagnostic>,
    /// The paths that these options may have been meant for.
    settled: Vec<String>,
}

fn translate(options: &[(String, String)]) -> Translated {
    let mut translated = Translated { given: Vec::new(), problems: Vec::new(), settled: Vec::new() };
    for (name, value) in options {
        let value = tidy(value);
        let Some((name, key)) = keys::options().find(|(known, _)| known == name) else {
            let near = near(name);
            // A spec would have given the stage, so it is not missing.
            let meant = near.and_then(|near| if near == "spec" { Some("zero.stage") } else { path(near) });
            translated.settled.extend(meant.map(str::to_owned));
            translated.problems.push(unknown(name, near));
            continue;
        };
        match ron().from_str::<IgnoredAny>(&value) {
            Ok(_) => translated.given.push(GivenOption { name, key, value }),
            Err(error) => {
                let reason = reason(&error.code);
                let message = format!("the value of `{name}` cannot be read: {reason}");
                let help = slip::amount(&value);
                let help = help.unwrap_or_else(|| "write it as in a spec: `3`, `MiB(25)`, `Local`".to_owned());
                translated.problems.push(Diagnostic::new("Z0101", name, message).help(help));
                translated.settled.push(key.path.to_owned());
            }
        }
    }
    translated
}

/// The path that an option stands for.
fn path(name: &str) -> Option<&'static str> {
    keys::options().find(|(option, _)| *option == name).map(|(_, key)| key.path)
}

/// The names of all options that an attribute may have.
fn names() -> impl Iterator<Item = &'static str> {
    keys::options().map(|(name, _)| name).chain(["spec"])
}

/// The known option that the unknown `name` was most likely meant to be.
fn near(name: &str) -> Option<&'static str> {
    closest(name, names())
}

/// Z0107: there is no such option.
fn unknown(name: &str, near: Option<&str>) -> Diagnostic {
    let mut problem = Diagnostic::new("Z0107", name, format!("unknown key `{name}` in `#[zero(...)]`"));
    if let Some(reason) = keys::former(name) {
        problem.label = reason.to_owned();
        return problem.help(format!("remove `{name}`"));
    }
    problem.label = match near {
        Some(near) => format!("did you mean `{near}`?"),
        None => "not a key of `#[zero(...)]`".to_owned(),
    };
    problem.help(format!("the keys of `#[zero(...)]` are {}", list(&names().collect::<Vec<_>>())))
}

/// The options as a spec's text. The section `zero` is always there, as an attribute can only lack the stage in it.
fn assemble(given: &[GivenOption]) -> String {
    let mut sections = BTreeMap::from([("zero", String::new())]);
    for option in given {
        let (section, key) = split(option.key.path);
        let entries = sections.entry(section).or_default();
        *entries += &format!("{key}: {}, ", option.value);
    }
    let texts = sections.iter().map(|(section, entries)| match *section {
        "" => entries.clone(),
        _ => format!("{section}: ({entries}), "),
    });
    format!("({})", texts.collect::<String>())
}

/// A value without the blanks that a token stream puts in: `MiB (8)` and `- 1` become `MiB(8)` and `-1`.
fn tidy(value: &str) -> String {
    let mut tidied = String::new();
    let mut after_word = false;
    for token in tokens(value) {
        let (word, text) = (token.kind == TokenKind::Word, &value[token.span]);
        if after_word && word {
            tidied.push(' ');
        }
        tidied += text;
        after_word = word && text != "-";
    }
    tidied
}

/// Adds the mistakes that were found in the assembled text, with options in place of paths.
fn append(problems: &mut Vec<Diagnostic>, found: Vec<Diagnostic>) {
    for mut problem in found {
        let name = Form::Inline.name(&problem.key);
        // An option is one place, so a mistake anywhere in its value is at the option.
        problem.key = name.split('.').next().unwrap_or_default().to_owned();
        (problem.span, problem.also) = (None, None);
        problems.push(problem);
    }
}

fn ordered(mut problems: Vec<Diagnostic>, options: &[(String, String)]) -> Vec<Diagnostic> {
    problems.sort_by_key(|problem| options.iter().position(|(name, _)| *name == problem.key));
    problems
}

/// Z0109: the option and the spec have different values.
fn disagreement(spec: &Spec, text: &str, option: &GivenOption) -> Diagnostic {
    let GivenOption { name, key: row, value } = option;
    let key = if split(row.path).1 == *name { name } else { row.path };
    let says = match locate(text, row.path) {
        Some(spans) => {
            let (line, column) = line_column(text, spans.key.start);
            format!("says `{key}: {}` at {line}:{column}", &text[spans.value])
        }
        None => match (row.value_in(spec), row.default) {
            (Some(value), _) => format!("leaves `{key}` at its default, `{value}`"),
            (None, KeyDefault::Absent(meaning)) => format!("sets none: {meaning}"),
            (None, _) => "gives none".to_owned(),
        },
    };
    let message = format!("`{name} = {value}` here, but the spec {says}");
    let mut problem = Diagnostic::new("Z0109", *name, message);
    problem.label = "differs from the spec".to_owned();
    problem.help(format!("remove `{name}` from the attribute, or make the two equal"))
}

#[cfg(test)]
mod tests {
    use super::super::keys::row;
    use super::super::parse;
    use super::*;

    fn options(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        pairs.iter().map(owned).collect()
    }

    fn mistakes(pairs: &[(&str, &str)]) -> Vec<(&'static str, String, String)> {
        let problems = parse_inline(&options(pairs)).unwrap_err();
        assert!(problems.iter().all(|problem| problem.span.is_none()));
        problems.into_iter().map(|problem| (problem.code, problem.key, problem.message)).collect()
    }

    #[track_caller]
    fn one(pairs: &[(&str, &str)], code: &str, key: &str, message: &str) {
        let found = mistakes(pairs);
        let all: Vec<_> = found.iter().map(|(c, k, m)| (*c, k.as_str(), m.as_str())).collect();
        assert_eq!(all, [(code, key, message)]);
    }

    #[test]
    fn every_option_is_read_in_any_spacing() {
        let pairs = [
            ("stage", "3", "zero.stage: 3"),
            ("prefetch", "2", "zero.prefetch: 2"),
            ("bucket", "MiB (8)", "zero.bucket: MiB(8)"),
            ("gather", "PerStep", "zero.gather: PerStep"),
            ("reduce", " PerStep", "zero.reduce: PerStep"),
            ("ranks", "4", "mesh.zero: 4"),
            ("replica", "2", "mesh.replica: 2"),
            ("pipeline", "2", "mesh.pipeline: 2"),
            ("nodes", "4", "mesh.nodes: 4"),
            ("ranks_per_node", "4", "mesh.ranks_per_node: 4"),
            ("within_node", "[Zero ,]", "mesh.within_node: [Zero]"),
            ("schedule", "Interleaved (chunks : 2)", "pipeline.schedule: Interleaved(chunks:2)"),
            ("units", "Split ([1, 2, 1, 2])", "pipeline.units: Split([1,2,1,2])"),
            ("sequences", " 2 ", "batch.sequences: 2"),
            ("length", "1_024", "batch.length: 1024"),
            ("micro_batches", "2", "batch.micro_batches: 2"),
            ("compute", "BF16", "precision.compute: BF16"),
            ("params", "BF16", "precision.params: BF16"),
            ("master", "F32", "precision.master: F32"),
            ("moments", "BF16", "precision.moments: BF16"),
            ("recompute", "Fields ([\"a\"])", "recompute: Fields([\"a\"])"),
            ("snapshot", "true", "checkpoint.snapshot: true"),
            ("device", "Cpu", "device: Cpu"),
            ("transport", "Local", "transport: Local"),
            ("optimizer", "Muon", "optimizer: Muon"),
            ("memory", "GiB\n( 1 )", "memory: GiB(1)"),
        ];
        let spec = parse_inline(&options(&pairs.map(|(name, value, _)| (name, value)))).unwrap();
        assert_eq!(pairs.map(|(name, ..)| name)[..], keys::options().map(|(name, _)| name).collect::<Vec<_>>());
        for (name, _, expected) in pairs {
            let path = path(name).unwrap();
            assert_eq!(format!("{path}: {}", row(path).unwrap().value_in(&spec).unwrap()), expected);
        }
    }

    #[test]
    fn mistakes_carry_the_option() {
        one(&[("ranks", "4")], "Z0102", "stage", "missing key `stage` in `#[zero(...)]`");
        one(&[("stage", "- 1")], "Z0105", "stage", "stage -1 does not exist");
        one(&[("stage", "3"), ("ranks", "0")], "Z0106", "ranks", "`ranks` is out of range: `0`");
        one(&[("stage", "3"), ("stage", "2")], "Z0104", "stage", "duplicate key `stage`");
        one(&[("stage", "2"), ("prefetch", "1")], "Z0108", "prefetch", "`prefetch` has no effect at stage 2");
        let message = "`transport` expects `Local`, `Shm`, `Peer`, `Nccl` or `Cluster`, found `\"Shm\"`";
        one(&[("stage", "2"), ("transport", "\"Shm\"")], "Z0103", "transport", message);
        let message = "the value of `stage` cannot be read: non-whitespace trailing characters";
        one(&[("stage", "1 + 2")], "Z0101", "stage", message);
        one(&[("stage", "3), memory: (")], "Z0101", "stage", message);
        let problem = &parse_inline(&options(&[("stage", "1"), ("schedule", "1F1B")])).unwrap_err()[0];
        assert_eq!(problem.help.as_deref(), Some("write `OneFOneB`: RON names begin with a letter"));
        one(&[("stag", "3")], "Z0107", "stag", "unknown key `stag` in `#[zero(...)]`");
        let problem = &parse_inline(&options(&[("stage", "3"), ("prefech", "3")])).unwrap_err()[0];
        assert_eq!(problem.label, "did you mean `prefetch`?");
        let problem = &parse_inline(&options(&[("stage", "3"), ("attention", "Own")])).unwrap_err()[0];
        assert!(problem.code == "Z0107" && problem.label.starts_with("gone: "), "{problem:?}");
        assert_eq!(problem.help.as_deref(), Some("remove `attention`"));
    }

    #[test]
    fn what_lies_in_a_value_is_about_its_option() {
        let pipeline = ("pipeline", "2");
        let given = |schedule| [("stage", "1"), ("micro_batches", "2"), pipeline, ("schedule", schedule)];
        let message = "missing key `chunks` in `schedule`";
        one(&given("Interleaved ()"), "Z0102", "schedule", message);
        let message = "unknown key `chunk` in `schedule`";
        one(&given("Interleaved (chunk : 2)"), "Z0107", "schedule", message);
        let message = "`schedule.chunks` is out of range: `1`";
        one(&given("Interleaved (chunks : 1)"), "Z0106", "schedule", message);
    }

    #[test]
    fn the_checks_of_a_file_are_made_of_an_attribute() {
        for (pairs, code, key, message) in [
            (&[("gather", "PerStep")][..], "Z0108", "gather", "`gather` has no effect at stage 1"),
            (&[("reduce", "PerStep")], "Z0108", "reduce", "`reduce` has no effect with one micro-batch"),
            (&[("schedule", "GPipe")], "Z0108", "schedule", "`schedule` has no effect with one pipeline stage"),
            (&[("units", "Even")], "Z0108", "units", "`units` has no effect with one pipeline stage"),
            (
                &[("ranks", "4"), ("nodes", "3")],
                "Z0111",
                "nodes",
                "the mesh does not multiply out: replica 1 x pipeline 1 x zero 4 are 4 ranks, which 3 nodes cannot share \
                 equally",
            ),
            (
                &[("ranks", "4"), ("nodes", "2"), ("within_node", "[Zero]")],
                "Z0112",
                "within_node",
                "`zero` cannot stay within a node: it has 4 ranks, a node has 2",
            ),
            (&[("pipeline", "2")], "Z0113", "pipeline", "1 micro-batch does not fit 2 pipeline stages"),
            (&[("master", "BF16")], "Z0114", "master", "`master` is BF16, narrower than `params`, which is F32"),
            (
                &[("pipeline", "2"), ("micro_batches", "2"), ("units", "Split([1])")],
                "Z0115",
                "units",
                "`units` has 1 entry for 2 chunks of the model",
            ),
        ] {
            one(&[&[("stage", "1")], pairs].concat(), code, key, message);
        }
    }

    /// An option that cannot be read does not cause a mistake in another one.
    #[test]
    fn one_mistake_is_told_once() {
        one(&[("stage", "1"), ("nodes", "3"), ("rank", "6")], "Z0107", "rank", "unknown key `rank` in `#[zero(...)]`");
        let message = "the value of `ranks` cannot be read: non-whitespace trailing characters";
        one(&[("stage", "1"), ("nodes", "3"), ("ranks", "2 * 3")], "Z0101", "ranks", message);
        one(&[("spce", "\"a.ron\"")], "Z0107", "spce", "unknown key `spce` in `#[zero(...)]`");
    }

    #[test]
    fn mistakes_are_in_the_order_of_the_options() {
        let found =
            mistakes(&[("transport", "3"), ("ranks", "0"), ("oops", "1"), ("stage", "x y"), ("bucket", "B(0)")]);
        let keys: Vec<_> = found.iter().map(|(code, key, _)| (*code, key.as_str())).collect();
        let expected =
            [("Z0103", "transport"), ("Z0106", "ranks"), ("Z0107", "oops"), ("Z0101", "stage"), ("Z0106", "bucket")];
        assert_eq!(keys, expected);
    }

    const SPEC: &str = "(\n    mesh: (zero: 4),\n    zero: (stage: 3, bucket: MiB(1)),\n)";

    fn against(text: &str, pairs: &[(&str, &str)]) -> Vec<(&'static str, String)> {
        let problems = disagreements(&parse(text).unwrap(), text, &options(pairs));
        assert!(problems.iter().all(|problem| problem.span.is_none()));
        problems.into_iter().map(|problem| (problem.code, problem.message)).collect()
    }

    #[test]
    fn z0109_attribute_and_spec_disagree() {
        let found = against(SPEC, &[("stage", "2"), ("ranks", "2"), ("prefetch", "2"), ("memory", "GiB (1)")]);
        let messages: Vec<_> = found.iter().map(|(_, message)| message.as_str()).collect();
        assert_eq!(found[0], ("Z0109", "`stage = 2` here, but the spec says `stage: 3` at 3:12".to_owned()));
        assert_eq!(messages[1], "`ranks = 2` here, but the spec says `mesh.zero: 4` at 2:12");
        assert_eq!(messages[2], "`prefetch = 2` here, but the spec leaves `prefetch` at its default, `1`");
        assert_eq!(messages[3], "`memory = GiB(1)` here, but the spec sets none: no budget");
        assert_eq!(found.len(), 4);
    }

    #[test]
    fn equal_values_agree_however_they_are_written() {
        let same = [("bucket", "KiB(1024)"), ("prefetch", "1"), ("ranks", "0x4"), ("length", "256"), ("stage", "3")];
        assert!(against(SPEC, &same).is_empty());
        let mesh = "(zero: (stage: 1), mesh: (ranks_per_node: 4, replica: 2, zero: 4, within_node: [Zero]))";
        assert!(against(mesh, &[("nodes", "2"), ("within_node", "[Zero]")]).is_empty());
        assert_eq!(against(mesh, &[("nodes", "1"), ("within_node", "[Zero, Replica]")]).len(), 2);
        let axes = "(zero: (stage: 1), mesh: (nodes: 2, replica: 2, pipeline: 2, within_node: [Zero, Replica]), \
            batch: (micro_batches: 2))";
        assert!(against(axes, &[("within_node", "[Replica, Zero]")]).is_empty());
        let every = "(zero: (stage: 1), recompute: Every(1))";
        assert_eq!(against(every, &[("recompute", "Fields([\"a\"])")]).len(), 1);
        assert!(against(SPEC, &[]).is_empty());
    }

    #[test]
    fn an_option_is_read_at_the_stage_of_the_spec() {
        let found = against("(zero: (stage: 2))", &[("prefetch", "0")]);
        assert_eq!(found, [("Z0108", "`prefetch` has no effect at stage 2".to_owned())]);
    }

    #[test]
    fn faulty_options_are_reported_beside_a_spec() {
        let found = against(SPEC, &[("stage", "4"), ("rank", "4"), ("bucket", "3")]);
        let codes: Vec<_> = found.iter().map(|(code, _)| *code).collect();
        assert_eq!(codes, ["Z0105", "Z0107", "Z0103"]);
    }

    #[test]
    fn every_option_can_be_compared() {
        let spec = parse("(zero: (stage: 3))").unwrap();
        for (name, key) in keys::options() {
            assert!(key.agree(&spec, &spec), "{name}");
        }
    }
}
