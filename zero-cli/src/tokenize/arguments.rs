//! Arguments of `tokenize`. Never opens a file.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// The tokenizer, the documents to encode, and the token file.
#[derive(Args, Debug, PartialEq)]
pub struct TokenizeArguments {
    /// A tokenizer.json, or the folder of a model with one
    #[arg(long, value_name = "PATH")]
    pub tokenizer: PathBuf,
    /// Files of text, a document each, .jsonl (a document in each line), .parquet (a document in each row), and
    /// directories of such files. If the words of a tokenizer are those of GPT-2, Llama 3, Qwen or OLMo, long documents are
    /// encoded in pieces that end where words do. With any other tokenizer a document is encoded as a whole, which takes
    /// memory of many times its length
    #[arg(value_name = "IN", required = true)]
    pub inputs: Vec<PathBuf>,
    /// The new token file
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
    /// Read every file as this, whatever its name and content say
    #[arg(long = "as", value_name = "WHAT")]
    pub read_as: Option<ReadAs>,
    /// The field of .jsonl lines with the text
    #[arg(long, value_name = "NAME", default_value = "text")]
    pub field: String,
    /// The column of .parquet files with the text
    #[arg(long, value_name = "NAME", default_value = "text")]
    pub column: String,
    /// Pass over bad lines of .jsonl files and bad rows of .parquet files, and count them. Without it, the first one ends
    /// the command
    #[arg(long)]
    pub skip_bad: bool,
    /// The token after each document, or `none`; without it, the first of `<|endoftext|>`, `<|end_of_text|>`,
    /// `</s>` and `<|im_end|>` that the tokenizer has
    #[arg(long, value_name = "TOKEN")]
    pub separator: Option<String>,
    /// Threads that encode; without it, one for each core
    #[arg(long, value_name = "N")]
    pub threads: Option<std::num::NonZeroUsize>,
}

/// How a file is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ReadAs {
    Text,
    Jsonl,
    Parquet,
}
