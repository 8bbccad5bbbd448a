//! Shm: ranks as processes of one host over one shared mapping without a name. A gather is a wait and a view.

use std::sync::Arc;

use zero_plan::Plan;

use super::Shared;
use crate::arena::{Arena, segment_bytes};
use crate::device::Device;
use crate::launch::{self, JobPlace, LaunchError, Watch};
use crate::random::split_mix;

/// Meets the other ranks of a job, who must agree on the plan and on `agreement`, a hash of whatever else decides what is
/// computed. When one of them dies, this process ends.
///
/// # Errors
/// See [`launch::join`].
pub fn join<'p, D: Device>(
    plan: &'p Plan<'p>,
    place: &JobPlace,
    agreement: u64,
) -> Result<(Shared<'p, D>, Watch), LaunchError> {
    assert_eq!(plan.check(), Ok(()), "an unsound plan");
    let joined = launch::join(place, plan.fingerprint() ^ split_mix(agreement), segment_bytes(plan))?;
    let watched = joined.watch.start(|error| {
        if let Some(error) = error {
            launch::print(&error.report());
        }
        launch::leave()
    });
    let segment = Arc::new(joined.segment);
    let arena = watched.and_then(|()| D::open(place.local_rank));
    match arena.and_then(|device| Arena::new(plan, place.rank, segment, device)) {
        Ok(arena) => Ok((Shared::new(arena), joined.watch)),
        Err(error) => {
            let told = || LaunchError::Dismissed { reason: error.to_string() };
            Err(joined.watch.fail(&error.report()).unwrap_or_else(told))
        }
    }
}
