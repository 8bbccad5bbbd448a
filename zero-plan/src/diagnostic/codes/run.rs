//! Codes of a run: problems that show in the numbers of a step, and at the end of the run.

use super::Code;

/// Z0401 to Z0429, in order.
pub(super) const CODES: &[Code] = &[
    Code {
        code: "Z0401",
        title: "loss or gradient that is not finite",
        explanation: "The loss or a gradient went infinite or NaN. The step is done again to find where it began: the \
            message names the rank, the unit and the step. Lower `--lr`, set `--clip`, or look at the data of that \
            step.",
        example: "./zero3 --lr 1000",
    },
    Code {
        code: "Z0402",
        title: "rank that does not answer",
        explanation: "A rank has waited for another one for as long as --timeout allows, four times as long in the first \
            two steps. The missing rank is named with its process, the op that it was last in and what the kernel says of \
            it; and the op that waits. The run ends. A rank that is stopped, by Ctrl-Z or by a debugger, does not go on \
            by itself; one that runs is busy with something that takes longer than --timeout.",
        example: "kill -STOP the process of a rank, and wait",
    },
    Code {
        code: "Z0410",
        title: "mappings of another length than planned",
        explanation: "At the end of a run the lengths of the mappings that hold the arenas are compared with the plan, \
            to the byte, and those of a rank differ. The run itself has trained as it should. This is a fault of zero: \
            please report it with the spec.",
        example: "a build of zero whose arena leaves room that the plan does not know of",
    },
    Code {
        code: "Z0411",
        title: "other bytes moved than planned",
        explanation: "At the end of a run the bytes that a rank has copied from its peers, and those that it has read \
            where they lie, are compared with what the ops of the plan move, to the byte, and they differ. This is a \
            fault of zero, or of a transport of your own that leaves something out or does it twice.",
        example: "a transport whose `wait` copies each shard twice",
    },
    Code {
        code: "Z0412",
        title: "more memory held than planned",
        explanation: "A process has held more memory than its plan allows for: the arena, and outside of it the \
            program, data in memory and what each thread works in, as `--plan` lists them. Most often a layer or a \
            dataset of your own allocates: say so, in `WORKSPACE` or `SAVED` of the layer or in `resident_bytes` of \
            the dataset, and the budget counts it.",
        example: "a dataset of 1 GiB in memory, without `resident_bytes`",
    },
    Code {
        code: "Z0420",
        title: "id that the model has no place for",
        explanation: "A dataset gave an input id that is not less than the vocabulary of the model's first field, or a \
            target that is not less than the number of classes of its head. The message names the step, the rank and \
            the place in its micro-batch. No rank learns from such a step. Correct the dataset, or enlarge the \
            vocabulary.",
        example: "a dataset that gives class 300 to a model with `head: Classifier<64, 256>`",
    },
];
