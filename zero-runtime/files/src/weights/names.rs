//! Names: the tensors of a model as they are published, and their names in a folder. Never reads an element.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use zero_core::layer::Tensors;
use zero_core::model::{Program, published};

/// A tensor of a model as it is published.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NamedTensor {
    /// Its name.
    pub name: String,
    /// Its dims in the model.
    pub shape: Vec<usize>,
    /// Whether its dims are published in reverse order.
    pub transposed: bool,
    /// The unit whose flat buffer has it.
    pub unit: usize,
    /// Its first element there.
    pub start: usize,
    /// Whether it is tied, so that another name stands for the same elements.
    pub is_alias: bool,
}

impl NamedTensor {
    /// Number of elements.
    pub fn elements(&self) -> usize {
        self.shape.iter().product()
    }

    /// Its dims as published.
    pub fn published_shape(&self) -> Vec<usize> {
        match *self.shape {
            [rows, columns] if self.transposed => vec![columns, rows],
            _ => self.shape.clone(),
        }
    }
}

/// The tensors of a model, in the order of units and of their flat buffers.
pub fn of_model<D>(program: &Program<D>) -> Vec<NamedTensor> {
    let units = program.plan.units;
    let mut all = Vec::new();
    for (this, unit) in units.iter().enumerate() {
        let mut tensors = Tensors::default();
        program.code[unit.position].tensors(&mut tensors);
        let is_alias = unit.is_tied(this);
        // A tied layer uses the beginning of its owner's flat buffer.
        let taken = tensors.into_list().into_iter().filter(|tensor| tensor.start + tensor.len() <= unit.takes);
        all.extend(taken.map(|tensor| {
            let name = published(unit, &tensor);
            let transposed = tensor.weights.is_some_and(|weights| weights.transposed);
            NamedTensor { name, shape: tensor.shape, transposed, unit: unit.source, start: tensor.start, is_alias }
        }));
    }
    all
}

/// Prefixes that published names may have or lack.
const PREFIXES: [&str; 2] = ["transformer.", "model."];
/// The beginning of the names of a head, which get no prefix.
const HEAD: &str = "lm_head.";
/// The name of a head that shares the embedding, which some files repeat.
pub const TIED_HEAD: &str = "lm_head.weight";

/// A way to rename all tensors of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Renaming {
    /// As the model says.
    None,
    /// Without a prefix that some of the model's names have.
    Without(&'static str),
    /// With a prefix that the model's names lack.
    With(&'static str),
}

impl Renaming {
    /// The name that a folder has for a tensor.
    pub fn of(self, name: &str) -> String {
        match self {
            Renaming::Without(prefix) => name.strip_prefix(prefix).unwrap_or(name).to_owned(),
            Renaming::With(prefix) if !name.starts_with(HEAD) => format!("{prefix}{name}"),
            Renaming::None | Renaming::With(_) => name.to_owned(),
        }
    }

    /// The renaming under which a folder has the most of a model's tensors; [`Renaming::None`] if that is as good.
    pub fn between<T>(model: &[NamedTensor], folder: &BTreeMap<String, T>) -> Self {
        let found = |way: &Renaming| model.iter().filter(|named| folder.contains_key(&way.of(&named.name))).count();
        let ways = PREFIXES.into_iter().flat_map(|prefix| [Renaming::Without(prefix), Renaming::With(prefix)]);
        ways.fold(Renaming::None, |best, way| if found(&way) > found(&best) { way } else { best })
    }

    /// A line that describes the renaming, if names differ.
    pub fn told(self) -> Option<String> {
        match self {
            Renaming::None => None,
            Renaming::Without(prefix) => Some(format!("tensors are named without `{prefix}`")),
            Renaming::With(prefix) => Some(format!("tensors are named with `{prefix}` before their names")),
        }
    }
}

/// Whether a tensor is not a parameter but is computed from sizes: the masks of GPT-2, and frequencies.
pub fn is_buffer(name: &str) -> bool {
    if name.ends_with(".rotary_emb.inv_freq") || name == "rotary_emb.inv_freq" {
        return true;
    }
    let mut parts = name.rsplit('.');
    let last = parts.next().is_some_and(|part| part == "bias" || part == "masked_bias");
    let is_attention = parts.next() == Some("attn");
    let is_number = parts.next().is_some_and(|part| part.bytes().all(|byte| byte.is_ascii_digit()));
    last && is_attention && is_number && parts.next() == Some("h")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(name: &str) -> NamedTensor {
        NamedTensor { name: name.to_owned(), shape: vec![1], transposed: false, unit: 0, start: 0, is_alias: false }
    }

    #[test]
    fn masks_and_frequencies_are_no_parameters() {
        for name in
            ["h.0.attn.bias", "transformer.h.11.attn.masked_bias", "model.layers.3.self_attn.rotary_emb.inv_freq"]
        {
            assert!(is_buffer(name), "{name}");
        }
        for name in ["h.0.attn.c_attn.bias", "blocks.0.attn.bias", "h.x.attn.bias", "attn.bias", "h.0.attn.weight"] {
            assert!(!is_buffer(name), "{name}");
        }
    }

    #[test]
    fn a_prefix_may_be_missing_or_too_much_in_the_whole_folder() {
        let model = ["transformer.wte.weight", "transformer.h.0.ln_1.bias", "lm_head.weight"].map(named);
        let folder = |names: &[&str]| names.iter().map(|name| ((*name).to_owned(), ())).collect::<BTreeMap<_, _>>();
        let way = |names: &[&str]| Renaming::between(&model, &folder(names));
        assert_eq!(way(&["transformer.wte.weight", "transformer.h.0.ln_1.bias", "lm_head.weight"]), Renaming::None);
        assert_eq!(way(&["wte.weight", "h.0.ln_1.bias", "lm_head.weight"]), Renaming::Without("transformer."));
        // A tensor that is missing does not change the renaming.
        assert_eq!(way(&["wte.weight", "lm_head.weight"]), Renaming::Without("transformer."));
        assert_eq!(way(&["other"]), Renaming::None);
        let plain = [named("wte.weight"), named("lm_head.weight")];
        let way = Renaming::between(&plain, &folder(&["model.wte.weight", "lm_head.weight"]));
        assert_eq!(way, Renaming::With("model."));
        assert_eq!([way.of("wte.weight"), way.of("lm_head.weight")], ["model.wte.weight", "lm_head.weight"]);
    }
}
