//! Check: whether the figures of a hardware file are possible. Never knows the use of a figure.

use zero_plan::diagnostic::Diagnostic;
use zero_plan::spec::locate;

use super::{DirectRates, Hardware, HostLink, MeasuredUnit, Network, Processor};

/// The highest rate: 10^18 per second, a hundred times that of today's fastest device.
const RATE_MAX: f64 = 1e18;
/// The lowest plausible rate: a thousand bytes or operations per second.
const RATE_MIN: f64 = 1e3;
/// The longest latency, in seconds.
const LATENCY_MAX: f64 = 10.0;
/// The highest share of the rate of products for attention: a causal mask may hide half of the operations that are
/// counted.
const ATTENTION_MAX: f64 = 2.0;
/// The most devices of a node, links, and threads.
const COUNT_MAX: usize = 4096;
/// The longest time of an op of a unit, in seconds: eleven days.
const TIME_MAX: f64 = 1e6;
/// The most tokens of a micro-batch.
const TOKENS_MAX: usize = 1 << 32;
/// The least memory of a device, in bytes.
const MEMORY_MIN: u64 = 1 << 20;

/// Each impossible figure, in the order of the type's fields.
pub(super) fn problems(hardware: &Hardware, text: &str) -> Vec<Diagnostic> {
    let mut checks = Checks { text, problems: Vec::new() };
    let Hardware { device, node, network, measured, .. } = hardware;
    match device.memory.checked_bytes() {
        Some(bytes) if bytes >= MEMORY_MIN => {
            let reserved = device.reserved.checked_bytes();
            checks.require("device.reserved", reserved.is_some_and(|reserved| reserved < bytes), "less than `memory`");
        }
        _ => checks.require("device.memory", false, "at least MiB(1), and fewer than 2^64 bytes"),
    }
    checks.rate("device.matmul.f32", device.matmul.f32);
    checks.rate("device.matmul.bf16", device.matmul.bf16);
    checks.require("device.achieved", device.achieved > 0.0 && device.achieved <= 1.0, "a share above 0 and at most 1");
    if let Some(attention) = device.attention {
        let is_possible = attention > 0.0 && attention <= ATTENTION_MAX;
        checks.require("device.attention", is_possible, "a share above 0 and at most 2");
    }
    checks.rate("device.bandwidth", device.bandwidth);
    if let Some(sums) = device.sums {
        checks.rate("device.sums", sums);
    }
    checks.latency("device.op", device.op);
    checks.count("node.devices", node.devices);
    if let Some(link) = &node.link {
        checks.rate("node.link.bandwidth", link.bandwidth);
        checks.latency("node.link.latency", link.latency);
        checks.count("node.link.shared_by", link.shared_by);
    }
    if let Some(memory) = node.memory {
        let bytes = memory.checked_bytes();
        match device.kind {
            Processor::Gpu => {
                let is_possible = bytes.is_some_and(|bytes| bytes >= MEMORY_MIN);
                checks.require("node.memory", is_possible, "at least MiB(1), and fewer than 2^64 bytes");
            }
            Processor::Cpu => {
                let is_same = bytes == device.memory.checked_bytes();
                checks.require("node.memory", is_same, "the same as `device.memory`, which ranks of a processor share");
            }
        }
    }
    if let Some(link) = &node.host_link {
        let HostLink { read, write, both, latency, shared_by } = *link;
        checks.direct("node.host_link", &DirectRates { read, write, both, latency });
        checks.count("node.host_link.shared_by", shared_by);
    }
    if let Some(updates) = node.host_updates {
        checks.rate("node.host_updates", updates);
        checks.require(
            "node.host_updates",
            device.kind == Processor::Gpu,
            "no such key: ranks of a processor update themselves",
        );
    }
    if let Some(disk) = &node.disk {
        checks.rate("node.disk.read", disk.read);
        checks.rate("node.disk.write", disk.write);
        if let Some(direct) = &disk.direct {
            checks.direct("node.disk.direct", direct);
        }
        if let Some(endurance) = disk.endurance {
            let is_possible = endurance.checked_bytes().is_some_and(|bytes| bytes >= MEMORY_MIN);
            checks.require("node.disk.endurance", is_possible, "at least MiB(1), and fewer than 2^64 bytes");
        }
    }
    if let Some(handover) = &node.handover {
        checks.latency("node.handover.apart", handover.apart);
        checks.latency("node.handover.turns", handover.turns);
    }
    if let Some(network) = network {
        checks.network("network.", network);
    }
    if let Some(entry) = measured.iter().position(|unit| !is_possible(unit)) {
        let expected = format!(
            "in entry {}, for `{}`: times above 0 and at most 1e6 seconds, 1 to 4096 threads of 1 to 4096 ranks, and 1 to \
             2^32 tokens",
            entry + 1,
            measured[entry].field
        );
        checks.require("measured", false, &expected);
    }
    checks.problems
}

