//! DeepSpeed: the spec for its settings. Facts are from its sources: which collectives run, when, and in which type.
//! Never reads text.

use zero_plan::diagnostic::Diagnostic;
use zero_plan::{OptimizerKind, Precision, Width};

use super::batch::{BatchSizes, PlacedNumber, contradiction, nodes, ranks};
use super::draft::Draft;
use super::keys::ARGUMENTS_OF_THE_OPTIMIZER;
use super::offload;
use super::settings::{Settings, wrong};
use super::{ImportOptions, SettingFate};

/// Elements of a bucket at stage 0, and the default at the other stages.
const BUCKET_ELEMENTS: u64 = 500_000_000;

/// Settings of ZeRO, from either framework's file.
#[derive(Debug, Default)]
pub(super) struct ZeroSettings {
    pub stage: u8,
    /// Elements of a bucket of gradients.
    pub bucket: Option<u64>,
    /// Elements that may be gathered ahead.
    pub prefetch: Option<u64>,
    /// Ranks of a group whose members shard among themselves.
    pub group: PlacedNumber,
    pub batch: BatchSizes,
    pub precision: Precision,
    pub optimizer: OptimizerKind,
}

/// The spec of DeepSpeed's JSON.
pub(super) fn draft(settings: &mut Settings, options: &ImportOptions) -> Result<Draft, Box<Diagnostic>> {
    note_auto(settings);
    let whole = |settings: &mut Settings, path: &str| settings.whole(path).map(|(number, _)| number);
    // A flag instead of the section is stage 1 with its defaults, or stage 0.
    let of_flag = u64::from(settings.is_set("zero_optimization"));
    let stage = whole(settings, "zero_optimization.stage").unwrap_or(of_flag) as u8;
    let ahead = ["zero_optimization.stage3_prefetch_bucket_size", "zero_optimization.prefetch_bucket_size"];
    let ahead = ahead.map(|path| (path, whole(settings, path)));
    let prefetch = ahead.iter().find_map(|(path, elements)| Some((*path, (*elements)?)));
    if let (Some((path, 1..)), 3) = (prefetch, stage) {
        let reason =
            "`prefetch: 1`: it counts units, not elements; divide by the parameters of a unit for the same distance";
        settings.note(SettingFate::Nearest, path, reason);
    }
    if whole(settings, "zero_optimization.zero_hpz_partition_size").is_some_and(|ranks| ranks > 1) {
        let reason =
            "no second copy of parameters within a node; the nearest equivalent is replicas that each stay on a node";
        settings.note(SettingFate::Lost, "zero_optimization.zero_hpz_partition_size", reason);
    }
    let batch = BatchSizes {
        all: settings.whole("train_batch_size"),
        sequences: settings.whole("train_micro_batch_size_per_gpu"),
        micro_batches: settings.whole("gradient_accumulation_steps"),
    };
    let zero = ZeroSettings {
        stage,
        bucket: whole(settings, "zero_optimization.reduce_bucket_size"),
        prefetch: prefetch.map(|(_, elements)| elements),
        group: settings.whole("zero_optimization.mics_shard_size").filter(|(ranks, _)| *ranks > 0),
        batch,
        precision: precision(settings)?,
        optimizer: optimizer(settings),
    };
    zero.draft(settings, None, None, options)
}

impl ZeroSettings {
    /// The spec. The numbers of ranks and nodes may be in the file.
    pub fn draft(
        self,
        settings: &mut Settings,
        found_ranks: PlacedNumber,
        found_nodes: PlacedNumber,
        options: &ImportOptions,
    ) -> Result<Draft, Box<Diagnostic>> {
        let batch = self.batch.with(options)?;
        let ranks = match (found_ranks, options.ranks) {
            (None, None) => ranks(batch.ranks(), options)?,
            (found, _) => ranks(found, options)?,
        };
        let nodes = nodes(settings, found_nodes, options, ranks)?;
        let (sequences, micro_batches) = batch.of(ranks)?;
        let mut draft = Draft::new(self.stage, ranks, nodes, options);
        if let Some((group, at)) = self.group {
            draft.zero = group as u32;
            draft.replica = ranks / draft.zero;
            if self.stage != 3 || !ranks.is_multiple_of(draft.zero) {
                let message = format!("groups of {group} ranks need stage 3 and a multiple of {group} ranks");
                let help = "remove `mics_shard_size`, or give other `--ranks`";
                return Err(contradiction(message, Some(at), help));
            }
        }
        (draft.precision, draft.optimizer) = (self.precision, self.optimizer);
        draft.prefetch = u32::from(self.prefetch != Some(0));
        let elements = if self.stage == 0 { BUCKET_ELEMENTS } else { self.bucket.unwrap_or(BUCKET_ELEMENTS) };
        draft.bucket_bytes = elements * draft.precision.reduce.bytes() as u64;
        // At stages 2 and 3, gradients are reduced in every micro-batch; at stages 0 and 1, after accumulation.
        draft.reduces_once = self.stage < 2;
        (draft.sequences, draft.micro_batches) = (sequences, micro_batches);
        draft.note_missing(settings);
        offload::take_over(settings, &mut draft);
        Ok(draft)
    }
}

