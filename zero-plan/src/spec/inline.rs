//! Inline: the options of `#[zero(...)]`, read as the spec that they stand for and held against one. Never sees tokens:
//! the attribute's author finds the place by the diagnostic's key, which is the option's name.

use std::collections::BTreeMap;

use serde::de::IgnoredAny;

use super::check::without_effect;
use super::keys::{Form, INLINE, closest, split};
use super::locate::locate;
use super::parse::{parse_as, read, ron};
use super::report::{list, reason};
use super::tokens::{Kind, tokens};
use super::{Size, Spec};
use crate::diagnostic::{Diagnostic, line_column};

/// Reads and checks the spec that an attribute's options stand for: names as in [`INLINE`], and values as written, in RON
/// (`3`, `MiB(8)`, `Local`), spaced in any way.
///
/// # Errors
///
/// Every mistake, `Z0101` to `Z0108`, in the order of the options, with the option's name as its key and without a span.
pub fn parse_inline(options: &[(String, String)]) -> Result<Spec, Vec<Diagnostic>> {
    let (given, mut problems) = translate(options);
    match parse_as(&assemble(&given), Form::Inline) {
        Ok(spec) if problems.is_empty() => return Ok(spec),
        Ok(_) => {}
        Err(found) => append(&mut problems, found),
    }
    Err(ordered(problems, options))
}

/// Holds an attribute's options against the spec that it names, which has been parsed from `spec_text`.
///
/// Gives a `Z0109` for each option whose value is not the spec's, and whatever is wrong with the options themselves; each
/// has the option's name as its key and no span. Equal values, and what only the spec gives, are fine.
pub fn disagreements(spec: &Spec, spec_text: &str, inline: &[(String, String)]) -> Vec<Diagnostic> {
    let (given, mut problems) = translate(inline);
    let text = assemble(&given);
    let (other, mut found) = read(&text, Form::Inline);
    // A stage that the attribute leaves to the spec is not missing.
    found.retain(|problem| problem.code != "Z0102");
    append(&mut problems, found);
    if let Some(mut other) = other {
        if locate(&text, "zero.stage").is_none() {
            other.zero.stage = spec.zero.stage;
        }
        let unused = without_effect(&other, &text);
        append(&mut problems, unused.into_iter().collect());
        for option in &given {
            let reported = problems.iter().any(|problem| problem.key == option.name);
            if !reported && effective(spec, option.path).1 != effective(&other, option.path).1 {
                problems.push(disagreement(spec, spec_text, option));
            }
        }
    }
    ordered(problems, inline)
}

/// An option of the attribute that stands for a path of the spec.
struct Given {
    name: &'static str,
    path: &'static str,
    value: String,
}

/// The options that stand for something, and what is wrong with the others.
fn translate(options: &[(String, String)]) -> (Vec<Given>, Vec<Diagnostic>) {
    let (mut given, mut problems) = (Vec::new(), Vec::new());
    for (name, value) in options {
        let value = tidy(value);
        let Some(&(name, path)) = INLINE.iter().find(|(known, _)| known == name) else {
            problems.push(unknown(name));
            continue;
        };
        match ron().from_str::<IgnoredAny>(&value) {
            Ok(_) => given.push(Given { name, path, value }),
            Err(error) => {
                let reason = reason(&error.code);
                let message = format!("the value of `{name}` cannot be read: {reason}");
                let problem = Diagnostic::new("Z0101", name, message);
                problems.push(problem.help("write it as in a spec: `3`, `MiB(25)`, `Local`"));
            }
        }
    }
    (given, problems)
}

/// Z0107: there is no such option.
fn unknown(name: &str) -> Diagnostic {
    let names: Vec<_> = INLINE.iter().map(|(name, _)| *name).chain(["spec"]).collect();
    let mut problem = Diagnostic::new("Z0107", name, format!("unknown key `{name}` in `#[zero(...)]`"));
    problem.label = match closest(name, names.iter().copied()) {
        Some(near) => format!("did you mean `{near}`?"),
        None => "not a key of `#[zero(...)]`".to_owned(),
    };
    problem.help(format!("the keys of `#[zero(...)]` are {}", list(&names)))
}

/// The options as a spec's text. `zero` is always there: what an attribute can lack is the stage in it.
fn assemble(given: &[Given]) -> String {
    let mut sections = BTreeMap::from([("zero", String::new())]);
    for option in given {
        let (section, key) = split(option.path);
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
        let (word, text) = (token.kind == Kind::Word, &value[token.span]);
        if after_word && word {
            tidied.push(' ');
        }
        tidied += text;
        after_word = word && text != "-";
    }
    tidied
}

/// Adds what was found in the assembled text, in terms of the attribute. A missing stage is none where an option was
/// meant for it.
fn append(problems: &mut Vec<Diagnostic>, found: Vec<Diagnostic>) {
    let meant = |problem: &Diagnostic| closest(&problem.key, ["stage", "spec"]).is_some();
    let excused = problems.iter().any(meant);
    for mut problem in found {
        if problem.code == "Z0102" && excused {
            continue;
        }
        problem.key = Form::Inline.name(&problem.key).to_owned();
        (problem.span, problem.also) = (None, None);
        problems.push(problem);
    }
}

