//! Unit: the sizes of a part of a model that is gathered and placed as a whole. Never knows what a layer computes.

use serde::{Deserialize, Deserializer, Serialize};

use crate::config::{Config, Offload, Recompute, is_same_text};
use crate::message::Message;
use crate::origin::Origin;

/// The most units of a model. Some tables are compared in pairs, so their cost grows with the square of it.
pub const UNITS_MAX: usize = 1 << 10;

/// One field of the model, or one element of an array field. Sizes are those of one micro-batch of one rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Unit {
    /// Name of the field.
    #[serde(deserialize_with = "name")]
    pub field: FieldName,
    /// Position of its [`Field`] among those of the model, which generated dispatch matches on.
    pub position: usize,
    /// Index in an array field.
    pub index: Option<usize>,
    /// Its own parameters; 0 if it has none or shares those of `source`.
    pub params: usize,
    /// Parameters that its layer computes with: its own, or those at the start of the flat buffer of `source`.
    pub takes: usize,
    /// The unit whose flat buffer holds its parameters: itself, unless it is tied.
    pub source: usize,
    /// Values that forward keeps for backward.
    pub saved_bytes: usize,
    /// Scratch of one forward or backward call.
    pub workspace_bytes: usize,
    /// Activations that enter the unit.
    pub input_bytes: usize,
    /// Activations that leave it.
    pub output_bytes: usize,
    /// Floating-point operations of one forward call.
    pub operations: usize,
    /// The part of `operations` by which tokens attend to one another.
    pub attending: usize,
    /// Whether it is a head whose backward computes the losses as well, so that training has no forward of it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub losses_in_backward: bool,
    /// Inputs before conversion, if they have to be converted before they enter; otherwise 0.
    pub given_bytes: usize,
    /// Targets that are to be predicted, if it ends a model.
    pub targets_bytes: usize,
    /// The cache in which decoding keeps the earlier tokens of one sequence.
    pub cache_bytes: usize,
    /// The matrices that an optimizer may make orthogonal.
    #[serde(default, skip_serializing_if = "OrthogonalCost::are_none")]
    pub matrices: OrthogonalCost,
}

/// The cost of making the matrices of a unit orthogonal, one after another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OrthogonalCost {
    /// Scratch for the matrix that needs most; 0 if there are no matrices.
    pub room_bytes: usize,
    /// Floating-point operations of all of them.
    pub operations: usize,
    /// Floating-point operations of the matrix that needs most.
    pub operations_max: usize,
}

impl OrthogonalCost {
    /// None at all.
    pub const NONE: Self = Self { room_bytes: 0, operations: 0, operations_max: 0 };

    /// Whether there are none.
    pub const fn are_none(&self) -> bool {
        self.room_bytes == 0
    }

    /// These and others together, which take turns with one scratch.
    pub const fn and(self, other: Self) -> Self {
        Self {
            room_bytes: max(self.room_bytes, other.room_bytes),
            operations: self.operations.saturating_add(other.operations),
            operations_max: max(self.operations_max, other.operations_max),
        }
    }
}

/// The larger of two sizes, in constants.
pub(crate) const fn max(a: usize, b: usize) -> usize {
    if a > b { a } else { b }
}

/// Name of a field. An alias, because the code that serde derives for a reference would borrow it from the text.
pub type FieldName = &'static str;

/// Reads a name, which lives forever like the names in a program. A command reads only those of one model.
fn name<'de, D: Deserializer<'de>>(deserializer: D) -> Result<FieldName, D::Error> {
    String::deserialize(deserializer).map(|name| &*name.leak())
}

impl Unit {
    /// An empty unit, from which other units are made.
    pub const NONE: Self = Self {
        field: "",
        position: 0,
        index: None,
        params: 0,
        takes: 0,
        source: 0,
        saved_bytes: 0,
        workspace_bytes: 0,
        input_bytes: 0,
        output_bytes: 0,
        operations: 0,
        attending: 0,
        losses_in_backward: false,
        given_bytes: 0,
        targets_bytes: 0,
        cache_bytes: 0,
        matrices: OrthogonalCost::NONE,
    };

    /// How often its forward runs in a training step.
    pub const fn forward_passes(&self) -> usize {
        if self.losses_in_backward { 0 } else { 1 }
    }

    /// The operations of its backward, in multiples of a forward: one product for the gradients of the input, and one
    /// for those of the parameters; and the forward itself, if training has none.
    pub const fn backward_passes(&self) -> usize {
        3 - self.forward_passes()
    }

    /// Floating-point operations of its forward in a training step.
    pub const fn forward_operations(&self) -> usize {
        self.forward_passes() * self.operations
    }

