//! Longest: how long a sequence may be if all activations stay on a device, if units are recomputed, if activations are kept
//! in a tier, and with both; and how fast each is, by simulation. Writes `docs/activations.md`.

use core::fmt::Write;

use zero_plan::{Bytes, Config, DeviceKind, Home, Mesh, Offload, PlanBuf, Precision, Recompute, TierKind, Width};

use super::fit::Demand;
use super::tests::file;
use super::transformer::LLAMA_3_8B;
use crate::hardware::Hardware;
use crate::repository::text;
use crate::simulate::simulate;

const HARDWARE: &str = "hardware/h100.ron";

/// Lengths are multiples of this many tokens.
const STEP: usize = 1024;

/// A length that all four ways can train, to compare their speed.
const COMMON: usize = 4 * STEP;

const PRECISION: Precision = Precision {
    compute: Width::BF16,
    params: Width::BF16,
    reduce: Width::F32,
    master: Width::F32,
    moments: Width::F32,
};

const HEAD: &str = "\
# Long sequences

Activations grow with the length of a sequence. A device has room for longer ones if units run forward again before their backward
(`recompute: Every(1)`), if their activations wait in a tier (`offload: (activations: Host)`), or both. This page compares them for Llama
3.1 with 8 billion parameters on one node of eight H100 of 80 GB: stage 3, one sequence on each GPU, bf16 with f32 masters and moments.
The longest sequence is a multiple of 1024 tokens whose plan fits in the memory of a GPU and, with it, of the host; tokens a second
are those of a GPU, by simulation with the rates of `hardware/h100.ron`. A test writes this page (`UPDATE_EXPECT=1 cargo test -p
zero-study --lib longest`), and fails if it is out of date.

| activations | longest sequence | in host memory for it | tokens/s at it | tokens/s at 4 K |
|---|---|---|---|---|
";

const TAIL: &str = "
A unit keeps one output if it is recomputed, and tens of such numbers otherwise, so recomputation makes them few and a tier then takes
the rest: what stays is the window of `prefetch` + 2 units, the values of one unit while it is in backward, and the keys and values that
sampling caches. Without recomputation all the values travel, which the link to the host must carry while a unit computes. Longer
sequences give it more time, because attention grows with their square. `cargo zero advise --offload` compares these ways for other
models and machines, and `cargo zero simulate` shows what a plan waits for.
";

/// A way to train long sequences.
struct Way {
    what: &'static str,
    recompute: Recompute,
    activations: TierKind,
}

const WAYS: [Way; 4] = [
    Way { what: "stay on the device", recompute: Recompute::None, activations: TierKind::Device },
    Way { what: "recomputed", recompute: Recompute::Every(1), activations: TierKind::Device },
    Way { what: "in host memory", recompute: Recompute::None, activations: TierKind::Host },
    Way { what: "recomputed, in host memory", recompute: Recompute::Every(1), activations: TierKind::Host },
];

impl Way {
    fn config(&self, hardware: &Hardware, length: usize) -> Config {
        let (device, ranks) = (DeviceKind::Cuda, hardware.node.devices);
        let host_bytes = hardware.node.memory.map(|memory| memory.bytes() as usize / ranks);
        let is_kept = self.activations != TierKind::Device;
        let offload = Offload { activations: self.activations, prefetch: 1, piece_bytes: 4 << 20, ..Offload::NONE };
        Config {
            mesh: Mesh::of_zero(ranks),
            prefetch: 1,
            recompute: self.recompute,
            precision: PRECISION,
            sequences: 1,
            length,
            device,
            transport: device.transport(),
            offload: if is_kept { offload } else { Offload::NONE },
            host_bytes: host_bytes.filter(|_| is_kept),
            ..Config::PLAIN.at_stage(3)
        }
    }

    fn fits(&self, hardware: &Hardware, length: usize) -> bool {
        let config = self.config(hardware, length);
        let need = Demand::of(&config, &LLAMA_3_8B.units(Width::BF16, 1, length));
        need.is_some_and(|need| need.bytes <= hardware.budget_bytes(config.mesh.ranks_per_node()) as usize)
    }

    /// The longest sequence that fits, in tokens.
    fn longest(&self, hardware: &Hardware) -> usize {
        let mut most = 1;
        while self.fits(hardware, 2 * most * STEP) {
            most *= 2;
        }
        let mut step = most;
        while step > 1 {
            step /= 2;
            most += if self.fits(hardware, (most + step) * STEP) { step } else { 0 };
        }
        most * STEP
    }

    /// The bytes that a rank keeps in the memory of its host, and the tokens that it trains a second.
    fn trained(&self, hardware: &Hardware, length: usize) -> (usize, f64) {
        let units = LLAMA_3_8B.units(Width::BF16, 1, length);
        PlanBuf::new("Llama", self.config(hardware, length), &units).with(|plan| {
            let step_s = simulate(plan, hardware).expect("rates of this hardware").step_s;
            (plan.of_rank(0).memory.bytes_of(Home::Host), length as f64 / step_s)
        })
    }
}

#[test]
fn the_page_of_the_longest_sequences_is_up_to_date() {
    let hardware = file(&text(HARDWARE));
    let (mut page, mut longest) = (HEAD.to_owned(), Vec::new());
    for way in WAYS {
        let tokens = way.longest(&hardware);
        assert!(tokens >= COMMON && !way.fits(&hardware, tokens + STEP), "{}: {tokens}", way.what);
        let ((kept, at_it), (_, at_common)) = (way.trained(&hardware, tokens), way.trained(&hardware, COMMON));
        let kept = if kept > 0 { Bytes(kept).to_string() } else { String::new() };
        let _ = writeln!(page, "| {} | {} K | {kept} | {at_it:.0} | {at_common:.0} |", way.what, tokens / STEP);
        longest.push(tokens);
    }
    // Each way is for longer sequences than having none.
    assert!(longest[1..].iter().all(|&tokens| tokens > longest[0]) && longest[3] > longest[1], "{longest:?}");
    page += TAIL;
    expect_test::expect_file!["../../../../docs/activations.md"].assert_eq(&page);
}
