//! Alternating: the layers of a field under `#[alternating]`. Never sees what they take.

use syn::{Field, Ident, Meta, Type};
use zero_plan::diagnostic::Diagnostic;

use super::at_most_one;
use super::types::elements;
use crate::attr::named;
use crate::mistake::Mistake;

/// The layers that take turns in a field; none where it does not alternate.
pub fn turns(name: &Ident, field: &Field) -> Result<Vec<Type>, Mistake> {
    let Some(attribute) = at_most_one(named(&field.attrs, "alternating"))? else { return Ok(Vec::new()) };
    let Meta::Path(_) = &attribute.meta else {
        return Err(Mistake::unusable(attribute, "`#[alternating]` takes no options", "write `#[alternating]`"));
    };
    let (layer, count) = elements(&field.ty);
    match tuple(layer).filter(|layers| count.is_some() && layers.len() > 1) {
        Some(layers) => Ok(layers),
        None => {
            let message = format!("`{name}` alternates, but is no array of tuples with two layers or more");
            let help = "write `[(A, B); 8]`, which is 16 units: A, B, A, B and so on";
            Err(Mistake::at(&field.ty, &Diagnostic::new("Z0151", "", message).help(help)))
        }
    }
}

fn tuple(ty: &Type) -> Option<Vec<Type>> {
    match ty {
        Type::Tuple(tuple) => Some(tuple.elems.iter().cloned().collect()),
        Type::Group(group) => tuple(&group.elem),
        Type::Paren(paren) => tuple(&paren.elem),
        _ => None,
    }
}
