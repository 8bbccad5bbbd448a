//! Accelerate: the spec for its settings of FSDP, DeepSpeed and plain data parallelism. Facts are from its sources and
//! PyTorch's documentation. Never reads text.

use zero_plan::diagnostic::Diagnostic;
use zero_plan::{Precision, Width};

use super::batch::{BatchSizes, contradiction, nodes, ranks};
use super::deepspeed::{FP16, ZeroSettings};
use super::draft::Draft;
use super::offload;
use super::settings::{Settings, wrong};
use super::{ImportOptions, SettingFate};

/// The spec of a file that `accelerate config` writes.
pub(super) fn draft(settings: &mut Settings, options: &ImportOptions) -> Result<Draft, Box<Diagnostic>> {
    let kind = settings.word("distributed_type").map(|(kind, _)| kind);
    match kind.as_deref() {
        Some("FSDP") => fsdp(settings, options),
        Some("DEEPSPEED") => deepspeed(settings, options),
        _ => replicated(settings, kind.as_deref() == Some("NO"), options),
    }
}

/// Plain data parallelism, which computes under autocast: parameters and gradients stay f32.
fn replicated(settings: &mut Settings, is_alone: bool, options: &ImportOptions) -> Result<Draft, Box<Diagnostic>> {
    let mut draft = begin(settings, is_alone, options)?;
    draft.precision.compute = mixed(settings);
    if draft.precision.compute.is_narrow() {
        let reason = "`precision: (compute: BF16)`: autocast decides op by op, and keeps parameters and gradients f32";
        settings.note(SettingFate::Nearest, "mixed_precision", reason);
    }
    // `DistributedDataParallel` makes buckets of 25 MiB and reduces them in the last micro-batch.
    draft.reduces_once = true;
    draft.note_missing(settings);
    Ok(draft)
}

/// A draft at stage 0, with ranks and batch as far as they are known.
fn begin(settings: &mut Settings, is_alone: bool, options: &ImportOptions) -> Result<Draft, Box<Diagnostic>> {
    let found = settings.whole("num_processes");
    let ranks = if is_alone && found.is_none() { 1 } else { ranks(found, options)? };
    let found = settings.whole("num_machines");
    let nodes = nodes(settings, found, options, ranks)?;
    let mut draft = Draft::new(0, ranks, nodes, options);
    draft.sequences = options.sequences;
    match options.micro_batches {
        Some(micro_batches) => draft.micro_batches = micro_batches,
        None => {
            let reason = "the script passes it to `Accelerator`; 1 unless `--micro-batches N` sets it";
            settings.note(SettingFate::Missing, "gradient_accumulation_steps", reason);
        }
    }
    Ok(draft)
}

/// The type that `mixed_precision` computes in.
fn mixed(settings: &mut Settings) -> Width {
    let Some((word, _)) = settings.word("mixed_precision") else { return Width::F32 };
    match word.as_str() {
        "FP16" => settings.note(SettingFate::Nearest, "mixed_precision", FP16),
        "FP8" => settings.note(SettingFate::Nearest, "mixed_precision", "BF16, the narrowest type here"),
        _ => {}
    }
    if ["NO", "FALSE"].contains(&word.as_str()) { Width::F32 } else { Width::BF16 }
}

fn deepspeed(settings: &mut Settings, options: &ImportOptions) -> Result<Draft, Box<Diagnostic>> {
    if let Some(file) = settings.get("deepspeed_config.deepspeed_config_file") {
        let path = "deepspeed_config.deepspeed_config_file";
        let expected = "no other file: import that one, with the number of processes as `--ranks`";
        return Err(Box::new(wrong(path, file.at, expected)));
    }
    let path = "deepspeed_config.gradient_accumulation_steps";
    if settings.is_auto(path) {
        settings.note(
            SettingFate::Missing,
            path,
            "\"auto\" leaves it to a script: 1, unless `--micro-batches N` sets it",
        );
    }
    let width = mixed(settings);
    let stage = settings.whole("deepspeed_config.zero_stage");
    if stage.is_none() {
        settings.note(SettingFate::Nearest, "deepspeed_config.zero_stage", "stage 2, accelerate's default");
    }
    let zero = ZeroSettings {
        stage: stage.map_or(2, |(stage, _)| stage as u8),
        batch: BatchSizes { micro_batches: settings.whole(path), ..BatchSizes::default() },
        precision: Precision { compute: width, params: width, reduce: width, ..Precision::default() },
        ..ZeroSettings::default()
    };
    let (ranks, nodes) = (settings.whole("num_processes"), settings.whole("num_machines"));
    zero.draft(settings, ranks, nodes, options)
}

fn fsdp(settings: &mut Settings, options: &ImportOptions) -> Result<Draft, Box<Diagnostic>> {
    let mut draft = begin(settings, false, options)?;
    let width = mixed(settings);
    // Accelerate sets one type for parameters, gradients and buffers; shards stay f32.
    draft.precision = Precision { compute: width, params: width, reduce: width, ..Precision::default() };
    if width.is_narrow() {
        let reason = "parameters are stored in BF16 beside an f32 copy, where FSDP converts f32 shards for each \
            gather: the bytes on the wire are the same";
        settings.note(SettingFate::Nearest, "mixed_precision", reason);
    }
    strategy(settings, &mut draft)?;
    prefetch(settings, &mut draft);
    // Each wrapped module reduces its own flat parameter immediately.
    draft.bucket_bytes = 1;
    // Micro-batches before the last one run under `no_sync`, where gradients are kept whole.
    draft.reduces_once = true;
    draft.recompute = settings.is_set("fsdp_config.fsdp_activation_checkpointing");
    if draft.recompute {
        let reason = "`recompute: Every(1)`: every unit but the last; `Fields([...])` selects the units of some fields";
        settings.note(SettingFate::Nearest, "fsdp_config.fsdp_activation_checkpointing", reason);
    }
    parallelism(settings, &mut draft)?;
    draft.note_missing(settings);
    offload::take_over_all(settings, &mut draft, "fsdp_config.fsdp_offload_params");
    Ok(draft)
}

