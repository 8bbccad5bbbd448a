//! Fields: Z0116, a spec that names a field that the model does not have. The only check that sees a spec and a struct.

use super::super::locate::{items, locate};
use super::super::report::list;
use super::super::{RecomputedUnits, Spec};
use crate::diagnostic::{Diagnostic, closest};

/// A `Z0116` for each name in `spec` that is not among the `fields` of the struct. `text` is the text that the spec was
/// read from, for spans; an attribute has none. The key is `recompute`, both as a path and as an option.
pub fn unknown_fields(spec: &Spec, text: Option<&str>, fields: &[String]) -> Vec<Diagnostic> {
    let Some(RecomputedUnits::Fields(names)) = &spec.recompute else { return Vec::new() };
    let known: Vec<_> = fields.iter().map(String::as_str).collect();
    let spans = text.and_then(|text| Some(items(text, &locate(text, "recompute")?.value))).unwrap_or_default();
    let unknown = names.iter().enumerate().filter(|(_, name)| !fields.contains(name));
    unknown
        .map(|(index, name)| {
            let message = format!("`recompute` names the field `{name}`, which the model does not have");
            let mut problem = Diagnostic::new("Z0116", "recompute", message)
                .help(format!("the fields of the model are {}", list(&known)));
            problem.label = match closest(name, known.iter().copied()) {
                Some(near) => format!("did you mean `{near}`?"),
                None => "not a field of the model".to_owned(),
            };
            problem.span = spans.get(index).cloned();
            problem
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::super::{parse, parse_inline};
    use super::*;

    #[test]
    fn z0116_unknown_field() {
        let text = r#"(zero: (stage: 1), recompute: Fields(["block", "head", "x"]))"#;
        let fields = ["embed", "blocks", "head"].map(str::to_owned);
        let problems = unknown_fields(&parse(text).unwrap(), Some(text), &fields);
        let found: Vec<_> =
            problems.iter().map(|problem| (problem.code, &text[problem.span.clone().unwrap()])).collect();
        assert_eq!(found, [("Z0116", r#""block""#), ("Z0116", r#""x""#)]);
        assert_eq!(problems[0].message, "`recompute` names the field `block`, which the model does not have");
        assert_eq!([&problems[0].label, &problems[1].label], ["did you mean `blocks`?", "not a field of the model"]);
        assert_eq!(problems[0].help.as_deref(), Some("the fields of the model are `embed`, `blocks`, `head`"));
    }

    #[test]
    fn an_attribute_has_no_places() {
        let options = [("stage", "1"), ("recompute", "Fields ([\"x\"])")].map(|(a, b)| (a.to_owned(), b.to_owned()));
        let spec = parse_inline(&options).unwrap();
        let problems = unknown_fields(&spec, None, &["y".to_owned()]);
        assert_eq!((problems[0].key.as_str(), problems[0].span.clone()), ("recompute", None));
        assert!(unknown_fields(&parse("(zero: (stage: 1), recompute: Every(2))").unwrap(), None, &[]).is_empty());
    }
}
