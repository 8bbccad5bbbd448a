//! Date: the time of day as results record it. Never decides anything by it.

use std::time::{Duration, SystemTime};

/// The last millisecond of the year 9999, after which the format has no digits.
const LAST: Duration = Duration::from_millis(253_402_300_799_999);

/// The time now in RFC 3339 and UTC. A clock that is set to a time before 1970 or after 9999 gives the nearest time in between.
pub fn now() -> String {
    text(SystemTime::now())
}

fn text(time: SystemTime) -> String {
    let time = time.clamp(SystemTime::UNIX_EPOCH, SystemTime::UNIX_EPOCH + LAST);
    humantime::format_rfc3339_millis(time).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_is_wrong_by_millennia_gives_a_date() {
        let far = Duration::from_secs(1 << 40);
        let (first, last) = (SystemTime::UNIX_EPOCH, SystemTime::UNIX_EPOCH + LAST);
        for (time, expected) in [
            (first - far, "1970-01-01T00:00:00.000Z"),
            (first - Duration::from_nanos(1), "1970-01-01T00:00:00.000Z"),
            (first + Duration::from_millis(1_764_433_200_123), "2025-11-29T16:20:00.123Z"),
            (last, "9999-12-31T23:59:59.999Z"),
            (last + Duration::from_millis(1), "9999-12-31T23:59:59.999Z"),
            (last + far, "9999-12-31T23:59:59.999Z"),
        ] {
            assert_eq!(text(time), expected);
        }
    }
}
