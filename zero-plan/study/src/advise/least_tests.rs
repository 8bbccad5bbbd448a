//! The bound of a step's time, compared with simulated steps, and answers whose bounds show that they are the best.

use zero_plan::spec::Size;
use zero_plan::{Offload, PlanBuf, Unit, Width};

use super::least::UnitShapes;
use super::question::{Judge, Question, Simulated};
use super::search::search;
use super::space::{coarse, fine};
use super::tests::{a100, ask, file, pinned, small, tiny};
use super::transformer::{LLAMA_3_8B, LlamaSizes};
use super::*;
use crate::hardware::Hardware;

/// Numbers that look random, the same in each run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % end
    }

    /// A factor from 1/256 to 1.
    fn factor(&mut self) -> f64 {
        0.5f64.powi(self.below(9) as i32)
    }
}

fn h100() -> Hardware {
    file(include_str!("../../../../hardware/h100.ron"))
}

/// Machines with room for every layout, some of them with slow links, slow memory or long latencies.
fn machine(numbers: &mut Numbers) -> Hardware {
    let mut it = [a100(), h100(), tiny(900_000)][numbers.below(3)].clone();
    it.device.memory = Size::GB(100_000);
    it.device.bandwidth *= numbers.factor();
    it.device.sums = (numbers.below(2) == 0).then_some(it.device.bandwidth * numbers.factor());
    it.device.op *= [0.0, 1.0, 100.0][numbers.below(3)];
    if let Some(link) = &mut it.node.link {
        (link.bandwidth, link.latency) = (link.bandwidth * numbers.factor(), link.latency / numbers.factor());
    }
    if let Some(network) = &mut it.network {
        (network.bandwidth, network.latency) =
            (network.bandwidth * numbers.factor(), network.latency / numbers.factor());
    }
    it
}

/// A short decoder: its embedding is tied to its head, or not, and its head computes losses in its backward, or not.
fn short(width: Width, sequences: usize, is_tied: bool) -> Option<Vec<Unit>> {
    let sizes = LlamaSizes { layers: 10, vocab: 5000, width: 256, hidden: 700, heads: 8, ..LLAMA_3_8B };
    let mut units = sizes.units(width, sequences, 128);
    let last = units.len() - 1;
    units[last].losses_in_backward = !is_tied;
    if is_tied {
        (units[last].source, units[last].params) = (0, 0);
    }
    Some(units)
}

/// No simulated step is shorter than its bound, and some are hardly longer.
#[test]
fn no_step_is_shorter_than_its_bound() {
    let (mut numbers, mut compared, mut tight) = (Numbers(1), 0, 0);
    for round in 0..90 {
        let hardware = machine(&mut numbers);
        let nodes = [1, 2, 3, 4][numbers.below(4)];
        let units: &dyn Fn(Width, usize) -> Option<Vec<Unit>> = match round % 3 {
            0 => &small,
            1 => &|width, sequences| short(width, sequences, false),
            _ => &|width, sequences| short(width, sequences, true),
        };
        let question = pinned(
            Question { pure_bf16: true, ..ask(&hardware, nodes, 128, None, units) },
            if numbers.below(8) == 0 { &["optimizer=Muon"] } else { &[] },
        );
        let (judge, all, mut shapes) =
            (Simulated(&hardware), coarse(&question, &[Offload::NONE]), UnitShapes::new(&question));
        for _ in 0..40 {
            let coarse = all[numbers.below(all.len())];
            let Some(units) = shapes.of(&coarse) else { continue };
            let settings = fine(&question, coarse, units);
            if settings.is_empty() {
                continue;
            }
            let candidate = settings[numbers.below(settings.len())];
            let config = candidate.config(&question);
            if Demand::of(&config, units).is_none() {
                continue;
            }
            let step_s = PlanBuf::new("x", config, units).with(|plan| judge.step_s(plan)).unwrap();
            let ratio = judge.least_s(&config, units) / step_s;
            assert!(
                ratio <= 1.0 + 1e-9,
                "{ratio}: {}",
                candidate.text(&question, std::slice::from_ref(&hardware.name))
            );
            compared += 1;
            tight += usize::from(ratio > 0.9);
        }
    }
    assert!(compared > 1000 && tight > compared / 5, "{tight} of {compared}");
}

/// No layout of Llama 3.1 8B on two nodes is better than the answer: those that were timed take longer, and the bounds of
/// all others too. `.ci/full` asks for more models and machines.
#[test]
fn the_answer_for_two_nodes_is_the_best_layout() {
    let units = |width, sequences| Some(LLAMA_3_8B.units(width, sequences, 8192));
    for hardware in [a100(), h100()] {
        let question = ask(&hardware, 2, 8192, None, &units);
        let found = search(&question, &Simulated(&hardware)).unwrap();
        let (best, rest) = found.timed.split_first().unwrap();
        assert!(rest.iter().all(|other| other.token_s >= best.token_s));
        assert!(found.untimed.iter().all(|&(_, least_s, _)| least_s >= best.token_s) && found.is_exhaustive);
        // All layouts that fit are among them.
        assert!(found.untimed.len() > 10_000 && rest.iter().any(|other| other.candidate.mesh.pipeline > 1));
        assert_eq!((best.candidate.mesh.zero, best.candidate.stage), (16, 3), "{:?}", best.candidate);
    }
}
