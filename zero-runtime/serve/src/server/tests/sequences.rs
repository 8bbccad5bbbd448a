//! Sequences: a request has the tokens that it has alone, whatever runs beside it.

use serde_json::{Value, json};
use zero_core::sampling::Sampling;

use super::toy::{LENGTH, Running, SLOTS, Start, events, expected};

const PLAIN: Sampling = Sampling { temperature: 1.0, top_k: None, top_p: 1.0 };

fn text(answer: &Value) -> &str {
    answer["choices"][0]["text"].as_str().expect("a text")
}

#[test]
fn tokens_depend_on_their_request_alone() {
    let running = Running::new(Start::default());
    // More than there are slots, of several lengths, that come in any order.
    std::thread::scope(|scope| {
        for seed in 0..7u64 {
            let running = &running;
            scope.spawn(move || {
                let (prompt, tokens) = ("prompt".repeat(1 + seed as usize % 3), 5 + 4 * seed as usize);
                let sampling = Sampling { temperature: 0.5 + seed as f64 / 4.0, top_k: None, top_p: 0.9 };
                let answer = running.complete(&json!({
                    "prompt": prompt, "max_tokens": tokens, "seed": seed, "top_p": 0.9,
                    "temperature": sampling.temperature,
                }));
                assert_eq!(text(&answer), expected(&prompt, seed, sampling, &vec![0; tokens], false), "seed {seed}");
                let choice = &answer["choices"][0];
                assert_eq!((&choice["finish_reason"], &choice["seed"]), (&json!("length"), &json!(seed)));
                let all = tokens + prompt.len();
                let usage = json!({ "prompt_tokens": prompt.len(), "completion_tokens": tokens, "total_tokens": all });
                assert_eq!(answer["usage"], usage);
            });
        }
    });
    assert_eq!(running.metric("zero_sequences_waiting") + running.metric("zero_sequences_running"), 0.0);
    // Side by side: fewer steps than tokens.
    assert!(running.metric("zero_steps_total") < running.metric("zero_generated_tokens_total"));
}

#[test]
fn choices_and_prompts_are_sequences_of_their_own() {
    let running = Running::new(Start::default());
    let answer = running.complete(&json!({ "prompt": ["one", "two"], "n": 3, "seed": 40, "max_tokens": 6 }));
    let choices = answer["choices"].as_array().expect("choices");
    assert_eq!(choices.len(), 6);
    for (index, choice) in choices.iter().enumerate() {
        let (prompt, seed) = (["one", "two"][index / 3], 40 + index as u64 % 3);
        assert_eq!(choice["index"], index);
        assert_eq!(choice["text"], expected(prompt, seed, PLAIN, &[0; 6], false));
    }
    let ids = running
        .complete(&json!({ "prompt": [[111, 110, 101]], "seed": 41, "max_tokens": 6, "return_token_ids": true }));
    assert_eq!(text(&ids), choices[1]["text"].as_str().expect("a text"));
    let said: Vec<u32> = text(&ids).bytes().map(u32::from).collect();
    let choice = &ids["choices"][0];
    assert_eq!((&choice["token_ids"], &choice["prompt_token_ids"]), (&json!(said), &json!([111, 110, 101])));
    // A seed that nobody gives is told, and gives the same again.
    let drawn = running.complete(&json!({ "prompt": "one", "max_tokens": 30 }));
    let seed = drawn["choices"][0]["seed"].as_u64().expect("a seed");
    assert_eq!(text(&drawn), expected("one", seed, PLAIN, &[0; 30], false));
    assert_ne!(text(&running.complete(&json!({ "prompt": "one", "max_tokens": 30 }))), text(&drawn));
}

#[test]
fn an_answer_ends_before_its_stop_and_is_the_same_in_a_stream() {
    let running = Running::new(Start::default());
    let plain = expected("begin", 3, PLAIN, &[0; 40], false);
    let [stop, never] = [&plain[20..23], "\u{80}"];
    let base = json!({ "prompt": "begin", "seed": 3, "max_tokens": 40, "logprobs": 2 });
    let with = |key: &str, value: Value| {
        let mut asked = base.clone();
        asked[key] = value;
        asked
    };
    let end = plain.find(stop).expect("it is there");
    for (asked, said, reason) in [
        (base.clone(), &plain[..], "length"),
        (with("stop", json!(stop)), &plain[..end], "stop"),
        (with("stop", json!([never, stop])), &plain[..end], "stop"),
        (with("stop_token_ids", json!([plain.as_bytes()[9]])), &plain[..plain.find(&plain[9..10]).unwrap()], "stop"),
    ] {
        let whole = running.complete(&asked);
        assert_eq!((text(&whole), &whole["choices"][0]["finish_reason"]), (said, &json!(reason)), "{asked}");
        let mut streamed = asked.clone();
        (streamed["stream"], streamed["stream_options"]) = (json!(true), json!({ "include_usage": true }));
        let (status, body) = running.ask("POST", "/v1/completions", &streamed.to_string());
        assert_eq!(status, 200);
        let mut chunks = events(&body);
        assert_eq!(chunks.pop().expect("usage")["usage"], whole["usage"]);
        let choice = |chunk: &Value| chunk["choices"][0].clone();
        let joined: String = chunks.iter().map(|chunk| text(chunk).to_owned()).collect();
        assert_eq!(joined, said);
        let (last, others) = chunks.split_last().expect("an end");
        assert!(others.iter().all(|chunk| choice(chunk)["finish_reason"].is_null()));
        for key in ["finish_reason", "weight_versions", "seed"] {
            assert_eq!(choice(last)[key], whole["choices"][0][key], "{key}");
        }
        for key in ["token_logprobs", "text_offset"] {
            let of_chunks = chunks.iter().filter_map(|chunk| chunk["choices"][0]["logprobs"][key].as_array());
            let of_chunks: Vec<Value> = of_chunks.flatten().cloned().collect();
            assert_eq!(json!(of_chunks), whole["choices"][0]["logprobs"][key], "{key}");
        }
    }
}

