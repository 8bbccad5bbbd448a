//! Kit: mistakes in files of other frameworks, and problems that keep a new crate from being made.

use super::Code;

/// Z0154 to Z0159, in order.
pub(super) const CODES: &[Code] = &[
    Code {
        code: "Z0154",
        title: "configuration that is not understood",
        explanation: "`cargo zero import` reads DeepSpeed's JSON and the YAML that `accelerate config` writes, and \
            this file is neither: it has a mistake of syntax, a key twice, or no keys at all. Aliases and several \
            documents in one file are not read.",
        example: "cargo zero import ds_config.json # which has a comma before a closing brace",
    },
    Code {
        code: "Z0155",
        title: "unknown key in a configuration",
        explanation: "This command does not know such a key there. It may be misspelled, in the wrong section, or \
            newer than this command. It is not ignored, because then nobody could tell what the spec leaves out. \
            Correct the key, or remove it.",
        example: "cargo zero import ds_config.json # which has `reduce_buket_size` in `zero_optimization`",
    },
    Code {
        code: "Z0156",
        title: "value that a configuration's key cannot have",
        explanation: "The key is known, but its value has another type, is out of range, or contradicts another \
            key. The message says what is expected.",
        example: "cargo zero import ds_config.json # which has `\"stage\": 4`",
    },
    Code {
        code: "Z0157",
        title: "ranks or batch that cannot be determined",
        explanation: "A spec states the number of ranks and the batch of each. The file, together with `--ranks`, \
            `--nodes`, `--sequences` and `--micro-batches`, does not determine them, does not multiply out, or \
            asks for an axis that does not exist.",
        example: "cargo zero import ds_config.json # which has a `train_batch_size`, and no `--ranks`",
    },
    Code {
        code: "Z0158",
        title: "new crate that cannot be made",
        explanation: "`cargo zero init NAME` makes a folder of that name, or fills an empty one: it never writes \
            among existing files. The package has the folder's name: letters, digits, `-` and `_`, beginning with \
            a letter. Words of Rust, names of its own crates, and names of this project are not allowed, because \
            they would name two things.",
        example: "cargo zero init 7b",
    },
    Code {
        code: "Z0159",
        title: "missing runtime",
        explanation: "A new crate depends on `zero-runtime`. A command that was built in a clone of this project's \
            repository writes the path of that clone; one that was built from a package writes its own version. \
            `--zero` names a clone for either. The clone is gone, or has no `zero-runtime`.",
        example: "cargo zero init mine --zero ../elsewhere # which is not a clone",
    },
];
