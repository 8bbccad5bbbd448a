//! Collectives: how long two ranks take for one, over shared memory. The calls are those of a schedule, on a plan of one
//! buffer. Never moves anything but zeros: only time counts.
#![allow(unsafe_code)]

use std::process::ExitCode;
use std::time::{Duration, Instant};

use zero_runtime::device::Write;
use zero_runtime::launch::{self, Place, Role};
use zero_runtime::plan::mesh::Mesh;
use zero_runtime::plan::{Axis, Config, PlanBuf, Unit};
use zero_runtime::transport::{Lost, Transport, shm};

use crate::Outcome;
use crate::figures::median;

/// Ranks of every measurement.
pub const RANKS: usize = 2;

/// Sizes of the buffer that all ranks have, in bytes.
pub const BYTES: [usize; 2] = [16 << 10, 16 << 20];

/// Times that a number of iterations is timed, after one that is not.
const REPETITIONS: usize = 7;

/// The most iterations that are timed as one.
const ITERATIONS_MAX: u64 = 300;

/// What ranks do together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Collective {
    /// Gradients to shards of their sum, as stages 2 and 3 do it.
    ReduceScatter,
    /// Shards of parameters to whole parameters, as stage 3 does it: a wait and a view, no byte is copied.
    Gather,
    /// Shards of parameters to replicas of them, as stages 1 and 2 do it: each rank copies what others have.
    AllGather,
    /// Gradients to their sum, as stage 0 does it.
    AllReduce,
}

impl Collective {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::ReduceScatter, Self::Gather, Self::AllGather, Self::AllReduce];

    /// Its name, which is the peer's too where the peer has it.
    pub fn name(self) -> &'static str {
        match self {
            Self::ReduceScatter => "reduce_scatter",
            Self::Gather => "gather",
            Self::AllGather => "all_gather",
            Self::AllReduce => "all_reduce",
        }
    }

    /// What the peer calls the like of it.
    pub fn of_peer(self) -> &'static str {
        if self == Self::Gather { Self::AllGather.name() } else { self.name() }
    }

    /// The plan of a rank that has nothing but one buffer, at the stage that this is of.
    pub fn plan(self, bytes: usize) -> PlanBuf {
        let params = bytes / size_of::<f32>();
        let stage = match self {
            Self::ReduceScatter | Self::Gather => 3,
            Self::AllGather => 1,
            Self::AllReduce => 0,
        };
        let config = Config { mesh: Mesh::of_zero(RANKS), stage, ..Config::PLAIN };
        PlanBuf::new(
            "buffer",
            config,
            &[Unit { field: "buffer", params, takes: params, input: 1, output: 1, ..Unit::NONE }],
        )
    }

    /// Does it once, in the order of a schedule. No exchange stands between one time and the next: each begins by waiting
    /// until peers have begun it too, which they do when they have read all that the last one left.
    ///
    /// # Safety
    /// All ranks do the same on the plan that it is of, as often.
    unsafe fn run<'p>(self, transport: &mut impl Transport<'p>) -> Result<(), Lost> {
        // SAFETY: the caller makes all ranks go through these calls; each is allowed after the one before it, and no view
        // is kept.
        unsafe {
            match self {
                Self::ReduceScatter => reduce(transport),
                Self::Gather | Self::AllGather => {
                    transport.publish(0);
                    transport.gather(0, 0);
                    transport.wait(0)?;
                    if self == Self::Gather {
                        std::hint::black_box(transport.gathered(0).len());
                        transport.release(0);
                    }
                    Ok(())
                }
                Self::AllReduce => {
                    reduce(transport)?;
                    transport.spread(0, Axis::Zero)
                }
            }
        }
    }

    /// Time of several, from when all ranks are ready.
    ///
    /// # Errors
    /// [`Lost`] if another rank has ended.
    pub fn time<'p>(self, transport: &mut impl Transport<'p>, iterations: u64) -> Result<Duration, Lost> {
        let call = (self as u64) << 56 | iterations;
        // SAFETY: nothing is under way before it, on a plan of one buffer.
        unsafe { transport.exchange(call, &[0.0], &mut [0.0; RANKS]) }?;
        let start = Instant::now();
        for _ in 0..iterations {
            // SAFETY: all ranks have just said that they do the same, as often.
            unsafe { self.run(transport) }?;
        }
        Ok(start.elapsed())
    }
}

