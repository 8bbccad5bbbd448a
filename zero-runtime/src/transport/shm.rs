//! Shm: ranks as processes of one host over one shared mapping without a name. A gather is a wait and a view.

use std::sync::Arc;

use zero_plan::Plan;

use crate::arena::{Arena, segment_bytes};
use crate::launch::{self, EXIT_REPORTED, LaunchError, Place, Watch};

/// Meets the other ranks of a job. When one of them dies, this process ends.
///
/// # Errors
/// See [`launch::join`].
pub fn join<'p>(plan: &'p Plan<'p>, place: &Place) -> Result<(Arc<Arena<'p>>, Watch), LaunchError> {
    let joined = launch::join(place, plan.fingerprint(), segment_bytes(plan))?;
    joined.watch.start(|lost| {
        if lost.is_reporter {
            eprintln!("{}", LaunchError::from(lost).report());
        }
        std::process::exit(EXIT_REPORTED.into());
    })?;
    Ok((Arc::new(Arena::new(plan, place.rank, Arc::new(joined.segment))?), joined.watch))
}
