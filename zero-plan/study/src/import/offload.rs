//! Offload: where the optimizer's states are kept, by the settings of DeepSpeed. Facts are from its sources. Never reads
//! text.

use zero_plan::{DeviceKind, OptimizerKind, TierKind};

use super::SettingFate;
use super::draft::Draft;
use super::settings::Settings;

/// Settings of how states travel, which say nothing if they stay on the device.
const OF_TRAVEL: [&str; 4] = [
    "zero_optimization.offload_optimizer",
    "zero_optimization.cpu_offload_use_pin_memory",
    "deepspeed_config.offload_optimizer_nvme_path",
    "aio",
];
const DEVICE: &str = "zero_optimization.offload_optimizer.device";
const OF_ACCELERATE: &str = "deepspeed_config.offload_optimizer_device";
/// The flag of older files.
const FLAG: &str = "zero_optimization.cpu_offload";

/// Takes over the tier of the optimizer's states, as far as a draft whose device is known can have it.
pub(super) fn take_over(settings: &mut Settings, draft: &mut Draft) {
    let words = [DEVICE, OF_ACCELERATE].into_iter().find_map(|path| Some((path, settings.word(path)?.0)));
    let flag = settings.is_set(FLAG).then(|| (FLAG, "CPU".to_owned()));
    let found = words.or(flag).filter(|(_, tier)| tier != "NONE");
    let found = found.map(|(path, tier)| (path, tier_of(draft, &tier)));
    if !matches!(found, Some((_, Ok(_)))) {
        OF_TRAVEL.into_iter().for_each(|path| settings.forget(path));
    }
    match found {
        Some((path, Ok(tier))) => {
            draft.kept = tier;
            let reason = format!("`offload: (optimizer: {tier:?})`; gradients stay on the device, which also updates");
            settings.note(SettingFate::Nearest, path, reason);
        }
        Some((path, Err(reason))) => settings.note(SettingFate::Lost, path, reason),
        None => {}
    }
}

/// The tier that `cpu` or `nvme` means to a draft, or why it means none.
fn tier_of(draft: &Draft, tier: &str) -> Result<TierKind, &'static str> {
    match (tier, draft.device) {
        _ if draft.stage == 0 => Err("it is not read at stage 0"),
        _ if draft.optimizer == OptimizerKind::Muon => {
            Err("Muon updates whole matrices, and states are fetched in pieces: they stay on the device")
        }
        ("CPU", DeviceKind::Cuda) => Ok(TierKind::Host),
        ("CPU", DeviceKind::Cpu) => {
            Err("the host's memory is what `device: Cpu` computes in; `offload: (optimizer: Disk)` saves some of it")
        }
        (_, DeviceKind::Cpu) => Ok(TierKind::Disk),
        (_, DeviceKind::Cuda) => {
            Err("states of a GPU cannot be on a disk yet; `offload: (optimizer: Host)` keeps them in the host's memory")
        }
    }
}

#[cfg(test)]
mod tests {
    use zero_plan::spec::parse;

    use crate::import::{ImportOptions, Note, drafted};

    use super::*;

    /// The text of a spec, and what is noted.
    fn of(text: &str) -> (String, Vec<Note>) {
        let options = ImportOptions { ranks: Some(8), length: Some(512), ..ImportOptions::default() };
        let (_, draft, notes) = drafted(text, &options).unwrap_or_else(|problems| panic!("{text}: {problems:#?}"));
        (draft.to_string(), notes)
    }

