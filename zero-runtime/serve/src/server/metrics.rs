//! Metrics: what a worker has done, in the text format of Prometheus.

use std::fmt::Write;
use std::sync::atomic::Ordering::Relaxed;

use super::State;

/// All metrics.
pub fn metrics(state: &State) -> String {
    let counts = state.mailbox.counts();
    let mut text = String::new();
    let mut tell = |name: &str, kind: &str, help: &str, values: &[(String, f64)]| {
        let _ = writeln!(text, "# HELP zero_{name} {help}\n# TYPE zero_{name} {kind}");
        for (labels, value) in values {
            let _ = writeln!(text, "zero_{name}{labels} {value}");
        }
    };
    let one = |value: f64| [(String::new(), value)];
    let (open, running) = (counts.open.load(Relaxed), counts.running.load(Relaxed));
    let answered = state.answered.borrow();
    let answered: Vec<(String, f64)> = answered
        .iter()
        .map(|(&(path, status), &count)| (format!("{{path=\"{path}\",status=\"{status}\"}}"), count as f64))
        .collect();
    tell("requests_total", "counter", "Requests by path and status.", &answered);
    tell("slots", "gauge", "Sequences that are decoded at a time, at most.", &one(state.served.slots as f64));
    tell("sequences_running", "gauge", "Sequences in slots.", &one(running as f64));
    tell("sequences_waiting", "gauge", "Sequences that wait.", &one(open.saturating_sub(running) as f64));
    for (name, help, count) in [
        ("prompt_tokens_total", "Tokens of prompts.", &counts.prompt_tokens),
        ("generated_tokens_total", "Tokens that were drawn.", &counts.generated_tokens),
        ("steps_total", "Steps, in each of which every sequence got a token.", &counts.steps),
        ("weight_updates_total", "How often newer weights were taken.", &counts.updates),
    ] {
        tell(name, "counter", help, &one(count.load(Relaxed) as f64));
    }
    for (name, help, count) in [
        ("decoding_seconds_total", "Time spent on prompts and steps.", &counts.busy_ns),
        ("weight_update_seconds_total", "Time for which sequences stood still for newer weights.", &counts.update_ns),
    ] {
        tell(name, "counter", help, &one(count.load(Relaxed) as f64 / 1e9));
    }
    let paused = f64::from(u8::from(counts.is_paused.load(Relaxed)));
    tell("paused", "gauge", "Whether sequences stand still until they are resumed.", &one(paused));
    let version = format!("{{version=\"{}\"}}", counts.version());
    tell("weight_version", "gauge", "The version of the weights in use.", &[(version, 1.0)]);
    text
}
