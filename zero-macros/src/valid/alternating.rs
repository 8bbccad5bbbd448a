//! Alternating: the layers of a field under `#[alternating]`. Never sees their inputs.

use syn::{Field, Ident, Meta, Type};
use zero_plan::diagnostic::Diagnostic;

use super::at_most_one;
use super::types::elements;
use crate::attr::named;
use crate::mistake::Mistake;

/// The layers that alternate in a field; empty if it does not alternate.
pub fn alternating(name: &Ident, field: &Field) -> Result<Vec<Type>, Mistake> {
    let Some(attribute) = at_most_one(named(&field.attrs, "alternating"))? else { return Ok(Vec::new()) };
    let Meta::Path(_) = &attribute.meta else {
        return Err(Mistake::unusable(attribute, "`#[alternating]` takes no options", "write `#[alternating]`"));
    };
    let (layer, count) = elements(&field.ty);
    match tuple(layer).filter(|layers| count.is_some() && layers.len() > 1) {
        Some(layers) => Ok(layers),
        None => {
            let message = format!("`{name}` alternates, but is not an array of tuples with two layers or more");
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

#[cfg(test)]
mod tests {
    use quote::quote;
    use syn::parse::Parser;

    use super::*;

    fn of(field: proc_macro2::TokenStream) -> Result<usize, String> {
        let field = Field::parse_named.parse2(field).unwrap();
        alternating(field.ident.as_ref().unwrap(), &field).map(|layers| layers.len()).map_err(|mistake| mistake.text)
    }

    #[test]
    fn layers_alternate_in_an_array_of_tuples() {
        assert_eq!(of(quote!(#[alternating] a: [(A, (B, C)); N])), Ok(2));
        assert_eq!(of(quote!(#[alternating] a: [((A, B, C)); N])), Ok(3));
        assert_eq!(of(quote!(a: [(A, B); N])), Ok(0));
    }

    #[test]
    fn z0151_what_cannot_alternate() {
        for field in [
            quote!(#[alternating] a: [A; 2]),
            quote!(#[alternating] a: [(A,); 2]),
            quote!(#[alternating] a: [(); 2]),
            quote!(#[alternating] a: (A, B)),
            quote!(#[alternating] a: A),
        ] {
            let found = of(field).unwrap_err();
            assert!(found.starts_with("[Z0151] `a` alternates, but is not an array of tuples"), "{found}");
        }
        let found = of(quote!(#[alternating(2)] a: [(A, B); 2])).unwrap_err();
        assert!(found.starts_with("[Z0110] `#[alternating]` takes no options"), "{found}");
    }
}
