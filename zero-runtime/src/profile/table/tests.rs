use zero_plan::{Config, Mesh, PlanBuf, Unit};

use super::*;
use crate::engine::{Record, Span};

const MS: u64 = 1_000_000;

/// Two steps after the second, half a millisecond apart, of ops that take `op_ms` each.
fn profile(ops: usize, op_ms: u64) -> Record {
    let mut profile = Record::new(2, ops, 2);
    let step_ns = ops as u64 * op_ms * MS;
    for start_ns in [0, step_ns + MS / 2] {
        profile.steps.push(Span { start_ns, end_ns: start_ns + step_ns });
        let starts = (0..ops as u64).map(|op| start_ns + op * op_ms * MS);
        profile.ops.extend(starts.map(|start_ns| Span { start_ns, end_ns: start_ns + op_ms * MS }));
    }
    profile
}

#[test]
fn means_ranges_and_speeds_are_as_worked_out_by_hand() {
    let unit = Unit { field: "only", params: 100, takes: 100, operations: 4_000_000, ..Unit::NONE };
    let config = Config { mesh: Mesh::of_zero(2), ..Config::PLAIN };
    let text = PlanBuf::new("", config, &[unit]).with(|plan| {
        let ops = plan.stages[0].step.len();
        assert_eq!(ops, 8, "{:?}", plan.stages[0].step);
        let ranks = [profile(ops, 1), profile(ops, 2)];
        let machines = [12.0, 8.0].map(|speed| Machine { gflop_per_s: speed, gb_per_s: speed / 2.0 });
        Tables(Recorded { plan, ranks: &ranks, machines: &machines }).to_string()
    });
    let rows: Vec<String> = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    for row in [
        "profile: milliseconds in a step of a rank, mean of steps 3 to 4",
        // 8 million operations in 3 ms; a share of (8.25 + 16.25) / 2.
        "forward 1 1.50 1.00..2.00 12.2 % 2.67 GFLOP/s 10.0 GFLOP/s",
        "backward 1 1.50 1.00..2.00 12.2 % 5.33 GFLOP/s 10.0 GFLOP/s",
        // 2 x 2800 bytes in 3 ms.
        "update 1 1.50 1.00..2.00 12.2 % 0.002 GB/s 5.00 GB/s",
        "agree 1 1.50 1.00..2.00 12.2 %",
        "between ops 0.250 0.250..0.250 2.0 %",
        "all 8 12.2 8.25..16.2 100.0 %",
        "only 1.50 2.67 1.50 5.33 1.50",
        // 12 million operations in 8 and in 16 ms.
        "whole step: 1.12 GFLOP/s a rank, 11.2 % of a matrix product here; median 12.0 ms",
    ] {
        assert!(rows.iter().any(|found| found == row), "no `{row}` in\n{text}");
    }
}
