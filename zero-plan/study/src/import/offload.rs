//! Offload: where states are kept, by the settings of DeepSpeed and of FSDP. Facts are from their sources. Never reads text.

use zero_plan::{DeviceKind, OptimizerKind, TierKind};

use super::SettingFate;
use super::draft::Draft;
use super::settings::Settings;

/// The settings that say where a state is kept, and how it travels.
struct OfState {
    /// The key of `offload` in a spec.
    key: &'static str,
    /// The keys with a word for it.
    tiers: [&'static str; 2],
    /// The flags of older files.
    flags: &'static [&'static str],
    /// Settings of how it travels, which say nothing if it stays on the device.
    travel: &'static [&'static str],
}

const OPTIMIZER: OfState = OfState {
    key: "optimizer",
    tiers: ["zero_optimization.offload_optimizer.device", "deepspeed_config.offload_optimizer_device"],
    flags: &["zero_optimization.cpu_offload"],
    travel: &[
        "zero_optimization.offload_optimizer",
        "zero_optimization.cpu_offload_use_pin_memory",
        "deepspeed_config.offload_optimizer_nvme_path",
    ],
};
const PARAMETERS: OfState = OfState {
    key: "parameters",
    tiers: ["zero_optimization.offload_param.device", "deepspeed_config.offload_param_device"],
    flags: &["zero_optimization.cpu_offload_params", "zero_optimization.cpu_offload_param"],
    travel: &["zero_optimization.offload_param", "deepspeed_config.offload_param_nvme_path"],
};

/// Takes over the tiers of states, as far as a draft whose device is known can have them.
pub(super) fn take_over(settings: &mut Settings, draft: &mut Draft) {
    draft.kept = [&OPTIMIZER, &PARAMETERS].map(|state| kept(settings, draft, state));
    if draft.kept == [TierKind::Device; 2] {
        settings.forget("aio");
    }
}

/// Takes over a flag that moves parameters, gradients and the optimizer to the memory of the host, as far as a draft whose device
/// is known can have them there.
pub(super) fn take_over_all(settings: &mut Settings, draft: &mut Draft, path: &str) {
    if !settings.is_set(path) {
        return;
    }
    let tiers = [OPTIMIZER.key, PARAMETERS.key].map(|key| tier_of(draft, key, "CPU"));
    match tiers {
        [Err(reason), _] => settings.note(SettingFate::Lost, path, reason),
        [Ok(_), parameters] => {
            draft.kept = tiers.map(|tier| tier.unwrap_or_default());
            let which = if parameters.is_ok() { "optimizer: Host, parameters: Host" } else { "optimizer: Host" };
            let others =
                "gradients stay on the device, which updates, unless `gradients` and `update_on` are Host, too";
            settings.note(SettingFate::Nearest, path, format!("`offload: ({which})`; {others}"));
        }
    }
}

fn kept(settings: &mut Settings, draft: &Draft, state: &OfState) -> TierKind {
    let words = state.tiers.into_iter().find_map(|path| Some((path, settings.word(path)?.0)));
    let flag = state.flags.iter().find(|path| settings.is_set(path)).map(|&path| (path, "CPU".to_owned()));
    let found = words.or(flag).filter(|(_, tier)| tier != "NONE");
    let found = found.map(|(path, tier)| (path, tier_of(draft, state.key, &tier)));
    if !matches!(found, Some((_, Ok(_)))) {
        state.travel.iter().for_each(|path| settings.forget(path));
    }
    match found {
        Some((path, Ok(tier))) => {
            let others = match (state.key, tier) {
                ("optimizer", TierKind::Host) => {
                    "; gradients stay on the device, which updates, unless `update_on` is Host"
                }
                ("optimizer", _) => "; gradients stay on the device, which also updates",
                _ => "",
            };
            let reason = format!("`offload: ({}: {tier:?})`{others}", state.key);
            settings.note(SettingFate::Nearest, path, reason);
            tier
        }
        Some((path, Err(reason))) => {
            settings.note(SettingFate::Lost, path, reason);
            TierKind::Device
        }
        None => TierKind::Device,
    }
}

