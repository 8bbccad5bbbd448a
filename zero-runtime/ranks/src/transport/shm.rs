//! Shm: ranks as processes of one host over one shared mapping without a name, where a gather is a wait and a view. If
//! devices have memory of their own (`Peer`), ranks also share that memory here. If there are several hosts, each has
//! such a mapping, and the hosts meet afterwards.

use std::sync::Arc;
use std::time::Instant;

use zero_plan::Plan;

use super::carried::names;
use super::{Shared, cluster};
use crate::launch::{self, JobPlace, Joined, LaunchError, Watch};
use zero_core::arena::{Arena, segment_bytes};
use zero_core::device::{Device, DeviceError, Failure};
use zero_core::random::split_mix;

/// Meets the other ranks of a job, which must agree on the plan and on `agreement`, a hash of everything else that
/// decides what is computed. When one of them dies, this process ends.
///
/// # Errors
/// See [`launch::join`].
pub fn join<'p, D: Device>(
    plan: &'p Plan<'p>,
    place: &JobPlace,
    agreement: u64,
) -> Result<(Shared<'p, D>, Watch), LaunchError> {
    assert_eq!(plan.check(), Ok(()), "an unsound plan");
    let place = &place.among(plan.config.sharing(place.rank))?;
    let Joined { segment, watch } =
        launch::join(place, plan.fingerprint() ^ split_mix(agreement), segment_bytes(plan, place.rank))?;
    let mut refused = None;
    let exchange = &mut |own| {
        watch.exchange(own, place.join_timeout).map_err(|error| {
            let failure = Failure { code: error.code(), what: error.to_string(), help: error.help() };
            refused = Some(error);
            DeviceError::Failed(failure)
        })
    };
    let arena = D::open(place.local_rank)
        .and_then(|device| Arena::new(plan, place.rank, Arc::new(segment), device, Some(exchange)));
    // An error that the other ranks reported says more than the device's own.
    let arena = arena.map_err(|error| refused.unwrap_or(error.into()));
    let watched = arena.and_then(|arena| {
        let (carries, is_apart) = (plan.config.transport.carries(), plan.config.spans_hosts());
        let mut names = (carries && place.rank == 0).then(|| names(&arena)).transpose()?;
        if carries && !is_apart {
            names = Some(watch.hear(names.as_deref(), place.join_timeout)?);
        }
        watch.start(|error| {
            if let Some(error) = error {
                launch::print(&error.report());
            }
            launch::leave(cluster::abort)
        })?;
        let mut transport = Shared::new(arena);
        if is_apart {
            names = transport.meet_hosts(place, agreement, names)?;
        }
        let begin = Instant::now();
        let goes_on = || begin.elapsed() < place.join_timeout;
        names.iter().try_for_each(|names| transport.connect(names, &goes_on))?;
        Ok(transport)
    });
    match watched {
        Ok(transport) => Ok((transport, watch)),
        // Either another rank reports it, and this one waits, because a launcher ends all when it sees the first one end; or
        // the report is left to this rank.
        Err(error @ (LaunchError::Failed(_) | LaunchError::Dismissed { .. } | LaunchError::HostLost)) => {
            if error.is_echo() {
                watch.fail_after();
            }
            Err(error)
        }
        Err(error) => {
            let told = || LaunchError::Dismissed { reason: error.to_string() };
            Err(watch.fail(&error.report()).unwrap_or_else(told))
        }
    }
}
