//! Trace: the profile that a binary wrote of a run, as spans of the ops of each rank and step. Never interprets an op.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;

/// The contents of a profile.
#[derive(Debug, PartialEq)]
pub struct RecordedProfile {
    /// The steps of each rank.
    pub ranks: Vec<Vec<RecordedStep>>,
}

/// A step of a rank.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RecordedStep {
    /// Start and length, in seconds.
    pub span: (f64, f64),
    /// Each op, in the order of the schedule.
    pub ops: Vec<RecordedOp>,
}

/// An op of a step, in seconds.
#[derive(Clone, Debug, PartialEq)]
pub struct RecordedOp {
    /// Its name.
    pub name: String,
    /// When it began.
    pub start_s: f64,
    /// How long it took.
    pub seconds: f64,
    /// How long cores worked for it, if recorded in its step.
    pub core_seconds: Option<f64>,
}

#[derive(Deserialize)]
struct File {
    #[serde(rename = "traceEvents")]
    events: Vec<ProfileEvent>,
}

#[derive(Deserialize)]
struct ProfileEvent {
    name: String,
    ph: String,
    pid: usize,
    #[serde(default)]
    ts: f64,
    #[serde(default)]
    dur: f64,
    #[serde(default)]
    args: EventDetails,
}

#[derive(Default, Deserialize)]
struct EventDetails {
    core_us: Option<f64>,
}

impl RecordedOp {
    /// When it ended.
    pub fn end_s(&self) -> f64 {
        self.start_s + self.seconds
    }
}

impl RecordedProfile {
    /// Reads a profile.
    ///
    /// # Errors
    /// Why the file is not a profile.
    pub fn read(path: &Path) -> Result<Self, String> {
        let text = std::fs::read_to_string(path).map_err(|error| error.to_string())?;
        Self::parse(&text)
    }

    fn parse(text: &str) -> Result<Self, String> {
        let file: File = serde_json::from_str(text).map_err(|error| error.to_string())?;
        let mut processes: BTreeMap<usize, Vec<RecordedStep>> = BTreeMap::new();
        // The event of a step comes before the events of its ops.
        for event in file.events.into_iter().filter(|event| event.ph == "X") {
            let steps = processes.entry(event.pid).or_default();
            let (start_s, seconds) = (event.ts * 1e-6, event.dur * 1e-6);
            if event.name.starts_with("step ") {
                steps.push(RecordedStep { span: (start_s, seconds), ops: Vec::new() });
            } else {
                let step = steps.last_mut().ok_or("an op before the first step")?;
                let core_seconds = event.args.core_us.map(|us| us * 1e-6);
                step.ops.push(RecordedOp { name: event.name, start_s, seconds, core_seconds });
            }
        }
        if processes.is_empty() {
            return Err("it has no step".to_owned());
        }
        // Ranks are the processes from 1 on.
        if let Some((pid, expected)) = processes.keys().zip(1..).find(|(pid, expected)| *pid != expected) {
            return Err(format!("it has process {pid}, but no process {expected}"));
        }
        Ok(Self { ranks: processes.into_values().collect() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ops_belong_to_the_step_before_them() {
        let text = r#"{"displayTimeUnit": "ms", "traceEvents": [
            {"name":"process_name","ph":"M","pid":1,"tid":0,"args":{"name":"rank 0"}},
            {"name":"step 3","ph":"X","pid":1,"tid":3,"ts":1.0,"dur":9.0,"args":{}},
            {"name":"forward a","ph":"X","pid":1,"tid":1,"ts":2.0,"dur":3.0,"args":{"gflop":1.0}},
            {"name":"backward a","ph":"X","pid":1,"tid":1,"ts":5.0,"dur":4.0,"args":{"core_us":7.0}},
            {"name":"step 3","ph":"X","pid":2,"tid":3,"ts":1.5,"dur":9.0,"args":{}}]}"#;
        let recorded = RecordedProfile::parse(text).unwrap();
        assert_eq!(recorded.ranks.len(), 2);
        let [step] = &recorded.ranks[0][..] else { panic!("{recorded:?}") };
        let op = |name: &str, start_s, seconds, core_seconds| {
            let name = name.to_owned();
            RecordedOp { name, start_s: start_s * 1e-6, seconds: seconds * 1e-6, core_seconds }
        };
        assert_eq!(step.ops, [op("forward a", 2.0, 3.0, None), op("backward a", 5.0, 4.0, Some(7.0 * 1e-6))]);
        assert!(recorded.ranks[1][0].ops.is_empty());
        for wrong in ["", "{}", "{\"traceEvents\": []}"] {
            RecordedProfile::parse(wrong).unwrap_err();
        }
    }
}
