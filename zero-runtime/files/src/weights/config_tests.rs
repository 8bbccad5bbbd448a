//! Tests of published configs against declarations.

use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::json;

use super::*;

fn object(value: Value) -> ConfigObject {
    value.as_object().expect("an object").clone()
}

/// A declared Llama.
fn declared() -> ConfigObject {
    object(json!({
        "model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 2, "intermediate_size": 128, "vocab_size": 100, "rms_norm_eps": 1e-5f32,
        "rope_theta": 500000.0,
        "rope_scaling": { "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                          "original_max_position_embeddings": 8192 },
    }))
}

/// The same as version 4 of `transformers` writes it.
fn old() -> ConfigObject {
    object(json!({
        "architectures": ["LlamaForCausalLM"], "attention_bias": false, "attention_dropout": 0.0, "bos_token_id": 1,
        "eos_token_id": [2, 3], "head_dim": 16, "hidden_act": "silu", "hidden_size": 64, "initializer_range": 0.02,
        "intermediate_size": 128, "max_position_embeddings": 131072, "mlp_bias": false, "model_type": "llama",
        "num_attention_heads": 4, "num_hidden_layers": 2, "num_key_value_heads": 2, "pretraining_tp": 1,
        "rms_norm_eps": 1e-5, "rope_scaling": { "factor": 8.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
        "original_max_position_embeddings": 8192, "rope_type": "llama3" }, "rope_theta": 500000, "tie_word_embeddings": false,
        "torch_dtype": "bfloat16", "transformers_version": "4.45.0", "use_cache": true, "vocab_size": 100,
    }))
}

/// The same as version 5 writes it.
fn new() -> ConfigObject {
    let mut config = old();
    let mut rope = object(config.remove("rope_scaling").expect("it"));
    rope.insert("rope_theta".to_owned(), config.remove("rope_theta").expect("it"));
    config.insert("rope_parameters".to_owned(), rope.into());
    config
}

fn differences(declared: &ConfigObject, config: &ConfigObject) -> Vec<String> {
    compare(declared, config, false, 16).differences
}

#[test]
fn both_layouts_are_the_declared_model() {
    for config in [old(), new()] {
        assert_eq!(compare(&declared(), &config, false, 16), Compared::default());
    }
}

#[test]
fn every_difference_is_told_at_once() {
    let mut config = new();
    config.insert("hidden_size".to_owned(), 65.into());
    config.insert("rms_norm_eps".to_owned(), 1e-6.into());
    config["rope_parameters"]["factor"] = 32.into();
    config.remove("vocab_size");
    config.insert("head_dim".to_owned(), 32.into());
    let expected = [
        "`rope_parameters.factor`: expected 8.0, found 32",
        "`head_dim`: expected 16, found 32",
        "`hidden_size`: expected 64, found 65",
        "`rms_norm_eps`: expected 9.999999747378752e-6, found 1e-6",
        "`vocab_size`: expected 100, but it is not there",
    ];
    assert_eq!(differences(&declared(), &config), expected);
}

#[test]
fn a_key_that_changes_what_is_computed_is_neutral_or_an_error() {
    let cases = [
        ("attention_bias", json!(true)),
        ("mlp_bias", json!(true)),
        ("hidden_act", json!("gelu")),
        ("sliding_window", json!(4096)),
        ("layer_types", json!(["full_attention", "sliding_attention"])),
        ("tie_word_embeddings", json!(true)),
        ("num_experts", json!(8)),
        ("quantization_config", json!({ "quant_method": "gptq" })),
        ("partial_rotary_factor", json!(0.5)),
        ("logit_scale", json!(0.0625)),
        ("head_dim", json!(32)),
        ("max_position_embeddings", json!(15)),
        ("max_position_embeddings", json!("Infinity")),
        ("rms_norm_eps", json!("NaN")),
    ];
    for (key, value) in cases {
        let mut config = old();
        config.insert(key.to_owned(), value);
        let found = differences(&declared(), &config);
        assert!(found.len() == 1 && found[0].contains(key), "{key}: {found:?}");
    }
    let neutral = [
        ("sliding_window", json!(null)),
        ("layer_types", json!(["full_attention", "full_attention"])),
        ("num_experts", json!(0)),
        ("logit_scale", json!(1)),
        ("partial_rotary_factor", json!(1.0)),
        ("hidden_act", json!("swish")),
        ("max_position_embeddings", json!(16)),
        ("max_position_embeddings", json!(16.0)),
    ];
    for (key, value) in neutral {
        let mut config = old();
        config.insert(key.to_owned(), value);
        assert_eq!(compare(&declared(), &config, false, 16), Compared::default(), "{key}");
    }
}

/// `LlamaConfig(..).save_pretrained` writes none, and `LlamaModel` its own name.
#[test]
fn the_type_decides_whatever_architectures_say() {
    let mut own = declared();
    own.insert("architectures".to_owned(), json!(["LlamaForCausalLM"]));
    for architectures in [json!(null), json!([]), json!(["LlamaModel"]), json!(["LlamaForCausalLM"])] {
        let mut config = old();
        config.insert("architectures".to_owned(), architectures.clone());
        assert_eq!(compare(&own, &config, false, 16), Compared::default(), "{architectures}");
        config.insert("model_type".to_owned(), "mistral".into());
        assert_eq!(differences(&own, &config), ["`model_type`: expected \"llama\", found \"mistral\""]);
    }
    // Without a type, nothing else says which model it is.
    own.remove("model_type");
    let mut config = old();
    config.remove("model_type");
    config.insert("architectures".to_owned(), json!(["LlamaModel"]));
    assert_eq!(differences(&own, &config).len(), 1);
}

#[test]
fn a_window_that_is_turned_off_is_none() {
    let mut config = old();
    config.insert("sliding_window".to_owned(), 4096.into());
    config.insert("use_sliding_window".to_owned(), false.into());
    config.insert("max_window_layers".to_owned(), 1.into());
    assert_eq!(differences(&declared(), &config), [""; 0]);
    config.insert("use_sliding_window".to_owned(), true.into());
    assert_eq!(differences(&declared(), &config).len(), 2);
}

#[test]
fn what_is_not_there_has_its_default() {
    let mut config = old();
    for key in ["attention_bias", "mlp_bias", "head_dim", "tie_word_embeddings", "hidden_act"] {
        config.remove(key);
    }
    let mut own = declared();
    own.insert("attention_bias".to_owned(), false.into());
    own.insert("head_dim".to_owned(), 16.into());
    own.insert("sliding_window".to_owned(), Value::Null);
    assert_eq!(differences(&own, &config), [""; 0]);
    own.insert("attention_bias".to_owned(), true.into());
    assert_eq!(differences(&own, &config), ["`attention_bias`: expected true, found false"]);
}

#[test]
fn unknown_keys_and_dropout_are_told_and_no_error() {
    let mut config = old();
    config.insert("novelty".to_owned(), 3.into());
    config.insert("resid_pdrop".to_owned(), 0.1.into());
    let Compared { differences, notes } = compare(&declared(), &config, false, 16);
    assert_eq!(differences, [""; 0]);
    assert_eq!(notes.len(), 2);
    assert!(notes[0].contains("`novelty` is 3") && notes[1].contains("`resid_pdrop` is 0.1"), "{notes:?}");
}

#[test]
fn layers_of_several_types_have_rotary_parameters_of_their_own() {
    let yarn = json!({ "rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 8192, "beta_fast": 32.0,
                       "rope_theta": 5e5, "attention_factor": null });
    let plain = json!({ "rope_type": "default", "rope_theta": 5e5 });
    let own = object(json!({ "rope_parameters": { "full_attention": yarn, "sliding_attention": plain } }));
    assert_eq!(rotary::compare(&own, &own), [""; 0]);
    // Version 4 scales full attention only.
    let old =
        object(json!({ "rope_theta": 500000.0, "rope_scaling": { "rope_type": "yarn", "factor": 8.0, "beta_slow": 1,
                             "original_max_position_embeddings": 8192 } }));
    assert_eq!([rotary::compare(&own, &old), rotary::compare(&old, &own)], [Vec::<String>::new(), Vec::new()]);
    let mut other = own.clone();
    other["rope_parameters"]["sliding_attention"]["rope_theta"] = 10000.into();
    let expected = "`rope_parameters.sliding_attention.rope_theta`: expected 500000.0, found 10000";
    assert_eq!(rotary::compare(&own, &other), [expected]);
    assert_eq!(rotary::compare(&own, &ConfigObject::new()).len(), 6);
}

/// Any values under the keys that are compared, also where another kind belongs.
fn anything() -> impl Strategy<Value = ConfigObject> {
    let of_rotary = ["rope_type", "type", "factor", "original_max_position_embeddings", "sliding_attention"];
    let known = COMPUTES.iter().map(|(key, _)| *key).chain(rotary::KEYS).chain(LENGTHS).chain(of_rotary);
    let key = select(known.chain([TIED, ARCHITECTURES, "other"]).map(str::to_owned).collect::<Vec<_>>());
    let numbers = [json!(0), json!(-1), json!(u64::MAX), json!(i64::MIN), json!(1e308), json!(5e-324)];
    let others = [json!(null), json!(true), json!(""), json!("llama"), json!("llama3"), json!("full_attention")];
    let keys = key.clone();
    let value = select([numbers, others].concat()).prop_recursive(3, 16, 4, move |inner| {
        let object = btree_map(keys.clone(), inner.clone(), 0..4);
        prop_oneof![
            vec(inner, 0..4).prop_map(Value::Array),
            object.prop_map(|it| Value::Object(it.into_iter().collect()))
        ]
    });
    vec((key, value), 0..12).prop_map(|entries| entries.into_iter().collect())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_a_config_says_is_compared(config in anything()) {
        let is_other = config.get(MODEL_TYPE) != Some(&json!("llama"));
        let told = |compared: Compared| compared.differences.iter().any(|it| it.starts_with("`model_type`"));
        prop_assert_eq!(told(compare(&declared(), &config, false, 64)), is_other);
        compare(&config, &old(), true, usize::MAX);
        rotary::scaled_length(&config);
    }
}
