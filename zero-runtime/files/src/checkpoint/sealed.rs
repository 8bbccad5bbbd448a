//! Sealed: JSON in one line, and its hash in a second one, so that no byte of the two can change unnoticed. Never knows what
//! the JSON says.

use serde::Serialize;
use serde::de::DeserializeOwned;

/// Writes a value as two lines.
pub fn seal(value: &impl Serialize) -> Vec<u8> {
    let mut bytes = serde_json::to_vec(value).expect("names, numbers and text");
    let second = second_line(&bytes);
    bytes.push(b'\n');
    bytes.extend(second.into_bytes());
    bytes
}

/// Reads a value from its two lines.
///
/// # Errors
/// Their fault, as a text that follows the name of the file.
pub fn unseal<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, String> {
    let Some(end) = bytes.iter().position(|&byte| byte == b'\n') else {
        return Err(format!("was cut off: it has {} bytes without the end of a line", bytes.len()));
    };
    let (line, rest) = (&bytes[..end], &bytes[end + 1..]);
    let expected = second_line(line);
    if rest != expected.as_bytes() {
        return Err(match expected.as_bytes().starts_with(rest) {
            true => format!("was cut off: its second line has {} bytes, expected {}", rest.len(), expected.len()),
            false => "was changed since it was written: its second line is not the hash of its first".to_owned(),
        });
    }
    serde_json::from_slice(line).map_err(|error| format!("is not understood: {error}"))
}

fn second_line(first: &[u8]) -> String {
    format!("{{\"blake3\":\"{}\"}}\n", blake3::hash(first).to_hex())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_byte_can_change_or_be_missing() {
        let bytes = seal(&("a", 1));
        assert_eq!(unseal::<(String, u32)>(&bytes), Ok(("a".to_owned(), 1)));
        for at in 0..bytes.len() {
            for bit in 0..8 {
                let mut flipped = bytes.clone();
                flipped[at] ^= 1 << bit;
                assert!(unseal::<(String, u32)>(&flipped).is_err(), "bit {bit} of byte {at}");
            }
            let error = unseal::<(String, u32)>(&bytes[..at]).expect_err("cut off");
            assert!(error.starts_with("was cut off"), "{at}: {error}");
        }
        assert!(unseal::<(String, u32)>(&[&bytes[..], b"\n"].concat()).is_err());
        assert!(unseal::<(String, String)>(&bytes).is_err_and(|error| error.starts_with("is not understood")));
    }
}
