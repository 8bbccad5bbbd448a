//! Lengths: checks of the lengths of a kernel's views, before it is launched.

/// Panics unless the view called `name` has the length that its shape requires.
#[track_caller]
pub(super) fn check_len(name: &str, found: usize, expected: usize) {
    assert!(found == expected, "`{name}` has {found} elements, expected {expected}");
}

/// `len / by` for the view called `name`: its rows from their width, or the other way round. Panics on a remainder.
#[track_caller]
pub(super) fn divided(name: &str, len: usize, by: usize) -> usize {
    assert!(by > 0 && len.is_multiple_of(by), "`{name}` has {len} elements, expected a multiple of {by}");
    len / by
}