    /// A configuration of DeepSpeed, with keys of its section `zero_optimization`.
    fn json(stage: u8, keys: &str) -> String {
        format!(r#"{{"train_micro_batch_size_per_gpu": 2, "zero_optimization": {{"stage": {stage}, {keys}}}}}"#)
    }

    /// A configuration of accelerate, for processors or not.
    fn yaml(use_cpu: bool, device: &str) -> String {
        format!(
            "distributed_type: DEEPSPEED\nnum_processes: 8\nuse_cpu: {use_cpu}\ndeepspeed_config:\n  zero_stage: 3\n  \
             offload_optimizer_device: {device}\n  offload_optimizer_nvme_path: /mnt/disk\n"
        )
    }

    /// The fate of a setting and its reason.
    fn fate(notes: &[Note], setting: &str) -> Option<(SettingFate, String)> {
        let note = notes.iter().find(|note| note.settings.iter().any(|other| other == setting))?;
        Some((note.taken, note.reason.clone()))
    }

    #[test]
    fn states_on_a_disk_of_processors_are_there_here_too() {
        let (text, notes) = of(&yaml(true, "nvme"));
        assert!(text.contains("\n    offload: (optimizer: Disk),\n"), "{text}");
        assert_eq!(parse(&text).expect("a spec").config().offload.optimizer, TierKind::Disk);
        let (taken, reason) = fate(&notes, OF_ACCELERATE).expect("a note");
        assert_eq!(taken, SettingFate::Nearest);
        assert!(reason.starts_with("`offload: (optimizer: Disk)`; gradients stay"), "{reason}");
        let (taken, reason) = fate(&notes, "deepspeed_config.offload_optimizer_nvme_path").expect("a note");
        assert_eq!(taken, SettingFate::Argument);
        assert!(reason.starts_with("`--offload FOLDER`"), "{reason}");
    }

    #[test]
    fn states_in_the_memory_of_a_gpus_host_are_there_here_too() {
        let line = "\n    offload: (optimizer: Host),\n    device: Cuda,\n";
        for text in [
            json(1, r#""offload_optimizer": {"device": "cpu", "pin_memory": true}"#),
            json(2, r#""offload_optimizer": {"device": "CPU"}"#),
            json(3, r#""cpu_offload": true"#),
            yaml(false, "cpu"),
        ] {
            let spec = of(&text).0;
            assert!(spec.contains(line), "{text}: {spec}");
        }
    }

    /// What stays on the device has one note, which says why, and nothing about how states would travel.
    #[test]
    fn what_cannot_be_moved_stays_with_its_reason() {
        let muon = r#"{"train_micro_batch_size_per_gpu": 2, "optimizer": {"type": "Muon"},
            "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}}, "aio": {"queue_depth": 8}}"#;
        for (text, path, reason) in [
            (
                json(3, r#""offload_optimizer": {"device": "nvme", "nvme_path": "/a", "buffer_count": 5}"#),
                DEVICE,
                "states of a GPU",
            ),
            (json(0, r#""offload_optimizer": {"device": "cpu"}"#), DEVICE, "it is not read at stage 0"),
            (muon.to_owned(), DEVICE, "Muon updates whole matrices"),
            (yaml(true, "cpu"), OF_ACCELERATE, "the host's memory is what `device: Cpu` computes in"),
        ] {
            let (spec, notes) = of(&text);
            assert!(!spec.contains("offload") && parse(&spec).is_ok(), "{text}: {spec}");
            let (taken, found) = fate(&notes, path).expect("a note");
            assert!(taken == SettingFate::Lost && found.starts_with(reason), "{text}: {found}");
            let others = OF_TRAVEL.into_iter().filter(|other| fate(&notes, other).is_some()).count();
            assert_eq!(others, 0, "{text}: {notes:?}");
        }
        // Nothing is lost where nothing is moved.
        for text in [json(3, r#""offload_optimizer": {"device": "none", "pin_memory": true}"#), yaml(false, "none")] {
            let (spec, notes) = of(&text);
            assert!(!spec.contains("offload"), "{spec}");
            assert!(
                notes.iter().flat_map(|note| &note.settings).all(|setting| !setting.contains("offload")),
                "{notes:?}"
            );
        }
    }

    #[test]
    fn the_plan_decides_how_states_travel() {
        let keys = r#""offload_optimizer": {"device": "cpu", "buffer_count": 4, "pin_memory": true, "pipeline_read": true,
            "pipeline_write": true, "fast_init": true, "ratio": 0.5, "super_offload": true, "cpuadam_cores_perc": 0.9},
            "offload_param": {"device": "nvme", "buffer_size": 1e8, "max_in_cpu": 1e9}, "zenflow": {"topk_ratio": 0.1}"#;
        let text = json(3, keys);
        let with_aio = format!("{}, \"aio\": {{\"block_size\": 1048576}}}}", text.strip_suffix('}').expect("a map"));
        let notes = of(&with_aio).1;
        let planned = |note: &&Note| note.taken == SettingFate::Planned;
        let planned: Vec<_> = notes.iter().filter(planned).flat_map(|note| &note.settings).collect();
        let section = |key: &str| format!("zero_optimization.offload_optimizer.{key}");
        let keys = ["buffer_count", "pin_memory", "pipeline_read", "pipeline_write"].map(section);
        assert_eq!(planned, keys.iter().chain([&"aio".to_owned()]).collect::<Vec<_>>());
        for (setting, reason) in [
            (section("ratio"), "a state is kept in one tier as a whole"),
            (section("super_offload"), "it updates before the norm is known"),
            (section("cpuadam_cores_perc"), "an update is an op of the device"),
            ("zero_optimization.zenflow".to_owned(), "it updates from gradients of earlier steps"),
            ("zero_optimization.offload_param".to_owned(), "parameters and gradients stay on the device"),
        ] {
            let (taken, found) = fate(&notes, &setting).unwrap_or_else(|| panic!("{setting}: {notes:?}"));
            assert!(taken == SettingFate::Lost && found.starts_with(reason), "{setting}: {found}");
        }
        let fsdp =
            "distributed_type: FSDP\nnum_processes: 8\nfsdp_config:\n  fsdp_version: 2\n  fsdp_offload_params: true\n";
        let (spec, notes) = of(fsdp);
        assert!(parse(&spec).is_ok() && !spec.contains("offload"), "{spec}");
        let (taken, reason) = fate(&notes, "fsdp_config.fsdp_offload_params").expect("a note");
        assert!(taken == SettingFate::Lost && reason.contains("only the optimizer"), "{reason}");
    }
}
