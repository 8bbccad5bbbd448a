//! Codes of the inputs of a run: data, arguments, weights and tokens.

use super::Code;

/// Z0340 to Z0379, in order.
pub(super) const CODES: &[Code] = &[
    Code {
        code: "Z0340",
        title: "data that cannot be read",
        explanation: "The file or directory of data does not exist, or this user cannot read it. Data is a text \
            file, a directory of text, or a `.bin` file of little-endian token ids.",
        example: "./zero3 --data nowhere.txt",
    },
    Code {
        code: "Z0341",
        title: "data too short",
        explanation: "A run that trains needs enough tokens for one sequence to train on and one to hold out, each \
            with one more to predict. An evaluation needs two tokens. Use more text, or build with shorter sequences.",
        example: "./zero3 --data short.txt # with sequences of 256 tokens",
    },
    Code {
        code: "Z0342",
        title: "token id beyond the vocabulary",
        explanation: "A token id is not less than the number of rows of the model's embedding. In a `.bin` file \
            every two bytes are an id, or every four if the vocabulary has more than 65,536; in any other file \
            every byte is. Build the model with a larger vocabulary, or encode the text for the vocabulary that it \
            has.",
        example: "./zero3 --data words.bin # with ids up to 50256, and a vocabulary of 256",
    },
    Code {
        code: "Z0343",
        title: "token file that ends within an id",
        explanation: "A `.bin` file is little-endian token ids without a header, of two bytes each, or of four if the \
            model's vocabulary has more than 65,536, so its size is a multiple of that. Check whether it \
            was cut off; if it is text, give it another name.",
        example: "./zero3 --data text.bin # of 101 bytes",
    },
    Code {
        code: "Z0344",
        title: "no text",
        explanation: "The directory has no file of UTF-8 text without zero bytes. Name a `.bin` file of token ids \
            by its own path.",
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
        explanation: "Files that `.gitignore`, `.ignore` or the excludes of this user's git name are left out of a \
            binary's text. A line of such a file is not a valid pattern, or not UTF-8. If it were ignored, a file \
            that it should exclude might be included, so no file is included until the line is corrected.",
        example: "echo '[z-a]' >> .gitignore && cargo zero build specs/zero3.ron",
    },
    Code {
        code: "Z0347",
        title: "structured data instead of text",
        explanation: "A file is to be read as text, but begins like lines of JSON, an array of JSON or a table of CSV, or its \
            name says so. A model would learn braces, commas and the names of fields. `cargo zero tokenize` reads a field \
            of each line of a `.jsonl` file, or of any file with `--as jsonl`, and writes a token file for `--data`. A \
            run does not read fields. `--as text` of `tokenize` and `--data-as text` of a run take a file as it is.",
        example: "./zero3 --data pages.jsonl",
    },
    Code {
        code: "Z0348",
        title: "token ids of another width",
        explanation: "A file without a known header is read as little-endian token ids of two bytes, or of four if the \
            model's vocabulary has more than 65,536. This file has ids of another width, or something else: every second \
            id would be zero, as in wider numbers, or its first bytes are those of another format or of text. \
            `--data-as ids16` or `--data-as ids32` says the width. Write ids of eight bytes anew.",
        example: "./zero3 --data ids.bin # of i64",
    },
    Code {
        code: "Z0349",
        title: "data that is not text",
        explanation: "The name or the first bytes of a file say that it holds something other than text: a table, an \
            array, a checkpoint, an archive, an image. A model would learn how such a file is encoded. Write the text \
            in it to a text file, or its token ids to a `.bin` file of little-endian u16 or u32, or say `--data-as bytes` to \
            learn the bytes as they are. In a directory such files are skipped, and counted at the start of a run.",
        example: "./zero3 --data corpus.parquet",
    },
    Code {
        code: "Z0350",
        title: "arguments that contradict one another",
        explanation: "Each argument is valid by itself, but not together with another one, or not with the model \
            in this binary: a warm-up that is as long as the run, a profile of a run that ends before its first \
            profiled step, a weight decay that leaves nothing of a parameter, one file for two results, or a \
            prompt of characters that the vocabulary does not have.",
        example: "./zero3 --steps 99 --warmup 100",
    },
    Code {
        code: "Z0351",
        title: "results that cannot be written",
        explanation: "The files for metrics and for a profile are always new, so that no file of another run is \
            overwritten. One exists already, or cannot be created or extended. Name a new file in a writable \
            directory with space. If the disk is full later, a run goes on without the lines of metrics that do not fit.",
        example: "./zero3 --metrics steps.jsonl # twice",
    },
    Code {
        code: "Z0352",
        title: "standard output that cannot be written",
        explanation: "Progress is written to standard output, and the write failed, most often because a disk is full. \
            A run that trains says so once, and goes on without the lines that do not fit. Any other run ends, because \
            its output is its only result.",
        example: "./zero3 --plan > /dev/full",
    },
    Code {
        code: "Z0353",
        title: "argument out of range",
        explanation: "The value of an argument is not a number, or an impossible one: a learning rate that is not \
            above 0, a decay of a moment that is not below 1, a share above 1, more threads than any host has \
            cores, or a number that is 0 or infinite in f32, in which parameters are updated. Nothing was started.",
        example: "./zero3 --beta1 1",
    },
    Code {
        code: "Z0354",
        title: "arguments that cannot be read",
        explanation: "An argument is unknown, given twice, or without its value. `--help` lists all arguments. \
            Settings that shape memory or order, such as the stage, are in the spec instead. Nothing was started.",
        example: "./zero3 --stage 3",
    },
    Code {
        code: "Z0355",
        title: "directory of token ids",
        explanation: "Token ids are read from one file, but `--data-as ids` was given a directory. Name one of \
            its files, or join them into one.",
        example: "./zero3 --data shards --data-as ids",
    },
    Code {
        code: "Z0356",
        title: "pointer of Git LFS",
        explanation: "A repository keeps large files with Git LFS, and a clone without it has small texts in their place, \
            which name the files. Install git-lfs and run `git lfs pull` in the clone, or download the file by another tool.",
        example: "git clone a repository without git-lfs; ./qwen3 --init its-folder",
    },
    Code {
        code: "Z0357",
        title: "data that changed while a run used it",
        explanation: "A file of the data was cut off, written to in place or, where a folder has more files than a process may \
            open, moved or replaced. A run notices it when it reads a sequence, and where an epoch or a checkpoint begins; \
            with `--checkpoint` it saves the last step, and ends. Put the content back, and continue with `--resume`. \
            Open files may be moved, removed, or replaced by new ones of the same name.",
        example: "truncate -s 1M corpus.txt # while a run trains on it",
    },
    Code {
        code: "Z0360",
        title: "weights that cannot be read",
        explanation: "`--init` names a folder in the form of Hugging Face: config.json, and model.safetensors or \
            model.safetensors.index.json with the files that the index names. One of them does not exist, or this \
            user cannot read it.",
        example: "./gpt2 --init nowhere",
    },
    Code {
        code: "Z0361",
        title: "broken file of weights",
        explanation: "A file of weights begins with the names, types, shapes and places of its tensors. They must \
            lie one after another, without holes, to the end of the file, and an index must match the files that it \
            names. This is not so here: the file was cut off or changed, or is of another kind. Download it again.",
        example: "head -c 1000 model.safetensors > cut/model.safetensors; ./gpt2 --init cut",
    },
    Code {
        code: "Z0362",
        title: "weights outside of their folder",
        explanation: "An index may name only files beside it, so that a downloaded model cannot make this program \
            read other files. It names a file elsewhere. The files beside it may be links to anywhere, as those of \
            caches are.",
        example: r#"{"weight_map": {"wte.weight": "../../secret.safetensors"}}"#,
    },
    Code {
        code: "Z0363",
        title: "tensors that are missing",
        explanation: "A folder of weights lacks tensors of the model, and the message names up to ten of them with \
            their shapes, and the folder's tensors that the model does not have. Either the weights are of another \
            model, or `#[weights(...)]` on the fields of the struct has other names than the published ones.",
        example: "./llama3 --init gpt2",
    },
    Code {
        code: "Z0364",
        title: "tensors that are left over",
        explanation: "A folder of weights has tensors that the model has no place for: more layers, or biases that \
            it does not use. If they were ignored, the model would compute another function than the published \
            one. Masks and rotary frequencies, which are not parameters, are ignored.",
        example: "./llama3 --init a-model-with-biases",
    },
    Code {
        code: "Z0365",
        title: "tensors of another shape or type",
        explanation: "The shape of a tensor differs from the model's, or its numbers are not BF16, F16 or F32. The \
            message names both shapes; sizes of the struct must be those of the published model.",
        example: "./gpt2 --init gpt2-medium",
    },
    Code {
        code: "Z0366",
        title: "config of another model",
        explanation: "config.json is compared with the `#[config(...)]` of the struct. The message names all keys \
            that differ, and keys that change the computation but that the struct does not declare, such as a \
            scaling of rotary positions. Numbers are equal if they are equal in f32.",
        example: "./llama3 --init a-llama-with-another-rope_theta",
    },
    Code {
        code: "Z0367",
        title: "tied weights that differ",
        explanation: "The model's head shares the embedding, and the folder has a tensor for each of them. They must \
            be equal, because only one can be used. Leave one out, or use a head with weights of its own in the model.",
        example: "./gpt2 --init a-gpt2-whose-head-was-trained-by-itself",
    },
    Code {
        code: "Z0368",
        title: "weights that cannot be exported",
        explanation: "`--export` names a folder that does not exist yet, or is empty, in a directory that can be \
            written and has room for the model; this is tried before training. The folder is written under a \
            name with `.partial-` in it, and renamed when all of it is on the disk. A number that f16 cannot \
            express is an error, too. The error names a folder in which the trained weights are whole: a checkpoint, or \
            one in f32 beside the other one or among temporary files.",
        example: "./gpt2 --export a-folder-with-files",
    },
    Code {
        code: "Z0370",
        title: "tokenizer that cannot be used",
        explanation: "There is no `tokenizer.json` at that path, or in that folder; or the library `tokenizers`, \
            which writes and reads such files, cannot read it; or it drops merges at random, so ranks would not \
            encode a text alike; or the program was built without the feature `tokenizers` of `zero-runtime`, like those of \
            byte-level models.",
        example: "./zero3 --tokenizer no/such/folder",
    },
    Code {
        code: "Z0371",
        title: "token file that is broken",
        explanation: "The header of a token file says how many ids and documents follow, but the file has another \
            length, ends of documents out of order, or ids beyond its own vocabulary. It was cut off or changed \
            after it was written. Write it again with `cargo zero tokenize`.",
        example: "truncate -s -2 ids.bin && ./zero3 --data ids.bin",
    },
    Code {
        code: "Z0372",
        title: "vocabulary larger than the model's",
        explanation: "The tokenizer, or the one that made the token file, has ids without an embedding in the \
            model. The opposite is fine: models are often padded. Build the model with a vocabulary that is large \
            enough, or use the tokenizer that the model was made for.",
        example: "./zero3 --tokenizer gpt2 # a model of 256 token ids",
    },
    Code {
        code: "Z0373",
        title: "token file of another tokenizer",
        explanation: "A token file has the SHA-256 of the `tokenizer.json` that made it, and `--tokenizer` names \
            another one. Ids would mean one thing in training and another in samples. Name the tokenizer that made \
            the file, or make the file again.",
        example: "./zero3 --data ids.bin --tokenizer other",
    },
    Code {
        code: "Z0374",
        title: "text too large to encode at a start",
        explanation: "With `--tokenizer`, each rank encodes the text of `--data` when it starts, and holds the ids \
            in memory. That is for small text. For larger text, write the ids to a file once, by `cargo zero \
            tokenize`, and use that file, which is not copied to memory.",
        example: "./zero3 --data 100MB.txt --tokenizer gpt2",
    },
    Code {
        code: "Z0375",
        title: "documents that cannot be read",
        explanation: "A file does not match the ending of its name: a line of a `.jsonl` file is not a JSON \
            object, a `.parquet` file is not a table, or text is not UTF-8. The message has the file and the line, \
            row or byte. No token file was written. `--skip-bad` passes over bad lines and rows, and counts them. Of the \
            fields that were not asked for, only the syntax matters.",
        example: "cargo zero tokenize --tokenizer gpt2 broken.jsonl --out ids.bin",
    },
    Code {
        code: "Z0376",
        title: "documents without text",
        explanation: "A line of a `.jsonl` file lacks the field with the text, or a `.parquet` file lacks the column, or its \
            value is not text. `--field` and `--column` name the field and the column; the message lists those that exist. \
            `--skip-bad` passes over such lines and rows, and counts them.",
        example: "cargo zero tokenize --tokenizer gpt2 --field body pages.jsonl --out ids.bin",
    },
    Code {
        code: "Z0377",
        title: "text that a tokenizer cannot encode",
        explanation: "A vocabulary without an id for unknown words or for all bytes cannot encode every text. The \
            message has the first letter without an id and its place; without this error it would vanish. A stretch of more \
            than a MiB without the end of a word, of anything but letters, is not encoded either. Use \
            another tokenizer, or leave that text out.",
        example: "cargo zero tokenize --tokenizer words text.txt --out ids.bin",
    },
    Code {
        code: "Z0378",
        title: "unknown separator",
        explanation: "Each document is followed by a token, so that a model learns where texts end. The tokenizer \
            does not have the token that `--separator` names or, without `--separator`, any of the usual end \
            tokens. `--separator none` writes documents without a token between them.",
        example: "cargo zero tokenize --tokenizer gpt2 --separator '<end>' text.txt --out ids.bin",
    },
    Code {
        code: "Z0379",
        title: "token file that cannot be written",
        explanation: "A token file is always new. A file of that name exists, or its directory does not exist, \
            cannot be written or has no space.",
        example: "cargo zero tokenize --tokenizer gpt2 text.txt --out ids.bin # twice",
    },
];
