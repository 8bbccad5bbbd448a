//! Rules of parcels: a parcel to another pipeline stage is written to a slot that is free, sent once, and received before it is
//! used.

use super::{At, BrokenRule, Checker, Outgoing};
use crate::schedule::Parcel;

impl Checker<'_, '_> {
    pub(super) const fn clear(&mut self, parcel: Parcel) -> BrokenRule {
        let Some(outgoing) = self.outgoing(parcel) else {
            return Some("a slot cleared for a parcel that has none");
        };
        rules! { matches!(outgoing, Outgoing::Unknown) => "a slot cleared before the result in it is sent", }
        *outgoing = Outgoing::Clear;
        None
    }

    const fn outgoing(&mut self, parcel: Parcel) -> Option<&mut Outgoing> {
        match parcel {
            Parcel::Activations => Some(&mut self.activations_out),
            Parcel::Gradients => Some(&mut self.gradients_out),
            Parcel::TiedGradients | Parcel::TiedParameters => None,
        }
    }

    pub(super) const fn send(&mut self, parcel: Parcel, unit: usize, micro_batch: usize) -> BrokenRule {
        if let Some(outgoing) = self.outgoing(parcel) {
            let is_it = match outgoing {
                Outgoing::Written { unit: written, micro_batch: of } => *written == unit && *of == micro_batch,
                Outgoing::Unknown | Outgoing::Clear => false,
            };
            rules! { is_it => "a send of a parcel that is not made", }
            *outgoing = Outgoing::Unknown;
            return None;
        }
        rules! { self.trains() => "tied parameters in an evaluation", micro_batch == 0 => "a micro-batch of a parcel that has none", }
        if let Parcel::TiedGradients = parcel {
            rules! {
                self.subject.tables.units[unit].is_tied(unit) && self.at(unit).holds =>
                    "tied gradients of a unit whose owner is on its pipeline stage",
                self.is_summed(self.at(unit).bucket) => "tied gradients sent before they are summed",
                !self.agreed && !self.units[unit].tied => "tied gradients sent a second time, or too late",
            }
            self.units[unit].tied = true;
            return None;
        }
        rules! {
            self.is_mirrored(unit) => "tied parameters sent where nobody needs them",
            self.units[unit].updated => "tied parameters sent before their update",
            !self.units[unit].mirrored => "tied parameters sent a second time",
        }
        self.units[unit].mirrored = true;
        None
    }

    pub(super) const fn receive(&mut self, parcel: Parcel, unit: usize, micro_batch: usize, slot: usize) -> BrokenRule {
        match parcel {
            Parcel::Activations => {
                rules! {
                    self.is_chunk_first(unit) && unit > 0 => "an input received in the middle of a chunk",
                    self.arrived.is_none() => "an input received over one that is not used",
                    self.units[unit].forwards == micro_batch => "an input that is not the next of its unit",
                }
                self.arrived = Some(At { unit, micro_batch });
                self.take_slot(unit, micro_batch, slot)
            }
            Parcel::Gradients => {
                rules! {
                    self.trains() => "a gradient in an evaluation",
                    self.is_chunk_last(unit) && unit + 1 < self.units.len() =>
                        "a gradient received in the middle of a chunk",
                    self.units[unit].backwards == micro_batch => "a gradient that is not the next of its unit",
                    self.is_in_slot(unit, micro_batch, slot) => "a gradient of other activations",
                    self.gradient_of.is_none() => "a gradient received over one that is not used",
                }
                self.gradient_of = Some(At { unit, micro_batch });
                None
            }
            Parcel::TiedGradients => {
                rules! {
                    self.trains() && self.is_mirrored(unit) => "tied gradients received where nobody sends them",
                    micro_batch == 0 && slot == 0 => "a micro-batch of a parcel that has none",
                    !self.agreed => "tied gradients received too late",
                }
                self.join(unit)
            }
            Parcel::TiedParameters => {
                rules! {
                    self.trains() && self.subject.tables.units[unit].is_tied(unit) && self.at(unit).holds =>
                        "tied parameters received where nobody sends them",
                    micro_batch == 0 && slot == 0 => "a micro-batch of a parcel that has none",
                    self.agreed => "tied parameters received while they are used",
                }
                self.renew(unit)
            }
        }
    }
}
