//! Offers: for a spec that does not fit, layouts of the same ranks and tokens that do. Asks the search, with all other
//! keys pinned.

use zero_plan::spec::{KeyChange, ModelSource, Size, Spec, changes, parse};
use zero_plan::{Bytes, Unit, Width};

use super::explain::advise;
use super::pins::Pins;
use super::question::{Effort, NoAdvice, OffloadUse, Question};
use super::text::time;
use crate::hardware::{Hardware, Processor};
use crate::simulate::TierPrediction;

/// The keys that stay as the spec has them.
const KEPT: &[&str] = &[
    "mesh.zero",
    "mesh.replica",
    "mesh.pipeline",
    "zero.bucket",
    "precision.compute",
    "precision.params",
    "precision.reduce",
    "precision.master",
    "precision.moments",
    "mesh.within_node",
    "checkpoint.snapshot",
    "device",
    "transport",
    "optimizer",
    "publish.dtype",
    "publish.copies",
];

/// The keys that an offer may change: they affect memory, but not widths or ranks.
const CHANGED: [&str; 5] = ["zero.", "batch.", "pipeline.", "recompute", "offload."];

/// A layout that fits.
#[derive(Clone, Debug, PartialEq)]
pub struct Offer {
    /// The keys that differ from the spec.
    pub changes: Vec<KeyChange>,
    /// The memory that a rank needs with these changes, in bytes.
    pub bytes: usize,
    /// The time of a step on the machine in question, in seconds.
    pub step_s: f64,
    /// What states in a tier of that machine cost; `None` if there are none.
    pub tier: Option<TierPrediction>,
}

/// The machine that offers are timed on: one device per rank of a node, each with the memory that the spec allows.
fn machine(spec: &Spec, like: &Hardware) -> Hardware {
    let (budget, per_node) = (spec.memory.map_or(0, Size::bytes), spec.mesh.grid().ranks_per_node());
    let mut machine = like.clone();
    let shared = if machine.device.kind == Processor::Cpu { per_node as u64 } else { 1 };
    machine.device.memory = Size::B((budget + machine.device.reserved.bytes()) * shared);
    machine.node.devices = per_node;
    machine
}

/// The question whose answers are offers.
fn question<'a>(
    spec: &Spec,
    machine: &'a Hardware,
    units: &'a dyn Fn(Width, usize) -> Option<Vec<Unit>>,
) -> Question<'a> {
    let config = spec.config();
    Question {
        model: spec.model.clone().unwrap_or(ModelSource::Example(String::new())),
        size: spec.size.clone(),
        name: "the model",
        hardware: machine,
        nodes: config.mesh.nodes,
        length: config.length,
        tokens_per_step: Some(config.tokens() * config.micro_batches * config.mesh.data_ranks()),
        pins: Pins::of(spec, KEPT),
        pure_bf16: true,
        effort: Effort::default(),
        offload: if config.offloads() { OffloadUse::Given(config.offload) } else { OffloadUse::IfNeeded },
        units,
    }
}

/// The shapes of micro-batches whose units [`offers`] may ask for: width, sequences, and length.
pub fn offered_shapes(spec: &Spec, like: &Hardware) -> Vec<(Width, usize, usize)> {
    super::question::probes(&question(spec, &machine(spec, like), &|_, _| None))
}

/// The fastest layouts that fit the budget of `spec` with the same ranks, widths, tokens per step, device, transport
/// and nodes, timed on the machines `like`.
///
/// # Errors
/// If nothing fits; the error says what would make a layout fit.
pub fn offers(
    spec: &Spec,
    like: &Hardware,
    units: &dyn Fn(Width, usize) -> Option<Vec<Unit>>,
) -> Result<Vec<Offer>, NoAdvice> {
    let machine = machine(spec, like);
    let question = question(spec, &machine, units);
    let advice = advise(&question)?;
    let offer = |pick: &super::Pick| {
        let text = pick.candidate.text(&question, &[]);
        let of_pick = parse(&text).expect("the search writes specs that can be read");
        let changes = changes_to(spec, &of_pick);
        Offer { changes, bytes: pick.need.bytes, step_s: pick.step_s, tier: pick.tier.clone() }
    };
    Ok(advice.picks.iter().map(offer).collect())
}

