//! Codes of a run: what shows in the numbers of a step.

use super::Code;

/// Z0401 to Z0499, in order.
pub(super) const CODES: &[Code] = &[Code {
    code: "Z0401",
    title: "loss or gradient that is not finite",
    explanation: "The loss or a gradient went infinite or NaN. The step is done again to find where it began: the message \
            names the rank, the unit and the step. Lower `--lr`, set `--clip`, or look at the data of that step.",
    example: "./zero3 --lr 1000",
}];
