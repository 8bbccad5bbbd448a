//! Offload: what it costs a step that states are kept on disk, and what it costs the disk.

use core::fmt;

use serde::Serialize;
use zero_plan::{Bytes, Plan, TierBytes};

use super::disk::written_of_node;
use super::text::ShownTime;
use super::{Flow, Impossible, LinkKind, StepPart, Timeline, simulate_with};
use crate::hardware::Hardware;

/// A disk counts as fast enough if a step takes at most this many times as long as with a disk that takes no time.
const HIDDEN: f64 = 1.01;
/// How often the interval is halved in which the slowest disk that is fast enough lies, from a factor of 2 down to 1 %.
const HALVINGS: usize = 6;
const DAY_S: f64 = 86_400.0;

/// The cost of states on disk.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DiskPrediction {
    /// Bytes that a rank reads in a step, of the pipeline stage that reads most.
    pub read_bytes: usize,
    /// Bytes that it writes.
    pub written_bytes: usize,
    /// Seconds of a step in which a rank waits for the disk, on the pipeline stage that waits most.
    pub exposed_s: f64,
    /// Bytes that the disk of a node reads and writes in a second, both together.
    pub bytes_per_s: f64,
    /// The same for the slowest disk, with the same latency, on which a step is at most 1 % longer than on one that moves
    /// bytes in no time; `None` if the disk is that fast.
    pub hidden_at_bytes_per_s: Option<f64>,
    /// Bytes that a node writes in a day of such steps, if it is the one that writes most.
    pub written_bytes_per_day: f64,
    /// Steps until it has written what its disk endures; `None` if that is not known.
    pub lasts_steps: Option<f64>,
    /// Seconds of these steps.
    pub lasts_s: Option<f64>,
}

impl DiskPrediction {
    /// The cost for a plan, whose step on this hardware is `timeline`; `None` if the plan keeps nothing on disk.
    ///
    /// # Errors
    /// If the hardware cannot run the plan.
    pub fn of(
        plan: &Plan,
        hardware: &Hardware,
        threads: usize,
        timeline: &Timeline,
    ) -> Result<Option<Self>, Impossible> {
        let Some(disk) = hardware.node.disk.filter(|_| plan.config.offloads()) else { return Ok(None) };
        let direct = disk.direct.ok_or(Impossible::NoDirectRates)?;
        let of_stages: Vec<TierBytes> =
            (0..timeline.lanes.len()).map(|stage| TierBytes::of(plan, plan.first_rank(stage))).collect();
        let on_disk = |part| matches!(part, StepPart::Exposed(Flow::Fetch | Flow::Store, LinkKind::Disk));
        let exposed = (0..of_stages.len()).map(|stage| timeline.parts(plan, stage).sum(on_disk));
        let of_node = written_of_node(&plan.config.mesh, |stage| of_stages[stage].written) as f64;
        let lasts_steps = disk.endurance.map(|endurance| (endurance.bytes() as f64 / of_node).floor());
        Ok(Some(Self {
            read_bytes: of_stages.iter().map(|bytes| bytes.read).max().unwrap_or(0),
            written_bytes: of_stages.iter().map(|bytes| bytes.written).max().unwrap_or(0),
            exposed_s: exposed.fold(0.0, f64::max),
            bytes_per_s: direct.both(),
            hidden_at_bytes_per_s: hiding_factor(plan, hardware, threads)?.map(|times| times * direct.both()),
            written_bytes_per_day: of_node * DAY_S / timeline.step_s,
            lasts_steps,
            lasts_s: lasts_steps.map(|steps| steps * timeline.step_s),
        }))
    }
}

/// Seconds of a step with a disk that is this many times as fast.
fn step_s(plan: &Plan, hardware: &Hardware, threads: usize, times: f64) -> Result<f64, Impossible> {
    let mut hardware = hardware.clone();
    faster(&mut hardware, times);
    Ok(simulate_with(plan, &hardware, threads)?.step_s)
}

/// Makes the disk this many times as fast.
pub(super) fn faster(hardware: &mut Hardware, times: f64) {
    if let Some(direct) = hardware.node.disk.as_mut().and_then(|disk| disk.direct.as_mut()) {
        *direct = direct.faster(times);
    }
}

/// How many times as fast a disk must be to be fast enough; none if it is.
fn hiding_factor(plan: &Plan, hardware: &Hardware, threads: usize) -> Result<Option<f64>, Impossible> {
    let enough_s = HIDDEN * step_s(plan, hardware, threads, f64::INFINITY)?;
    let is_enough = |times: f64| Ok(step_s(plan, hardware, threads, times)? <= enough_s);
    let [mut low, mut high] = [1.0, 1.0];
    while !is_enough(high)? {
        (low, high) = (high, 2.0 * high);
    }
    if high == 1.0 {
        return Ok(None);
    }
    for _ in 0..HALVINGS {
        let middle = f64::sqrt(low * high);
        if is_enough(middle)? { high = middle } else { low = middle }
    }
    Ok(Some(high))
}

impl DiskPrediction {
    /// The cost in one line, for someone who has yet to choose.
    pub fn in_a_line(&self) -> String {
        let moved = Bytes(self.read_bytes + self.written_bytes);
        let (wait, rate) = (ShownTime(self.exposed_s), Rate(self.bytes_per_s));
        let day = self.written_bytes_per_day / 1e12;
        format!("disk: {moved} a rank and step, waits {wait} for it at {rate}; a node writes {day:.2} TB a day")
    }
}

impl fmt::Display for DiskPrediction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (read, written) = (Bytes(self.read_bytes), Bytes(self.written_bytes));
        let (wait, rate) = (ShownTime(self.exposed_s), Rate(self.bytes_per_s));
        write!(f, "disk: a rank reads {read} and writes {written} in a step, and waits {wait} for a disk of {rate}")?;
        if let Some(rate) = self.hidden_at_bytes_per_s {
            write!(f, "\n      a disk of {} would make a step at most 1 % longer than states in memory", Rate(rate))?;
        }
        write!(f, "\n      a node writes {:.2} TB a day", self.written_bytes_per_day / 1e12)?;
        let (Some(steps), Some(seconds)) = (self.lasts_steps, self.lasts_s) else { return Ok(()) };
        write!(f, ", so its disk endures {steps:.0} steps, or {:.1} days", seconds / DAY_S)
    }
}

/// A rate, as a person reads it.
struct Rate(f64);

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.2} GB/s", self.0 / 1e9)
    }
}
