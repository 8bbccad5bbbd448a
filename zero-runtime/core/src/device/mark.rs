//! Mark: a property that distinguishes devices whose results differ in their bits. Never says which of them is right.

/// A number of a device, of its libraries, or of their choices: if ranks differ in it, their results may differ too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// Its subject.
    pub what: &'static str,
    /// The number.
    pub value: u64,
    /// Whether it follows from the shapes of an op's views, which are those of a pipeline stage.
    pub is_of_shapes: bool,
}

impl Mark {
    /// Values are smaller than this, so that ranks can exchange them as floating-point numbers.
    const END: u64 = 1 << 52;

    /// A number that is the same on all ranks. Its highest bits are dropped.
    pub fn new(what: &'static str, value: u64) -> Self {
        Self { what, value: value % Self::END, is_of_shapes: false }
    }

    /// A number that is the same on all ranks of a pipeline stage.
    pub fn of_shapes(what: &'static str, value: u64) -> Self {
        Self { is_of_shapes: true, ..Self::new(what, value) }
    }
}
