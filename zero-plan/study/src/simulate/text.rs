//! Text: a prediction as a person reads it. Only formats.

use core::fmt;

use zero_plan::{Bytes, Table};

use super::prediction::{BETTER, Critical, FlowPrediction, PeakPrediction, Prediction};
use super::{LinkKind, StepPart};

/// Prints a prediction.
pub struct PredictionText<'a>(pub &'a Prediction);

/// How many kinds of ops of the critical path are shown.
const CRITICAL: usize = 8;
/// The number of equal parts of a step for which the memory in use is shown.
const SPELLS: usize = 8;

impl fmt::Display for PredictionText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PredictionText(it) = self;
        writeln!(f, "{} on {}", it.model, it.hardware)?;
        writeln!(f, "  device: {:?}, transport: {:?}", it.device, it.transport)?;
        let how = if it.units_are_measured { "as measured there" } else { "by rates, not measured" };
        writeln!(f, "  units: {how}; {} a rank", zero_plan::counted(it.threads, "thread", "threads"))?;
        writeln!(f, "\nstep: {}, {:.0} tokens/s", ShownTime(it.step_s), it.tokens_per_s)?;
        writeln!(f, "share of peak (MFU): {:.1} % of the published rate of matrix products", 100.0 * it.mfu)?;
        writeln!(f, "\n{}", parts(it).fitted().lines().join("\n"))?;
        writeln!(f, "\n{}", memory(it).fitted().lines().join("\n"))?;
        if !it.traffic.is_empty() {
            writeln!(f, "\n{}", traffic(it).fitted().lines().join("\n"))?;
        }
        writeln!(f, "\n{}", critical(it).fitted().lines().join("\n"))?;
        write!(f, "\n{}", better(it).fitted().lines().join("\n"))?;
        it.disk.iter().chain(&it.host).try_for_each(|tier| write!(f, "\n\n{tier}"))?;
        it.publication.iter().try_for_each(|publication| write!(f, "\n\n{publication}"))
    }
}

/// A time with three digits and a suitable unit.
pub struct ShownTime(pub f64);

impl fmt::Display for ShownTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(seconds) = *self;
        let (value, unit) = match seconds {
            0.0 => return f.pad("0"),
            _ if seconds < 1e-3 => (seconds * 1e6, "us"),
            _ if seconds < 1.0 => (seconds * 1e3, "ms"),
            _ => (seconds, "s"),
        };
        let digits = if value < 10.0 {
            2
        } else if value < 100.0 {
            1
        } else {
            0
        };
        f.pad(&format!("{value:.digits$} {unit}"))
    }
}

/// The name of a part of a step.
pub(crate) fn label(part: StepPart) -> String {
    match part {
        StepPart::Forward => "forward".to_owned(),
        StepPart::Backward => "backward".to_owned(),
        StepPart::Recompute => "recompute".to_owned(),
        StepPart::Update => "update".to_owned(),
        StepPart::Memory => "sums and copies".to_owned(),
        StepPart::Exposed(flow, LinkKind::Memory) => format!("waiting: {}", flow.name()),
        StepPart::Exposed(flow, link) => format!("waiting: {}, {}", flow.name(), link.name()),
        StepPart::Bubble => "bubble".to_owned(),
    }
}

fn parts(it: &Prediction) -> Table {
    let mut table = Table::new("time of a step, and memory", pipeline_stages(it));
    let mut kinds: Vec<StepPart> = it
        .pipeline_stages
        .iter()
        .flat_map(|pipeline_stage| pipeline_stage.parts.iter().map(|(part, _)| *part))
        .collect();
    kinds.sort_unstable();
    kinds.dedup();
    for kind in kinds {
        let figures = it.pipeline_stages.iter().map(|pipeline_stage| {
            let seconds: f64 =
                pipeline_stage.parts.iter().filter(|(part, _)| *part == kind).map(|(_, seconds)| seconds).sum();
            if seconds == 0.0 { String::new() } else { format!("{} {}", ShownTime(seconds), share(seconds, it.step_s)) }
        });
        table.row(&label(kind), figures.collect());
    }
    table.row(
        "memory of a rank",
        it.pipeline_stages.iter().map(|pipeline_stage| Bytes(pipeline_stage.memory_bytes).to_string()).collect(),
    );
    let peak = it.pipeline_stages.iter().map(|pipeline_stage| {
        let PeakPrediction { op, at_s, bytes } = &pipeline_stage.peak;
        format!("{} at {}, {op}", Bytes(*bytes), ShownTime(*at_s))
    });
    table.row("peak use of its arena", peak.collect());
    let left = it.pipeline_stages.iter().map(|pipeline_stage| {
        match pipeline_stage.budget_bytes.checked_sub(pipeline_stage.memory_bytes as u64) {
            Some(left) => format!("{} left", Bytes(left as usize)),
            None => format!("{} too much", Bytes(pipeline_stage.memory_bytes - pipeline_stage.budget_bytes as usize)),
        }
    });
    table.row("of what the hardware has", left.collect());
    table
}

/// Headings of columns, one for each pipeline stage.
fn pipeline_stages(it: &Prediction) -> Vec<String> {
    match it.pipeline_stages.len() {
        1 => vec!["a rank".to_owned()],
        count => (0..count).map(|pipeline| format!("pipeline stage {pipeline}")).collect(),
    }
}

