//! Offload: what it costs a step that states are kept in a tier, and what it costs a disk.

use core::fmt;

use serde::Serialize;
use zero_plan::{Bytes, Plan, TierBytes, TierKind};

use super::shared::written_of_node;
use super::text::ShownTime;
use super::{Flow, Impossible, LinkKind, StepPart, Timeline, simulate_with};
use crate::hardware::Hardware;

/// A tier counts as fast enough if a step takes at most this many times as long as with a tier that takes no time.
const HIDDEN: f64 = 1.01;
/// How often the interval is halved in which the slowest tier that is fast enough lies, from a factor of 2 down to 1 %.
const HALVINGS: usize = 6;
const DAY_S: f64 = 86_400.0;

/// The cost of states in a tier: on disk, or in the memory of a GPU's host.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TierPrediction {
    /// Bytes that a rank reads in a step, of the pipeline stage that reads most.
    pub read_bytes: usize,
    /// Bytes that it writes.
    pub written_bytes: usize,
    /// Seconds of a step in which a rank waits for the tier, on the pipeline stage that waits most.
    pub exposed_s: f64,
    /// Bytes that the disk of a node, or the link of a device to its host, moves in a second, both ways together.
    pub bytes_per_s: f64,
    /// The same for the slowest tier, with the same latency, on which a step is at most 1 % longer than on one that moves
    /// bytes in no time; `None` if the tier is that fast.
    pub hidden_at_bytes_per_s: Option<f64>,
    /// What it costs the disk; `None` in host memory, which does not wear out.
    #[serde(flatten)]
    pub wear: Option<Wear>,
}

/// The cost of states for the disk that they are on.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Wear {
    /// Bytes that a node writes in a day of such steps, if it is the one that writes most.
    pub written_bytes_per_day: f64,
    /// Steps until it has written what its disk endures; `None` if that is not known.
    pub lasts_steps: Option<f64>,
    /// Seconds of these steps.
    pub lasts_s: Option<f64>,
}

impl TierPrediction {
    /// The cost for a plan, whose step on this hardware is `timeline`; `None` if the plan keeps nothing in this tier.
    ///
    /// # Errors
    /// If the hardware cannot run the plan.
    pub fn of(
        plan: &Plan,
        hardware: &Hardware,
        threads: usize,
        timeline: &Timeline,
        tier: TierKind,
    ) -> Result<Option<Self>, Impossible> {
        let Some(rates) = hardware.rates_of(tier).filter(|_| plan.config.offload.uses(tier)) else { return Ok(None) };
        let of_stages: Vec<TierBytes> =
            (0..timeline.lanes.len()).map(|stage| TierBytes::in_tier(plan, plan.first_rank(stage), tier)).collect();
        let link = LinkKind::of_tier(tier);
        let in_tier = |part| matches!(part, StepPart::Exposed(Flow::Fetch | Flow::Store, exposed) if exposed == link);
        let exposed = (0..of_stages.len()).map(|stage| timeline.parts(plan, stage).sum(in_tier));
        let of_node = written_of_node(&plan.config.mesh, |stage| of_stages[stage].written) as f64;
        let endurance = hardware.node.disk.and_then(|disk| disk.endurance);
        let lasts_steps = endurance.map(|endurance| (endurance.bytes() as f64 / of_node).floor());
        let wear = Wear {
            written_bytes_per_day: of_node * DAY_S / timeline.step_s,
            lasts_steps,
            lasts_s: lasts_steps.map(|steps| steps * timeline.step_s),
        };
        Ok(Some(Self {
            read_bytes: of_stages.iter().map(|bytes| bytes.read).max().unwrap_or(0),
            written_bytes: of_stages.iter().map(|bytes| bytes.written).max().unwrap_or(0),
            exposed_s: exposed.fold(0.0, f64::max),
            bytes_per_s: rates.both(),
            hidden_at_bytes_per_s: hiding_factor(plan, hardware, threads, tier)?.map(|times| times * rates.both()),
            wear: (tier == TierKind::Disk).then_some(wear),
        }))
    }
}

/// Seconds of a step with a tier that is this many times as fast.
fn step_s(plan: &Plan, hardware: &Hardware, threads: usize, tier: TierKind, times: f64) -> Result<f64, Impossible> {
    let mut hardware = hardware.clone();
    hardware.make_tier_faster(tier, times);
    Ok(simulate_with(plan, &hardware, threads)?.step_s)
}

/// How many times as fast a tier must be to be fast enough; none if it is.
fn hiding_factor(plan: &Plan, hardware: &Hardware, threads: usize, tier: TierKind) -> Result<Option<f64>, Impossible> {
    let enough_s = HIDDEN * step_s(plan, hardware, threads, tier, f64::INFINITY)?;
    let is_enough = |times: f64| Ok(step_s(plan, hardware, threads, tier, times)? <= enough_s);
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

impl TierPrediction {
    /// The cost in one line, for someone who has yet to choose.
    pub fn in_a_line(&self) -> String {
        let moved = Bytes(self.read_bytes + self.written_bytes);
        let (wait, rate) = (ShownTime(self.exposed_s), Rate(self.bytes_per_s));
        let cost = format!("{moved} a rank and step, waits {wait} for it at {rate}");
        match &self.wear {
            Some(Wear { written_bytes_per_day, .. }) => {
                format!("disk: {cost}; a node writes {:.2} TB a day", written_bytes_per_day / 1e12)
            }
            None => match self.hidden_at_bytes_per_s {
                Some(hidden) => format!("host link: {cost}; {} would hide it", Rate(hidden)),
                None => format!("host link: {cost}"),
            },
        }
    }
}

impl fmt::Display for TierPrediction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (read, written) = (Bytes(self.read_bytes), Bytes(self.written_bytes));
        let (wait, rate) = (ShownTime(self.exposed_s), Rate(self.bytes_per_s));
        let [from, name, link] = match self.wear {
            Some(_) => ["disk", "disk", "disk"],
            None => ["host memory", "link to the host", "link"],
        };
        write!(
            f,
            "{from}: a rank reads {read} and writes {written} in a step, and waits {wait} for a {name} of {rate}"
        )?;
        if let Some(rate) = self.hidden_at_bytes_per_s {
            let rate = Rate(rate);
            write!(
                f,
                "\n      a {link} of {rate} would make a step at most 1 % longer than a {link} that takes no time"
            )?;
        }
        let Some(Wear { written_bytes_per_day, lasts_steps, lasts_s }) = self.wear else { return Ok(()) };
        write!(f, "\n      a node writes {:.2} TB a day", written_bytes_per_day / 1e12)?;
        let (Some(steps), Some(seconds)) = (lasts_steps, lasts_s) else { return Ok(()) };
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