/// # Safety
/// As for [`Collective::run`].
unsafe fn reduce<'p>(transport: &mut impl Transport<'p>) -> Result<(), Lost> {
    // SAFETY: by the caller's promise.
    unsafe {
        transport.claim(0)?;
        transport.reduce(0);
        transport.settle(0, Write::Set)
    }
}

/// Iterations that are timed as one, so many that starting does not show: the peer's too. A gather takes as long whatever
/// its size.
fn iterations(collective: Collective, bytes: usize) -> u64 {
    if collective == Collective::Gather { ITERATIONS_MAX } else { (256 << 20) / bytes as u64 }.min(ITERATIONS_MAX)
}

/// Times all collectives of all sizes between processes, and prints a line of JSON for each. Started alone, it starts the
/// ranks.
pub fn run() -> ExitCode {
    let done = launch::role(RANKS).map_err(Into::into).and_then(|role| match role {
        Role::Launcher => Ok(launch::launch(RANKS)),
        Role::Rank(place) => run_rank(&place).map(|()| ExitCode::SUCCESS),
    });
    done.unwrap_or_else(|error| {
        eprintln!("error: {error}");
        ExitCode::FAILURE
    })
}

fn run_rank(place: &Place) -> Outcome<()> {
    for bytes in BYTES {
        for collective in Collective::ALL {
            // Ranks meet anew for each plan, and must not take one meeting for the next.
            let job = format!("{} {} {bytes}", place.job, collective.name());
            let seconds = time_between_processes(collective, bytes, &Place { job, ..place.clone() })?;
            if place.rank == 0 {
                let line = serde_json::json!({ "collective": collective.name(), "bytes": bytes, "seconds": seconds });
                println!("{line}");
            }
        }
    }
    Ok(())
}

fn time_between_processes(collective: Collective, bytes: usize, place: &Place) -> Outcome<f64> {
    collective.plan(bytes).with(|plan| {
        let (mut transport, watch) = shm::join(plan, place, 0)?;
        let count = iterations(collective, bytes);
        let mut seconds = Vec::new();
        for _ in 0..=REPETITIONS {
            seconds.push(collective.time(&mut transport, count)?.as_secs_f64() / count as f64);
        }
        // SAFETY: all ranks have done all that they do, and say goodbye when the others have, too.
        unsafe { transport.exchange(u64::MAX, &[0.0], &mut [0.0; RANKS]) }?;
        watch.goodbye();
        Ok(median(seconds.split_off(1)))
    })
}

#[cfg(test)]
mod tests {
    use zero_runtime::plan::Kind;
    use zero_runtime::transport::local;

    use super::*;

    #[test]
    fn each_goes_through_over_and_over() {
        for collective in Collective::ALL {
            let sent = collective.plan(BYTES[0]).with(|plan| {
                assert_eq!(plan.check(), Ok(()), "{collective:?}");
                local::run(plan, Result::is_err, |mut transport| {
                    collective.time(&mut transport, 3)?;
                    Ok::<_, Lost>(transport.moved().all())
                })
            });
            for sent in sent.unwrap() {
                let sent = sent.unwrap();
                let half = 3 * BYTES[0] / RANKS;
                let (reduced, spread, gathered) = match collective {
                    Collective::ReduceScatter => (half, 0, 0),
                    Collective::Gather | Collective::AllGather => (0, 0, half),
                    Collective::AllReduce => (half, half, 0),
                };
                assert_eq!((sent.reduce_bytes, sent.spread_bytes, sent.gather_bytes), (reduced, spread, gathered));
            }
        }
    }

    #[test]
    fn a_gather_has_no_place_to_copy_to() {
        Collective::Gather.plan(BYTES[0]).with(|plan| {
            assert_eq!(plan.stages[0].memory.region(Kind::Gathered).elements, 0);
        });
    }
}
