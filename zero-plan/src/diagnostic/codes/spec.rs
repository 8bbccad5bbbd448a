//! Codes of specs, attributes and structs: mistakes that the macro finds, and the command before any build.

use super::Code;

/// Z0101 to Z0119, in order.
pub(super) const CODES: &[Code] = &[
    Code {
        code: "Z0101",
        title: "not RON",
        explanation: "The text is not RON, so its keys were not checked. The place is where reading stopped; the \
            cause is there or shortly before: a missing comma, a parenthesis or a string that is never closed, a \
            key without a colon.",
        example: "(zero: (stage: 3) mesh: (zero: 2))",
    },
    Code {
        code: "Z0102",
        title: "missing key",
        explanation: "A key without a default is missing. There are two such keys: `stage` in `zero`, because only \
            you can decide which states to shard, and the number of `chunks` of `Interleaved`. Every other key has \
            a default.",
        example: "(mesh: (zero: 2))",
    },
    Code {
        code: "Z0103",
        title: "wrong type, or unknown variant",
        explanation: "The value is of another kind than the key expects, such as a string in place of a number, a \
            number without a unit in place of a size, or a name that is not among the choices. The message says \
            what is expected.",
        example: "(zero: (stage: 3, bucket: 25))",
    },
    Code {
        code: "Z0104",
        title: "duplicate key",
        explanation: "A key is given twice in one section. Only one of the two could count, and a reader could not \
            tell which, so neither does: remove one.",
        example: "(zero: (stage: 3, prefetch: 1, prefetch: 2))",
    },
    Code {
        code: "Z0105",
        title: "no such stage",
        explanation: "There are four stages. At stage 0 every rank holds all of the parameters, gradients and \
            optimizer state; stage 1 shards the optimizer state among the ranks, stage 2 the gradients too, and stage \
            3 the parameters too.",
        example: "(zero: (stage: 4))",
    },
    Code {
        code: "Z0106",
        title: "value out of range",
        explanation: "The value is of the right kind but impossible: no ranks, no sequences, no tokens, no \
            micro-batches, a size of zero bytes, a negative number, fewer than 2 interleaved chunks, a mesh of \
            more than 4096 ranks, or a number, a size or a step too large to count in 64 bits. The message says \
            which values are expected.",
        example: "(mesh: (zero: 0), zero: (stage: 3))",
    },
    Code {
        code: "Z0107",
        title: "unknown key",
        explanation: "There is no such key in this section. It is not ignored, because a run would then train \
            something other than what was asked for. The message lists the keys of the section, and the section of \
            that key if it is another one: `micro_batches` in `batch`, the number of pipeline stages in `mesh`.",
        example: "(zero: (stage: 3, prefech: 2))",
    },
    Code {
        code: "Z0108",
        title: "option without effect",
        explanation: "The option changes nothing in this spec, whatever its value. `prefetch` says how many units ahead \
            parameters are gathered, and only stage 3 gathers them unit by unit: remove `prefetch`, or choose stage 3. \
            The same is true of `prefetch` on one rank along `zero`, `gather` below stage 3, `reduce` with one \
            micro-batch, `pipeline` with one pipeline stage, `within_node` on one node or for an axis of one rank, \
            `host` and `disk` where nothing is kept there, and `prefetch` and `piece` of `offload`, where all states are on \
            the device.",
        example: "(zero: (stage: 2, prefetch: 1))",
    },
    Code {
        code: "Z0109",
        title: "attribute and spec disagree",
        explanation: "The attribute names a spec and also gives an option of its own, with a value that differs \
            from the spec's. Neither takes precedence: remove the option from the attribute, or make the two equal.",
        example: "#[zero(spec = \"specs/zero3.ron\", stage = 2)] // the spec says `stage: 3`\nstruct Gpt { /* ... */ }",
    },
    Code {
        code: "Z0110",
        title: "unusable attribute or struct",
        explanation: "`#[zero(...)]` takes `name = value` options and stands on a struct with named fields, each a \
            layer or an array of layers: the fields, in order, are the units that are gathered and released. An \
            enum, a union, a generic or tuple struct, a struct of fewer than two fields, or an attribute of \
            another form has no such order. `#[tied(field)]` stands on the last field and names one before it. A \
            spec file must be readable.",
        example: "#[zero(stage = 3)]\nstruct Gpt(Embedding<VOCAB, CONTEXT, DIM>, LmHead<DIM, VOCAB>);",
    },
    Code {
        code: "Z0111",
        title: "mesh does not multiply out",
        explanation: "`nodes` and `ranks_per_node` state where the ranks run, and `replica`, `pipeline` and `zero` \
            how they share the work: both must multiply to the same number of ranks. If only one of the first two \
            is given, it must divide that number. Correct the wrong key, or leave `nodes` and `ranks_per_node` \
            out: the axes alone suffice.",
        example: "(mesh: (nodes: 2, ranks_per_node: 4, zero: 4), zero: (stage: 3))",
    },
    Code {
        code: "Z0112",
        title: "axis cannot stay within a node",
        explanation: "`within_node` keeps the messages along an axis within a node. Ranks are then numbered along \
            those axes first, and a node has consecutive ranks, so the lengths of all of them must multiply to a \
            divisor of the ranks per node. Otherwise a node would end in the middle of an axis, and its messages \
            would cross the slower network. Shorten the axis, put fewer axes into the list, or use larger nodes.",
        example: "(mesh: (ranks_per_node: 4, zero: 8, within_node: [Zero]), zero: (stage: 3))",
    },
    Code {
        code: "Z0113",
        title: "micro-batches do not fit the pipeline",
        explanation: "With p pipeline stages and m micro-batches, each pipeline stage idles for (p - 1) / (m + p - \
            1) of a step; with fewer micro-batches than stages, some stages never work at the same time as the \
            others. `Interleaved` takes micro-batches in rounds of p, so m must be a multiple of p. Raise \
            `micro_batches`, or lower `pipeline` in `mesh`.",
        example: "(mesh: (pipeline: 4), zero: (stage: 1), batch: (micro_batches: 2))",
    },
    Code {
        code: "Z0114",
        title: "keys that contradict one another",
        explanation: "Each value is valid, but not together with the others. A `master` copy narrower than its \
            `params` would lose bits in every update. A transport does not reach the memory of another device. \
            Muon needs whole matrices, which `Cluster` does not gather from shards on several hosts (stages 1 to \
            3, with ranks along `zero` on more than one node). `offload` cannot keep states in the memory that the device \
            computes in, nor those of Muon, nor beside `snapshot`, nor yet those of a GPU on disk. It keeps gradients only from \
            stage 2 on, and parameters only at stage 3, and neither if they are held until the end of a step (`PerStep`), or \
            would be sent to other hosts from a place that the next ones take; parameters also need the width that layers \
            compute in. `publish` does not yet copy parameters of a GPU, and not those that only a tier has in the type that is asked \
            for. In a list with an entry twice, another entry was probably meant.",
        example: "(zero: (stage: 1), precision: (master: BF16))",
    },
    Code {
        code: "Z0115",
        title: "impossible split",
        explanation: "`Split([3, 4])` lists the number of units of each chunk of the model, in the order of forward: \
            one entry for each pipeline stage, or for each chunk of each pipeline stage with `Interleaved`, and no \
            entry 0, because a pipeline stage without units has nothing to do. `Balanced` needs no entries.",
        example: "(mesh: (pipeline: 2), zero: (stage: 1), pipeline: (units: Split([3, 2, 2])), batch: (micro_batches: 2))",
    },
    Code {
        code: "Z0116",
        title: "spec names a field that the model does not have",
        explanation: "`recompute: Fields([\"blocks\"])` names fields of the struct under `#[zero]`, and the struct \
            has no such field. With an unknown name, nothing would be recomputed and no memory saved. The message \
            lists the fields of the struct.",
        example: "#[zero(stage = 3, recompute = Fields([\"block\"]))]\n\
            struct Gpt {\n    embed: Embedding<VOCAB, CONTEXT, DIM>,\n    blocks: [Block; 6],\n    head: LmHead<DIM, VOCAB>,\n}",
    },
    Code {
        code: "Z0117",
        title: "spec in another format",
        explanation: "A spec is RON, Rusty Object Notation, and this is YAML, TOML, JSON or XML by its first line. In \
            RON a section is a parenthesised group of `key: value` entries with commas between them, the spec as a \
            whole included; a comment begins with `//`.",
        example: "zero:\n  stage: 3 # YAML; in RON it is `(zero: (stage: 3))`",
    },
    Code {
        code: "Z0118",
        title: "spec that is not UTF-8",
        explanation: "The file holds bytes that are not UTF-8, so it was not read as a spec. It may have been \
            saved in another encoding, such as Latin-1 or UTF-16, or not be text at all. Save it as UTF-8; a byte \
            order mark in front of it is fine.",
        example: "specs/zero3.ron saved as UTF-16",
    },
    Code {
        code: "Z0119",
        title: "spec that nests too deep",
        explanation: "Parentheses, brackets or braces nest deeper than any spec needs, so the text was not read to \
            its end. A spec is two sections deep; most often a script has written it wrong.",
        example: "cargo zero build deep.ron # of a thousand `(a:` in one another",
    },
];
