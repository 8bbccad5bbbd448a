//! Variables: the names of the environment variables that a user of devices may set. Never reads one.

/// The environment variable with folders to look in first, separated by colons.
pub const FOLDERS_VARIABLE: &str = "ZERO_CUDA_LIBRARIES";

/// The environment variable that lists the device of each rank of a host, in order. With it, ranks can use devices with
/// other numbers than their own, and several ranks can use the same device.
pub const DEVICES_VARIABLE: &str = "ZERO_CUDA_DEVICES";
