//! Config: compares the `config.json` of a model with what the model's struct declares. Never reads a file.

use serde_json::{Map, Value};

use super::rotary;

type ConfigObject = Map<String, Value>;

/// The findings of a comparison.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Compared {
    /// Each key that describes another model.
    pub differences: Vec<String>,
    /// Things that a person should know, though they change nothing here.
    pub notes: Vec<String>,
}

/// Keys that change the computation, and the meaning of their absence: [`Neutral::Unknown`] if it has none, so that the
/// struct must declare the key. Defaults are those of `transformers`.
const COMPUTES: &[(&str, Neutral)] = &[
    ("activation_function", Neutral::Text("gelu_new")),
    ("add_cross_attention", Neutral::False),
    ("alibi", Neutral::False),
    ("attention_bias", Neutral::False),
    ("attention_chunk_size", Neutral::Absent),
    ("attention_multiplier", Neutral::Absent),
    ("attn_logit_softcapping", Neutral::Absent),
    ("clip_qkv", Neutral::Absent),
    ("embedding_multiplier", Neutral::One),
    ("final_logit_softcapping", Neutral::Absent),
    ("head_dim", Neutral::Quotient("hidden_size", "num_attention_heads")),
    ("hidden_act", Neutral::Text("silu")),
    ("hidden_activation", Neutral::Absent),
    ("hidden_size", Neutral::Unknown),
    ("intermediate_size", Neutral::Unknown),
    ("is_encoder_decoder", Neutral::False),
    ("layer_norm_epsilon", Neutral::Unknown),
    ("layer_types", Neutral::AllFull),
    ("logit_scale", Neutral::One),
    ("logits_scaling", Neutral::One),
    ("mlp_bias", Neutral::False),
    (MODEL_TYPE, Neutral::Unknown),
    ("n_embd", Neutral::Unknown),
    ("n_head", Neutral::Unknown),
    ("n_inner", Neutral::FourTimes("n_embd")),
    ("n_layer", Neutral::Unknown),
    ("no_rope_layers", Neutral::Absent),
    ("num_attention_heads", Neutral::Unknown),
    ("num_experts", Neutral::Absent),
    ("num_hidden_layers", Neutral::Unknown),
    ("num_key_value_heads", Neutral::SameAs("num_attention_heads")),
    ("num_local_experts", Neutral::Absent),
    ("qk_layernorm", Neutral::False),
    ("quantization_config", Neutral::Absent),
    ("query_pre_attn_scalar", Neutral::Absent),
    ("residual_multiplier", Neutral::One),
    ("rms_norm_eps", Neutral::Unknown),
    ("scale_attn_by_inverse_layer_idx", Neutral::False),
    ("scale_attn_weights", Neutral::True),
    ("sliding_window", Neutral::Absent),
    ("use_parallel_residual", Neutral::False),
    ("use_qkv_bias", Neutral::False),
    (SLIDES, Neutral::False),
    ("vocab_size", Neutral::Unknown),
];

/// Keys that do not change the computation here: names, versions, ids of tokens, initial values, how the model is run.
const IGNORED: &[&str] = &[
    "_attn_implementation",
    "_name_or_path",
    ARCHITECTURES,
    "auto_map",
    "bos_token_id",
    "chunk_size_feed_forward",
    "dtype",
    "eos_token_id",
    "gradient_checkpointing",
    "id2label",
    "initializer_range",
    "is_decoder",
    "keys_to_ignore_at_inference",
    "label2id",
    "max_window_layers",
    "output_attentions",
    "output_hidden_states",
    "pad_token_id",
    "pretraining_tp",
    "problem_type",
    "reorder_and_upcast_attn",
    "return_dict",
    "task_specific_params",
    "torch_dtype",
    "transformers_version",
    "unk_token_id",
    "use_cache",
];

/// Keys that say how many tokens a sequence may have.
pub const LENGTHS: [&str; 3] = ["max_position_embeddings", "n_positions", "n_ctx"];
/// The name of the architecture.
const MODEL_TYPE: &str = "model_type";
/// The classes of `transformers` that a folder was written from.
const ARCHITECTURES: &str = "architectures";
/// Whether the head has the embedding's weights.
const TIED: &str = "tie_word_embeddings";

/// Whether the window of `sliding_window` is used at all.
const SLIDES: &str = "use_sliding_window";