#[test]
fn probabilities_are_of_all_ids_and_of_those_that_could_be_drawn() {
    let running = Running::new(Start::default());
    let answer = running.complete(&json!({
        "prompt": "x", "seed": 1, "max_tokens": 20, "logprobs": 20, "temperature": 0.5, "top_k": 5,
    }));
    let choice = &answer["choices"][0];
    let (told, drawn) = (&choice["logprobs"], choice["sampled_logprobs"].as_array().expect("numbers"));
    for at in 0..20 {
        let (token, of_all) = (told["tokens"][at].as_str().expect("a token"), told["token_logprobs"][at].as_f64());
        let top = told["top_logprobs"][at].as_object().expect("the likeliest");
        assert_eq!(top.len(), 20);
        // One of the five likeliest was drawn, and their probabilities at half the temperature are squares.
        let mut likeliest: Vec<f64> = top.values().filter_map(Value::as_f64).collect();
        likeliest.sort_by(|a, b| b.total_cmp(a));
        let near = |a: f64, b: f64| (a - b).abs() < 1e-9;
        let of_all = of_all.expect("a number");
        assert!(near(top[token].as_f64().expect("a number"), of_all) && of_all >= likeliest[4] - 1e-9);
        let squares: f64 = likeliest[..5].iter().map(|it| (2.0 * it).exp()).sum();
        assert!(near(drawn[at].as_f64().expect("a number"), 2.0 * of_all - squares.ln()), "{at}");
    }
}

#[test]
fn a_client_that_goes_away_frees_its_slot_before_the_next_step() {
    let running = Running::new(Start::default());
    assert_eq!(running.ask("POST", "/pause", "").0, 200);
    let asked = json!({ "prompt": "long", "seed": 1, "max_tokens": LENGTH - 4, "stream": true }).to_string();
    let clients: Vec<_> = (0..SLOTS).map(|_| running.begin("POST", "/v1/completions", &asked, "")).collect();
    let whole = json!({ "prompt": "long", "seed": 1, "max_tokens": LENGTH - 4 }).to_string();
    let waits = running.begin("POST", "/v1/completions", &whole, "");
    running.until("all wait", |it| it.metric("zero_sequences_waiting") == (SLOTS + 1) as f64);
    running.gate.allow(2);
    assert_eq!(running.ask("POST", "/resume", "").0, 200);
    running.until("all slots are taken", |it| {
        it.metric("zero_sequences_running") == SLOTS as f64 && it.metric("zero_sequences_waiting") == 1.0
    });
    assert_eq!(running.ask("POST", "/pause", "").0, 200);
    running.gate.allow(1);
    running.until("it stands still", |it| it.metric("zero_paused") == 1.0);
    let steps = running.metric("zero_steps_total");
    drop((clients, waits));
    // No step is needed for that, and none is done for them.
    running
        .until("nobody is left", |it| it.metric("zero_sequences_running") + it.metric("zero_sequences_waiting") == 0.0);
    running.gate.open();
    assert_eq!(running.ask("POST", "/resume", "").0, 200);
    assert_eq!(running.metric("zero_steps_total"), steps);
    assert_eq!(running.complete(&json!({ "prompt": "x", "max_tokens": 3 }))["usage"]["completion_tokens"], 3);
}

#[test]
fn logits_that_are_not_finite_end_their_request_alone() {
    let running = Running::new(Start::default());
    std::thread::scope(|scope| {
        let good = scope.spawn(|| running.complete(&json!({ "prompt": "x", "seed": 5, "max_tokens": 40 })));
        let (status, body) = running.ask("POST", "/v1/completions", &json!({ "prompt": [5, 0] }).to_string());
        assert_eq!(status, 500);
        assert!(body.contains("infinite or not a number") && body.contains("\"server_error\""), "{body}");
        assert_eq!(text(&good.join().expect("an answer")), expected("x", 5, PLAIN, &[0; 40], false));
    });
}
