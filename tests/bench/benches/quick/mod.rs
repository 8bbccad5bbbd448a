//! How every micro-benchmark here is sampled: seconds for a group, not minutes.

use std::time::Duration;

/// Few and short samples.
pub fn config() -> criterion::Criterion {
    criterion::Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(200))
        .measurement_time(Duration::from_millis(800))
}