/// The tier that `cpu` or `nvme` means to a draft, or why it means none.
fn tier_of(draft: &Draft, key: &str, tier: &str) -> Result<TierKind, &'static str> {
    let is_of_parameters = key == "parameters";
    match (tier, draft.device) {
        _ if draft.stage == 0 => Err("it is not read at stage 0"),
        _ if is_of_parameters && draft.stage < 3 => Err("it is not read below stage 3"),
        _ if draft.optimizer == OptimizerKind::Muon => {
            Err("Muon updates whole matrices, and states are fetched in pieces: they stay on the device")
        }
        ("CPU", DeviceKind::Cpu) => {
            Err("the host's memory is what `device: Cpu` computes in; `offload: (optimizer: Disk)` saves some of it")
        }
        _ if is_of_parameters && draft.gathers_once => Err("parameters in a tier are gathered for each use"),
        (_, DeviceKind::Cpu) if is_of_parameters && draft.nodes > 1 && !draft.within_node => {
            Err("parameters on a disk are gathered by ranks of one host")
        }
        _ if is_of_parameters && draft.precision.params != draft.precision.compute => {
            Err("parameters in a tier have the width that layers compute in")
        }
        ("CPU", DeviceKind::Cuda) => Ok(TierKind::Host),
        _ => Ok(TierKind::Disk),
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

    const DEVICE: &str = OPTIMIZER.tiers[0];
    const OF_ACCELERATE: &str = OPTIMIZER.tiers[1];

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
    fn parameters_on_a_disk_of_processors_are_there_here_too() {
        let with = |more: &str| {
            format!("{}  offload_param_device: nvme\n  offload_param_nvme_path: /mnt/disk\n{more}", yaml(true, "nvme"))
        };
        let (text, notes) = of(&with(""));
        assert!(text.contains("\n    offload: (optimizer: Disk, parameters: Disk),\n"), "{text}");
        assert_eq!(parse(&text).expect("a spec").config().offload.parameters, TierKind::Disk);
        let (taken, reason) = fate(&notes, PARAMETERS.tiers[1]).expect("a note");
        assert_eq!((taken, reason.as_str()), (SettingFate::Nearest, "`offload: (parameters: Disk)`"));
        for (changed, reason) in [
            (with("").replace("zero_stage: 3", "zero_stage: 2"), "it is not read below stage 3"),
            (with("").replace("param_device: nvme", "param_device: cpu"), "the host's memory is what"),
        ] {
            let (text, notes) = of(&changed);
            assert!(!text.contains("parameters:") && parse(&text).is_ok(), "{text}");
            let (taken, found) = fate(&notes, PARAMETERS.tiers[1]).expect("a note");
            assert!(taken == SettingFate::Lost && found.starts_with(reason), "{changed}: {found}");
        }
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
        let both = json(3, r#""offload_optimizer": {"device": "cpu"}, "offload_param": {"device": "cpu"}"#);
        let (spec, notes) = of(&both);
        assert!(spec.contains("\n    offload: (optimizer: Host, parameters: Host),\n    device: Cuda,\n"), "{spec}");
        assert_eq!(parse(&spec).expect("a spec").config().offload.parameters, TierKind::Host);
        let (taken, _) = fate(&notes, PARAMETERS.tiers[0]).expect("a note");
        assert_eq!(taken, SettingFate::Nearest);
        // On a disk, or in both.
        for [optimizer, parameters] in [["nvme", "nvme"], ["nvme", "cpu"]] {
            let keys = format!(
                r#""offload_optimizer": {{"device": "{optimizer}", "nvme_path": "/a"}}, "offload_param": {{"device": "{parameters}"}}"#
            );
            let (spec, notes) = of(&json(3, &keys));
            let [kept, params] = [optimizer, parameters].map(|it| if it == "nvme" { "Disk" } else { "Host" });
            let line = format!("\n    offload: (optimizer: {kept}, parameters: {params}),\n    device: Cuda,\n");
            assert!(spec.contains(&line) && parse(&spec).is_ok(), "{spec}");
            let (taken, reason) = fate(&notes, "zero_optimization.offload_optimizer.nvme_path").expect("a note");
            assert!(taken == SettingFate::Argument && reason.starts_with("`--offload FOLDER`"), "{reason}");
        }
    }

    /// What stays on the device has one note, which says why, and nothing about how states would travel.
    #[test]
    fn what_cannot_be_moved_stays_with_its_reason() {
        let muon = r#"{"train_micro_batch_size_per_gpu": 2, "optimizer": {"type": "Muon"},
            "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}}, "aio": {"queue_depth": 8}}"#;
        for (text, path, reason) in [
            (json(0, r#""offload_optimizer": {"device": "cpu"}"#), DEVICE, "it is not read at stage 0"),
            (muon.to_owned(), DEVICE, "Muon updates whole matrices"),
            (yaml(true, "cpu"), OF_ACCELERATE, "the host's memory is what `device: Cpu` computes in"),
        ] {
            let (spec, notes) = of(&text);
            assert!(!spec.contains("offload") && parse(&spec).is_ok(), "{text}: {spec}");
            let (taken, found) = fate(&notes, path).expect("a note");
            assert!(taken == SettingFate::Lost && found.starts_with(reason), "{text}: {found}");
            let others = OPTIMIZER.travel.iter().chain(&["aio"]).filter(|other| fate(&notes, other).is_some()).count();
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
        let of_parameters = ["buffer_size", "max_in_cpu"].map(|key| format!("zero_optimization.offload_param.{key}"));
        assert_eq!(planned, keys.iter().chain([&"aio".to_owned()]).chain(&of_parameters).collect::<Vec<_>>());
        for (setting, reason) in [
            (section("ratio"), "a state is kept in one tier as a whole"),
            (section("super_offload"), "it updates before the norm is known"),
            (section("cpuadam_cores_perc"), "an update is an op of the device"),
            ("zero_optimization.zenflow".to_owned(), "it updates from gradients of earlier steps"),
        ] {
            let (taken, found) = fate(&notes, &setting).unwrap_or_else(|| panic!("{setting}: {notes:?}"));
            assert!(taken == SettingFate::Lost && found.starts_with(reason), "{setting}: {found}");
        }
        let fsdp =
            "distributed_type: FSDP\nnum_processes: 8\nfsdp_config:\n  fsdp_version: 2\n  fsdp_offload_params: true\n";
        let both = "offload: (optimizer: Host, parameters: Host)";
        for (text, line, wanted) in [
            (fsdp.to_owned(), Some(both), SettingFate::Nearest),
            (
                format!("{fsdp}  fsdp_reshard_after_forward: false\n"),
                Some("offload: (optimizer: Host)"),
                SettingFate::Nearest,
            ),
            (format!("use_cpu: true\n{fsdp}"), None, SettingFate::Lost),
        ] {
            let (spec, notes) = of(&text);
            assert!(parse(&spec).is_ok(), "{spec}");
            assert!(line.map_or(!spec.contains("offload"), |line| spec.contains(line)), "{spec}");
            let (taken, reason) = fate(&notes, "fsdp_config.fsdp_offload_params").expect("a note");
            assert!(taken == wanted && line.is_none_or(|line| reason.contains(line)), "{reason}");
        }
    }
}
