//! Model: whether a struct can be a model. Never sees a spec.

use syn::{DeriveInput, Expr, Field, Ident, Type};

use super::{at_most_one, named_fields};
use crate::ast::{self, Model};
use crate::attr::named;
use crate::mistake::{Checked, Mistake};

/// The model that a struct under `#[zero]` describes.
pub fn model(item: &DeriveInput) -> Checked<Model> {
    let fields = named_fields(item, "#[zero]")?;
    let mut mistakes = Vec::new();
    mistakes.extend(generic(item));
    mistakes.extend(alone(item, &fields));
    mistakes.extend(without_a_head(&fields));
    mistakes.extend(undecided(&fields));
    mistakes.extend(tied_before_the_head(&fields));
    let tied = tied(&fields).unwrap_or_else(|mistake| {
        mistakes.push(mistake);
        None
    });
    if !mistakes.is_empty() {
        return Err(mistakes);
    }
    let fields = fields.into_iter().map(|(name, field)| {
        let (layer, count) = elements(&field.ty);
        ast::Field { name: name.clone(), layer: layer.clone(), count: count.cloned() }
    });
    Ok(Model { name: item.ident.clone(), fields: fields.collect(), tied })
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

/// Else a field that is not there would still be a unit.
fn undecided<'a>(fields: &'a [(&Ident, &Field)]) -> impl Iterator<Item = Mistake> + 'a {
    let attributes = fields.iter().flat_map(|(_, field)| named(&field.attrs, "cfg"));
    attributes.map(|cfg| {
        let message = "`#[cfg]` on a field of a model, which `#[zero]` reads before it is decided";
        Mistake::unusable(cfg, message, "write a struct for each case, and `#[cfg]` on each struct")
    })
}

fn tied_before_the_head<'a>(fields: &'a [(&Ident, &Field)]) -> impl Iterator<Item = Mistake> + 'a {
    let before = fields.split_last().map_or(&[][..], |(_, before)| before);
    let attributes = before.iter().flat_map(|(name, field)| named(&field.attrs, "tied").map(move |tied| (name, tied)));
    attributes.map(|(name, tied)| {
        let message = format!("`#[tied]` on `{name}`, but only the last field can share parameters");
        Mistake::unusable(tied, message, "remove it, or move it to the last field")
    })
}

/// The position of the field that `#[tied(...)]` on the head names.
fn tied(fields: &[(&Ident, &Field)]) -> Result<Option<usize>, Mistake> {
    let Some(((head, last), before)) = fields.split_last() else { return Ok(None) };
    let Some(tied) = at_most_one(named(&last.attrs, "tied"))? else { return Ok(None) };
    let owner: Ident = tied.parse_args().map_err(|_| {
        let help = "write `#[tied(embed)]`, with the name of the field whose parameters it shares";
        Mistake::unusable(tied, "`#[tied]` takes the name of a field", help)
    })?;
    let Some(position) = before.iter().position(|(name, _)| **name == owner) else {
        let message = format!("`#[tied({owner})]` names no field before `{head}`");
        return Err(Mistake::unusable(owner.clone(), message, suggestion(&owner, before)));
    };
    if elements(&before[position].1.ty).1.is_some() {
        let message = format!("`#[tied({owner})]` names an array, whose elements have parameters of their own");
        return Err(Mistake::unusable(owner, message, "name a field that is not an array"));
    }
    Ok(Some(position))
}

/// What the name was meant to be: at most a third of it wrong, as rustc has it.
fn suggestion(found: &Ident, fields: &[(&Ident, &Field)]) -> String {
    let found = found.to_string();
    let names: Vec<_> = fields.iter().map(|(name, _)| name.to_string()).collect();
    let near = names.iter().map(|name| (strsim::damerau_levenshtein(&found, name), name));
    match near.filter(|(distance, name)| *distance <= name.len().max(3) / 3).min() {
        Some((_, near)) => format!("did you mean `{near}`?"),
        None => format!("the fields before it are `{}`", names.join("`, `")),
    }
}

/// The layer that a field's type is, or is an array of, and the length of the array.
pub fn elements(ty: &Type) -> (&Type, Option<&Expr>) {
    match ty {
        Type::Array(array) => (&array.elem, Some(&array.len)),
        Type::Group(group) => elements(&group.elem),
        Type::Paren(paren) => elements(&paren.elem),
        _ => (ty, None),
    }
}

#[cfg(test)]
mod tests {
    use syn::parse_quote;

    use super::*;

    /// The texts of what is wrong with a model.
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
        assert_eq!(model.tied, Some(0));
    }

    #[test]
    fn every_mistake_of_a_struct_is_found() {
        let found = mistakes(parse_quote! {
            struct Gpt<const D: usize> { #[tied(b)] a: A, #[cfg(b)] b: B, c: [C; 3] }
        });
        assert_eq!(found.len(), 4, "{found:#?}");
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
                "write `#[tied(embed)]`, with the name of the field whose parameters it shares",
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
