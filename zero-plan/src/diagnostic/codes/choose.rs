//! Choose: mistakes in questions for a layout.

use super::Code;

/// In order.
pub(super) const CODES: &[Code] = &[
    Code {
        code: "Z0160",
        title: "unknown hardware",
        explanation: "Hardware is chosen by the name of a file in `hardware/`, which the command has with it, or by the path of a \
                      file like these; networks lie in `hardware/networks/`. The message lists the names. `cargo zero measure` \
                      writes a file for the machine at hand.",
        example: "cargo zero advise --model gpt --on a100-08",
    },
    Code {
        code: "Z0161",
        title: "machines that cannot be planned for",
        explanation: "A mesh has 1 to 4096 ranks, one for each device of all nodes, and several nodes need a network: by \
            `--network NAME`, or in the hardware file.",
        example: "cargo zero advise --model gpt --on h100 --nodes 1000",
    },
    Code {
        code: "Z0162",
        title: "model that fits nowhere",
        explanation: "Of all layouts that were tried, none needs as little memory as a device has, even at stage 3 with \
            everything computed again. The message says what needs least, and what would have to be true: a device with \
            more memory, more nodes, smaller micro-batches or shorter sequences.",
        example: "cargo zero advise --model llama --size 3.1-70B --on a10g-2 --length 4096",
    },
    Code {
        code: "Z0163",
        title: "tokens that cannot be shared out",
        explanation: "A step works on whole sequences, as many on each rank with data of its own, in micro-batches of 1, \
            2, 4, 8 or 16 sequences. Ask for a multiple of the length, best of the length times the number of devices.",
        example: "cargo zero advise --model gpt --on a100-80 --length 256 --tokens-per-step 1000",
    },
    Code {
        code: "Z0164",
        title: "values that no layout has",
        explanation: "The values that `--pin` gives leave no layout to choose: axes that do not multiply to the number of \
            devices, or micro-batches of a size that is not tried.",
        example: "cargo zero advise --model gpt --on a100-80 --pin mesh.zero=3",
    },
    Code {
        code: "Z0165",
        title: "pin that is not understood",
        explanation: "`--pin KEY=VALUE` gives a key of a spec the value that it has there: `zero.stage=3`, \
            `pipeline.schedule=GPipe`, `recompute=Every(1)`. The message lists the keys that can be given.",
        example: "cargo zero advise --model gpt --on a100-80 --pin zero.stag=3",
    },
    Code {
        code: "Z0166",
        title: "advice that cannot be written",
        explanation: "The folder of `--write`, or the file of `--memo`, cannot be written: it must lie in a folder that \
            this user can write to, with space, and no file of that name may be there: it may have been changed by hand.",
        example: "cargo zero advise --model gpt --on a100-80 --memo /memo.md",
    },
];
