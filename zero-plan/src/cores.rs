//! Cores: the core of its host that a rank stays on. Never knows what a rank does.

/// The core, of `cores` that the host has, on which all threads of a rank stay; `rank` is its number among the `ranks`
/// of the host. None if the cores would not all get equally many ranks, or if no core would get several: then the
/// system decides where threads run.
///
/// If the system decides, several ranks often wait for one core while another core is idle, because ranks that wait for
/// one another sleep and wake many times in a step. Neighbouring ranks do the same work at the same time, and so get
/// different cores.
///
/// ```
/// use zero_plan::own_core;
///
/// assert_eq!([0, 1, 2, 3].map(|rank| own_core(rank, 4, 2)), [Some(0), Some(1), Some(0), Some(1)]);
/// assert_eq!([own_core(0, 2, 2), own_core(0, 3, 2)], [None, None]);
/// ```
pub const fn own_core(rank: usize, ranks: usize, cores: usize) -> Option<usize> {
    if ranks > cores && ranks.is_multiple_of(cores) { Some(rank % cores) } else { None }
}
