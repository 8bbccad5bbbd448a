//! Collectives: the time of each between two ranks, over shared memory. The calls are those of a schedule, on a plan with one
//! buffer. Moves only zeros, because only the time is measured.
#![allow(unsafe_code)]

use std::process::ExitCode;
use std::time::{Duration, Instant};

use zero_engine::Collectives;
use zero_ranks::launch::{self, JobPlace, LaunchOptions, Role};
use zero_ranks::transport::{Lost, Shared, shm};
use zero_runtime::device::Cpu;
use zero_runtime::plan::{Axis, Config, Kind, Mesh, Op, PlanBuf, TransportKind, Unit};

use crate::Outcome;
use crate::figures::median;

/// Ranks of every measurement.
pub const RANKS: usize = 2;

/// Sizes of the buffer that all ranks have, in bytes.
pub const BYTES: [usize; 2] = [16 << 10, 16 << 20];

/// How often a number of iterations is timed, after a warm-up.
const REPETITIONS: usize = 7;

/// The most iterations that are timed as one.
const ITERATIONS_MAX: u64 = 300;

/// A collective.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Collective {
    /// From gradients to shards of their sum, as at stages 2 and 3.
    ReduceScatter,
    /// From shards of parameters to whole parameters, as at stage 3: a wait and a view, without a copy.
    Gather,
    /// From shards of parameters to replicas of them, as at stages 1 and 2: each rank copies the shards of the others.
    AllGather,
    /// From gradients to their sum, as at stage 0.
    AllReduce,
}

impl Collective {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::ReduceScatter, Self::Gather, Self::AllGather, Self::AllReduce];

    /// Its name, which is also the peer's if the peer has this collective.
    pub fn name(self) -> &'static str {
        match self {
            Self::ReduceScatter => "reduce_scatter",
            Self::Gather => "gather",
            Self::AllGather => "all_gather",
            Self::AllReduce => "all_reduce",
        }
    }

    /// The peer's name for its equivalent.
    pub fn of_peer(self) -> &'static str {
        if self == Self::Gather { Self::AllGather.name() } else { self.name() }
    }

    /// The plan of ranks that have only one buffer, at a stage with this collective.
    pub fn plan(self, bytes: usize) -> PlanBuf {
        self.plan_on(bytes, Mesh::of_zero(RANKS), TransportKind::Shm)
    }

    /// The same for a mesh and a transport.
    pub fn plan_on(self, bytes: usize, mesh: Mesh, transport: TransportKind) -> PlanBuf {
        let params = bytes / size_of::<f32>();
        let stage = match self {
            Self::ReduceScatter | Self::Gather => 3,
            Self::AllGather => 1,
            Self::AllReduce => 0,
        };
        let config = Config { mesh, stage, transport, ..Config::PLAIN };
        PlanBuf::new(
            "buffer",
            config,
            &[Unit { field: "buffer", params, takes: params, input_bytes: 4, output_bytes: 4, ..Unit::NONE }],
        )
    }

    /// The ops of one execution, in the order of a schedule. Repetition needs no other exchange: each begins with a wait until
    /// peers have begun it too, and they begin after they have read all results of the previous one.
    fn ops(self) -> &'static [Op] {
        const GATHER: [Op; 3] = [Op::Gather { unit: 0, slot: 0 }, Op::Wait { unit: 0 }, Op::Release { unit: 0 }];
        const REDUCE: [Op; 5] = [
            Op::Claim { bucket: 0 },
            Op::Reduce { bucket: 0, round: 0 },
            Op::Subtotal { bucket: 0, round: 0, axis: Axis::Zero },
            Op::Settle { bucket: 0, round: 0 },
            Op::Spread { bucket: 0, axis: Axis::Zero },
        ];
        match self {
            Self::ReduceScatter => &REDUCE[..4],
            Self::Gather => &GATHER,
            Self::AllGather => &GATHER[..2],
            Self::AllReduce => &REDUCE,
        }
    }

    /// Whether each execution gathers new parameters.
    fn publishes(self) -> bool {
        matches!(self, Self::Gather | Self::AllGather)
    }

    /// Time of `iterations` executions, measured from when all ranks are ready.
    ///
    /// # Errors
    /// [`Lost`] if another rank has ended.
    pub fn time(self, ranks: &mut Ranks, iterations: u64) -> Result<Duration, Lost> {
        let call = (self as u64) << 56 | iterations;
        // SAFETY: no op is in progress before this one, on a plan with one buffer.
        unsafe { ranks.exchange(call, 1) }?;
        let sums_on_hosts = ranks.plan().config.sums_on_hosts(Axis::Zero);
        let is_there = |op: &&Op| sums_on_hosts || !matches!(op, Op::Subtotal { .. });
        let start = Instant::now();
        for _ in 0..iterations {
            let new = self.publishes().then_some(&Op::Update { unit: 0, piece: None });
            for &op in new.into_iter().chain(self.ops()).filter(is_there) {
                // SAFETY: all ranks have just agreed on the same ops and the same number of iterations; each op may follow the
                // previous one, and no view is kept.
                unsafe { ranks.run(op) }?;
            }
        }
        Ok(start.elapsed())
    }
}

