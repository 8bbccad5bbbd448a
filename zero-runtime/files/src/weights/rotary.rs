//! Rotary: compares the rotary positions of configs, in either of the two layouts that `transformers` has written:
//! `rope_theta` and `rope_scaling` up to its version 4, `rope_parameters` since version 5. Never computes a frequency.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::config::is_equal;

type RotaryObject = Map<String, Value>;

/// The keys about rotary positions.
pub const KEYS: [&str; 4] = ["rope_theta", "rope_scaling", "rope_parameters", "partial_rotary_factor"];
/// Parameters that mean the same as absent ones if they have these values.
const DEFAULTS: [(&str, f64); 3] = [("partial_rotary_factor", 1.0), ("beta_fast", 32.0), ("beta_slow", 1.0)];
/// Types of scaling with a parameter for the sequence length before it.
const SCALED: [&str; 3] = ["llama3", "yarn", "longrope"];
/// If layers differ, these never scale in configs of the old layout (`Olmo3Config.convert_rope_params_to_dict`).
const UNSCALED: &str = "sliding_attention";

/// Parameters by the type of layer, which is empty if all layers have the same.
type ByLayer = BTreeMap<String, RotaryObject>;

/// The differences between what is declared and what a config says, each with its path.
pub fn compare(declared: &RotaryObject, config: &RotaryObject) -> Vec<String> {
    let (own, found) = (normal(declared), normal(config));
    let names: Vec<String> = own.keys().chain(found.keys()).filter(|name| !name.is_empty()).cloned().collect();
    let is_old = |object: &RotaryObject| !object.contains_key("rope_parameters");
    let (own, found) = (by_layer(own, &names, is_old(declared)), by_layer(found, &names, is_old(config)));
    let mut layers: Vec<&String> = own.keys().chain(found.keys()).collect();
    layers.sort();
    layers.dedup();
    let nothing = RotaryObject::new();
    let of = |layer: &String| {
        let path = if layer.is_empty() { String::new() } else { format!("{layer}.") };
        let [own, found] = [&own, &found].map(|all| all.get(layer).unwrap_or(&nothing));
        let mut keys: Vec<&String> = own.keys().chain(found.keys()).collect();
        keys.sort();
        keys.dedup();
        let difference = move |key: &String| {
            let told = |value: Option<&Value>| value.map_or("nothing".to_owned(), Value::to_string);
            let (own, found) = (own.get(key), found.get(key));
            let same = own.zip(found).is_some_and(|(own, found)| is_equal(own, found));
            (!same).then(|| format!("`rope_parameters.{path}{key}`: expected {}, found {}", told(own), told(found)))
        };
        keys.into_iter().filter_map(difference).collect::<Vec<_>>()
    };
    layers.into_iter().flat_map(of).collect()
}

/// The number of tokens for which scaled positions are made, if there are some.
pub fn scaled_length(object: &RotaryObject) -> Option<u64> {
    let number = |part: &RotaryObject, key: &str| part.get(key).and_then(Value::as_f64);
    let of = |part: &RotaryObject| Some(number(part, "factor")? * number(part, "original_max_position_embeddings")?);
    normal(object).values().filter_map(of).map(|tokens| tokens as u64).max()
}

/// The parameters of an object, in one form.
fn normal(object: &RotaryObject) -> ByLayer {
    let said = |key: &str| object.get(key).filter(|value| !value.is_null());
    let within = said("rope_parameters").or(said("rope_scaling")).and_then(Value::as_object);
    let outside: RotaryObject = ["rope_theta", "partial_rotary_factor"]
        .into_iter()
        .filter_map(|key| Some((key.to_owned(), said(key)?.clone())))
        .collect();
    let mut parts = ByLayer::new();
    match within {
        Some(within) if within.values().any(Value::is_object) => {
            let objects = within.iter().filter_map(|(layer, value)| Some((layer.clone(), value.as_object()?.clone())));
            parts.extend(objects);
        }
        Some(within) => {
            parts.insert(String::new(), within.clone());
        }
        None if outside.is_empty() => {}
        None => {
            parts.insert(String::new(), RotaryObject::new());
        }
    }
    for part in parts.values_mut() {
        outside.iter().for_each(|(key, value)| {
            part.entry(key.clone()).or_insert_with(|| value.clone());
        });
        simplify(part, said("max_position_embeddings"));
    }
    parts
}

/// Removes nulls and defaults, and adds values that the config leaves implicit.
fn simplify(part: &mut RotaryObject, longest: Option<&Value>) {
    let old_name = part.remove("type");
    let kind = part.get("rope_type").cloned().or(old_name).unwrap_or_else(|| "default".into());
    part.retain(|_, value| !value.is_null());
    if SCALED.iter().any(|scaled| kind == *scaled)
        && let Some(longest) = longest
    {
        part.entry("original_max_position_embeddings").or_insert_with(|| longest.clone());
    }
    part.insert("rope_type".to_owned(), kind);
    part.retain(|key, value| !DEFAULTS.iter().any(|(name, default)| key == name && value.as_f64() == Some(*default)));
    part.retain(|key, value| !(key == "truncate" && value == true));
}

/// The parameters of each type of layer, if there are any. `is_old` says that sliding layers are left as they are.
fn by_layer(parts: ByLayer, layers: &[String], is_old: bool) -> ByLayer {
    let Some(all) = parts.get("").filter(|_| !layers.is_empty()) else { return parts };
    let of = |layer: &String| {
        let mut part = all.clone();
        if is_old && layer == UNSCALED {
            part.retain(|key, _| key == "rope_theta");
            part.insert("rope_type".to_owned(), "default".into());
        }
        (layer.clone(), part)
    };
    layers.iter().map(of).collect()
}
