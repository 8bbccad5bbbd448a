//! Ordinal: which device of its host a rank takes. Never checks that it exists.

use std::env::{VarError, var};

use super::error::CudaError;

/// The environment variable that lists the device of each rank of a host, in order. With it, ranks can take devices
/// other than those of their own numbers, and several ranks can take the same one.
pub const DEVICES_VARIABLE: &str = "ZERO_CUDA_DEVICES";

/// The device of the rank with this number on its host: the one of the same number, unless [`DEVICES_VARIABLE`] says otherwise.
///
/// # Errors
/// Z0441 if the variable is not a list of numbers, or has none for this rank.
pub(super) fn of_rank(local_rank: usize) -> Result<usize, CudaError> {
    let devices = match var(DEVICES_VARIABLE) {
        Ok(devices) => devices,
        Err(VarError::NotPresent) => return Ok(local_rank),
        Err(VarError::NotUnicode(devices)) => devices.to_string_lossy().into_owned(),
    };
    chosen(&devices, local_rank).ok_or(CudaError::Choice { devices, local_rank })
}

fn chosen(devices: &str, local_rank: usize) -> Option<usize> {
    let devices: Result<Vec<usize>, _> = devices.split(',').map(|device| device.trim().parse()).collect();
    devices.ok()?.get(local_rank).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rank_takes_the_device_at_its_place() {
        let of = |devices| [0, 1, 2].map(|rank| chosen(devices, rank));
        assert_eq!(of("3, 0,0"), [Some(3), Some(0), Some(0)]);
        assert_eq!(of("1"), [Some(1), None, None]);
        assert_eq!(of("0,x"), [None; 3]);
        assert_eq!(of(""), [None; 3]);
    }
}
