//! Table: where the time of a step goes, by op, unit and bucket, and how fast this machine could do it. Never measures.

use core::fmt;

use zero_plan::{Class, Plan, Ranges, Table};

use super::clocks::within_ns;
use super::mean::{MeanRank, OpSum, mean, of_pipeline_stage};
use super::{Machine, RecordedRun, Work};

/// Prints the time in a step of a rank by op, by unit and by bucket. Figures are means over the recorded steps and over
/// ranks: over all of them by op, and by unit or bucket over those of its pipeline stage.
pub struct ProfileTables<'a>(pub RecordedRun<'a>);

impl fmt::Display for ProfileTables<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RecordedRun { plan, ranks, machines, clocks } = self.0;
        let Some(first) = ranks.first().filter(|first| !first.steps.is_empty()) else { return Ok(()) };
        let (from, steps) = (first.first_step + 1, first.steps.len() as u64);
        let ranks: Vec<MeanRank> =
            ranks.iter().enumerate().map(|(rank, record)| MeanRank::new(plan, rank, record)).collect();
        let machine = mean_machine(machines);
        writeln!(f, "profile: milliseconds in a step of a rank, mean of steps {from} to {}", from + steps - 1)?;
        for table in [by_op(plan, &ranks, &machine), by_unit(plan, &ranks), by_bucket(plan, &ranks)] {
            writeln!(f, "\n{}", table.fitted().lines().join("\n"))?;
        }
        writeln!(f, "\n{}", whole_step(plan, &ranks, &machine))?;
        if clocks.is_empty() {
            return Ok(());
        }
        writeln!(f, "clocks of hosts are within {:.0} us of one another", (within_ns(clocks) as f64 / 1e3).ceil())
    }
}

/// The name of the width that layers compute in, and of the matrix products by which the machine was measured.
fn width(plan: &Plan) -> &'static str {
    plan.config.precision.compute.name()
}

fn by_op(plan: &Plan, ranks: &[MeanRank], machine: &Machine) -> Table {
    let product_rate = rate(machine.gflop_per_s, &format!("{} GFLOP/s", width(plan)));
    let headings = ["ops", "ms", "min..max", "share", "achieved", "this machine"];
    let mut table = Table::new("op", headings.map(str::to_owned).to_vec());
    let mut names: Vec<&str> = ranks.iter().flat_map(|rank| rank.ops).map(|op| op.name()).collect();
    names.sort_unstable();
    names.dedup();
    let sums = |name: &str| ranks.iter().map(|rank| rank.sum(|op| op.name() == name)).collect::<Vec<_>>();
    let mut rows: Vec<(&str, Vec<OpSum>)> = names.into_iter().map(|name| (name, sums(name))).collect();
    let ms = |sums: &[OpSum]| mean(sums.iter().map(|sum| sum.ms));
    rows.sort_by(|(_, a), (_, b)| ms(b).total_cmp(&ms(a)));
    let between = |rank: &MeanRank| OpSum { ms: rank.step_ms - rank.sum(|_| true).ms, ..OpSum::default() };
    rows.push(("between ops", ranks.iter().map(between).collect()));
    rows.push(("all", ranks.iter().map(|rank| OpSum { ms: rank.step_ms, ..rank.sum(|_| true) }).collect()));
    let step_ms = mean(ranks.iter().map(|rank| rank.step_ms));
    for (name, sums) in rows {
        let all = sums.iter().fold(OpSum::default(), |all, sum| all.add(*sum));
        let (achieved, can) = match (name, all.work) {
            ("all", _) | (_, Work { operations: 0, bytes: 0 }) => Default::default(),
            (_, Work { operations: 0, .. }) => (rate(all.gb_per_s(), "GB/s"), rate(machine.gb_per_s, "GB/s")),
            _ => (rate(all.gflop_per_s(), "GFLOP/s"), product_rate.clone()),
        };
        let ops = if all.ops == 0 { String::new() } else { brief(all.ops as f64 / ranks.len() as f64) };
        let share = format!("{:.1} %", 100.0 * ms(&sums) / step_ms);
        table.row(name, vec![ops, figure(ms(&sums)), range(&sums), share, achieved, can]);
    }
    table
}

