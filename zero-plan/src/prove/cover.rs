//! Cover: every element of every flat buffer has one owner in each replica and one rank that sums its gradients, and
//! every gradient is in its sum once.

use core::ops::Range;

use super::{Flaw, Ranks};
use crate::mesh::Coordinates;
use crate::pipeline::Pass;
use crate::place::Stretch;
use crate::plan::Plan;
use crate::schedule::{Op, Parcel};

/// The elements of a stretch.
fn range(Stretch { start, len }: Stretch) -> Range<usize> {
    start..start + len
}

/// An element of `0..len` that ranges leave out or contain twice, if there is one.
fn uncovered(mut ranges: Vec<Range<usize>>, len: usize) -> Option<usize> {
    ranges.sort_by_key(|range| (range.start, range.end));
    let mut end = 0;
    for range in ranges {
        if range.start != end {
            return Some(end.min(range.start));
        }
        end = range.end;
    }
    (end != len).then_some(end.min(len))
}

/// Proves that shards and parts of every unit cover it once.
pub(super) fn owners(plan: &Plan) -> Result<(), Flaw> {
    let mesh = &plan.config.mesh;
    let places: Vec<Coordinates> = (0..mesh.ranks()).map(|rank| mesh.coordinates(rank)).collect();
    for (unit, placement) in plan.placements.iter().enumerate() {
        let here = || places.iter().filter(|at| at.pipeline == placement.pipeline_stage);
        let require = |what: &str, ranges: Vec<Range<usize>>| match uncovered(ranges, placement.padded) {
            Some(element) => Err(Flaw {
                pass: Pass::Train,
                rule: format!("element {element} of unit `{}` does not have exactly one {what}", plan.units[unit]),
                places: Vec::new(),
            }),
            None => Ok(()),
        };
        for replica in 0..mesh.replica {
            let owners = here().filter(|at| at.replica == replica);
            require("owner in its replica", owners.map(|&at| range(plan.places(at).shared_out(unit))).collect())?;
        }
        if plan.config.publishes() && plan.units[unit].params > 0 {
            let offered = here().filter_map(|&at| plan.places(at).offered(unit)).map(range);
            require("rank that offers it to readers", offered.collect())?;
        }
        require("rank that sums its gradients", here().map(|&at| range(plan.places(at).summed(unit))).collect())?;
        for &at in here() {
            let (shard, part) = (range(plan.places(at).shared_out(unit)), range(plan.places(at).summed(unit)));
            if part.start < shard.start || part.end > shard.end {
                require("rank that sums it out of its own shard", Vec::new())?;
            }
        }
    }
    Ok(())
}

/// How often a rank has staged, summed and used the gradients of its pipeline stage.
struct GradientCounts {
    /// For each bucket, the backwards whose gradients lie in its staging.
    staged: Vec<Vec<(usize, usize)>>,
    /// How often the gradient of each unit in each micro-batch entered a sum.
    summed: Vec<usize>,
    /// How often each round of each bucket was summed over a host, along `zero` and along `replica`.
    subtotalled: Vec<usize>,
    settled: Vec<usize>,
    combined: Vec<usize>,
    /// How often gradients of a tied unit were added to those of each unit, and how often it was updated.
    tied: Vec<usize>,
    updated: Vec<usize>,
    /// How often each unit's gradients were added to the momentum of its matrices.
    directed: Vec<usize>,
}

/// Proves that every rank adds each of its gradients to one sum, and takes part in every sum and every update.
///
/// A sum adds the gradients that all members of a communicator have staged for the same reduction (`matching`). So it
/// has every gradient of every data rank once if each rank staged each of its own for one reduction, and took part in
/// all reductions.
pub(super) fn sums(ranks: &Ranks) -> Result<(), Flaw> {
    let overlaps = overlaps(ranks.plan);
    for rank in 0..ranks.ops.len() {
        let counts = count(ranks, rank, &overlaps);
        if let Some(rule) = wrong(ranks, rank, &counts) {
            return Err(ranks.flaw(rule, vec![ranks.spot(rank, ranks.ops[rank].len(), "")]));
        }
    }
    Ok(())
}

