//! Unit: the sizes of what is gathered, released and placed as a whole. Never knows what a layer computes.

use crate::config::Config;
use crate::message::Message;

/// Bytes of one element that is computed with (f32, or a token id).
pub const ELEMENT_BYTES: usize = 4;

/// Elements in a cache line: every buffer and every shard starts on one.
pub const ALIGNMENT: usize = 64 / ELEMENT_BYTES;

/// Rounds `value` up to a multiple of `multiple`.
pub const fn round_up(value: usize, multiple: usize) -> usize {
    value.div_ceil(multiple) * multiple
}

/// One field of the model, or one element of an array field. Sizes are in elements, for one micro-batch of one rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Unit {
    /// Name of the field.
    pub field: &'static str,
    /// Position of the field in the struct: what generated dispatch matches on.
    pub position: usize,
    /// Index in an array field.
    pub index: Option<usize>,
    /// Parameters of its own; 0 where it has none or shares those of `source`.
    pub params: usize,
    /// Parameters that its layer takes: its own, or as many from the start of the flat buffer of `source`.
    pub takes: usize,
    /// The unit whose flat buffer holds its parameters: itself, unless it is tied.
    pub source: usize,
    /// What forward keeps for backward.
    pub saved: usize,
    /// Scratch of one forward or backward call.
    pub workspace: usize,
    /// Activations that enter.
    pub input: usize,
    /// Activations that leave.
    pub output: usize,
    /// Floating-point operations of one forward call.
    pub operations: usize,
}

impl Unit {
    /// A unit of nothing: what others differ from.
    pub const NONE: Self = Self {
        field: "",
        position: 0,
        index: None,
        params: 0,
        takes: 0,
        source: 0,
        saved: 0,
        workspace: 0,
        input: 0,
        output: 0,
        operations: 0,
    };

    /// Elements of its flat buffer: its parameters, padded so that every part of it is as long as the others and ends on
    /// a whole cache line of f32. Gradients are summed by parts, one for each rank with data of its own.
    pub const fn padded(&self, parts: usize) -> usize {
        round_up(self.params, parts * ALIGNMENT)
    }

    /// Whether its parameters live in another unit's flat buffer.
    pub const fn is_tied(&self, this: usize) -> bool {
        self.source != this
    }
}

impl Unit {
    /// Appends its name, as `Display` gives it.
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

/// One field of the model struct, of which an array field makes several units.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// Its name.
    pub name: &'static str,
    /// Number of units: the length of an array field, else 1. `None` where the field is not an array.
    pub count: Option<usize>,
    /// The field whose parameters it shares.
    pub tied: Option<usize>,
    /// Sizes of each of its units; `field`, `position`, `index` and `source` are filled in by [`units`].
    pub sizes: Unit,
}

impl Field {
    const fn units(&self) -> usize {
        match self.count {
            Some(count) => count,
            None => 1,
        }
    }
}

/// Number of units that `fields` make.
pub const fn unit_count(fields: &[Field]) -> usize {
    first_unit(fields, fields.len())
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
    let (mut position, mut next) = (0, 0);
    while position < fields.len() {
        let field = &fields[position];
        let mut i = 0;
        while i < field.units() {
            let mut unit = field.sizes;
            unit.field = field.name;
            unit.position = position;
            unit.index = if field.count.is_some() { Some(i) } else { None };
            unit.source = next;
            if let Some(tied) = field.tied {
                unit.source = first_unit(fields, tied);
                // Else its share of the owner's buffer would be counted, stored and updated twice.
                unit.params = 0;
            }
            units[next] = unit;
            next += 1;
            i += 1;
        }
        position += 1;
    }
    units
}

/// Stops the build where the units cannot be what is meant: Z0208 for parameters that not every rank gets one of, Z0209
/// for gathers further ahead than there are units.
#[track_caller]
pub const fn require_units(config: &Config, units: &[Unit]) {
    let (mut i, mut gathered) = (0, 0);
    while i < units.len() {
        let unit = &units[i];
        gathered += (unit.params > 0) as usize;
        if config.stage > 0 && unit.params > 0 && unit.params < config.mesh.zero {
            let message = unit.name(Message::new().text("[Z0208] unit `")).text("` has ").number(unit.params);
            let message = message.text(" parameters, fewer than the ").number(config.mesh.zero);
            let message = message.text(" ranks along `zero` that shard it: some would own nothing of it");
            panic!("{}", message.text("\n  fix: make it one unit with a field beside it, or shard less").as_str());
        }
        i += 1;
    }
    if config.shards_parameters() && config.prefetch >= gathered {
        let message = Message::new().text("[Z0209] `prefetch` is ").number(config.prefetch);
        let message = message.text(", but only ").number(gathered.saturating_sub(1));
        let message = message.text(" units with parameters can follow the one that computes");
        panic!("{}", message.text("\n  fix: lower `prefetch`").as_str());
    }
}
