//! Attributes: whether a field or struct can have its attributes. Never reads their arguments.

use syn::{Attribute, DeriveInput, Field, Ident};
use zero_plan::diagnostic::{Diagnostic, closest};

use crate::mistake::Mistake;

/// Attributes that the compiler accepts on a field.
const BUILT_IN: &[&str] = &["allow", "cfg", "cfg_attr", "deny", "deprecated", "doc", "expect", "forbid", "warn"];

/// Derives that have no attributes for fields.
const PLAIN_DERIVES: &[&str] = &["Clone", "Copy", "Debug", "Eq", "Hash", "Layer", "Ord", "PartialEq", "PartialOrd"];

/// Attributes on fields of a model.
const OF_MODELS: &[&str] = &["weights", "init", "alternating", "tied"];
/// Attributes on fields of a layer.
const OF_LAYERS: &[&str] = &["residual", "weights", "init"];
/// Attributes on a model.
const OF_STRUCTS: &[&str] = &["config", "sizes"];

/// Likely misspellings. `#[derive(Layer)]` declares them too; otherwise the compiler would report them first.
const SLIPS: &[&str] =
    &["resdual", "residul", "residuals", "weight", "wieghts", "initial", "inits", "alternate", "alternates", "confg"];

/// Whether an attribute has a name that `#[zero]` and `#[derive(Layer)]` know, or regard as a misspelling.
fn is_ours(attribute: &Attribute) -> bool {
    [OF_MODELS, OF_LAYERS, OF_STRUCTS, SLIPS].concat().iter().any(|ours| attribute.path().is_ident(ours))
}

/// Whether an attribute on a field does not concern `#[zero]`: it is for the compiler, a tool, or another derive.
pub fn is_for_others(attribute: &Attribute, item: &DeriveInput) -> bool {
    let Some(name) = attribute.path().get_ident() else { return true };
    let built_in = BUILT_IN.iter().any(|known| name == known);
    built_in || has_other_derives(item) && !is_ours(attribute)
}

/// Whether an attribute on a struct is for `#[zero]`.
pub fn is_of_struct(attribute: &Attribute, item: &DeriveInput) -> bool {
    is_one_of(attribute, OF_STRUCTS) || is_ours(attribute) && !has_other_derives(item)
}

fn has_other_derives(item: &DeriveInput) -> bool {
    item.attrs.iter().filter(|attribute| attribute.path().is_ident("derive")).any(|derive| {
        let mut plain = true;
        let read = derive.parse_nested_meta(|meta| {
            let last = meta.path.segments.last().map(|segment| segment.ident.to_string()).unwrap_or_default();
            plain &= PLAIN_DERIVES.contains(&last.as_str());
            Ok(())
        });
        read.is_err() || !plain
    })
}

/// Attributes that stand on a struct, but belong on its fields.
pub fn of_struct(item: &DeriveInput) -> impl Iterator<Item = Mistake> + '_ {
    let ours = item.attrs.iter().filter(|attribute| is_of_struct(attribute, item));
    ours.filter(|attribute| !is_one_of(attribute, OF_STRUCTS)).map(|attribute| {
        let name = shown(attribute);
        let is_slip = SLIPS.contains(&name.as_str());
        let help = match closest(&name, OF_STRUCTS.iter().copied()).filter(|_| is_slip) {
            Some(near) => format!("did you mean `#[{near}]`?"),
            None => "move it to the field that it describes".to_owned(),
        };
        misplaced(attribute, format!("`#[{name}]` on the struct `{}`, which has no such attribute", item.ident), help)
    })
}

/// Attributes of models that stand on a layer.
pub fn of_a_layer(item: &DeriveInput) -> impl Iterator<Item = Mistake> + '_ {
    let ours = item.attrs.iter().filter(|attribute| is_one_of(attribute, OF_STRUCTS) && !has_other_derives(item));
    ours.map(|attribute| {
        let message = format!("`#[{}]` on `{}`, which is a layer", shown(attribute), item.ident);
        misplaced(attribute, message, "move it to the struct under `#[zero]`")
    })
}

/// Attributes that no unit of a model can have.
pub fn of_model<'a>(item: &'a DeriveInput, fields: &'a [(&Ident, &Field)]) -> impl Iterator<Item = Mistake> + 'a {
    let all = fields.iter().flat_map(|(name, field)| field.attrs.iter().map(move |attribute| (*name, attribute)));
    let wrong = all.filter(|(_, attribute)| !is_one_of(attribute, OF_MODELS) && !is_for_others(attribute, item));
    wrong.map(|(field, attribute)| {
        if attribute.path().is_ident("residual") {
            let message = format!("`#[residual]` on `{field}`, a unit of a model, which has no residual connection");
            let help =
                "put its layers into a struct under `#[derive(Layer)]`, with `#[residual]` on the fields there";
            return misplaced(attribute, message, help);
        }
        let help = "a field of a model takes `#[weights]`, `#[init]` and, if it is an array, `#[alternating]`; the last \
            one takes `#[tied(field)]`";
        elsewhere(field, attribute).unwrap_or_else(|| unknown(field, attribute, OF_MODELS, help))
    })
}

/// Attributes that no field of a layer can have. The compiler itself reports attributes that no derive declares.
pub fn of_layer<'a>(name: &'a Ident, field: &'a Field) -> impl Iterator<Item = Mistake> + 'a {
    let wrong = field.attrs.iter().filter(|attribute| is_ours(attribute) && !is_one_of(attribute, OF_LAYERS));
    wrong.map(move |attribute| {
        if attribute.path().is_ident("tied") {
            let message = format!("`#[tied]` on `{name}`, a layer inside of a unit");
            let help = "only the last field of the struct under `#[zero]` can share parameters: remove it";
            return misplaced(attribute, message, help);
        }
        if attribute.path().is_ident("alternating") {
            let message = format!("`#[alternating]` on `{name}`, a layer inside of a unit");
            return misplaced(
                attribute,
                message,
                "only an array in the struct under `#[zero]` can alternate: remove it",
            );
        }
        let help = "a field of a layer takes `#[residual]`, `#[weights]` and `#[init]`";
        elsewhere(name, attribute).unwrap_or_else(|| unknown(name, attribute, OF_LAYERS, help))
    })
}

/// An attribute that belongs on a struct.
fn elsewhere(field: &Ident, attribute: &Attribute) -> Option<Mistake> {
    let message = format!("`#[{}]` on `{field}`, a field", shown(attribute));
    is_one_of(attribute, OF_STRUCTS).then(|| misplaced(attribute, message, "move it to the struct under `#[zero]`"))
}

/// An unknown attribute, and the attribute that was most likely meant.
fn unknown(field: &Ident, attribute: &Attribute, known: &[&str], help: &str) -> Mistake {
    let name = shown(attribute);
    let help =
        closest(&name, known.iter().copied()).map_or(help.to_owned(), |near| format!("did you mean `#[{near}]`?"));
    misplaced(attribute, format!("unknown attribute `#[{name}]` on `{field}`"), help)
}

fn is_one_of(attribute: &Attribute, names: &[&str]) -> bool {
    names.iter().any(|name| attribute.path().is_ident(name))
}

fn shown(attribute: &Attribute) -> String {
    attribute.path().get_ident().map(Ident::to_string).unwrap_or_default()
}

/// Z0140: an attribute that the field cannot have.
fn misplaced(attribute: &Attribute, message: String, help: impl Into<String>) -> Mistake {
    Mistake::at(attribute, &Diagnostic::new("Z0140", "", message).help(help))
}
