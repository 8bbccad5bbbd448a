//! Encode: documents in, a token file out. Batches of a few MiB are read, encoded by all threads and written in order, so
//! memory is bounded: by a batch, or by the longest document if a tokenizer does not allow text to be cut. Never learns a
//! vocabulary.

use std::io::IsTerminal;
use std::panic::resume_unwind;
use std::path::Path;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::Instant;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;
use zero_files::data::{DataError, TokenFileWriter, Tokenizer};

use super::TokenizeArguments;
use super::documents::DocumentPart;
use super::documents::DocumentsReader;
use super::encoder::Encoder;
use super::passed::PassedRecords;
use crate::error::CommandError;
use crate::say;

/// Bytes of text at which a batch is full. A longer document that is not cut makes a batch longer.
pub const BATCH_BYTES: usize = 4 << 20;
/// Batches that are read ahead.
const BATCHES_AHEAD: usize = 1;
/// The value of `--separator` for no separator at all.
const NO_SEPARATOR: &str = "none";

/// Encodes all documents, and prints their number.
pub fn tokenize(arguments: &TokenizeArguments) -> Result<(), CommandError> {
    let tokenizer = Tokenizer::open(&arguments.tokenizer)?;
    let separator = separator(arguments.separator.as_deref(), &tokenizer)?;
    let reader = DocumentsReader::new(arguments, tokenizer.cuts())?;
    reader.skipped().for_each(say::line);
    let threads = arguments.threads.map_or(0, std::num::NonZeroUsize::get);
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().map_err(CommandError::threads)?;
    let writer = begin(&arguments.out, &tokenizer)?;
    let mut encoder = Encoder { tokenizer: &tokenizer, separator, writer, word: None };
    let (bar, start) = (bar(reader.bytes()), Instant::now());
    let (reader, mut text_bytes) = (&reader, 0);
    let passed = std::thread::scope(|scope| {
        let (sender, batches) = sync_channel(BATCHES_AHEAD);
        let reading = scope.spawn(move || read(reader, arguments.skip_bad, sender));
        for batch in batches {
            let batch: Vec<DocumentPart> = batch?;
            pool.install(|| encoder.add(&batch))?;
            text_bytes += batch.iter().map(|part| part.text.len()).sum::<usize>();
            bar.inc(batch.iter().map(|part| part.read_bytes).sum());
        }
        Ok::<_, CommandError>(reading.join().unwrap_or_else(|panic| resume_unwind(panic)))
    })?;
    bar.finish_and_clear();
    let notes = passed.to_string();
    match passed.first() {
        // More likely the wrong field or the wrong kind of file than a file of bad records alone.
        Some(bad) if encoder.writer.documents() == 0 => return Err(bad),
        bad => bad.iter().for_each(|_| say::line(&notes)),
    }
    let written = encoder.writer.finish()?;
    let per_s = written.tokens as f64 / start.elapsed().as_secs_f64();
    let (documents, tokens) = (written.documents, written.tokens);
    say::line(format_args!("{documents} documents, {text_bytes} bytes of text, {tokens} tokens, {per_s:.0} tokens/s"));
    Ok(())
}

/// Begins a token file. If this process is asked to end, the unfinished files are removed before it does.
fn begin(out: &Path, tokenizer: &Tokenizer) -> Result<TokenFileWriter, CommandError> {
    let unwritable = |source| CommandError::Text(DataError::Unwritable { path: out.to_owned(), source });
    // From here on signals wait for the thread, which knows the files.
    let mut signals = Signals::new([SIGINT, SIGTERM]).map_err(unwritable)?;
    let writer = TokenFileWriter::create(out, tokenizer)?;
    let files = writer.unfinished();
    std::thread::spawn(move || {
        for signal in signals.forever() {
            files.iter().for_each(|file| drop(std::fs::remove_file(file)));
            let _ = emulate_default_handler(signal);
        }
    });
    Ok(writer)
}

/// Sends batches until everything is read, an error occurs, or the receiver no longer waits for them. Returns the bad
/// records that were passed over.
fn read(
    reader: &DocumentsReader,
    skip_bad: bool,
    batches: SyncSender<Result<Vec<DocumentPart>, CommandError>>,
) -> PassedRecords {
    let (mut batch, mut bytes, mut passed) = (Vec::new(), 0, PassedRecords::new(skip_bad));
    let result = reader.for_each(&mut passed, |part| {
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
    passed
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
