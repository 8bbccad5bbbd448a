//! Table: the rows of a Parquet file, each a document. Reads only the column of the text.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use parquet::errors::ParquetError;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::Field;
use parquet::record::reader::RowIter;
use parquet::schema::types::Type;

use zero_files::guarded;

use super::documents::{DocumentPart, PartPlace, unreadable};
use super::pages::{CheckedFile, CheckedGroup};
use super::passed::PassedRecords;
use crate::error::CommandError;

/// Calls `each` with the text of every row, until it returns `false`. Rows without text go to `passed`.
pub fn rows(
    path: &Path,
    column: &str,
    passed: &mut PassedRecords,
    each: &mut impl FnMut(DocumentPart) -> bool,
) -> Result<bool, CommandError> {
    let file = File::open(path).map_err(unreadable(path))?;
    let bytes = file.metadata().map_err(unreadable(path))?.len();
    let failed = |what: String| CommandError::Input { place: path.display().to_string(), what };
    let broken = |error: ParquetError| failed(format!("is no Parquet file that can be read: {error}"));
    let missing = |place: String, what, has| CommandError::NoText { place, what, name: column.to_owned(), has };
    let reader = guarded(|| SerializedFileReader::new(CheckedFile(file))).map_err(failed)?.map_err(broken)?;
    let schema = reader.metadata().file_metadata().schema();
    let Some(found) = schema.get_fields().iter().find(|field| field.name() == column) else {
        let has = schema.get_fields().iter().map(|field| field.name().to_owned()).collect();
        return Err(missing(path.display().to_string(), "no column", has));
    };
    let alone = Type::group_type_builder(schema.name()).with_fields(vec![Arc::clone(found)]).build().map_err(broken)?;
    let rows = reader.metadata().file_metadata().num_rows().max(1) as u64;
    let shared: Arc<Path> = path.into();
    let mut number = 0;
    for group in 0..reader.num_row_groups() {
        let group = CheckedGroup(guarded(|| reader.get_row_group(group)).map_err(failed)?.map_err(broken)?);
        let alone = Some(alone.clone());
        let mut found = guarded(|| RowIter::from_row_group(alone, &group)).map_err(failed)?.map_err(broken)?;
        while let Some(row) = guarded(|| found.next()).map_err(failed)? {
            let row = row.map_err(broken)?;
            let place = || format!("{}, row {number}", path.display());
            let text = match row.get_column_iter().next() {
                Some((_, Field::Str(text))) => Ok(text.clone()),
                Some((_, Field::Bytes(bytes))) => String::from_utf8(bytes.data().to_vec())
                    .map_err(|_| CommandError::Input { place: place(), what: "is no UTF-8".to_owned() }),
                _ => Err(missing(place(), "no text in the column", Vec::new())),
            };
            number += 1;
            let text = match text {
                Ok(text) => text,
                Err(bad) => {
                    passed.pass_over(bad)?;
                    continue;
                }
            };
            let place = PartPlace::Row(Arc::clone(&shared), number - 1);
            if !each(DocumentPart { text, place, is_open: false, ends: true, read_bytes: bytes / rows }) {
                return Ok(false);
            }
        }
    }
    Ok(true)
}
