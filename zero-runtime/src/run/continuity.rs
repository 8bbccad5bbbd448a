//! Continuity: which arguments may change when a run resumes from a checkpoint, which may not, and which changes are
//! reported. Never prints.

use serde_json::{Map, Value};
use zero_plan::OptimizerKind;

use zero_files::checkpoint::{Checkpoint, CheckpointError, Manifest, PlanInfo};
use zero_files::weights::FirstTen;

/// The effect that a change of an argument has on a run that resumes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    /// It would be another run.
    Refused,
    /// It changes what is learned from here on.
    Told,
    /// It changes nothing that is learned, or the content that it names is compared instead.
    Free,
}

/// Each argument by its name in metrics, with the effect of a change.
const CHANGES: &[(&str, Change)] = &[
    ("steps", Change::Told),
    ("lr", Change::Told),
    ("lr_schedule", Change::Told),
    ("decay", Change::Told),
    ("lr_min_ratio", Change::Told),
    ("warmup", Change::Told),
    ("seed", Change::Refused),
    ("threads", Change::Free),
    // The features of the processor are compared instead.
    ("bf16_products", Change::Free),
    ("eager", Change::Free),
    ("offload", Change::Free),
    ("publish", Change::Free),
    ("publish_every", Change::Free),
    ("publish_timeout", Change::Free),
    ("publish_token", Change::Free),
    ("weight_decay", Change::Told),
    ("no_decay_embeddings", Change::Told),
    ("beta1", Change::Told),
    ("beta2", Change::Told),
    ("momentum", Change::Told),
    ("epsilon", Change::Told),
    ("clip", Change::Told),
    ("held_out", Change::Free),
    ("held_out_every", Change::Free),
    ("log_every", Change::Free),
    ("metrics", Change::Free),
    ("profile", Change::Free),
    ("init", Change::Free),
    ("export", Change::Free),
    ("export_dtype", Change::Free),
    ("checkpoint", Change::Free),
    ("every", Change::Free),
    ("keep", Change::Free),
    ("resume", Change::Free),
    ("checkpoint_or_stop", Change::Free),
    ("grace", Change::Free),
    ("restarts", Change::Free),
    ("rollback", Change::Free),
    ("timeout", Change::Free),
    ("data", Change::Free),
    ("data_as", Change::Free),
    ("tokenizer", Change::Free),
    ("only", Change::Free),
    ("sample", Change::Free),
    ("prompt", Change::Free),
    ("temperature", Change::Free),
    ("top_k", Change::Free),
    ("top_p", Change::Free),
    ("stop", Change::Free),
];

/// Arguments of one kind that differ, in words.
fn differing(kind: Change, own: &Map<String, Value>, theirs: &Map<String, Value>) -> Vec<String> {
    let shown =
        |value: Option<&Value>| value.filter(|value| !value.is_null()).map_or("none".to_owned(), Value::to_string);
    let of_kind = CHANGES.iter().filter(|(_, change)| *change == kind);
    let pairs = of_kind.map(|(name, _)| (name, shown(own.get(*name)), shown(theirs.get(*name))));
    pairs
        .filter(|(_, own, theirs)| own != theirs)
        .map(|(name, own, theirs)| format!("--{}: {own} instead of {theirs}", name.replace('_', "-")))
        .collect()
}

/// Refuses to resume from a checkpoint if an argument that must not change has changed, or the optimizer, or the data.
///
/// # Errors
/// Z0394.
pub fn require(
    checkpoint: &Checkpoint,
    own: &Map<String, Value>,
    optimizer: OptimizerKind,
    data: &str,
) -> Result<(), CheckpointError> {
    let manifest = &checkpoint.manifest;
    let mut differences = differing(Change::Refused, own, &manifest.arguments);
    differences.extend(other_optimizer(optimizer, manifest.plan.optimizer));
    if data != manifest.data.fingerprint {
        let (theirs, what) = (&manifest.data.fingerprint, &manifest.data.description);
        differences.push(format!("the data has the fingerprint `{data}` instead of `{theirs}`, that of {what}"));
    }
    if differences.is_empty() {
        return Ok(());
    }
    Err(CheckpointError::OtherRun { path: checkpoint.path.clone(), differences: FirstTen(differences) })
}

/// Reports a change of the optimizer: neither can continue from the other's state of gradients.
fn other_optimizer(own: OptimizerKind, theirs: OptimizerKind) -> Option<String> {
    (own != theirs).then(|| format!("optimizer: {own:?} instead of {theirs:?}, in the spec"))
}

