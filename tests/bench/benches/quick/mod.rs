//! The sampling of all micro-benchmarks here: a group takes seconds, not minutes.

use std::time::Duration;

/// Few and short samples.
pub fn config() -> criterion::Criterion {
    criterion::Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(200))
        .measurement_time(Duration::from_millis(800))
}
