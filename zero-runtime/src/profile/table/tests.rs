use zero_plan::{Config, Mesh, PlanBuf, Precision, Recompute, Unit, Width};

use super::*;
use zero_engine::{Record, Span};

const MS: u64 = 1_000_000;

/// A record of steps after the second, half a millisecond apart. All ops of a step take equally long: its `op_ms`.
fn profile(ops: usize, op_ms: &[u64]) -> Record {
    let mut profile = Record::new(2, ops, op_ms.len());
    let mut step_ns = 0;
    for op_ns in op_ms.iter().map(|op_ms| op_ms * MS) {
        let starts = (0..ops as u64).map(|op| step_ns + op * op_ns);
        profile.ops.extend(starts.map(|start_ns| Span { start_ns, end_ns: start_ns + op_ns, core_ns: 0 }));
        let end_ns = step_ns + ops as u64 * op_ns;
        profile.steps.push(Span { start_ns: step_ns, end_ns, core_ns: 0 });
        step_ns = end_ns + MS / 2;
    }
    profile
}

#[test]
fn means_ranges_and_speeds_are_as_worked_out_by_hand() {
    let unit = Unit { field: "only", params: 100, takes: 100, operations: 4_000_000, ..Unit::NONE };
    let config = Config { mesh: Mesh::of_zero(2), ..Config::PLAIN };
    let text = PlanBuf::new("", config, &[unit]).with(|plan| {
        let ops = plan.pipeline_stages[0].step.len();
        assert_eq!(ops, 8, "{:?}", plan.pipeline_stages[0].step);
        let ranks = [profile(ops, &[1, 1]), profile(ops, &[2, 2])];
        let machines = [12.0, 8.0].map(|speed| Machine { gflop_per_s: speed, gb_per_s: speed / 2.0 });
        ProfileTables(RecordedRun { plan, ranks: &ranks, machines: &machines, clocks: &[] }).to_string()
    });
    let rows: Vec<String> = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    for row in [
        "profile: milliseconds in a step of a rank, mean of steps 3 to 4",
        // 8 million operations in 3 ms; a share of (8.25 + 16.25) / 2.
        "forward 1 1.50 1.00..2.00 12.2 % 2.67 GFLOP/s 10.0 f32 GFLOP/s",
        "backward 1 1.50 1.00..2.00 12.2 % 5.33 GFLOP/s 10.0 f32 GFLOP/s",
        // 2 x 2800 bytes in 3 ms.
        "update 1 1.50 1.00..2.00 12.2 % 0.002 GB/s 5.00 GB/s",
        // 2 x 448 bytes in 3 ms: the squares of gradients.
        "agree 1 1.50 1.00..2.00 12.2 % 0.000 GB/s 5.00 GB/s",
        "between ops 0.250 0.250..0.250 2.0 %",
        "all 8 12.2 8.25..16.2 100.0 %",
        "only 1.50 2.67 1.50 5.33 1.50",
        // 12 million operations in 8 and in 16 ms.
        "whole step: 1.12 GFLOP/s a rank, 11.2 % of a matrix product in f32 here; median 12.0 ms",
    ] {
        assert!(rows.iter().any(|found| found == row), "no `{row}` in\n{text}");
    }
}

#[test]
fn a_share_above_all_of_the_machine_is_explained() {
    let unit = Unit { params: 100, takes: 100, operations: 4_000_000, ..Unit::NONE };
    PlanBuf::new("", Config::PLAIN, &[unit]).with(|plan| {
        let ranks = [profile(plan.pipeline_stages[0].step.len(), &[1])];
        for (gflop_per_s, is_doubtful) in [(100.0, false), (1.0, true)] {
            let machines = [Machine { gflop_per_s, gb_per_s: 1.0 }];
            let text = ProfileTables(RecordedRun { plan, ranks: &ranks, machines: &machines, clocks: &[] }).to_string();
            assert_eq!(
                text.contains("here (this machine was slower whenever it was measured); median"),
                is_doubtful,
                "{text}"
            );
        }
        let speeds = [(1.0, 5.0), (3.0, 2.0)].map(|(gflop_per_s, gb_per_s)| Machine { gflop_per_s, gb_per_s });
        assert_eq!(speeds[0].best(speeds[1]), Machine { gflop_per_s: 3.0, gb_per_s: 5.0 });
    });
}

#[test]
fn the_whole_step_counts_no_outlier_and_nothing_that_is_recomputed() {
    let unit = |source| Unit { params: 100, takes: 100, operations: 4_000_000, source, ..Unit::NONE };
    let config = Config { recompute: Recompute::Every(1), ..Config::PLAIN };
    PlanBuf::new("", config, &[unit(0), unit(1)]).with(|plan| {
        let ops = plan.pipeline_stages[0].step.len();
        for (op_ms, median) in [(&[9, 1, 2][..], 2.0), (&[4, 9, 1, 2][..], 3.0)] {
            let (ranks, machines) = ([profile(ops, op_ms)], [Machine { gflop_per_s: 1.0, gb_per_s: 1.0 }]);
            let text = ProfileTables(RecordedRun { plan, ranks: &ranks, machines: &machines, clocks: &[] }).to_string();
            let median_ms = median * ops as f64;
            // Twice three times 4 million operations: a forward and a backward pass of each unit.
            let speed = figure(24.0 / median_ms);
            assert!(text.contains(&format!("whole step: {speed} GFLOP/s a rank, ")), "{text}");
            assert!(text.contains(&format!("; median {} ms", figure(median_ms))), "{text}");
        }
    });
}

#[test]
fn the_product_that_a_step_is_held_against_is_of_the_width_that_layers_compute_in() {
    let unit = Unit { params: 100, takes: 100, operations: 4_000_000, ..Unit::NONE };
    let precision = Precision { compute: Width::BF16, ..Precision::default() };
    PlanBuf::new("", Config { precision, ..Config::PLAIN }, &[unit]).with(|plan| {
        let ranks = [profile(plan.pipeline_stages[0].step.len(), &[1])];
        let machines = [Machine { gflop_per_s: 8.0, gb_per_s: 1.0 }];
        let text = ProfileTables(RecordedRun { plan, ranks: &ranks, machines: &machines, clocks: &[] }).to_string();
        assert_eq!(text.matches("8.00 bf16 GFLOP/s").count(), 2, "{text}");
        assert!(text.contains("of a matrix product in bf16 here") && !text.contains("f32"), "{text}");
    });
}
