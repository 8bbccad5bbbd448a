//! Shm: ranks as processes of one host over one shared mapping without a name. A gather is a wait and a view.

use std::sync::Arc;

use zero_plan::Plan;

use super::Shared;
use crate::arena::{Arena, segment_bytes};
use crate::launch::{self, EXIT_REPORTED, LaunchError, Place, Watch};
use crate::random::split_mix;

/// Meets the other ranks of a job, who must agree on the plan and on `agreement`, a hash of whatever else decides what is
/// computed. When one of them dies, this process ends.
///
/// # Errors
/// See [`launch::join`].
pub fn join<'p>(plan: &'p Plan<'p>, place: &Place, agreement: u64) -> Result<(Shared<'p>, Watch), LaunchError> {
    assert_eq!(plan.check(), Ok(()), "an unsound plan");
    let joined = launch::join(place, plan.fingerprint() ^ split_mix(agreement), segment_bytes(plan))?;
    joined.watch.start(|lost| {
        if lost.is_reporter {
            eprintln!("{}", LaunchError::from(lost).report());
        }
        std::process::exit(EXIT_REPORTED.into());
    })?;
    Ok((Shared::new(Arena::new(plan, place.rank, Arc::new(joined.segment))?), joined.watch))
}
