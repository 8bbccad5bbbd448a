//! Explain: the meaning of a code, a word or a key, as text. Never prints.

use zero_plan::diagnostic::{CODES, find};
use zero_study::glossary;

use crate::error::CommandError;

/// The most columns of a list of words.
const WIDTH: usize = 88;

/// The page of a code, a word or the path of a key; without words, the titles of all codes and the names of all words. A
/// word may have blanks.
///
/// # Errors
/// Z0129 if it is none of these.
pub fn explain(words: &[String]) -> Result<String, CommandError> {
    if words.is_empty() {
        return Ok(all());
    }
    let asked = words.join(" ");
    if let Some(code) = find(&asked) {
        return Ok(code.to_string());
    }
    if let Some(page) = glossary::key_page(&asked).filter(|_| asked.contains('.')) {
        return Ok(page);
    }
    let pages: Vec<_> = glossary::find(&asked).iter().map(ToString::to_string).collect();
    if pages.is_empty() { Err(CommandError::Unexplained { asked }) } else { Ok(pages.join("\n\n\n")) }
}

fn all() -> String {
    let titles: Vec<_> = CODES.iter().map(|entry| format!("{}  {}", entry.code, entry.title)).collect();
    let lists = glossary::WordOrigin::ALL.map(|origin| {
        let names: Vec<_> = glossary::words().filter(|word| word.of == origin).map(|word| word.name).collect();
        format!("{}:\n{}", origin.title(), columns(&names))
    });
    format!("{}\n\n{}", titles.join("\n"), lists.join("\n\n"))
}

/// Names separated by commas, on lines of [`WIDTH`] columns.
fn columns(names: &[&str]) -> String {
    let mut lines = vec![String::new()];
    for name in names {
        match lines.last_mut() {
            Some(line) if line.is_empty() => *line = format!("  {name}"),
            Some(line) if line.len() + 2 + name.len() < WIDTH => *line += &format!(", {name}"),
            _ => {
                lines.last_mut().into_iter().for_each(|line| line.push(','));
                lines.push(format!("  {name}"));
            }
        }
    }
    lines.join("\n")
}
