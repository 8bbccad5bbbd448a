//! Fingerprints: the plans that the specs in `specs/` make of one model have the fingerprints that they always had. Never
//! computes them otherwise: a plan that gets another one would not be recognized in checkpoints that exist.

use zero_plan::{OrthogonalCost, PlanBuf, Unit, spec};

/// The fingerprint of each spec's plan, computed once.
pub const KNOWN: [(&str, u64); 16] = [
    ("1f1b", 15011797373551652672),
    ("bf16", 14244240170796664816),
    ("ddp", 16100649780910846607),
    ("gpipe", 9873508099407295013),
    ("gpt2", 1442162964336636871),
    ("hsdp", 7736688105524544927),
    ("hybrid", 7455089878572295417),
    ("interleaved", 11125392695328767104),
    ("llama", 1180656437218743844),
    ("mixed", 12354953843961395154),
    ("muon", 7125116453997462208),
    ("olmo3", 17530923538137632609),
    ("qwen3", 13212828208287815207),
    ("zero1", 6477318188248540),
    ("zero2", 17786229896734089460),
    ("zero3", 17928901416584965423),
];

const BLOCK: Unit = Unit {
    field: "blocks",
    params: 12_000,
    takes: 12_000,
    saved_bytes: 4 * 4_099,
    workspace_bytes: 4 * 99,
    input_bytes: 4 * 96,
    output_bytes: 4 * 96,
    targets_bytes: 4 * 4,
    operations: 2 * 12_000,
    matrices: OrthogonalCost { room_bytes: 4_096, operations: 900, operations_max: 300 },
    ..Unit::NONE
};

fn units() -> Vec<Unit> {
    let fields = ["embed", "blocks", "blocks", "blocks", "blocks", "norm", "head"];
    let mut units: Vec<Unit> =
        fields.iter().enumerate().map(|(i, field)| Unit { field, source: i, position: i, ..BLOCK }).collect();
    units[0] = Unit { params: 30_000, takes: 30_000, matrices: OrthogonalCost::NONE, ..units[0] };
    units[5] = Unit { params: 48, takes: 48, matrices: OrthogonalCost::NONE, ..units[5] };
    units[6] = Unit { params: 0, takes: 25_000, source: 0, matrices: OrthogonalCost::NONE, ..units[6] };
    units
}

/// The plan that a spec makes of the model.
pub fn of_spec(name: &str) -> PlanBuf {
    let path = format!("{}/../specs/{name}.ron", env!("CARGO_MANIFEST_DIR"));
    let spec = spec::parse(&std::fs::read_to_string(path).expect("a spec")).expect("a valid spec");
    PlanBuf::new("Small", spec.config(), &units())
}

#[test]
fn plans_of_specs_keep_their_fingerprints() {
    let found = KNOWN.map(|(name, _)| (name, of_spec(name).with(|plan| plan.fingerprint())));
    assert_eq!(found, KNOWN);
}
