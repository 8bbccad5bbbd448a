//! Model: whether a struct can be a model. Never sees a spec.

use syn::{DeriveInput, Expr, Field, Ident};
use zero_plan::diagnostic::Diagnostic;

use super::alternating::alternating;
use super::config::config;
use super::notes::{FieldPlace, notes};
use super::tied::{tied, tied_before_the_head};
use super::types::{elements, of_unit, out_of_place};
use super::{at_most_one, attributes, named_fields};
use crate::ast::{self, ModelStruct};
use crate::attr::{is_zero, named};
use crate::mistake::{Checked, Mistake, both, one, or_else};

/// The model that a struct under `#[zero]` describes.
pub fn model(item: &DeriveInput) -> Checked<ModelStruct> {
    let fields = named_fields(item, "#[zero]")?;
    let mut mistakes = Vec::new();
    mistakes.extend(twice(item));
    mistakes.extend(generic(item));
    mistakes.extend(alone(item, &fields));
    mistakes.extend(without_a_head(&fields));
    mistakes.extend(undecided(&fields));
    mistakes.extend(attributes::of_struct(item));
    mistakes.extend(attributes::of_model(item, &fields));
    mistakes.extend(fields.iter().filter_map(|(_, field)| of_unit(&field.ty)));
    mistakes.extend(out_of_place(&fields));
    mistakes.extend(tied_before_the_head(&fields));
    let tied = or_else(tied(&fields).map_err(one), &mut mistakes);
    let config = or_else(config(item).map_err(one), &mut mistakes);
    let sizes = or_else(sizes(item).map_err(one), &mut mistakes);
    let fields: Vec<_> = fields.iter().filter_map(|field| or_else(field_of(field), &mut mistakes)).collect();
    if !mistakes.is_empty() {
        return Err(mistakes);
    }
    Ok(ModelStruct {
        name: item.ident.clone(),
        fields,
        tied: tied.flatten(),
        config: config.flatten(),
        sizes: sizes.flatten(),
    })
}

fn field_of((name, field): &(&Ident, &Field)) -> Checked<ast::ModelField> {
    let alternating = alternating(name, field).map_err(one);
    let alternates = named(&field.attrs, "alternating").next().is_some();
    let notes = notes(name, field, if alternates { FieldPlace::Alternating } else { FieldPlace::Unit });
    let (alternating, notes) = both(alternating, notes)?;
    let (layer, count) = elements(&field.ty);
    Ok(ast::ModelField { name: (*name).clone(), layer: layer.clone(), count: count.cloned(), alternating, notes })
}

/// The list of the attribute `#[sizes(...)]` on a model, if it has one.
fn sizes(item: &DeriveInput) -> Result<Option<Expr>, Mistake> {
    let Some(attribute) = at_most_one(named(&item.attrs, "sizes"))? else { return Ok(None) };
    attribute.parse_args().map(Some).map_err(|error| {
        let help = "write `#[sizes(SIZES)]`, the list from which `chosen` takes one";
        Mistake::unusable(attribute, format!("`#[sizes]` takes the list of a model's sizes: {error}"), help)
    })
}

/// Refuses a second `#[zero]`, which would otherwise make another model of the same struct.
fn twice(item: &DeriveInput) -> Option<Mistake> {
    let second = item.attrs.iter().find(|attribute| is_zero(attribute))?;
    let message = format!("`#[zero]` stands twice on `{}`, but a struct is one model under one spec", item.ident);
    let help = "remove one of the two; `ZERO_SPEC` builds a model with another spec";
    Some(Mistake::at(second, &Diagnostic::new("Z0141", "", message).help(help)))
}

fn generic(item: &DeriveInput) -> Option<Mistake> {
    if item.generics.params.is_empty() {
        return None;
    }
    Some(Mistake::unusable(
        &item.generics,
        format!("`{}` is generic, but the plan of a model needs its sizes", item.ident),
        "make the sizes constants: `const DIM: usize = 384;`",
    ))
}

fn alone(item: &DeriveInput, fields: &[(&Ident, &Field)]) -> Option<Mistake> {
    let [(name, _)] = fields else { return None };
    Some(Mistake::unusable(
        name,
        format!("`{}` has one field, but a model has two or more", item.ident),
        "the first field takes the input and the last is the head, such as `LmHead`",
    ))
}

fn without_a_head(fields: &[(&Ident, &Field)]) -> Option<Mistake> {
    let (name, field) = fields.last()?;
    elements(&field.ty).1?;
    Some(Mistake::unusable(
        &field.ty,
        format!("the last field, `{name}`, is an array, but a model has one head"),
        "end the model with a head, such as `head: LmHead<DIM, VOCAB>`",
    ))
}

