//! Requests: what is refused, by which status and key; bounds; chats; and requests that nobody should send.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::{Value, json};
use zero_core::random::mix;
use zero_core::sampling::Sampling;

use super::toy::{LENGTH, QUEUE, Running, SLOTS, Start, events, expected};

const COMPLETIONS: &str = "/v1/completions";
const CHATS: &str = "/v1/chat/completions";

#[test]
fn what_is_not_as_expected_is_refused_by_name() {
    let running = Running::new(Start::default());
    let null = Value::Null;
    for (body, status, param, code) in [
        ("{".to_owned(), 400, null.clone(), null.clone()),
        ("[]".to_owned(), 400, null.clone(), null.clone()),
        (json!({}).to_string(), 400, json!("prompt"), null.clone()),
        (json!({ "prompt": 5 }).to_string(), 400, json!("prompt"), null.clone()),
        (json!({ "prompt": [] }).to_string(), 400, json!("prompt"), null.clone()),
        (json!({ "prompt": [[]] }).to_string(), 400, json!("prompt"), null.clone()),
        (json!({ "prompt": [1, 128] }).to_string(), 400, json!("prompt"), null.clone()),
        (json!({ "prompt": "é" }).to_string(), 400, json!("prompt"), null.clone()),
        (json!({ "prompt": "a", "max_tokens": 0 }).to_string(), 400, json!("max_tokens"), null.clone()),
        (json!({ "prompt": "a", "max_tokens": -1 }).to_string(), 400, json!("max_tokens"), null.clone()),
        (
            json!({ "prompt": "a", "max_tokens": LENGTH }).to_string(),
            400,
            json!("max_tokens"),
            json!("context_length_exceeded"),
        ),
        (
            json!({ "prompt": "a".repeat(LENGTH + 1), "max_tokens": 1 }).to_string(),
            400,
            json!("max_tokens"),
            json!("context_length_exceeded"),
        ),
        (json!({ "prompt": "a", "n": 0 }).to_string(), 400, json!("n"), null.clone()),
        (json!({ "prompt": "a", "n": SLOTS + QUEUE + 1 }).to_string(), 400, json!("n"), null.clone()),
        (json!({ "prompt": "a", "top_p": 0 }).to_string(), 400, json!("top_p"), null.clone()),
        (json!({ "prompt": "a", "temperature": -0.1 }).to_string(), 400, json!("temperature"), null.clone()),
        (json!({ "prompt": "a", "seed": "x" }).to_string(), 400, json!("seed"), null.clone()),
        (json!({ "prompt": "a", "seed": 1.5 }).to_string(), 400, json!("seed"), null.clone()),
        (json!({ "prompt": "a", "stop_token_ids": [128] }).to_string(), 400, json!("stop_token_ids"), null.clone()),
        (json!({ "prompt": "a", "stop": "" }).to_string(), 400, json!("stop"), null.clone()),
        (json!({ "prompt": "a", "echo": true }).to_string(), 400, json!("echo"), null.clone()),
        (json!({ "prompt": "a", "presence_penalty": 1 }).to_string(), 400, json!("presence_penalty"), null.clone()),
        (json!({ "prompt": "a", "logprobs": 21 }).to_string(), 400, json!("logprobs"), null.clone()),
        (json!({ "prompt": "a", "max_tokns": 4 }).to_string(), 400, json!("max_tokns"), json!("unknown_parameter")),
        (json!({ "prompt": "a", "model": "other" }).to_string(), 404, json!("model"), json!("model_not_found")),
    ] {
        let (found, answer) = running.ask("POST", COMPLETIONS, &body);
        assert_eq!(found, status, "{body}: {answer}");
        let answer: Value = serde_json::from_str(&answer).expect("JSON");
        let error = &answer["error"];
        assert_eq!((&error["param"], &error["code"]), (&param, &code), "{body}: {error}");
        assert!(error["type"] == "invalid_request_error" && error["message"].as_str().is_some_and(|it| it.len() > 10));
    }
    // Keys that change no token, and those at their usual values.
    for key in [json!({ "user": "me" }), json!({ "presence_penalty": 0 }), json!({ "echo": false, "best_of": 1 })] {
        let mut asked = json!({ "prompt": "a", "max_tokens": 1, "model": "toy" });
        asked.as_object_mut().expect("keys").extend(key.as_object().expect("keys").clone());
        running.complete(&asked);
    }
    for (method, path, status) in [
        ("GET", COMPLETIONS, 405),
        ("POST", "/v1/models", 405),
        ("GET", "/v1/other", 404),
        ("POST", "/pause?mode=sleep", 400),
        ("POST", "/pause?mode=keep&x=1", 400),
        ("GET", "/v1/models/toy", 200),
        ("GET", "/v1/models/other", 404),
        ("GET", "/health", 200),
        ("GET", "/v1/models", 200),
    ] {
        assert_eq!(running.ask(method, path, "").0, status, "{method} {path}");
    }
    assert!(running.metric("zero_requests_total{path=\"other\",status=\"404\"}") == 2.0);
}

