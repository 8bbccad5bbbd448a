//! Codes of what a run is given: data, arguments, weights and tokens.

use super::Code;

/// Z0340 to Z0379, in order.
pub(super) const CODES: &[Code] = &[
    Code {
        code: "Z0340",
        title: "data that cannot be read",
        explanation: "The file or directory of data is not there, or this user cannot read it. Data is a text file, a \
            directory of text, or a `.bin` file of little-endian u16 token ids.",
        example: "./zero3 --data nowhere.txt",
    },
    Code {
        code: "Z0341",
        title: "data too short",
        explanation: "There must be enough tokens for one sequence to train on and one to hold out, each with one more \
            to predict. Give more text, or build with shorter sequences.",
        example: "./zero3 --data short.txt # with sequences of 256 tokens",
    },
    Code {
        code: "Z0342",
        title: "token id beyond the vocabulary",
        explanation: "A token id is not less than the number of rows of the model's embedding. Of a `.bin` file each \
            two bytes are an id, of any other file each byte is. Build the model with a larger vocabulary, or encode \
            the text for the one it has.",
        example: "./zero3 --data words.bin # with ids up to 50256, and a vocabulary of 256",
    },
    Code {
        code: "Z0343",
        title: "token file of an odd size",
        explanation: "A `.bin` file is little-endian u16 token ids without a header, so its size is even. See whether \
            it was cut off, or give text another name.",
        example: "./zero3 --data text.bin # of 101 bytes",
    },
    Code {
        code: "Z0344",
        title: "no text",
        explanation: "The directory holds no file of UTF-8 text without zero bytes. A `.bin` file of token ids is \
            given by its own path.",
        example: "./zero3 --data empty-directory",
    },
    Code {
        code: "Z0345",
        title: "no workspace to take text from",
        explanation: "Without `--data` a model trains on the sources of the cargo workspace around the current \
            directory, and there is none. Start inside of one, or name the text to train on.",
        example: "cd / && gpt",
    },
    Code {
        code: "Z0346",
        title: "ignore file that is not understood",
        explanation: "What `.gitignore`, `.ignore` or the excludes of this user's git name does not become text of a \
            binary. A line of such a file is not a valid pattern, or not UTF-8. If it were passed over, a file that it \
            was meant to keep back might be taken, so nothing is taken before it is corrected.",
        example: "echo '[z-a]' >> .gitignore && cargo zero build specs/zero3.ron",
    },
    Code {
        code: "Z0349",
        title: "data that is not text",
        explanation: "The name or the first bytes of a file say that it holds something other than text: a table, an \
            array, a checkpoint, an archive, an image. A model would learn how such a file is encoded. Write the text \
            in it to a text file, or its token ids to a `.bin` file of little-endian u16, or say `--data-as bytes` to \
            learn the bytes as they are. In a directory such files are passed over, and counted at the start of a run.",
        example: "./zero3 --data corpus.parquet",
    },
    Code {
        code: "Z0350",
        title: "arguments that contradict one another",
        explanation: "Each argument is possible by itself, but not together, or not with the model in this binary: a \
            warm-up that is as long as the run, a profile of a run that ends before its first profiled step, a weight \
            decay that leaves nothing of a parameter, one file for two results, or a prompt of characters that the \
            vocabulary does not have.",
        example: "./zero3 --steps 99 --warmup 100",
    },
    Code {
        code: "Z0351",
        title: "results that cannot be written",
        explanation: "The files for metrics and for a profile are always new ones, so that no other run's are \
            overwritten; one exists already, or cannot be made or extended. Name a new file in a directory that can be \
            written and has space.",
        example: "./zero3 --metrics steps.jsonl # twice",
    },
    Code {
        code: "Z0352",
        title: "standard output that cannot be written",
        explanation: "Progress goes to standard output, and that cannot take it, most often because its disk is full.",
        example: "./zero3 > /dev/full",
    },
    Code {
        code: "Z0353",
        title: "argument out of range",
        explanation: "The value of an argument is not a number, or one that cannot be meant: a learning rate that is \
            not above 0, a decay of a moment that is not below 1, a share above 1, more threads than any host has \
            cores, or a number that is 0 or infinite in f32, which parameters are updated in. Nothing was started.",
        example: "./zero3 --beta1 1",
    },
    Code {
        code: "Z0354",
        title: "arguments that cannot be read",
        explanation: "An argument is unknown, given twice, or without its value. `--help` lists all of them; what \
            shapes memory or order, such as the stage, is in the spec and not among them. Nothing was started.",
        example: "./zero3 --stage 3",
    },
    Code {
        code: "Z0355",
        title: "directory of token ids",
        explanation: "Token ids are mapped from one file, and `--data-as ids` was given a directory. Name one file of \
            it, or join them into one.",
        example: "./zero3 --data shards --data-as ids",
    },
    Code {
        code: "Z0360",
        title: "weights that cannot be read",
        explanation: "`--init` takes a folder as Hugging Face has it: config.json, and model.safetensors or \
            model.safetensors.index.json with the files that it names. One of them is not there, or this user cannot \
            read it.",
        example: "./gpt2 --init nowhere",
    },
    Code {
        code: "Z0361",
        title: "weights that are not what they say",
        explanation: "A file of weights begins with the names, types, shapes and places of its tensors. They must lie \
            one after another, without holes, to the end of the file, and what an index says must be true of the files \
            that it names. Here it is not: the file was cut off, or changed, or is none of this kind. Fetch it again.",
        example: "head -c 1000 model.safetensors > cut/model.safetensors; ./gpt2 --init cut",
    },
    Code {
        code: "Z0362",
        title: "weights outside of their folder",
        explanation: "An index names files beside it, so that a model that was fetched cannot make this program read \
            others. It names one elsewhere, or one that is a link to elsewhere. Links from `snapshots` to `blobs` in a \
            cache of Hugging Face are followed.",
        example: r#"{"weight_map": {"wte.weight": "../../secret.safetensors"}}"#,
    },
    Code {
        code: "Z0363",
        title: "tensors that are missing",
        explanation: "A folder of weights lacks tensors of the model, and the message names up to ten of them with \
            their shapes, and those that the model has not. Either they are of another model, or `#[weights(...)]` on \
            the fields of the struct gives other names than they were published under.",
        example: "./llama3 --init gpt2",
    },
    Code {
        code: "Z0364",
        title: "tensors that are left over",
        explanation: "A folder of weights has tensors that the model has no place for: more layers, or biases that it \
            computes without. If they were passed over, another function would be computed than the published one. \
            Masks and rotary frequencies, which are no parameters, are passed over.",
        example: "./llama3 --init a-model-with-biases",
    },
    Code {
        code: "Z0365",
        title: "tensors of another shape or type",
        explanation: "A tensor has another shape than the one of the model, or its numbers are none of BF16, F16 and \
            F32. The message names both shapes; sizes of the struct have to be those of the published model.",
        example: "./gpt2 --init gpt2-medium",
    },
    Code {
        code: "Z0366",
        title: "config of another model",
        explanation: "What config.json says is compared with what the struct declares with `#[config(...)]`. All keys \
            that differ are named; so are those that change what is computed and that the struct does not declare, such \
            as a scaling of rotary positions. Numbers are equal if they are so in f32.",
        example: "./llama3 --init a-llama-with-another-rope_theta",
    },
    Code {
        code: "Z0367",
        title: "tied weights that differ",
        explanation: "The model's head shares the embedding, and the folder has a tensor for each of them. They have to \
            be equal, as only one can be used. Leave one out, or give the model a head of its own.",
        example: "./gpt2 --init a-gpt2-whose-head-was-trained-by-itself",
    },
    Code {
        code: "Z0368",
        title: "weights that cannot be exported",
        explanation: "`--export` names a folder that does not exist yet, or is empty, in a directory that can be written \
            and has room for the model; that is looked at before anything is trained. The folder is made under a name \
            with `.partial-` in it, and gets its own name when all of it is on the disk. A number that f16 has none for \
            is an error, too.",
        example: "./gpt2 --export a-folder-with-files",
    },
    Code {
        code: "Z0370",
        title: "tokenizer that cannot be used",
        explanation: "There is no `tokenizer.json` at that path, or in that folder; or the library `tokenizers`, by which \
            such files are written and read, does not understand it; or it drops merges by chance, so that ranks would \
            not encode a text alike; or the program was built without the feature `tokenizers` of `zero-runtime`, as those \
            of byte-level models are.",
        example: "./zero3 --tokenizer no/such/folder",
    },
    Code {
        code: "Z0371",
        title: "token file that is broken",
        explanation: "The header of a token file says how many ids and documents follow, and the file has another \
            length, or documents that end in no order, or ids beyond its own vocabulary. It was cut off or changed \
            after it was written. Make it again, as `cargo zero tokenize` does.",
        example: "truncate -s -2 ids.bin && ./zero3 --data ids.bin",
    },
    Code {
        code: "Z0372",
        title: "vocabulary larger than the model's",
        explanation: "A tokenizer, or the one that a token file was made by, has ids that the model has no embedding \
            for. The other way round is fine, as models are often padded. Build the model with a vocabulary that is \
            large enough, or take the tokenizer that the model is for.",
        example: "./zero3 --tokenizer gpt2 # a model of 256 token ids",
    },
    Code {
        code: "Z0373",
        title: "token file of another tokenizer",
        explanation: "A token file holds the SHA-256 of the `tokenizer.json` that it was made by, and `--tokenizer` \
            names another one. Ids would mean one thing in training and another in samples. Give the tokenizer that the \
            file was made by, or make the file again.",
        example: "./zero3 --data ids.bin --tokenizer other",
    },
    Code {
        code: "Z0374",
        title: "text too large to encode at a start",
        explanation: "With `--tokenizer`, each rank encodes the text of `--data` when it starts, and holds the ids in \
            memory. That is for small text. Write the ids of more to a file once, by `cargo zero tokenize`, and give \
            that file: it is read where it lies.",
        example: "./zero3 --data 100MB.txt --tokenizer gpt2",
    },
    Code {
        code: "Z0375",
        title: "documents that cannot be read",
        explanation: "A file is not what the end of its name says: a line of a `.jsonl` file is no JSON object, a \
            `.parquet` file is no table, or text is not UTF-8. The message has the file and the line, row or byte. No \
            token file was written.",
        example: "cargo zero tokenize --tokenizer gpt2 broken.jsonl --out ids.bin",
    },
    Code {
        code: "Z0376",
        title: "documents without text",
        explanation: "A line of a `.jsonl` file does not have the field with the text, or a `.parquet` file the column, \
            or what it has there is no text. `--field` and `--column` name them; the message lists what there is.",
        example: "cargo zero tokenize --tokenizer gpt2 --field body pages.jsonl --out ids.bin",
    },
    Code {
        code: "Z0377",
        title: "text that a tokenizer cannot encode",
        explanation: "A vocabulary without an id for unknown words or for all bytes cannot encode every text. Take \
            another tokenizer, or leave that text out.",
        example: "cargo zero tokenize --tokenizer words text.txt --out ids.bin",
    },
    Code {
        code: "Z0378",
        title: "separator that is not known",
        explanation: "Each document is followed by a token, so that a model learns where texts end. The tokenizer does \
            not have the token that `--separator` names, or without it none of those that usually end a text. \
            `--separator none` writes documents one after another without any.",
        example: "cargo zero tokenize --tokenizer gpt2 --separator '<end>' text.txt --out ids.bin",
    },
    Code {
        code: "Z0379",
        title: "token file that cannot be written",
        explanation: "A token file is always a new one, and there is a file of that name, or its directory does not \
            exist, cannot be written or has no space.",
        example: "cargo zero tokenize --tokenizer gpt2 text.txt --out ids.bin # twice",
    },
];
