//! Error: the errors of published weights, each with a message, a stable code and a way out. Never prints.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use zero_plan::Bytes;

use crate::{Pointer, hub};

/// This many things of one kind are named, and the rest counted.
const NAMED_MAX: usize = 10;

/// Things of one kind, of which a message names the first ten.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FirstTen(pub Vec<String>);

impl fmt::Display for FirstTen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, one) in self.0.iter().take(NAMED_MAX).enumerate() {
            write!(f, "{}{one}", if i == 0 { "" } else { "\n      " })?;
        }
        match self.0.len().saturating_sub(NAMED_MAX) {
            0 => Ok(()),
            more => write!(f, "\n      and {more} more"),
        }
    }
}

/// An error of importing or exporting weights. [`WeightsError::report`] is its text for a person.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "each variant's message names its fields")]
pub enum WeightsError {
    #[error("cannot read `{}`: {source}", path.display())]
    Unreadable { path: PathBuf, source: io::Error },
    #[error("there is no folder `{}`", path.display())]
    NoFolder { path: PathBuf },
    #[error("`{}` {what}", path.display())]
    Malformed { path: PathBuf, what: String },
    #[error(transparent)]
    Pointer(#[from] Pointer),
    #[error("`{}` {what}", path.display())]
    Outside { path: PathBuf, what: String },
    #[error("`{}` lacks {} of the model's tensors:\n      {missing}{}", path.display(), missing.0.len(), left_over(extra))]
    Missing { path: PathBuf, missing: FirstTen, extra: FirstTen },
    #[error("`{}` has {} tensors that the model does not have:\n      {extra}", path.display(), extra.0.len())]
    LeftOver { path: PathBuf, extra: FirstTen },
    #[error("{} tensors of `{}` have another shape or type than the model's:\n      {differences}", differences.0.len(), path.display())]
    OtherShape { path: PathBuf, differences: FirstTen },
    #[error("`{}` is of another model:\n      {differences}", path.display())]
    OtherModel { path: PathBuf, differences: FirstTen },
    #[error(
        "`{}` has `{alias}` and `{tensor}`, which are one tensor in this model, but they differ from element {element} on: \
         {values:?}",
        path.display()
    )]
    NotTied { path: PathBuf, alias: String, tensor: String, element: usize, values: [f32; 2] },
    #[error("{what}")]
    Directory { what: String, help: &'static str },
    #[error("`{}` has room for {}, expected at least {}", path.display(), Bytes(*free), Bytes(*needed))]
    NoRoom { path: PathBuf, free: usize, needed: usize },
    #[error("cannot write `{}`: {source}", path.display())]
    Unwritable { path: PathBuf, source: io::Error },
    #[error("cannot name `{}`: {source}\n  = note: the trained weights are whole in `{}`", path.display(), whole.display())]
    Unnamed { path: PathBuf, whole: PathBuf, source: io::Error },
    #[error("{cause}\n  = note: the trained weights are whole in {place}")]
    Rescued { cause: Box<WeightsError>, place: String },
    #[error("{cause}\n  = note: the trained weights could not be kept elsewhere either: {elsewhere}")]
    NotRescued { cause: Box<WeightsError>, elsewhere: String },
    #[error("`{tensor}` has {value} at element {element}, which is no finite number")]
    NotFinite { tensor: String, element: usize, value: f32 },
    #[error("`{tensor}` has {value:e} at element {element}, which {dtype} has no finite number for")]
    TooLarge { tensor: String, element: usize, value: f32, dtype: &'static str },
}

fn left_over(extra: &FirstTen) -> String {
    match extra.0.len() {
        0 => String::new(),
        count => format!("\n    and has {count} that the model does not have:\n      {extra}"),
    }
}

impl WeightsError {
    /// For `map_err`.
    pub(super) fn unreadable(path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| WeightsError::Unreadable { path: path.to_owned(), source }
    }

    /// For `map_err`.
    pub(super) fn unwritable(path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| WeightsError::Unwritable { path: path.to_owned(), source }
    }

    pub(super) fn malformed(path: &Path, what: impl Into<String>) -> Self {
        WeightsError::Malformed { path: path.to_owned(), what: what.into() }
    }

    /// The stable code.
    pub fn code(&self) -> &'static str {
        match self {
            WeightsError::Unreadable { .. } | WeightsError::NoFolder { .. } => "Z0360",
            WeightsError::Malformed { .. } => "Z0361",
            WeightsError::Pointer(_) => Pointer::CODE,
            WeightsError::NotFinite { .. } => "Z0401",
            WeightsError::Outside { .. } => "Z0362",
            WeightsError::Missing { .. } => "Z0363",
            WeightsError::LeftOver { .. } => "Z0364",
            WeightsError::OtherShape { .. } => "Z0365",
            WeightsError::OtherModel { .. } => "Z0366",
            WeightsError::NotTied { .. } => "Z0367",
            WeightsError::Directory { .. }
            | WeightsError::NoRoom { .. }
            | WeightsError::Unwritable { .. }
            | WeightsError::Unnamed { .. }
            | WeightsError::Rescued { .. }
            | WeightsError::NotRescued { .. }
            | WeightsError::TooLarge { .. } => "Z0368",
        }
    }

    /// How to continue.
    pub fn help(&self) -> &'static str {
        match self {
            WeightsError::Unreadable { .. } => {
                "--init takes a folder with config.json and model.safetensors, or model.safetensors.index.json and the \
                 files that it names"
            }
            WeightsError::NoFolder { .. } => hub::HELP,
            WeightsError::Malformed { .. } => {
                "the file was cut off or changed, or is of another kind; if it was downloaded, do so again"
            }
            WeightsError::Pointer(_) => Pointer::HELP,
            WeightsError::NotFinite { .. } => {
                "export an earlier checkpoint, and train on with a lower --lr or with --clip"
            }
            WeightsError::Outside { .. } => "put all files of a model, or links to them, into its folder",
            WeightsError::Missing { .. } | WeightsError::LeftOver { .. } => {
                "start the binary of the model that these weights belong to, or correct `#[weights(...)]` in its struct"
            }
            WeightsError::OtherShape { .. } | WeightsError::OtherModel { .. } => {
                "start the binary of the model that these weights belong to, or correct the sizes and `#[config(...)]` of its \
                 struct"
            }
            WeightsError::NotTied { .. } => "leave one of them out of the file, or give the model a head of its own",
            WeightsError::Directory { help, .. } => help,
            WeightsError::NoRoom { .. } => "free space on its disk, or name a folder on another one",
            WeightsError::Unnamed { .. } => "give that folder the name that you want",
            WeightsError::Rescued { cause, .. } | WeightsError::NotRescued { cause, .. } => cause.help(),
            WeightsError::Unwritable { .. } => "free space on its disk, or name a folder that can be written",
            WeightsError::TooLarge { .. } => "export as another type: --export-dtype bf16 or f32",
        }
    }

    /// The whole error as text for a person.
    pub fn report(&self) -> String {
        format!("error[{}]: {self}\n  = help: {}", self.code(), self.help())
    }
}
