//! Notes: reads `#[weights(...)]` and `#[init(...)]` on a field. Never knows a layer's number of tensors.

use proc_macro2::TokenStream;
use quote::{ToTokens, quote};
use syn::parse::ParseStream;
use syn::{Attribute, Expr, Field, Ident, LitStr, Meta, Token, Type, UnOp, parenthesized};
use zero_plan::diagnostic::Diagnostic;

use super::at_most_one;
use super::types::elements;
use crate::ast::{Deviations, Notes, PublishedName};
use crate::attr::{is_comma, named};
use crate::mistake::{Checked, Mistake, both, one};

/// The place of a field, which decides the names that it can have.
#[derive(Clone, Copy, PartialEq)]
pub enum FieldPlace {
    /// In a model.
    Unit,
    /// In a model, with elements that alternate.
    Alternating,
    /// In a layer, which may or may not be an element of an array.
    Layer,
}

/// The notes in the attributes of a field.
pub fn notes(name: &Ident, field: &Field, place: FieldPlace) -> Checked<Notes> {
    let init = init(field).map_err(one);
    let (weights, init) = both(weights(name, field, place), init)?;
    Ok(Notes { weights, init })
}

fn weights(field: &Ident, written: &Field, place: FieldPlace) -> Checked<Vec<PublishedName>> {
    let attribute = at_most_one(named(&written.attrs, "weights")).map_err(one)?;
    let Some(attribute) = attribute else { return Ok(Vec::new()) };
    let tokens: Vec<_> = arguments(attribute).into_iter().collect();
    let (mut names, mut mistakes) = (Vec::new(), Vec::new());
    let mut items: Vec<_> = tokens.split(is_comma).collect();
    // The empty item after a trailing comma.
    items.pop_if(|item| item.is_empty());
    for item in items {
        let item: TokenStream = item.iter().cloned().collect();
        match name(&item) {
            Some(found) => {
                mistakes.extend(misnamed(&item, &found, (field, written, place)));
                names.push(found);
            }
            None => {
                let place = if item.is_empty() { attribute.to_token_stream() } else { item };
                let message = "a published name is a text in quotes, `transposed(\"...\")`, or `_` for none";
                mistakes.push(unfit(place, message, "write `#[weights(\"model.norm\")]`"));
            }
        }
    }
    if mistakes.is_empty() {
        mistakes.extend(miscounted(attribute, names.len(), (field, written, place)));
    }
    if mistakes.is_empty() { Ok(names) } else { Err(mistakes) }
}

/// The tokens in the parentheses of an attribute.
fn arguments(attribute: &Attribute) -> TokenStream {
    match &attribute.meta {
        Meta::List(list) => list.tokens.clone(),
        _ => TokenStream::new(),
    }
}

fn name(item: &TokenStream) -> Option<PublishedName> {
    let read = |input: ParseStream| {
        if input.peek(Token![_]) {
            return input.parse::<Token![_]>().map(|_| PublishedName::Unnamed);
        }
        if !input.peek(Ident) {
            return input.parse::<LitStr>().map(|name| PublishedName::Named(name.value()));
        }
        let kind: Ident = input.parse()?;
        let content;
        parenthesized!(content in input);
        let (name, is_whole): (LitStr, _) = (content.parse()?, content.is_empty());
        let is_known = kind == "transposed" && is_whole;
        if is_known { Ok(PublishedName::Transposed(name.value())) } else { Err(input.error("")) }
    };
    syn::parse::Parser::parse2(read, item.clone()).ok()
}

