//! Updates: newer weights between two steps, by each policy; pauses; and the end.

use std::time::Duration;

use serde_json::{Value, json};
use zero_core::sampling::Sampling;

use super::toy::{Running, Start, expected};
use crate::OnUpdate;

const PLAIN: Sampling = Sampling { temperature: 1.0, top_k: None, top_p: 1.0 };

/// The answer to a request of 12 tokens during which newer weights come after `steps` steps.
fn updated(on_update: OnUpdate, steps: usize) -> (Value, Value) {
    let running = Running::new(Start { on_update, ..Start::default() });
    running.gate.allow(steps);
    let asked = json!({ "prompt": "start", "seed": 9, "max_tokens": 12 });
    let answer = std::thread::scope(|scope| {
        let answer = scope.spawn(|| running.complete(&asked));
        running.until("the steps are done", |it| it.metric("zero_steps_total") == steps as f64);
        running.update();
        // The step that is under way when they come is of the older ones.
        running.gate.open();
        answer.join().expect("an answer")
    });
    (answer["choices"][0].clone(), running.complete(&asked)["choices"][0].clone())
}

/// The versions of the steps of an answer, by its spans.
fn versions(choice: &Value) -> Vec<usize> {
    let mut versions = Vec::new();
    for span in choice["weight_versions"].as_array().expect("spans") {
        assert_eq!(span["start"], versions.len());
        let version = span["version"].as_str().and_then(|it| it.strip_prefix('v')?.parse().ok()).expect("a version");
        versions.resize(span["end"].as_u64().expect("an end") as usize, version);
    }
    versions
}

#[test]
fn newer_weights_change_the_next_token_on() {
    for (on_update, anew) in [(OnUpdate::Keep, false), (OnUpdate::Recompute, true)] {
        let (during, after) = updated(on_update, 4);
        let of_steps = versions(&during);
        let newer = of_steps.iter().filter(|&&version| version == 1).count();
        assert!(of_steps.is_sorted() && of_steps.len() == 12 && (6..8).contains(&newer), "{of_steps:?}");
        let said = |versions: &[usize], anew| json!(expected("start", 9, PLAIN, versions, anew));
        assert_eq!(during["text"], said(&of_steps, anew));
        assert_ne!(during["text"], said(&of_steps, !anew));
        assert_eq!((versions(&after), &after["text"]), (vec![1; 12], &said(&[1; 12], false)));
    }
}

#[test]
fn newer_weights_wait_for_answers_or_end_them() {
    let (during, after) = updated(OnUpdate::Wait, 4);
    assert_eq!((versions(&during), versions(&after)), (vec![0; 12], vec![1; 12]));
    assert_eq!(during["text"], expected("start", 9, PLAIN, &[0; 12], false));
    let (during, after) = updated(OnUpdate::Abort, 4);
    let of_steps = versions(&during);
    assert_eq!((&during["finish_reason"], versions(&after)), (&json!("abort"), vec![1; 12]));
    assert_eq!(during["text"], expected("start", 9, PLAIN, &of_steps, false));
    assert!((5..7).contains(&of_steps.len()), "{of_steps:?}");
}

/// Sequences that come while weights wait for others have the newer ones.
#[test]
fn those_who_come_later_wait_for_the_weights_that_wait() {
    let running = Running::new(Start { on_update: OnUpdate::Wait, ..Start::default() });
    running.gate.allow(2);
    let asked = json!({ "prompt": "start", "seed": 9, "max_tokens": 12 });
    std::thread::scope(|scope| {
        let first = scope.spawn(|| running.complete(&asked));
        running.until("the steps are done", |it| it.metric("zero_steps_total") == 2.0);
        running.update();
        let second = scope.spawn(|| running.complete(&asked));
        running.until("it waits", |it| it.metric("zero_sequences_waiting") == 1.0);
        running.gate.open();
        let of = |answer: Value| versions(&answer["choices"][0]);
        assert_eq!(of(first.join().expect("an answer")), [0; 12]);
        assert_eq!(of(second.join().expect("an answer")), [1; 12]);
    });
}

