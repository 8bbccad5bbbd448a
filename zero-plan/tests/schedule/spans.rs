//! Spans: a memory whose contents are symbols. Never computes with them.

/// Stretches of a region that were each written at once. A write destroys stretches that it overlaps.
#[derive(Clone, Debug)]
pub struct Spans<T> {
    len: usize,
    spans: Vec<(usize, usize, T)>,
}

impl<T> Spans<T> {
    /// A region of this length, in elements or in bytes, in which nothing has been written.
    pub fn new(len: usize) -> Self {
        Self { len, spans: Vec::new() }
    }

    /// Forgets everything that overlaps `start..start + len`.
    pub fn clear(&mut self, start: usize, len: usize) {
        self.spans.retain(|&(other, other_len, _)| other + other_len <= start || start + len <= other);
    }

    /// Writes `value` to `start..start + len`. A stretch of length 0 holds nothing.
    pub fn write(&mut self, start: usize, len: usize, value: T) -> Result<(), String> {
        if start + len > self.len {
            return Err(format!("a write to {start}..{} of {}", start + len, self.len));
        }
        self.clear(start, len);
        if len > 0 {
            self.spans.push((start, len, value));
        }
        Ok(())
    }

    /// The value that was written to exactly `start..start + len`, and not overwritten since.
    pub fn read(&self, start: usize, len: usize) -> Result<&T, String> {
        let found = self.spans.iter().find(|&&(other, other_len, _)| (other, other_len) == (start, len));
        found
            .map(|(_, _, value)| value)
            .ok_or_else(|| format!("{start}..{} is not what was written there", start + len))
    }
}