fn by_unit(plan: &Plan, ranks: &[MeanRank]) -> Table {
    let computed = [Class::Forward, Class::Recompute, Class::Backward];
    let moved = [Class::Gather, Class::Parcel, Class::Update];
    let headings =
        computed.iter().flat_map(|class| [class.name(), "GFLOP/s"]).chain(moved.iter().map(|class| class.name()));
    let mut table = Table::new("unit", headings.map(str::to_owned).collect());
    for (number, unit) in plan.units.iter().enumerate() {
        let pipeline = plan.placements[number].pipeline_stage;
        let sum = |class| of_pipeline_stage(ranks, pipeline, |op| op.unit() == Some(number) && op.class() == class);
        let mut figures = Vec::new();
        for class in computed {
            let sum = sum(class);
            let speed = if sum.work.operations == 0 { String::new() } else { figure(sum.gflop_per_s()) };
            figures.extend([time(&sum, ranks, pipeline), speed]);
        }
        figures.extend(moved.iter().map(|&class| time(&sum(class), ranks, pipeline)));
        table.row(&unit.to_string(), figures);
    }
    table
}

fn by_bucket(plan: &Plan, ranks: &[MeanRank]) -> Table {
    let phases = ["claim", "reduce", "settle", "combine", "spread"];
    let mut table = Table::new("bucket", phases.map(str::to_owned).to_vec());
    for (number, bucket) in plan.buckets.iter().enumerate().filter(|(_, bucket)| bucket.elements > 0) {
        let sum = |phase: &str| {
            of_pipeline_stage(ranks, bucket.pipeline_stage, |op| op.bucket() == Some(number) && op.name() == phase)
        };
        let units: Vec<usize> = (bucket.first..=bucket.last).collect();
        let label = format!("{number}: {}", Ranges(plan.units, &units).to_strings().join(", "));
        table.row(&label, phases.iter().map(|phase| time(&sum(phase), ranks, bucket.pipeline_stage)).collect());
    }
    table
}

/// The mean time over the ranks of a pipeline stage. Empty if there is no such op.
fn time(all: &OpSum, ranks: &[MeanRank], pipeline: usize) -> String {
    let count = ranks.iter().filter(|rank| rank.pipeline == pipeline).count();
    if all.ops == 0 { String::new() } else { figure(all.ms / count as f64) }
}

fn whole_step(plan: &Plan, ranks: &[MeanRank], machine: &Machine) -> String {
    let speed = mean(ranks.iter().map(|rank| rank.needed_operations as f64 / rank.median_ms * 1e-6));
    let share = 100.0 * speed / machine.gflop_per_s;
    let doubt = if share > 100.0 { " (this machine was slower whenever it was measured)" } else { "" };
    format!(
        "whole step: {} a rank, {share:.1} % of a matrix product in {} here{doubt}; median {} ms",
        rate(speed, "GFLOP/s"),
        width(plan),
        figure(mean(ranks.iter().map(|rank| rank.median_ms))),
    )
}

fn mean_machine(machines: &[Machine]) -> Machine {
    Machine {
        gflop_per_s: mean(machines.iter().map(|machine| machine.gflop_per_s)),
        gb_per_s: mean(machines.iter().map(|machine| machine.gb_per_s)),
    }
}

/// The least and the most of all ranks, if there are several.
fn range(sums: &[OpSum]) -> String {
    let ms = || sums.iter().map(|sum| sum.ms);
    let (least, most) = (ms().fold(f64::INFINITY, f64::min), ms().fold(0.0, f64::max));
    if sums.len() == 1 { String::new() } else { format!("{}..{}", figure(least), figure(most)) }
}

/// A number with three digits.
fn figure(number: f64) -> String {
    let decimals = match number.abs() {
        100.0.. => 0,
        10.0.. => 1,
        1.0.. => 2,
        _ => 3,
    };
    format!("{number:.decimals$}")
}

fn rate(number: f64, unit: &str) -> String {
    format!("{} {unit}", figure(number))
}

/// A number with a decimal only if it needs one. Pipeline stages may have different numbers of ops, so their mean may
/// not be whole.
fn brief(number: f64) -> String {
    if number.fract() == 0.0 { number.to_string() } else { format!("{number:.1}") }
}

#[cfg(test)]
mod tests;
