//! `#[zero]` and `#[derive(Layer)]`: a struct becomes a model, or a layer. It is parsed, checked and expanded, in this
//! order. If it is not valid, each mistake is reported as an error, and a stub prevents further errors of the compiler.
//! Never computes a size, an offset or an op: these are constants that the compiler evaluates.
//!
//! - `ast` has the parsed structs, `attr` splits attributes into options, and `environment` reads the variables of a
//!   build.
//! - `choice` finds the spec of a model, in its attribute or in a file, and `constants` writes its configuration as an
//!   expression.
//! - `valid` decides whether a struct can be a model or a layer, with a file for each attribute of fields. It never
//!   sees a spec.
//! - `expand` and `derive` write the code, and check nothing. `notes` writes the code for attributes of fields.
//! - `mistake` collects errors; `fallback` and `stripped` write the code that replaces a struct that is not valid.
//!
//! The crate depends only on `zero-plan`, and names items of `zero-runtime` only in the code that it writes.
//!
//! Where the next attribute of a field goes: its syntax in a file of `valid`, its name in `valid/attributes` and, for
//! `#[derive(Layer)]`, in the list below, and its code in `notes`.

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
mod stripped;
mod valid;

use proc_macro::TokenStream;
use syn::{DeriveInput, parse_macro_input};

use attr::AttributeOptions;
use environment::Environment;
use mistake::both;

/// Turns a struct of layers into a model: `zero_runtime::main::<Gpt>()` trains it under the spec that is chosen here.
///
/// The spec is in the attribute, `#[zero(stage = 3, prefetch = 2)]`, or in a file, `#[zero(spec = "specs/zero3.ron")]`,
/// whose path is relative to the package. If there is a file, options in the attribute must agree with it, except your
/// own `device`, which replaces the file's. `ZERO_SPEC` at build time replaces the file.
///
/// Fields are the units that are gathered and released, in the order of forward: each field takes the output of the
/// previous field. `[Block; 6]` is six units. The last field is the head.
///
/// On fields:
///
/// - `#[tied(embed)]`, on the head: it shares the parameters of another field. With `#[tied(embed, if TIED)]`, it shares
///   them if the constant is true, and has its own otherwise.
/// - `#[alternating]`, on an array of tuples: `[(A, B); 8]` is 16 units, A and B in turn, each with its own sizes.
/// - `#[weights("model.norm")]`: the name of the field in the published model. The full name of a tensor joins the names
///   of the fields that contain it and its own name by dots. `{}` in a name stands for the index of an element of an
///   array. A list, `#[weights("ln_1", transposed("attn"))]`, names the parts of the field in order: the elements of a
///   tuple, the fields of a struct or, if it has none, the tensors; names of tensors are complete. `_` is for a part that
///   adds nothing to the names of its tensors, and all matrices below `transposed("...")` are stored as (inputs,
///   outputs). Without the attribute, a field has its name in the struct, followed by the index.
/// - `#[init(0.02)]`: the standard deviation of the initial values of its matrices, any expression that is an f32. With
///   `#[init(0.02, last = 0.01)]` the last matrix has another deviation. An attribute on an inner field takes precedence.
///
/// On the struct, below `#[zero]`, `#[config({ "n_embd": DIM })]` is JSON with Rust expressions as values: the content
/// of the published model's `config.json`. `#[sizes(SIZES)]` is the list from which [`chosen`] takes the size of a model that
/// comes in several, so that a plan says which one it is of if nothing names one.
///
/// [`chosen`]: https://docs.rs/zero-runtime/latest/zero_runtime/prelude/fn.chosen.html
///
/// These are the options other than `spec`. Values are written as in a spec, whose keys `zero_plan::spec` lists.
///
#[doc = include_str!("options.md")]
#[proc_macro_attribute]
pub fn zero(options: TokenStream, item: TokenStream) -> TokenStream {
    let item = match attr::item(item.into()) {
        Ok(item) => item,
        Err(unusable) => return unusable.into(),
    };
    let environment = Environment::of_cargo();
    let choice = AttributeOptions::parse(options.into())
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

/// Turns a struct of layers into a layer, which runs its fields in order and names each part after its field.
/// `#[residual]` on a field adds the field's input to its output; `#[weights(...)]` and `#[init(...)]` are as under
/// `#[zero]`. The other attributes in the list are refused with a helpful error.
#[proc_macro_derive(
    Layer,
    attributes(
        residual,
        weights,
        init,
        tied,
        alternating,
        config,
        sizes,
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
    /// `UPDATE_EXPECT=1` rewrites the file.
    #[test]
    fn the_documentation_has_the_options_of_an_attribute() {
        expect_test::expect_file!["options.md"].assert_eq(&zero_plan::spec::options_table());
    }
}
