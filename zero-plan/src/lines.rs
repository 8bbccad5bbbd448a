//! Lines: where a place may begin in the processor's memory. Never knows a device or a plan.

/// Bytes of a cache line, on which everything in an arena starts.
pub const LINE_BYTES: usize = 64;

/// Elements of a flat buffer that fill one line as f32. Buffers and shards are multiples of this.
pub const ALIGNMENT: usize = LINE_BYTES / 4;

/// Bytes of a page. Every mapping starts on a page, and so does every rank's part of a shared mapping, so that no two
/// ranks write to the same page.
pub const PAGE_BYTES: usize = 4096;

/// Rounds `value` up to a multiple of `multiple`.
pub const fn round_up(value: usize, multiple: usize) -> usize {
    value.div_ceil(multiple) * multiple
}

/// Transfers between a tier and memory begin and end at multiples of this many bytes, in both.
pub const BLOCK_BYTES: usize = 4096;

/// The elements of a block in the narrowest width. In any width this many elements are whole blocks.
pub const BLOCK_ELEMENTS: usize = BLOCK_BYTES / 2;

/// The number of words of one step: its hyperparameters, and its report.
pub const STEP_WORDS: usize = 13;
