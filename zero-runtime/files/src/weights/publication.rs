//! Publication: how a model is published: the name and the type of each tensor, the config, and the files of a tokenizer.
//! Every export of a run has the same, wherever it comes from. Never reads a tensor.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use serde_json::{Map, Value};

use super::config::LENGTHS;
use super::dtype::WeightType;
use super::error::WeightsError;
use super::folder::CONFIG;
use super::import::Import;
use super::layout::Exported;
use super::names::NamedTensor;
use super::python_json;
use super::rotary;
use crate::data::TOKENIZER;

/// The files of a tokenizer.
const OF_TOKENIZER: [&str; 7] = [
    TOKENIZER,
    "tokenizer_config.json",
    "special_tokens_map.json",
    "vocab.json",
    "merges.txt",
    "chat_template.jinja",
    "added_tokens.json",
];
/// How text is generated.
const GENERATION: &str = "generation_config.json";
/// The ids that `transformers` would otherwise take from the model that an architecture was first published as.
const SPECIAL_IDS: [&str; 3] = ["bos_token_id", "eos_token_id", "pad_token_id"];

/// A file beside the tensors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BesideFile {
    /// Its name.
    pub name: String,
    /// All of it.
    pub content: Arc<[u8]>,
}

impl BesideFile {
    /// A file of this name and content.
    pub fn new(name: &str, content: Vec<u8>) -> Self {
        Self { name: name.to_owned(), content: content.into() }
    }
}

/// Whether a file of this name may lie beside tensors.
pub(crate) fn is_beside(name: &str) -> bool {
    name == CONFIG || name == GENERATION || OF_TOKENIZER.contains(&name)
}

/// How a model is published.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Publication {
    /// All tensors, in the order of units and of their flat buffers.
    pub tensors: Vec<Exported>,
    /// The config and the other files beside them.
    pub files: Vec<BesideFile>,
}

impl Publication {
    /// As an imported folder is.
    ///
    /// # Errors
    /// Z0360 or Z0361 if a file cannot be read.
    pub fn of_import(import: &Import) -> Result<Self, WeightsError> {
        let of =
            |it: &super::ImportedTensor| Exported { named: it.named.clone(), name: it.name.clone(), kind: it.kind };
        let mut publication = Self { tensors: import.tensors.iter().map(of).collect(), files: Vec::new() };
        for name in [CONFIG, GENERATION].into_iter().chain(OF_TOKENIZER) {
            let content = import.folder.small_file(name)?;
            publication.files.extend(content.map(|content| BesideFile::new(name, content)));
        }
        Ok(publication)
    }

    /// As its struct says: in f32, for sequences of up to `length` tokens. `end` is the id that ends a text.
    pub fn own(tensors: impl Iterator<Item = NamedTensor>, declared: Value, length: usize, end: Option<u32>) -> Self {
        let tensors = tensors.filter(|named| !named.is_alias);
        let exported = |named: NamedTensor| Exported { name: named.name.clone(), named, kind: WeightType::F32 };
        let mut publication = Self { tensors: tensors.map(exported).collect(), files: Vec::new() };
        if let Value::Object(mut config) = declared {
            if config.contains_key("model_type") {
                let end = |key: &str| if key == SPECIAL_IDS[1] { end.into() } else { Value::Null };
                for key in SPECIAL_IDS {
                    config.entry(key).or_insert_with(|| end(key));
                }
                if LENGTHS.iter().all(|key| !config.contains_key(*key)) {
                    let length = rotary::scaled_length(&config).unwrap_or(0).max(length as u64);
                    config.insert(LENGTHS[0].to_owned(), length.into());
                }
            }
            config.entry("dtype").or_insert_with(|| WeightType::F32.config_name().into());
            publication.files.push(BesideFile::new(CONFIG, written(&config)));
        }
        publication
    }

    /// The same with the tokenizer in the file at `path`, and what lies beside that, unless it has this tokenizer.
    ///
    /// # Errors
    /// Z0360 if a file cannot be read.
    pub fn with_tokenizer(mut self, path: &Path) -> Result<Self, WeightsError> {
        let read = |path: &Path| fs::read(path).map_err(WeightsError::unreadable(path));
        let content = read(path)?;
        if self.file(TOKENIZER) == Some(&content[..]) {
            return Ok(self);
        }
        self.files.retain(|file| !OF_TOKENIZER.contains(&&*file.name));
        self.files.push(BesideFile::new(TOKENIZER, content));
        if path.file_name().is_some_and(|name| name == TOKENIZER) {
            for name in &OF_TOKENIZER[1..] {
                let path = path.with_file_name(name);
                if path.is_file() {
                    self.files.push(BesideFile::new(name, read(&path)?));
                }
            }
        }
        Ok(self)
    }

    /// The same for sequences of `length` tokens, if its config allows fewer.
    #[must_use]
    pub fn for_length(mut self, length: usize) -> Self {
        let too_short = |config: &Map<String, Value>| config.get(LENGTHS[0])?.as_u64().filter(|&it| it < length as u64);
        if let Some(mut config) = self.config()
            && too_short(&config).is_some()
        {
            config.insert(LENGTHS[0].to_owned(), length.into());
            self.set_config(&config);
        }
        self
    }

    /// The same with all numbers in one type.
    #[must_use]
    pub fn in_type(mut self, kind: WeightType) -> Self {
        self.tensors.iter_mut().for_each(|tensor| tensor.kind = kind);
        let Some(mut config) = self.config() else { return self };
        let says = |config: &Map<String, Value>, key: &&str| config.get(*key).is_some_and(|own| !own.is_null());
        // Up to version 4, and since version 5, of `transformers`.
        let mut keys: Vec<&str> = ["torch_dtype", "dtype"].into_iter().filter(|key| says(&config, key)).collect();
        if keys.is_empty() {
            keys.push("dtype");
        }
        if keys.iter().any(|&key| config.get(key).is_none_or(|own| own != kind.config_name())) {
            keys.into_iter().for_each(|key| drop(config.insert(key.to_owned(), kind.config_name().into())));
            self.set_config(&config);
        }
        self
    }