#[test]
fn an_idle_worker_takes_newer_weights() {
    for on_update in [OnUpdate::Keep, OnUpdate::Recompute, OnUpdate::Wait, OnUpdate::Abort] {
        let running = Running::new(Start { on_update, ..Start::default() });
        for number in 1..4 {
            running.update();
            running.until("it has them", |it| it.metric("zero_weight_updates_total") == f64::from(number));
        }
        let (_, info) = running.ask("GET", "/weight_info", "");
        assert_eq!(info, json!({ "source": "a test", "updates": 3, "weight_version": "v3" }).to_string());
        let answer = running.complete(&json!({ "prompt": "a", "seed": 2, "max_tokens": 5 }));
        assert_eq!(answer["choices"][0]["text"], expected("a", 2, PLAIN, &[3; 5], false));
    }
}

#[test]
fn a_pause_keeps_ends_or_waits_for_answers() {
    for (mode, reason, tokens) in [("keep", "length", 12), ("abort", "abort", 0), ("wait", "length", 12)] {
        let running = Running::new(Start::default());
        running.gate.allow(2);
        let asked = json!({ "prompt": "p", "seed": 1, "max_tokens": 12 });
        std::thread::scope(|scope| {
            let during = scope.spawn(|| running.complete(&asked));
            running.until("the steps are done", |it| it.metric("zero_steps_total") == 2.0);
            assert_eq!(running.ask("POST", &format!("/pause?mode={mode}"), "").0, 200);
            running.gate.open();
            running.until("it stands still", |it| {
                it.ask("GET", "/is_paused", "").1 == "{\"is_paused\":true}"
                    && it.metric("zero_sequences_running") == f64::from(u8::from(mode == "keep"))
            });
            let later = scope.spawn(|| running.complete(&json!({ "prompt": "later", "seed": 4, "max_tokens": 3 })));
            running.until("it waits", |it| it.metric("zero_sequences_waiting") == 1.0);
            running.update();
            running.until("weights come", |it| it.metric("zero_weight_updates_total") == 1.0);
            assert_eq!(running.ask("POST", "/resume", "").0, 200);
            let choice = during.join().expect("an answer")["choices"][0].clone();
            assert_eq!(choice["finish_reason"], reason, "{mode}");
            let of_steps = versions(&choice);
            assert!(tokens == 0 || of_steps.len() == tokens, "{mode}: {of_steps:?}");
            assert_eq!(choice["text"], expected("p", 1, PLAIN, &of_steps, false), "{mode}");
            assert_eq!(versions(&later.join().expect("an answer")["choices"][0]), [1; 3]);
        });
    }
}

#[test]
fn those_who_go_away_during_a_pause_leave_their_places() {
    let running = Running::new(Start::default());
    running.ask("POST", "/pause", "");
    let asked = json!({ "prompt": "p", "max_tokens": 12 }).to_string();
    let waiting: Vec<_> = (0..5).map(|_| running.begin("POST", "/v1/completions", &asked, "")).collect();
    running.until("they wait", |it| it.metric("zero_sequences_waiting") == 5.0);
    drop(waiting);
    running.until("nobody waits", |it| it.metric("zero_sequences_waiting") == 0.0);
}

#[test]
fn a_worker_that_is_to_end_finishes_what_it_has_begun() {
    let running = Running::new(Start { drain: Duration::from_secs(20), ..Start::default() });
    running.gate.allow(2);
    let asked = json!({ "prompt": "p", "seed": 1, "max_tokens": 12 });
    std::thread::scope(|scope| {
        let during = scope.spawn(|| running.complete(&asked));
        running.until_running(1.0);
        running.mailbox.end();
        let (status, body) = running.ask("POST", "/v1/completions", &asked.to_string());
        assert!(status == 503 && body.contains("this worker ends"), "{status}: {body}");
        running.gate.open();
        assert_eq!(during.join().expect("an answer")["choices"][0]["text"], expected("p", 1, PLAIN, &[0; 12], false));
    });
    running.end();
}

#[test]
fn an_answer_that_takes_too_long_ends_with_the_worker() {
    let running = Running::new(Start { drain: Duration::from_millis(50), ..Start::default() });
    running.gate.allow(1);
    let asked = json!({ "prompt": "p", "seed": 1, "max_tokens": 60 }).to_string();
    std::thread::scope(|scope| {
        let during = scope.spawn(|| running.ask("POST", "/v1/completions", &asked));
        running.until_running(1.0);
        running.mailbox.end();
        while !during.is_finished() {
            running.gate.allow(1);
            std::thread::sleep(Duration::from_millis(60));
        }
        let (status, body) = during.join().expect("an answer");
        assert!(status == 503 && body.contains("this worker has ended"), "{status}: {body}");
    });
    running.end();
}
