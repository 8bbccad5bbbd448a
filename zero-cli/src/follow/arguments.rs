//! Arguments: of the verb, in every command, whether it can fetch or not.

use std::path::PathBuf;

use clap::Args;

/// The run to follow, and the folder to keep.
#[derive(Args, Debug, PartialEq)]
pub struct FollowArguments {
    /// Where rank 0 of the run publishes: http://HOST:PORT
    pub url: String,
    /// The folder, in Hugging Face's format: new, or made by this command. Each version replaces it whole
    #[arg(long, value_name = "FOLDER")]
    pub out: PathBuf,
    /// A list of vLLM's and SGLang's servers in JSON, which load each version once the folder has it
    #[arg(long, value_name = "FILE")]
    pub engines: Option<PathBuf>,
    /// End after the first version
    #[arg(long)]
    pub once: bool,
    /// A file whose first line is the token of the run
    #[arg(long, value_name = "FILE")]
    pub token: Option<PathBuf>,
    /// Its name in reports of the run
    #[arg(long, default_value = "follow", value_name = "NAME")]
    pub name: String,
    /// End when nobody has answered for this many seconds
    #[arg(long, default_value_t = 60, value_name = "SECONDS")]
    pub patience: u64,
}