/// Refuses `#[cfg]` on fields, because a field that is configured out would still be a unit.
fn undecided<'a>(fields: &'a [(&Ident, &Field)]) -> impl Iterator<Item = Mistake> + 'a {
    let attributes = fields.iter().flat_map(|(_, field)| named(&field.attrs, "cfg"));
    attributes.map(|cfg| {
        let message = "`#[cfg]` on a field of a model, but `#[zero]` reads fields before `#[cfg]` is evaluated";
        Mistake::unusable(cfg, message, "write a struct for each case, and `#[cfg]` on each struct")
    })
}

#[cfg(test)]
mod tests {
    use quote::quote;
    use syn::parse_quote;

    use super::*;

    /// The texts of the mistakes in a model.
    fn mistakes(item: DeriveInput) -> Vec<String> {
        model(&item).err().unwrap().into_iter().map(|mistake| mistake.text).collect()
    }

    #[test]
    fn a_model_is_its_fields_in_order() {
        let item = parse_quote!(
            struct Gpt {
                embed: E<8>,
                blocks: [Block; 2 + 4],
                #[tied(embed)]
                head: H,
            }
        );
        let model = model(&item).unwrap();
        let fields: Vec<_> = model.fields.iter().map(|field| (field.name.to_string(), field.count.is_some())).collect();
        let expected = [("embed", false), ("blocks", true), ("head", false)];
        assert_eq!(fields, expected.map(|(name, array)| (name.to_owned(), array)));
        assert!(model.tied.is_some_and(|tied| tied.owner == 0 && tied.condition.is_none()));
    }

    #[test]
    fn every_mistake_of_a_struct_is_found() {
        let found = mistakes(parse_quote! {
            #[zero]
            struct Gpt<const D: usize> {
                #[tied(b)] a: A, #[cfg(b)] b: LmHead<1, 2>, #[foo] e: ([A; 2], B), f: [[A; 2]; 2], c: [C; 3]
            }
        });
        let codes: Vec<_> = found.iter().map(|text| &text[1..6]).collect();
        let expected = ["Z0141", "Z0110", "Z0110", "Z0110", "Z0140", "Z0145", "Z0145", "Z0146", "Z0110"];
        assert_eq!(codes, expected, "{found:#?}");
    }