/// Notes the settings that are left to a script, and the value that applies until then.
fn note_auto(settings: &mut Settings) {
    for (path, until) in [
        ("train_batch_size", "`--ranks`, `--sequences` and `--micro-batches` set it"),
        ("train_micro_batch_size_per_gpu", "`--sequences N` sets it"),
        ("gradient_accumulation_steps", "1, unless `--micro-batches N` sets it"),
        ("zero_optimization.stage", "0 until then"),
        ("zero_optimization.reduce_bucket_size", "500 million elements until then, DeepSpeed's default"),
        ("zero_optimization.stage3_prefetch_bucket_size", "`prefetch: 1` until then"),
        ("zero_optimization.offload_optimizer.device", "none until then"),
        ("bf16.enabled", "off until then"),
        ("bfloat16.enabled", "off until then"),
        ("fp16.enabled", "off until then"),
        ("communication_data_type", "the type of parameters until then"),
    ] {
        if settings.is_auto(path) {
            settings.note(SettingFate::Missing, path, format!("\"auto\" leaves it to a script: {until}"));
        }
    }
}

/// The optimizer: Muon has a value in a spec, and AdamW replaces any other optimizer.
fn optimizer(settings: &mut Settings) -> OptimizerKind {
    match settings.word("optimizer.type") {
        Some((name, _)) if name == "MUON" => OptimizerKind::Muon,
        Some(_) => {
            settings.note(SettingFate::Argument, "optimizer.type", ARGUMENTS_OF_THE_OPTIMIZER);
            OptimizerKind::AdamW
        }
        None => OptimizerKind::AdamW,
    }
}

/// The widths for `bf16`, `fp16` and the types of gradients.
fn precision(settings: &mut Settings) -> Result<Precision, Box<Diagnostic>> {
    let is_bf16 = ["bf16.enabled", "bfloat16.enabled"].into_iter().any(|path| settings.is_set(path));
    let is_fp16 = settings.is_set("fp16.enabled");
    if let (true, Some(setting)) = (is_bf16 && is_fp16, settings.get("fp16.enabled")) {
        return Err(Box::new(wrong("fp16.enabled", setting.at, "false where `bf16` is enabled")));
    }
    if is_fp16 {
        settings.note(SettingFate::Nearest, "fp16.enabled", FP16);
    }
    let narrow = if is_bf16 || is_fp16 { Width::BF16 } else { Width::F32 };
    let sent = gradients(settings, "communication_data_type").unwrap_or(narrow);
    let held = gradients(settings, "data_types.grad_accum_dtype").unwrap_or(narrow);
    let reduce = if sent.is_narrow() && held.is_narrow() { Width::BF16 } else { Width::F32 };
    if sent != held {
        let reason = "gradients are stored and sent in one type, `precision.reduce`: here the wider of the two";
        settings.note(SettingFate::Nearest, "data_types.grad_accum_dtype", reason);
    }
    let is_narrow =
        |settings: &mut Settings, path| if is_bf16 && settings.is_set(path) { Width::BF16 } else { Width::F32 };
    Ok(Precision {
        compute: narrow,
        params: narrow,
        reduce,
        master: is_narrow(settings, "bf16.bf16_master_weights_and_grads"),
        moments: is_narrow(settings, "bf16.bf16_optimizer_states"),
    })
}

/// Why BF16 replaces half precision.
pub(super) const FP16: &str = "BF16, which takes as many bytes and needs no scaled loss";

/// The type that a setting names.
fn gradients(settings: &mut Settings, path: &str) -> Option<Width> {
    let (word, _) = settings.word(path)?;
    if word == "FP16" {
        settings.note(SettingFate::Nearest, path, FP16);
    }
    Some(if word == "FP32" { Width::F32 } else { Width::BF16 })
}
