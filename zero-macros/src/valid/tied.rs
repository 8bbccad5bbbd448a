//! Tied: which field's parameters the head shares, and when. Never evaluates the condition.

use syn::parse::ParseStream;
use syn::{Expr, Field, Ident, Token};
use zero_plan::spec::closest;

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

/// What the name was most likely meant to be or, if it is like none, what it may be.
fn suggestion(found: &Ident, fields: &[(&Ident, &Field)]) -> String {
    let names: Vec<_> = fields.iter().map(|(name, _)| name.to_string()).collect();
    match closest(&found.to_string(), names.iter().map(String::as_str)) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("the fields before it are `{}`", names.join("`, `")),
    }
}