fn memory(it: &Prediction) -> Table {
    let mut table = Table::new("peak use of the arena", pipeline_stages(it));
    for spell in 0..SPELLS {
        let [start_s, end_s] = [spell, spell + 1].map(|part| it.step_s * part as f64 / SPELLS as f64);
        let figures = it
            .pipeline_stages
            .iter()
            .map(|pipeline_stage| Bytes(most_in_use(&pipeline_stage.in_use, start_s, end_s)).to_string());
        table.row(&format!("{} to {}", ShownTime(start_s), ShownTime(end_s)), figures.collect());
    }
    table
}

/// The most bytes in use at any time of a stretch. Each pair has a time and the bytes from then until the next pair's
/// time, which may be the same if an op takes no time.
fn most_in_use(in_use: &[(f64, usize)], start_s: f64, end_s: f64) -> usize {
    let ends = in_use.iter().skip(1).map(|(at_s, _)| *at_s).chain([f64::INFINITY]);
    let is_within = |from_s: f64, until_s: f64| from_s < end_s && (until_s > start_s || from_s >= start_s);
    let within = in_use.iter().zip(ends).filter(|((from_s, _), until_s)| is_within(*from_s, *until_s));
    within.map(|((_, bytes), _)| *bytes).max().unwrap_or(0)
}

fn traffic(it: &Prediction) -> Table {
    let headings =
        ["a rank sends", "over the link", "bandwidth", "bytes / bandwidth", "hidden", "exposed", "ring", "tree"];
    let mut table = Table::new("transfers of a step", headings.map(str::to_owned).to_vec());
    for (row, part) in it.traffic.iter().enumerate() {
        let FlowPrediction { flow, link, bytes, bandwidth, busy_s, latency_s, exposed_s, ring_s, tree_s } = part;
        // On the first of its links, because all together carry it.
        let is_first = !it.traffic[..row].iter().any(|other| other.flow == *flow);
        let sent = it.sent.iter().find(|sent| sent.flow == *flow && is_first);
        let time = |seconds: Option<f64>| {
            seconds.filter(|_| *link != LinkKind::Memory).map_or(String::new(), |s| ShownTime(s).to_string())
        };
        let all_s = busy_s + latency_s;
        let hidden = if all_s > 0.0 { share((all_s - exposed_s).max(0.0), all_s) } else { String::new() };
        let rate = match *link {
            LinkKind::Memory => "shared".to_owned(),
            // Only latencies.
            _ if *bytes == 0 => String::new(),
            _ => format!("{:.2} GB/s", bandwidth * 1e-9),
        };
        let figures = vec![
            sent.map_or(String::new(), |sent| Bytes(sent.bytes).to_string()),
            Bytes(*bytes).to_string(),
            rate,
            time(Some(*busy_s)),
            hidden,
            time(Some(*exposed_s)),
            time(*ring_s),
            time(*tree_s),
        ];
        table.row(&format!("{}, {}", flow.name(), link.name()), figures);
    }
    table
}

fn critical(it: &Prediction) -> Table {
    let mut table = Table::new("critical path", vec!["time".to_owned(), "share".to_owned()]);
    let mut row =
        |what: &str, seconds: f64| table.row(what, vec![ShownTime(seconds).to_string(), share(seconds, it.step_s)]);
    let (told, rest) = it.critical.split_at(it.critical.len().min(CRITICAL));
    told.iter().for_each(|Critical { what, seconds }| row(what, *seconds));
    if !rest.is_empty() {
        row("all else", rest.iter().map(|it| it.seconds).sum());
    }
    table
}

fn better(it: &Prediction) -> Table {
    let title = format!("if it were {:.0} % faster", 100.0 * (BETTER - 1.0));
    let mut table = Table::new(&title, vec!["step".to_owned(), "gain".to_owned()]);
    for better in &it.better {
        let gain = format!("{:.1} %", 100.0 * (it.step_s / better.step_s - 1.0));
        table.row(better.what, vec![ShownTime(better.step_s).to_string(), gain]);
    }
    table
}

fn share(part: f64, whole: f64) -> String {
    format!("{:.1} %", 100.0 * part / whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_a_stretch_is_the_most_in_it() {
        let in_use = [(0.0, 5), (1.0, 9), (1.5, 2), (3.0, 7)];
        for (start_s, end_s, most) in [(0.0, 1.0, 5), (0.0, 1.2, 9), (1.5, 3.0, 2), (2.0, 4.0, 7), (1.2, 1.3, 9)] {
            assert_eq!(most_in_use(&in_use, start_s, end_s), most, "{start_s} {end_s}");
        }
        let in_no_time = [(0.0, 5), (1.0, 9), (1.0, 2)];
        assert_eq!([most_in_use(&in_no_time, 0.0, 1.0), most_in_use(&in_no_time, 1.0, 2.0)], [5, 9]);
        assert_eq!(most_in_use(&[], 0.0, 1.0), 0);
    }

    #[test]
    fn times_have_three_digits() {
        for (seconds, text) in [
            (0.0, "0"),
            (1.234e-5, "12.3 us"),
            (9.99e-4, "999 us"),
            (0.0451, "45.1 ms"),
            (0.5, "500 ms"),
            (2.0, "2.00 s"),
        ] {
            assert_eq!(ShownTime(seconds).to_string(), text);
        }
    }
}