    /// Floating-point operations of its backward.
    pub const fn backward_operations(&self) -> usize {
        self.backward_passes() * self.operations
    }

    /// Whether its parameters lie in another unit's flat buffer.
    pub const fn is_tied(&self, this: usize) -> bool {
        self.source != this
    }
}

impl Unit {
    /// Appends its name, as `Display` writes it.
    pub(crate) const fn name(&self, message: Message) -> Message {
        let message = message.text(self.field);
        match self.index {
            Some(index) => message.text("[").number(index).text("]"),
            None => message,
        }
    }
}

impl core::fmt::Display for Unit {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self.index {
            Some(index) => write!(f, "{}[{index}]", self.field),
            None => f.write_str(self.field),
        }
    }
}

impl Config {
    /// Whether unit `unit` runs forward again before its backward.
    pub const fn recomputes(&self, units: &[Unit], unit: usize) -> bool {
        match self.recompute {
            Recompute::None => false,
            Recompute::Every(k) => (unit + 1).is_multiple_of(k) && unit + 1 < units.len(),
            Recompute::Fields(names) => {
                let mut i = 0;
                while i < names.len() {
                    if is_same_text(names[i], units[unit].field) {
                        return true;
                    }
                    i += 1;
                }
                false
            }
        }
    }
}

/// One field of the model struct, or one element of an alternating array. An array field makes several units.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// Its name.
    pub name: &'static str,
    /// Number of units: the length of an array field. `None` for a field that is not an array, which is one unit.
    pub count: Option<usize>,
    /// The field whose parameters it shares.
    pub tied: Option<usize>,
    /// The number of entries from this one on whose units alternate: 1 for a field that repeats alone. An alternating
    /// array has an entry for each element of its tuple, all with the same name and count. The first entry has their
    /// number here, and the others have 0.
    pub period: usize,
    /// Sizes of each of its units; `field`, `position`, `index` and `source` are filled in by [`units`].
    pub sizes: Unit,
}

impl Field {
    /// Units of this entry and of the entries that alternate with it. Only the first of these entries counts them.
    const fn units(&self) -> usize {
        match self.count {
            Some(count) => count.saturating_mul(self.period),
            None => self.period,
        }
    }
}

/// Number of units that `fields` make.
///
/// # Panics
/// Z0212 if they are more than 1,024.
#[track_caller]
pub const fn unit_count(fields: &[Field]) -> usize {
    let (mut count, mut largest, mut i) = (0usize, 0, 0);
    while i < fields.len() {
        count = count.saturating_add(fields[i].units());
        largest = if fields[i].units() > fields[largest].units() { i } else { largest };
        i += 1;
    }
    if count > UNITS_MAX {
        let message = Message::new().text("[Z0212] the model has ").number(count).text(" units, and at most ");
        let message = message.number(UNITS_MAX).text(" can be compiled: field `").text(fields[largest].name);
        let message = message.text("` alone has ").number(fields[largest].units());
        panic!("{}", message.text("\n  fix: put several layers into one element of the array").as_str());
    }
    count
}

/// Index of the first unit of field `position`.
const fn first_unit(fields: &[Field], position: usize) -> usize {
    let (mut count, mut i) = (0, 0);
    while i < position {
        count += fields[i].units();
        i += 1;
    }
    count
}

/// The units of a model, in order. `U` is [`unit_count`].
pub const fn units<const U: usize>(fields: &[Field]) -> [Unit; U] {
    let mut units = [fields[0].sizes; U];
    fill_units(fields, &mut units);
    units
}

/// The same, at run time.
pub fn unit_list(fields: &[Field]) -> Vec<Unit> {
    let mut units = vec![Unit::NONE; unit_count(fields)];
    fill_units(fields, &mut units);
    units
}

/// `units` has room for [`unit_count`].
const fn fill_units(fields: &[Field], units: &mut [Unit]) {
    let (mut first, mut next) = (0, 0);
    while first < fields.len() {
        let field = &fields[first];
        let mut i = 0;
        while i < field.units() {
            let position = first + i % field.period;
            let mut unit = fields[position].sizes;
            unit.field = field.name;
            unit.position = position;
            unit.index = if field.count.is_some() { Some(i) } else { None };
            unit.source = next;
            if let Some(tied) = field.tied {
                unit.source = first_unit(fields, tied);
                // Otherwise the parameters that it shares would be counted, stored and updated twice.
                unit.params = 0;
            }
            units[next] = unit;
            next += 1;
            i += 1;
        }
        first += 1;
    }
}

