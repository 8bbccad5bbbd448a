//! Arguments: of the verb, in every command, whether it can draw or not.

use std::path::PathBuf;

use clap::Args;

use crate::request::Request;

/// The plans to draw, and how.
#[derive(Args, Debug, PartialEq)]
pub struct ViewArguments {
    #[command(flatten)]
    pub request: Request,
    /// Another spec, to draw beside the first
    #[arg(conflicts_with = "svg")]
    pub other: Option<PathBuf>,
    /// The hardware for the times: a file, or the name of known hardware, such as `a100-80`. Without it, time is in
    /// operations
    #[arg(long, value_name = "HARDWARE")]
    pub on: Option<String>,
    /// Another network between its nodes: a file, or a name such as `ndr-8x400`
    #[arg(long, value_name = "NETWORK", requires = "on")]
    pub network: Option<String>,
    /// The file to write; without it, a file under target/zero/, in the folder of the spec
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Draw mesh, timeline and memory as one SVG instead of a page
    #[arg(long)]
    pub svg: bool,
    /// A profile of a run of the spec, written by `--profile`, to draw beside the plan
    #[arg(long, value_name = "FILE", conflicts_with = "svg")]
    pub profile: Option<PathBuf>,
}
