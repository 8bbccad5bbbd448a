//! Answers that keep states in a tier: on disk, or in the memory of a GPU's host.

use zero_plan::spec::parse;
use zero_plan::{Often, PlanBuf, TierKind, UpdatePlace, prove};

use super::candidate::Candidate;
use super::question::{Effort, NoAdvice, OffloadUse, Question};
use super::space::coarse;
use super::tests::{ask, file, pinned, small, tiny};
use super::transformer::LLAMA_3_8B;
use super::*;
use crate::hardware::Hardware;
use crate::repository::text;

const DIRECT: &str = "direct: (read: 1.3e9, write: 1.8e9, both: 1.35e9),";

/// A node with two cores and a disk.
fn cores(memory_kib: u64, direct: &str) -> Hardware {
    file(&format!(
        "(name: \"cores\", device: (name: \"c\", kind: Cpu, memory: KiB({memory_kib}), matmul: (f32: 1e11, bf16: 1e11), \
         bandwidth: 1e10, op: 1e-6), node: (devices: 2, disk: (read: 1e9, write: 1e9, {direct})))"
    ))
}

fn question(hardware: &Hardware) -> Question<'_> {
    Question { effort: Effort { plans: 200 }, ..ask(hardware, 1, 8, Some(64), &small) }
}

#[test]
fn states_go_to_disk_only_where_nothing_fits_in_memory() {
    let mut on_disk = Vec::new();
    for memory_kib in [1_000_000, 600_000, 450_000, 350_000, 250_000, 50_000] {
        let (hardware, unmeasured) = (cores(memory_kib, DIRECT), cores(memory_kib, ""));
        let needs_disk = advise(&question(&unmeasured)).is_err();
        let question = question(&hardware);
        let Ok(advice) = advise(&question) else {
            assert!(needs_disk, "{memory_kib}");
            on_disk.push(None);
            continue;
        };
        assert_eq!(advice.refused, 0, "{memory_kib}");
        for pick in &advice.picks {
            assert_eq!([pick.candidate.offload.is_none(), pick.tier.is_none()], [!needs_disk; 2], "{memory_kib}");
            assert!(pick.need.bytes <= pick.budget_bytes);
            let config = parse(&pick.candidate.text(&question, &[])).expect("a spec").config();
            assert_eq!(config, pick.candidate.config(&question));
            let units = small(config.precision.compute, config.sequences).expect("units");
            PlanBuf::new("small", config, &units).with(|plan| prove(plan).map(|_| ())).expect("a plan that is proven");
        }
        let text = answer(&question, &advice);
        let told = "with optimizer state on disk (`offload`)? disk: ";
        assert_eq!(text.contains(told) && text.contains(" TB a day"), needs_disk, "{text}");
        assert_eq!(json(&question, &advice)["best"][0]["disk"]["read_bytes"].is_u64(), needs_disk);
        let comment = comment(&question, &advice, &advice.picks[0]).join(" ");
        assert_eq!(comment.contains("the argument `--offload FOLDER`"), needs_disk, "{comment}");
        // The verdict on each stage is about memory alone.
        assert_eq!(advice.stages.iter().all(|stage| !stage.fits), needs_disk, "{:?}", advice.stages);
        on_disk.push(Some(needs_disk));
    }
    assert!([Some(false), Some(true), None].iter().all(|one| on_disk.contains(one)), "{on_disk:?}");
}

/// A layout can keep in a tier what a spec may ask for: the search makes no others.
#[test]
fn layouts_keep_elsewhere_what_specs_may() {
    let hardware = Hardware { network: file(&text("hardware/cpu-2.ron")).network, ..cores(1_000_000, DIRECT) };
    let (mut may, mut may_not) = (0, 0);
    for nodes in [1, 2] {
        let question = Question { nodes, offload: OffloadUse::Tried, ..question(&hardware) };
        let levels = question.offloads().concat();
        for layout in coarse(&question, &levels).into_iter().filter(|layout| !layout.offload.is_none()) {
            for (gather, reduce) in [
                (Often::PerMicroBatch, Often::PerMicroBatch),
                (Often::PerStep, Often::PerMicroBatch),
                (Often::PerMicroBatch, Often::PerStep),
            ] {
                let has_gathers = layout.stage == 3 && layout.mesh.zero > 1;
                let gather = if has_gathers { gather } else { Often::PerMicroBatch };
                let layout = Candidate { gather, reduce, ..layout };
                for offload in question.offload_settings(layout.offload) {
                    let layout = Candidate { offload, ..layout };
                    let (text, config) = (layout.text(&question, &[]), layout.config(&question));
                    let read = parse(&text).ok().map(|spec| spec.config().offload);
                    assert_eq!(read, config.can_offload().then_some(offload), "{text}");
                    *if read.is_some() { &mut may } else { &mut may_not } += 1;
                }
            }
        }
    }
    assert!(may > 100 && may_not > 100, "{may} {may_not}");
}

