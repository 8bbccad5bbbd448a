//! `#[zero]` and `#[derive(Layer)]`: a struct becomes a model, or a layer. What is written is parsed, made valid and
//! expanded, in this order; where it is not valid, every mistake is an error of its own and a stub keeps the compiler
//! from adding to them. Never computes a size, an offset or an op: those are constants that the compiler evaluates.

#![forbid(unsafe_code)]

mod ast;
mod attr;
mod choice;
mod constants;
mod derive;
mod environment;
mod expand;
mod fallback;
mod mistake;
mod notes;
mod valid;

use proc_macro::TokenStream;
use syn::{DeriveInput, parse_macro_input};

use attr::Options;
use environment::Environment;
use mistake::both;

/// Makes a struct of layers a model: `zero_runtime::main::<Gpt>()` trains it under the spec that is chosen here.
///
/// The spec is in the attribute, `#[zero(stage = 3, prefetch = 2)]`, or in a file, `#[zero(spec = "specs/zero3.ron")]`,
/// whose path is relative to the package. Beside a file, options in the attribute must agree with it, except a `device`
/// of your own, which takes the place of the file's. `ZERO_SPEC` at build time takes the place of the file.
///
/// Fields are the units that are gathered and released, in the order of forward: each takes what the one before it gives.
/// `[Block; 6]` is six units. The last field is the head; `#[tied(embed)]` on it shares the parameters of another field.
///
/// These are the options beside `spec`. Values are written as in a spec, whose keys `zero_plan::spec` lists.
///
#[doc = include_str!("options.md")]
#[proc_macro_attribute]
pub fn zero(options: TokenStream, item: TokenStream) -> TokenStream {
    let item = match attr::item(item.into()) {
        Ok(item) => item,
        Err(unusable) => return unusable.into(),
    };
    let environment = Environment::of_cargo();
    let choice = Options::parse(options.into())
        .and_then(|options| choice::choose(&options, &environment).map(|choice| (choice, options)));
    let checked = both(choice, valid::model(&item)).and_then(|((choice, options), model)| {
        choice.names_fields_of(&model, &options)?;
        Ok((choice, model))
    });
    let expanded = match checked {
        Ok((choice, model)) => expand::model(&item, &model, &choice, &environment),
        Err(mistakes) => fallback::model(&item, &mistakes),
    };
    expanded.into()
}

/// Makes a struct of layers a layer: its fields one behind the other, each named by its field. `#[residual]` on a field
/// adds the field's input to what it gives; the other attributes that are named here are refused with an error that helps.
#[proc_macro_derive(
    Layer,
    attributes(
        residual,
        weights,
        init,
        tied,
        alternating,
        config,
        resdual,
        residul,
        residuals,
        weight,
        wieghts,
        initial,
        inits,
        alternate,
        alternates,
        confg
    )
)]
pub fn layer(item: TokenStream) -> TokenStream {
    let item = parse_macro_input!(item as DeriveInput);
    let expanded = match valid::layers(&item) {
        Ok(layers) => derive::layers(&layers),
        Err(mistakes) => fallback::layers(&item, &mistakes),
    };
    expanded.into()
}

#[cfg(test)]
mod tests {
    /// `UPDATE_EXPECT=1` writes the file anew.
    #[test]
    fn the_documentation_has_the_options_of_an_attribute() {
        expect_test::expect_file!["options.md"].assert_eq(&zero_plan::spec::options_table());
    }
}
