//! Hardware: mistakes in descriptions of hardware, and plans that it cannot run.

use super::Code;

/// In order.
pub(super) const CODES: &[Code] = &[
    Code {
        code: "Z0175",
        title: "a description of hardware that is not understood",
        explanation: "A file of hardware is RON with the keys that the rustdoc of `zero_plan::hardware` lists. An unknown key, a \
                      missing one or a value of another kind is never passed over, as every figure decides what is predicted.",
        example: "cargo zero simulate specs/zero3.ron --on mine.ron, where mine.ron says `memroy: GB(24)`",
    },
    Code {
        code: "Z0176",
        title: "a figure of hardware that cannot be",
        explanation: "Rates are in operations or bytes a second, latencies in seconds, counts of devices and links at least 1. A \
                      figure that is far from what any machine has is usually of another unit: 300 for 300 GB/s, say.",
        example: "cargo zero simulate specs/zero3.ron --on mine.ron, where mine.ron says `bandwidth: 300.0`",
    },
];