    /// Bytes of the files beside the tensors.
    pub fn bytes(&self) -> usize {
        self.files.iter().map(|file| file.content.len()).sum()
    }

    fn file(&self, name: &str) -> Option<&[u8]> {
        self.files.iter().find(|file| file.name == name).map(|file| &*file.content)
    }

    fn config(&self) -> Option<Map<String, Value>> {
        serde_json::from_slice(&python_json::named(self.file(CONFIG)?)).ok()
    }

    fn set_config(&mut self, config: &Map<String, Value>) {
        let own = self.files.iter_mut().filter(|file| file.name == CONFIG);
        own.for_each(|file| file.content = written(config).into());
    }
}

fn written(config: &Map<String, Value>) -> Vec<u8> {
    python_json::unnamed(serde_json::to_string_pretty(config).expect("JSON")).into_bytes()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn tensors() -> impl Iterator<Item = NamedTensor> {
        let named = |name: &str, is_alias| NamedTensor {
            name: name.to_owned(),
            shape: vec![2],
            transposed: false,
            unit: 0,
            start: 0,
            is_alias,
        };
        [named("embed", false), named("head", true)].into_iter()
    }

    fn own(declared: Value, end: Option<u32>) -> Publication {
        Publication::own(tensors(), declared, 128, end)
    }

    fn config(publication: &Publication) -> Value {
        publication.config().expect("a config").into()
    }

    #[test]
    fn a_struct_claims_no_ids_of_another_vocabulary_and_the_length_that_it_is_trained_on() {
        let plain = own(json!({ "model_type": "llama" }), None);
        let ids = json!({ "bos_token_id": null, "eos_token_id": null, "pad_token_id": null });
        let mut expected = json!({ "model_type": "llama", "max_position_embeddings": 128, "dtype": "float32" });
        let object = expected.as_object_mut().expect("keys");
        object.extend(ids.as_object().expect("keys").clone());
        assert_eq!(config(&plain), expected);
        assert_eq!(plain.tensors.iter().map(|it| &*it.name).collect::<Vec<_>>(), ["embed"]);
        // What is declared stays, and a tokenizer has its end.
        let declared = own(json!({ "model_type": "gpt2", "n_positions": 64, "bos_token_id": 3 }), Some(7));
        let said = ["bos_token_id", "eos_token_id", "n_positions", "max_position_embeddings"];
        let config_of = config(&declared);
        assert_eq!(said.map(|key| &config_of[key]), [&json!(3), &json!(7), &json!(64), &Value::Null]);
        // Positions that are scaled for more tokens are for as many.
        let scaled = |original: u64| json!({ "factor": 8.0, "original_max_position_embeddings": original });
        for (original, length) in [(8, 128), (32, 256)] {
            let scaled = own(json!({ "model_type": "olmo3", "rope_scaling": scaled(original) }), None);
            assert_eq!(config(&scaled)["max_position_embeddings"], length);
        }
        // A config that is not of `transformers` gets no key of it, and without one there is none.
        assert_eq!(config(&own(json!({ "size": 3 }), None)), json!({ "size": 3, "dtype": "float32" }));
        assert_eq!(own(Value::Null, None).files, []);
    }

    #[test]
    fn a_config_allows_the_length_and_names_the_type() {
        let of = |config: Value| Publication {
            files: vec![BesideFile::new(CONFIG, config.to_string().into_bytes())],
            ..own(Value::Null, None)
        };
        let short = of(json!({ "max_position_embeddings": 64, "torch_dtype": "float16", "x": 1 }));
        assert_eq!(short.clone().for_length(64), short);
        assert_eq!(config(&short.clone().for_length(65))["max_position_embeddings"], 65);
        assert_eq!(of(json!({ "x": 1 })).for_length(65), of(json!({ "x": 1 })));
        let typed = short.clone().in_type(WeightType::BF16);
        assert_eq!(
            (config(&typed)["torch_dtype"].as_str(), typed.tensors[0].kind),
            (Some("bfloat16"), WeightType::BF16)
        );
        assert_eq!(config(&of(json!({})).in_type(WeightType::F16)), json!({ "dtype": "float16" }));
        // A config that says so already stays to the byte.
        assert_eq!(short.clone().in_type(WeightType::F16).files, short.files);
    }

    #[test]
    fn a_tokenizer_comes_with_what_lies_beside_it() {
        let root = tempfile::tempdir().expect("a directory");
        let write = |name: &str, text: &str| std::fs::write(root.path().join(name), text).expect("a file");
        write(TOKENIZER, "one");
        write("other.json", "two");
        write("tokenizer_config.json", "of one");
        write("generation_config.json", "not of a tokenizer");
        let names = |it: &Publication| it.files.iter().map(|file| file.name.clone()).collect::<Vec<_>>();
        let first = own(Value::Null, None).with_tokenizer(&root.path().join(TOKENIZER)).expect("a tokenizer");
        assert_eq!(names(&first), [TOKENIZER, "tokenizer_config.json"]);
        // The same in another place is no other tokenizer.
        write("copy.json", "one");
        assert_eq!(first.clone().with_tokenizer(&root.path().join("copy.json")).expect("the same"), first);
        let other = first.with_tokenizer(&root.path().join("other.json")).expect("a tokenizer");
        assert_eq!((names(&other), other.file(TOKENIZER)), (vec![TOKENIZER.to_owned()], Some(&b"two"[..])));
    }
}
