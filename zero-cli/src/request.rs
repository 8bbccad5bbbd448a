//! Request: the spec or model that a command is asked for, its program, and the purpose. Never builds.

use std::path::PathBuf;

use clap::Args;

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
    /// The size of the model, if it has several; without it, the smallest
    #[arg(long, value_name = "NAME")]
    pub size: Option<String>,
}

/// The purpose of a program.
#[derive(Clone, Copy, PartialEq)]
pub enum Purpose {
    /// The program is run.
    Training,
    /// The program is asked for its plan or its sizes, and computes nothing. Its own crate is not optimised, to compile faster.
    Questions,
}
