//! Choose: mistakes in what a layout is asked for.

use super::Code;

/// In order.
pub(super) const CODES: &[Code] = &[Code {
    code: "Z0160",
    title: "unknown hardware",
    explanation: "Hardware is chosen by the name of a file in `hardware/`, which the command has with it, or by the path of a \
                      file like these; networks lie in `hardware/networks/`. The message lists the names. `cargo zero measure` \
                      writes a file for the machine at hand.",
    example: "cargo zero advise --model gpt --on a100-08",
}];