    /// The texts of the mistakes in fields between an embedding and a head.
    fn between(fields: proc_macro2::TokenStream) -> Vec<String> {
        let item = parse_quote!(struct Gpt { embed: Embedding<65, 256, 8>, #fields head: LmHead<8, 65> });
        model(&item).err().unwrap_or_default().into_iter().map(|mistake| mistake.text).collect()
    }

    #[test]
    fn what_stands_on_a_field_is_known() {
        for (tokens, start) in [
            (quote!(#[residual] a: A,), "[Z0140] `#[residual]` on `a`, a unit of a model"),
            (quote!(#[resdual] a: A,), "[Z0140] unknown attribute `#[resdual]` on `a`"),
            (quote!(#[foo(1)] a: A,), "[Z0140] unknown attribute `#[foo]` on `a`\n = help: a field of a model takes"),
            (
                quote!(#[weight("a")] a: A,),
                "[Z0140] unknown attribute `#[weight]` on `a`\n = help: did you mean `#[weights]`?",
            ),
            (
                quote!(#[alternate] a: A,),
                "[Z0140] unknown attribute `#[alternate]` on `a`\n = help: did you mean `#[alter",
            ),
            (quote!(#[config({})] a: A,), "[Z0140] `#[config]` on `a`, a field\n = help: move it to the struct"),
            (quote!(#[alternating] a: A,), "[Z0151] "),
            (quote!(#[weights] a: A,), "[Z0150] "),
            (quote!(#[init] a: A,), "[Z0153] "),
        ] {
            let found = between(tokens);
            assert!(found.len() == 1 && found[0].starts_with(start), "{found:#?}");
        }
        assert!(between(quote!(#[doc = "x"] #[allow(dead_code)] #[rustfmt::skip] a: A,)).is_empty());
        let on_struct =
            |attribute: proc_macro2::TokenStream| mistakes(parse_quote!(#attribute struct Gpt { a: A, b: B }));
        for (attribute, start) in [
            (
                quote!(#[weights("a")]),
                "[Z0140] `#[weights]` on the struct `Gpt`, which has no such attribute\n = help: move it",
            ),
            (
                quote!(#[confg({})]),
                "[Z0140] `#[confg]` on the struct `Gpt`, which has no such attribute\n = help: did you mean `#[config]`?",
            ),
            (quote!(#[config]), "[Z0152] "),
            (quote!(#[sizes]), "[Z0110] `#[sizes]` takes the list of a model's sizes: "),
        ] {
            let found = on_struct(attribute);
            assert!(found.len() == 1 && found[0].starts_with(start), "{found:#?}");
        }
        let derived = |derives, attribute: proc_macro2::TokenStream| {
            let item = parse_quote!(#[derive(#derives)] struct Gpt { #attribute a: A, b: B });
            model(&item).is_ok()
        };
        assert!(derived(quote!(Debug, serde::Serialize), quote!(#[serde(skip)])));
        assert!(!derived(quote!(Debug, Clone), quote!(#[serde(skip)])));
        assert!(!derived(quote!(Debug, serde::Serialize), quote!(#[residual])));
    }

    #[test]
    fn arrays_and_tuples_that_are_no_layers_are_found() {
        let tuple = |len| {
            let layers = vec![quote!(Relu); len];
            quote!(a: (#(#layers),*),)
        };
        assert!(between(tuple(12)).is_empty() && between(quote!(a: [(A, (B, C)); N],)).is_empty());
        for (tokens, start) in [
            (tuple(13), "[Z0144] a tuple of 13 layers, but it can have 12\n"),
            (quote!(a: (A, [B; 2]),), "[Z0145] an array inside of a layer"),
            (quote!(a: [(A, [B; 2]); 2],), "[Z0145] an array inside of a layer"),
            (quote!(a: [[Block<8>; 2]; 3],), "[Z0145] an array of arrays"),
        ] {
            let found = between(tokens);
            assert!(found.len() == 1 && found[0].starts_with(start), "{found:#?}");
        }
        assert!(between(quote!(a: [[Block<8>; 2]; 3],))[0].contains("write one array, `[Block<8>; 6]`"));
        assert!(between(quote!(a: [[Block; N]; 3],))[0].contains("write one array, `[Block; { 3 * N }]`"));
    }

    #[test]
    fn heads_and_inputs_have_one_place() {
        for (tokens, start) in [
            (quote!(aux: LmHead<8, 65>,), "[Z0146] `aux` is a head, but fields follow it"),
            (quote!(aux: [zero_runtime::layer::Classifier<8, 65>; 2],), "[Z0146] `aux` is a head"),
            (quote!(kinds: Embedding<2, 256, 8>,), "[Z0147] `kinds` takes tokens, but only the first field can"),
        ] {
            let found = between(tokens);
            assert!(found.len() == 1 && found[0].starts_with(start), "{found:#?}");
        }
    }

    #[test]
    fn a_tie_names_an_earlier_field() {
        for (item, help) in [
            (
                parse_quote!(
                    struct Gpt {
                        embed: E,
                        #[tied(embde)]
                        head: H,
                    }
                ),
                "did you mean `embed`?",
            ),
            (
                parse_quote!(
                    struct Gpt {
                        embed: E,
                        norm: N,
                        #[tied(x)]
                        head: H,
                    }
                ),
                "the fields before it are `embed`, `norm`",
            ),
            (
                parse_quote!(
                    struct Gpt {
                        embed: E,
                        #[tied(head)]
                        head: H,
                    }
                ),
                "the fields before it are `embed`",
            ),
            (
                parse_quote!(
                    struct Gpt {
                        embed: [E; 2],
                        #[tied(embed)]
                        head: H,
                    }
                ),
                "name a field that is not an array",
            ),
            (
                parse_quote!(
                    struct Gpt {
                        embed: E,
                        #[tied]
                        head: H,
                    }
                ),
                "write `#[tied(embed)]`, with the name of the field whose parameters it shares, or `#[tied(embed, if \
                    TIED)]`, where a constant says whether it does",
            ),
            (
                parse_quote!(
                    struct Gpt {
                        embed: E,
                        #[tied(embed)]
                        #[tied(embed)]
                        head: H,
                    }
                ),
                "remove one of the two",
            ),
        ] {
            let found = mistakes(item);
            assert_eq!(found.len(), 1);
            assert!(found[0].ends_with(&format!("\n = help: {help}")), "{}", found[0]);
        }
    }

    #[test]
    fn what_is_no_struct_with_named_fields_is_named() {
        for (item, what) in [
            (
                parse_quote!(
                    struct A;
                ),
                "a struct without fields",
            ),
            (
                parse_quote!(
                    struct A {}
                ),
                "a struct without fields",
            ),
            (
                parse_quote!(
                    struct A(B, C);
                ),
                "a tuple struct",
            ),
            (
                parse_quote!(
                    enum A {
                        B,
                    }
                ),
                "an enum",
            ),
            (parse_quote!(union A { b: B }), "a union"),
        ] {
            let message = format!("but `A` is {what}\n");
            assert!(mistakes(item)[0].contains(&message));
        }
    }
}
