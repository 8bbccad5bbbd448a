//! Wake latency: measures the time from a rank's raise of a count until another rank, which sleeps for it, goes on. Two
//! threads wait for one another, as ranks of a host do. Never looks at a plan.

use std::sync::atomic::{AtomicU64, Ordering};

use zero_core::control::{Control, Count, PATIENCE, Spins, Waiter};
use zero_core::lost::Lost;
use zero_core::time::now_ns;

use crate::launch::LaunchError;
use crate::processors::{allowed, keep_to};

/// Waits in each direction that are measured.
const TIMES: u32 = 300;
/// How long a rank works before it raises its count if each rank has a core: far longer than the other one spins.
const WORK_NS: u64 = 300_000;

/// The wake latencies between two ranks, in seconds: with a core for each, and with one core that they share in turn.
///
/// # Errors
/// Z0332 if the system does not report or set which processors a thread may use.
pub fn measure() -> Result<[Vec<f64>; 2], LaunchError> {
    let all = allowed().map_err(LaunchError::system("see the processors of this process"))?;
    // Neighbours are often two threads of one core.
    let (first, last) = (all[0], all[all.len() - 1]);
    let shared = between([first, first], Spins::NONE, 0)?;
    // With a single processor, ranks never have one each.
    let apart = if first == last { shared.clone() } else { between([first, last], Spins::BRIEF, WORK_NS)? };
    Ok([apart, shared])
}

/// Seconds of each wait between ranks on these processors, of which each works for a while before it raises its count.
fn between(processors: [usize; 2], spins: Spins, work_ns: u64) -> Result<Vec<f64>, LaunchError> {
    let (blocks, raised_ns) = (<[Control; 2]>::default(), AtomicU64::new(0));
    let rank = |rank| Rank { rank, blocks: &blocks, raised_ns: &raised_ns, spins, work_ns };
    let seconds = std::thread::scope(|scope| {
        let ranks = [0, 1].map(|number| scope.spawn(move || rank(number).run(processors[number])));
        ranks.map(|rank| rank.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    });
    let [one, other] = seconds;
    // A rank that has ended early returns the reason.
    Ok([one?, other?].map(|seconds| seconds.expect("both have a processor")).concat())
}

/// One of the two ranks.
struct Rank<'a> {
    rank: usize,
    blocks: &'a [Control; 2],
    /// When a count was raised last.
    raised_ns: &'a AtomicU64,
    spins: Spins,
    work_ns: u64,
}

impl Rank<'_> {
    /// Waits and is waited for on a processor; returns the seconds of each wait.
    fn run(self, processor: usize) -> Result<Result<Vec<f64>, Lost>, LaunchError> {
        let pinned = keep_to(processor).map_err(LaunchError::system("choose the processor of a thread"));
        // The other one waits for this one.
        pinned.inspect_err(|_| {
            self.blocks[1 - self.rank].tell_lost(self.rank);
        })?;
        let waits = (1..=TIMES).map(|round| {
            if self.rank == 0 {
                self.raise();
            }
            let seconds = self.wait(round)?;
            if self.rank == 1 {
                self.raise();
            }
            Ok(seconds)
        });
        Ok(waits.collect())
    }

    fn raise(&self) {
        let start = now_ns();
        while now_ns() - start < self.work_ns {
            core::hint::spin_loop();
        }
        self.raised_ns.store(now_ns(), Ordering::Relaxed);
        self.blocks[self.rank].signal(Count::Entered).raise();
    }

    /// Waits for a count; returns the seconds since it was raised.
    fn wait(&self, round: u32) -> Result<f64, Lost> {
        let peer = 1 - self.rank;
        let waiter = Waiter {
            own: &self.blocks[self.rank],
            rank: peer,
            spins: self.spins,
            patience: Some(&PATIENCE),
            notice: &|_| {},
            sleeps_max: u32::MAX,
            give_up: &|| Lost::Ended { rank: peer },
        };
        self.blocks[peer].wait(Count::Entered, round, &waiter)?;
        Ok((now_ns() - self.raised_ns.load(Ordering::Relaxed)) as f64 * 1e-9)
    }
}

#[cfg(test)]
mod tests {
    use rustix::thread::CpuSet;

    use super::*;

    #[test]
    fn each_turn_is_timed_on_one_processor_and_on_two() {
        for mut seconds in measure().expect("threads") {
            seconds.sort_by(f64::total_cmp);
            assert!(seconds.len() == 2 * TIMES as usize && seconds[seconds.len() / 2] > 0.0, "{seconds:?}");
        }
    }

    #[test]
    fn a_rank_that_has_no_processor_lets_the_other_one_end() {
        let all = allowed().expect("processors");
        let absent = (0..CpuSet::MAX_CPU).rfind(|processor| !all.contains(processor)).expect("a processor fewer");
        between([all[0], absent], Spins::NONE, 0).unwrap_err();
    }
}
