//! Times: what states in host memory added to a step elsewhere, beside what `simulate` predicts for as many bytes.

use core::fmt::Write;

use zero_plan::{Config, Offload, PlanBuf, Precision, Recompute, Unit, UpdatePlace, Width};

use super::{WIDTHS, config, offloaded};
use crate::hardware::Hardware;
use crate::repository::text;
use crate::simulate::simulate;

const TIMES_HEAD: &str = "
## What host memory adds to a step

Seconds that a step takes longer with the optimizer's states in host memory than without. Predicted: the same by `simulate`, of a plan
at stage 3 with as many parameters on as many ranks, whose units compute nothing, with the link of the hardware file. There the update is
on the GPU, which fetches and stores pieces at once, or, in the column before the last, on the host's cores at the rate of the hardware file.
Others copy all states first and back at last, or update on the host's cores.

| who | model | published | predicted | predicted / published | with `update_on: Host` | their update |
|---|---|---|---|---|---|---|
";

const TIMES_TAIL: &str = "
**All rows miss.** The first row moves the same bytes, first one way and then the other, and its two times are those of different
changes to that program. In the others, updates run on processors, and take longer than is predicted even for those. PrimeIntellect's
prime-rl #1694 says that 4 B parameters on 4 GPUs with an update like that of the first row are 2 % slower, without the
";

/// States in host memory.
struct StatesOnHost {
    params: f64,
    ranks: usize,
    hardware: &'static str,
    has_master_copy: bool,
}

/// What they added to a step elsewhere.
struct AddedTime {
    who: &'static str,
    model: &'static str,
    moved: StatesOnHost,
    /// Seconds of a step without and with them.
    published_s: [f64; 2],
    update: &'static str,
}

const ADDED_TIMES: [AddedTime; 3] = [
    AddedTime {
        who: "prime-rl #3234 and #3258",
        model: "Qwen3-30B-A3B, moments, 8 H200",
        moved: StatesOnHost { params: 30.5e9, ranks: 8, hardware: "h200", has_master_copy: false },
        published_s: [1.75, 3.13],
        update: "on the GPU",
    },
    AddedTime {
        who: "NeMo-RL #3628",
        model: "Qwen3-0.6B, 1 H100",
        moved: StatesOnHost { params: 0.6e9, ranks: 1, hardware: "h100", has_master_copy: true },
        published_s: [0.752, 1.678],
        update: "on the host's cores",
    },
    AddedTime {
        who: "DeepSpeed, blogs/deepspeed-zenflow, ZeRO-Offload",
        model: "Llama 2 7B, 4 A100",
        moved: StatesOnHost { params: 6.74e9, ranks: 4, hardware: "a100-80", has_master_copy: true },
        published_s: [0.5, 7.0],
        update: "on the host's cores",
    },
];

/// Of prime-rl #1694, which names no GPU.
const PRIME_RL_4B: StatesOnHost = StatesOnHost { params: 4e9, ranks: 4, hardware: "h100", has_master_copy: false };

impl StatesOnHost {
    fn predicted_s(&self, update_on: UpdatePlace) -> f64 {
        let hardware = Hardware::parse(&text(&format!("hardware/{}.ron", self.hardware))).expect("a hardware file");
        let width = if self.has_master_copy { Width::BF16 } else { Width::F32 };
        let precision = Precision { params: width, ..WIDTHS };
        let params = self.params as usize / UNITS;
        let unit = |source| Unit { field: "units", params, takes: params, source, ..Unit::NONE };
        let units: Vec<Unit> = (0..UNITS).map(unit).collect();
        let step_s = |config: Config| {
            let config = Config { recompute: Recompute::None, precision, ..config };
            PlanBuf::new("Moved", config, &units).with(|plan| simulate(plan, &hardware).expect("rates").step_s)
        };
        let there = offloaded(self.ranks);
        step_s(Config { offload: Offload { update_on, ..there.offload }, ..there }) - step_s(config(self.ranks))
    }
}

/// Into how many units a model is cut.
const UNITS: usize = 64;

pub(super) fn added_times() -> String {
    let mut table = TIMES_HEAD.to_owned();
    for row in &ADDED_TIMES {
        let AddedTime { who, model, moved, published_s: [without_s, with_s], update } = row;
        let published_s = with_s - without_s;
        let [predicted_s, on_host_s] = [UpdatePlace::Device, UpdatePlace::Host].map(|place| moved.predicted_s(place));
        let _ = writeln!(
            table,
            "| {who} | {model} | {published_s:.2} s | {predicted_s:.2} s | {:.2} | {on_host_s:.2} s | {update} |",
            predicted_s / published_s
        );
    }
    let predicted_s = PRIME_RL_4B.predicted_s(UpdatePlace::Device);
    let _ = writeln!(
        table,
        "{TIMES_TAIL}time of a step: on H100, {predicted_s:.2} s are predicted, which are 2 % of a step of {:.0} s.",
        predicted_s / 0.02
    );
    table
}
