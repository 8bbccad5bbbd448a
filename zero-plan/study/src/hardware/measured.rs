//! Measured: the times of units, from the times of single ops. Never looks at a clock.

use zero_plan::{Op, Plan};

use super::{MeasuredUnit, OpTime};

/// An op of a measured step.
#[derive(Clone, Copy, Debug)]
pub struct MeasuredOp {
    /// The op.
    pub op: Op,
    /// Seconds from its start to its end.
    pub seconds: f64,
    /// [`OpTime::core_seconds`], if they were measured in its step.
    pub core_seconds: Option<f64>,
}

/// The time of each unit of a plan, from the times that each op of each rank took in each step. A layer's time is the
/// mean over its units and micro-batches in one step, and then the median over all steps and ranks. The mean comes first
/// because threads that take turns on cores interrupt some ops, so that only whole steps compare; the median, because
/// other programs disturb some steps. Each rank has the whole model and this many threads.
pub fn measured_units(
    plan: &Plan,
    threads: usize,
    steps: impl IntoIterator<Item = impl IntoIterator<Item = MeasuredOp>>,
) -> Vec<MeasuredUnit> {
    let positions = plan.units.iter().map(|unit| unit.position).max().map_or(0, |last| last + 1);
    let mut means = vec![<[[Vec<f64>; 2]; 3]>::default(); positions];
    for step in steps {
        let mut of_step = vec![[[(0.0, 0_usize); 2]; 3]; positions];
        for MeasuredOp { op, seconds, core_seconds } in step {
            let (Some(kind), Some(unit)) = (kind(op), op.unit()) else { continue };
            let sums = &mut of_step[plan.units[unit].position][kind];
            for ((sum, count), time) in sums.iter_mut().zip([Some(seconds), core_seconds]) {
                let Some(time) = time else { continue };
                (*sum, *count) = (*sum + time, *count + 1);
            }
        }
        let sums = of_step.iter().flatten().flatten();
        let all = means.iter_mut().flatten().flatten();
        all.zip(sums)
            .filter(|(_, (_, count))| *count > 0)
            .for_each(|(all, (sum, count))| all.push(sum / *count as f64));
    }
    let layers = means.into_iter().enumerate();
    let measured = layers.filter_map(|(position, times)| {
        let it = plan.units.iter().find(|unit| unit.position == position)?;
        let [forward, backward, update] = times.map(|times| {
            let [seconds, core_seconds] = times.map(|times| rounded(median(times)));
            OpTime { seconds, core_seconds }
        });
        // A hardware file has the time of AdamW's pass over memory. This time also includes Muon's products, so it is
        // left out.
        let is_orthogonalized = (0..plan.units.len())
            .any(|unit| plan.units[unit].position == position && plan.tables().is_orthogonalized(unit));
        let update = if is_orthogonalized { OpTime::default() } else { update };
        Some(MeasuredUnit {
            model: plan.model.to_owned(),
            field: it.field.to_owned(),
            position,
            params: it.params,
            compute: plan.config.precision.compute,
            tokens: plan.config.tokens(),
            threads,
            ranks: plan.config.mesh.ranks(),
            forward,
            backward,
            update,
        })
    });
    measured.collect()
}

/// The index, among a unit's three times, of the time to which an op belongs.
const fn kind(op: Op) -> Option<usize> {
    match op {
        Op::Forward { .. } => Some(0),
        Op::Backward { .. } => Some(1),
        Op::Update { .. } => Some(2),
        _ => None,
    }
}

/// The median of these times; 0 if there are none.
pub fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    match times.len() {
        0 => 0.0,
        len => (times[(len - 1) / 2] + times[len / 2]) / 2.0,
    }
}

/// Rounded to four digits, which is more than the precision of a measurement.
pub fn rounded(value: f64) -> f64 {
    // By way of text, because a scaled number may have no exact quotient.
    format!("{value:.3e}").parse().expect("a number that was just written")
}

#[cfg(test)]
mod tests {
    use zero_plan::{Config, Mesh, PlanBuf, Unit};

    use super::*;

    #[test]
    fn figures_have_four_digits() {
        assert_eq!([1.234_56e11, 9.999_96e-4, 5.0, 0.0].map(rounded), [1.235e11, 1e-3, 5.0, 0.0]);
    }

    #[test]
    fn each_layer_has_the_mean_of_its_units_in_the_median_step() {
        let unit = |position, index, source| Unit { field: "a", position, index: Some(index), source, ..Unit::NONE };
        let units = [unit(0, 0, 0), unit(1, 1, 1), unit(0, 2, 2)];
        let (micro_batch, slot) = (0, 0);
        let forward = |unit, s| (Op::Forward { unit, micro_batch, slot }, s);
        let backward = |unit, s| (Op::Backward { unit, micro_batch, slot }, s);
        // Units 0 and 2 are of one layer. Of three steps, one is disturbed, and two have the time of cores.
        let step = |(disturbed, cores): (f64, Option<f64>)| {
            let ops =
                [forward(0, 1.0), forward(1, 7.0), forward(2, 3.0 + disturbed), backward(2, 5.0), (Op::Agree, 9.0)];
            let ops = ops.into_iter().chain([(Op::Update { unit: 1, piece: None }, 4.0)]);
            let measured = move |(op, seconds)| {
                let core_seconds = cores.map(|cores: f64| cores * seconds);
                MeasuredOp { op, seconds, core_seconds }
            };
            ops.map(measured)
        };
        let steps = [(0.0, Some(1.25)), (100.0, None), (0.0, Some(1.75))].map(step);
        let config = Config { mesh: Mesh::of_zero(2), sequences: 2, length: 8, ..Config::PLAIN };
        let plan = PlanBuf::new("M", config, &units);
        let measured = plan.with(|plan| measured_units(plan, 3, steps));
        let times = measured.iter().map(|it| (it.position, [it.forward, it.backward, it.update]));
        let of = |seconds| OpTime { seconds, core_seconds: 1.5 * seconds };
        assert!(times.eq([(0, [2.0, 5.0, 0.0].map(of)), (1, [7.0, 0.0, 4.0].map(of))]), "{measured:?}");
        assert!(measured.iter().all(|it| (it.tokens, it.threads, it.ranks) == (16, 3, 2)));
    }
}