/// Takes over the states that are sharded, and the ranks that share them.
fn strategy(settings: &mut Settings, draft: &mut Draft) -> Result<(), Box<Diagnostic>> {
    let version = settings.whole("fsdp_config.fsdp_version").map_or(1, |(version, _)| version);
    let reshard = settings.word("fsdp_config.fsdp_reshard_after_forward");
    let strategy = settings.word("fsdp_config.fsdp_sharding_strategy");
    if version == 2 {
        draft.stage = 3;
        if let Some((_, at)) = reshard.clone().filter(|(word, _)| !["TRUE", "FALSE"].contains(&word.as_str())) {
            return Err(Box::new(wrong("fsdp_config.fsdp_reshard_after_forward", at, "true or false in version 2")));
        }
        draft.gathers_once = reshard.is_some_and(|(word, _)| word == "FALSE");
        if strategy.is_some() {
            let reason = "version 2 does not read it: `fsdp_reshard_after_forward` decides";
            settings.note(SettingFate::Lost, "fsdp_config.fsdp_sharding_strategy", reason);
        }
        return Ok(());
    }
    if let Some((_, at)) = reshard.clone().filter(|(word, _)| ["TRUE", "FALSE"].contains(&word.as_str())) {
        return Err(Box::new(wrong("fsdp_config.fsdp_reshard_after_forward", at, "a strategy in version 1")));
    }
    let word = strategy.or(reshard).map_or("FULL_SHARD".to_owned(), |(word, _)| word);
    let is_hybrid = ["HYBRID_SHARD", "HYBRID_SHARD_ZERO2", "4", "5"].contains(&word.as_str());
    draft.stage = match word.as_str() {
        "NO_SHARD" | "3" => 0,
        "SHARD_GRAD_OP" | "2" | "HYBRID_SHARD_ZERO2" | "5" => 2,
        _ => 3,
    };
    if draft.stage == 2 {
        let reason =
            "stage 2, which also keeps parameters whole between steps; `stage: 3, gather: PerStep` shards them there";
        settings.note(SettingFate::Nearest, "fsdp_config.fsdp_sharding_strategy", reason);
    }
    if is_hybrid {
        (draft.replica, draft.zero, draft.within_node) = (draft.nodes, draft.zero / draft.nodes, true);
    }
    Ok(())
}

/// Takes over how far ahead parameters are gathered.
fn prefetch(settings: &mut Settings, draft: &mut Draft) {
    let paths = ["fsdp_config.fsdp_backward_prefetch", "fsdp_config.fsdp_backward_prefetch_policy"];
    let found = paths.into_iter().find_map(|path| Some((path, settings.word(path)?.0)));
    let is_forward = settings.is_set("fsdp_config.fsdp_forward_prefetch");
    let is_second = settings.whole("fsdp_config.fsdp_version").is_some_and(|(version, _)| version == 2);
    let (path, word) = found.unwrap_or((paths[0], "NO_PREFETCH".to_owned()));
    // The second version always gathers the next unit while one computes.
    draft.prefetch = u32::from(is_second || word == "BACKWARD_PRE");
    if draft.stage < 3 || is_second {
        return;
    }
    if word == "BACKWARD_POST" {
        let reason = "`prefetch: 0`: a gather does not begin between a unit's gradients and the next unit's";
        settings.note(SettingFate::Nearest, path, reason);
    }
    if is_forward != (draft.prefetch > 0) {
        let reason = format!("`prefetch: {}` applies to forward and backward alike", draft.prefetch);
        settings.note(SettingFate::Nearest, "fsdp_config.fsdp_forward_prefetch", reason);
    }
}

/// Takes over the sizes of axes, if a file has them.
fn parallelism(settings: &mut Settings, draft: &mut Draft) -> Result<(), Box<Diagnostic>> {
    const PREFIX: &str = "parallelism_config.parallelism_config_";
    let mut size = |name: &str| settings.whole(&format!("{PREFIX}{name}_size"));
    for axis in ["tp", "cp", "sp"] {
        if let Some((ranks, at)) = size(axis).filter(|(ranks, _)| *ranks > 1) {
            let message = format!("`{axis}` has {ranks} ranks, but a mesh has no such axis");
            let help = "ranks lie along `replica`, `pipeline` and `zero`: set it to 1, and give other `--ranks`";
            return Err(contradiction(message, Some(at), help));
        }
    }
    let (replica, zero) = (size("dp_replicate"), size("dp_shard"));
    let Some((_, at)) = replica.clone().or(zero.clone()) else { return Ok(()) };
    let number = |size: Option<(u64, _)>| size.map_or(1, |(ranks, _)| ranks);
    let ranks = draft.zero * draft.replica;
    let (replica, zero) = (number(replica), number(zero));
    if replica * zero != u64::from(ranks) {
        let message = format!("{replica} x {zero} ranks are not the {ranks} of `num_processes`");
        return Err(contradiction(message, Some(at), "correct one of the sizes, or `num_processes`"));
    }
    (draft.replica, draft.zero, draft.within_node) = (replica as u32, zero as u32, false);
    if draft.zero == 1 {
        draft.stage = 0;
    }
    Ok(())
}
