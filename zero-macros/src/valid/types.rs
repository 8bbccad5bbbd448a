//! Types: checks of a field's type that need no knowledge of layers: arrays, tuples, and the names of layers that can
//! only be first or last in a model. The compiler checks whether widths chain.

use quote::ToTokens;
use syn::{Expr, Field, Ident, Lit, Type};
use zero_plan::diagnostic::Diagnostic;

use crate::mistake::Mistake;

/// Layers in a tuple: as many as `zero_runtime` implements `Layer` for.
const TUPLE_MAX: usize = 12;

/// The layer that a field's type is, or is an array of, and the length of the array.
pub fn elements(ty: &Type) -> (&Type, Option<&Expr>) {
    match ty {
        Type::Array(array) => (&array.elem, Some(&array.len)),
        Type::Group(group) => elements(&group.elem),
        Type::Paren(paren) => elements(&paren.elem),
        _ => (ty, None),
    }
}

/// The part of the type of a model's field that cannot be a layer.
pub fn of_unit(ty: &Type) -> Option<Mistake> {
    let (layer, count) = elements(ty);
    match (elements(layer), count) {
        ((inner, Some(inner_count)), Some(count)) => {
            let of = |tokens: &dyn ToTokens| tokens.to_token_stream().to_string();
            let all = match (number(count), number(inner_count)) {
                (Some(outer), Some(inner)) => (outer * inner).to_string(),
                _ => format!("{{ {} * {} }}", of(count), of(inner_count)),
            };
            let help = format!("write one array, `[{}; {all}]`: each element is a unit", packed(&of(inner)));
            Some(mistake("Z0145", ty, "an array of arrays, but each element of an array is one unit", help))
        }
        _ => of_layer(layer),
    }
}

/// The part of a layer's type that cannot be a layer.
pub fn of_layer(ty: &Type) -> Option<Mistake> {
    match ty {
        Type::Array(_) => {
            let help = "name its layers one by one; only a field of the struct under `#[zero]` can be an array";
            Some(mistake("Z0145", ty, "an array inside of a layer, but an array is not a layer", help))
        }
        Type::Slice(slice) => {
            let of = packed(&slice.elem.to_token_stream().to_string());
            let help = format!("write how many, `[{of}; 2]`, in the struct under `#[zero]`; in a layer, name each");
            Some(mistake("Z0145", ty, "a slice, which has no fixed number of layers", help))
        }
        Type::Tuple(tuple) if tuple.elems.len() > TUPLE_MAX => {
            let message = format!("a tuple of {} layers, but it can have {TUPLE_MAX}", tuple.elems.len());
            let help = "make it two tuples in one, `((a, b), (c, d))`, or a struct under `#[derive(Layer)]`";
            Some(mistake("Z0144", ty, message, help))
        }
        Type::Tuple(tuple) => tuple.elems.iter().find_map(of_layer),
        Type::Group(group) => of_layer(&group.elem),
        Type::Paren(paren) => of_layer(&paren.elem),
        _ => None,
    }
}

/// Layers that take a model's input, and heads, which compute its loss. They are recognized by name, because the compiler
/// would report the field after them. A user's own layer with such a name is treated in the same way.
const INPUTS: &[&str] = &["Embedding", "TokenEmbedding"];
const HEADS: &[&str] = &["LmHead", "Classifier", "MseHead"];
/// Layers that take any width.
const ACTIVATIONS: &[&str] = &["Gelu", "Relu", "Silu"];

/// Whether a first field decides the model's input, judging by names.
pub fn can_begin(ty: &Type) -> bool {
    of_unit(ty).is_none() && ![ACTIVATIONS, HEADS].iter().any(|names| is_named(elements(ty).0, names))
}

/// Whether a last field decides the model's target, judging by names.
pub fn can_end(ty: &Type) -> bool {
    let is_one = elements(ty).1.is_none() && of_unit(ty).is_none();
    is_one && ![ACTIVATIONS, INPUTS].iter().any(|names| is_named(ty, names))
}

/// A head before the end, an input after the beginning, or a first field that takes any width.
pub fn out_of_place(fields: &[(&Ident, &Field)]) -> Option<Mistake> {
    let last = fields.len().checked_sub(1)?;
    fields.iter().enumerate().find_map(|(position, (name, field))| {
        let layer = elements(&field.ty).0;
        if position == 0 && is_named(layer, ACTIVATIONS) {
            let message = format!("`{name}` takes any width, so the model's input is not known");
            let help = "begin with a layer that takes one kind of input, such as `Embedding` or `Linear`";
            return Some(mistake("Z0142", layer, message, help));
        }
        if position < last && is_named(layer, HEADS) {
            let message = format!("`{name}` is a head, but fields follow it, and no layer takes its loss");
            let help = "a model has one head, its last field; to map features to features, use `Linear`";
            return Some(mistake("Z0146", layer, message, help));
        }
        if position > 0 && is_named(layer, INPUTS) {
            let message = format!("`{name}` takes tokens, but only the first field can: a model has one input");
            let help =
                format!("a field takes the output of the previous field: remove `{name}`, or make it the first field");
            return Some(mistake("Z0147", layer, message, help));
        }
        None
    })
}

fn is_named(ty: &Type, names: &[&str]) -> bool {
    let Type::Path(path) = ty else { return false };
    path.path.segments.last().is_some_and(|last| names.iter().any(|name| last.ident == name))
}

fn number(count: &Expr) -> Option<u64> {
    match count {
        Expr::Lit(literal) => match &literal.lit {
            Lit::Int(number) => number.base10_parse().ok(),
            _ => None,
        },
        _ => None,
    }
}

/// Tokens in the spelling in which a person would write a type.
fn packed(tokens: &str) -> String {
    tokens.replace(" <", "<").replace("< ", "<").replace(" >", ">").replace(" ,", ",")
}

fn mistake(code: &'static str, place: &Type, message: impl Into<String>, help: impl Into<String>) -> Mistake {
    Mistake::at(place, &Diagnostic::new(code, "", message).help(help))
}