#[test]
fn beyond_the_queue_a_request_is_told_to_come_again() {
    let running = Running::new(Start::default());
    running.gate.allow(1);
    let asked = json!({ "prompt": "a", "max_tokens": 20, "seed": 1 }).to_string();
    let begun: Vec<TcpStream> = (0..SLOTS + QUEUE).map(|_| running.begin("POST", COMPLETIONS, &asked, "")).collect();
    running.until("all places are taken", |it| {
        it.metric("zero_sequences_running") + it.metric("zero_sequences_waiting") == (SLOTS + QUEUE) as f64
    });
    let (status, answer) = running.ask("POST", COMPLETIONS, &asked);
    assert!(status == 429 && answer.contains("\"queue_full\"") && answer.contains("rate_limit_error"), "{answer}");
    running.gate.open();
    for mut stream in begun {
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
    assert_eq!(running.ask("POST", COMPLETIONS, &asked).0, 200);
}

#[test]
fn without_the_token_nothing_is_told_but_that_it_is_there() {
    let running = Running::new(Start { token: Some("secret"), ..Start::default() });
    for path in ["/v1/models", "/metrics", "/weight_info"] {
        for header in ["", "Authorization: Bearer secre\r\n", "Authorization: secret\r\n"] {
            let (status, answer) = running.ask_with("GET", path, "", header);
            assert!(status == 401 && answer.contains("authentication_error"), "{answer}");
        }
        assert_eq!(running.ask_with("GET", path, "", "Authorization: Bearer secret\r\n").0, 200);
    }
    assert_eq!(running.ask("GET", "/health", ""), (200, String::new()));
}

/// As models have them: a method of Python's texts, a loop, a condition, and a message that is refused.
const TEMPLATE: &str = "{% for message in messages %}
    {% if message.role not in ['user', 'assistant'] %}{{ raise_exception('no role ' + message.role) }}{% endif %}
<{{ message['role'][0] }}>{{ message.content.strip() }}
{% endfor %}
{% if add_generation_prompt %}<a>{% endif %}";

#[test]
fn a_chat_is_the_prompt_that_its_template_makes() {
    let running = Running::new(Start { template: Some(TEMPLATE), ..Start::default() });
    let messages = json!([
        { "role": "user", "content": " hi " },
        { "role": "assistant", "content": [{ "type": "text", "text": "yo" }, { "type": "text", "text": "u" }] },
    ]);
    let prompt = "<u>hi\n<a>you\n<a>";
    let plain = Sampling { temperature: 1.0, top_k: None, top_p: 1.0 };
    let said = expected(prompt, 6, plain, &[0; 8], false);
    let mut asked = json!({
        "messages": messages, "seed": 6, "max_completion_tokens": 8, "logprobs": true, "top_logprobs": 1,
    });
    let (status, answer) = running.ask("POST", CHATS, &asked.to_string());
    assert_eq!(status, 200, "{answer}");
    let answer: Value = serde_json::from_str(&answer).expect("JSON");
    let choice = &answer["choices"][0];
    assert_eq!(choice["message"], json!({ "role": "assistant", "content": said }));
    assert_eq!(
        (&answer["object"], &answer["usage"]["prompt_tokens"]),
        (&json!("chat.completion"), &json!(prompt.len()))
    );
    let told = choice["logprobs"]["content"].as_array().expect("tokens");
    let tokens: String = told.iter().map(|it| it["token"].as_str().expect("a token")).collect();
    assert_eq!((tokens, told[0]["top_logprobs"].as_array().map(Vec::len)), (said.clone(), Some(1)));
    asked["stream"] = json!(true);
    let chunks = events(&running.ask("POST", CHATS, &asked.to_string()).1);
    let deltas: Vec<&Value> = chunks.iter().map(|chunk| &chunk["choices"][0]["delta"]).collect();
    assert!(deltas[0]["role"] == "assistant" && deltas[1..].iter().all(|delta| delta.get("role").is_none()));
    assert_eq!(deltas.iter().filter_map(|delta| delta["content"].as_str()).collect::<String>(), said);
    // Without a number, as many as fit.
    let long = json!({ "messages": messages, "seed": 6 });
    let answer: Value = serde_json::from_str(&running.ask("POST", CHATS, &long.to_string()).1).expect("JSON");
    assert_eq!(answer["usage"]["total_tokens"], LENGTH);
    for (messages, words) in [
        (json!([{ "role": "system", "content": "x" }]), "no role system"),
        (json!([]), "expected one or more"),
        (json!([{ "content": "x" }]), "has no `role`"),
        (json!([{ "role": "user", "content": [{ "type": "image_url" }] }]), "is no text"),
    ] {
        let (status, answer) = running.ask("POST", CHATS, &json!({ "messages": messages }).to_string());
        assert!(status == 400 && answer.contains(words), "{status}: {answer}");
    }
    let without = Running::new(Start::default()).ask("POST", CHATS, &json!({ "messages": messages }).to_string());
    assert!(without.0 == 400 && without.1.contains("no chat template"), "{}", without.1);
}

/// Bytes of all kinds get an answer or a close, and the worker answers as before.
#[test]
fn requests_that_nobody_should_send_change_nothing() {
    let running = Running::new(Start::default());
    let good = json!({ "prompt": "a", "max_tokens": 4, "seed": 1, "stop": ["zz"], "n": 2, "logprobs": 1 }).to_string();
    let before = running.complete(&serde_json::from_str(&good).expect("JSON"))["choices"].clone();
    for case in 0..200u64 {
        let mut body = good.clone().into_bytes();
        for change in 0..1 + case % 4 {
            let at = mix(case, change) as usize % body.len();
            body[at] = mix(case, change + 100) as u8;
        }
        let mut stream = TcpStream::connect(running.at).expect("a connection");
        stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout");
        let length = body.len() - (case % 5 == 0) as usize;
        let head =
            format!("POST {COMPLETIONS} HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n");
        stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&body)).expect("a request");
        let mut answer = Vec::new();
        // It may close before all is read.
        let _ = stream.read_to_end(&mut answer);
        let answer = String::from_utf8_lossy(&answer);
        let status = answer.split(' ').nth(1).unwrap_or("400");
        assert!(["200", "400", "404"].contains(&status), "{answer}");
    }
    for bytes in [&b"\x16\x03\x01\x02\x00"[..], b"GET / HTTP/9.9\r\n\r\n", b"POST /v1/completions HTTP/1.1\r\n"] {
        let mut stream = TcpStream::connect(running.at).expect("a connection");
        stream.write_all(bytes).expect("bytes");
    }
    let after = running.complete(&serde_json::from_str(&good).expect("JSON"))["choices"].clone();
    assert_eq!(before, after);
    running.until("nothing is left", |it| it.metric("zero_sequences_running") == 0.0);
}
