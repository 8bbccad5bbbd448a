//! Beside: the text that lies beside a binary, on which it trains without `--data`. A newer text does not replace an
//! older one at once, so that a run that resumes finds the text that it began with.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Texts that are kept beside the newest one.
const KEPT: usize = 4;
/// Digits of a text's hash in the name of its file.
const DIGITS: usize = 16;

/// The newest text of the binary at `path`.
pub fn text_beside(path: &Path) -> PathBuf {
    named(path, ".txt")
}

/// All texts of the binary at `path`, the newest first.
pub fn texts_beside(path: &Path) -> Vec<PathBuf> {
    let (start, folder) = (file_name(path), path.parent().unwrap_or(Path::new(".")));
    let is_kept = |name: &str| {
        let hash = name.strip_prefix(&start).and_then(|rest| rest.strip_prefix('.')?.strip_suffix(".txt"));
        hash.is_some_and(|hash| hash.len() == DIGITS && hash.bytes().all(|digit| digit.is_ascii_hexdigit()))
    };
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut kept: Vec<_> = entries
        .filter(|entry| entry.file_name().to_str().is_some_and(is_kept))
        .map(|entry| (entry.metadata().and_then(|found| found.modified()).ok(), entry.path()))
        .collect();
    kept.sort();
    let newest = Some(text_beside(path)).filter(|path| path.is_file());
    newest.into_iter().chain(kept.into_iter().rev().map(|(_, path)| path)).collect()
}

/// Puts a text beside the binary at `path`, unless it is there already. The previous text is kept under its hash, and
/// the oldest of the kept texts is removed.
///
/// # Errors
/// Those of the file system. The previous text then remains, if there was one.
pub fn put_text_beside(path: &Path, text: &str) -> io::Result<()> {
    let newest = text_beside(path);
    match fs::read(&newest) {
        Ok(before) if before == text.as_bytes() => return Ok(()),
        Ok(before) => drop(fs::rename(&newest, named(path, &format!(".{}.txt", hash(&before))))),
        Err(_) => path.parent().map_or(Ok(()), fs::create_dir_all)?,
    }
    // A reader that opens the file finds all of one text.
    let fresh = named(path, ".txt.new");
    fs::write(&fresh, text)?;
    fs::rename(&fresh, &newest)?;
    texts_beside(path).iter().skip(1 + KEPT).try_for_each(fs::remove_file)
}

fn hash(text: &[u8]) -> String {
    blake3::hash(text).to_hex()[..DIGITS].to_owned()
}

fn named(path: &Path, end: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(end);
    name.into()
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contents(path: &Path) -> Vec<String> {
        texts_beside(path).iter().map(|text| fs::read_to_string(text).expect("a text")).collect()
    }

    #[test]
    fn a_newer_text_keeps_a_few_older_ones() {
        let folder = tempfile::tempdir().expect("a folder");
        let binary = folder.path().join("bin/gpt");
        assert!(texts_beside(&binary).is_empty());
        // Another binary's text, and files that are not texts.
        put_text_beside(&folder.path().join("bin/gpt.2"), "other").expect("a text");
        fs::write(folder.path().join("bin/gpt.0123456789abcdef.json"), "").expect("a file");
        for number in 0..8 {
            for _ in 0..2 {
                put_text_beside(&binary, &format!("text {number}")).expect("a text");
            }
            assert_eq!(contents(&binary)[0], format!("text {number}"));
            // Times of files are not finer than a tick of the system.
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        assert_eq!(contents(&binary), ["text 7", "text 6", "text 5", "text 4", "text 3"]);
        assert_eq!(contents(&folder.path().join("bin/gpt.2")), ["other"]);
        put_text_beside(&binary, "text 5").expect("a text");
        assert_eq!(
            contents(&binary),
            ["text 5", "text 7", "text 6", "text 5", "text 4"],
            "its time is that of its writing"
        );
    }
}
