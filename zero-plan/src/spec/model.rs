//! Model: the entry `model`: the package, the size of its architecture, and parts that differ from that size. Never knows
//! which sizes a model has.

use serde::{Deserialize, Serialize};

/// Where the command line finds the model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ModelSource {
    /// An example of this workspace, by name.
    Example(String),
    /// A package of the user's workspace, by name.
    Package(String),
}

/// The size of a model, as a spec or a command line gives it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ModelSize {
    /// Its name; without one, the first of the model's sizes.
    pub size: Option<String>,
    /// Layers, if not those of the size. So are the other parts.
    pub layers: Option<u32>,
    /// Elements of the residual stream.
    pub width: Option<u32>,
    /// Heads of an attention.
    pub heads: Option<u32>,
    /// Heads of keys and values.
    pub key_heads: Option<u32>,
    /// Elements between the two matrices of an MLP.
    pub inner: Option<u32>,
    /// Ids of the vocabulary.
    pub vocab: Option<u32>,
}

impl ModelSize {
    /// The parts that are given, by name.
    pub fn parts(&self) -> impl Iterator<Item = (&'static str, u32)> {
        let Self { size: _, layers, width, heads, key_heads, inner, vocab } = *self;
        let names = ["layers", "width", "heads", "key_heads", "inner", "vocab"];
        names.into_iter().zip([layers, width, heads, key_heads, inner, vocab]).filter_map(|(name, n)| Some((name, n?)))
    }

    /// The entry of a model in this size, as a spec has it: `Example("llama", size: "3.1-8B", layers: 40)`.
    pub fn entry(&self, model: &ModelSource) -> String {
        let (kind, name) = match model {
            ModelSource::Example(name) => ("Example", name),
            ModelSource::Package(name) => ("Package", name),
        };
        let size = self.size.iter().map(|size| format!(", size: {size:?}"));
        let keys: String = size.chain(self.parts().map(|(part, n)| format!(", {part}: {n}"))).collect();
        format!("{kind}({name:?}{keys})")
    }
}
