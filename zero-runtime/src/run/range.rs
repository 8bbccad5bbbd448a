//! Range: the values that arguments may have. Clap prints these messages after "invalid value .. for ..". Never acts on
//! an argument.

use std::num::NonZeroU64;
use std::ops::RangeInclusive;
use std::time::Duration;
pub use zero_ranks::processors::threads;

use serde::Serializer;

use super::checkpoint_arguments::{Every, Resume};

/// A whole number, 0 or above.
pub fn whole(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("expected a whole number from 0 to {}", u64::MAX))
}

/// A whole number, 1 or above.
pub fn at_least_one(text: &str) -> Result<NonZeroU64, String> {
    text.parse().map_err(|_| format!("expected a whole number from 1 to {}", u64::MAX))
}

/// A duration: a whole number above 0, with its unit.
pub fn duration(text: &str) -> Result<Duration, String> {
    let expected = || "expected a time such as 90s, 10m or 2h, of 1 s to 1000 h".to_owned();
    let number = text.trim_end_matches(|unit: char| unit.is_ascii_alphabetic());
    let unit = match &text[number.len()..] {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        _ => return Err(expected()),
    };
    let seconds = number.parse::<u64>().ok().and_then(|number| number.checked_mul(unit));
    seconds.filter(|seconds| (1..=3_600_000).contains(seconds)).map(Duration::from_secs).ok_or_else(expected)
}

/// A duration in metrics: its seconds.
pub fn seconds<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(duration.as_secs())
}

/// A number of steps, or a duration.
pub fn every(text: &str) -> Result<Every, String> {
    let steps = text.parse().ok().map(Every::Steps);
    let time = || duration(text).ok().map(Every::Time);
    steps
        .or_else(time)
        .ok_or_else(|| "expected a number of steps from 1 up, or a time such as 90s, 10m or 2h".to_owned())
}

/// `newest`, or the path of a checkpoint.
pub fn resume(text: &str) -> Result<Resume, String> {
    Ok(if text == "newest" { Resume::Newest } else { Resume::From(text.into()) })
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

/// Whether the text is 0, and not a number so small that it is rounded to 0.
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
    fn times_have_units_and_steps_have_none() {
        let of = |seconds| Ok(Duration::from_secs(seconds));
        assert_eq!(["1s", "10m", "2h"].map(duration), [of(1), of(600), of(7200)]);
        for bad in ["", "0s", "5", "5d", "-1s", "1.5h", "m", "1ss", "99999999999999999999h", "1001h", "1S"] {
            assert!(duration(bad).unwrap_err().contains("90s, 10m or 2h"), "{bad}");
        }
        assert_eq!(every("7"), Ok(Every::Steps(NonZeroU64::new(7).unwrap())));
        assert_eq!(every("7m"), Ok(Every::Time(Duration::from_secs(420))));
        assert!(["0", "", "x", "0m"].into_iter().all(|bad| every(bad).is_err()));
        assert_eq!((resume("newest"), resume("./newest")), (Ok(Resume::Newest), Ok(Resume::From("./newest".into()))));
    }

    #[test]
    fn whole_numbers_end_where_their_type_does() {
        assert_eq!(whole("18446744073709551615"), Ok(u64::MAX));
        for bad in ["18446744073709551616", "-1", "1.0", "1e3", "", " 1", "0x10"] {
            assert_eq!(whole(bad).unwrap_err(), "expected a whole number from 0 to 18446744073709551615");
            assert!(at_least_one(bad).is_err());
        }
        assert_eq!((at_least_one("0").is_err(), at_least_one("1").map(NonZeroU64::get)), (true, Ok(1)));
    }
}
