//! Tied: the field whose parameters the head shares, and the condition. Never evaluates the condition.

use syn::parse::ParseStream;
use syn::{Expr, Field, Ident, Token};
use zero_plan::diagnostic::closest;

use super::at_most_one;
use super::types::elements;
use crate::ast::Tied;
use crate::attr::named;
use crate::mistake::Mistake;

/// `#[tied(...)]` on a field before the head.
pub fn tied_before_the_head<'a>(fields: &'a [(&Ident, &Field)]) -> impl Iterator<Item = Mistake> + 'a {
    let before = fields.split_last().map_or(&[][..], |(_, before)| before);
    let attributes = before.iter().flat_map(|(name, field)| named(&field.attrs, "tied").map(move |tied| (name, tied)));
    attributes.map(|(name, tied)| {
        let message = format!("`#[tied]` on `{name}`, but only the last field can share parameters");
        Mistake::unusable(tied, message, "remove it, or move it to the last field")
    })
}

/// The field that `#[tied(...)]` on the head names, and its condition.
pub fn tied(fields: &[(&Ident, &Field)]) -> Result<Option<Tied>, Mistake> {
    let Some(((head, last), before)) = fields.split_last() else { return Ok(None) };
    let Some(tied) = at_most_one(named(&last.attrs, "tied"))? else { return Ok(None) };
    let read = |input: ParseStream| {
        let (owner, mut condition): (Ident, Option<Expr>) = (input.parse()?, None);
        if input.parse::<Option<Token![,]>>()?.is_some() && !input.is_empty() {
            input.parse::<Token![if]>()?;
            condition = Some(input.parse()?);
            input.parse::<Option<Token![,]>>()?;
        }
        if input.is_empty() { Ok((owner, condition)) } else { Err(input.error("")) }
    };
    let (owner, condition) = tied.parse_args_with(read).map_err(|_| {
        let help = "write `#[tied(embed)]`, with the name of the field whose parameters it shares, or \
            `#[tied(embed, if TIED)]`, where a constant says whether it does";
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
    Ok(Some(Tied { owner: position, condition }))
}

/// The name that was most likely meant or, if no name is similar, all possible names.
fn suggestion(found: &Ident, fields: &[(&Ident, &Field)]) -> String {
    let names: Vec<_> = fields.iter().map(|(name, _)| name.to_string()).collect();
    match closest(&found.to_string(), names.iter().map(String::as_str)) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("the fields before it are `{}`", names.join("`, `")),
    }
}

#[cfg(test)]
mod tests {
    use quote::{ToTokens, quote};
    use syn::parse::Parser;

    use super::*;

    /// The condition of a tie to the first of two fields.
    fn condition(arguments: proc_macro2::TokenStream) -> Result<Option<String>, String> {
        let [first, head] = [quote!(embed: E), quote!(#[tied #arguments] head: H)]
            .map(|field| Field::parse_named.parse2(field).unwrap());
        let fields = [&first, &head].map(|field| (field.ident.as_ref().unwrap(), field));
        let tied = tied(&fields).map_err(|mistake| mistake.text)?.unwrap();
        assert_eq!(tied.owner, 0);
        Ok(tied.condition.map(|condition| condition.to_token_stream().to_string()))
    }

    #[test]
    fn a_tie_has_a_condition() {
        assert_eq!(condition(quote!((embed))), Ok(None));
        assert_eq!(condition(quote!((embed,))), Ok(None));
        assert_eq!(condition(quote!((embed, if SIZE.tied && !BIG,))), Ok(Some("SIZE . tied && ! BIG".to_owned())));
        for arguments in [
            quote!(),
            quote!(()),
            quote!((embed, TIED)),
            quote!((embed if TIED)),
            quote!((embed, if)),
            quote!((embed, if TIED, 3)),
            quote!(("embed")),
        ] {
            let found = condition(arguments.clone()).expect_err("no condition");
            assert!(found.starts_with("[Z0110] `#[tied]` takes the name of a field"), "{arguments}: {found}");
        }
    }
}
