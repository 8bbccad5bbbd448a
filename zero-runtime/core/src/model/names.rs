//! Names: the names under which a model's tensors are published, and whether they are valid. Never reads a file.

use std::collections::HashMap;

use zero_plan::Unit;

use super::Program;
use crate::layer::{NamesMisfit, Tensor, Tensors};

/// Names that `#[weights]` gives do not fit the layers, or are not unique.
#[derive(Debug, thiserror::Error)]
#[error("error[{code}]: {what}\n  = help: {help}")]
pub struct NamesError {
    /// The stable code.
    pub code: &'static str,
    /// What was expected and found.
    pub what: String,
    /// The way out.
    pub help: String,
}

/// The placeholder for the index of a unit.
const INDEX: &str = "{}";

/// The published name of a unit's tensor, with the unit's index in the place of `{}`. If no attribute names any part of
/// it, the name joins field, index, parts and tensor by dots.
pub fn published(unit: &Unit, tensor: &Tensor) -> String {
    let index = unit.index.map(|index| index.to_string()).unwrap_or_default();
    match (&tensor.weights, unit.index) {
        (Some(weights), _) => weights.name.replace(INDEX, &index),
        (None, Some(_)) => format!("{}.{index}.{}", unit.field, tensor.name),
        (None, None) => format!("{}.{}", unit.field, tensor.name),
    }
}

/// Checks that lists of published names fit their layers, and that no two tensors have the same name. A program does
/// this before its ranks start.
///
/// # Errors
/// For the first name that does not.
pub fn require_names<D>(program: &Program<D>) -> Result<(), NamesError> {
    let mut taken = HashMap::new();
    for unit in program.plan.units.iter().filter(|unit| unit.params > 0) {
        let mut tensors = Tensors::default();
        program.code[unit.position].tensors(&mut tensors);
        if let Some(misfit) = tensors.misfit() {
            return Err(does_not_fit(unit, misfit));
        }
        for tensor in tensors.into_list() {
            require_index(unit, &tensor)?;
            let own = format!("`{unit}.{}`", tensor.name);
            let name = published(unit, &tensor);
            if let Some(other) = taken.insert(name.clone(), own.clone()) {
                return Err(NamesError {
                    code: "Z0221",
                    what: format!("{other} and {own} have the same published name, `{name}`"),
                    help: "give one of them another name by `#[weights(...)]` on a field that it lies in".to_owned(),
                });
            }
        }
    }
    Ok(())
}

fn does_not_fit(unit: &Unit, NamesMisfit { within, names, parts }: &NamesMisfit) -> NamesError {
    let field = if within.is_empty() { unit.field.to_owned() } else { format!("{}.{within}", unit.field) };
    let parts = if parts.is_empty() { "none".to_owned() } else { format!("`{}`", parts.join("`, `")) };
    NamesError {
        code: "Z0220",
        what: format!("`#[weights]` on `{field}` has {names} names, but the parts of its layer are {parts}"),
        help: "give one name for all of it, or one for each part, with `_` for a part without one".to_owned(),
    }
}

/// Checks that a name has a place for the index if the unit has one, and only then.
fn require_index(unit: &Unit, tensor: &Tensor) -> Result<(), NamesError> {
    let Some(weights) = &tensor.weights else { return Ok(()) };
    let (places, expected) = (weights.name.matches(INDEX).count(), usize::from(unit.index.is_some()));
    if places == expected {
        return Ok(());
    }
    let what = format!("the published name of `{unit}.{}` is `{}`", tensor.name, weights.name);
    let (what, help) = match (unit.index, places) {
        (None, _) => (format!("{what}, but `{}` is not an array field", unit.field), "remove the `{}`"),
        (_, 0) => (
            format!("{what}, so all elements of `{}` would have it", unit.field),
            "write `{}` where the index is to stand",
        ),
        _ => (format!("{what}, with more than one index"), "keep one `{}`"),
    };
    Err(NamesError { code: "Z0221", what, help: help.to_owned() })
}
