//! Text: the bytes of a spec's file as the text that [`parse`](super::parse) reads. Never reads a file.

use crate::diagnostic::{Diagnostic, line_column};

/// The text in the bytes of a file, without the byte order mark that some editors put in front of it.
///
/// # Errors
///
/// `Z0118` if the bytes are not UTF-8; it has no span, as there is no text to point at.
pub fn decode(bytes: &[u8]) -> Result<&str, Box<Diagnostic>> {
    let not_utf8 = |why: String| {
        let help = "save the file as UTF-8: a spec needs no letters beyond ASCII, except in names and comments";
        Box::new(Diagnostic::new("Z0118", "", format!("the spec is not UTF-8 text: {why}")).help(help))
    };
    if bytes.starts_with(&[0xFF, 0xFE]) || bytes.starts_with(&[0xFE, 0xFF]) {
        return Err(not_utf8("it begins as UTF-16 does".to_owned()));
    }
    match std::str::from_utf8(bytes) {
        Ok(text) => Ok(text.strip_prefix('\u{feff}').unwrap_or(text)),
        Err(error) => {
            let at = error.valid_up_to();
            let before = std::str::from_utf8(&bytes[..at]).unwrap_or_default();
            let (line, column) = line_column(before, at);
            Err(not_utf8(format!("the byte 0x{:02X} at {line}:{column} is not part of a character", bytes[at])))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::parse;
    use super::*;

    #[test]
    fn a_mark_in_front_is_no_part_of_the_text() {
        let text = decode(b"\xEF\xBB\xBF(zero: (stage: 3))").unwrap();
        assert_eq!(text, "(zero: (stage: 3))");
        assert!(parse(text).is_ok());
        let inside = "(zero: (stage: 3)) // \u{feff}";
        assert_eq!(decode(inside.as_bytes()), Ok(inside));
    }

    #[test]
    fn z0118_not_utf8() {
        let problem = decode(b"(\n  // caf\xE9\n  zero: (stage: 3))").unwrap_err();
        let message = "the spec is not UTF-8 text: the byte 0xE9 at 2:9 is not part of a character";
        assert_eq!((problem.code, problem.message.as_str()), ("Z0118", message));
        assert!(problem.help.unwrap().starts_with("save the file as UTF-8"));
        for utf16 in [b"\xFF\xFE(\0z\0", b"\xFE\xFF\0(\0z"] {
            let problem = decode(utf16).unwrap_err();
            assert_eq!(problem.message, "the spec is not UTF-8 text: it begins as UTF-16 does");
        }
    }
}
