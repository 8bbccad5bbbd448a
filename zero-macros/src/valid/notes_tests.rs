//! Tests of the names and deviations that can be written.

use quote::quote;
use syn::parse::Parser;

use super::*;

/// The notes of a field, or the texts of its mistakes.
fn read(field: TokenStream, place: FieldPlace) -> Result<Notes, Vec<String>> {
    let field = Field::parse_named.parse2(field).unwrap();
    let read = notes(field.ident.as_ref().unwrap(), &field, place);
    read.map_err(|mistakes| mistakes.into_iter().map(|mistake| mistake.text).collect())
}

fn refused(field: TokenStream, place: FieldPlace) -> Vec<String> {
    read(field, place).err().unwrap_or_default()
}

#[test]
fn names_are_texts_or_none() {
    let named = |name: &str| PublishedName::Named(name.to_owned());
    let written = quote!(#[weights("ln_1", transposed("attn"), _,)] a: (A, B, C));
    let expected = [named("ln_1"), PublishedName::Transposed("attn".to_owned()), PublishedName::Unnamed];
    assert_eq!(read(written, FieldPlace::Unit).unwrap().weights, expected);
    // A single name is for a whole tuple, and the number of parts of a layer is not known here.
    for (written, names) in [
        (quote!(#[weights("a.b")] a: (A, B)), 1),
        (quote!(#[weights("a", "b", "c")] a: Layer), 3),
        (quote!(#[weights("h.{}")] a: [A; 2]), 1),
        (quote!(#[weights("h.{}.a", "h.{}.b")] a: [(A, B); 2]), 2),
        (quote!(a: A), 0),
    ] {
        assert_eq!(read(written, FieldPlace::Unit).unwrap().weights.len(), names);
    }
    assert_eq!(read(quote!(#[weights("{}.map")] a: A), FieldPlace::Layer).unwrap().weights, [named("{}.map")]);
}

#[test]
fn z0150_names_that_cannot_be_those_of_a_field() {
    for (written, start) in [
        (quote!(#[weights] a: A), "`#[weights]` takes one name or more"),
        (quote!(#[weights()] a: A), "`#[weights]` takes one name or more"),
        (quote!(#[weights = "a"] a: A), "`#[weights]` takes one name or more"),
        (quote!(#[weights(a)] a: A), "a published name is a text in quotes"),
        (quote!(#[weights("a" "b")] a: A), "a published name is a text in quotes"),
        (quote!(#[weights("a",, "b")] a: A), "a published name is a text in quotes"),
        (quote!(#[weights(3)] a: A), "a published name is a text in quotes"),
        (quote!(#[weights(transpose("a"))] a: A), "a published name is a text in quotes"),
        (quote!(#[weights(transposed(_))] a: A), "a published name is a text in quotes"),
        (quote!(#[weights(transposed("a", "b"))] a: A), "a published name is a text in quotes"),
        (quote!(#[weights("")] a: A), "an empty name"),
        (quote!(#[weights(transposed(""))] a: A), "an empty name"),
        (quote!(#[weights(".a")] a: A), "`.a` has a dot with no name beside it"),
        (quote!(#[weights("a.")] a: A), "`a.` has a dot with no name beside it"),
        (quote!(#[weights("a..b")] a: A), "`a..b` has a dot with no name beside it"),
        (quote!(#[weights("a.{0}")] a: [A; 2]), "`a.{0}` has a brace"),
        (quote!(#[weights("a.{}}")] a: [A; 2]), "`a.{}}` has a brace"),
        (quote!(#[weights("{}.{}")] a: [A; 2]), "`{}.{}` has 2 indices"),
        (quote!(#[weights("a.{}")] a: A), "`a.{}` has the place of an index, but `a` is not an array"),
        (quote!(#[weights("a", "b")] a: (A, B, C)), "2 names for a tuple of 3 layers"),
        (quote!(#[weights("a", "b", _)] a: [(A, B); 2]), "3 names for a tuple of 2 layers"),
    ] {
        let found = refused(written, FieldPlace::Unit);
        assert!(found.len() == 1 && found[0].starts_with(&format!("[Z0150] {start}")), "{start}: {found:#?}");
    }
    let found = refused(quote!(#[weights("a", "b")] a: [(A, B); 2]), FieldPlace::Alternating);
    assert!(found[0].starts_with("[Z0150] 2 names for `a`, whose elements are units of their own"), "{found:#?}");
    assert_eq!(refused(quote!(#[weights("", a, "b.")] #[init] a: A), FieldPlace::Unit).len(), 4);
    let twice = refused(quote!(#[weights("a")] #[weights("a")] a: A), FieldPlace::Unit);
    assert!(twice.len() == 1 && twice[0].starts_with("[Z0110] the attribute is given twice"), "{twice:#?}");
}

#[test]
fn deviations_are_expressions() {
    let init = |written| {
        let Deviations { all, last } = read(written, FieldPlace::Unit).unwrap().init.unwrap();
        let shown = |expression: Expr| expression.to_token_stream().to_string();
        (shown(all), last.map(shown))
    };
    assert_eq!(init(quote!(#[init(0.02)] a: A)), ("0.02".to_owned(), None));
    let written = quote!(#[init(STD, last = STD / (2.0 * LAYERS as f32).sqrt(),)] a: A);
    let last = quote!(STD / (2.0 * LAYERS as f32).sqrt()).to_string();
    assert_eq!(init(written), ("STD".to_owned(), Some(last)));
}

#[test]
fn z0153_deviations_that_cannot_be_used() {
    for written in [
        quote!(#[init] a: A),
        quote!(#[init()] a: A),
        quote!(#[init = 0.02] a: A),
        quote!(#[init(0.02, 0.01)] a: A),
        quote!(#[init(0.02, first = 0.01)] a: A),
        quote!(#[init(0.02 last = 0.01)] a: A),
        quote!(#[init(0.02, last = 0.01, last = 0.01)] a: A),
        quote!(#[init(0.02, last)] a: A),
    ] {
        let found = refused(written.clone(), FieldPlace::Layer);
        assert!(found.len() == 1 && found[0].starts_with("[Z0153] `#[init]` takes"), "{written}: {found:#?}");
    }
    for written in [quote!(#[init(-0.02)] a: A), quote!(#[init(0.02, last = -0.1)] a: A)] {
        assert!(refused(written, FieldPlace::Unit)[0].starts_with("[Z0153] a standard deviation is 0 or more"));
    }
}
