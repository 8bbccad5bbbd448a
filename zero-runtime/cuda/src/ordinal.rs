//! Ordinal: which device of its host a rank uses. Never checks that the device exists.

use std::collections::BTreeSet;
use std::env::{VarError, var};

use super::error::CudaError;
use super::variables::DEVICES_VARIABLE;

/// The device of the rank with this number on its host: that of the same number, unless [`DEVICES_VARIABLE`] sets another one.
///
/// # Errors
/// Z0441 if the variable is not a list of numbers, or has no number for this rank.
pub(super) fn of_rank(local_rank: usize) -> Result<usize, CudaError> {
    let Some(devices) = listed() else { return Ok(local_rank) };
    let chosen = chosen(&devices).and_then(|chosen| chosen.get(local_rank).copied());
    chosen.ok_or(CudaError::Choice { devices, local_rank })
}

/// The devices of all ranks, each once: all that the driver lists, unless [`DEVICES_VARIABLE`] sets others.
///
/// # Errors
/// Z0441 if the variable is not a list of numbers.
pub(super) fn all(shown: usize) -> Result<BTreeSet<usize>, CudaError> {
    let Some(devices) = listed() else { return Ok((0..shown).collect()) };
    let chosen = chosen(&devices).map(|chosen| chosen.into_iter().collect());
    chosen.ok_or(CudaError::Choice { devices, local_rank: 0 })
}

fn listed() -> Option<String> {
    match var(DEVICES_VARIABLE) {
        Ok(devices) => Some(devices),
        Err(VarError::NotPresent) => None,
        Err(VarError::NotUnicode(devices)) => Some(devices.to_string_lossy().into_owned()),
    }
}

fn chosen(devices: &str) -> Option<Vec<usize>> {
    devices.split(',').map(|device| device.trim().parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_listed_in_the_order_of_ranks() {
        assert_eq!(chosen("3, 0,0"), Some(vec![3, 0, 0]));
        assert_eq!(chosen("1"), Some(vec![1]));
        assert_eq!([chosen("0,x"), chosen("")], [None, None]);
    }
}
