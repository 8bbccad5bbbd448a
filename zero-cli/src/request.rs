//! Request: the spec or model that a command is asked for, its program, and the purpose. Never builds.

use std::path::{Path, PathBuf};

use clap::Args;
use zero_plan::spec::{ModelSize, Spec};

use crate::error::CommandError;

/// The spec and program to build.
#[derive(Args, Debug, PartialEq)]
pub struct Request {
    /// The spec, a RON file; it names the model
    pub spec: PathBuf,
    #[command(flatten)]
    pub program: ModelRequest,
}

/// The choice of a model's program.
#[derive(Args, Clone, Debug, Default, PartialEq)]
pub struct ModelRequest {
    /// The binary of the model's package, if it has several
    #[arg(long, value_name = "NAME")]
    pub bin: Option<String>,
    #[command(flatten)]
    pub size: SizeArguments,
}

/// The size of a model, for a spec that does not give one.
#[derive(Args, Clone, Debug, Default, PartialEq)]
pub struct SizeArguments {
    /// The size of the model, if it has several; without it, that of the spec, or else the smallest
    #[arg(long, value_name = "NAME")]
    pub size: Option<String>,
    /// Layers, instead of those of the size
    #[arg(long, value_name = "N", value_parser = part())]
    pub layers: Option<u32>,
    /// Elements of the residual stream, instead of those of the size
    #[arg(long, value_name = "N", value_parser = part())]
    pub width: Option<u32>,
    /// Heads of an attention, instead of those of the size
    #[arg(long, value_name = "N", value_parser = part())]
    pub heads: Option<u32>,
    /// Heads of keys and values, instead of those of the size
    #[arg(long, value_name = "N", value_parser = part())]
    pub key_heads: Option<u32>,
    /// Elements between the two matrices of an MLP, instead of those of the size
    #[arg(long, value_name = "N", value_parser = part())]
    pub inner: Option<u32>,
    /// Ids of the vocabulary, instead of those of the size
    #[arg(long, value_name = "N", value_parser = part())]
    pub vocab: Option<u32>,
}

/// A part of a size is 1 or more.
fn part() -> clap::builder::RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(1..)
}

impl SizeArguments {
    /// The size that is given.
    pub fn given(&self) -> ModelSize {
        let Self { size, layers, width, heads, key_heads, inner, vocab } = self.clone();
        ModelSize { size, layers, width, heads, key_heads, inner, vocab }
    }

    /// The size of the model of a spec: its own, with which the arguments must agree, or else theirs.
    ///
    /// # Errors
    /// Z0137 for the first argument that differs.
    pub fn agreed(&self, spec: &Spec, path: &Path) -> Result<ModelSize, CommandError> {
        let (asked, own) = (self.given(), &spec.size);
        if *own == ModelSize::default() {
            return Ok(asked);
        }
        let size = asked.size.as_ref().filter(|size| own.size.as_ref() != Some(size));
        let mut parts = asked.parts().filter(|part| own.parts().all(|other| other != *part));
        let differs = size.map(|size| format!("--size {size}"));
        let differs = differs.or_else(|| parts.next().map(|(part, n)| format!("--{} {n}", part.replace('_', "-"))));
        match (differs, &spec.model) {
            (Some(asked), Some(model)) => {
                Err(CommandError::OtherSize { asked, spec: path.to_owned(), model: own.entry(model) })
            }
            _ => Ok(own.clone()),
        }
    }
}

/// What tells a program from those of the same spec in other sizes, as the end of a file's name; nothing without a size.
pub fn size_suffix(size: &ModelSize) -> String {
    let parts = size.parts().map(|(part, n)| format!("-{part}{n}"));
    size.size.iter().map(|size| format!("-{size}")).chain(parts).collect()
}

/// The purpose of a program.
#[derive(Clone, Copy, PartialEq)]
pub enum Purpose {
    /// The program is run.
    Training,
    /// The program is a worker, which answers requests and does not train.
    Serving,
    /// The program is asked for its plan or its sizes, and computes nothing. Its own crate is not optimised, to compile faster.
    Questions,
}
