//! Agreement: combines the losses and the sums of squares of all ranks into the report of a step. The order of every
//! sum follows the layout, never the stage. Never communicates.

use std::ops::Range;

use zero_plan::Plan;

use super::{HyperBlock, ReportBlock};

/// How a plan sums numbers over ranks at the end of a step. Each rank contributes [`Plan::agreed_values`] words: the
/// sum of its losses, then for each unit the sum of squares of the gradients that this rank has summed.
#[derive(Clone, Debug)]
pub struct Agreement {
    /// The ranks of the last pipeline stage, by the data that they work on.
    ranks_by_data: Vec<usize>,
    /// For each pipeline stage, its ranks by the part of every flat buffer that they sum gradients of.
    ranks_by_part: Vec<Vec<usize>>,
    /// The pipeline stage of each unit.
    pipeline_stages: Vec<usize>,
    /// Ranks along `zero`, and along `replica`.
    mesh: [usize; 2],
    /// Number of gradients in a sum: one for each rank with data of its own, and each micro-batch.
    summed: usize,
}

/// Sums numbers along the same tree as gradients.
fn tree_sum(number: &impl Fn(usize) -> f64, span: Range<usize>) -> f64 {
    if span.len() == 1 {
        return number(span.start);
    }
    let middle = span.start + span.len().next_power_of_two() / 2;
    tree_sum(number, span.start..middle) + tree_sum(number, middle..span.end)
}

impl Agreement {
    /// The agreement of a plan.
    pub fn of(plan: &Plan) -> Self {
        let mesh = &plan.config.mesh;
        let mut of_pipeline_stages = vec![Vec::new(); mesh.pipeline];
        (0..mesh.ranks()).for_each(|rank| of_pipeline_stages[mesh.coordinates(rank).pipeline].push(rank));
        let mut ranks_by_data = of_pipeline_stages[mesh.pipeline - 1].clone();
        ranks_by_data.sort_by_key(|&rank| mesh.coordinates(rank).data_rank(mesh));
        let mut ranks_by_part = of_pipeline_stages;
        ranks_by_part.iter_mut().for_each(|ranks| ranks.sort_by_key(|&rank| mesh.coordinates(rank).part(mesh)));
        Self {
            ranks_by_data,
            ranks_by_part,
            pipeline_stages: plan.placements.iter().map(|placement| placement.pipeline_stage).collect(),
            mesh: [mesh.zero, mesh.replica],
            summed: mesh.data_ranks() * plan.config.micro_batches,
        }
    }

    /// Words of each rank.
    pub fn values(&self) -> usize {
        1 + self.pipeline_stages.len()
    }

    /// The ranks of the last pipeline stage, by the data that they work on.
    pub fn ranks_by_data(&self) -> &[usize] {
        &self.ranks_by_data
    }

    /// For each pipeline stage, its ranks by the part of every flat buffer that they sum gradients of.
    pub fn ranks_by_part(&self) -> &[Vec<usize>] {
        &self.ranks_by_part
    }

    /// The pipeline stage of each unit.
    pub fn pipeline_stages(&self) -> &[usize] {
        &self.pipeline_stages
    }

    /// Ranks along `zero`, and along `replica`.
    pub fn mesh(&self) -> [usize; 2] {
        self.mesh
    }

    /// Number of gradients in a sum.
    pub fn summed(&self) -> usize {
        self.summed
    }

    /// The sum of the losses over all data. A rank's loss is the first of its `values` words in `all`. The order is a
    /// tree over replicas, each the sum along a tree over its ranks.
    pub fn summed_loss(&self, all: &[f64], values: usize) -> f64 {
        let [zero, replicas] = self.mesh;
        let loss = |data: usize| all[self.ranks_by_data[data] * values];
        let of_replica = |replica: usize| tree_sum(&loss, replica * zero..(replica + 1) * zero);
        tree_sum(&of_replica, 0..replicas)
    }

