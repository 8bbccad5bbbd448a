//! Unit: the sizes of what is gathered, released and placed as a whole. Never knows what a layer computes.

/// Bytes of one element; every tensor of the arena is made of 4-byte elements (f32, or token ids).
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
}

impl Unit {
    /// Elements of its flat buffer: its parameters, padded so that every rank's shard is whole cache lines.
    pub const fn padded(&self, ranks: usize) -> usize {
        round_up(self.params, ranks * ALIGNMENT)
    }

    /// Whether its parameters live in another unit's flat buffer.
    pub const fn is_tied(&self, this: usize) -> bool {
        self.source != this
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
