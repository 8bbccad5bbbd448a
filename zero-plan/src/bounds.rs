//! Bounds: how much work the compiler may have with a plan, and the largest sizes that it can count. Exceeding them is
//! an error before any table is made. Never looks at memory, which `budget` checks.

use crate::config::{Config, Order};
use crate::layout::Tables;
use crate::message::Message;
use crate::origin::Origin;
use crate::pipeline::Pass;
use crate::schedule::ops_max;
use crate::unit::Unit;

/// The most ops that the schedules of all pipeline stages may have together: about as many as the compiler computes and
/// checks in a few seconds.
pub const OPS_MAX: usize = 1 << 15;

/// The most micro-batches that any spec may ask for. A model has at least two units, each with a forward and a backward
/// in every micro-batch.
pub const MICRO_BATCHES_MAX: usize = OPS_MAX / 4;

const _: () = assert!(MICRO_BATCHES_MAX == 8192, "the range of `batch.micro_batches` in a spec is another");

/// The largest sum over the sizes of a plan: bytes of all micro-batches, or operations of a step. It is a quarter of
/// what can be counted, because some sums are multiplied by small numbers.
const COUNT_MAX: u128 = 1 << 62;

/// Stops the build if the ops of a step would cost the compiler too much time.
///
/// # Panics
/// Z0212.
#[track_caller]
pub const fn require_compilable(tables: &Tables, origin: &Origin) {
    let ops = ops_of_all(tables);
    if ops <= OPS_MAX {
        return;
    }
    let config = tables.config;
    let message = Message::new().text("[Z0212] the schedules of this plan have about ").number(ops);
    let message = message.text(" ops, and at most ").number(OPS_MAX).text(" can be compiled: ");
    let message = message.number(tables.units.len()).text(" units x ").number(config.micro_batches);
    let message = message.text(" micro-batches at stage ").number(config.stage as usize);
    let message = origin.tell_number(message, "batch.micro_batches", config.micro_batches);
    let message = match micro_batches_that_fit(tables) {
        Some(fit) => {
            let message = origin.section(message.text("\n  fix: "), "batch");
            let message = origin.end(origin.key(message, "micro_batches").number(fit));
            message.text(" fits; raise `sequences` for as many tokens in a step")
        }
        None => message.text("\n  fix: put several layers into one field, or choose a lower stage"),
    };
    panic!("{}", message.as_str());
}

/// Whether [`require_compilable`] admits a plan.
pub const fn is_compilable(tables: &Tables) -> bool {
    ops_of_all(tables) <= OPS_MAX
}

const fn ops_of_all(tables: &Tables) -> usize {
    let (mut ops, mut pipeline) = (0, 0);
    while pipeline < tables.config.mesh.pipeline {
        let mut pass = 0;
        while pass < Pass::ALL.len() {
            ops += ops_max(Pass::ALL[pass], tables, pipeline);
            pass += 1;
        }
        pipeline += 1;
    }
    ops
}

/// The most micro-batches with which the plan can be compiled, if any number can.
const fn micro_batches_that_fit(tables: &Tables) -> Option<usize> {
    let pipeline_stages = tables.config.mesh.pipeline;
    // Interleaved pipeline stages take micro-batches in rounds, and no pipeline has fewer micro-batches than stages.
    let round = if let Order::Interleaved { .. } = tables.config.order { pipeline_stages } else { 1 };
    let (mut fits, mut beyond) = (0, tables.config.micro_batches);
    while beyond - fits > 1 {
        let middle = fits + (beyond - fits) / 2;
        let config = Config { micro_batches: middle, ..*tables.config };
        if is_compilable(&Tables { config: &config, ..*tables }) {
            fits = middle;
        } else {
            beyond = middle;
        }
    }
    let fits = fits / round * round;
    if fits > 0 && fits >= pipeline_stages { Some(fits) } else { None }
}

/// Stops the build if sums over the sizes of a model do not fit 64 bits. They are computed in 128 bits here.
///
/// # Panics
/// Z0210.
#[track_caller]
pub const fn require_countable(config: &Config, units: &[Unit], origin: &Origin) {
    if is_countable(config, units) {
        return;
    }
    let (mut largest, mut i) = (0, 1);
    while i < units.len() {
        largest = if bytes_of(&units[i]) > bytes_of(&units[largest]) { i } else { largest };
        i += 1;
    }
    let unit = &units[largest];
    let message = unit.name(Message::new().text("[Z0210] sizes too large to count in 64 bits: `")).text("` has ");
    let message = message.number(unit.params).text(" parameters, takes ").number(unit.input_bytes).text(", gives ");
    let message =
        message.number(unit.output_bytes).text(" and saves ").number(unit.saved_bytes).text(" bytes, and there are ");
    let message = message.number(units.len()).text(" units and ").number(config.micro_batches).text(" micro-batches");
    let message = origin.tell_number(message, "batch.sequences", config.sequences);
    let message = origin.tell_number(message, "batch.length", config.length);
    let message = origin.tell_number(message, "batch.micro_batches", config.micro_batches);
    panic!("{}", message.text("\n  fix: lower them, or the widths of the model").as_str());
}

/// Whether [`require_countable`] admits a configuration.
pub const fn is_countable(config: &Config, units: &[Unit]) -> bool {
    let rounding = (16 * config.mesh.data_ranks() * config.device.alignment()) as u128;
    let (mut bytes, mut operations, mut i) = (0, 0, 0);
    while i < units.len() {
        bytes += bytes_of(&units[i]) + 8 * rounding;
        operations += units[i].operations as u128 + units[i].matrices.operations as u128;
        i += 1;
    }
    let micro_batches = config.micro_batches as u128;
    // No region holds more than every unit for every micro-batch and chunk, or the largest unit in as many slots as
    // there are units. A parameter needs or sends 16 bytes at most.
    let times = micro_batches * config.chunks_per_rank() as u128 + units.len() as u128 + 16;
    bytes * times <= COUNT_MAX && 4 * operations * micro_batches + bytes <= COUNT_MAX
}

const fn bytes_of(unit: &Unit) -> u128 {
    let inner = unit.saved_bytes as u128 + unit.workspace_bytes as u128;
    let outer = unit.input_bytes as u128 + unit.output_bytes as u128 + unit.targets_bytes as u128;
    let inner = inner + unit.cache_bytes as u128;
    16 * (unit.params as u128 + unit.takes as u128) + 2 * (inner + outer)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::PlanBuf;

    const UNIT: Unit = Unit { params: 40, takes: 40, input_bytes: 4, output_bytes: 4, operations: 1, ..Unit::NONE };

    /// The compiler computes the ops of an evaluation too.
    #[test]
    fn evaluations_are_counted() {
        let units = [0, 1, 2, 3].map(|source| Unit { source, ..UNIT });
        PlanBuf::new("Short", Config { stage: 3, ..Config::PLAIN }, &units).with(|plan| {
            let tables = plan.tables();
            let step = ops_max(Pass::Train, &tables, 0);
            assert!(ops_of_all(&tables) >= step + plan.pipeline_stages[0].evaluation.len());
        });
    }

    #[test]
    #[should_panic(expected = "[Z0210]")]
    fn activations_of_each_chunk_are_counted() {
        let units = [Unit { saved_bytes: 1 << 43, ..UNIT }; 2];
        let config = Config { micro_batches: 1 << 12, ..Config::PLAIN };
        // With one chunk, everything can be counted.
        require_countable(&config, &units, &Origin::UNKNOWN);
        let order = Order::Interleaved { chunks: 1 << 6 };
        require_countable(&Config { order, ..config }, &units, &Origin::UNKNOWN);
    }
}
