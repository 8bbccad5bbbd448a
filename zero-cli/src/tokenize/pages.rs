//! Pages: what a table of Parquet claims of its pages. The library reserves memory for as many bytes and values as a page says, before
//! it reads one, so a claim that nothing in the file is behind is refused first.

use std::fs::File;
use std::os::unix::fs::FileExt;

use bytes::Bytes;
use parquet::basic::{Encoding, Type as PhysicalType};
use parquet::bloom_filter::Sbbf;
use parquet::column::page::{Page, PageMetadata, PageReader};
use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::RowGroupMetaData;
use parquet::file::reader::{ChunkReader, Length, RowGroupReader};
use parquet::record::reader::RowIter;
use parquet::schema::types::Type;

/// Pages have a MiB or so. Only a larger one must have a likely size: what gzip makes of zeros is 1032 times shorter.
const LARGE_BYTES: u64 = 64 << 20;
const SHORTER_MAX: u64 = 1032;

/// The most values of a page.
const VALUES_MAX: u64 = 1 << 26;

fn refused<T>(what: String) -> Result<T> {
    Err(ParquetError::General(what))
}

/// A file whose reader asks for no more than it has.
pub struct CheckedFile(pub File);

impl Length for CheckedFile {
    fn len(&self) -> u64 {
        Length::len(&self.0)
    }
}

impl ChunkReader for CheckedFile {
    type T = <File as ChunkReader>::T;

    fn get_read(&self, start: u64) -> Result<Self::T> {
        let mut header = [0; 20];
        let read = self.0.read_at(&mut header, start)?;
        match sizes(&header[..read]) {
            Some((whole, compressed)) if whole > LARGE_BYTES.max(compressed.saturating_mul(SHORTER_MAX)) => {
                refused(format!("a page of {compressed} bytes claims to have {whole}"))
            }
            _ => self.0.get_read(start),
        }
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes> {
        if start.checked_add(length as u64).is_none_or(|end| end > Length::len(&self.0)) {
            return refused(format!("{length} bytes from byte {start} on are claimed to be there"));
        }
        self.0.get_bytes(start, length)
    }
}

/// The bytes of a page before and after it was compressed, by the beginning of its header. The first three fields of a header are a
/// type and these, which are 32 bits each.
fn sizes(mut header: &[u8]) -> Option<(u64, u64)> {
    let mut field = || {
        let (0x15, rest) = header.split_first().map(|(field, rest)| (*field, rest))? else { return None };
        header = rest;
        // Zigzag.
        number(&mut header).map(|number| number >> 1)
    };
    let (_, whole, compressed) = (field()?, field()?, field()?);
    Some((whole, compressed))
}

/// A number in bytes of seven bits each.
fn number(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0u64;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

/// A group of rows whose pages are looked at before they are decoded.
pub struct CheckedGroup<'g>(pub Box<dyn RowGroupReader + 'g>);

impl RowGroupReader for CheckedGroup<'_> {
    fn metadata(&self) -> &RowGroupMetaData {
        self.0.metadata()
    }

    fn num_columns(&self) -> usize {
        self.0.num_columns()
    }

    fn get_column_page_reader(&self, i: usize) -> Result<Box<dyn PageReader>> {
        let column = self.metadata().schema_descr().column(i);
        let levels = [column.max_rep_level(), column.max_def_level()];
        // The length of a text has four bytes.
        let value_bits = if column.physical_type() == PhysicalType::BYTE_ARRAY { 32 } else { 1 };
        Ok(Box::new(CheckedPages { pages: self.0.get_column_page_reader(i)?, column: Column { levels, value_bits } }))
    }

    fn get_column_bloom_filter(&self, i: usize) -> Option<&Sbbf> {
        self.0.get_column_bloom_filter(i)
    }

    fn get_row_iter(&self, projection: Option<Type>) -> Result<RowIter<'_>> {
        RowIter::from_row_group(projection, self)
    }
}

struct CheckedPages {
    pages: Box<dyn PageReader>,
    column: Column,
}

/// What bounds the values of a page.
struct Column {
    /// The largest levels of repetition and of definition.
    levels: [i16; 2],
    /// The least that a value of a dictionary takes.
    value_bits: u64,
}

impl Column {
    /// Refuses a page that claims more values than it can have.
    fn check(&self, page: &Page) -> Result<()> {
        let (bytes, values) = (page.buffer(), u64::from(page.num_values()));
        let most = if page.is_dictionary_page() { 8 * bytes.len() as u64 / self.value_bits } else { VALUES_MAX };
        if values > most {
            return refused(format!("a page of {} bytes claims to have {values} values", bytes.len()));
        }
        let deltas = match page.encoding() {
            Encoding::DELTA_BYTE_ARRAY => 2,
            Encoding::DELTA_LENGTH_BYTE_ARRAY => 1,
            _ => return Ok(()),
        };
        let Some(mut rest) = values_of(page, self.levels) else {
            return refused("a page ends within its levels".to_owned());
        };
        for _ in 0..deltas {
            match lengths(rest) {
                Some((claimed, after)) if claimed <= values => rest = after,
                Some((claimed, _)) => {
                    return refused(format!("a page of {values} values claims to have {claimed} lengths"));
                }
                None => return refused("a page ends within the lengths of its values".to_owned()),
            }
        }
        Ok(())
    }
}

impl Iterator for CheckedPages {
    type Item = Result<Page>;

    fn next(&mut self) -> Option<Self::Item> {
        self.get_next_page().transpose()
    }
}

