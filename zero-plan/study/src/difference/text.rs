//! Text: a difference as text for a review. Only formats; equal parts are left out.

use core::fmt;

use zero_plan::{Bytes, Table};

use super::{Departure, Difference, Figures};
use crate::simulate::ShownTime;

/// Prints a difference.
pub struct DifferenceText<'a>(pub &'a Difference);

impl fmt::Display for DifferenceText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let DifferenceText(it) = self;
        let [first, second] = &it.specs;
        if it.is_equal {
            return write!(f, "{first} and {second} give the same plan of {}", it.models[0]);
        }
        write!(f, "{first} -> {second}")?;
        let [of_first, of_second] = &it.models;
        let models = if of_first == of_second { of_first.clone() } else { format!("{of_first} -> {of_second}") };
        write!(f, ": {models}")?;
        let blocks = [
            keys(it),
            figures("memory of the rank that needs most", &it.memory, |figure| Bytes(figure).to_string()),
            figures("sent in a step by the rank that sends most", &it.sent, |figure| Bytes(figure).to_string()),
            figures("ops of a step", &it.ops, |figure| figure.to_string()),
            step(it),
            schedules(&it.schedules),
        ];
        blocks.iter().filter(|lines| !lines.is_empty()).try_for_each(|lines| write!(f, "\n\n{}", lines.join("\n")))
    }
}

fn columns() -> Vec<String> {
    ["first", "second", "change"].map(str::to_owned).to_vec()
}

fn keys(difference: &Difference) -> Vec<String> {
    if difference.keys.is_empty() {
        return vec!["keys: none differ".to_owned()];
    }
    let shown = |value: &Option<String>| value.clone().unwrap_or_else(|| "-".to_owned());
    let mut table = Table::new("keys", columns()[..2].to_vec());
    for change in &difference.keys {
        table.row(change.key, vec![shown(&change.first), shown(&change.second)]);
    }
    table.fitted().lines()
}

/// A table of the figures that differ, and the total; one line if none differs.
fn figures(title: &str, figures: &[Figures], shown: fn(usize) -> String) -> Vec<String> {
    let differs = |it: &&Figures| it.first != it.second;
    if !figures.iter().any(|it| differs(&it)) {
        return vec![format!("{title}: the same")];
    }
    let mut table = Table::new(title, columns());
    for it in figures.iter().filter(|it| differs(it) || it.what == "total") {
        let change = match it.second.cmp(&it.first) {
            core::cmp::Ordering::Less => format!("-{}", shown(it.first - it.second)),
            core::cmp::Ordering::Equal => "0".to_owned(),
            core::cmp::Ordering::Greater => format!("+{}", shown(it.second - it.first)),
        };
        table.row(&it.what, vec![shown(it.first), shown(it.second), change]);
    }
    table.fitted().lines()
}

fn step(difference: &Difference) -> Vec<String> {
    let Some([first, second]) = difference.step_s else { return Vec::new() };
    let percent = 100.0 * (second / first - 1.0);
    vec![format!("predicted step: {} -> {}, {percent:+.1} %", ShownTime(first), ShownTime(second))]
}

fn schedules(departures: &[Departure]) -> Vec<String> {
    if departures.is_empty() {
        return vec!["schedules: the same".to_owned()];
    }
    let shown = |op: &Option<String>| op.as_ref().map_or("nothing".to_owned(), |op| format!("`{op}`"));
    let line = |it: &Departure| {
        let Departure { pipeline_stage, op, first, second } = it;
        format!("  pipeline stage {pipeline_stage}, op {op}: {} -> {}", shown(first), shown(second))
    };
    ["schedules first differ in".to_owned()].into_iter().chain(departures.iter().map(line)).collect()
}
