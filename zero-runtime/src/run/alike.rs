//! Alike: checks whether the devices of all ranks compute the same bits, as far as that can be known before the first step.
//! Never chooses a device.

use super::train::RankEngine;
use crate::error::Error;
use crate::profile::gather;
use zero_core::device::{Device, Mark};
use zero_plan::Plan;

/// Prepares devices, and compares their marks with one another. Every rank must call it.
///
/// # Errors
/// Z0447, the same on all ranks, if one has another device than most; [`zero_core::lost::Lost`].
pub fn ready<D: Device>(engine: &mut RankEngine<D>) -> Result<(), Error> {
    engine.rehearse()?;
    let marks = engine.device().marks();
    if marks.is_empty() {
        return Ok(());
    }
    let own: Vec<f64> = marks.iter().map(|mark| mark.value as f64).collect();
    let ranks = gather(engine, &own)?;
    for (at, mark) in marks.iter().enumerate() {
        let values: Vec<u64> = ranks.iter().map(|values| values[at] as u64).collect();
        if let Some(OddRank { rank, expected, agreeing, peers }) = odd(engine.plan(), mark, &values) {
            let (what, found) = (mark.what, values[rank]);
            return Err(Error::DeviceDiffers { rank, what, expected, agreeing, peers, found });
        }
    }
    Ok(())
}

/// A rank whose value is not the most common one among ranks that should have the same.
#[derive(Debug, PartialEq)]
struct OddRank {
    rank: usize,
    /// The most common value. If two are equally common, the one that comes first.
    expected: u64,
    /// How many ranks have it, of how many.
    agreeing: usize,
    peers: usize,
}

/// The first odd rank.
fn odd(plan: &Plan, mark: &Mark, values: &[u64]) -> Option<OddRank> {
    let pipeline = |rank: usize| if mark.is_of_shapes { plan.config.mesh.coordinates(rank).pipeline } else { 0 };
    let peers = |rank: usize| (0..values.len()).filter(move |&peer| pipeline(peer) == pipeline(rank));
    let shared_by = |rank: usize| peers(rank).filter(|&peer| values[peer] == values[rank]).count();
    let of_rank = |rank: usize| {
        let usual = peers(rank).rev().max_by_key(|&peer| shared_by(peer)).expect("the rank itself");
        OddRank { rank, expected: values[usual], agreeing: shared_by(usual), peers: peers(rank).count() }
    };
    (0..values.len()).map(of_rank).find(|it| values[it.rank] != it.expected)
}

#[cfg(test)]
mod tests {
    use zero_plan::{Config, Mesh, PlanBuf, Unit};

    use super::*;

    #[test]
    fn the_odd_rank_is_found_among_those_that_do_the_same() {
        let unit = Unit { field: "only", params: 8, takes: 8, input_bytes: 16, output_bytes: 16, ..Unit::NONE };
        let config = Config { mesh: Mesh { pipeline: 2, ..Mesh::of_zero(3) }, ..Config::PLAIN };
        PlanBuf::new("", config, &[unit, Unit { source: 1, ..unit }]).with(|plan| {
            let of_all = |values: &[u64]| odd(plan, &Mark::new("", 0), values);
            let named = |rank, expected, agreeing, peers| Some(OddRank { rank, expected, agreeing, peers });
            assert_eq!(of_all(&[7; 6]), None);
            assert_eq!(of_all(&[7, 7, 7, 7, 9, 7]), named(4, 7, 5, 6));
            assert_eq!(of_all(&[9, 7, 7, 7, 7, 7]), named(0, 7, 5, 6));
            assert_eq!(of_all(&[7, 7, 7, 9, 9, 9]), named(3, 7, 3, 6));
            assert_eq!(of_all(&[1, 2, 3, 4, 5, 6]), named(1, 1, 1, 6));
            let of_pipeline_stages = |values: &[u64]| odd(plan, &Mark::of_shapes("", 0), values);
            let pipeline_of = |rank: usize| plan.config.mesh.coordinates(rank).pipeline as u64;
            let mut values: Vec<u64> = (0..6).map(pipeline_of).collect();
            assert_eq!(of_pipeline_stages(&values), None);
            values[4] = 5;
            assert_eq!(of_pipeline_stages(&values), named(4, pipeline_of(4), 2, 3));
        });
    }
}