/// For each bucket, the buckets of its pipeline stage that overlap it in staging, itself included.
fn overlaps(plan: &Plan) -> Vec<Vec<usize>> {
    let overlaps = |a: usize, b: usize| {
        let (one, other) = (&plan.buckets[a], &plan.buckets[b]);
        one.pipeline_stage == other.pipeline_stage && one.overlaps(other)
    };
    let buckets = 0..plan.buckets.len();
    buckets.clone().map(|a| buckets.clone().filter(|&b| overlaps(a, b)).collect()).collect()
}

fn count(ranks: &Ranks, rank: usize, overlaps: &[Vec<usize>]) -> GradientCounts {
    let plan = ranks.plan;
    let (units, buckets) = (plan.units.len(), plan.buckets.len());
    let (micro_batches, rounds) = (plan.config.micro_batches, plan.config.reductions());
    let mut counts = GradientCounts {
        staged: vec![Vec::new(); buckets],
        summed: vec![0; units * micro_batches],
        subtotalled: vec![0; buckets * rounds],
        settled: vec![0; buckets * rounds],
        combined: vec![0; buckets * rounds],
        tied: vec![0; units],
        updated: vec![0; units],
        directed: vec![0; units],
    };
    for &op in ranks.ops[rank] {
        match op {
            Op::Claim { bucket } => overlaps[bucket].iter().for_each(|&bucket| counts.staged[bucket].clear()),
            Op::Backward { unit, micro_batch, .. } => {
                counts.staged[plan.placements[unit].bucket].push((unit, micro_batch));
            }
            Op::Reduce { bucket, .. } => {
                for &(unit, micro_batch) in &counts.staged[bucket] {
                    counts.summed[unit * micro_batches + micro_batch] += 1;
                }
            }
            Op::Subtotal { bucket, round, .. } => counts.subtotalled[bucket * rounds + round] += 1,
            Op::Settle { bucket, round } => counts.settled[bucket * rounds + round] += 1,
            Op::Combine { bucket, round } => counts.combined[bucket * rounds + round] += 1,
            Op::Fold { unit } => counts.tied[plan.units[unit].source] += 1,
            Op::Receive { parcel: Parcel::TiedGradients, unit, .. } => counts.tied[unit] += 1,
            Op::Momentum { unit } => counts.directed[unit] += 1,
            Op::Update { unit, piece } => {
                counts.updated[unit] += usize::from(ranks.plan.tables().completes(unit, piece))
            }
            _ => {}
        }
    }
    counts
}

