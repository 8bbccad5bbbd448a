//! Attributes: whether what stands on a field can stand there. Never reads what is in one.

use syn::{Attribute, DeriveInput, Field, Ident};
use zero_plan::diagnostic::Diagnostic;

use crate::mistake::Mistake;

/// What the compiler knows on a field.
const BUILT_IN: &[&str] = &["allow", "cfg", "cfg_attr", "deny", "deprecated", "doc", "expect", "forbid", "warn"];

/// Derives that know no attribute on a field.
const PLAIN_DERIVES: &[&str] = &["Clone", "Copy", "Debug", "Eq", "Hash", "Layer", "Ord", "PartialEq", "PartialOrd"];

/// Attributes of layers and models; `#[derive(Layer)]` names likely slips of them, or the compiler would find those first.
const OURS: &[&str] = &["residual", "tied", "resdual", "residul", "residuals"];

/// Whether an attribute on a field is no matter of `#[zero]`: one of the compiler's, of a tool, or of another derive.
pub fn is_for_others(attribute: &Attribute, item: &DeriveInput) -> bool {
    let Some(name) = attribute.path().get_ident() else { return true };
    let built_in = BUILT_IN.iter().any(|known| name == known);
    built_in || has_other_derives(item) && !OURS.iter().any(|ours| name == ours)
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

/// Attributes that no unit of a model has.
pub fn of_model<'a>(item: &'a DeriveInput, fields: &'a [(&Ident, &Field)]) -> impl Iterator<Item = Mistake> + 'a {
    let all = fields.iter().flat_map(|(name, field)| field.attrs.iter().map(move |attribute| (*name, attribute)));
    let wrong = all.filter(|(_, attribute)| !attribute.path().is_ident("tied") && !is_for_others(attribute, item));
    wrong.map(|(field, attribute)| {
        if attribute.path().is_ident("residual") {
            let message = format!("`#[residual]` on `{field}`, a unit of a model, which has no residual connection");
            let help =
                "put its layers into a struct under `#[derive(Layer)]`, with `#[residual]` on the fields of that";
            return misplaced(attribute, message, help);
        }
        let help = "the last field of a model takes `#[tied(field)]`; nothing else stands on one";
        misplaced(attribute, format!("unknown attribute `#[{}]` on `{field}`", shown(attribute)), help)
    })
}

/// Attributes that no field of a layer has. The compiler has found those that no derive names.
pub fn of_layer(name: &Ident, field: &Field) -> Option<Mistake> {
    let ours = |attribute: &&Attribute| OURS.iter().any(|ours| attribute.path().is_ident(ours));
    let wrong = field.attrs.iter().filter(ours).find(|attribute| !attribute.path().is_ident("residual"))?;
    if wrong.path().is_ident("tied") {
        let message = format!("`#[tied]` on `{name}`, a layer inside of a unit");
        let help = "only the last field of the struct under `#[zero]` can share parameters: remove it";
        return Some(misplaced(wrong, message, help));
    }
    Some(misplaced(
        wrong,
        format!("unknown attribute `#[{}]` on `{name}`", shown(wrong)),
        "did you mean `#[residual]`?",
    ))
}

fn shown(attribute: &Attribute) -> String {
    attribute.path().get_ident().map(Ident::to_string).unwrap_or_default()
}

/// Z0140: an attribute that the field cannot have.
fn misplaced(attribute: &Attribute, message: String, help: &str) -> Mistake {
    Mistake::at(attribute, &Diagnostic::new("Z0140", "", message).help(help))
}
