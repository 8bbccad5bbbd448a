//! Documents: the text of files, one after another in the order in which they were named. Never encodes.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Cursor, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use zero_files::Pointer;
use zero_files::data::{BEGINNING_BYTES, Cuts, DataError, Structure, TakenFiles, text_files};

use super::arguments::ReadAs;
use super::encode::BATCH_BYTES;
use super::passed::PassedRecords;
use super::record::{self, Fault};
use super::{TokenizeArguments, table};
use crate::error::CommandError;

/// What some programs write before the text of a file.
const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

/// Text of a document: all of it, or a stretch.
pub struct DocumentPart {
    pub text: String,
    pub place: PartPlace,
    /// Whether a long word goes on in the next part.
    pub is_open: bool,
    /// Whether the document ends with this part.
    pub ends: bool,
    /// Bytes of the file that it was read from.
    pub read_bytes: u64,
}

/// Where a part begins.
#[derive(Clone)]
pub enum PartPlace {
    /// At a byte of a file.
    Byte(Arc<Path>, usize),
    /// In a line of a file.
    Line(Arc<Path>, u64),
    /// In a row of a table.
    Row(Arc<Path>, usize),
}

impl PartPlace {
    /// The place some bytes of text later.
    pub fn after(&self, bytes: usize) -> Self {
        match self {
            Self::Byte(path, byte) => Self::Byte(Arc::clone(path), byte + bytes),
            other => other.clone(),
        }
    }

    /// The error of encoding the text from its byte `start` on, with this place.
    pub fn locate(&self, error: DataError, start: usize) -> DataError {
        match self {
            Self::Byte(path, byte) => error.within(|| format!("`{}`", path.display()), byte + start),
            Self::Line(path, line) => error.within(|| format!("the text of {}:{line}", path.display()), start),
            Self::Row(path, row) => error.within(|| format!("the text of {}, row {row},", path.display()), start),
        }
    }
}

/// A reader of files of documents.
pub struct DocumentsReader {
    files: Vec<PathBuf>,
    /// The directories among the inputs, and what was taken of them.
    directories: Vec<(PathBuf, TakenFiles)>,
    bytes: u64,
    read_as: Option<ReadAs>,
    field: String,
    column: String,
    cuts: Option<Cuts>,
}

impl DocumentsReader {
    /// A reader of `arguments.inputs`. It cuts files of text at `cuts`, if there are any.
    pub fn new(arguments: &TokenizeArguments, cuts: Option<Cuts>) -> Result<Self, CommandError> {
        let (mut files, mut directories, mut bytes) = (Vec::new(), Vec::new(), 0);
        for input in &arguments.inputs {
            let found = fs::metadata(input).map_err(unreadable(input))?;
            if found.is_dir() {
                let (below, taken) = text_files(input)?;
                files.extend(below);
                directories.push((input.clone(), taken));
            } else {
                files.push(input.clone());
            }
        }
        for file in &files {
            let found = fs::metadata(file).map_err(unreadable(file))?;
            bytes += found.len();
            if found.is_file()
                && let Some(pointer) = Pointer::at(file).map_err(unreadable(file))?
            {
                return Err(DataError::from(pointer).into());
            }
            // A pipe is looked at when it is read.
            if found.is_file() && arguments.read_as.is_none() && kind(file) == ReadAs::Text {
                open_text(file, None)?;
            }
        }
        let (read_as, field, column) = (arguments.read_as, arguments.field.clone(), arguments.column.clone());
        Ok(Self { files, directories, bytes, read_as, field, column, cuts })
    }

    /// A line for each directory of which something was left out.
    pub fn skipped(&self) -> impl Iterator<Item = String> {
        let not_all = self.directories.iter().filter(|(_, taken)| !taken.skipped.is_empty());
        not_all.map(|(path, taken)| format!("data: `{}`, {taken}", path.display()))
    }

    /// Bytes of all files.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Calls `each` with all parts of all documents, until it returns `false`. Lines and rows that are none go to `passed`.
    pub fn for_each(
        &self,
        passed: &mut PassedRecords,
        mut each: impl FnMut(DocumentPart) -> bool,
    ) -> Result<(), CommandError> {
        for file in &self.files {
            let goes_on = match self.read_as.unwrap_or_else(|| kind(file)) {
                ReadAs::Jsonl => lines(file, &self.field, passed, &mut each),
                ReadAs::Parquet => table::rows(file, &self.column, passed, &mut each),
                ReadAs::Text => {
                    let text = open_text(file, self.read_as)?;
                    match self.cuts {
                        Some(cuts) => stretches(file, text, cuts, &mut each),
                        None => whole(file, text, &mut each),
                    }
                }
            }?;
            if !goes_on {
                break;
            }
        }
        Ok(())
    }
}

/// How a file is read, by its name.
fn kind(file: &Path) -> ReadAs {
    let end = file.extension().map(|end| end.to_ascii_lowercase());
    match end.as_ref().and_then(|end| end.to_str()) {
        Some("jsonl" | "ndjson") => ReadAs::Jsonl,
        Some("parquet") => ReadAs::Parquet,
        _ => ReadAs::Text,
    }
}

