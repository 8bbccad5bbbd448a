//! Codes of a build: mistakes that show once sizes are known, when rustc evaluates the constants of a plan.

use super::Code;

/// Z0201 to Z0299, in order.
pub(super) const CODES: &[Code] = &[
    Code {
        code: "Z0201",
        title: "memory budget exceeded",
        explanation: "The memory that a rank needs is a constant of the plan: one arena, and a bound of the memory \
            outside of it (program, data, scratch of threads). Together they exceed `memory` in the spec. The \
            message says by how much, and names the op at which most is in use and the parts that use it. `cargo \
            zero build`, and every command that builds, adds layouts of the same ranks and tokens that would fit, \
            the fastest first: a higher stage, less prefetch, gathers and reductions in every micro-batch, smaller \
            micro-batches, recomputation. Choose one of them, or raise `memory`.",
        example: "#[zero(stage = 0, ranks = 8, memory = KiB(48))] // and a model that needs more",
    },
    Code {
        code: "Z0202",
        title: "sequences longer than the context",
        explanation: "An embedding has as many positions as its context, and the spec asks for longer sequences. Raise \
            the context of the model, or lower `length` in the spec.",
        example: "#[zero(stage = 3, length = 512)]\nstruct Gpt { embed: Embedding<65, 256, 8>, head: LmHead<8, 65> }",
    },
    Code {
        code: "Z0203",
        title: "heads that do not divide",
        explanation: "Attention divides its features among heads of one width, so the number of heads must divide the \
            number of features. If heads share keys and values, the same number of heads shares each, so `KEY_HEADS` \
            must divide `HEADS`. A head has at most 1024 features, because a thread has no room for more.",
        example: "attention: CausalSelfAttention<8, 3>",
    },
    Code {
        code: "Z0204",
        title: "head without a loss",
        explanation: "The last field must return one f32 for each token, its loss: `type Output = Loss`. A step \
            cannot use several numbers a token, or numbers of another width.",
        example: "impl<S: Shape> Layer<S, Features<8>> for Head { type Output = Features<2>; /* ... */ }",
    },
    Code {
        code: "Z0205",
        title: "tied layer that needs too many parameters",
        explanation: "A tied layer computes with the parameters of another field, and needs more of them than that \
            field has. Tie it to a field with at least as many, or give it parameters of its own.",
        example: "impl SharesWith<Small> for Large {} // whose PARAMS is larger than that of Small",
    },
    Code {
        code: "Z0206",
        title: "units that cannot be placed on the pipeline",
        explanation: "A pipeline stage holds whole units, one or more in each chunk of the model. There may be fewer \
            units than chunks, `Even` may not divide them, or the entries of `Split` may not add up to them. Choose \
            `Balanced`, correct the entries, or lower the number of pipeline stages or chunks.",
        example: "#[zero(stage = 1, pipeline = 4, micro_batches = 4, units = Even)] // and a model of 9 units",
    },
    Code {
        code: "Z0207",
        title: "tensor of zero elements",
        explanation: "A layer has a tensor with no elements, or a field is an array of no layers: a dimension came \
            out as 0. It would have nothing to train, so a constant of the model is wrong.",
        example: "hidden: Linear<8, { 3 / 4 }>",
    },
    Code {
        code: "Z0208",
        title: "unit smaller than its shards",
        explanation: "A unit has fewer parameters than there are ranks to shard it, so that most ranks would hold \
            nothing but padding. Use fewer ranks along `zero`, or put the layer into one field together with a larger \
            one.",
        example: "#[zero(stage = 3, ranks = 64)] // and a field `norm: LayerNorm<8>`, which has 16 parameters",
    },
    Code {
        code: "Z0209",
        title: "prefetch deeper than the units",
        explanation: "`prefetch` says how many units ahead parameters are gathered, and a pipeline stage of the \
            model has no more units than that. Lower it below the number of units.",
        example: "#[zero(stage = 3, prefetch = 9)] // and a model of 3 units",
    },
    Code {
        code: "Z0210",
        title: "size that overflows",
        explanation: "The size of a tensor, a unit or the arena does not fit 64 bits. A constant of the model or of \
            the spec is far from what was meant.",
        example: "hidden: Linear<{ usize::MAX }, 2>",
    },
    Code {
        code: "Z0211",
        title: "neighbouring layers whose widths differ",
        explanation: "Fields form a chain: each field reads the output of the field before it, and these two do not agree. rustc \
            shows the field that expects another input. Correct the constants of one of the two, or put a layer between them.",
        example: "norm: LayerNorm<8>,\nhead: LmHead<9, 65>,",
    },
    Code {
        code: "Z0212",
        title: "schedule too large to compile",
        explanation: "Every op of a step is a constant that the compiler computes and checks. A plan may have \
            32768 of them, on all pipeline stages together, and 1024 units, which takes a few seconds. Each \
            micro-batch adds every unit forward and backward, with its gathers and reductions. Lower \
            `micro_batches` to the number in the message and raise `sequences` instead, or put several layers into \
            one field, which makes them one unit.",
        example: "#[zero(stage = 3, micro_batches = 4000)] // and a model of 9 units",
    },
    Code {
        code: "Z0213",
        title: "head that predicts ids which the model cannot read",
        explanation: "`main` trains on text and samples from it: the prediction of the head is the next input. The \
            head has more classes than the first field has ids, so some token would be out of range there. Make \
            the two vocabularies equal. A model that is not a language model calls `main_with` with a dataset of \
            its own, where targets need not be ids.",
        example: "embed: Embedding<100, 256, 8>,\nhead: LmHead<8, 256>, // and `zero_runtime::main`",
    },
    Code {
        code: "Z0214",
        title: "size that the model does not have",
        explanation: "An architecture can have several sizes. The `size` of a spec or `--size` chooses one by its name when \
            the model is built; for a build by cargo itself, the variable `ZERO_SIZE` does. No size has this name: the \
            message lists all of them.",
        example: "cargo zero plan specs/qwen3.ron --size 5B",
    },
    Code {
        code: "Z0215",
        title: "losses in the backward of a layer that is not the head",
        explanation: "`LOSSES_IN_BACKWARD` says that `backward` computes the losses too, so that training never \
            calls `forward`. Only the last layer of a model computes losses. Training needs the `forward` of every \
            other layer, whose output is the input of the next layer. Remove the constant there.",
        example: "const LOSSES_IN_BACKWARD: bool = true; // in a layer whose `Output` is `Features<8>`",
    },
    Code {
        code: "Z0216",
        title: "part that the sizes of a model do not have",
        explanation: "`--layers`, `--width` and the like, or the keys of `model` with these names, change parts of a size. The \
            model lists the parts that can change in `zero_runtime::resized`, and this one is not among them: it may follow \
            from the others, as in GPT-2 the inner width of an MLP is 4 times the width.",
        example: "cargo zero plan specs/gpt2.ron --inner 4096",
    },
    Code {
        code: "Z0217",
        title: "part of a size that cannot be divided",
        explanation: "All heads of an attention are equally wide, and layers that alternate come in whole groups, so the parts of \
            a size must divide without a remainder. Change one of the two.",
        example: "cargo zero plan specs/llama.ron --heads 7 # of a width of 48",
    },
    Code {
        code: "Z0219",
        title: "recomputation of nothing",
        explanation: "`recompute: Every(k)` recomputes units number k, 2 k and so on, but never the last of the \
            model, whose backward follows its forward at once. The model has no more than k units, so nothing \
            would be recomputed and no memory saved. Lower k below the number of units, or remove `recompute`.",
        example: "#[zero(stage = 1, recompute = Every(100))] // and a model of 7 units",
    },
    Code {
        code: "Z0220",
        title: "published names that do not fit a layer",
        explanation: "`#[weights(...)]` with several names gives one to each part of a field's layer: the fields \
            of a struct, or the tensors of a layer without any. The number of names is not the number of parts, \
            which is found when the layer lists its parts, before ranks start. Write one name for the whole layer, \
            or one for each part, with `_` for a part without a name.",
        example: "#[weights(\"wte.weight\", \"wpe.weight\", \"ln.weight\")]\nembed: Embedding<65, 256, 8>, // which has two tensors",
    },
    Code {
        code: "Z0221",
        title: "published name of more than one tensor",
        explanation: "Programs that read or write the weights of a model find a tensor by its name, so names must \
            differ. Most often `{}` is missing in the name of an array field: the index of each element replaces \
            it. A name has one index, and none outside of an array. Names in a layer are joined to names outside \
            of it, so this is found when all names of a model are known, before ranks start.",
        example: "#[weights(\"h\")]\nblocks: [Block; 4], // without `h.{}`",
    },
    Code {
        code: "Z0222",
        title: "a device that the build leaves out",
        explanation: "Support for GPUs is a feature of zero-runtime, so that programs for a processor do not contain \
            it. `cargo zero` enables it if the spec names the device; with plain cargo, name the feature yourself.",
        example: "#[zero(stage = 3, device = Cuda)] // and `cargo build` without `--features zero-runtime/cuda`",
    },
    Code {
        code: "Z0225",
        title: "rotary positions with an odd head width",
        explanation: "Rotary positions rotate pairs of features, one of the first half of a head and one of the \
            second, so `HEAD_DIM` must be even. Make it even, or remove `ROTARY`.",
        example: "const HEAD_DIM: usize = 7; // with a `ROTARY` that is not `None`",
    },
    Code {
        code: "Z0226",
        title: "window of no tokens",
        explanation: "With a window of n, a token sees n tokens: itself and those before it. With a window of 0 it \
            would see nothing, and attention would have no result. Make `WINDOW` at least 1, or `None`.",
        example: "const WINDOW: Option<usize> = Some(0);",
    },
    Code {
        code: "Z0227",
        title: "rotary positions without frequencies",
        explanation: "The base of rotary positions must be above 1, factors of a scaling must be above 0, and a \
            lower bound must be below its upper bound. Published models have these numbers in `rope_theta` and \
            `rope_scaling`, or in `rope_parameters`, of their `config.json`.",
        example: "const ROTARY: Option<Rotary> = Some(Rotary { base: 1.0, scaling: Scaling::None });",
    },
    Code {
        code: "Z0229",
        title: "Muon without a matrix",
        explanation: "Muon updates the matrices of hidden layers, and AdamW all other parameters: embeddings, heads, gains and \
            biases. The model has no matrix of a hidden layer, so `optimizer: Muon` would change nothing. Remove it. A layer \
            of your own names its matrices by `Tensors::hidden` and counts them in `MATRICES`; otherwise AdamW updates it.",
        example: "#[zero(stage = 1, optimizer = Muon)] // and a model of an `Embedding` and an `LmHead`",
    },
    Code {
        code: "Z0230",
        title: "budget of a tier exceeded",
        explanation: "What a rank keeps in the memory of its host or in a file, because `offload` says so, is a constant of the \
            plan: every state in whole blocks, unit by unit. It exceeds `host` or `disk` in the spec. Raise that budget, \
            choose a higher stage or more ranks along `zero`, so that a rank keeps less, or remove `offload`.",
        example: "a spec with `offload: (optimizer: Disk), disk: KiB(48)`, and a model that needs more",
    },
    Code {
        code: "Z0231",
        title: "gradients or copies of tied parameters in a tier",
        explanation: "With `offload: (gradients: ...)` the summed gradients of a bucket leave for their tier as soon as they are \
            there. Those of tied parameters are summed first, and added to those of their owner at the end of the backward, \
            so they would have to come back. With `offload: (parameters: ...)` in a pipeline, updated parameters would have to \
            come back likewise, to be sent to the field that is tied to them. Remove the key, or use a model whose parameters \
            are not tied.",
        example: "a spec with `offload: (gradients: Disk)`, and a model with a field that has `#[tied(embed)]`",
    },
    Code {
        code: "Z0232",
        title: "activations that would not travel",
        explanation: "With `offload: (activations: ...)` units take turns with `prefetch` + 2 places for their activations, and the \
            last unit has a place of its own. When the backward begins, the activations of the last `prefetch` + 3 units are \
            still there. A model without more units would keep nothing in the tier. Lower `prefetch`, remove the key, or cut \
            the model into more units.",
        example: "a spec with `offload: (activations: Disk, prefetch: 4)`, and a model of five units",
    },
    Code {
        code: "Z0233",
        title: "publication without its feature",
        explanation: "A spec with `publish` makes a program that serves its parameters over HTTP. The crates for that are compiled only \
            with the feature `publish` of zero-runtime, so that other programs do not carry them. `cargo zero` turns it on for such a \
            spec; with plain cargo, give `--features zero-runtime/publish`.",
        example: "cargo build # of a struct under `#[zero(spec = \"publish.ron\")]`",
    },
    Code {
        code: "Z0234",
        title: "worker without its feature",
        explanation: "A worker answers requests over HTTP. The crates for that are compiled only with the feature `serve` of \
            zero-runtime, so that programs that train do not carry them. `cargo zero serve` turns it on; with plain cargo and \
            ZERO_SERVE, give `--features zero-runtime/serve`.",
        example: "ZERO_SERVE=1 cargo build # of a struct under `#[zero(spec = \"zero3.ron\")]`",
    },
    Code {
        code: "Z0290",
        title: "unsound layout",
        explanation: "Every parameter must have one owner, and regions of the arena must be in bounds and apart. This \
            layout breaks that rule, which is a fault of `zero` and not of the spec or the model: please report both.",
        example: "Nothing in a spec or a model should lead here.",
    },
    Code {
        code: "Z0291",
        title: "unsound schedule",
        explanation: "Nothing may be used before its gather or after its release, and every gradient must be \
            reduced once in a step. This schedule breaks that rule, which is a fault of `zero` and not of the spec \
            or the model: please report both.",
        example: "Nothing in a spec or a model should lead here.",
    },
    Code {
        code: "Z0292",
        title: "ops of ranks that do not match",
        explanation: "The ops of all ranks must match: collectives have one order on every communicator, each send \
            has its receive, no ranks wait for one another in a cycle, and every gradient is in its sum once. The \
            proof over all ranks found a flaw, which is a fault of `zero` and not of the spec or the model: please \
            report both.",
        example: "Nothing in a spec or a model should lead here.",
    },
];
