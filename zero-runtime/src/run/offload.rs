//! Offload: gives each rank the file in which it keeps the states that its plan has on disk, and says where states are
//! kept. Never decides what is kept where.

use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;

use super::output::say;
use super::train::RankEngine;
use crate::error::Error;
use zero_core::device::{Device, HostOptimizer};
use zero_core::lost::Lost;
use zero_cpu::HostThreads;
use zero_files::tier::StateFolder;
use zero_plan::{Bytes, Config, Home, Plan, TierKind};

/// Makes the file of this rank in a folder, if the plan keeps states on disk, and starts threads of the host if that updates
/// parameters. First all ranks look whether their host has
/// room for all of its ranks, and only then allocate. Every rank must call it.
///
/// # Errors
/// Z0396 to Z0399, of the first rank that has one; on other ranks, the end of that rank.
pub fn keep_states<D: Device>(
    engine: &mut RankEngine<D>,
    folder: Option<&Path>,
    threads: NonZeroUsize,
) -> Result<(), Error> {
    let (plan, rank) = (engine.plan(), engine.arena().rank());
    let most = |home| (0..plan.config.mesh.ranks()).map(|rank| bytes_of(plan, rank, home)).max().unwrap_or(0);
    if rank == 0 && most(Home::Host) > 0 {
        let updates = if plan.config.updates_on_host() { ", which updates parameters" } else { "" };
        let most = Bytes(most(Home::Host));
        say(&format!("offload: up to {most} a rank in pinned memory of its host{updates}\n\n"));
    }
    if plan.config.updates_on_host() {
        let optimizer: Arc<dyn HostOptimizer> = Arc::new(HostThreads::start(threads, &format!("update {rank}"))?);
        engine.update_on_host(&optimizer);
    }
    let Some(path) = folder.filter(|_| plan.config.offload.uses(TierKind::Disk)) else { return Ok(()) };
    let bytes = |rank: usize| bytes_of(plan, rank, Home::Disk);
    let (first, end) = plan.config.sharing(rank);
    let of_host = (first..end).map(bytes).sum();
    let looked = StateFolder::open(path).and_then(|folder| folder.require_room(of_host).map(|()| folder));
    let folder = agreed(engine, looked)?;
    let file_system = folder.file_system();
    let tier = agreed(engine, folder.allocate(bytes(rank), rank))?;
    engine.keep_states_in(Box::new(tier));
    if rank == 0 {
        let most = Bytes(most(Home::Disk));
        say(&format!("offload: up to {most} a rank in `{}` ({file_system})\n\n", path.display()));
    }
    Ok(())
}

/// What `--offload` and the plan contradict each other in, and the way out.
pub fn contradiction(folder: Option<&Path>, config: &Config) -> Option<(String, &'static str)> {
    match (folder, config.offload.uses(TierKind::Disk)) {
        (None, true) => {
            let what = "this program keeps states on disk, but there is no --offload".to_owned();
            Some((what, "name a folder on a disk by --offload"))
        }
        (Some(folder), false) => {
            let what = format!("--offload {} is for states on disk", folder.display());
            let help = "leave it out, or build from a spec with `offload: (optimizer: Disk)`";
            Some((what + ", and this program keeps all of them in memory", help))
        }
        _ => None,
    }
}

/// Bytes that a rank keeps in a tier.
fn bytes_of(plan: &Plan, rank: usize, home: Home) -> usize {
    plan.of_rank(rank).memory.bytes_of(home)
}

/// What this rank has made, if all ranks have made theirs.
pub(super) fn agreed<D: Device, T, E: Into<Error>>(engine: &mut RankEngine<D>, own: Result<T, E>) -> Result<T, Error> {
    let failed = engine.gather_numbers(&[f64::from(own.is_err())])?.iter().position(|&failed| failed > 0.0);
    match (own, failed) {
        (Ok(made), None) => Ok(made),
        (Err(error), Some(first)) if engine.arena().rank() == first => Err(error.into()),
        (_, first) => Err(Lost::Ended { rank: first.unwrap_or(0) }.into()),
    }
}
