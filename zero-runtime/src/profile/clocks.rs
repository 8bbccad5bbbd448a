//! Clocks: converts times of one host to the clock of rank 0's host, from two looks at the offset between the two clocks.
//! Never looks itself.

use zero_core::transport::ClockLook;

/// The clock of a host relative to that of rank 0's host, looked at before the first step and after the last one. Two
/// clocks that are not set meanwhile drift apart evenly, so the offset in between lies on a line (as in J. Doleschal et al.,
/// "Internal timer synchronization for parallel event tracing", EuroPVM/MPI 2008).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostClock {
    /// Before the first step.
    pub first: ClockLook,
    /// After the last step.
    pub last: ClockLook,
}

/// How many numbers ranks exchange for it.
const NUMBERS: usize = 6;

impl HostClock {
    /// The time `ns` of its clock, by that of rank 0's host.
    pub fn shifted_ns(&self, ns: u64) -> u64 {
        let Self { first, last } = self;
        let between = last.at_ns.saturating_sub(first.at_ns).max(1) as f64;
        let ran_apart = last.offset_ns.wrapping_sub(first.offset_ns) as f64;
        let since = ns.wrapping_sub(first.at_ns).cast_signed() as f64;
        let offset = first.offset_ns.saturating_add((ran_apart * since / between).round() as i64);
        ns.saturating_add_signed(offset)
    }

    /// The maximum error of such a time.
    pub fn error_ns(&self) -> u64 {
        self.first.error_ns.max(self.last.error_ns)
    }

    /// As numbers that ranks exchange. A number above 2^53 ns, which are 104 days, is rounded, by less than the error of a
    /// look.
    pub fn numbers(&self) -> [f64; NUMBERS] {
        let numbers = |look: &ClockLook| [look.at_ns as f64, look.offset_ns as f64, look.error_ns as f64];
        let ([a, b, c], [d, e, f]) = (numbers(&self.first), numbers(&self.last));
        [a, b, c, d, e, f]
    }

    /// From such numbers.
    pub fn of(numbers: &[f64]) -> Self {
        let look = |numbers: &[f64]| ClockLook {
            at_ns: numbers[0] as u64,
            offset_ns: numbers[1] as i64,
            error_ns: numbers[2] as u64,
        };
        let (first, last) = numbers.split_at(NUMBERS / 2);
        Self { first: look(first), last: look(last) }
    }
}

/// How far apart two equal times of any two hosts may really be: each may be off by its host's error relative to rank 0's
/// host.
pub fn within_ns(clocks: &[HostClock]) -> u64 {
    let mut errors: Vec<u64> = clocks.iter().map(HostClock::error_ns).collect();
    errors.sort_unstable_by(|a, b| b.cmp(a));
    errors.iter().take(2).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clock(looks: [(u64, i64, u64); 2]) -> HostClock {
        let [first, last] = looks.map(|(at_ns, offset_ns, error_ns)| ClockLook { at_ns, offset_ns, error_ns });
        HostClock { first, last }
    }

    #[test]
    fn what_lies_between_two_looks_lies_on_a_line() {
        let own = HostClock::default();
        assert_eq!([0, 7, u64::MAX / 2].map(|ns| own.shifted_ns(ns)), [0, 7, u64::MAX / 2]);
        let steady = clock([(1000, -400, 3), (5000, -400, 2)]);
        assert_eq!([400, 1000, 3000, 9000].map(|ns| steady.shifted_ns(ns)), [0, 600, 2600, 8600]);
        // It loses 40 ns in 4000.
        let slow = clock([(1000, 500, 3), (5000, 540, 9)]);
        assert_eq!([1000, 2000, 5000, 9000].map(|ns| slow.shifted_ns(ns)), [1500, 2510, 5540, 9580]);
        assert_eq!((steady.error_ns(), slow.error_ns()), (3, 9));
        // Two looks at one moment say nothing of drift.
        assert_eq!(clock([(1000, 500, 3), (1000, 500, 3)]).shifted_ns(2000), 2500);
    }

    #[test]
    fn a_clock_is_the_same_in_numbers() {
        let clock = clock([(1 << 52, -(1 << 51), 12_345), ((1 << 52) + 7, -(1 << 51) + 5, 6)]);
        assert_eq!(HostClock::of(&clock.numbers()), clock);
    }

    #[test]
    fn the_errors_of_the_two_worst_hosts_add_up() {
        let hosts = [0, 5, 30, 20].map(|error_ns| clock([(0, 0, error_ns), (0, 0, 1)]));
        assert_eq!([1, 2, 3, 4].map(|count| within_ns(&hosts[..count])), [1, 6, 35, 50]);
        assert_eq!(within_ns(&[]), 0);
    }
}