fn ordered(mut problems: Vec<Diagnostic>, options: &[(String, String)]) -> Vec<Diagnostic> {
    problems.sort_by_key(|problem| options.iter().position(|(name, _)| *name == problem.key));
    problems
}

/// Z0109: the option and the spec give different values.
fn disagreement(spec: &Spec, text: &str, option: &Given) -> Diagnostic {
    let Given { name, path, value } = option;
    let key = if split(path).1 == *name { name } else { path };
    let says = match locate(text, path) {
        Some(spans) => {
            let (line, column) = line_column(text, spans.key.start);
            format!("says `{key}: {}` at {line}:{column}", &text[spans.value])
        }
        None => format!("leaves `{key}` at its default, `{}`", effective(spec, path).0),
    };
    let message = format!("`{name} = {value}` here, but the spec {says}");
    let mut problem = Diagnostic::new("Z0109", *name, message);
    problem.label = "differs from the spec".to_owned();
    problem.help(format!("remove `{name}` from the attribute, or make the two equal"))
}

/// The value at an option's path with defaults filled in: as written, and in a form that is equal where the values are.
fn effective(spec: &Spec, path: &str) -> (String, String) {
    let size = |size: Size| {
        let bytes = size.checked_bytes();
        (format!("{size:?}"), format!("{bytes:?}"))
    };
    let shown = match path {
        "zero.stage" => spec.zero.stage.get().to_string(),
        "zero.prefetch" => spec.zero.prefetch().to_string(),
        "zero.bucket" => return size(spec.zero.bucket),
        "mesh.zero" => spec.mesh.zero.to_string(),
        "batch.sequences" => spec.batch.sequences.to_string(),
        "batch.length" => spec.batch.length.to_string(),
        "batch.micro_batches" => spec.batch.micro_batches.to_string(),
        "transport" => format!("{:?}", spec.transport),
        "memory" => match spec.memory {
            Some(memory) => return size(memory),
            None => "no budget".to_owned(),
        },
        _ => unreachable!("`{path}` is in INLINE, and all of INLINE is above"),
    };
    (shown.clone(), shown)
}

#[cfg(test)]
mod tests {
    use super::super::{Batch, Mesh, Stage, Transport, Zero, parse};
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
        let spec = parse_inline(&options(&[
            ("stage", "3"),
            ("prefetch", "2"),
            ("ranks", "4"),
            ("bucket", "MiB (8)"),
            ("memory", "GiB\n( 1 )"),
            ("sequences", " 2 "),
            ("length", "1_024"),
            ("micro_batches", "2"),
            ("transport", "Local"),
        ]));
        let expected = Spec {
            model: None,
            mesh: Mesh { zero: 4 },
            zero: Zero { stage: Stage::new(3).unwrap(), prefetch: Some(2), bucket: Size::MiB(8) },
            batch: Batch { sequences: 2, length: 1024, micro_batches: 2 },
            transport: Transport::Local,
            memory: Some(Size::GiB(1)),
        };
        assert_eq!(spec, Ok(expected));
    }

    #[test]
    fn mistakes_carry_the_option() {
        one(&[("ranks", "4")], "Z0102", "stage", "missing key `stage` in `#[zero(...)]`");
        one(&[("stage", "- 1")], "Z0105", "stage", "stage -1 does not exist");
        one(&[("stage", "3"), ("ranks", "0")], "Z0106", "ranks", "`ranks` is out of range: `0`");
        one(&[("stage", "3"), ("stage", "2")], "Z0104", "stage", "duplicate key `stage`");
        one(&[("stage", "2"), ("prefetch", "1")], "Z0108", "prefetch", "`prefetch` has no effect at stage 2");
        let message = "`transport` expects `Local` or `Shm`, found `\"Shm\"`";
        one(&[("stage", "2"), ("transport", "\"Shm\"")], "Z0103", "transport", message);
        let message = "the value of `stage` cannot be read: non-whitespace trailing characters";
        one(&[("stage", "1 + 2")], "Z0101", "stage", message);
        one(&[("stage", "3), memory: (")], "Z0101", "stage", message);
        one(&[("stag", "3")], "Z0107", "stag", "unknown key `stag` in `#[zero(...)]`");
        let problem = &parse_inline(&options(&[("stage", "3"), ("prefech", "3")])).unwrap_err()[0];
        assert_eq!(problem.label, "did you mean `prefetch`?");
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
        assert_eq!(found.len(), 4);
    }

    #[test]
    fn equal_values_agree_however_they_are_written() {
        let same = [("bucket", "KiB(1024)"), ("prefetch", "1"), ("ranks", "0x4"), ("length", "256"), ("stage", "3")];
        assert!(against(SPEC, &same).is_empty());
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
        for (name, path) in INLINE {
            assert!(!effective(&spec, path).0.is_empty(), "{name}");
        }
    }
}