/// The mistake in a name.
fn misnamed(
    item: &TokenStream,
    name: &PublishedName,
    (field, written, place): (&Ident, &Field, FieldPlace),
) -> Option<Mistake> {
    let (PublishedName::Named(name) | PublishedName::Transposed(name)) = name else { return None };
    if name.is_empty() {
        return Some(unfit(
            item,
            "an empty name",
            "write `_` for a part that adds nothing to the names of its tensors",
        ));
    }
    if name.split('.').any(str::is_empty) {
        let help = "names are joined by dots: no name begins or ends with a dot, or has two in a row";
        return Some(unfit(item, format!("`{name}` has a dot with no name beside it"), help));
    }
    let indices = name.matches("{}").count();
    if name.replace("{}", "").contains(['{', '}']) {
        let message = format!("`{name}` has a brace, but only `{{}}` has a meaning: the index of an element");
        return Some(unfit(item, message, "write `{}` in the place of the index"));
    }
    if indices > 1 {
        let message = format!("`{name}` has {indices} indices, but an element of an array has one");
        return Some(unfit(item, message, "keep one `{}`"));
    }
    let is_array = place == FieldPlace::Layer || elements(&written.ty).1.is_some();
    (indices == 1 && !is_array).then(|| {
        let message = format!("`{name}` has the place of an index, but `{field}` is not an array");
        unfit(item, message, "remove the `{}`")
    })
}

/// A number of names that differs from the number of parts, if the latter is known.
fn miscounted(
    attribute: &Attribute,
    names: usize,
    (field, written, place): (&Ident, &Field, FieldPlace),
) -> Option<Mistake> {
    if names == 0 {
        let help = "write `#[weights(\"model.norm\")]`, or one name for each element of a tuple";
        return Some(unfit(attribute, "`#[weights]` takes one name or more", help));
    }
    if names > 1 && place == FieldPlace::Alternating {
        let message = format!("{names} names for `{field}`, whose elements are units of their own");
        return Some(unfit(attribute, message, "give one name, with `{}` in the place of the index"));
    }
    let layers = tuple(&written.ty).filter(|&layers| names > 1 && names != layers)?;
    let message = format!("{names} names for a tuple of {layers} layers");
    let help = "give one name for the whole tuple, or one for each layer, with `_` for a layer without a name";
    Some(unfit(attribute, message, help))
}

/// How many layers a tuple has.
fn tuple(ty: &Type) -> Option<usize> {
    match elements(ty).0 {
        Type::Tuple(tuple) => Some(tuple.elems.len()),
        Type::Group(group) => tuple(&group.elem),
        Type::Paren(paren) => tuple(&paren.elem),
        _ => None,
    }
}

fn init(field: &Field) -> Result<Option<Deviations>, Mistake> {
    let Some(attribute) = at_most_one(named(&field.attrs, "init"))? else { return Ok(None) };
    let read = |input: ParseStream| {
        let all: Expr = input.parse()?;
        let mut last = None;
        if !input.is_empty() {
            input.parse::<Token![,]>()?;
        }
        if !input.is_empty() {
            let name: Ident = input.parse()?;
            input.parse::<Token![=]>()?;
            last = Some(input.parse()?).filter(|_| name == "last");
            input.parse::<Option<Token![,]>>()?;
            if last.is_none() || !input.is_empty() {
                return Err(input.error(""));
            }
        }
        Ok(Deviations { all, last })
    };
    let refuse = |place: TokenStream, message: &str| {
        let help = "write `#[init(0.02)]`, or `#[init(0.02, last = 0.01)]` if the last matrix has its own";
        Mistake::at(place, &Diagnostic::new("Z0153", "", message).help(help))
    };
    let init = syn::parse::Parser::parse2(read, arguments(attribute)).map_err(|_| {
        refuse(quote!(#attribute), "`#[init]` takes the standard deviation from which matrices are drawn")
    })?;
    let negative = [Some(&init.all), init.last.as_ref()].into_iter().flatten().find(|deviation| is_negative(deviation));
    if let Some(negative) = negative {
        return Err(refuse(quote!(#negative), "a standard deviation is 0 or more"));
    }
    Ok(Some(init))
}

fn is_negative(deviation: &Expr) -> bool {
    matches!(deviation, Expr::Unary(negated) if matches!(negated.op, UnOp::Neg(_)))
}

/// Z0150: names that the field's tensors cannot have.
fn unfit(place: impl ToTokens, message: impl Into<String>, help: &str) -> Mistake {
    Mistake::at(place, &Diagnostic::new("Z0150", "", message).help(help))
}

#[cfg(test)]
#[path = "notes_tests.rs"]
mod tests;