/// Opens a file of text, which must not begin like structured data, unless it is to be read as text.
fn open_text(path: &Path, read_as: Option<ReadAs>) -> Result<impl Read + use<>, CommandError> {
    let (mut file, mut beginning) = (File::open(path).map_err(unreadable(path))?, Vec::new());
    (&mut file).take(BEGINNING_BYTES as u64).read_to_end(&mut beginning).map_err(unreadable(path))?;
    match Structure::of(path, &beginning) {
        Some(structure) if read_as.is_none() => Err(CommandError::Structured { path: path.to_owned(), structure }),
        _ => Ok(Cursor::new(beginning).chain(file)),
    }
}

/// Reads a document from each line, in a field of its JSON.
fn lines(
    path: &Path,
    field: &str,
    passed: &mut PassedRecords,
    each: &mut impl FnMut(DocumentPart) -> bool,
) -> Result<bool, CommandError> {
    let mut file = BufReader::new(File::open(path).map_err(unreadable(path))?);
    let (mut line, shared) = (Vec::new(), Arc::from(path));
    for number in 1u64.. {
        line.clear();
        let read_bytes = file.read_until(b'\n', &mut line).map_err(unreadable(path))? as u64;
        if read_bytes == 0 {
            break;
        }
        let json = line.strip_prefix(BYTE_ORDER_MARK).filter(|_| number == 1).unwrap_or(&line);
        if json.trim_ascii().is_empty() {
            continue;
        }
        let goes_on = match record::text(json, field) {
            Ok(text) => {
                let place = PartPlace::Line(Arc::clone(&shared), number);
                each(DocumentPart { text, place, is_open: false, ends: true, read_bytes })
            }
            Err(fault) => {
                passed.pass_over(bad(format!("{}:{number}", path.display()), fault, field))?;
                true
            }
        };
        if !goes_on {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The error of a line of JSON at `place`.
fn bad(place: String, fault: Fault, field: &str) -> CommandError {
    let (what, has) = match fault {
        Fault::Syntax(why) => return CommandError::Input { place, what: format!("is no JSON: {why}") },
        Fault::NoObject => return CommandError::Input { place, what: "is no JSON object".to_owned() },
        Fault::NoField(has) => ("no field", has),
        Fault::NoText(has) => ("no text in the field", has),
    };
    CommandError::NoText { place, what, name: field.to_owned(), has }
}

/// A file of text as one part.
fn whole(path: &Path, mut file: impl Read, each: &mut impl FnMut(DocumentPart) -> bool) -> Result<bool, CommandError> {
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).map_err(unreadable(path))?;
    let read_bytes = bytes.len() as u64;
    let text = String::from_utf8(bytes).map_err(|error| not_utf8(path, error.utf8_error().valid_up_to()))?;
    Ok(each(DocumentPart { text, place: PartPlace::Byte(path.into(), 0), is_open: false, ends: true, read_bytes }))
}

/// A file of text in parts that can be encoded one by one, except for those that lie within a long word.
fn stretches(
    path: &Path,
    mut file: impl Read,
    cuts: Cuts,
    each: &mut impl FnMut(DocumentPart) -> bool,
) -> Result<bool, CommandError> {
    let (mut bytes, mut before) = (Vec::new(), 0);
    loop {
        let read = (&mut file).take(BATCH_BYTES as u64).read_to_end(&mut bytes).map_err(unreadable(path))?;
        let ends = read == 0;
        // The end of a buffer may be within a character.
        let valid = match std::str::from_utf8(&bytes) {
            Ok(_) => bytes.len(),
            Err(error) if error.error_len().is_none() && !ends => error.valid_up_to(),
            Err(error) => return Err(not_utf8(path, before + error.valid_up_to())),
        };
        let text = str::from_utf8(&bytes[..valid]).expect("valid so far");
        let found = cuts.last(text);
        let (at, is_open) = if ends { (valid, false) } else { (found.unwrap_or(valid), found.is_none()) };
        if at > 0 || ends {
            let rest = bytes.split_off(at);
            let text = String::from_utf8(std::mem::replace(&mut bytes, rest)).expect("valid so far");
            let place = PartPlace::Byte(path.into(), before);
            before += at;
            let goes_on = each(DocumentPart { text, place, is_open, ends, read_bytes: at as u64 });
            if !goes_on || ends {
                return Ok(goes_on);
            }
        }
    }
}

fn not_utf8(path: &Path, byte: usize) -> CommandError {
    CommandError::Input { place: path.display().to_string(), what: format!("is no UTF-8 at byte {byte}") }
}

/// The error of a file that cannot be read, for `map_err`.
pub fn unreadable(path: &Path) -> impl FnOnce(std::io::Error) -> CommandError {
    move |source| CommandError::Text(DataError::Unreadable { path: path.to_owned(), source })
}
