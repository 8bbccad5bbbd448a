//! Publish arguments: options of a binary about the publication of parameters. Never acts on one.

use std::num::NonZeroU64;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use serde::Serialize;

use super::arguments::as_text;
use super::range::{at_least_one, duration, seconds};
use crate::error::Error;
use zero_plan::Config;

const PUBLISHING: &str = "Publishing";

/// Arguments about readers of parameters outside of the run.
#[derive(Args, Clone, Debug, Serialize)]
pub struct PublishArguments {
    /// Serve the parameters that the spec's `publish` copies, at HOST:PORT for rank 0 and at the next ports for the others, or
    /// at any with port 0
    #[arg(long, value_name = "HOST:PORT", help_heading = PUBLISHING)]
    pub publish: Option<String>,
    /// Publish after every multiple of N steps, and after the last one; without it, after every step
    #[arg(long, value_name = "N", requires = "publish", value_parser = at_least_one)]
    #[arg(help_heading = PUBLISHING)]
    pub publish_every: Option<NonZeroU64>,
    /// With `copies: 1`, how long training waits for readers before each publication; and how long a run waits at its end
    #[arg(long, default_value = "30s", value_name = "TIME", value_parser = duration)]
    #[arg(help_heading = PUBLISHING)]
    #[serde(serialize_with = "seconds")]
    pub publish_timeout: Duration,
    /// A file whose first line readers must send as a token; without it, everyone who reaches the address may read
    #[arg(long, value_name = "FILE", requires = "publish", help_heading = PUBLISHING)]
    #[serde(serialize_with = "as_text")]
    pub publish_token: Option<PathBuf>,
}

impl PublishArguments {
    /// What they and the plan contradict each other in, and the way out.
    pub fn contradiction(&self, config: &Config) -> Option<(String, &'static str)> {
        let at = self.publish.as_ref().filter(|_| !config.publishes())?;
        let what = format!("--publish {at} is for a program that publishes its parameters, and this one does not");
        Some((what, "leave it out, or build from a spec with `publish: (dtype: BF16)`"))
    }

    /// Refuses to train without the address at which the plan publishes.
    ///
    /// # Errors
    /// Z0350.
    pub fn require_address(&self, config: &Config) -> Result<(), Error> {
        if self.publish.is_some() || !config.publishes() {
            return Ok(());
        }
        let what = "this program publishes its parameters, but there is no --publish".to_owned();
        Err(Error::Argument { what, help: "say where, such as --publish 127.0.0.1:7000".to_owned() })
    }
}
