//! Published: the contract of the copies of parameters that a rank offers to readers. Never says who reads them, or when.

/// The copies of one rank. A thread beside that of the rank may read them while training goes on.
pub trait PublishedCopies {
    /// Bytes of a copy.
    fn bytes(&self) -> usize;

    /// Whether the copy of the parameters after `step` steps is on its way, so that it is there soon.
    fn is_coming(&self, step: u64) -> bool;

    /// Reads the copy of the parameters after `step` steps, from byte `start` on. Returns whether it is there: otherwise a newer one
    /// has taken its place, or is about to, and `to` holds nothing that may be used. Never waits.
    ///
    /// # Panics
    /// If the bytes end after the copy.
    fn read(&self, step: u64, start: usize, to: &mut [u8]) -> bool;
}
