//! Published: models of real sizes have the published numbers of parameters, and plans say in which layouts they fit.
//!
//! `UPDATE_EXPECT=1 cargo test -p zero-tests --test training` renews their golden plans; read the diff.

use zero_core::model::{Model, Program};
use zero_plan::{
    Config, Home, Kind, Mesh, Offload, Plan, PlanBuf, Precision, Recompute, Report, TierKind, Width, prove,
};
use zero_runtime::device::Device;

use super::sized::*;

fn parameters<D: Device>(program: &'static Program<D>) -> usize {
    program.plan.units.iter().map(|unit| unit.params).sum()
}

/// The numbers are those of the model cards of Hugging Face.
#[test]
fn numbers_of_parameters_are_those_published() {
    assert_eq!(parameters(gpt2_124M::Model::PROGRAM), 124_439_808);
    assert_eq!(parameters(gpt2_1_5B::Model::PROGRAM), 1_557_611_200);
    assert_eq!(parameters(llama_3_2_1B::Model::PROGRAM), 1_235_814_400);
    assert_eq!(parameters(llama_3_1_8B::Model::PROGRAM), 8_030_261_248);
    assert_eq!(parameters(llama_3_1_70B::Model::PROGRAM), 70_553_706_496);
    assert_eq!(parameters(llama_13B::Model::PROGRAM), 13_015_864_320);
    assert_eq!(parameters(qwen3_0_6B::Model::PROGRAM), 596_049_920);
    assert_eq!(parameters(qwen3_4B::Model::PROGRAM), 4_022_468_096);
    assert_eq!(parameters(qwen3_8B::Model::PROGRAM), 8_190_735_360);
    assert_eq!(parameters(olmo3_7B::Model::PROGRAM), 7_298_011_136);
}

/// At stage 3 on two ranks, one sequence of 1024 tokens each, computing in bf16.
#[test]
fn plans_of_published_sizes_are_golden() {
    golden("gpt2-1.5B", Report(gpt2_1_5B::Model::PLAN));
    golden("llama-3.1-8B", Report(llama_3_1_8B::Model::PLAN));
    golden("olmo3-7B", Report(olmo3_7B::Model::PLAN));
}

fn golden(name: &str, shown: impl core::fmt::Display) {
    let golden = format!("{}/plans/{name}.txt", env!("CARGO_MANIFEST_DIR"));
    expect_test::expect_file![golden].assert_eq(&format!("{}\n", shown.to_string().trim_end()));
}

/// Everything in two bytes, as in the case of two devices of 24 GB.
const ALL_BF16: Precision = Precision {
    compute: Width::BF16,
    params: Width::BF16,
    reduce: Width::BF16,
    master: Width::BF16,
    moments: Width::BF16,
};

/// One sequence of 1024 tokens a rank, with recomputed activations.
fn on_two(stage: u8) -> Config {
    Config {
        mesh: Mesh::of_zero(2),
        sequences: 1,
        length: 1024,
        bucket_bytes: 64 << 20,
        prefetch: 1,
        recompute: Recompute::Fields(&["blocks"]),
        precision: ALL_BF16,
        ..Config::PLAIN.at_stage(stage)
    }
}

/// The table of the README and of the page on models.
#[test]
fn qwen3_4b_on_two_devices_of_24_gb() {
    let mut table =
        String::from("| stage | parameters | gradients | optimizer state | all else | arena | of 24 GB |\n");
    table += "|---|---|---|---|---|---|---|\n";
    let on_disk = Config { offload: ON_DISK, ..on_two(2) };
    for config in [on_two(0), on_two(1), on_two(2), on_disk, on_two(3)] {
        PlanBuf::new("Qwen3", config, qwen3_4B::Model::PLAN.units).with(|plan| {
            assert_eq!(plan.check(), Ok(()));
            prove(plan).unwrap_or_else(|flaw| panic!("{flaw}"));
            table += &row(plan);
        });
    }
    for page in [include_str!("../../../../README.md"), include_str!("../../../../docs/models.md")] {
        assert!(page.contains(&table), "a page has another table than\n{table}");
    }
    golden("qwen3-4b-24gb", table);
}

/// The moments in files, in pieces of the default size.
const ON_DISK: Offload = Offload { optimizer: TierKind::Disk, prefetch: 1, piece_bytes: 4 << 20, ..Offload::NONE };

/// Memory of a device, in bytes.
const DEVICE: usize = 24_000_000_000;

/// Figures of a rank, in GB as in the documented case.
fn row(plan: &Plan) -> String {
    let memory = &plan.pipeline_stages[0].memory;
    let of = |kinds: &[Kind]| kinds.iter().map(|&kind| memory.region(kind).bytes).sum::<usize>();
    let parameters = of(&[Kind::Parameters, Kind::Gathered]);
    let gradients = of(&[Kind::Gradients, Kind::UnitGradients, Kind::Partial, Kind::Reduced]);
    // If the states are in files, there are windows in place of them.
    let kept = memory.bytes_of(Home::Disk);
    let optimizer = of(&[Kind::Master, Kind::Optimizer, Kind::MasterWindow, Kind::OptimizerWindow]) - kept;
    let arena = memory.bytes_per_rank();
    let gb = |bytes: usize| format!("{:.2} GB", bytes as f64 / 1e9);
    let verdict = match arena.checked_sub(DEVICE) {
        None | Some(0) => "fits".to_owned(),
        Some(over) => format!("{} too much", gb(over)),
    };
    let cells =
        [parameters, gradients, optimizer, arena - parameters - gradients - optimizer, arena].map(gb).join(" | ");
    let offload = if kept > 0 { format!(", {} on a disk", gb(kept)) } else { String::new() };
    format!("| {}{offload} | {cells} | {verdict} |\n", plan.config.stage)
}
