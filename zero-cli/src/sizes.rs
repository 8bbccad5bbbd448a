//! Sizes: the sizes of a model's units under a spec, as its program reports them, to compute plans here. Never searches
//! for a plan.

use std::path::PathBuf;

use zero_plan::spec::{self, Spec};
use zero_plan::{Config, PlanBuf, Sizes};
use zero_study::hardware::Hardware;
use zero_study::simulate::on_hardware;

use crate::binary::Binary;
use crate::error::CommandError;
use crate::probe::ask;
use crate::request::Request;

/// A spec, and the sizes of its model under it.
pub struct SizedSpec {
    /// The path of the spec.
    pub path: PathBuf,
    /// The spec, parsed.
    pub spec: Spec,
    /// The text that it was read from.
    pub text: String,
    /// The sizes.
    pub sizes: Sizes,
}

impl SizedSpec {
    /// The configuration of the spec, adapted to some hardware.
    pub fn config_on(&self, hardware: &Hardware) -> Result<Config, CommandError> {
        let config = on_hardware(self.spec.config(), hardware);
        config.map_err(|reason| CommandError::impossible(&self.path, hardware, &reason))
    }

    /// The plan that the program would run on this hardware.
    pub fn plan_on(&self, hardware: &Hardware) -> Result<PlanBuf, CommandError> {
        Ok(self.planned(self.config_on(hardware)?))
    }

    /// The plan that the program runs.
    pub fn plan(&self) -> PlanBuf {
        self.planned(self.spec.config())
    }

    /// The plan of its model under a configuration.
    pub fn planned(&self, config: Config) -> PlanBuf {
        PlanBuf::new(&self.sizes.model, config, &self.sizes.probes[0].units)
    }
}

/// The spec that a program was built from, and the sizes that it reports.
pub fn of_binary(request: &Request, binary: &Binary) -> Result<SizedSpec, CommandError> {
    let sizes = ask(binary)?;
    // The text that was built; another process may have changed the file since.
    let text = spec::decode(sizes.spec.as_bytes());
    let text = text.map_err(|error| CommandError::mistakes(&[*error], &request.spec, ""))?.to_owned();
    let spec = spec::parse(&text).map_err(|errors| CommandError::mistakes(&errors, &request.spec, &text))?;
    Ok(SizedSpec { path: request.spec.clone(), spec, text, sizes })
}
