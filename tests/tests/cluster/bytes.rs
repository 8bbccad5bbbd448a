//! The network carries the planned bytes: bytes on a host's card are compared with those that its ranks send to other hosts.

use serde_json::Value;
use zero_core::model::Program;
use zero_plan::{Plan, PlanBuf, Traffic};
use zero_runtime::device::Device;
use zero_tests::layout::changed;
use zero_tests::specs::program;

use crate::net::{Mpi, Net, words};

/// Steps of two runs, whose difference cancels the start.
const STEPS: [usize; 2] = [20, 220];

/// Protocols add headers to each segment of 1448 bytes, an acknowledgement to every two segments, and an envelope to
/// each message, of a few KiB here.
const OVERHEAD: f64 = 0.25;

/// Bytes that all ranks of the first host send to other hosts in a step.
struct Planned<'a>(&'a [String]);

impl Planned<'_> {
    fn on<D: Device>(self, program: &'static Program<D>) -> Traffic {
        let of = |plan: &Plan| {
            let (first, end) = plan.config.sharing(0);
            (first..end).fold(Traffic::default(), |mut sum, rank| {
                sum += Traffic::between_hosts(plan, rank, plan.of_rank(rank).step);
                sum
            })
        };
        PlanBuf::new(program.plan.model, changed(program.plan.config, self.0), program.plan.units).with(of)
    }
}

/// Bytes that the first host has sent so far.
fn sent(net: &Net) -> usize {
    let output = net.on(0, "cat /sys/class/net/eth0/statistics/tx_bytes").output().expect("a host");
    String::from_utf8_lossy(&output.stdout).trim().parse().expect("a number")
}

#[test]
fn bytes_on_the_network_are_those_of_the_plan() {
    let Some(net) = Net::of(2) else { return };
    let layouts = [
        ["mesh=1x1x4", "stage=3", "hosts=2"],
        // ZeRO stays within a host: only sums over replicas leave it.
        ["mesh=1x2x2", "stage=3", "hosts=2"],
        ["mesh=2x1x2", "stage=2", "hosts=2"],
    ];
    let there = Mpi::all();
    let rows = layouts.into_iter().flat_map(|layout| ["zero3", "mixed"].map(|name| (name, layout)));
    for ((name, words_of), mpi) in rows.zip(there.iter().cycle()) {
        let layout: Vec<String> = words_of.map(str::to_owned).to_vec();
        let planned = Planned(&layout).on(program(name));
        let library = mpi.library();
        let measured = STEPS.map(|steps| {
            let before = sent(&net);
            let program = format!("{} {name} {} steps={steps}", env!("CARGO_BIN_EXE_spec"), layout.join(" "));
            let output = net.launch(*mpi, 2, 2, &[("ZERO_MPI", &library)], &program).output().expect("a launcher");
            assert!(output.status.success(), "{program}: {}", words(&output));
            sent(&net) - before
        });
        let measured = (measured[1] - measured[0]) as f64 / (STEPS[1] - STEPS[0]) as f64;
        let planned_bytes = planned.total_bytes() as f64;
        let ratio = measured / planned_bytes;
        assert!(
            (1.0..1.0 + OVERHEAD).contains(&ratio),
            "{mpi:?}, {name}, {words_of:?}: {measured} bytes a step on the network, planned are {planned:?}, {planned_bytes}"
        );
        if words_of[0] == "mesh=1x2x2" {
            assert_eq!((planned.gather_bytes, planned.reduce_bytes), (0, 0), "ZeRO stays within a host");
        }
    }
}

/// Trains four ranks on two hosts for some steps. Returns the bytes that a rank sends to the other host in a step, from the report
/// and from the metrics of each step, and those that it takes from its own host.
pub fn reported(net: &Net, mpi: Mpi, program: &str, variables: &[(&str, &str)]) -> (u64, u64) {
    let folder = tempfile::tempdir().expect("a folder");
    let metrics = folder.path().join("metrics.jsonl");
    let (text, file) = (crate::text(), metrics.display());
    let program = format!("{program} --steps 3 --sample 0 --held-out 0 --data {} --metrics {file}", text.display());
    let library = mpi.library();
    let environment = [&[("ZERO_MPI", &*library)], variables].concat();
    let output = net.launch(mpi, 2, 2, &environment, &program).output().expect("a launcher");
    let all = words(&output);
    assert!(output.status.success(), "{mpi:?}: {all}");
    let row = all.lines().find_map(|line| line.strip_prefix("bytes between hosts per step"));
    let row = row.unwrap_or_else(|| panic!("no such row: {all}"));
    let row: Vec<u64> = row.split_whitespace().map(|number| number.parse().expect("a number")).collect();
    assert!(row.len() == 2 && row[0] == row[1] && row[0] > 0, "{all}");
    let lines = std::fs::read_to_string(&metrics).expect("metrics");
    let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let steps: Vec<&Value> = lines.iter().filter(|line| line["kind"] == "step").collect();
    assert_eq!(steps.len(), 3, "{lines:?}");
    let within = steps[0]["within_host_bytes"].as_u64().expect("bytes");
    for line in steps {
        // All ranks send the same number of bytes.
        assert!(line["between_hosts_bytes"] == row[0] && line["within_host_bytes"] == within, "{line}");
    }
    (row[0], within)
}

#[test]
fn bytes_between_hosts_are_in_the_report_and_in_the_metrics() {
    let Some(net) = Net::of(2) else { return };
    for mpi in Mpi::all() {
        let (between, within) = reported(&net, mpi, env!("CARGO_BIN_EXE_hosts"), &[]);
        assert!(within > between, "{mpi:?}: {within}, {between}");
    }
}
