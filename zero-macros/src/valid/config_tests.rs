//! Tests of the configurations that can be written.

use quote::{ToTokens, quote};
use syn::parse_quote;

use super::*;

/// JSON as text, with expressions in parentheses.
fn shown(json: &Json) -> String {
    let all = |values: Vec<String>| values.join(", ");
    match json {
        Json::Null => "null".to_owned(),
        Json::Value(value) => format!("({})", value.to_token_stream()),
        Json::Array(values) => format!("[{}]", all(values.iter().map(shown).collect())),
        Json::Object(entries) => {
            format!(
                "{{{}}}",
                all(entries.iter().map(|(key, value)| format!("{}: {}", key.value(), shown(value))).collect())
            )
        }
    }
}

fn of(arguments: proc_macro2::TokenStream) -> Result<String, String> {
    let item = parse_quote!(#[config #arguments] struct Gpt { a: A, b: B });
    let json = config(&item).map_err(|mistake| mistake.text)?;
    Ok(json.as_ref().map(shown).unwrap_or_default())
}

#[test]
fn values_are_json_or_expressions() {
    let written = quote!(({ "a": DIM * 2, "b": [1, null, [], { "c": -0.5 }], "d": {}, "e": Some(f(x, y)), }));
    assert_eq!(of(written).unwrap(), "{a: (DIM * 2), b: [(1), null, [], {c: (- 0.5)}], d: {}, e: (Some (f (x , y)))}");
    assert_eq!(of(quote!(({ "a": [vec![1, 2], true] }))).unwrap(), "{a: [(vec ! [1 , 2]), (true)]}");
    assert!(
        config(&parse_quote!(
            struct Gpt {
                a: A,
            }
        ))
        .ok()
        .unwrap()
        .is_none()
    );
}

#[test]
fn z0152_what_is_no_object() {
    for (written, what) in [
        (quote!(), "expected attribute arguments in parentheses"),
        (quote!(()), "expected an object in braces"),
        (quote!(("gpt2")), "expected an object in braces"),
        (quote!(({ a: 1 })), "expected string literal"),
        (quote!(({ "a" 1 })), "expected `:`"),
        (quote!(({ "a": 1 "b": 2 })), "expected `,`"),
        (quote!(({ "a": })), "expected an expression"),
        (quote!(({ "a": 1, "a": 2 })), "`a` is given twice"),
        (quote!(({ "a": { "b": 1, "b": 1 } })), "`b` is given twice"),
        (quote!(({ "a": 1 }, 2)), "expected nothing after the object"),
    ] {
        let found = of(written.clone()).expect_err(what);
        assert!(found.starts_with("[Z0152] `#[config]` takes a JSON object: "), "{found}");
        assert!(found.contains(what), "{written}: {found}");
    }
}
