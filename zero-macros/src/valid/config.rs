//! Config: reads `#[config({...})]`: JSON with expressions as values. Never evaluates an expression.

use syn::parse::discouraged::Speculative;
use syn::parse::{Parse, ParseStream, Parser};
use syn::{DeriveInput, Expr, Ident, LitStr, Token, braced, bracketed, token};
use zero_plan::diagnostic::Diagnostic;

use super::at_most_one;
use crate::ast::Json;
use crate::attr::named;
use crate::mistake::Mistake;

/// The JSON of the attribute on a model, if it has one.
pub fn config(item: &DeriveInput) -> Result<Option<Json>, Mistake> {
    let Some(attribute) = at_most_one(named(&item.attrs, "config"))? else { return Ok(None) };
    let read = |input: ParseStream| {
        if !input.peek(token::Brace) {
            return Err(input.error("expected an object in braces"));
        }
        let object = input.parse::<Json>()?;
        if input.is_empty() { Ok(object) } else { Err(input.error("expected nothing after the object")) }
    };
    let object = attribute.meta.require_list().and_then(|list| read.parse2(list.tokens.clone()));
    object.map(Some).map_err(|error| {
        let message = format!("`#[config]` takes a JSON object: {error}");
        let help = "write `#[config({ \"model_type\": \"gpt2\", \"n_embd\": DIM })]`";
        Mistake::spanned(error.span(), &Diagnostic::new("Z0152", "", message).help(help))
    })
}

impl Parse for Json {
    fn parse(input: ParseStream) -> syn::Result<Self> {
        if input.peek(token::Brace) {
            let content;
            braced!(content in input);
            return object(&content);
        }
        let fork = input.fork();
        if fork.parse::<Ident>().is_ok_and(|name| name == "null") {
            input.advance_to(&fork);
            return Ok(Self::Null);
        }
        if !input.peek(token::Bracket) {
            return input.parse::<Expr>().map(Self::Value);
        }
        let content;
        bracketed!(content in input);
        Ok(Self::Array(content.parse_terminated(Self::parse, Token![,])?.into_iter().collect()))
    }
}

fn object(content: ParseStream) -> syn::Result<Json> {
    let mut entries: Vec<(LitStr, Json)> = Vec::new();
    while !content.is_empty() {
        let key: LitStr = content.parse()?;
        if entries.iter().any(|(other, _)| other.value() == key.value()) {
            return Err(syn::Error::new(key.span(), format!("`{}` is given twice", key.value())));
        }
        content.parse::<Token![:]>()?;
        entries.push((key, content.parse()?));
        if !content.is_empty() {
            content.parse::<Token![,]>()?;
        }
    }
    Ok(Json::Object(entries))
}

#[cfg(test)]
#[path = "config_tests.rs"]
mod tests;