    /// The report of a step, from the words of all ranks, in their order. Squares are summed unit by unit, and within a
    /// unit along the tree over its parts, whichever ranks have them. So the norm does not depend on the layout.
    pub fn report(&self, all: &[f64], hyper: &HyperBlock) -> ReportBlock {
        let values = self.values();
        let squares_of = |unit: usize| {
            let ranks = &self.ranks_by_part[self.pipeline_stages[unit]];
            tree_sum(&|part| all[ranks[part] * values + 1 + unit], 0..ranks.len())
        };
        let squares: f64 = (0..self.pipeline_stages.len()).map(squares_of).sum();
        let summed = self.summed as f64;
        let (loss, gradient_norm) = (self.summed_loss(all, values) / summed, squares.sqrt() / summed);
        // PyTorch's formula for clipping.
        let clipping = (hyper.clip / (gradient_norm + 1e-6)).min(1.0);
        let is_finite = loss.is_finite() && gradient_norm.is_finite();
        ReportBlock { loss, gradient_norm, grad_scale: clipping / summed, is_finite: f64::from(u8::from(is_finite)) }
    }
}

#[cfg(test)]
mod tests {
    use zero_plan::{Axis, Config, Mesh, PlanBuf, Unit};

    use super::*;

    const HYPER: HyperBlock = HyperBlock {
        lr: 0.1,
        beta1: 0.9,
        beta2: 0.5,
        momentum: 0.95,
        epsilon: 1e-8,
        weight_decay: 0.2,
        clip: f64::INFINITY,
        correction1: 0.271,
        correction2: 0.875,
    };

    /// Two pipeline stages of two replicas of three ranks, where ranks are not numbered in the order of data or parts.
    fn agreement(micro_batches: usize) -> Agreement {
        let order = [Axis::Pipeline, Axis::Replica, Axis::Zero];
        let mesh = Mesh { nodes: 1, zero: 3, replica: 2, pipeline: 2, order };
        let config = Config { mesh, stage: 1, micro_batches, ..Config::PLAIN };
        let unit = |source| Unit { source, params: 64, takes: 64, input_bytes: 4, output_bytes: 4, ..Unit::NONE };
        PlanBuf::new("", config, &[unit(0), unit(1)]).with(Agreement::of)
    }

    /// Words whose sums depend on the order of summation: those of rank r are w(3 r) and the two after it.
    fn word(i: usize) -> f64 {
        1.0 / (3.0 + i as f64)
    }

    #[test]
    fn sums_follow_the_order_of_the_mesh() {
        let all: Vec<f64> = (0..36).map(word).collect();
        let report = agreement(2).report(&all, &HYPER);
        // Ranks lie at pipeline + 2 replica + 4 zero; losses are those of the last pipeline stage, replica by replica.
        let loss = |replica: usize| {
            let of = |zero: usize| word(3 * (1 + 2 * replica + 4 * zero));
            (of(0) + of(1)) + of(2)
        };
        assert_eq!(report.loss, (loss(0) + loss(1)) / 12.0);
        // The squares of each unit are those of its own pipeline stage, part by part: a shard is cut among replicas.
        let squares = |unit: usize| {
            let of = |zero: usize, replica: usize| word(3 * (unit + 2 * replica + 4 * zero) + 1 + unit);
            let shard = |zero: usize| of(zero, 0) + of(zero, 1);
            (shard(0) + shard(1)) + shard(2)
        };
        assert_eq!(report.gradient_norm, (squares(0) + squares(1)).sqrt() / 12.0);
        assert_eq!((report.grad_scale, report.is_finite()), (1.0 / 12.0, true));
    }

    #[test]
    fn clipping_shortens_and_never_lengthens() {
        // There are 24 gradients in each sum, and their mean has the norm 2.
        let mut all = vec![0.0; 36];
        all[1] = 48.0 * 48.0;
        let scale = |clip| agreement(4).report(&all, &HyperBlock { clip, ..HYPER }).grad_scale * 24.0;
        assert!((scale(1.0) - 0.5).abs() < 1e-6);
        assert_eq!((scale(3.0), scale(f64::INFINITY)), (1.0, 1.0));
    }

    #[test]
    fn one_word_that_is_not_finite_is_told() {
        // A loss of the last pipeline stage, then a square of each unit.
        for (at, of) in [(3, "loss"), (1, "norm"), (5, "norm")] {
            for bad in [f64::NAN, f64::INFINITY] {
                let mut all = vec![1.0; 36];
                all[at] = bad;
                let report = agreement(2).report(&all, &HYPER);
                assert_eq!((report.loss.is_finite(), report.gradient_norm.is_finite()), (of != "loss", of != "norm"));
                assert_eq!(report.is_finite, 0.0);
            }
        }
    }
}
