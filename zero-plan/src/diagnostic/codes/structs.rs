//! Codes of structs of layers: mistakes that the macros find, or the compiler from the types of fields.

use super::Code;

/// Z0140 to Z0159, in order.
pub(super) const CODES: &[Code] = &[
    Code {
        code: "Z0140",
        title: "attribute that a field cannot have",
        explanation: "Fields of a model and of a struct under `#[derive(Layer)]` can have `#[weights(...)]` and \
            `#[init(...)]`. Only fields of a model can have `#[alternating]`, if they are arrays, and `#[tied(field)]`, if \
            they are last: a layer inside of a unit shares no parameters. Only fields of a layer can have `#[residual]`: a \
            unit of a model has no residual connection around it. The model itself can have `#[config({...})]`. An unknown \
            attribute is most often a slip, and if it were ignored, another model would be trained.",
        example: "#[derive(Layer)]\nstruct Block {\n    #[residul]\n    mlp: Linear<8, 8>,\n}",
    },
    Code {
        code: "Z0141",
        title: "`#[zero]` twice",
        explanation: "A struct is one model under one spec. Remove one of the two attributes; for the same model under \
            several specs, build it with `ZERO_SPEC`, as `cargo zero` does.",
        example: "#[zero(stage = 2)]\n#[zero(stage = 3)]\nstruct Gpt { embed: Embedding<65, 256, 8>, head: LmHead<8, 65> }",
    },
    Code {
        code: "Z0142",
        title: "first field that cannot begin a model",
        explanation: "The first field determines the input of the model, so it must be a layer with only one kind \
            of input, as `Embedding` reads tokens and `Linear<8, 16>` reads 8 features. An activation accepts any \
            width. A layer of your own with one kind of input declares this by `impl Entry`.",
        example: "#[zero(stage = 3)]\nstruct Mlp { act: Gelu, head: Classifier<8, 65> }",
    },
    Code {
        code: "Z0143",
        title: "layer that must give what it takes",
        explanation: "A residual connection adds its input to its output, and each element of an array field reads \
            the output of the element before it; both need a layer whose output is as wide as its input. Correct \
            the widths, or let a layer outside of the connection or array change them.",
        example: "#[residual]\nmlp: (LayerNorm<8>, Linear<8, 16>),",
    },
    Code {
        code: "Z0144",
        title: "tuple of too many layers",
        explanation: "A tuple is a chain of at most 12 layers, the limit of Rust's own traits. Make it two tuples \
            in one, `((a, b), (c, d))`, or a struct under `#[derive(Layer)]`, which can have any number of named \
            fields.",
        example: "mlp: (Relu, Relu, Relu, Relu, Relu, Relu, Relu, Relu, Relu, Relu, Relu, Relu, Relu),",
    },
    Code {
        code: "Z0145",
        title: "array where there can be none",
        explanation: "An array is a field of a model: each of its elements is a unit. It is not a layer itself, so it cannot lie \
            in another array, in a tuple, or in a struct under `#[derive(Layer)]`. Write one array of all units, or name \
            the layers one by one. A slice cannot be a field: a plan needs to know how many layers there are.",
        example: "#[zero(stage = 3)]\nstruct Gpt { embed: Embedding<65, 256, 8>, blocks: [[Block; 2]; 3], head: LmHead<8, 65> }",
    },
    Code {
        code: "Z0146",
        title: "head before the end",
        explanation: "A head turns features into the loss, which no field reads: it is the last field of a model, and \
            the only head. Move it to the end, or use `Linear` to map features to other features. A head is recognized \
            by its name, `LmHead` or `Classifier`: a layer of your own that is not a head needs another name.",
        example: "#[zero(stage = 3)]\nstruct Gpt { embed: Embedding<65, 256, 8>, aux: LmHead<8, 65>, head: LmHead<8, 65> }",
    },
    Code {
        code: "Z0147",
        title: "second input",
        explanation: "An `Embedding` reads tokens, the input of the model, so it is its first field; every other \
            field reads the output of the field before it. A model has one input: two tables that are added to one \
            another are one layer, as the positions in `Embedding` are. It is recognized by its name: a layer of \
            your own needs another name.",
        example: "#[zero(stage = 3)]\nstruct Gpt { words: Embedding<65, 256, 8>, kinds: Embedding<2, 256, 8>, head: LmHead<8, 65> }",
    },
    Code {
        code: "Z0148",
        title: "package without a model",
        explanation: "`cargo zero` compiled the package that the spec names, but nothing in its binary was built \
            from the spec: no struct in it has `#[zero]`, or none that the binary uses. Name a package with a \
            model, or write `#[zero]` on the model's struct. The binary was not started.",
        example: "cargo zero build my.ron # my.ron has `model: Package(\"zero-command\")`",
    },
    Code {
        code: "Z0150",
        title: "published names that a field cannot have",
        explanation: "`#[weights(\"model.norm\")]` is put before the names of all tensors of a field, and \
            `#[weights(\"norm\", _, \"map\")]` names its parts in order: the elements of a tuple, or the tensors of a layer; \
            `_` is for a part that adds nothing. So there is one name, or one name for each part. Names are joined by dots, \
            so they neither begin nor end with a dot. `{}` stands for the index of an element, once, and only in an array.",
        example: "#[weights(\"norm\", \"map\", \"act\")]\nmlp: (LayerNorm<8>, Linear<8, 8>),",
    },
    Code {
        code: "Z0151",
        title: "field that cannot alternate",
        explanation: "`#[alternating]` stands on an array of tuples: `[(A, B); 8]` is 16 units, A and B in turn, \
            each with sizes and parameters of its own. An array of one layer needs no attribute, and a tuple that \
            is not an element of an array is one unit.",
        example: "#[alternating]\nblocks: [Block; 8],",
    },
    Code {
        code: "Z0152",
        title: "configuration that is not a JSON object",
        explanation: "`#[config({...})]` on a model is the content of its published `config.json`: an object of \
            JSON, with keys in quotes, each once, commas between entries, and Rust expressions as values.",
        example: "#[config({ hidden_size: DIM })] // without quotes",
    },
    Code {
        code: "Z0153",
        title: "standard deviation that cannot be used",
        explanation: "`#[init(0.02)]` sets the standard deviation with which the matrices of a field are drawn, \
            any expression that is an f32 and not negative; `#[init(0.02, last = 0.01)]` sets another one for the \
            last matrix. Layers define the initial vectors, gains and biases.",
        example: "#[init(0.02, first = 0.01)]\nmlp: (LayerNorm<8>, Linear<8, 8>),",
    },
];
