//! Lines: where a place may begin, as the processor's memory has it. Never knows a device or a plan.

/// Bytes of a cache line, on which everything in an arena starts.
pub const LINE_BYTES: usize = 64;

/// Elements of a flat buffer that lie on one line as f32: buffers and shards are whole multiples of as many.
pub const ALIGNMENT: usize = LINE_BYTES / 4;

/// Every mapping starts on a page, and so does every rank's part of a shared one, so that no two ranks write to one
/// page.
pub const PAGE_BYTES: usize = 4096;

/// Rounds `value` up to a multiple of `multiple`.
pub const fn round_up(value: usize, multiple: usize) -> usize {
    value.div_ceil(multiple) * multiple
}