impl PageReader for CheckedPages {
    fn get_next_page(&mut self) -> Result<Option<Page>> {
        let page = self.pages.get_next_page()?;
        page.iter().try_for_each(|page| self.column.check(page))?;
        Ok(page)
    }

    fn peek_next_page(&mut self) -> Result<Option<PageMetadata>> {
        self.pages.peek_next_page()
    }

    fn skip_next_page(&mut self) -> Result<()> {
        self.pages.skip_next_page()
    }
}

/// The bytes of a page after its levels.
fn values_of(page: &Page, levels: [i16; 2]) -> Option<&[u8]> {
    let mut rest: &[u8] = page.buffer();
    match *page {
        Page::DataPageV2 { def_levels_byte_len, rep_levels_byte_len, .. } => {
            rest = rest.get((u64::from(def_levels_byte_len) + u64::from(rep_levels_byte_len)) as usize..)?;
        }
        Page::DataPage { num_values, rep_level_encoding, def_level_encoding, .. } => {
            for (level, encoding) in levels.into_iter().zip([rep_level_encoding, def_level_encoding]) {
                let bytes = match encoding {
                    _ if level == 0 => 0,
                    Encoding::RLE => 4 + u32::from_le_bytes(*rest.first_chunk()?) as usize,
                    _ => (num_values as usize * (16 - level.leading_zeros() as usize)).div_ceil(8),
                };
                rest = rest.get(bytes..)?;
            }
        }
        Page::DictionaryPage { .. } => {}
    }
    Some(rest)
}

/// How many lengths a stretch of packed differences claims to have, and the bytes after it.
fn lengths(mut rest: &[u8]) -> Option<(u64, &[u8])> {
    let (block, parts, count) = (number(&mut rest)?, number(&mut rest)?, number(&mut rest)?);
    number(&mut rest)?;
    let each = block.checked_div(parts).filter(|&each| each > 0)?;
    let mut left = count.saturating_sub(1);
    while left > 0 && count <= VALUES_MAX {
        number(&mut rest)?;
        let (widths, after) = rest.split_at_checked(usize::try_from(parts).ok()?)?;
        rest = after;
        for &width in widths {
            if left == 0 {
                break;
            }
            let bytes = each.checked_mul(u64::from(width))?.div_ceil(8);
            rest = rest.get(usize::try_from(bytes).ok()?..).unwrap_or_default();
            left -= each.min(left);
        }
    }
    Some((count, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXTS: Column = Column { levels: [0, 1], value_bits: 32 };

    #[test]
    fn a_page_is_as_long_as_its_header_says_it_is_likely_to_be() {
        let header = |whole: &[u8]| [&[0x15, 0, 0x15][..], whole, &[0x15, 0x44, 0x15, 0x08]].concat();
        assert_eq!(sizes(&header(&[0x44])), Some((34, 34)));
        assert_eq!(sizes(&header(&[0xfe, 0xff, 0xff, 0xff, 0x0f])), Some((i32::MAX as u64, 34)));
        assert_eq!((sizes(b"\x15\x80"), sizes(b"\x01\x00\0\0PAR1"), number(&mut &[0xff; 12][..])), (None, None, None));
        let file = tempfile::tempfile().expect("a file");
        file.write_all_at(&header(&[0xfe, 0xff, 0xff, 0xff, 0x0f]), 0).expect("written");
        let file = CheckedFile(file);
        let refused = file.get_read(0).expect_err("a claim").to_string();
        assert!(refused.contains("a page of 34 bytes claims to have 2147483647"), "{refused}");
        assert!(file.get_read(3).is_ok() && file.get_bytes(0, 12).is_ok() && file.get_bytes(0, 99).is_err());
    }

    #[test]
    fn a_dictionary_has_no_more_values_than_bytes() {
        let check = |num_values| {
            let buf = Bytes::from_static(b"\x03\0\0\0one");
            TEXTS.check(&Page::DictionaryPage { buf, num_values, encoding: Encoding::PLAIN, is_sorted: false })
        };
        assert!(check(1).is_ok() && check(2).is_err() && check(u32::MAX).is_err());
    }

    /// Three lengths in a block of 128 with 4 parts, behind levels of a byte: the first as it is, then its differences, in no bits.
    #[test]
    fn a_page_has_no_more_lengths_than_values() {
        let check = |encoding, claimed: &[u8], more: &[u8]| {
            let levels = [1, 0, 0, 0, 7];
            let packed = [&[0x80, 1, 4][..], claimed, &[6, 0, 0, 0, 0, 0]].concat();
            let buf = Bytes::from([&levels, &packed[..], more, b"onetwosix"].concat());
            let (def_level_encoding, rep_level_encoding) = (Encoding::RLE, Encoding::RLE);
            let (num_values, statistics) = (3, None);
            TEXTS.check(&Page::DataPage {
                buf,
                num_values,
                encoding,
                def_level_encoding,
                rep_level_encoding,
                statistics,
            })
        };
        let claims = |encoding, more: &[u8]| {
            assert!(check(encoding, &[3], more).is_ok());
            assert!(check(encoding, &[4], more).is_err());
            assert!(check(encoding, &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f], more).is_err());
        };
        claims(Encoding::DELTA_LENGTH_BYTE_ARRAY, &[]);
        // Beginnings that are shared, and then the lengths of the rest.
        claims(Encoding::DELTA_BYTE_ARRAY, &[0x80, 1, 4, 3, 6, 0, 0, 0, 0, 0]);
        assert!(check(Encoding::DELTA_BYTE_ARRAY, &[3], &[0x80, 1, 4, 4, 6, 0, 0, 0, 0, 0]).is_err());
        assert!(check(Encoding::PLAIN, &[4], &[]).is_ok());
    }
}
