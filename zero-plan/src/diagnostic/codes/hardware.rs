//! Hardware: mistakes in descriptions of hardware, and plans that the hardware cannot run.

use super::Code;

/// In order.
pub(super) const CODES: &[Code] = &[
    Code {
        code: "Z0175",
        title: "a description of hardware that is not understood",
        explanation: "A file of hardware is RON with the keys that the rustdoc of `zero_study::hardware` lists. An unknown \
            or missing key or a value of the wrong kind is never ignored, because every figure affects the prediction.",
        example: "cargo zero simulate specs/zero3.ron --on mine.ron, where mine.ron says `memroy: GB(24)`",
    },
    Code {
        code: "Z0176",
        title: "an impossible figure of hardware",
        explanation: "Rates are in operations or bytes a second, latencies in seconds, counts of devices and links \
            at least 1. A figure far from that of any machine usually has another unit: 300 for 300 GB/s, say.",
        example: "cargo zero simulate specs/zero3.ron --on mine.ron, where mine.ron says `bandwidth: 300.0`",
    },
    Code {
        code: "Z0177",
        title: "a plan that the hardware cannot run",
        explanation: "If devices have memory of their own, each rank needs a device, so a node cannot have more \
            ranks than devices; and ranks that send to one another need a link. Any number of ranks can share a \
            processor's cores, but several nodes need a network. States on disk need its direct rates, \
            `node.disk.direct`, and ranks that compute on a processor.",
        example: "cargo zero simulate specs/hybrid.ron --on a10g-2, where the mesh has 4 ranks a node",
    },
    Code {
        code: "Z0178",
        title: "a binary that does not say its sizes",
        explanation: "The command asks a binary for the sizes of its model, and computes plans, times and pictures \
            from them. A program whose `main` does not call `zero_runtime::main` cannot answer.",
        example: "cargo zero simulate my.ron, where the package's `main` is a loop of its own",
    },
    Code {
        code: "Z0179",
        title: "a machine or a model that cannot be measured",
        explanation: "`cargo zero measure SPEC` trains the model of a spec for some steps, on as many ranks as the cores \
            allow or, with `device: Cuda`, on one GPU, and reads the profile. A model whose `main` needs arguments or data \
            of its own cannot be measured this way. A description is of a processor or of GPUs, so all specs of a call must \
            be for the same one. With `--hosts a,b` it starts two ranks by mpirun, which measure the network between them.",
        example: "cargo zero measure specs/my.ron, where the model learns from numbers of its own",
    },
    Code {
        code: "Z0180",
        title: "a result that cannot be written",
        explanation: "The file that `--out` and similar options name must be new, in a folder that exists and is \
            writable: no existing file is overwritten.",
        example: "cargo zero measure --out here.ron, where here.ron exists",
    },
];
