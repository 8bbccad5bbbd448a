//! Choose: mistakes in questions for a layout.

use super::Code;

/// In order.
pub(super) const CODES: &[Code] = &[
    Code {
        code: "Z0160",
        title: "unknown hardware",
        explanation: "Hardware is chosen by the name of a file in `hardware/`, which are built into the command, \
            or by the path of such a file; networks lie in `hardware/networks/`. The message lists the names. \
            `cargo zero measure` writes a file for the machine that it runs on.",
        example: "cargo zero advise --model gpt --on a100-08",
    },
    Code {
        code: "Z0161",
        title: "machines that cannot be planned for",
        explanation: "A mesh has 1 to 4096 ranks, one for each device of all nodes, and several nodes need a \
            network, from `--network NAME` or the hardware file. `--offload` needs ranks on a processor, and the direct \
            rates of their disk.",
        example: "cargo zero advise --model gpt --on h100 --nodes 1000",
    },
    Code {
        code: "Z0162",
        title: "model that fits nowhere",
        explanation: "No layout that was tried fits the memory of a device, not even at stage 3 with everything \
            recomputed, nor with the optimizer's state on disk, where the machines can do that. The message names the layout that needs least, and the changes after which a layout fits, the \
            cheapest first: everything in bf16, the fewest nodes, a device with more memory.",
        example: "cargo zero advise --model llama --size 3.1-70B --on a10g-2 --length 4096",
    },
    Code {
        code: "Z0163",
        title: "tokens that cannot be divided among ranks",
        explanation: "A step works on whole sequences, the same number on each rank with data of its own, in micro-batches of \
            1, 2, 4, 8 or 16 sequences. Choose a multiple of the length, preferably of the length times the number of devices.",
        example: "cargo zero advise --model gpt --on a100-80 --length 256 --tokens-per-step 1000",
    },
    Code {
        code: "Z0164",
        title: "values that no layout has",
        explanation: "The values of `--pin` leave no layout to choose from: axes that do not multiply to the \
            number of devices, or micro-batches of a size that is not tried.",
        example: "cargo zero advise --model gpt --on a100-80 --pin mesh.zero=3",
    },
    Code {
        code: "Z0165",
        title: "pin that is not understood",
        explanation: "`--pin KEY=VALUE` sets a key of the spec, written as in a spec: `zero.stage=3`, \
            `pipeline.schedule=GPipe`, `recompute=Every(1)`. The message lists the keys that can be set.",
        example: "cargo zero advise --model gpt --on a100-80 --pin zero.stag=3",
    },
    Code {
        code: "Z0166",
        title: "advice that cannot be written",
        explanation: "The folder of `--write`, or the file of `--memo`, cannot be written. It must lie in a folder that \
            this user can write to, with space. No file of that name may exist, because it may have been changed by hand.",
        example: "cargo zero advise --model gpt --on a100-80 --memo /memo.md",
    },
];