/// The meaning of a key that is absent or null.
enum Neutral {
    /// None: the key must be there.
    Unknown,
    /// A feature is absent, which 0 and false mean too.
    Absent,
    False,
    True,
    One,
    Text(&'static str),
    /// The value of another key.
    SameAs(&'static str),
    FourTimes(&'static str),
    Quotient(&'static str, &'static str),
    /// A list of any length, all of it full attention.
    AllFull,
}

/// Compares a config with a struct's declaration. `is_tied` says whether its head shares the embedding, and `length` is the
/// number of tokens of its sequences.
pub fn compare(declared: &ConfigObject, config: &ConfigObject, is_tied: bool, length: usize) -> Compared {
    let (declared, config) = (&plain(declared), &plain(config));
    let mut compared = Compared::default();
    compared.differences.extend(rotary::compare(declared, config));
    let mut keys: Vec<&String> = declared.keys().chain(config.keys()).collect();
    keys.sort();
    keys.dedup();
    for key in keys.into_iter().map(String::as_str).filter(|key| !rotary::KEYS.contains(key)) {
        if key == ARCHITECTURES && said(declared, MODEL_TYPE).is_some() {
            // It may be absent, or name the model without its head: the type says which model it is.
        } else if key == TIED {
            compare_tied(declared, config, is_tied, &mut compared);
        } else if let Some(own) = said(declared, key) {
            compare_declared(key, own, config, &mut compared);
        } else if let Some(found) = said(config, key) {
            compare_undeclared(key, found, declared, length, &mut compared);
        }
    }
    compared
}

/// The value of a key; none if it is absent or null.
fn said<'a>(object: &'a ConfigObject, key: &str) -> Option<&'a Value> {
    object.get(key).filter(|value| !value.is_null())
}

fn compare_declared(key: &str, own: &Value, config: &ConfigObject, compared: &mut Compared) {
    let default = || neutral(key).and_then(|neutral| neutral.value(config));
    match said(config, key).cloned().or_else(default) {
        Some(found) if is_equal(own, &found) => {}
        Some(found) => compared.differences.push(format!("`{key}`: expected {own}, found {found}")),
        // It means the same as an absent key.
        None if neutral(key).is_some_and(|neutral| neutral.is(own, config)) => {}
        None => compared.differences.push(format!("`{key}`: expected {own}, but it is not there")),
    }
}

fn compare_undeclared(key: &str, found: &Value, declared: &ConfigObject, length: usize, compared: &mut Compared) {
    if LENGTHS.contains(&key) {
        if found.as_f64().is_none_or(|longest| longest < length as f64) {
            compared
                .differences
                .push(format!("`{key}`: expected at least {length}, the length of sequences, found {found}"));
        }
    } else if let Some(neutral) = neutral(key) {
        if !neutral.is(found, declared) {
            let nothing = || "nothing, as the struct declares nothing".to_owned();
            let expected = neutral.value(declared).map_or_else(nothing, |own| own.to_string());
            compared.differences.push(format!("`{key}`: expected {expected}, found {found}"));
        }
    } else if is_dropout(key) {
        if found.as_f64() != Some(0.0) {
            compared.notes.push(format!("`{key}` is {found}, and training here drops nothing out"));
        }
    } else if !IGNORED.contains(&key) && !key.starts_with("summary_") {
        compared.notes.push(format!("`{key}` is {found}, which is not known here and changes nothing"));
    }
}

fn compare_tied(declared: &ConfigObject, config: &ConfigObject, is_tied: bool, compared: &mut Compared) {
    let own = said(declared, TIED).and_then(Value::as_bool).unwrap_or(is_tied);
    // If it is absent, defaults differ, but a separate head would be found among the tensors.
    if let Some(found) = said(config, TIED)
        && found.as_bool() != Some(own)
    {
        compared.differences.push(format!("`{TIED}`: expected {own}, found {found}"));
    }
}

fn neutral(key: &str) -> Option<&'static Neutral> {
    COMPUTES.iter().find(|(name, _)| *name == key).map(|(_, neutral)| neutral)
}

fn is_dropout(key: &str) -> bool {
    key.ends_with("_pdrop") || key.ends_with("dropout")
}

/// The object without a window that another key turns off, as in Qwen's configs.
fn plain(object: &ConfigObject) -> ConfigObject {
    let mut object = object.clone();
    if object.get(SLIDES) == Some(&Value::Bool(false)) {
        object.remove(SLIDES);
        object.remove("sliding_window");
    }
    object
}

impl Neutral {
    /// The value, if it is known.
    fn value(&self, object: &ConfigObject) -> Option<Value> {
        let number = |key: &str| said(object, key).and_then(Value::as_u64);
        match self {
            Neutral::Unknown | Neutral::Absent | Neutral::AllFull => None,
            Neutral::False => Some(false.into()),
            Neutral::True => Some(true.into()),
            Neutral::One => Some(1.into()),
            Neutral::Text(text) => Some((*text).into()),
            Neutral::SameAs(key) => said(object, key).cloned(),
            Neutral::FourTimes(key) => Some(number(key)?.checked_mul(4)?.into()),
            Neutral::Quotient(key, by) => Some(number(key)?.checked_div(number(by)?)?.into()),
        }
    }

    /// Whether a value means the same as an absent key.
    fn is(&self, value: &Value, object: &ConfigObject) -> bool {
        match (self, value) {
            (Neutral::AllFull, Value::Array(layers)) => layers.iter().all(|layer| layer == "full_attention"),
            (Neutral::Absent, Value::Number(number)) => number.as_f64() == Some(0.0),
            (Neutral::Absent, Value::Bool(is_on)) => !is_on,
            _ => self.value(object).is_some_and(|own| is_equal(&own, value)),
        }
    }
}

/// Names of the same activation, in each row.
const SAME: [&[&str]; 2] = [&["gelu_new", "gelu_pytorch_tanh"], &["silu", "swish"]];

/// Whether two values are the same: numbers as numbers, to the precision of f32 unless both are whole.
pub fn is_equal(own: &Value, found: &Value) -> bool {
    match (own, found) {
        (Value::Number(own), Value::Number(found)) => match (own.as_i64(), found.as_i64()) {
            (Some(own), Some(found)) => own == found,
            _ => own.as_f64().zip(found.as_f64()).is_some_and(|(own, found)| own as f32 == found as f32),
        },
        (Value::Array(own), Value::Array(found)) => {
            own.len() == found.len() && own.iter().zip(found).all(|(own, found)| is_equal(own, found))
        }
        (Value::Object(own), Value::Object(found)) => {
            own.len() == found.len()
                && own.iter().all(|(name, own)| found.get(name).is_some_and(|found| is_equal(own, found)))
        }
        (Value::String(own), Value::String(found)) => {
            let is_among = |names: &&[&str]| names.contains(&own.as_str()) && names.contains(&found.as_str());
            own == found || SAME.iter().any(is_among)
        }
        _ => own == found,
    }
}

#[cfg(test)]
#[path = "config_tests.rs"]
mod tests;
