//! Publish: the ops of a publication: each unit is offered once its parameters are those of the last step. Shards that are kept
//! in a tier are fetched ahead.

use super::tier::Window;
use super::walk::PipelineStageWalk;
use super::{Op, Ops};
use crate::config::Offload;
use crate::layout::Tables;

/// Whether this pipeline stage offers a unit: it holds its own parameters here.
const fn offers(walk: &PipelineStageWalk, unit: usize) -> bool {
    walk.tables.config.publishes() && walk.has(unit) && walk.tables.units[unit].params > 0
}

/// An upper bound on the ops for the units of a chunk: fetch, offer and store and, if updates are due, those of each piece.
pub(super) const fn ops_max(tables: &Tables, first: usize, end: usize) -> usize {
    if !tables.config.publishes() {
        return 0;
    }
    let (mut ops, mut unit) = (0, first);
    while unit < end {
        ops += 3 + if tables.config.updates_at_use() { 3 * tables.pieces(unit) } else { 0 };
        unit += 1;
    }
    ops
}

/// Appends the ops of a publication.
pub(super) const fn offer_all(walk: &PipelineStageWalk, window: &mut Window, ops: &mut Ops) {
    let config = walk.tables.config;
    let fetches = config.fetches_published();
    let slots = if config.gathers_fetched() { 1 } else { Offload::SHARD_SLOTS };
    let (mut unit, mut next) = (0, 0);
    // Units fetched and offered so far.
    let (mut fetched, mut offered) = (0, 0);
    while unit < walk.tables.units.len() {
        if offers(walk, unit) {
            while fetches && next < walk.tables.units.len() && fetched < offered + slots {
                if offers(walk, next) {
                    window.before_use(walk, next, ops);
                    ops.push(Op::FetchShard { unit: next, slot: fetched % slots });
                    fetched += 1;
                }
                next += 1;
            }
            window.before_use(walk, unit, ops);
            ops.push(Op::Offer { unit });
            if config.stores_published() {
                ops.push(Op::StoreOffered { unit });
            }
            offered += 1;
        }
        unit += 1;
    }
}
