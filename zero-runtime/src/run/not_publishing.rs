//! Not publishing: what stands for the publications of a run in a program without the feature for them, which publishes nothing.

use std::thread::Scope;

use super::output::Output;
use super::train::{Job, RankEngine};
use crate::error::Error;
use zero_core::device::Device;
use zero_files::weights::Publication;

/// None.
pub enum Publishing {}

impl Publishing {
    /// There are none.
    pub fn new<'scope, 'env, D: Device>(
        _: &'scope Scope<'scope, 'env>,
        _: &'env Job<'_, D>,
        _: &mut RankEngine<'static, D>,
        _: &Publication,
    ) -> Result<Option<Self>, Error> {
        Ok(None)
    }

    /// Never called.
    pub fn after_step<D: Device>(
        &mut self,
        _: &mut RankEngine<'static, D>,
        _: u64,
        _: bool,
        _: Option<&mut Output>,
    ) -> Result<(), Error> {
        match *self {}
    }

    /// Never called.
    pub fn finish<D: Device>(self, _: &mut RankEngine<'static, D>) -> Result<(), Error> {
        match self {}
    }
}
