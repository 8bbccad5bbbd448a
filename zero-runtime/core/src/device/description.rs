//! Description: a device's name and memory, for a person who describes a machine. Nothing is computed from it.

/// A device with memory of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceDescription {
    /// Its name.
    pub name: String,
    /// Its memory, in bytes.
    pub memory_bytes: usize,
    /// The part of it that is in use by any program, this one included.
    pub taken_bytes: usize,
}
