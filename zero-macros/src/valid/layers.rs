//! Layers: whether a struct can be a layer. Never sees the inputs of its fields.

use syn::{Attribute, DeriveInput, GenericParam, Meta};

use super::notes::{FieldPlace, notes};
use super::{at_most_one, attributes, named_fields, types};
use crate::ast::{LayerPart, Layers};
use crate::attr::named;
use crate::mistake::{Checked, Mistake, both, one, or_else};

/// The layers of a struct under `#[derive(Layer)]`.
pub fn layers(item: &DeriveInput) -> Checked<Layers> {
    let fields = named_fields(item, "#[derive(Layer)]")?;
    let mut mistakes: Vec<_> = item.generics.params.iter().filter_map(taken).collect();
    mistakes.extend(attributes::of_struct(item));
    mistakes.extend(attributes::of_a_layer(item));
    let mut parts = Vec::new();
    for (name, field) in fields {
        mistakes.extend(attributes::of_layer(name, field));
        mistakes.extend(types::of_layer(&field.ty));
        let residual = at_most_one(named(&field.attrs, "residual")).and_then(|residual| match residual {
            Some(Attribute { meta: Meta::Path(_), .. }) => Ok(true),
            Some(other) => Err(Mistake::unusable(other, "`#[residual]` takes no options", "write `#[residual]`")),
            None => Ok(false),
        });
        let read = both(residual.map_err(one), notes(name, field, FieldPlace::Layer));
        if let Some((residual, notes)) = or_else(read, &mut mistakes) {
            parts.push(LayerPart { name: name.clone(), layer: field.ty.clone(), residual, notes });
        }
    }
    if !mistakes.is_empty() {
        return Err(mistakes);
    }
    Ok(Layers { name: item.ident.clone(), generics: item.generics.clone(), parts })
}

/// A generic parameter whose name the generated impl needs.
fn taken(parameter: &GenericParam) -> Option<Mistake> {
    let name = match parameter {
        GenericParam::Type(parameter) => &parameter.ident,
        GenericParam::Const(parameter) => &parameter.ident,
        GenericParam::Lifetime(_) => return None,
    };
    let message = format!("`{name}` is a name that `#[derive(Layer)]` uses for itself");
    (name == "S" || name == "X").then(|| Mistake::unusable(name, message, "give the parameter another name"))
}

#[cfg(test)]
mod tests {
    use syn::parse_quote;

    use super::*;

    #[test]
    fn a_residual_is_marked() {
        let layers = layers(&parse_quote!(
            struct Block<const D: usize> {
                #[residual]
                a: A<D>,
                b: B,
            }
        ))
        .unwrap();
        let residual: Vec<_> = layers.parts.iter().map(|part| part.residual).collect();
        assert_eq!(residual, [true, false]);
    }

    #[test]
    fn a_layer_has_parameters_of_other_names_than_the_derive() {
        let item = parse_quote!(
            struct Block<const S: usize> {
                #[residual(1)]
                a: A,
                b: B,
            }
        );
        assert_eq!(layers(&item).err().unwrap().len(), 2);
    }

    #[test]
    fn attributes_of_models_are_none_of_layers() {
        let item = parse_quote! {
            #[config({})]
            #[tied(a)]
            struct Block {
                #[alternating] a: A,
                #[config({})] b: B,
                #[weight("c")] c: C,
                #[weights] d: D,
                #[confg] e: E,
            }
        };
        let found: Vec<_> = layers(&item).err().unwrap().into_iter().map(|mistake| mistake.text).collect();
        let starts = [
            "[Z0140] `#[tied]` on the struct `Block`",
            "[Z0140] `#[config]` on `Block`, which is a layer\n = help: move it to the struct under `#[zero]`",
            "[Z0140] `#[alternating]` on `a`, a layer inside of a unit\n = help: only an array",
            "[Z0140] `#[config]` on `b`, a field",
            "[Z0140] unknown attribute `#[weight]` on `c`\n = help: did you mean `#[weights]`?",
            "[Z0150] ",
            "[Z0140] unknown attribute `#[confg]` on `e`\n = help: a field of a layer takes",
        ];
        assert_eq!(found.len(), starts.len(), "{found:#?}");
        assert!(found.iter().zip(starts).all(|(found, start)| found.starts_with(start)), "{found:#?}");
        let of_another = parse_quote!(
            #[derive(Layer, Other)]
            #[config(1)]
            struct Block {
                a: A,
            }
        );
        assert!(layers(&of_another).is_ok());
    }

    #[test]
    fn a_slice_is_no_layer() {
        let found = layers(&parse_quote!(
            struct Block {
                a: A,
                b: ([Linear<8, 8>], C),
            }
        ))
        .err()
        .unwrap();
        assert_eq!(found.len(), 1);
        let text = "[Z0145] a slice, which has no fixed number of layers\n = help: write how many, \
            `[Linear<8, 8>; 2]`, in the struct under `#[zero]`; in a layer, name each";
        assert_eq!(found[0].text, text);
    }

    #[test]
    fn a_layer_has_neither_ties_nor_slips_nor_arrays() {
        let item = parse_quote! {
            struct Block { #[resdual] a: A, #[tied(a)] b: B, c: [C; 2], #[serde(skip)] #[doc = "x"] d: D }
        };
        let found: Vec<_> = layers(&item).err().unwrap().into_iter().map(|mistake| mistake.text).collect();
        assert_eq!(found.len(), 3, "{found:#?}");
        assert!(
            found[0].starts_with("[Z0140] unknown attribute `#[resdual]` on `a`\n = help: did you mean `#[residual]`?")
        );
        assert!(found[1].starts_with("[Z0140] `#[tied]` on `b`, a layer inside of a unit"));
        assert!(found[2].starts_with("[Z0145] an array inside of a layer"));
    }
}
