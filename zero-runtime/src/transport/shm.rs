//! Shm: ranks as processes of one host over one shared mapping without a name, where a gather is a wait and a view; on devices
//! with memory of their own (`Peer`), ranks also hand that to one another here.

use std::sync::Arc;

use zero_plan::Plan;

use super::Shared;
use crate::arena::{Arena, segment_bytes};
use crate::device::Device;
use crate::launch::{self, JobPlace, Joined, LaunchError, Watch};
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
    let Joined { segment, watch } =
        launch::join(place, plan.fingerprint() ^ split_mix(agreement), segment_bytes(plan))?;
    let exchange = &mut |own| watch.exchange(own, place.join_timeout);
    let arena = D::open(place.local_rank)
        .and_then(|device| Arena::new(plan, place.rank, Arc::new(segment), device, Some(exchange)));
    let watched = arena.and_then(|arena| {
        watch.start(|error| {
            if let Some(error) = error {
                launch::print(&error.report());
            }
            launch::leave()
        })?;
        Ok(arena)
    });
    match watched {
        Ok(arena) => Ok((Shared::new(arena), watch)),
        // Another rank tells it, or has left it to this one.
        Err(error @ (LaunchError::Failed(_) | LaunchError::Dismissed { .. } | LaunchError::HostLost)) => Err(error),
        Err(error) => {
            let told = || LaunchError::Dismissed { reason: error.to_string() };
            Err(watch.fail(&error.report()).unwrap_or_else(told))
        }
    }
}
