//! Tokenize: documents in, a token file out. Batches of a few MiB are read, encoded by all threads and written in order,
//! so memory is bounded by the longest document. Never learns a vocabulary.

mod documents;
#[cfg(feature = "parquet")]
mod table;
#[cfg(not(feature = "parquet"))]
mod whole;

use std::io::IsTerminal;
use std::path::PathBuf;
use std::sync::mpsc::sync_channel;
use std::time::Instant;

use clap::Args;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use rayon::iter::{IntoParallelRefIterator, ParallelIterator};
use zero_files::data::{TokenFileWriter, Tokenizer};

use crate::error::CommandError;
use crate::say;
use documents::{DocumentPart, DocumentsReader};

/// Bytes of text that a thread encodes at a time, if the tokenizer allows text to be cut.
const PIECE_BYTES: usize = 16 << 10;
/// Bytes of text at which a batch is full. A longer document that is not cut makes a batch longer.
const BATCH_BYTES: usize = 4 << 20;
/// Batches that are read ahead.
const BATCHES_AHEAD: usize = 1;
/// The value of `--separator` for no separator at all.
const NO_SEPARATOR: &str = "none";

/// The tokenizer, the documents to encode, and the token file.
#[derive(Args, Debug, PartialEq)]
pub struct TokenizeArguments {
    /// A tokenizer.json, or the folder of a model with one
    #[arg(long, value_name = "PATH")]
    pub tokenizer: PathBuf,
    /// Files of text, a document each, .jsonl (a document in each line), .parquet (a document in each row), and
    /// directories of such files. If a tokenizer is known to end a token at a line's end between two letters, as those of
    /// GPT-2, Llama 3, Qwen and OLMo, long documents are encoded in pieces that end there. With any other tokenizer a
    /// document is encoded as a whole, which takes memory of many times its length
    #[arg(value_name = "IN", required = true)]
    pub inputs: Vec<PathBuf>,
    /// The new token file
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
    /// The field of .jsonl lines with the text
    #[arg(long, value_name = "NAME", default_value = "text")]
    pub field: String,
    /// The column of .parquet files with the text
    #[arg(long, value_name = "NAME", default_value = "text")]
    pub column: String,
    /// The token after each document, or `none`; without it, the first of `<|endoftext|>`, `<|end_of_text|>`,
    /// `</s>` and `<|im_end|>` that the tokenizer has
    #[arg(long, value_name = "TOKEN")]
    pub separator: Option<String>,
    /// Threads that encode; without it, one for each core
    #[arg(long, value_name = "N")]
    pub threads: Option<std::num::NonZeroUsize>,
}

/// Encodes all documents, and prints their number.
pub fn tokenize(arguments: &TokenizeArguments) -> Result<(), CommandError> {
    let tokenizer = Tokenizer::open(&arguments.tokenizer)?;
    let separator = separator(arguments.separator.as_deref(), &tokenizer)?;
    let reader = DocumentsReader::new(arguments, tokenizer.cuts())?;
    let threads = arguments.threads.map_or(0, std::num::NonZeroUsize::get);
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().map_err(CommandError::threads)?;
    let mut writer = TokenFileWriter::create(&arguments.out, &tokenizer)?;
    let (bar, start) = (bar(reader.bytes()), Instant::now());
    let mut text_bytes = 0;
    std::thread::scope(|scope| {
        let (sender, batches) = sync_channel(BATCHES_AHEAD);
        scope.spawn(|| read(reader, sender));
        for batch in batches {
            let batch: Vec<DocumentPart> = batch?;
            let pieces: Vec<Vec<&str>> =
                batch.iter().map(|part| tokenizer.pieces(&part.text, PIECE_BYTES).collect()).collect();
            let flat: Vec<&str> = pieces.iter().flatten().copied().collect();
            let encoded: Result<Vec<Vec<u32>>, _> =
                pool.install(|| flat.par_iter().map(|piece| tokenizer.encode(piece)).collect());
            let mut encoded = encoded?.into_iter();
            for (part, pieces) in batch.iter().zip(&pieces) {
                encoded.by_ref().take(pieces.len()).try_for_each(|ids| writer.add(&ids))?;
                if part.ends {
                    separator.map_or(Ok(()), |id| writer.add(&[id]))?;
                    writer.end_document()?;
                }
                text_bytes += part.text.len();
                bar.inc(part.read_bytes);
            }
        }
        Ok::<(), CommandError>(())
    })?;
    let written = writer.finish()?;
    bar.finish_and_clear();
    let per_s = written.tokens as f64 / start.elapsed().as_secs_f64();
    let (documents, tokens) = (written.documents, written.tokens);
    say::line(format_args!("{documents} documents, {text_bytes} bytes of text, {tokens} tokens, {per_s:.0} tokens/s"));
    Ok(())
}

/// Sends batches until everything is read, an error occurs, or the receiver no longer waits for them.
fn read(reader: DocumentsReader, batches: std::sync::mpsc::SyncSender<Result<Vec<DocumentPart>, CommandError>>) {
    let (mut batch, mut bytes) = (Vec::new(), 0);
    let result = reader.for_each(|part| {
        bytes += part.text.len();
        batch.push(part);
        let is_full = bytes >= BATCH_BYTES;
        if is_full {
            bytes = 0;
        }
        !is_full || batches.send(Ok(std::mem::take(&mut batch))).is_ok()
    });
    // If the receiver does not wait, it already has an error.
    let _ = batches.send(Ok(batch));
    result.err().into_iter().for_each(|error| drop(batches.send(Err(error))));
}

/// The id that follows each document, if any.
fn separator(asked: Option<&str>, tokenizer: &Tokenizer) -> Result<Option<u32>, CommandError> {
    let refused = |what: String| Err(CommandError::Separator { tokenizer: tokenizer.path().to_owned(), what });
    match asked {
        Some(NO_SEPARATOR) => Ok(None),
        Some(token) => match tokenizer.id(token) {
            Some(id) => Ok(Some(id)),
            None => refused(format!("has no token `{token}`")),
        },
        None => match tokenizer.end_of_text() {
            Some((_, id)) => Ok(Some(id)),
            None => refused("has no token that is known to end a text".to_owned()),
        },
    }
}

/// A bar on standard error, if that is a terminal.
fn bar(bytes: u64) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{bar:20} {bytes}/{total_bytes} {bytes_per_sec} {eta}");
    ProgressBar::with_draw_target(Some(bytes), ProgressDrawTarget::stderr())
        .with_style(style.expect("a valid template"))
}
