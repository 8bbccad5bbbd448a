//! Codes of the command: mistakes that keep a spec from becoming a binary that runs.

use super::Code;

/// Z0120 to Z0138, in order.
pub(super) const CODES: &[Code] = &[
    Code {
        code: "Z0120",
        title: "spec that cannot be read",
        explanation: "No file that this user can read has this path, neither a spec nor a configuration to import. \
            Paths are relative to the directory in which the command runs. `cargo zero diff SPEC` also needs the \
            file in git's HEAD.",
        example: "cargo zero build specs/zero4.ron # there is no such file",
    },
    Code {
        code: "Z0121",
        title: "spec without a model",
        explanation: "`cargo zero` builds the model that a spec names, but this spec names none. Add `model: \
            Example(\"gpt\")` for an example of this workspace, or `model: Package(\"...\")` for a package of your \
            own. The attribute form needs no name: there the struct is the model.",
        example: "cargo zero build my.ron # my.ron is `(zero: (stage: 1))`",
    },
    Code {
        code: "Z0122",
        title: "unknown model",
        explanation: "The workspace has no package of that name with a binary, and for `Example` no example of \
            that name either, such as `examples/NAME.rs` of a package. The message lists those that exist.",
        example: "cargo zero build my.ron # my.ron has `model: Example(\"gtp\")`",
    },
    Code {
        code: "Z0123",
        title: "cargo that cannot be run",
        explanation: "The command compiles with cargo, and could not start it or could not read its output. It \
            uses the cargo that runs it, and otherwise the one on the path.",
        example: "zero build specs/zero3.ron # without a cargo on the path",
    },
    Code {
        code: "Z0124",
        title: "model that does not compile",
        explanation: "The spec is valid, but cargo cannot build the model under it, most often because rustc rejects \
            it. The messages of both are above this one, often with a code of their own: an exceeded budget is Z0201.",
        example: "cargo zero build specs/zero3.ron # whose `memory` is too small for the model",
    },
    Code {
        code: "Z0125",
        title: "output that cannot be written",
        explanation: "The binary, the text beside it or the lock of a build cannot be written to `target/zero/`, \
            or a file that the command makes cannot be written where it belongs. The directory must be writable \
            and have space. An import does not overwrite a spec that exists.",
        example: "cargo zero build specs/zero3.ron # on a full disk",
    },
    Code {
        code: "Z0126",
        title: "binary that cannot be started",
        explanation: "The binary was built, but the system does not start it. Most likely its file system does not \
            allow programs.",
        example: "cargo zero run specs/zero3.ron # with `target` on a file system mounted `noexec`",
    },
    Code {
        code: "Z0127",
        title: "no workspace",
        explanation: "The command needs the cargo workspace that has the model, and there is none in the current \
            directory or above it. Go into it first.",
        example: "cd / && zero build specs/zero3.ron",
    },
    Code {
        code: "Z0128",
        title: "several binaries",
        explanation: "The package of the model has more than one binary, and none has the package's name, so the \
            command cannot tell which one trains. Choose one by `--bin NAME`, or permanently by `default-run` in \
            the package's Cargo.toml.",
        example: "cargo zero run my.ron # a model whose src/bin has train.rs and serve.rs",
    },
    Code {
        code: "Z0129",
        title: "unknown code or word",
        explanation: "`cargo zero explain` knows the codes that messages carry, words of the field as they are used here, \
            names of PyTorch's FSDP, and keys of DeepSpeed's configuration. Case, hyphens, underscores and blanks make no \
            difference. Without a word it lists all of them.",
        example: "cargo zero explain Z017",
    },
    Code {
        code: "Z0130",
        title: "plan that is not sound",
        explanation: "The binary was asked to prove its plan over the ops of all ranks, and found a flaw, which \
            Z0292 describes. It is a fault of zero and not of the spec. Nothing was trained.",
        example: "cargo zero build specs/zero3.ron # with a planner that forgets a receive",
    },
    Code {
        code: "Z0131",
        title: "unknown binary",
        explanation: "`--bin` chooses among the binaries of the model's package, and none has that name. The \
            message lists them. An example of a package is not a binary: a spec names it, `model: \
            Example(\"...\")`.",
        example: "cargo zero run specs/zero3.ron --bin trian",
    },
    Code {
        code: "Z0132",
        title: "command line that is not understood",
        explanation: "There is no such command or argument, or one is missing. Arguments of the binary, such as \
            `--steps`, come after `--`; `cargo zero --help` lists the commands, and `cargo zero run SPEC -- --help` \
            the binary's arguments.",
        example: "cargo zero run specs/zero3.ron --steps 5",
    },
    Code {
        code: "Z0133",
        title: "path that is not UTF-8",
        explanation: "The path of the spec is passed to the compiler as text, which must be UTF-8. Rename the \
            file, or the directory that it lies in.",
        example: "mv my.ron $'\\xff.ron' && cargo zero run $'\\xff.ron'",
    },
    Code {
        code: "Z0134",
        title: "example of several packages",
        explanation: "`model: Example(\"...\")` names an example of the workspace, and several packages have one of \
            that name. Rename all but one of them.",
        example: "model: Example(\"train\") # one/examples/train.rs beside two/examples/train.rs",
    },
    Code {
        code: "Z0135",
        title: "workspace that cargo cannot read",
        explanation: "There is a Cargo.toml in the current directory or above it, but cargo rejects it. The \
            message has cargo's own words; `cargo metadata` repeats them until the file is corrected.",
        example: "cargo zero run my.ron # beside a Cargo.toml with a misspelled section",
    },
    Code {
        code: "Z0136",
        title: "size of a model that has one size",
        explanation: "`size` in a spec or `--size` chooses among the sizes of a model, and `layers`, `width` and the like \
            change parts of it: they set the variables `ZERO_SIZE` and `ZERO_PARTS` for the compiler, but this model never \
            reads them. Leave them out, or write the sizes of the model as a list from which `zero_runtime::chosen` picks \
            one, and list the parts that may change in `zero_runtime::resized`.",
        example: "cargo zero run my.ron --size 4B",
    },
    Code {
        code: "Z0137",
        title: "size that is not that of the spec",
        explanation: "The spec gives the size of its model, `model: Example(\"llama\", size: \"3.1-8B\")`, and the command \
            line, or the variables `ZERO_SIZE` and `ZERO_PARTS` of a build by cargo itself, give another one. A plan is for \
            one size. Leave the arguments out, or change the spec.",
        example: "cargo zero plan my.ron --size 28M # of a spec with size: \"3.1-8B\"",
    },
    Code {
        code: "Z0138",
        title: "run that cannot be followed",
        explanation: "`cargo zero follow URL --out FOLDER` reads the parameters that a run publishes. Nobody answers at the URL, for \
            longer than `--patience`, or the run wants a token; or the file of --engines cannot be read. A version that is corrupt, or cannot be written, is only a note: the \
            folder keeps the version that it has, and the next one is tried.",
        example: "cargo zero follow http://127.0.0.1:7000 --out followed # and no run publishes there",
    },
];