/// The first rule about these counts that is broken, if there is one.
fn wrong(ranks: &Ranks, rank: usize, counts: &GradientCounts) -> Option<String> {
    let plan = ranks.plan;
    let (micro_batches, rounds) = (plan.config.micro_batches, plan.config.reductions());
    let pipeline = plan.config.mesh.coordinates(rank).pipeline;
    let times = |count: usize, expected: bool, what: &dyn Fn() -> String| {
        (count != usize::from(expected)).then(|| format!("{}: {count} times, not {}", what(), usize::from(expected)))
    };
    for (unit, placement) in plan.placements.iter().enumerate() {
        let is_here = placement.pipeline_stage == pipeline;
        let name = &plan.units[unit];
        for micro_batch in 0..micro_batches {
            let summed = counts.summed[unit * micro_batches + micro_batch];
            let what = || format!("the gradient of `{name}` in micro-batch {micro_batch} enters its sum");
            // Without parameters there is nothing to sum, whether or not they share a bucket.
            if placement.padded > 0
                && let Some(rule) = times(summed, is_here, &what)
            {
                return Some(rule);
            }
        }
        let has_tied = placement.padded > 0 && plan.tables().tied_to(unit).is_some();
        let tied = || format!("the gradient of the unit tied to `{name}` is added");
        let directed = || format!("the gradient of `{name}` is added to a momentum");
        let updated = || format!("`{name}` is updated");
        let owns = is_here && plan.units[unit].params > 0;
        let rule = times(counts.tied[unit], is_here && has_tied, &tied);
        let is_orthogonalized = owns && plan.tables().is_orthogonalized(unit);
        let rule = rule.or_else(|| times(counts.directed[unit], is_orthogonalized, &directed));
        let rule = rule.or_else(|| times(counts.updated[unit], owns, &updated));
        if rule.is_some() {
            return rule;
        }
    }
    for (i, (&settled, &combined)) in counts.settled.iter().zip(&counts.combined).enumerate() {
        let (bucket, round) = (i / rounds, i % rounds);
        let is_here = plan.buckets[bucket].pipeline_stage == pipeline && plan.buckets[bucket].elements > 0;
        let has_replicas = plan.config.mesh.replica > 1;
        let sum = |axis| move || format!("round {round} of bucket {bucket} is summed along `{axis}`");
        let of_hosts = || format!("round {round} of bucket {bucket} is summed over a host");
        let rule = times(counts.subtotalled[i], is_here && plan.config.subtotal_axis().is_some(), &of_hosts);
        let rule = rule.or_else(|| times(settled, is_here, &sum("zero")));
        let rule = rule.or_else(|| times(combined, is_here && has_replicas, &sum("replica")));
        if rule.is_some() {
            return rule;
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::super::Ranks;
    use super::*;
    use crate::build::PlanBuf;
    use crate::config::Config;
    use crate::groups::Groups;
    use crate::mesh::Mesh;
    use crate::unit::Unit;

    #[test]
    fn ranges_cover_once() {
        assert_eq!(uncovered(vec![3..5, 0..3], 5), None);
        assert_eq!(uncovered(vec![0..3, 3..5], 6), Some(5));
        assert_eq!(uncovered(vec![0..3, 4..5], 5), Some(3));
        assert_eq!(uncovered(vec![0..3, 2..5], 5), Some(2));
        assert_eq!(uncovered(vec![0..3, 3..6], 5), Some(5));
    }

    /// Two pipeline stages of two replicas of two ranks. The last of three units is tied to the first.
    fn plan() -> PlanBuf {
        let mesh = Mesh { pipeline: 2, replica: 2, ..Mesh::of_zero(2) };
        let unit = |source, params| Unit {
            source,
            params,
            takes: 9,
            input_bytes: 4,
            output_bytes: 4,
            operations: 1,
            ..Unit::NONE
        };
        let units = [unit(0, 9), unit(1, 9), unit(2, 9), unit(0, 0)];
        PlanBuf::new("Tied", Config { mesh, micro_batches: 2, stage: 2, ..Config::PLAIN }, &units)
    }

    /// Runs the proof without the check, which also objects to each of these.
    #[test]
    fn a_gradient_that_is_lost_or_doubled_is_found() {
        plan().with(|plan| {
            let all: Vec<&[Op]> = (0..plan.config.mesh.ranks()).map(|rank| plan.of_rank(rank).step).collect();
            let sums_of = |ops: &[&[Op]]| sums(&Ranks { plan, pass: Pass::Train, ops, groups: Groups::of(plan) });
            assert_eq!(sums_of(&all), Ok(()));
            let sums_up = |op: &Op| {
                let receives = matches!(op, Op::Receive { parcel: Parcel::TiedGradients, .. });
                let computes = matches!(op, Op::Backward { .. } | Op::Update { .. });
                receives || computes || matches!(op, Op::Reduce { .. } | Op::Settle { .. } | Op::Combine { .. })
            };
            for rank in 0..all.len() {
                for at in (0..all[rank].len()).filter(|&at| sums_up(&all[rank][at])) {
                    let (mut without, mut twice) = (all[rank].to_vec(), all[rank].to_vec());
                    let op = without.remove(at);
                    twice.insert(at, op);
                    let with = |ops| {
                        let mut of_ranks = all.clone();
                        of_ranks[rank] = ops;
                        sums_of(&of_ranks)
                    };
                    assert!(with(&without).is_err(), "rank {rank} without {op:?}");
                    assert!(with(&twice).is_err(), "rank {rank} with {op:?} twice");
                }
            }
        });
    }
}
