//! Range: which numbers an argument may be. Clap prints these messages after "invalid value .. for ..". Never reads an
//! argument that is not a number.

use std::num::{NonZeroU64, NonZeroUsize};
use std::ops::RangeInclusive;

/// More threads than cores only wait for one another, and no host has more cores than this. A larger number must be a
/// mistake.
pub const THREADS_MAX: usize = 1024;

/// A whole number, 0 or above.
pub fn whole(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("expected a whole number from 0 to {}", u64::MAX))
}

/// A whole number, 1 or above.
pub fn at_least_one(text: &str) -> Result<NonZeroU64, String> {
    text.parse().map_err(|_| format!("expected a whole number from 1 to {}", u64::MAX))
}

/// A number of threads.
pub fn threads(text: &str) -> Result<NonZeroUsize, String> {
    let threads = text.parse().ok().filter(|threads: &NonZeroUsize| threads.get() <= THREADS_MAX);
    threads.ok_or_else(|| format!("expected a whole number from 1 to {THREADS_MAX}: no host has more cores"))
}

/// A number above 0.
pub fn positive(text: &str) -> Result<f64, String> {
    number(text, "a number above 0", |value| value > 0.0)
}

/// A number, 0 or above.
pub fn not_negative(text: &str) -> Result<f64, String> {
    number(text, "a number, 0 or above", |value| value >= 0.0)
}

/// A number that is less than 1.
pub fn below_one(text: &str) -> Result<f64, String> {
    number(text, "a number from 0 up to, but not, 1", |value| (0.0..1.0).contains(&value))
}

/// A number from 0 to 1.
pub fn share(text: &str) -> Result<f64, String> {
    number(text, "a number from 0 to 1", |value| (0.0..=1.0).contains(&value))
}

/// A number above 0, and at most 1.
pub fn share_above_zero(text: &str) -> Result<f64, String> {
    number(text, "a number above 0, and at most 1", |value| value > 0.0 && value <= 1.0)
}

/// Optimizers compute in f32, where a smaller number would be 0 and a larger one infinite.
const MAGNITUDES: RangeInclusive<f64> = f32::MIN_POSITIVE as f64..=f32::MAX as f64;

fn number(text: &str, expected: &str, holds: impl Fn(f64) -> bool) -> Result<f64, String> {
    let value: f64 = text.parse().map_err(|_| format!("expected {expected}"))?;
    if !MAGNITUDES.contains(&value.abs()) && !is_zero(text) && value.is_finite() {
        return Err(format!("expected {expected} that f32 can hold: at least 1.2e-38 and at most 3.4e38"));
    }
    if value.is_finite() && holds(value) { Ok(value) } else { Err(format!("expected {expected}")) }
}

/// Whether the text says 0, and not a number so small that it becomes 0.
fn is_zero(text: &str) -> bool {
    let mantissa = text.split(['e', 'E']).next().unwrap_or_default();
    !mantissa.contains(|digit| ('1'..='9').contains(&digit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_end_where_f32_does() {
        for bad in ["1e-400", "1e-300", "1e-39", "1e39", "1e300", "-1e-300"] {
            for parse in [positive, not_negative] {
                assert!(parse(bad).unwrap_err().contains("that f32 can hold"), "{bad}");
            }
        }
        for good in ["1.2e-38", "3e38", "1"] {
            assert!(positive(good).is_ok(), "{good}");
        }
        for zero in ["0", "0.0", "-0", "0e5", "0E-7"] {
            assert_eq!(not_negative(zero).map(f64::abs), Ok(0.0), "{zero}");
            assert!(positive(zero).is_err());
        }
        assert!(["1e-400", "1e-39"].into_iter().all(|bad| share(bad).is_err() && below_one(bad).is_err()));
    }

    #[test]
    fn whole_numbers_end_where_their_type_does() {
        assert_eq!(whole("18446744073709551615"), Ok(u64::MAX));
        for bad in ["18446744073709551616", "-1", "1.0", "1e3", "", " 1", "0x10"] {
            assert_eq!(whole(bad).unwrap_err(), "expected a whole number from 0 to 18446744073709551615");
            assert!(at_least_one(bad).is_err());
        }
        assert_eq!((at_least_one("0").is_err(), at_least_one("1").map(NonZeroU64::get)), (true, Ok(1)));
        assert_eq!(["1", "1024"].map(|good| threads(good).map(NonZeroUsize::get)), [Ok(1), Ok(THREADS_MAX)]);
        assert!(["0", "1025", "100000", "-1", ""].into_iter().all(|bad| threads(bad).is_err()));
    }
}
