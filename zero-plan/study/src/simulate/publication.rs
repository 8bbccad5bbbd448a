//! Publication: how long training stands still for a version, and how soon readers elsewhere have it. They take its bytes over the network
//! while training goes on.

use core::fmt;

use serde::Serialize;
use zero_plan::{Bytes, Op, Pass, Plan, TierBytes, TierKind, published_bytes};

use super::cost::{Costs, Rates};
use super::text::ShownTime;
use crate::hardware::{Hardware, Network};

/// Readers that take a version at once, besides one alone: a small group of engines.
const READERS: usize = 6;

/// A version in bytes and seconds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PublicationPrediction {
    /// Bytes of a version, of all ranks.
    pub version_bytes: usize,
    /// Bytes of it of the rank that has most.
    pub rank_bytes: usize,
    /// Seconds for which training stands still while ranks copy what they own.
    pub pause_s: f64,
    /// Seconds in which a device then takes its copy to the memory of its host, beside the next step; `None` if the copy is there.
    pub to_host_s: Option<f64>,
    /// Seconds of the transfer of a version to one reader, on a host of its own with the same links; `None` without a network.
    pub read_s: Option<f64>,
    /// The same for six such readers at once.
    pub read_by_six_s: Option<f64>,
    /// Seconds for which a reader on such a device stands still, if it has staged all bytes and then copies them into its parameters.
    pub reader_pause_s: f64,
}

impl PublicationPrediction {
    /// The publications of a plan on some hardware, with this many threads a rank; `None` if it publishes nothing.
    pub fn of(plan: &Plan, hardware: &Hardware, threads: usize) -> Option<Self> {
        let config = &plan.config;
        let (ranks, of_host) = (config.mesh.ranks(), config.mesh.ranks_per_node());
        let bytes: Vec<usize> = (0..ranks).map(|rank| published_bytes(plan, rank)).collect();
        let version_bytes: usize = bytes.iter().sum();
        let rank_bytes = bytes.iter().copied().max().filter(|_| config.publishes())?;
        let of_stage = |pipeline| pause_s(plan, hardware, threads, plan.first_rank(pipeline));
        let host_link = hardware.rates_of(TierKind::Host).filter(|_| config.stores_published());
        let of_node = bytes.chunks(of_host).map(|of_ranks| of_ranks.iter().sum::<usize>()).max().unwrap_or(0);
        let read_s = |readers: usize| {
            // A reader takes all bytes by its links, and a host of ranks sends its own to each reader.
            Some(over(hardware.network.as_ref()?, version_bytes as f64, (readers * of_node) as f64))
        };
        let reader = Rates { config, hardware, threads };
        Some(Self {
            version_bytes,
            rank_bytes,
            pause_s: (0..plan.pipeline_stages.len()).map(of_stage).fold(0.0, f64::max),
            to_host_s: host_link.map(|link| rank_bytes as f64 / link.write + link.latency),
            read_s: read_s(1),
            read_by_six_s: read_s(READERS),
            reader_pause_s: reader.moving(2 * version_bytes),
        })
    }
}

/// Seconds of a transfer in which a host of a reader takes so many bytes and a host of ranks sends so many.
pub(super) fn over(network: &Network, taken: f64, sent: f64) -> f64 {
    taken.max(sent) / (network.bandwidth * network.links as f64) + network.latency
}

/// Seconds of the ops of a publication on a rank. Tiers work beside them; what goes to the host goes there afterwards.
fn pause_s(plan: &Plan, hardware: &Hardware, threads: usize, rank: usize) -> f64 {
    let (costs, at) = (Costs::new(plan, hardware, threads), plan.config.mesh.coordinates(rank));
    let own = plan.of_rank(rank).ops(Pass::Publish).iter().filter(|op| !op.traits().stream.is_of_tier());
    let computing: f64 = own.map(|&op: &Op| costs.seconds(at, op)).sum();
    let travelling = [TierKind::Host, TierKind::Disk].into_iter().filter_map(|tier| {
        let (rates, TierBytes { read, written }) =
            (hardware.rates_of(tier)?, TierBytes::of_publication(plan, rank, tier));
        let users = if tier == TierKind::Disk { plan.config.mesh.ranks_per_node() } else { 1 };
        Some((read * users) as f64 / rates.read + (written * users) as f64 / rates.write)
    });
    computing.max(travelling.sum())
}

impl fmt::Display for PublicationPrediction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (version, rank) = (Bytes(self.version_bytes), Bytes(self.rank_bytes));
        write!(
            f,
            "publication: training stands still for {} while a rank copies up to {rank} of {version}",
            ShownTime(self.pause_s)
        )?;
        if let Some(seconds) = self.to_host_s {
            write!(
                f,
                "\n      {} later, beside the next step, the copy is in the memory of the host",
                ShownTime(seconds)
            )?;
        }
        if let (Some(one), Some(six)) = (self.read_s, self.read_by_six_s) {
            let (one, six) = (ShownTime(one), ShownTime(six));
            write!(
                f,
                "\n      over the network a reader has it in {one}, and {READERS} readers on hosts of their own in {six}"
            )?;
        }
        let pause = ShownTime(self.reader_pause_s);
        write!(f, "\n      a reader that has staged it stands still for {pause} while it copies it on such a device")
    }
}