/// Stops the build if units are too small or too few: Z0208 for a unit with fewer parameters than ranks, Z0209 for
/// gathers further ahead than there are units.
#[track_caller]
pub const fn require_units(config: &Config, units: &[Unit], origin: &Origin) {
    if let Some(unit) = smaller_than_shards(config, units) {
        let unit = &units[unit];
        let message = unit.name(Message::new().text("[Z0208] unit `")).text("` has ").number(unit.params);
        let message = message.text(" parameters, fewer than the ").number(config.mesh.zero);
        let message = message.text(" ranks along `zero` that shard it: some would own nothing of it");
        let message = origin.tell_number(message, "mesh.zero", config.mesh.zero);
        let message = message.text("\n  fix: put it into one field with a layer beside it, or lower `");
        let message = message.text(origin.name("mesh.zero")).text("` to ").number(unit.params);
        panic!("{}", message.text(" or fewer").as_str());
    }
    let gathered = gathered(units);
    if config.shards_parameters() && config.prefetch >= gathered {
        let most = gathered.saturating_sub(1);
        let message = Message::new().text("[Z0209] `prefetch` is ").number(config.prefetch).text(", but only ");
        let message = message.number(most).text(" units with parameters can follow the one that computes");
        let message = origin.tell_number(message, "zero.prefetch", config.prefetch);
        let message = origin.section(message.text("\n  fix: "), "zero");
        let message = origin.end(origin.key(message, "prefetch").number(most));
        panic!("{}", message.text(", or less").as_str());
    }
    require_recompute(config, units, origin);
    require_matrices(config, units, origin);
    require_own_states(config, units, origin);
    require_travelling_activations(config, units, origin);
}

/// Whether sums of gradients or parameters are kept in a tier, although those of a tied unit are added to others, or copied.
pub const fn adds_to_kept_states(config: &Config, units: &[Unit]) -> bool {
    let last = units.len() - 1;
    let is_tied = units[last].is_tied(last) && units[units[last].source].params > 0;
    is_tied && (config.offloads_gradients() || config.offloads_parameters() && config.mesh.pipeline > 1)
}

/// Stops the build if sums of gradients are kept in a tier, but those of tied parameters are added to others; or if
/// shards of parameters are, but tied ones are sent to another pipeline stage (Z0231).
#[track_caller]
const fn require_own_states(config: &Config, units: &[Unit], origin: &Origin) {
    if !adds_to_kept_states(config, units) {
        return;
    }
    let last = units.len() - 1;
    let (owner, tied) = (units[units[last].source].field, units[last].field);
    let message = Message::new().text("[Z0231] ");
    if config.offloads_gradients() {
        let message = message.text("gradients are kept in a tier, but those of `").text(tied);
        let message = message.text("` are added to those of `").text(owner).text("`, to which it is tied");
        let message = origin.tell(message, "offload.gradients", "Device");
        let message = message.text("\n  fix: remove `gradients` of `offload`, or give the field parameters of its own");
        panic!("{}", message.as_str());
    }
    let message = message.text("parameters are kept in a tier, but those of `").text(owner);
    let message = message.text("` are sent to the pipeline stage of `").text(tied).text("`, which is tied to it");
    let message = origin.tell(message, "offload.parameters", "Device");
    let message = message.text("\n  fix: remove `parameters` of `offload`, or give the field parameters of its own");
    panic!("{}", message.as_str());
}

/// Whether activations are kept in a tier, but those of all units would stay on the device.
pub const fn activations_stay(config: &Config, units: &[Unit]) -> bool {
    config.offloads_activations() && config.offload.slots() + 1 >= units.len()
}

/// Stops the build if activations are kept in a tier, but those of all units would stay on the device (Z0232).
#[track_caller]
const fn require_travelling_activations(config: &Config, units: &[Unit], origin: &Origin) {
    if !activations_stay(config, units) {
        return;
    }
    let message = Message::new().text("[Z0232] activations are kept in a tier, but none would travel: the model has ");
    let message = message.number(units.len()).text(" units, and the last ").number(config.offload.slots() + 1);
    let message = message.text(" of a model keep theirs on the device");
    let message = origin.tell_number(message, "offload.prefetch", config.offload.prefetch).text("\n  fix: ");
    let message = match units.len().checked_sub(Offload::NONE.slots() + 2) {
        Some(most) => {
            let message = origin.key(origin.section(message, "offload"), "prefetch").number(most);
            origin.end(message).text(" or less, or remove `activations` of `offload`")
        }
        None => message.text("remove `activations` of `offload`, or cut the model into more units"),
    };
    panic!("{}", message.as_str());
}