/// [`problems`] of a file that describes only a network.
pub(super) fn network_problems(network: &Network, text: &str) -> Vec<Diagnostic> {
    let mut checks = Checks { text, problems: Vec::new() };
    checks.network("", network);
    checks.problems
}

fn is_possible(unit: &MeasuredUnit) -> bool {
    let MeasuredUnit { forward, backward, update, .. } = unit;
    let times = [forward, backward, update].map(|time| [time.seconds, time.core_seconds]);
    let are_times = times.as_flattened().iter().all(|time| (0.0..=TIME_MAX).contains(time));
    let are_positive = times[..2].as_flattened().iter().all(|&time| time > 0.0);
    let counts = [unit.threads, unit.ranks].iter().all(|count| (1..=COUNT_MAX).contains(count));
    are_times && are_positive && counts && (1..=TOKENS_MAX).contains(&unit.tokens)
}

struct Checks<'t> {
    text: &'t str,
    problems: Vec<Diagnostic>,
}

impl Checks<'_> {
    fn require(&mut self, key: &str, is_met: bool, expected: &str) {
        if is_met {
            return;
        }
        let spans = locate(self.text, key);
        let found = spans.as_ref().map_or("", |spans| &self.text[spans.value.clone()]);
        let message = format!("`{key}` cannot be {}", if found.len() > 40 { "this value" } else { found });
        let problem = Diagnostic::new("Z0176", key, message);
        let expected = format!("expected {expected}");
        self.problems.push(match spans {
            Some(spans) => problem.at(spans.value, expected),
            None => problem.help(expected),
        });
    }

    /// The figures of a network whose keys begin with `section`.
    fn network(&mut self, section: &str, network: &Network) {
        self.rate(&format!("{section}bandwidth"), network.bandwidth);
        self.latency(&format!("{section}latency"), network.latency);
        self.count(&format!("{section}links"), network.links);
    }

    /// The rates of a tier whose keys are in `section`.
    fn direct(&mut self, section: &str, direct: &DirectRates) {
        let before = self.problems.len();
        self.rate(&format!("{section}.read"), direct.read);
        self.rate(&format!("{section}.write"), direct.write);
        // A sum is only compared with rates that are possible.
        if let Some(both) = direct.both.filter(|_| self.problems.len() == before) {
            let is_possible = (RATE_MIN..=direct.read + direct.write).contains(&both);
            self.require(&format!("{section}.both"), is_possible, "1e3 a second to the sum of `read` and `write`");
        }
        self.latency(&format!("{section}.latency"), direct.latency);
    }

    fn rate(&mut self, key: &str, value: f64) {
        self.require(key, (RATE_MIN..=RATE_MAX).contains(&value), "1e3 to 1e18 a second");
    }

    fn latency(&mut self, key: &str, value: f64) {
        self.require(key, (0.0..=LATENCY_MAX).contains(&value), "0 to 10 seconds");
    }

    fn count(&mut self, key: &str, value: usize) {
        self.require(key, (1..=COUNT_MAX).contains(&value), "1 to 4096");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "(name: \"x\", device: (name: \"d\", kind: Gpu, memory: GB(80), reserved: GB(2), \
        matmul: (f32: 19.5e12, bf16: 312e12), achieved: 0.75, attention: 0.5, bandwidth: 2e12, sums: 1e12, op: 5e-6), \
        node: (devices: 8, link: (bandwidth: 300e9, latency: 3e-6), memory: GB(1000), \
        host_link: (read: 25e9, write: 24e9, both: 40e9, latency: 2e-5, shared_by: 2), \
        disk: (read: 6e9, write: 3e9, direct: (read: 5e9, write: 4e9, both: 7e9, latency: 1e-4), endurance: TB(7000)), \
        handover: (apart: 4e-5, turns: 7e-6)), \
        network: (bandwidth: 25e9, latency: 5e-6, links: 8))";

    #[test]
    fn what_is_read_is_what_was_written() {
        let hardware = Hardware::parse(GOOD).unwrap();
        assert_eq!((hardware.node.devices, hardware.network.map(|network| network.links)), (8, Some(8)));
        assert_eq!(hardware.budget_bytes(8), 78_000_000_000);
        let text = zero_plan::spec::ron_options().to_string(&hardware).unwrap();
        assert_eq!(Hardware::parse(&text).unwrap(), hardware);
    }

    #[test]
    fn a_network_has_a_file_of_its_own() {
        let text = "(bandwidth: 25e9, latency: 5e-6, links: 8)";
        assert_eq!(Network::parse(text), Ok(Network { bandwidth: 25e9, latency: 5e-6, links: 8 }));
        let [problem] = &Network::parse(&text.replace("25e9", "25.0")).unwrap_err()[..] else { panic!("one problem") };
        assert_eq!((problem.code, problem.key.as_str(), problem.span.clone()), ("Z0176", "bandwidth", Some(12..16)));
        assert_eq!(Network::parse(GOOD).unwrap_err()[0].code, "Z0175");
    }

    #[test]
    fn z0175_not_understood() {
        for (from, to, expected) in [
            ("op: 5e-6", "opp: 5e-6", "opp"),
            ("kind: Gpu", "kind: Tpu", "Tpu"),
            ("devices: 8", "devices: -8", "-"),
            ("bandwidth: 2e12,", "", "bandwidth"),
            ("name: \"x\",", "name: \"x\"", "omma"),
        ] {
            let problems = Hardware::parse(&GOOD.replacen(from, to, 1)).unwrap_err();
            let [problem] = &problems[..] else { panic!("{problems:?}") };
            assert_eq!(problem.code, "Z0175");
            assert!(problem.message.contains(expected) || from.contains("devices"), "{}", problem.message);
        }
    }

    #[test]
    fn z0176_figures_that_cannot_be() {
        for (from, to, key) in [
            ("memory: GB(80)", "memory: B(80)", "device.memory"),
            ("reserved: GB(2)", "reserved: GB(80)", "device.reserved"),
            ("bf16: 312e12", "bf16: 312e22", "device.matmul.bf16"),
            ("f32: 19.5e12", "f32: 0.0", "device.matmul.f32"),
            ("achieved: 0.75", "achieved: 1.5", "device.achieved"),
            ("attention: 0.5", "attention: 0.0", "device.attention"),
            ("attention: 0.5", "attention: 2.5", "device.attention"),
            ("bandwidth: 2e12", "bandwidth: -2e12", "device.bandwidth"),
            ("sums: 1e12", "sums: 1.0", "device.sums"),
            ("op: 5e-6", "op: -1.0", "device.op"),
            ("devices: 8", "devices: 0", "node.devices"),
            ("300e9", "inf", "node.link.bandwidth"),
            ("latency: 3e-6", "latency: 30.0", "node.link.latency"),
            ("memory: GB(1000)", "memory: B(1)", "node.memory"),
            ("read: 25e9", "read: 25.0", "node.host_link.read"),
            ("write: 24e9", "write: inf", "node.host_link.write"),
            ("both: 40e9", "both: 50e9", "node.host_link.both"),
            ("latency: 2e-5", "latency: 20.0", "node.host_link.latency"),
            ("shared_by: 2", "shared_by: 0", "node.host_link.shared_by"),
            ("read: 6e9", "read: NaN", "node.disk.read"),
            ("read: 5e9", "read: 0.0", "node.disk.direct.read"),
            ("write: 4e9", "write: -4e9", "node.disk.direct.write"),
            ("both: 7e9", "both: 9.1e9", "node.disk.direct.both"),
            ("both: 7e9", "both: NaN", "node.disk.direct.both"),
            ("latency: 1e-4", "latency: -1.0", "node.disk.direct.latency"),
            ("endurance: TB(7000)", "endurance: B(1)", "node.disk.endurance"),
            ("apart: 4e-5", "apart: 40.0", "node.handover.apart"),
            ("turns: 7e-6", "turns: -7e-6", "node.handover.turns"),
            ("links: 8", "links: 5000", "network.links"),
            ("bandwidth: 25e9", "bandwidth: 25.0", "network.bandwidth"),
        ] {
            let text = GOOD.replacen(from, to, 1);
            let problems = Hardware::parse(&text).unwrap_err();
            let [problem] = &problems[..] else { panic!("{from}: {problems:?}") };
            assert_eq!((problem.code, problem.key.as_str()), ("Z0176", key));
            let span = problem.span.clone().unwrap();
            assert!(to.ends_with(&text[span.clone()]) || to == &text[span], "{key}");
        }
    }

    /// Otherwise one of the two would be ignored.
    #[test]
    fn z0176_a_processor_has_the_memory_of_its_node() {
        let cpu =
            |node: &str| Hardware::parse(&GOOD.replace("kind: Gpu", "kind: Cpu").replace("memory: GB(1000)", node));
        assert!(cpu("memory: GB(80)").is_ok());
        let problems = cpu("memory: GB(40)").unwrap_err();
        let [problem] = &problems[..] else { panic!("{problems:?}") };
        assert_eq!((problem.code, problem.key.as_str()), ("Z0176", "node.memory"));
    }

    #[test]
    fn z0176_measured_figures_that_cannot_be() {
        let unit = "(model: \"m\", field: \"f\", position: 0, params: 1, compute: F32, tokens: 512, threads: 2, ranks: 1, \
            forward: (seconds: 0.5, core_seconds: 0.9), backward: (seconds: 1.0, core_seconds: 1.8), \
            update: (seconds: 0.0, core_seconds: 0.0))";
        let with = |unit: &str| Hardware::parse(&format!("{}, measured: [{unit}])", GOOD.strip_suffix(')').unwrap()));
        assert_eq!(with(unit).unwrap().measured.len(), 1);
        for (from, to) in [
            ("threads: 2", "threads: 9223372036854775807"),
            ("threads: 2", "threads: 0"),
            ("ranks: 1", "ranks: 18446744073709551615"),
            ("ranks: 1", "ranks: 0"),
            ("tokens: 512", "tokens: 0"),
            ("seconds: 0.5", "seconds: 1e300"),
            ("seconds: 0.5", "seconds: 0.0"),
            ("core_seconds: 1.8", "core_seconds: 0.0"),
            ("core_seconds: 0.0", "core_seconds: NaN"),
        ] {
            let problems = with(&format!("{unit}, {}", unit.replace(from, to))).unwrap_err();
            assert!(problems[0].label.starts_with("expected in entry 2, for `f`: "), "{:?}", problems[0]);
            assert_eq!((problems[0].code, problems[0].key.as_str()), ("Z0176", "measured"), "{to}");
        }
    }
}
