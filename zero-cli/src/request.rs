//! Request: which spec or model a command is asked for, which program of it, and for what. Never builds.

use std::path::PathBuf;

use clap::Args;

/// What to build.
#[derive(Args, Debug, PartialEq)]
pub struct Request {
    /// The spec, a RON file; it names the model
    pub spec: PathBuf,
    #[command(flatten)]
    pub program: ModelRequest,
}

/// Which program of a model is meant.
#[derive(Args, Clone, Debug, Default, PartialEq)]
pub struct ModelRequest {
    /// The binary of the model's package, where it has several
    #[arg(long, value_name = "NAME")]
    pub bin: Option<String>,
    /// The size of the model, where it comes in several; without it, the smallest
    #[arg(long, value_name = "NAME")]
    pub size: Option<String>,
}

/// What a program is built for.
#[derive(Clone, Copy, PartialEq)]
pub enum Purpose {
    /// It is run.
    Training,
    /// It is asked for its plan or its sizes, and computes nothing. Its own crate is not optimised, so that it is compiled in less time.
    Questions,
}