/// Stops the build if the optimizer is for matrices of hidden layers, but there are none (Z0229).
#[track_caller]
const fn require_matrices(config: &Config, units: &[Unit], origin: &Origin) {
    let mut i = 0;
    while config.optimizer.orthogonalizes() && i < units.len() {
        if units[i].params > 0 && !units[i].matrices.are_none() {
            return;
        }
        i += 1;
    }
    if config.optimizer.orthogonalizes() {
        let message =
            Message::new().text("[Z0229] `Muon` updates nothing: the model has no matrix of a hidden layer, only ");
        let message = message.text("embeddings, heads, gains and biases");
        let message = origin.tell(message, "optimizer", "AdamW");
        let message =
            message.text("\n  fix: remove `optimizer`; a layer of your own counts its matrices in `MATRICES`");
        panic!("{}", message.as_str());
    }
}

/// Stops the build if no unit is recomputed, although some should be (Z0219).
#[track_caller]
const fn require_recompute(config: &Config, units: &[Unit], origin: &Origin) {
    let Recompute::Every(k) = config.recompute else { return };
    if k < units.len() {
        return;
    }
    let message = Message::new().text("[Z0219] `Every(").number(k);
    let message = message.text(")` recomputes nothing: the model has ").number(units.len());
    let message = message.text(" units, of which the last is never recomputed");
    let message = origin.tell(message, "recompute", "nothing");
    let most = units.len().saturating_sub(1);
    panic!("{}", message.text("\n  fix: lower it to ").number(most).text(" or less, or remove `recompute`").as_str());
}

/// The first unit with fewer parameters than ranks that would shard it.
pub const fn smaller_than_shards(config: &Config, units: &[Unit]) -> Option<usize> {
    let mut i = 0;
    while i < units.len() {
        if config.stage > 0 && units[i].params > 0 && units[i].params < config.mesh.zero {
            return Some(i);
        }
        i += 1;
    }
    None
}

/// Whether any unit of a model has a cache for decoding.
pub(crate) const fn caches(units: &[Unit]) -> bool {
    let mut i = 0;
    while i < units.len() {
        if units[i].cache_bytes > 0 {
            return true;
        }
        i += 1;
    }
    false
}

/// The number of units with their own parameters.
pub const fn gathered(units: &[Unit]) -> usize {
    let (mut gathered, mut i) = (0, 0);
    while i < units.len() {
        gathered += (units[i].params > 0) as usize;
        i += 1;
    }
    gathered
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZES: Unit = Unit { params: 10, takes: 10, ..Unit::NONE };
    const ALONE: Field = Field { name: "embed", count: None, tied: None, period: 1, sizes: SIZES };
    const fn field(period: usize, params: usize, count: usize) -> Field {
        Field { name: "blocks", count: Some(count), period, sizes: Unit { params, ..SIZES }, ..ALONE }
    }

    #[test]
    fn units_of_an_array_alternate() {
        const FIELDS: &[Field] = &[
            ALONE,
            field(3, 1, 2),
            field(0, 2, 2),
            field(0, 3, 2),
            field(1, 4, 2),
            Field { name: "norm", ..ALONE },
            Field { name: "head", tied: Some(5), ..ALONE },
        ];
        let units: [Unit; unit_count(FIELDS)] = units(FIELDS);
        let position: Vec<_> = units.iter().map(|unit| (unit.position, unit.index, unit.params, unit.source)).collect();
        let expected = [
            (0, None, 10, 0),
            (1, Some(0), 1, 1),
            (2, Some(1), 2, 2),
            (3, Some(2), 3, 3),
            (1, Some(3), 1, 4),
            (2, Some(4), 2, 5),
            (3, Some(5), 3, 6),
            (4, Some(0), 4, 7),
            (4, Some(1), 4, 8),
            (5, None, 10, 9),
            (6, None, 0, 9),
        ];
        assert_eq!(position, expected);
        let config = Config { recompute: Recompute::Fields(&["blocks"]), ..Config::PLAIN };
        let recomputed = (0..units.len()).filter(|&unit| config.recomputes(&units, unit));
        assert_eq!(recomputed.collect::<Vec<_>>(), (1..9).collect::<Vec<_>>());
    }

    #[test]
    fn z0212_units_that_alternate_are_counted_together() {
        let refused =
            std::panic::catch_unwind(|| unit_count(&[ALONE, field(2, 1, 600), field(0, 1, 600)])).unwrap_err();
        let message = refused.downcast_ref::<String>().unwrap();
        assert!(message.starts_with("[Z0212] the model has 1201 units"), "{message}");
        assert!(message.contains("field `blocks` alone has 1200"), "{message}");
        assert_eq!(unit_count(&[ALONE, field(2, 1, 500), field(0, 1, 500)]), 1001);
        std::panic::catch_unwind(|| unit_count(&[field(2, 1, usize::MAX), field(0, 1, usize::MAX)])).unwrap_err();
    }
}
