//! Codes of a run: problems that show in the numbers of a step, and at the end of the run.

use super::Code;

/// Z0401 to Z0429, in order.
pub(super) const CODES: &[Code] = &[
    Code {
        code: "Z0401",
        title: "loss or gradient that is not finite",
        explanation: "The loss or a gradient went infinite or NaN. The step is run again to find where it began: \
            the message names the rank, the unit and the step. Lower `--lr`, set `--clip`, or look at the data of \
            that step.",
        example: "./zero3 --lr 1000",
    },
    Code {
        code: "Z0402",
        title: "rank that does not answer",
        explanation: "A rank has waited for another one for as long as --timeout allows, four times as long in the \
            first two steps. The message names the missing rank with its process, its last op and its state in the \
            kernel, and the op that waits. The run ends. A rank that is stopped, by Ctrl-Z or by a debugger, does \
            not continue by itself; a running rank is busy with something that takes longer than --timeout.",
        example: "kill -STOP the process of a rank, and wait",
    },
    Code {
        code: "Z0410",
        title: "mappings of another length than planned",
        explanation: "At the end of a run the lengths of the mappings that hold the arenas, and of the host memory that keeps \
            states, are compared with the plan, to the byte, and those of a rank differ. The training itself was \
            correct. This is a fault of zero: please report it with the spec.",
        example: "a build of zero whose arena has room that is not in the plan",
    },
    Code {
        code: "Z0411",
        title: "number of bytes moved differs from the plan",
        explanation: "At the end of a run the number of bytes that a rank has copied from its peers, and of those \
            that it has read in place, is compared with the ops of the plan, to the byte; so are the bytes that it has \
            read and written where `offload` keeps states. It differs. This is a fault of zero, or of a transport of your \
            own that leaves out a copy or makes it twice.",
        example: "a transport whose `wait` copies each shard twice",
    },
    Code {
        code: "Z0412",
        title: "more memory held than planned",
        explanation: "A process has held more memory than its plan allows for: the arena, and outside of it the \
            program, data in memory and the scratch of each thread, as `--plan` lists them. Most often a layer or \
            a dataset of your own allocates. Declare that in `WORKSPACE` or `SAVED` of the layer or in \
            `resident_bytes` of the dataset, so that the budget counts it.",
        example: "a dataset of 1 GiB in memory, without `resident_bytes`",
    },
    Code {
        code: "Z0413",
        title: "states that cannot be read or written on disk",
        explanation: "A rank keeps states in a file in the folder of --offload, and the system could not read or write a part \
            of it: the disk has failed, is full, or is gone. The message names the rank, the bytes of its file, the op and \
            what the system said. All ranks end, and the run goes on from its last checkpoint, on another disk if it happens \
            again.",
        example: "a disk that is removed while a run keeps states on it",
    },
    Code {
        code: "Z0420",
        title: "id out of range for the model",
        explanation: "A dataset returned an input id that is not below the vocabulary of the model's first field, \
            or a target that is not below the number of classes of its head. The message names the step, the rank \
            and the place in its micro-batch. No rank learns from such a step. Correct the dataset, or enlarge the \
            vocabulary.",
        example: "a dataset that gives class 300 to a model with `head: Classifier<64, 256>`",
    },
];
