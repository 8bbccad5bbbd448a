//! Message: text built by a `const fn`, so that a build error can carry figures. Never allocates.

/// Enough for the longest build error of this crate. Longer text is cut.
const CAPACITY: usize = 2048;

/// Text in a fixed buffer, for `panic!` in constants and for `Display` at run time.
#[derive(Clone, Copy)]
pub struct Message {
    buffer: [u8; CAPACITY],
    len: usize,
}

impl Message {
    /// An empty message.
    pub const fn new() -> Self {
        Self { buffer: [0; CAPACITY], len: 0 }
    }

    /// Appends text.
    pub const fn text(mut self, text: &str) -> Self {
        let bytes = text.as_bytes();
        let mut i = 0;
        while i < bytes.len() && self.len < CAPACITY {
            self.buffer[self.len] = bytes[i];
            self.len += 1;
            i += 1;
        }
        self
    }

    /// Appends a number in decimal.
    pub const fn number(mut self, value: usize) -> Self {
        if value >= 10 {
            self = self.number(value / 10);
        }
        let digit = [b'0' + (value % 10) as u8];
        match core::str::from_utf8(&digit) {
            Ok(digit) => self.text(digit),
            Err(_) => self,
        }
    }

    /// Appends a size in the largest binary unit that is not above it, with one decimal, such as `2.4 GiB`.
    pub const fn bytes(self, bytes: usize) -> Self {
        const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
        let (mut unit, mut scale) = (0, 1);
        while unit + 1 < UNITS.len() && bytes / scale >= 1024 {
            scale *= 1024;
            unit += 1;
        }
        let whole = self.number(bytes / scale);
        let fraction = bytes % scale * 10 / scale;
        let number = if unit == 0 { whole } else { whole.text(".").number(fraction) };
        number.text(" ").text(UNITS[unit])
    }

    /// The text so far.
    pub const fn as_str(&self) -> &str {
        match core::str::from_utf8(self.buffer.split_at(self.len).0) {
            Ok(text) => text,
            // Only a cut in the middle of a character leads here, but the texts of this crate are short ASCII.
            Err(_) => "message too long",
        }
    }
}

impl Default for Message {
    fn default() -> Self {
        Self::new()
    }
}

/// A size in bytes that prints as a person reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bytes(pub usize);

impl core::fmt::Display for Bytes {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.pad(Message::new().bytes(self.0).as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_take_the_largest_unit_below_them() {
        assert_eq!(Bytes(1023).to_string(), "1023 B");
        assert_eq!(Bytes(1024).to_string(), "1.0 KiB");
        assert_eq!(Bytes(1536 * 1024).to_string(), "1.5 MiB");
        assert_eq!(Bytes(10 << 30).to_string(), "10.0 GiB");
    }

    #[test]
    fn overlong_text_is_cut_and_does_not_overflow() {
        let mut message = Message::new();
        for _ in 0..2 * CAPACITY {
            message = message.text("x");
        }
        assert_eq!(message.as_str().len(), CAPACITY);
    }
}
