//! See: mistakes in requests for a drawing.

use super::Code;

/// In order.
pub(super) const CODES: &[Code] = &[
    Code {
        code: "Z0170",
        title: "a profile that cannot be read",
        explanation: "A profile is the trace that a binary writes with `--profile`: JSON with an event for each \
            step and each op of each rank. A trace of another program has no such steps, and the trace of a run \
            that was killed may end in the middle.",
        example: "cargo zero view specs/zero3.ron --profile specs/zero3.ron",
    },
    Code {
        code: "Z0171",
        title: "a profile of another plan",
        explanation: "The measured ops are drawn below the planned ops. So the profile must have the ranks and the \
            ops of the plan; the message names the first difference. Other specs, models and sizes have other \
            plans.",
        example: "cargo zero view specs/zero2.ron --profile profile.json, where a run of specs/zero3.ron has written it",
    },
    Code {
        code: "Z0172",
        title: "a picture or code that cannot be written",
        explanation: "The page, the figure or the code is written as a whole to the file that `--out` names, or beside the \
            binary of the spec. Its directory must exist, be writable and have space.",
        example: "cargo zero view specs/zero3.ron --out /no/such/directory/zero3.html",
    },
];
