//! Decoder: what a worker decodes with, as this crate sees it: caches of several sequences, and weights that have versions.

/// A model with a cache for each of several sequences. Between two calls nothing computes.
pub trait Decoder {
    /// Sequences that it has caches for: slots 0 to this.
    fn slots(&self) -> usize;

    /// The most tokens of a sequence, its prompt included.
    fn length(&self) -> usize;

    /// Ids that it predicts.
    fn classes(&self) -> usize;

    /// The version of the weights that the next call uses.
    fn version(&self) -> &str;

    /// Begins a sequence in a slot with these ids, and gives the logits after the last of them.
    ///
    /// # Errors
    /// A sentence. The worker then ends.
    fn prefill(&mut self, slot: usize, ids: &[u32], logits: &mut [f32]) -> Result<(), String>;

    /// One more token of each sequence, side by side. `logits` is (rows, classes), and no bit of a row depends on the others.
    ///
    /// # Errors
    /// A sentence. The worker then ends.
    fn step(&mut self, rows: &[Row], logits: &mut [f32]) -> Result<(), String>;

    /// Takes up, for a short time, what has arrived of newer weights. Returns whether all of a newer version is there, checked.
    ///
    /// # Errors
    /// A sentence. The worker then ends.
    fn receive(&mut self) -> Result<bool, String>;

    /// Uses the newer version from the next call on. Caches stay as they are.
    ///
    /// # Errors
    /// A sentence. The worker then ends.
    fn refresh(&mut self) -> Result<(), String>;
}

/// A sequence's next token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// The sequence's slot.
    pub slot: usize,
    /// Tokens that its cache has.
    pub cached: usize,
    /// The next token.
    pub id: u32,
}