/// The changes since the checkpoint was written, in lines.
///
/// `features` are those of this processor by which kernels are chosen.
pub fn told(manifest: &Manifest, own: &Map<String, Value>, plan: &PlanInfo, features: &[&str]) -> Vec<String> {
    let theirs = &manifest.plan;
    let mut lines = differing(Change::Told, own, &manifest.arguments);
    let recorded = &manifest.versions.features;
    if !recorded.is_empty() && recorded != features {
        let (own, theirs) = (features.join(" "), recorded.join(" "));
        lines.push(format!("kernels: those for {own} instead of {theirs}, which agree only to rounding"));
    }
    let layout = |plan: &PlanInfo| format!("stage {}, {}", plan.stage, plan.mesh);
    if layout(plan) != layout(theirs) {
        lines.push(format!("layout: {} instead of {}", layout(plan), layout(theirs)));
    }
    let widths = |plan: &PlanInfo| {
        let PlanInfo { compute_width, params_width, reduce_width, master_width, moments_width, .. } = plan.clone();
        [compute_width, params_width, reduce_width, master_width, moments_width]
    };
    let names = ["compute", "parameters", "gradients", "master copy", "moments"];
    for (name, (own, theirs)) in names.into_iter().zip(widths(plan).into_iter().zip(widths(theirs))) {
        if own != theirs {
            lines.push(format!("{name}: {own} instead of {theirs}"));
        }
    }
    let per_step = |plan: &PlanInfo| (plan.sequences * plan.micro_batches * plan.data_ranks, plan.length);
    if per_step(plan) != per_step(theirs) {
        let ((own, length), (others, their_length)) = (per_step(plan), per_step(theirs));
        lines.push(format!(
            "a step draws {own} sequences of {length} tokens instead of {others} of {their_length}: losses will differ"
        ));
    } else if plan.data_ranks != theirs.data_ranks {
        let (own, others) = (plan.data_ranks, theirs.data_ranks);
        lines.push(format!(
            "{own} ranks have data of their own instead of {others}, so the same numbers are added in another order"
        ));
    }
    lines
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::super::command::TextCommand;
    use super::super::header::{DataArguments, GivenArguments};
    use super::*;
    use zero_files::checkpoint::WriterVersions;

    fn arguments(given: &[&str]) -> Map<String, Value> {
        let TextCommand { run, text } = TextCommand::parse_from(["train"].iter().chain(given));
        match serde_json::to_value(GivenArguments { run: &run, of_data: Some(DataArguments::Text(&text)) }) {
            Ok(Value::Object(arguments)) => arguments,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_table_has_each_argument_once() {
        let mut listed: Vec<&str> = CHANGES.iter().map(|(name, _)| *name).collect();
        let given = arguments(&[]);
        let mut all: Vec<&str> = given.keys().map(String::as_str).collect();
        listed.sort_unstable();
        all.sort_unstable();
        assert_eq!(listed, all);
    }

    #[test]
    fn z0394_a_change_is_told_refused_or_free() {
        let (before, after) = (arguments(&["--lr=1e-3"]), arguments(&["--lr=2e-3", "--seed=1", "--sample=3"]));
        assert_eq!(differing(Change::Told, &after, &before), ["--lr: 0.002 instead of 0.001"]);
        assert_eq!(differing(Change::Refused, &after, &before), ["--seed: 1 instead of 0"]);
        assert_eq!(differing(Change::Told, &arguments(&["--warmup=3"]), &before)[1], "--warmup: 3 instead of none");
        assert_eq!(differing(Change::Refused, &before, &before), [""; 0]);
    }

    /// A checkpoint that names no optimizer is of AdamW, as all were before there was a choice.
    #[test]
    fn z0394_another_optimizer_is_refused() {
        use OptimizerKind::{AdamW, Muon};
        let refused = Some("optimizer: Muon instead of AdamW, in the spec".to_owned());
        assert_eq!((other_optimizer(Muon, AdamW), other_optimizer(Muon, Muon)), (refused, None));
        assert_eq!(other_optimizer(AdamW, Muon).as_deref(), Some("optimizer: AdamW instead of Muon, in the spec"));
        let written = |plan: &PlanInfo| serde_json::to_value(plan).expect("a plan");
        let usual = written(&PlanInfo::default());
        assert_eq!(usual.get("optimizer"), None);
        assert_eq!(serde_json::from_value::<PlanInfo>(usual).expect("a plan").optimizer, AdamW);
        assert_eq!(written(&PlanInfo { optimizer: Muon, ..PlanInfo::default() })["optimizer"], "Muon");
    }

    #[test]
    fn layouts_widths_and_batches_that_differ_are_told() {
        let plan =
            PlanInfo { stage: 3, data_ranks: 2, sequences: 4, micro_batches: 1, length: 8, ..PlanInfo::default() };
        let of = |own: &PlanInfo| {
            let manifest = Manifest { plan: plan.clone(), ..Manifest::default() };
            told(&manifest, &Map::new(), own, &[])
        };
        assert_eq!(of(&plan), [""; 0]);
        assert_eq!(of(&PlanInfo { stage: 1, ..plan.clone() }), ["layout: stage 1,  instead of stage 3, "]);
        assert_eq!(of(&PlanInfo { moments_width: "bf16".to_owned(), ..plan.clone() }), ["moments: bf16 instead of "]);
        assert!(of(&PlanInfo { sequences: 2, ..plan.clone() })[0].starts_with("a step draws 4 sequences"));
        assert!(of(&PlanInfo { sequences: 8, data_ranks: 1, ..plan.clone() })[0].starts_with("1 ranks have data"));
    }

    /// Nothing is known of a checkpoint that has no features, as all had before they were recorded.
    #[test]
    fn another_processor_is_told() {
        let of = |recorded: &[&str]| {
            let features = recorded.iter().map(|&name| name.to_owned()).collect();
            let versions = WriterVersions { features, ..WriterVersions::default() };
            told(
                &Manifest { versions, ..Manifest::default() },
                &Map::new(),
                &PlanInfo::default(),
                &["fma", "avx512_bf16"],
            )
        };
        assert_eq!((of(&[]), of(&["fma", "avx512_bf16"])), (vec![], vec![]));
        assert_eq!(of(&["fma"]), ["kernels: those for fma avx512_bf16 instead of fma, which agree only to rounding"]);
    }
}
