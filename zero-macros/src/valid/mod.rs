//! Valid: decides whether a struct can be a model or a layer, and returns the struct that expansion needs. Never sees
//! sizes or a spec: the compiler checks whether widths chain.

mod alternating;
mod attributes;
mod config;
mod layers;
mod model;
mod notes;
mod tied;
mod types;

use syn::{Attribute, Data, DeriveInput, Field, Fields, Ident};

use crate::mistake::{Checked, Mistake};

pub use attributes::{is_for_others, is_of_struct};
pub use layers::layers;
pub use model::model;
pub use types::{can_begin, can_end, elements};

/// The fields of a struct with their names; the struct must have fields.
fn named_fields<'a>(item: &'a DeriveInput, what: &str) -> Checked<Vec<(&'a Ident, &'a Field)>> {
    let found = match &item.data {
        Data::Enum(_) => "an enum",
        Data::Union(_) => "a union",
        Data::Struct(data) => match &data.fields {
            Fields::Unnamed(_) => "a tuple struct",
            Fields::Named(fields) if !fields.named.is_empty() => {
                return Ok(fields.named.iter().filter_map(|field| Some((field.ident.as_ref()?, field))).collect());
            }
            Fields::Named(_) | Fields::Unit => "a struct without fields",
        },
    };
    Err(vec![Mistake::unusable(
        &item.ident,
        format!("`{what}` needs a struct with named fields, but `{}` is {found}", item.ident),
        "give each layer a field with a name, in the order of forward",
    )])
}

fn at_most_one<'a>(mut attributes: impl Iterator<Item = &'a Attribute>) -> Result<Option<&'a Attribute>, Mistake> {
    match (attributes.next(), attributes.next()) {
        (_, Some(second)) => Err(Mistake::unusable(second, "the attribute is given twice", "remove one of the two")),
        (first, None) => Ok(first),
    }
}