/// A rank of a measurement.
pub type Ranks<'p> = Collectives<'p, Cpu, Shared<'p, Cpu>>;

/// Iterations that are timed together: as many as the peer's, and enough to hide the cost of starting. A gather that is a view
/// takes equally long at any size.
fn iterations(collective: Collective, bytes: usize, is_view: bool) -> u64 {
    if collective == Collective::Gather && is_view { ITERATIONS_MAX } else { (256 << 20) / bytes as u64 }
        .min(ITERATIONS_MAX)
}

/// Times all collectives of all sizes between processes, and prints a line of JSON for each. If started without a launcher, it
/// starts the ranks.
pub fn run() -> ExitCode {
    let done = launch::role(RANKS).map_err(Into::into).and_then(|role| match role {
        Role::Launcher => Ok(launch::launch(RANKS, &LaunchOptions::default())),
        Role::Rank(place) => run_rank(&place).map(|()| ExitCode::SUCCESS),
    });
    done.unwrap_or_else(|error| {
        eprintln!("error: {error}");
        ExitCode::FAILURE
    })
}

fn run_rank(place: &JobPlace) -> Outcome<()> {
    for bytes in BYTES {
        for collective in Collective::ALL {
            // Ranks meet anew for each plan, and must not confuse two meetings.
            let job = format!("{} {} {bytes}", place.job, collective.name());
            let place = JobPlace { job, ..place.clone() };
            let seconds = time_between_processes(collective, bytes, &collective.plan(bytes), &place)?;
            if place.rank == 0 {
                let line = serde_json::json!({ "collective": collective.name(), "bytes": bytes, "seconds": seconds });
                println!("{line}");
            }
        }
    }
    Ok(())
}

/// Seconds of a collective among the ranks of a plan.
///
/// # Errors
/// If ranks do not meet, or one of them ends.
pub fn time_between_processes(collective: Collective, bytes: usize, plan: &PlanBuf, place: &JobPlace) -> Outcome<f64> {
    plan.with(|plan| {
        let (transport, watch) = shm::join(plan, place, 0)?;
        let mut ranks = Collectives::new(transport, Cpu::default());
        let is_view = plan.pipeline_stages[0].memory.region(Kind::Gathered).bytes == 0;
        let count = iterations(collective, bytes, is_view);
        let mut seconds = Vec::new();
        for _ in 0..=REPETITIONS {
            seconds.push(collective.time(&mut ranks, count)?.as_secs_f64() / count as f64);
        }
        // SAFETY: all ranks have executed all their ops, and each finishes only after the others have done so too.
        unsafe { ranks.exchange(u64::MAX, 1) }?;
        watch.finish();
        Ok(median(seconds.split_off(1)))
    })
}

#[cfg(test)]
mod tests {
    use zero_ranks::transport::local;

    use super::*;

    #[test]
    fn each_goes_through_over_and_over() {
        for collective in Collective::ALL {
            let sent = collective.plan(BYTES[0]).with(|plan| {
                assert_eq!(plan.check(), Ok(()), "{collective:?}");
                local::run(plan, Result::is_err, |transport: Shared<'_, Cpu>| {
                    let mut ranks = Collectives::new(transport, Cpu::default());
                    collective.time(&mut ranks, 3)?;
                    Ok::<_, Lost>(ranks.moved().all())
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
            assert_eq!(plan.pipeline_stages[0].memory.region(Kind::Gathered).bytes, 0);
        });
    }
}
