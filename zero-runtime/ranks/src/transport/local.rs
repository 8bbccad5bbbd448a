//! Local: ranks as threads of one process, over private memory. For tests, and for specs that ask for it. A gather
//! copies into a slot, as it must if memory is not shared, so that slots and releases are tested.
#![allow(unsafe_code)]

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use zero_plan::Plan;

use super::Shared;
use super::carried::names;
use super::control::Control;
use crate::launch::LaunchError;
use zero_core::arena::{Arena, segment_bytes};
use zero_core::device::{Device, STACK_BYTES, Segment};

/// Runs `rank_main` on one thread for each rank of `plan`, and returns the results. If a rank panics, or `failed` says
/// that its result is a failure, the others are told, and their waits end in [`super::Lost`].
///
/// # Errors
/// Z0331 or Z0332 if the host lacks the memory that the plan needs; the error of a device that is not available.
pub fn run<'p, D: Device, R: Send>(
    plan: &'p Plan<'p>,
    failed: impl Fn(&R) -> bool + Sync,
    rank_main: impl Fn(Shared<'p, D>) -> R + Sync,
) -> Result<Vec<R>, LaunchError> {
    assert_eq!(plan.check(), Ok(()), "an unsound plan");
    let segment = Arc::new(Segment::private(segment_bytes(plan, 0))?);
    let arenas = (0..plan.config.mesh.ranks())
        .map(|rank| Arena::new(plan, rank, Arc::clone(&segment), D::open(rank)?, None))
        .collect::<Result<Vec<_>, _>>()?;
    // The device of one rank names the groups for all.
    let names = plan.config.transport.carries().then(|| names(&arenas[0])).transpose()?;
    let tell_all = |lost: usize| {
        for rank in 0..plan.config.mesh.ranks() {
            // SAFETY: the segment has a block for each rank, was zero at first, and outlives this call.
            unsafe { Control::of(segment.ptr(), rank) }.tell_lost(lost);
        }
    };
    let run_rank = &|rank: usize, arena: Arena<'p, D>| {
        let result = catch_unwind(AssertUnwindSafe(|| {
            let mut transport = Shared::new(arena);
            names.iter().try_for_each(|names| transport.connect(names, &|| true))?;
            Ok(rank_main(transport))
        }));
        if !matches!(&result, Ok(Ok(result)) if !failed(result)) {
            tell_all(rank);
        }
        result
    };
    std::thread::scope(|scope| {
        let threads = arenas.into_iter().enumerate().map(|(rank, arena)| {
            let thread = std::thread::Builder::new().name(format!("rank {rank}")).stack_size(STACK_BYTES);
            thread.spawn_scoped(scope, move || run_rank(rank, arena)).map_err(LaunchError::system("start a thread"))
        });
        // Otherwise ranks that were started would wait for those that were not.
        let threads = threads.collect::<Result<Vec<_>, _>>().inspect_err(|_| tell_all(0))?;
        let results = threads.into_iter().map(|thread| thread.join().and_then(|result| result));
        let mut results: Vec<_> =
            results.map(|result| result.unwrap_or_else(|panic: Box<dyn Any + Send>| resume_unwind(panic))).collect();
        // If ranks could not connect, the error of the one that caused it says more than those of the others.
        let is_cause = |result: &Result<R, LaunchError>| result.as_ref().is_err_and(|error| !error.is_echo());
        match results.iter().position(is_cause) {
            Some(cause) => Err(results.swap_remove(cause).err().expect("an error")),
            None => results.into_iter().collect(),
        }
    })
}
