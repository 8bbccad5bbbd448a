//! Import: turns the configuration of another framework into an equivalent spec, with a list of settings without a
//! counterpart. Reads DeepSpeed's JSON, and accelerate's YAML for FSDP, DeepSpeed and plain data parallelism, from
//! text. Notes every value that it had to assume.

mod accelerate;
mod batch;
mod deepspeed;
mod document;
mod draft;
mod keys;
mod offload;
mod settings;

use document::DocumentNode;
use draft::Draft;
use settings::Settings;
use zero_plan::diagnostic::Diagnostic;
use zero_plan::spec::{ModelSource, Spec, parse};

/// The framework that a configuration is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framework {
    /// DeepSpeed's own JSON.
    DeepSpeed,
    /// The file that `accelerate config` writes.
    Accelerate,
}

impl Framework {
    /// Its usual name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::DeepSpeed => "DeepSpeed",
            Self::Accelerate => "accelerate",
        }
    }
}

/// Values that a configuration does not have, or leaves to a script.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ImportOptions {
    /// The number of all ranks.
    pub ranks: Option<u32>,
    /// The number of nodes that the ranks lie on.
    pub nodes: Option<u32>,
    /// Sequences in a micro-batch of one rank.
    pub sequences: Option<u32>,
    /// Tokens in a sequence.
    pub length: Option<u32>,
    /// Micro-batches of a step.
    pub micro_batches: Option<u32>,
    /// The model.
    pub model: Option<ModelSource>,
}

/// What became of a setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum SettingFate {
    /// A spec has no equivalent.
    Lost,
    /// The nearest equivalent was taken.
    Nearest,
    /// It tunes what is a constant of the plan.
    Planned,
    /// The file does not have it, and the spec uses a default instead.
    Missing,
    /// It is an argument of the binary, not part of a spec.
    Argument,
}

impl SettingFate {
    /// A heading for such settings.
    pub const fn title(self) -> &'static str {
        match self {
            Self::Lost => "without a counterpart",
            Self::Nearest => "replaced by the nearest equivalent",
            Self::Planned => "decided by the plan",
            Self::Missing => "needs a value",
            Self::Argument => "arguments of the binary, after `--`",
        }
    }
}

/// Settings that were not taken over unchanged, with one common reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    /// The fate of the settings.
    pub taken: SettingFate,
    /// Their paths in the file, such as `zero_optimization.offload_optimizer`.
    pub settings: Vec<String>,
    /// Why, or what replaces them.
    pub reason: String,
}

/// A configuration that has become a spec.
#[derive(Debug, Clone, PartialEq)]
pub struct ImportedSpec {
    /// The framework that it was for.
    pub framework: Framework,
    /// The text of the spec, without comments.
    pub text: String,
    /// The spec, checked.
    pub spec: Spec,
    /// Notes on the settings that were not taken over unchanged: by their fate, then in the order of the file.
    pub notes: Vec<Note>,
}

impl ImportedSpec {
    /// The notes as lines: a heading for each fate, and below it, indented, the settings.
    pub fn remarks(&self) -> Vec<String> {
        let mut lines = Vec::new();
        let mut before = None;
        for note in &self.notes {
            if before.replace(note.taken) != Some(note.taken) {
                lines.push(format!("{}:", note.taken.title()));
            }
            let text = format!("{}: {}", note.settings.join(", "), note.reason);
            let filled = zero_plan::diagnostic::fill(&text);
            lines.extend(filled.lines().enumerate().map(|(i, line)| match i {
                0 => format!("  {line}"),
                _ => format!("    {line}"),
            }));
        }
        lines
    }

    /// The spec as a file, whose comments name its source and the settings that were not taken over unchanged.
    pub fn file(&self, from: &str) -> String {
        let head = format!("From {from}, a configuration of {}.", self.framework.name());
        let comments = [head].into_iter().chain(self.remarks());
        let comments: String = comments.map(|line| format!("// {}\n", line.replace(char::is_control, " "))).collect();
        comments + &self.text
    }
}

/// Makes a spec from the text of a configuration.
///
/// # Errors
/// All mistakes that can be found at once, each with its place: Z0154 if the text cannot be read, Z0155 for unknown
/// keys, Z0156 for values that a key cannot have, Z0157 if file and options do not determine ranks and batch.
pub fn import(text: &str, options: &ImportOptions) -> Result<ImportedSpec, Vec<Diagnostic>> {
    let (framework, draft, notes) = drafted(text, options)?;
    let text = draft.to_string();
    let spec = parse(&text)?;
    Ok(ImportedSpec { framework, text, spec, notes })
}

/// The parts of a spec that a configuration sets, with the notes on everything else. The spec is not checked.
fn drafted(text: &str, options: &ImportOptions) -> Result<(Framework, Draft, Vec<Note>), Vec<Diagnostic>> {
    let root = document::read(text).map_err(|problem| vec![*problem])?;
    let framework = framework(&root);
    let rows = match framework {
        Framework::DeepSpeed => keys::DEEPSPEED,
        Framework::Accelerate => keys::ACCELERATE,
    };
    let mut settings = Settings::of(&root, rows)?;
    let drafted = match framework {
        Framework::DeepSpeed => deepspeed::draft(&mut settings, options),
        Framework::Accelerate => accelerate::draft(&mut settings, options),
    };
    let draft = drafted.map_err(|problem| vec![*problem])?;
    Ok((framework, draft, settings.notes()))
}

/// Accelerate's files have keys about processes and machines at the top; DeepSpeed's files do not.
fn framework(root: &DocumentNode) -> Framework {
    let has = |key: &str| root.entries().iter().any(|entry| entry.key == key);
    let of_accelerate = ["distributed_type", "compute_environment", "fsdp_config", "deepspeed_config", "num_processes"];
    if of_accelerate.into_iter().any(has) { Framework::Accelerate } else { Framework::DeepSpeed }
}

#[cfg(test)]
mod tests;
