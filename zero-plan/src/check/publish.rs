//! Rules of publications: every unit is offered once, after its update, from a shard that is there.

use super::{BrokenRule, Checker};
use crate::pipeline::Pass;
use crate::schedule::Op;

/// Whether a publication may have such an op: it offers, brings shards from their tier, and does updates that are due.
pub(super) const fn is_of_publications(op: Op) -> bool {
    matches!(
        op,
        Op::Offer { .. }
            | Op::StoreOffered { .. }
            | Op::FetchShard { .. }
            | Op::Fetch { .. }
            | Op::Update { .. }
            | Op::Store { .. }
    )
}

impl Checker<'_, '_> {
    pub(super) const fn publishes(&self) -> bool {
        matches!(self.subject.pass, Pass::Publish)
    }

    /// Whether a pass updates every unit: a step does, and so does a publication that finds updates due.
    pub(super) const fn updates(&self) -> bool {
        let config = self.subject.tables.config;
        self.trains() || config.publishes() && config.updates_in(self.subject.pass)
    }

    /// Whether a pass offers a unit.
    pub(super) const fn is_offered(&self, unit: usize) -> bool {
        let tables = &self.subject.tables;
        self.publishes() && tables.config.publishes() && tables.units[unit].params > 0
    }

    pub(super) const fn offer(&mut self, unit: usize) -> BrokenRule {
        rules! {
            self.is_offered(unit) => "an offer of a unit without parameters of its own, or of a plan without copies",
            !self.units[unit].offered => "a second offer of a unit",
            self.is_fresh(unit) => "an offer before the update of its parameters",
        }
        self.units[unit].offered = true;
        self.units[unit].is_in_window = self.subject.tables.config.stores_published();
        if self.subject.tables.config.fetches_published() { self.give_shard(unit, 0) } else { None }
    }

    pub(super) const fn store_offered(&mut self, unit: usize) -> BrokenRule {
        rules! { self.units[unit].is_in_window => "a store of what is not in the window of published parameters", }
        self.units[unit].is_in_window = false;
        None
    }
}