/// The keys of an offer that must change to turn one spec into another. Some defaults follow other keys, as
/// `zero.prefetch` follows the stage, so applying a change can make further keys differ.
fn changes_to(spec: &Spec, other: &Spec) -> Vec<KeyChange> {
    let (mut changed, mut all) = (spec.clone(), Vec::new());
    loop {
        let mut more = changes(&changed, other);
        more.retain(|change| CHANGED.iter().any(|kept| change.key.starts_with(kept)));
        more.retain(|change| all.iter().all(|known: &KeyChange| known.key != change.key));
        if more.is_empty() {
            return all;
        }
        more.iter().for_each(|change| change.apply(&mut changed));
        all.append(&mut more);
    }
}

/// Offers as text, one per line.
pub fn offers_text(offers: &[Offer]) -> String {
    let one = |offer: &Offer| {
        let change = |change: &KeyChange| format!("{}: {}", change.key, change.second.as_deref().unwrap_or("without"));
        let changes: Vec<String> = offer.changes.iter().map(change).collect();
        let tier = offer.tier.iter().map(|tier| format!("\n      {}", tier.in_a_line())).collect::<String>();
        format!("    `{}`: {}, a step of {}{tier}", changes.join("`, `"), Bytes(offer.bytes), time(offer.step_s))
    };
    offers.iter().map(one).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use zero_plan::PlanBuf;
    use zero_plan::footprint::RunSize;

    use super::*;

    const MIB: usize = 1 << 20;

    /// Four units, each with 4 MiB of parameters and 1 MiB of activations per sequence.
    fn units(_: Width, sequences: usize) -> Option<Vec<Unit>> {
        let unit = |i| Unit {
            field: "a",
            index: Some(i),
            source: i,
            params: MIB,
            takes: MIB,
            saved_bytes: sequences * MIB,
            input_bytes: sequences << 10,
            output_bytes: sequences << 10,
            operations: sequences * 4_000_000,
            ..Unit::NONE
        };
        Some((0..4).map(unit).collect())
    }

    fn like() -> Hardware {
        let text = r#"(name: "like", device: (name: "d", kind: Cpu, memory: GiB(8), matmul: (f32: 1e11, bf16: 2e11),
            bandwidth: 1e10), node: (devices: 4, disk: (read: 1e9, write: 1e9, direct: (read: 1e9, write: 1e9))), network: (bandwidth: 1e9, latency: 1e-5))"#;
        Hardware::parse(text).unwrap()
    }

    fn gpus() -> Hardware {
        let text = r#"(name: "gpus", device: (name: "d", kind: Gpu, memory: GiB(8), reserved: GiB(1),
            matmul: (f32: 1e12, bf16: 2e12), bandwidth: 1e11),
            node: (devices: 8, link: (bandwidth: 1e10, latency: 1e-6)), network: (bandwidth: 1e9, latency: 1e-5))"#;
        Hardware::parse(text).unwrap()
    }

    const ZERO: &str = "mesh: (zero: 4)";

    /// A spec with these keys that needs too much memory: at stage 0, and with all sequences at once.
    fn asked_with(budget: usize, keys: &str) -> Spec {
        let text = format!("({keys}, zero: (stage: 0), batch: (sequences: 4, length: 16), memory: B({budget}))");
        parse(&text).unwrap()
    }

    fn asked(budget: usize) -> Spec {
        asked_with(budget, ZERO)
    }

    fn needs(spec: &Spec) -> usize {
        let units = units(Width::F32, spec.config().sequences).unwrap();
        PlanBuf::new("the model", spec.config(), &units).with(|plan| plan.total_bytes_max(&RunSize::LEAST))
    }

    /// A spec with an offer's changes has a plan that fits, and that needs the memory that the offer says: on each
    /// device, over each transport, on several nodes, and with room for a copy.
    #[test]
    fn what_is_offered_fits_and_changes_neither_ranks_nor_tokens() {
        let hosts = "transport: Cluster, mesh: (nodes: 2, zero: 4)";
        let numbered = "transport: Cluster, mesh: (nodes: 2, zero: 2, replica: 2, within_node: [Replica])";
        for (keys, like) in [
            (ZERO, like()),
            ("mesh: (zero: 4), transport: Local", like()),
            ("mesh: (zero: 4), checkpoint: (snapshot: true)", like()),
            (hosts, like()),
            (numbered, like()),
            ("mesh: (zero: 4), device: Cuda", gpus()),
            ("mesh: (nodes: 2, zero: 4), device: Cuda, transport: Nccl", gpus()),
        ] {
            let needed = needs(&asked_with(1, keys));
            let mut stages = Vec::new();
            // Less memory each time, until nothing fits.
            for budget in [needed - 1, needed - 10 * MIB, needed - 20 * MIB, needed - 30 * MIB, needed - 40 * MIB] {
                stages.extend(assert_offers(&asked_with(budget, keys), &like).unwrap_or_default());
            }
            // Whether gathers need slots depends on device and transport; only stage 3 has gathers.
            assert!(stages.contains(&3), "{keys}: {stages:?}");
        }
    }

    /// Compares the offers for a spec, if there are any, with the plans that they lead to. Returns their stages.
    fn assert_offers(spec: &Spec, like: &Hardware) -> Option<Vec<u8>> {
        let budget = spec.memory.unwrap().bytes() as usize;
        let offers = offers(spec, like, &units).ok()?;
        assert!(!offers.is_empty());
        let mut stages = Vec::new();
        for offer in &offers {
            assert!(offer.bytes <= budget && !offer.changes.is_empty(), "{offer:?}");
            let mut changed = spec.clone();
            offer.changes.iter().for_each(|change| change.apply(&mut changed));
            let tokens = |spec: &Spec| spec.config().tokens() * spec.config().micro_batches;
            assert_eq!((tokens(&changed), &changed.mesh), (tokens(spec), &spec.mesh), "{offer:?}");
            assert_eq!(needs(&changed), offer.bytes, "{spec:?}: {offer:?}");
            stages.push(changed.config().stage);
        }
        assert!(offers.is_sorted_by(|a, b| a.step_s <= b.step_s), "fastest first");
        let costs = offers.iter().filter(|offer| offer.tier.is_some()).count();
        assert_eq!(offers_text(&offers).lines().count(), offers.len() + costs);
        Some(stages)
    }

    /// Units of 64 MiB each, because the threads of a disk take some MiB too. Less memory each time, until nothing fits.
    #[test]
    fn states_on_disk_are_offered_where_nothing_else_fits() {
        let large = |width, sequences| {
            let all = units(width, sequences)?;
            Some(all.into_iter().map(|unit| Unit { params: 16 * MIB, takes: 16 * MIB, ..unit }).collect())
        };
        for (keys, like, can_offload) in [
            (ZERO, like(), true),
            ("mesh: (zero: 4), checkpoint: (snapshot: true)", like(), false),
            ("mesh: (zero: 4), device: Cuda", gpus(), false),
        ] {
            let mut on_disk = Vec::new();
            for budget in (1..16).rev().map(|part| part * 64 * MIB) {
                let spec = asked_with(budget, keys);
                let Ok(offers) = offers(&spec, &like, &large) else { break };
                for offer in offers {
                    let mut changed = spec.clone();
                    offer.changes.iter().for_each(|change| change.apply(&mut changed));
                    let config = changed.config();
                    let plan = PlanBuf::new("the model", config, &large(Width::F32, config.sequences).unwrap());
                    let needed = plan.with(|plan| plan.total_bytes_max(&RunSize::LEAST));
                    assert!(needed == offer.bytes && needed <= budget, "{offer:?}");
                    assert_eq!(offer.tier.is_some(), config.offloads(), "{offer:?}");
                    let text = offers_text(std::slice::from_ref(&offer));
                    assert_eq!(text.contains("`offload.optimizer: Disk`"), offer.tier.is_some(), "{text}");
                    on_disk.push(offer.tier.is_some());
                }
            }
            // They are the last that fit.
            assert!(on_disk.is_sorted() && !on_disk[0], "{keys}: {on_disk:?}");
            assert_eq!(on_disk.last(), Some(&can_offload), "{keys}: {on_disk:?}");
        }
    }

    #[test]
    fn where_nothing_fits_it_says_what_would_have_to_be_true() {
        let (what, would) = offers(&asked(MIB), &like(), &units).unwrap_err().told();
        assert!(what.starts_with("no layout fits") && would.starts_with("it fits if a rank has "), "{what} {would}");
        assert!(!would.contains("nodes"), "ranks are given: {would}");
    }

    #[test]
    fn shapes_are_those_that_are_asked_for() {
        let shapes = offered_shapes(&asked(MIB), &like());
        assert!(shapes.iter().all(|&(width, _, length)| (width, length) == (Width::F32, 16)), "{shapes:?}");
        assert!([1, 2, 4].iter().all(|n| shapes.contains(&(Width::F32, *n, 16))), "{shapes:?}");
    }
}