/// The disk takes its time, so its layouts are slower than those that fit without it.
#[test]
fn what_the_disk_would_cost_is_told_if_asked() {
    let hardware = cores(1_000_000, DIRECT);
    let advice = advise(&Question { offload: OffloadUse::Tried, ..question(&hardware) }).expect("advice");
    assert!(advice.picks[0].tier.is_none(), "{:?}", advice.picks[0]);
    let on_disk: Vec<_> = advice.rivals.iter().filter(|rival| rival.dimension == Dimension::Offload).collect();
    let of = |wanted: &str| on_disk.iter().find(|rival| rival.value == wanted).map(|rival| rival.loss);
    let Some(Price::Slower(factor)) = of("optimizer state on disk") else { panic!("{on_disk:?}") };
    assert!(factor > 1.0, "{on_disk:?}");
    let kept =
        ["activations", "optimizer state and gradients", "optimizer state, gradients, parameters and activations"];
    assert!(kept.iter().all(|kept| of(&format!("{kept} on disk")).is_some()), "{on_disk:?}");
    let unasked = advise(&question(&hardware)).expect("advice");
    assert!(unasked.rivals.iter().all(|rival| rival.dimension != Dimension::Offload));
}

#[test]
fn z0161_nothing_can_be_kept_on_disk() {
    let (with, without) = (cores(1_000_000, DIRECT), cores(1_000_000, ""));
    for (asked, expected) in [
        (question(&without), "`cores` has no `node.disk.direct`, so it is not known how long that takes"),
        (pinned(question(&with), &["optimizer=Muon"]), "`optimizer` Muon cannot do that"),
    ] {
        let error = advise(&Question { offload: OffloadUse::Tried, ..asked }).unwrap_err();
        let NoAdvice::Machines { what, .. } = &error else { panic!("{error}") };
        assert_eq!(what, &format!("nothing can be kept on disk: {expected}"));
    }
}

/// One GPU of 80 GB lacks the memory for 8 billion parameters with f32 masters and moments, 12 bytes of each.
#[test]
fn a_host_keeps_what_a_gpu_cannot() {
    let hardware = file(&text("hardware/h100-1.ron"));
    let units = |width, sequences| Some(LLAMA_3_8B.units(width, sequences, 8192));
    let question = Question { effort: Effort { plans: 50 }, ..ask(&hardware, 1, 8192, None, &units) };
    let advice = advise(&question).expect("advice");
    let pick = &advice.picks[0];
    assert_eq!(pick.candidate.offload.optimizer, TierKind::Host);
    let spec = pick.candidate.text(&question, &[]);
    let config = parse(&spec).expect("a spec").config();
    assert_eq!((config, config.host_bytes), (pick.candidate.config(&question), Some(274_000_000_000)), "{spec}");
    let told = answer(&question, &advice);
    let place = "with optimizer state in host memory (`offload`)? host link: ";
    assert!(told.contains(place) && told.contains(" would hide it") && !told.contains("--offload FOLDER"), "{told}");
    let json = &super::json(&question, &advice)["best"][0];
    assert!(json["host"]["read_bytes"].is_u64() && json["disk"].is_null(), "{json}");
    // What the host cannot hold is not offered, unless there is a disk whose rates are known: bytes pass through the host then.
    let small =
        |keys: &str| file(&text("hardware/h100-1.ron").replace("GB(274)", "GB(64)").replace("devices: 1,", keys));
    let asked = |hardware| Question { effort: Effort { plans: 50 }, ..ask(hardware, 1, 8192, None, &units) };
    let disks = ["", " disk: (read: 7e9, write: 4e9, direct: (read: 7e9, write: 4e9)),"];
    let [none, disk] = disks.map(|disk| small(&format!("devices: 1,{disk}")));
    assert!(advise(&asked(&none)).is_err());
    let question = asked(&disk);
    let advice = advise(&question).expect("advice");
    assert_eq!(advice.picks[0].candidate.offload.tier(), TierKind::Disk);
    let told = answer(&question, &advice);
    assert!(told.contains(" on disk (`offload`)? disk: ") && told.contains(" TB a day"), "{told}");
    assert!(comment(&question, &advice, &advice.picks[0]).join(" ").contains("the argument `--offload FOLDER`"));
    let json = &super::json(&question, &advice)["best"][0];
    assert!(json["disk"]["read_bytes"].is_u64() && json["host"].is_null(), "{json}");
}

/// A slow link carries the states of a step in longer than the host's cores would need for its updates; a fast link does not.
#[test]
fn the_host_updates_where_that_pays() {
    let with = |link: &str, updates: &str| {
        let text = text("hardware/h100-1.ron").replace("host_link: (read: 52e9, write: 52e9)", link);
        file(&text.replace("devices: 1,", &format!("devices: 1, {updates}")))
    };
    let units = |width, sequences| Some(LLAMA_3_8B.units(width, sequences, 8192));
    let picked = |hardware: &Hardware| {
        let question = Question { effort: Effort { plans: 50 }, ..ask(hardware, 1, 8192, None, &units) };
        let advice = advise(&question).expect("advice");
        let spec = advice.picks[0].candidate.text(&question, &[]);
        assert_eq!(parse(&spec).expect("a spec").config(), advice.picks[0].candidate.config(&question), "{spec}");
        advice.picks[0].candidate.offload.update_on
    };
    let slow = "host_link: (read: 6e9, write: 6e9)";
    assert_eq!(picked(&with(slow, "host_updates: 300e9,")), UpdatePlace::Host);
    assert_eq!(picked(&with("host_link: (read: 52e9, write: 52e9)", "host_updates: 10e9,")), UpdatePlace::Device);
    assert_eq!(picked(&with(slow, "")), UpdatePlace::Device);
}

#[test]
fn z0161_nothing_can_be_kept_in_host_memory() {
    let gpus = tiny(900_000);
    let error = advise(&Question { offload: OffloadUse::Tried, ..question(&gpus) }).unwrap_err();
    assert!(
        error.to_string().contains("nothing can be kept in host memory: ")
            && error.to_string().contains("`node.host_link`")
    );
}
